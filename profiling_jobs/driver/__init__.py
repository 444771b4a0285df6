"""What runs inside the driver of somebody's job, beside his program?"""
