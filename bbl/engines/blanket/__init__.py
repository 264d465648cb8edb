"""Engine `MarkovBlanket`: classification by a Bayesian network of response and predictors."""
