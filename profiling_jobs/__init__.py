"""What runs against or on the cluster. Knows neither Dagster nor MLflow."""
