"""Exact maximum likelihood for log-linear models, on all states or on a junction tree."""
