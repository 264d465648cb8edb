"""Hints of the package, and which of them a call gives; `test_advice.py` has the cases."""
