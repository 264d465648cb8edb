"""`Support`: combinations of levels that can occur in models with structural zeros.

G is the number of groups, or 1 if all groups have the same structural zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.model.elimination import Factor

__all__ = ["Support"]


@dataclass(frozen=True, eq=False)
class Support:
    """Combinations of levels of some predictors that can occur.

    Attributes
    ----------
    scope : tuple of int
        The predictors that have structural zeros, in increasing order.
    possible : ndarray of bool, shape (G, L_i, L_j, ...)
        Whether each combination is possible; at least one combination must be possible in each
        group.

    Examples
    --------
    >>> support = Support((0, 2), np.array([[[True, True], [True, False]]]))
    >>> support.rows(np.array([[1, 0, 0], [1, 0, 1]])).tolist()
    [[True], [False]]
    >>> support.states((2, 2, 2)).tolist()
    [[True, True, True, True, True, False, True, False]]
    """

    scope: tuple[int, ...]
    possible: np.ndarray

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Support)
            and self.scope == other.scope
            and np.array_equal(self.possible, other.possible)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def n_groups(self) -> int:
        """Number of groups, or 1 if all groups have the same structural zeros."""
        return len(self.possible)

    @property
    def n_zeros(self) -> int:
        """Number of impossible combinations, summed over the groups."""
        return int(self.possible.size - self.possible.sum())

    def of_group(self, group: int) -> Support:
        """Return the support of one group."""
        return self if self.n_groups == 1 else Support(self.scope, self.possible[group : group + 1])

    @property
    def pooled(self) -> Support:
        """Combinations that are possible in at least one group."""
        return (
            self if self.n_groups == 1 else Support(self.scope, np.any(self.possible, axis=0)[None])
        )

    def margin(self, predictors: tuple[int, ...]) -> Support | None:
        """Return the possible combinations of `predictors` (in increasing order), or None if all
        are possible.

        A combination is possible if it can occur with at least one combination of levels of the
        other predictors. Predictor ``predictors[i]`` has index i in the returned support.
        """
        members = [i for i in self.scope if i in predictors]
        # axes of `possible`, whose first axis is for groups
        others = tuple(1 + axis for axis, i in enumerate(self.scope) if i not in predictors)
        possible = np.any(self.possible, axis=others)
        if not members or possible.all():
            return None
        return Support(tuple(predictors.index(i) for i in members), possible)

    def renumbered(self, number: dict[int, int]) -> Support:
        """Return the support with predictor i renumbered as ``number[i]``, where the order is
        preserved.
        """
        return Support(tuple(number[i] for i in self.scope), self.possible)

    def permuted(self, position: list[int]) -> Support:
        """Return the support after predictors are permuted: predictor ``position[i]`` becomes
        predictor i.
        """
        number = [position.index(i) for i in self.scope]
        # the scope must be increasing, so axes are sorted by their new numbers
        by_number = np.argsort(number)
        return Support(tuple(sorted(number)), self.possible.transpose(0, *(1 + by_number)))

    @cached_property
    def factor(self) -> Factor:
        """The scope, and a table (G, L_i, L_j, ...) that is 0 if a combination is possible and
        otherwise -inf.
        """
        with np.errstate(divide="ignore"):
            return self.scope, np.log(self.possible.astype(float))

    def states(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return a mask (G, prod(shape)) of possible states, with the last predictor varying
        fastest.

        `shape` contains the number of levels of every predictor, including predictors outside the
        scope.
        """
        axis_lengths = [L if i in self.scope else 1 for i, L in enumerate(shape)]
        table = self.possible.reshape(self.n_groups, *axis_lengths)
        return np.broadcast_to(table, (self.n_groups, *shape)).reshape(self.n_groups, -1)

    def condition_on(
        self, codes: np.ndarray, unknown: np.ndarray
    ) -> tuple[tuple[int, ...], np.ndarray]:
        """Return the members of the scope in `unknown`, and a mask (n, G, L_i, ...) of possible
        levels.

        Parameters
        ----------
        codes : ndarray of int, shape (n, m)
            Levels of the known predictors.
        unknown : ndarray of int
            The unknown predictors, the same in all rows.
        """
        is_unknown = np.isin(self.scope, unknown)
        axes = np.arange(len(self.scope))
        # (known L_i, ..., G, unknown L_i, ...): after indexing by the known codes, the rows are the
        # first axis
        table = self.possible.transpose(*(1 + axes[~is_unknown]), 0, *(1 + axes[is_unknown]))
        known_predictors = [
            i for i, is_missing in zip(self.scope, is_unknown, strict=True) if not is_missing
        ]
        members = tuple(
            i for i, is_missing in zip(self.scope, is_unknown, strict=True) if is_missing
        )
        if not known_predictors:
            return members, np.broadcast_to(table, (len(codes), *table.shape))
        return members, table[tuple(codes[:, known_predictors].T.astype(np.intp))]

    def rows(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return a mask of rows that are possible in each group for some levels of missing values,
        shape (n, G).

        Parameters
        ----------
        codes : ndarray of int, shape (n, m)
        missing : ndarray of bool, shape (n, m), optional
        """
        out = np.empty((len(codes), self.n_groups), dtype=bool)
        scope = np.array(self.scope)
        is_missing = (
            np.zeros((len(codes), len(scope)), dtype=bool) if missing is None else missing[:, scope]
        )
        patterns, pattern_of_row = np.unique(is_missing, axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            # `ravel`: the shape is (n, 1) in numpy 2.0
            pattern_rows = np.flatnonzero(pattern_of_row.ravel() == k)
            # (rows, G, missing L_i, ...)
            table = self.condition_on(codes[pattern_rows], scope[pattern])[1]
            out[pattern_rows] = table.any(axis=tuple(range(2, table.ndim)))
        return out
