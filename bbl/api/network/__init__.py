"""The verbs of Bayesian network classifiers: learning, fitting, judging."""
