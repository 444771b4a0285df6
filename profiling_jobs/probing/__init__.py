"""What does the job sustain at each size? Probes, on copies of it."""
