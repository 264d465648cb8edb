"""Labels: the names that are put on plain arrays at the edge (response, groups, predictors, levels)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Labels"]


@dataclass(frozen=True)
class Labels:
    """Names of everything that the parameter arrays index by number.

    Attributes
    ----------
    response : hashable
        Name of the response column; None for one group without a response.
    groups : tuple of length K
        Response levels, in the order of the parameter rows.
    names : tuple of length m
        Predictor names.
    levels : tuple of m tuples
        Levels of each predictor; the first is the reference level.
    """

    response: Hashable
    groups: tuple
    names: tuple
    levels: tuple[tuple, ...]
