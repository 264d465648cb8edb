"""Kernels for sparse regression."""
