"""Results of sparse regression on products of predictors."""
