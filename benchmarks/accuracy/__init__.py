"""Accuracy of bbl's methods and of scikit-learn's on categorical data."""
