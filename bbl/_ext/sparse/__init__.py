"""Kernels of sparse regression."""
