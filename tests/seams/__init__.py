"""Seams: random combinations of everything that a user can combine, and the laws that hold for all
of them.

``python -m tests.seams --scenarios 1000 --seed 1`` draws scenarios and checks laws; a fall is
shrunk and printed.
"""
