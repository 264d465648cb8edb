"""Selection of graphical models by likelihood, on arrays."""
