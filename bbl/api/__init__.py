"""Public functions: they check arguments, call the packages that compute, and wrap the results."""
