"""The web address of Headroom: its access rules, and Dagster's and MLflow's pages behind it."""
