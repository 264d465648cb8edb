"""The data files shipped with bbl, installed as the package bbl.data; README.md tells source and
licence of each.
"""
