"""Text, tables and figures of sparse regressions."""
