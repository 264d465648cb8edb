"""Type stubs for `bbl._ext.model.joint_levels`."""

from numpy import ndarray as Array

def joint_sums(X: Array, values: Array) -> Array: ...
