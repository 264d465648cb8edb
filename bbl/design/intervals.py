"""Parse levels that are intervals, such as ``(0.5, 1.25]``, and find the interval that contains a
number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

__all__ = ["RARE_LEVEL", "Ends", "interval_codes", "interval_ends"]

# the level created by `bbl.lump`; unknown values in new data receive the code of this level
RARE_LEVEL = "(rare)"
# bracket, lower end, upper end, bracket
_INTERVAL = re.compile(r"([\[(])\s*([^,\s]+)\s*,\s*([^,\s]+)\s*([\])])")


class Ends(NamedTuple):
    """The lower and upper ends of an interval, and whether they are included."""

    low: float
    high: float
    with_low: bool
    with_high: bool

    def contains(self, x: float) -> bool:
        """Return whether a number is in the interval."""
        return (self.low < x or (self.with_low and x == self.low)) and (
            x < self.high or (self.with_high and x == self.high)
        )


def interval_ends(level: object) -> Ends | None:
    """Return the ends of a numeric pandas Interval or of its text, or None for other levels.

    Examples
    --------
    >>> interval_ends("(0.5, 1.25]")
    Ends(low=0.5, high=1.25, with_low=False, with_high=True)
    """
    match = _INTERVAL.fullmatch(str(level)) if isinstance(level, str | pd.Interval) else None
    if match is None:
        return None
    try:
        low = float(match[2])
        high = float(match[3])
    except ValueError:  # for example, an interval of times
        return None
    return Ends(low, high, match[1] == "[", match[4] == "]")


def interval_codes(levels: Sequence[object], kinds: Sequence[str]) -> list[tuple[Ends, int]]:
    """Return (ends, code) for each level, sorted by lower end, or [] unless all levels are
    intervals.

    The levels for missing and rare values (`RARE_LEVEL`) are ignored. `kinds` contains the kind of
    each level; intervals, and strings that represent them, have the kind "other".
    """
    candidates = [
        (level, kind, code)
        for code, (level, kind) in enumerate(zip(levels, kinds, strict=True))
        if kind != "missing" and (kind, level) != ("string", RARE_LEVEL)
    ]
    intervals = [
        (ends, code)
        for level, kind, code in candidates
        if kind == "other" and (ends := interval_ends(level))
    ]
    if len(intervals) < len(candidates):
        return []
    # an end may be nan if the level is a text
    return sorted(intervals, key=lambda pair: np.nan_to_num(pair[0].low))
