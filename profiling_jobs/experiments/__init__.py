"""Experiments on copies of a job: probes that measure capacity, drills that measure recovery."""
