"""The local environment: real Kafka and Spark on this machine."""
