"""Tables, text, summaries and plots."""
