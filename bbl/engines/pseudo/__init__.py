"""The engine of pseudo-likelihood."""
