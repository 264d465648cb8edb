"""Exact maximum likelihood for log-linear models, on a table of states or on a junction tree."""
