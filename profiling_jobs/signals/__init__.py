"""What does a job show of itself: its lag, rates, latency, batches and executors?"""
