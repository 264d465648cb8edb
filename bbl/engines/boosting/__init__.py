"""Engine `Boosting`: fields and couplings of all groups, fitted in small steps."""
