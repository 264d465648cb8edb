"""The engine of sparse high-order Boltzmann machines."""
