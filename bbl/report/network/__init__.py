"""Text, tables and figures of Bayesian networks."""
