"""Signatures of the kernel of Hessians and influences."""

import numpy as np

def add_curvatures(design: np.ndarray, columns: np.ndarray, curvatures: np.ndarray, sums: np.ndarray) -> None: ...
def add_influences(
    design: np.ndarray,
    columns: np.ndarray,
    residuals: np.ndarray,
    weights: np.ndarray,
    inverse: np.ndarray,
    constant: np.ndarray,
    index: np.ndarray,
    shares: np.ndarray,
    out: np.ndarray,
) -> None: ...
