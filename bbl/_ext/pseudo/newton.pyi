"""Type stubs for `bbl._ext.pseudo.newton`."""

import numpy as np

def solve_sites(
    codes: np.ndarray,
    weights: np.ndarray,
    total: float,
    start: np.ndarray,
    mask: np.ndarray,
    sites: np.ndarray,
    penalty: np.ndarray,
    prior_count: float,
    tolerance: float,
    itmax: int,
    theta: np.ndarray,
    value: np.ndarray,
    grad_norm: np.ndarray,
    n_iter: np.ndarray,
    status: np.ndarray,
    linear: np.ndarray | None = None,
    metric: np.ndarray | None = None,
) -> None: ...
