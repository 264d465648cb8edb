"""The room of the verbs: they check, call the rooms below, and wrap the results."""
