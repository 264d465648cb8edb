"""Two-way clusterings as text and figures."""
