"""Recordings of live input, as Parquet."""
