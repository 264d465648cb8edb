"""Results of Bayesian network classifiers."""
