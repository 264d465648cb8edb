"""Results of two-way clustering."""
