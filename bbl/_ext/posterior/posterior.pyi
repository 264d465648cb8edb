"""Types of the kernel `posterior`."""

import numpy as np

class Target:
    size: int
    def __init__(
        self,
        n_levels: np.ndarray,
        start: np.ndarray,
        pairs: np.ndarray,
        pair_start: np.ndarray,
        V: np.ndarray,
        group: np.ndarray,
        family: np.ndarray,
        n: float,
        sums: np.ndarray,
        tau: float,
        horseshoe: bool,
        enumerate: bool,
        codes: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        centre: np.ndarray | None = None,
        adjust: np.ndarray | None = None,
        tilt: np.ndarray | None = None,
    ) -> None: ...
    def value(self, x: np.ndarray, gradient_out: np.ndarray) -> float: ...
    def coefficients(self, points: np.ndarray) -> np.ndarray: ...
    def probabilities(self, phi: np.ndarray) -> tuple[float, np.ndarray]: ...
    def nuts(
        self,
        centre: np.ndarray,
        spread: np.ndarray,
        x: np.ndarray,
        tuner: np.ndarray,
        aim: float,
        stream: np.ndarray,
        stop: np.ndarray,
        draws_out: np.ndarray,
    ) -> float: ...
    def exchange(
        self,
        information: np.ndarray,
        x: np.ndarray,
        tuner: np.ndarray,
        tune: bool,
        steps: int,
        sweeps: int,
        data: np.ndarray,
        stream: np.ndarray,
        stop: np.ndarray,
        draws_out: np.ndarray,
    ) -> float: ...

def places(levels: np.ndarray, start: np.ndarray, pairs: np.ndarray, d: int) -> np.ndarray: ...
