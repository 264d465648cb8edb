"""Kernels for posterior draws."""
