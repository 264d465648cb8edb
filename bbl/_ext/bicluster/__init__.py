"""Kernels for two-way clustering."""
