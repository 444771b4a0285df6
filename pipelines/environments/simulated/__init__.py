"""The simulated environment: the twins of models.simulation behind every port."""
