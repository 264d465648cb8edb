"""Data read in batches: sources, and the two passes that encode the rows of a source."""
