"""Explanations of stored decisions, in sentences."""
