"""Trail: what comparisons of settings on the same rows leave for the next ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["Trail"]


class Trail(dict[float, np.ndarray]):
    """Unsymmetrised solutions of comparisons on the same rows, by their settings; and what they need again and again.

    Parameters
    ----------
    solutions : mapping of float to ndarray
    keeps : bool
        Whether there is memory to keep what is made of the rows. In another process it is made anew.
    """

    def __init__(self, solutions: Mapping[float, np.ndarray] | None = None, keeps: bool = False):
        super().__init__(solutions or {})
        self.keeps = keeps
        self._made: dict[str, Any] = {}

    def __reduce__(self):
        return Trail, (dict(self), self.keeps)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make()`` returns, which is called once if the trail keeps it."""
        if name in self._made:
            return self._made[name]
        result = make()
        if self.keeps:
            self._made[name] = result
        return result
