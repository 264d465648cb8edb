"""Kernels of persistent variational inference."""
