"""Compiled kernels, which take and return arrays."""
