"""The engine `Conditional`, which maximises the conditional likelihood."""
