"""Structural zeros in exact likelihood fits: limits on model size, and identified parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bbl.engines.likelihood.existence import rank
from bbl.engines.likelihood.solve import MAX_INFORMATION_SIZE, MAX_STATES, n_states
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import components
from bbl.errors import OptionError
from bbl.model.layout import Layout

__all__ = ["check_zeros", "determined_by_states", "rank_of_states"]


def check_zeros(layout: Layout) -> None:
    """Raise an OptionError if structural zeros connect too many states or parameters."""
    for sublayout in (component.layout for component in components(layout)):
        n = n_states(sublayout)
        if sublayout.support is not None and (
            n > MAX_STATES or sublayout.size > MAX_INFORMATION_SIZE
        ):
            raise OptionError(
                f"structural_zeros and interactions connect {sublayout.m} predictors with "
                f"{n:.3g} states and {sublayout.size:,} parameters, but such a model is "
                f"fitted on a table of all states, which is limited to {MAX_STATES:,} states "
                f"and {MAX_INFORMATION_SIZE:,} parameters.",
                argument="structural_zeros",
                hint=(
                    "Pass a table with only the columns that define the zeros, or a "
                    "formula with fewer predictors or interactions."
                ),
            )


def determined_by_states(layout: Layout) -> np.ndarray:
    """Return a mask (size,) of the parameters that are identified by the possible states."""
    determined = np.ones(layout.size, dtype=bool)
    for positions, covariances in _with_zeros(layout):
        # `rank` returns a basis and the determined parameters
        determined[positions] = rank(covariances)[1]
    return determined


def rank_of_states(layout: Layout, ridge: np.ndarray) -> int:
    """Return the number of parameters identified by the possible states or by `ridge` (size,)."""
    total = layout.size
    for positions, covariances in _with_zeros(layout):
        # adding one makes each penalised parameter determined
        basis, _ = rank(covariances + np.diag((ridge[positions] > 0.0).astype(float)))
        total -= int((~basis).sum())  # basis: a mask of as many parameters as are determined
    return total


def _with_zeros(layout: Layout) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield parameter positions and covariances for each component with structural zeros.

    The covariances are those of the indicators if all possible states are equally probable.
    """
    for component in components(layout):
        if component.layout.support is not None:
            table = StateTable(component.layout)
            even_p = table.spread(1.0)  # probabilities of all states
            yield component.positions, table.covariances(even_p, table.moments(even_p))
