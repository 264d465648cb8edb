"""Kernels for pseudo-likelihood."""
