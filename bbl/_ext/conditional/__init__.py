"""Kernels of conditional likelihood."""
