"""The engine `PseudoLikelihood`, which maximises the pseudo-likelihood."""
