"""Computations with plain arrays: parameters, energies, ln Z, prediction and sampling."""
