"""Kernels for boosting."""
