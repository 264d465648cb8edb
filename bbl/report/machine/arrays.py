"""MachineArrays: what figures of fitted Boltzmann machines are drawn from."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bbl.design.labels import Labels
from bbl.model.parameters import Parameters

__all__ = ["MachineArrays"]


class MachineArrays(Protocol):
    """Labels, parameters and counts of a fitted machine; a figure that takes one is a method of the results."""

    @property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""

    @property
    def parameters(self) -> Parameters:
        """Parameters of all groups."""

    @property
    def _counts(self) -> list[np.ndarray]:
        """Weighted count (K, L_i) of every level in every group, by predictor."""
