"""Results of the methods of two-way clustering, and helpers that the methods share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bbl.biclustering.genetic import Evolved
from bbl.biclustering.mcmc import Draws
from bbl.errors import OptionError

__all__ = ["BiclusterFit", "refuse_groups", "seeds", "set_options"]


class BiclusterFit(NamedTuple):
    """Result of a method: labels, the criterion that compares partitions (less is better), and its history.

    Attributes
    ----------
    rows, columns : ndarray of int32
        Labels 0..a-1 and 0..b-1, all in use.
    criterion : float
    history : ndarray
        The objective of the best start, step by step; for `Mcmc` the log posterior of all draws, chain by chain.
    n_iter : int
    converged : bool
        Whether no move of a row or a column lowers the objective (for `Genetic`, whether the result was refined), or,
        for `Mcmc`, whether the chains have mixed.
    selection : list of (a, b, objective, criterion), or None
        One entry for each number of groups that was tried.
    evolved : Evolved or None
    draws : Draws or None
        Arrays with the chain as first axis.
    share : (ndarray, ndarray) or None
        Similarity matrices of rows and columns.
    """

    rows: np.ndarray
    columns: np.ndarray
    criterion: float
    history: np.ndarray
    n_iter: int
    converged: bool
    selection: list[tuple[int, int, float, float]] | None = None
    evolved: Evolved | None = None
    draws: Draws | None = None
    share: tuple[np.ndarray, np.ndarray] | None = None


def set_options(options: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(options, name, value)


def seeds(rng: np.random.Generator, n: int) -> list[int]:
    return [int(seed) for seed in rng.integers(0, 2**63, n)]


def refuse_groups(groups: tuple[int, int] | None, method: str, chooser: str) -> None:
    if groups is not None:
        raise OptionError(
            f"method={method!r} takes no groups=: {chooser} chooses their number. Leave groups out, or use "
            "method='prototype'.",
            argument="groups",
        )
