"""From formula and data frame to encoded rows."""
