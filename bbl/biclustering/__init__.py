"""Two-way clustering of the rows and columns of a table, on plain arrays."""
