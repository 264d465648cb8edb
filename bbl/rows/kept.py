"""`KeptRows`: rows of data read in batches that are kept for standard errors, tests and effects.

K is the number of response groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.rows.sample import Rows, Sample, concatenate, level_counts
from bbl.rows.stored import StoredSample, balanced_rates

__all__ = ["KeptRows", "keep_rows"]

MAX_ROUNDS = 400  # maximum number of rounds of proportional fitting
TOLERANCE = 1e-13  # largest relative change of a weight in the last round


@dataclass(frozen=True, eq=False)
class KeptRows:
    """All training rows without their order, or a random sample of them.

    A sample contains all rows with rare levels. The weight of each row is divided by its
    probability of being drawn. Weighted sums then estimate the sums over all rows, and the counts
    of levels in a group are exact.

    Attributes
    ----------
    sample : Sample
        The rows and their response, ordered by group.
    expansion : ndarray, shape (n,), or None
        Number of rows in the data represented by each row (the inverse of its probability of being
        drawn); None if all rows are kept.
    n_rows : tuple of K int
        Number of rows of each group in the data.
    whole : bool
        Whether the weights of the data are integers.
    drawn_from : Sample, optional
        The kept rows from which `thinned` drew `sample`; None if nothing was drawn.
    """

    sample: Sample
    expansion: np.ndarray | None
    n_rows: tuple[int, ...]
    whole: bool
    drawn_from: Sample | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all rows are kept."""
        return self.expansion is None

    def expansion_of(self, y: int) -> np.ndarray | None:
        """Return the `expansion` of the rows of group `y`, or None if all its rows are kept."""
        if self.expansion is None:
            return None
        expansion = self.expansion[self.sample.response == y]
        return expansion if (expansion > 1.0).any() else None

    @property
    def n_kept(self) -> tuple[int, ...]:
        """Number of rows kept in each group, shape (K,)."""
        return tuple(int(n) for n in np.bincount(self.sample.response, minlength=len(self.n_rows)))

    def thinned(self, size: int, n_levels: np.ndarray) -> KeptRows:
        """Return the kept rows, with a random sample of about `size` rows from each larger group.

        Rows are drawn at the rates of `balanced_rates`, with a fixed seed.
        """
        parts = []
        expansions = []
        for y in range(len(self.n_rows)):
            in_group = self.sample.response == y
            rows = self.sample.rows(in_group)
            expansion = np.ones(rows.n) if self.expansion is None else self.expansion[in_group]
            if rows.n > size:
                targets = level_counts(rows.pooled, n_levels)
                positions, factor = balanced_rates(targets, rows.total, size).draw(rows, 0)
                chosen = rows.rows(positions)
                rows = _calibrated(
                    replace(chosen, weights=chosen.weights * factor), rows.total, targets
                )
                expansion = expansion[positions] * factor
            parts.append(rows)
            expansions.append(expansion)
        return replace(
            self,
            sample=concatenate(parts),
            expansion=_of_sample(np.concatenate(expansions)),
            drawn_from=self.sample,
        )


def keep_rows(
    rows: Rows, n_levels: np.ndarray, K: int, size: int, is_few: Callable[[int], bool]
) -> KeptRows:
    """Return the rows to keep for a fit, without rows of unknown groups.

    Parameters
    ----------
    rows : Rows
        The rows of all groups.
    n_levels : ndarray of int, shape (m,)
    K : int
    size : int
        Number of rows drawn from each large group.
    is_few : callable
        ``is_few(n)`` returns whether to keep all rows of a group with n rows.
    """
    if rows.in_memory:
        sample = cast(Sample, rows)
        order = np.argsort(sample.response, kind="stable")
        sample = sample.rows(order[sample.response[order] >= 0])
        counts = sample.group_totals(K)
        return KeptRows(sample, None, tuple(round(n) for n in counts), rows.whole)
    stored = cast(StoredSample, rows)
    parts = []
    expansions = []
    groups = [stored.group(y) for y in range(K)]
    for y, group in enumerate(groups):
        if group.n <= size or is_few(group.n):
            drawn = group.draw(group.n, np.random.default_rng(0))  # all rows
            expansion = np.ones(drawn.n)
        else:
            chosen = group.balanced_draw(size, n_levels)
            expansion = chosen.expansion
            drawn = _calibrated(
                replace(chosen.sample, weights=chosen.sample.weights * expansion),
                group.total,
                level_counts(group.pooled, n_levels),
            )
        parts.append(replace(drawn, y=np.full(drawn.n, y, dtype=np.intp)))
        expansions.append(expansion)
    return KeptRows(
        concatenate(parts),
        _of_sample(np.concatenate(expansions)),
        tuple(group.n for group in groups),
        rows.whole,
    )


def _of_sample(expansion: np.ndarray) -> np.ndarray | None:
    """Return the expansions, or None if all of them are 1."""
    return expansion if (expansion > 1.0).any() else None


def _calibrated(rows: Sample, total: float, level_weights: list[np.ndarray]) -> Sample:
    """Return drawn rows with weights such that the total weight of each level is the same as in all
    rows.

    The method is iterative proportional fitting to `level_weights` (Deming & Stephan 1940). Level
    counts, and standard errors that depend only on the counts, are then exact.
    """
    weights = rows.weights * (total / rows.total)
    if rows.missing is not None:  # the margins contain different rows
        return replace(rows, weights=weights)
    for _ in range(MAX_ROUNDS):
        largest_change = 0.0
        for i, wanted in enumerate(level_weights):
            codes = rows.codes[:, i].astype(np.intp) if len(wanted) > 1 else np.zeros(rows.n, int)
            own = np.bincount(codes, weights, len(wanted))
            factor = np.where(own > 0.0, wanted / np.where(own > 0.0, own, 1.0), 1.0)
            weights *= factor[codes]
            largest_change = max(largest_change, float(np.abs(factor - 1.0).max()))
        if largest_change < TOLERANCE:
            break
    return replace(rows, weights=weights)
