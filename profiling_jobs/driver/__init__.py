"""What runs inside the driver of a job, beside the user's program."""
