"""Benchmarks: named problems x named methods, every measurement in a process of its own; see README.md."""

SUITES = ("fit", "predict", "gibbs", "latency", "scaling")
