"""Bayesian networks as text, tables and figures."""
