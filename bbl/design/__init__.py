"""Convert a formula and a data frame to encoded rows."""
