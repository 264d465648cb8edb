"""Data that are read in batches: sources and the passes over them."""
