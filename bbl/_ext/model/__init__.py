"""Kernels of counts, energies and small linear algebra."""
