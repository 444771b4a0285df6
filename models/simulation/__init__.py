"""What would happen? Twins of the outside world on a stepped clock, in memory.

They fit the ports by shape (the same fields, the same methods) and pass the same suites (tests/contracts).
"""
