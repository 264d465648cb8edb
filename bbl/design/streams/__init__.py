"""Data read in batches: sources, and two passes over a source to encode its rows."""
