"""What happens to a job at every evaluation interval?"""
