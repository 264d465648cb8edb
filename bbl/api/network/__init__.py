"""Public functions of Bayesian network classifiers: learning structures, fitting tables,
cross-validation.
"""
