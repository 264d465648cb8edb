"""Kernels of Gibbs sampling."""
