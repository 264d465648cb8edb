"""Boltzmann machines of all groups: estimation, tuning, validation, averages."""
