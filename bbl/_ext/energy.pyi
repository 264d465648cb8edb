"""Signatures of the energy kernel."""

import numpy as np

def energies(
    codes: np.ndarray, start: np.ndarray, h: np.ndarray, J: np.ndarray, scratch: np.ndarray, out: np.ndarray
) -> None: ...
