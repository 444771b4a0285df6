"""Simulation of a broker and of jobs on a cluster, in memory and on a stepped clock.

The objects have the same fields and methods as the ports and pass the same suites (tests/contracts).
"""
