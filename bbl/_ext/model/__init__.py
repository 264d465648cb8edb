"""Kernels for counts, energies and operations on small matrices."""
