"""The result of a two-way clustering method, and shared helper functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bbl.biclustering.genetic import Evolved
from bbl.biclustering.mcmc import Draws
from bbl.errors import OptionError

__all__ = ["BiclusterFit", "draw_seeds", "refuse_groups", "set_options"]


class BiclusterFit(NamedTuple):
    """The result of a two-way clustering method.

    Attributes
    ----------
    rows : ndarray of int32, shape (I,)
        Group of each of the I rows, as a label between 0 and a - 1; all labels occur.
    columns : ndarray of int32, shape (J,)
        Group of each of the J columns, as a label between 0 and b - 1; all labels occur.
    criterion : float
        Criterion that compares partitions; smaller values are better.
    history : ndarray
        Objective after each step of the best start; for `Mcmc`, the log posterior of all draws,
        ordered by chain.
    n_iter : int
        Number of iterations, generations or sweeps.
    converged : bool
        Whether no move of a row or column decreases the objective; for `Genetic`, whether the
        result was refined; for `Mcmc`, whether the chains have mixed.
    selection : list of (a, b, objective, criterion), or None
        One entry for each pair of numbers of groups that was tried; None if the numbers were given.
    evolved : Evolved or None
        Best run of `Genetic`; None for other methods.
    draws : Draws or None
        Draws from `Mcmc`, with chains on the first axis of all arrays; None for other methods.
    share : (ndarray, ndarray) or None
        For `Mcmc`, the proportions of draws where two rows (I, I) or two columns (J, J) are in the
        same group.
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


def set_options(options: object, **values: Any) -> None:
    """Set fields of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


def draw_seeds(rng: np.random.Generator, n: int) -> list[int]:
    """Draw `n` 63-bit seeds."""
    return [int(seed) for seed in rng.integers(0, 2**63, n)]


def refuse_groups(groups: tuple[int, int] | None, method: str, chooser: str) -> None:
    """Raise an OptionError if `groups` are given to a method that determines the groups itself.

    The error message names `chooser`, which determines the groups.
    """
    if groups is not None:
        raise OptionError(
            f"method={method!r} does not accept groups=: {chooser} determines the number "
            "of groups.",
            argument="groups",
            hint="Omit the groups argument, or choose method='prototype'.",
            value=method,
        )
