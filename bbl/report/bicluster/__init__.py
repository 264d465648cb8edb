"""Text and figures of two-way clusterings."""
