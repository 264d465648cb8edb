"""Fuzz targets: each takes the bytes of one input, uses the package with them, and says whether
they were accepted.
"""
