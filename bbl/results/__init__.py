"""Results: the frozen objects returned by public functions; other packages do the computing."""
