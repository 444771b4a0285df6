"""Telemetry of a job: offsets, lag, rates, latency, batches and executors."""
