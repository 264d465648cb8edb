"""Type stubs for `bbl._ext.pseudo.influence`."""

import numpy as np

def add_curvatures(
    design: np.ndarray, columns: np.ndarray, curvatures: np.ndarray, sums: np.ndarray
) -> None: ...
def add_influences(
    design: np.ndarray,
    columns: np.ndarray,
    residuals: np.ndarray,
    weights: np.ndarray,
    inverse: np.ndarray,
    offset: np.ndarray,
    out_rows: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
) -> None: ...
