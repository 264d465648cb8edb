"""Engines of pairwise models without the likelihood: probability flow, contrastive divergence."""
