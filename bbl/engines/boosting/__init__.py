"""Engine `Boosting`: fields and pairs of all groups, fitted by small steps along cuts of their
levels."""
