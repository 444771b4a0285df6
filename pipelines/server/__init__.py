"""The owner's server: the one process that runs the jobs and carries out orders."""
