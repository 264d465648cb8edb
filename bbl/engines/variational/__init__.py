"""The engine of persistent variational inference."""
