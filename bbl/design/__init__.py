"""Convert a formula and a table to encoded rows."""
