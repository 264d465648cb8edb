"""Engines for pairwise models that avoid ln Z: probability flow and contrastive divergence."""
