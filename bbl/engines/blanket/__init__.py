"""Engine `MarkovBlanket`: classes by a Bayesian network of response and predictors; its families
and their search.
"""
