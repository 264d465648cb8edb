"""Results: the frozen objects returned by public functions; the computations are done in other
packages."""
