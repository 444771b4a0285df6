"""What people see of the jobs, and tell them: for the command line and for the home page."""
