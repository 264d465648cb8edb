"""Boltzmann machines of all groups: estimation, tuning, validation and averages."""
