"""Public functions for Boltzmann machines: fits, cross-validation, averages, scores, simulation."""
