"""Names of the response, groups, predictors and levels (`Labels`), used to label arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Labels"]


@dataclass(frozen=True)
class Labels:
    """Names of the numbered groups, predictors and levels of parameter arrays."""

    response: Hashable  # name of the response column; None for one group without a response
    groups: tuple[Any, ...]  # K response levels, in the order of the parameter rows
    names: tuple[Any, ...]  # of the m predictors
    # for each of the m predictors; the first is the reference level
    levels: tuple[tuple[Any, ...], ...]
    # positions of the numeric predictors; their two levels are labels for the codes 0 and 1
    numbers: tuple[int, ...] = ()
    # positions of the numeric predictors of a Boltzmann machine, and their values with code 0
    measured: tuple[int, ...] = ()
    centers: tuple[float, ...] = ()

    def only(self, predictors: Iterable[int]) -> Labels:
        """Return the labels of some of the predictors, which must not be numeric."""
        chosen = list(predictors)
        return Labels(
            self.response,
            self.groups,
            tuple(self.names[i] for i in chosen),
            tuple(self.levels[i] for i in chosen),
        )

    def center(self, predictor: int) -> float:
        """Return the value whose code is 0, for the numeric predictor at this position in
        `measured`.
        """
        return self.centers[self.measured.index(predictor)]
