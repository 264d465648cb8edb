"""Engine `Boosting`: fields and pairs of all groups, by small steps along cuts of their levels."""
