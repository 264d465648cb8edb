"""Kernels of pseudo-likelihood."""
