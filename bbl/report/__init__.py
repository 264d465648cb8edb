"""What people see: tables, text, summaries, plots."""
