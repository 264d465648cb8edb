"""Kernels for persistent variational inference."""
