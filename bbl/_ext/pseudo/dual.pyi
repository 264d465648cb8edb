"""Type stubs for `bbl._ext.pseudo.dual`."""

import numpy as np

MAX_LOGITS: int
MAX_COLUMNS: int

class DualProblem:
    def __init__(
        self,
        codes: np.ndarray,
        weights: np.ndarray,
        n_levels: np.ndarray,
        prior_count: float,
        single: bool,
    ) -> None: ...
    def solve(
        self,
        site: int,
        lambda_: float,
        lambdah: float,
        rho: float,
        tolerance: float,
        max_epochs: int,
        theta: np.ndarray,
        value: np.ndarray,
        grad_norm: np.ndarray,
        n_iter: np.ndarray,
        n_eval: np.ndarray,
        status: np.ndarray,
        stop: np.ndarray,
    ) -> None: ...
