"""Pure models: numbers in, frozen values out, no clock and no I/O."""
