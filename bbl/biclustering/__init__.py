"""Two-way clustering of a table's rows and columns, on plain arrays."""
