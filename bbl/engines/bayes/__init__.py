"""The engine of posterior draws."""
