"""Experiments on copies of a job, or on the job itself: probes, searches and drills."""
