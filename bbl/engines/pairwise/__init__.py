"""Engines that fit fields and couplings of pairs jointly, without the likelihood: minimum
probability flow and persistent contrastive divergence.
"""
