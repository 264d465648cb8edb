"""Intervals: levels that stand for numbers: their ends, and which of them a number is in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

__all__ = ["RARE_LEVEL", "Ends", "interval_codes", "interval_ends"]

RARE_LEVEL = "(rare)"  # of `bbl.lump`: what a model does not know is rare
_INTERVAL = re.compile(r"([\[(])\s*([^,\s]+)\s*,\s*([^,\s]+)\s*([\])])")


class Ends(NamedTuple):
    """Lower and upper end of an interval, and whether each belongs to it."""

    low: float
    high: float
    with_low: bool
    with_high: bool

    def holds(self, x: float) -> bool:
        """Return whether a number is in the interval."""
        return (self.low < x or (self.with_low and x == self.low)) and (
            x < self.high or (self.with_high and x == self.high)
        )


def interval_ends(level: object) -> Ends | None:
    """Return the ends of an interval of numbers, or of its text; None if it is none.

    Examples
    --------
    >>> interval_ends("(0.5, 1.25]")
    Ends(low=0.5, high=1.25, with_low=False, with_high=True)
    """
    match = _INTERVAL.fullmatch(str(level)) if isinstance(level, str | pd.Interval) else None
    if match is None:
        return None
    try:
        low, high = float(match[2]), float(match[3])
    except ValueError:  # of times, say
        return None
    return Ends(low, high, match[1] == "[", match[4] == "]")


def interval_codes(levels: Sequence[object], kinds: Sequence[str]) -> list[tuple[Ends, int]]:
    """Return the intervals among levels with their codes, by their lower ends; none unless all levels are intervals."""
    ends_of_codes = [
        (interval_ends(v), a) for a, (v, kind) in enumerate(zip(levels, kinds, strict=True)) if kind == "other"
    ]
    intervals = [(ends, a) for ends, a in ends_of_codes if ends is not None]
    n_other_levels = sum(kind not in ("other", "missing") for kind in kinds)
    if n_other_levels or len(intervals) < len(ends_of_codes):
        return []
    return sorted(intervals, key=lambda pair: np.nan_to_num(pair[0].low))
