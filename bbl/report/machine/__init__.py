"""Boltzmann machines as text, tables and figures."""
