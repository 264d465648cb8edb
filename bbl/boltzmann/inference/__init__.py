"""Standard errors, tests and intervals of fitted Boltzmann machines."""
