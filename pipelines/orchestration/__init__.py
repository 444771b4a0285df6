"""Dagster: sensors, schedules, jobs and resources."""
