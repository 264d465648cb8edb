"""Immutable result objects that the public functions return."""
