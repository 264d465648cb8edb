"""Studies: what the package says of its own errors, against simulations and exact values."""
