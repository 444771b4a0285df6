"""Processes on this machine: ownership, records of what was started, supervision."""
