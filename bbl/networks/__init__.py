"""The room of Bayesian network classifiers: structures, tables and posteriors on plain arrays."""
