"""Sampling designs of surveys on arrays: covariances of totals, replicate weights, tests with
Rao-Scott corrections.
"""
