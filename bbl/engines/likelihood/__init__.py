"""Exact maximum likelihood of log-linear models: sums over all states, or over the cliques of a
junction tree.
"""
