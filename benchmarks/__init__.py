"""Benchmarks: named problems x named methods, every measurement in a process of its own; see README.md."""
