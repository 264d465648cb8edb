"""Kernels of posterior draws."""
