"""The what-if section of an HTML page: a model as tables, the form, and its script."""
