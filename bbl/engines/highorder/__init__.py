"""The engine of sparse high-order machines."""
