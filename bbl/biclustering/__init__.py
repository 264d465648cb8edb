"""two-way clustering: rows and columns of a table in groups; arrays only."""
