"""Choice among graphical models by their likelihoods, on arrays."""
