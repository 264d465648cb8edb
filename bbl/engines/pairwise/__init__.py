"""Engines for pairwise models without likelihood: probability flow and contrastive divergence."""
