"""Kernels for conditional likelihood."""
