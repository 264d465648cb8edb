"""WarmStarts: solutions of earlier settings on the same rows, where the next settings start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["WarmStarts"]


class WarmStarts(dict[float, np.ndarray]):
    """Unsymmetrised solutions by their settings, and results that every setting needs, computed once.

    Parameters
    ----------
    solutions : mapping of float to ndarray
    keeps : bool
        Whether there is memory to keep such results. In another process they are computed again.
    """

    def __init__(self, solutions: Mapping[float, np.ndarray] | None = None, keeps: bool = False):
        super().__init__(solutions or {})
        self.keeps = keeps
        self._results: dict[str, Any] = {}

    def __reduce__(self):
        return WarmStarts, (dict(self), self.keeps)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make()`` returns, which is called once if results are kept."""
        if name in self._results:
            return self._results[name]
        result = make()
        if self.keeps:
            self._results[name] = result
        return result
