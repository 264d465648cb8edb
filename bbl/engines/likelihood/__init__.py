"""Exact maximum likelihood for log-linear models, using a table of states or a junction tree."""
