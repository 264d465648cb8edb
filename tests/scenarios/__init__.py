"""Scenario tests: random combinations of features, and the laws that every one must satisfy.

``python -m tests.scenarios --scenarios 1000 --seed 1`` draws scenarios and checks laws; it prints
each failure as the shortest script that still fails.
"""
