"""Kernels of two-way clustering."""
