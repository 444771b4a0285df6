"""Training: fit the models from measurements, check them, put them in charge."""
