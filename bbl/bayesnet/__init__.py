"""Bayesian network classifiers on plain arrays: structures, parameters and predictions."""
