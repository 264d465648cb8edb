"""Signatures of the energy kernel."""

import numpy as np

def energies(
    codes: np.ndarray, start: np.ndarray, h: np.ndarray, J: np.ndarray, scratch: np.ndarray, out: np.ndarray
) -> None: ...
def add_terms(
    codes: np.ndarray, members: np.ndarray, stride: np.ndarray, first: np.ndarray, values: np.ndarray, out: np.ndarray
) -> None: ...
