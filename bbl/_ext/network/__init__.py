"""Kernels for Bayesian networks."""
