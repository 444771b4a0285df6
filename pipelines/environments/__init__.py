"""Environments: where jobs run, and the ports that belong to it."""
