"""sparse regression: which products of predictors, of any order, tell the classes
apart.
"""
