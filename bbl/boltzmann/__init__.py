"""Boltzmann machines for all groups: estimation, tuning, validation and averaging."""
