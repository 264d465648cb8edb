"""The engine for sparse high-order Boltzmann machines."""
