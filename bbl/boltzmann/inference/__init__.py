"""Standard errors, tests and confidence intervals for fitted Boltzmann machines."""
