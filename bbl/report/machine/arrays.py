"""MachineArrays: the attributes of a fitted Boltzmann machine that its figures are drawn from."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bbl.design.labels import Labels
from bbl.model.parameters import Parameters

__all__ = ["MachineArrays"]


class MachineArrays(Protocol):
    """Labels, parameters and counts of a fitted machine; a figure that takes one is a method of the
    results.
    """

    @property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""

    @property
    def parameters(self) -> Parameters:
        """Fields and couplings of all groups, as parameter vectors."""

    @property
    def _counts(self) -> list[np.ndarray]:
        """For each predictor i, the weighted count of its L_i levels in the K groups, shape (K,
        L_i).
        """
