"""The engine `HighOrder`, which fits sparse high-order Boltzmann machines."""
