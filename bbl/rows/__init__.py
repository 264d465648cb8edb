"""The room of rows: encoded samples and folds, ground for every family of models."""
