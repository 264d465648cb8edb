"""Results of Boltzmann machines."""
