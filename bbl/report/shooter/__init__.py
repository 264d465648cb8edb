"""Sparse regressions as text, tables and figures."""
