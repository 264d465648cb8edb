"""Likelihood-based selection of graphical models, for data in arrays."""
