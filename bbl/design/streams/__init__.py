"""Data read in batches: sources, and the two passes over a source that encode its rows."""
