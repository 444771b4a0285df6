"""The wiring: definitions, command line, and one resource per outside system."""
