"""The engine that maximises the conditional likelihood."""
