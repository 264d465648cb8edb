"""The engine for persistent variational inference."""
