"""Engines that fit pairwise models without computing the likelihood: probability flow and
contrastive divergence."""
