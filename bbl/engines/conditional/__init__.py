"""The engine of conditional likelihood."""
