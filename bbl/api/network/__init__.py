"""Public functions for Bayesian network classifiers: learning, fitting and cross-validation."""
