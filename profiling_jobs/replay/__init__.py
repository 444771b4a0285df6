"""Recorded or generated records, sent at a commanded rate."""
