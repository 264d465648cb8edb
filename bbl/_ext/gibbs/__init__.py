"""Kernels for Gibbs sampling."""
