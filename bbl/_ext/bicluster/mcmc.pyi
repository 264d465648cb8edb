"""Types of the kernel `biclust_mcmc`."""

import numpy as np

def log_elementary(log_v: np.ndarray, top: int, in_logs: bool = False) -> np.ndarray: ...

class Chain:
    def __init__(
        self,
        start: np.ndarray,
        item: np.ndarray,
        items: int,
        alpha: float,
        sigma: float,
        step: float,
        log_w: np.ndarray,
        stream: np.ndarray,
        stop: np.ndarray,
    ) -> None: ...
    def set(self, P: np.ndarray, Q: np.ndarray, gamma=None, rank=None) -> None: ...
    def run(self, sweeps: int) -> None: ...
    def record(
        self,
        thin: int,
        Q_out: np.ndarray,
        P_out: np.ndarray,
        value_out: np.ndarray,
        lambda_out: np.ndarray,
        w_out: np.ndarray,
    ) -> None: ...
    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
    def value(self) -> tuple[float, float]: ...
