"""Types of the kernel of joint levels."""

from numpy import ndarray as Array

def joint_sums(X: Array, values: Array) -> Array: ...
