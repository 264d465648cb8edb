"""The engine `PersistentVI`, for persistent variational inference."""
