"""`Labels`: the names of response, groups, predictors and levels, which label results that are
plain arrays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

__all__ = ["Labels"]


@dataclass(frozen=True)
class Labels:
    """Names by which the numbered groups, predictors and levels of parameter arrays are shown."""

    response: Hashable  # name of the response column; None for one group without a response
    groups: tuple[Any, ...]  # K response levels, in the order of the parameter rows
    names: tuple[Any, ...]  # of the m predictors
    # of each of the m predictors; the first is the reference level
    levels: tuple[tuple[Any, ...], ...]
    # positions of the predictors that are numbers; their levels label the values 0 and 1 of a code
    numbers: tuple[int, ...] = ()
