"""Sparse logistic regression on products of predictors."""
