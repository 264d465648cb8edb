"""WarmStarts: solutions at earlier settings on the same rows, from which fits at other settings
start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["WarmStarts"]


class WarmStarts(dict[float, np.ndarray]):
    """Solutions by setting (the value of the tuned option), and results that do not depend on it,
    computed once.

    Parameters
    ----------
    solutions : mapping of float to ndarray
        Solutions by setting: `EngineFit.site_theta`, of which a fit averages what two predictors
        say of their coupling.
    keeps : bool
        Whether there is memory to keep the results that do not depend on the setting. They are not
        pickled: another process computes them again.
    """

    def __init__(self, solutions: Mapping[float, np.ndarray] | None = None, keeps: bool = False):
        super().__init__(solutions or {})
        self.keeps = keeps
        self._results: dict[str, Any] = {}

    def __reduce__(self):  # pickles the solutions alone
        return WarmStarts, (dict(self), self.keeps)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make()`` by its `name`; with `keeps`, `make` is called only
        once.
        """
        if name in self._results:
            return self._results[name]
        result = make()
        if self.keeps:
            self._results[name] = result
        return result
