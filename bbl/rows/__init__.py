"""Encoded rows of a data set, stored in memory, in a file or on a cluster, and their folds."""
