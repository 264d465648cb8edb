"""Public functions, which check arguments, call the computational subpackages and wrap the
results.
"""
