"""The likelihood of rows with missing values, where missing values are marginalised."""

# This is valid if values are missing at random: whether a value is missing may depend on the
# observed values of its row (Little & Rubin 2019, section 6.2). The gradient is the one of the EM
# algorithm: each incomplete row is distributed over the compatible states by their fitted
# probabilities, and the moments of the resulting counts are compared with the moments of the model.
# n is the number of states; tables of states have one axis for each predictor.

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bbl.engines.likelihood.newton import Objective
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import Component
from bbl.memory import check_memory
from bbl.rows.sample import Rows, Sample

__all__ = ["IncompleteLikelihood"]

ROWS = 65536  # rows in a chunk of a file
BLOCK_SIZE = 2**22  # indicators to average at once
TINY = 1e-280  # probabilities up to this are treated as zero and never used as a divisor
# upper bound on the expected proportion of rows in a state whose probability tends to zero
NEGLIGIBLE = 1e-8


class Pattern(NamedTuple):
    """The rows of a sample that have missing values in the same predictors.

    Attributes
    ----------
    missing : tuple of int
        Axes of the missing predictors.
    counts : ndarray, shape of the table with length 1 along missing axes
        Weight of the rows for each combination of observed levels.
    """

    missing: tuple[int, ...]
    counts: np.ndarray


def missing_patterns(table: StateTable, component: Component, rows: Rows) -> list[Pattern]:
    """Return the patterns of missing values in a component's columns, with their rows.

    Rows are omitted if all of these columns are missing.
    """
    counts: dict[tuple[bool, ...], np.ndarray] = {}
    for chunk in map(component.columns, rows.chunks(ROWS)):
        for is_missing, positions in rows_by_pattern(chunk):
            shape = tuple(
                1 if missing else L for missing, L in zip(is_missing, table.shape, strict=True)
            )
            # missing axes have length 1
            codes = np.where(is_missing, 0, chunk.codes[positions]).astype(np.intp)
            cells = np.ravel_multi_index(tuple(codes.T), shape)
            weight = np.bincount(cells, chunk.weights[positions], int(np.prod(shape))).reshape(
                shape
            )
            key = tuple(is_missing.tolist())
            counts[key] = counts[key] + weight if key in counts else weight
    missing_axes = [tuple(np.flatnonzero(key).tolist()) for key in counts]
    return [
        Pattern(missing, weight)
        for missing, weight in zip(missing_axes, counts.values(), strict=True)
        if len(missing) < len(table.shape)
    ]


def rows_by_pattern(rows: Sample) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each pattern of missing predictors (m,) and the positions of its rows."""
    missing = np.zeros(rows.codes.shape, dtype=bool) if rows.missing is None else rows.missing
    masks, pattern_of = np.unique(missing, axis=0, return_inverse=True)
    for k, is_missing in enumerate(masks):
        yield is_missing, np.flatnonzero(pattern_of.ravel() == k)


class IncompleteLikelihood(Objective):
    """`Objective` for rows with missing values: the penalised mean log-probability.

    Parameters
    ----------
    table : StateTable
    patterns : list of Pattern
        The patterns; rows without any observed value are not included.
    added_counts : ndarray, shape (n,)
        Counts to add to the complete rows, such as a prior count.
    penalty : ndarray, shape (size,)
        L2 penalty of each parameter.

    Attributes
    ----------
    complete : ndarray, shape (n,)
        Counts of complete rows, including `added_counts`.
    total : float
        Sum of all counts.
    theta : ndarray, shape (size,)
        The most recent argument of `value`.
    p : ndarray, shape (n,)
        Probabilities of all states at `theta`.
    margins : list of ndarray
        Probabilities at `theta` of the observed values in each pattern, with the shape of the
        pattern's counts.
    mu : ndarray, shape (size,)
        Moments at `theta`, after a call to `gradient`.
    support : ndarray of bool, shape (n,), or None
        States included in ln Z; None for all possible states.
    """

    def __init__(
        self,
        table: StateTable,
        patterns: list[Pattern],
        added_counts: np.ndarray,
        penalty: np.ndarray,
    ):
        check_memory(
            # the indicators (n, size), and four vectors (n,)
            8.0 * table.n * (table.size + 4),
            f"Sums over {table.n} states of incomplete rows",
            "Use fewer predictors, missing='level' or method='pseudo'.",
        )
        self.table = table
        self.penalty = penalty
        self.support: np.ndarray | None = None
        self.complete = added_counts + sum(
            pattern.counts.ravel() for pattern in patterns if not pattern.missing
        )
        self.patterns = [pattern for pattern in patterns if pattern.missing]
        self.total = float(
            self.complete.sum() + sum(pattern.counts.sum() for pattern in self.patterns)
        )

    def compatible_states(self) -> np.ndarray:
        """Return a mask (n,) of the states that are compatible with at least one row."""
        compatible = (self.complete > 0.0).reshape(self.table.shape)
        for pattern in self.patterns:
            compatible = compatible | (pattern.counts > 0.0)
        return (
            compatible.ravel()
            if self.table.possible is None
            else compatible.ravel() & self.table.possible
        )

    def evenly_spread_counts(self) -> np.ndarray:
        """Return the counts (n,) of states after spreading each row evenly over compatible states.

        Impossible states are not excluded, because the result is only a starting point.
        """
        counts = self.complete.reshape(self.table.shape)
        for pattern in self.patterns:
            # n / counts.size is the number of states compatible with such a row
            counts = counts + pattern.counts * (pattern.counts.size / self.table.n)
        return counts.ravel()

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`."""
        log_z, self.p = self.table.log_partition(theta, self.support)
        self.theta = theta
        with np.errstate(divide="ignore"):  # steps that are too long give -inf and are shortened
            total = self._log_likelihood()
        return total / self.total - 0.5 * float(self.penalty @ theta**2)

    def _log_likelihood(self) -> float:
        """Return the log-likelihood of all rows at the current probabilities, and set `margins`."""
        observed = np.flatnonzero(self.complete)
        total = float(self.complete[observed] @ np.log(self.p[observed]))
        state_p = self.p.reshape(self.table.shape)
        self.margins = [
            state_p.sum(axis=pattern.missing, keepdims=True) for pattern in self.patterns
        ]
        for pattern, margin in zip(self.patterns, self.margins, strict=True):
            occurs = pattern.counts > 0.0
            total += float(pattern.counts[occurs] @ np.log(margin[occurs]))
        return total

    def expected_counts(self) -> np.ndarray:
        """Return the expected counts (n,) of all states given the observed values of all rows."""
        counts = self.complete.reshape(self.table.shape).copy()
        state_p = self.p.reshape(self.table.shape)
        for pattern, margin in zip(self.patterns, self.margins, strict=True):
            counts += _shares(pattern.counts, margin) * state_p
        return counts.ravel()

    def counts_without_negligible(self) -> np.ndarray:
        """Return the expected counts (n,), with negligible counts of incomplete rows set to 0.

        If the likelihood increases indefinitely, the iteration stops at a finite point at which
        these states still have a small probability.
        """
        counts = self.expected_counts()
        return np.where(counts > NEGLIGIBLE * self.total, counts, self.complete)

    def gradient(self) -> np.ndarray:
        """Return the gradient (size,).

        It is the difference between the moments of the expected counts and the model's moments,
        minus the gradient of the penalty.
        """
        self.mu = self.table.moments(self.p)
        return (
            self.table.moments(self.expected_counts()) / self.total
            - self.mu
            - self.penalty * self.theta
        )

    def curvatures(self) -> list[np.ndarray]:
        """Return the observed and the complete-data information, both including the penalty.

        Both have shape (size, size). The observed information may not be positive definite. The
        complete-data information determines the step of the EM gradient algorithm (Lange 1995, JRSS
        B 57).
        """
        complete_information = self.table.covariances(self.p, self.mu) + np.diag(self.penalty)
        return [complete_information - self._missing_information(), complete_information]

    @cached_property
    def _indicators(self) -> np.ndarray:
        """Indicators (n, size) of all parameters in all states."""
        return self.table.indicators()

    def _missing_information(self) -> np.ndarray:
        """Return the mean covariance (size, size) of the indicators given the observed values.

        This is the mean over all rows of ``E[T T' | known] - E[T | known] E[T | known]'``, where T
        (size,) contains the indicators. The contribution of complete rows is 0.
        """
        out = self.table.indicator_products(self.expected_counts() - self.complete)
        for pattern in self.patterns:
            cells = np.flatnonzero(pattern.counts)
            means = self._means(pattern, cells)
            out -= (means.T * pattern.counts.ravel()[cells]) @ means
        return out / self.total

    def _means(self, pattern: Pattern, cells: np.ndarray) -> np.ndarray:
        """Return the conditional means (len(cells), size) of the indicators in the given cells.

        `cells` contains positions in the raveled counts of `pattern`. Each cell is a combination of
        observed levels.
        """
        table = self.table
        # the states of a cell: the state with level 0 of all missing predictors, plus each of the
        # offsets
        first_states = np.array(np.unravel_index(cells, pattern.counts.shape)).T @ table.strides
        lengths = [table.shape[i] for i in pattern.missing]
        offsets = np.array(list(np.ndindex(*lengths))) @ table.strides[list(pattern.missing)]
        out = np.empty((len(cells), table.size))
        step = max(1, BLOCK_SIZE // max(1, len(offsets) * table.size))
        for first in range(0, len(cells), step):
            states = first_states[first : first + step, None] + offsets
            p = self.p[states]
            conditional = _shares(p, np.broadcast_to(p.sum(axis=1, keepdims=True), p.shape))
            # r: cells, k: their states, s: parameters
            out[first : first + step] = np.einsum(
                "rk,rks->rs", conditional, self._indicators[states]
            )
        return out

    def row_means(self, rows: Sample) -> np.ndarray:
        """Return the means (n, size) of all indicators given the observed values in each row.

        If all values in a row are missing, the means are the moments of the model.
        """
        table = self.table
        size = self.table.size
        out = np.tile(self.mu, (rows.n, 1))
        state_p = self.p.reshape(table.shape)
        indicators = self._indicators.reshape(*table.shape, size)
        for is_missing, positions in rows_by_pattern(rows):
            if is_missing.all():
                continue
            axes = tuple(np.flatnonzero(is_missing).tolist())
            margin = state_p.sum(axis=axes, keepdims=True)
            # state_p / margin, or 0 if the margin is 0
            conditional = _shares(np.ones_like(margin), margin) * state_p
            # missing axes have length 1
            means = (conditional[..., None] * indicators).sum(axis=axes, keepdims=True)
            codes = np.where(is_missing, 0, rows.codes[positions]).astype(np.intp)
            out[positions] = means[tuple(codes.T)]
        return out


def _shares(counts: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Return ``counts / margin`` elementwise, or 0 where the margin is at most TINY."""
    return np.divide(counts, margin, out=np.zeros_like(margin), where=margin > TINY)
