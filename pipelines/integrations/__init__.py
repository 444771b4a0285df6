"""Adapters of outside systems: Kafka, Spark, MLflow, SQLite, Postgres."""
