"""bbl: learning from categorical data with Boltzmann machines."""
