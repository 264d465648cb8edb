"""The pseudo-likelihood engine."""
