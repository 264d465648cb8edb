"""Influence of rows on the maximum of P(group | row) for nominal and ordered responses."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bbl.engines.conditional.likelihood import ZERO_LOADING
from bbl.engines.conditional.maximum import ConditionalMaximum
from bbl.model.joint_influence import JointInfluence
from bbl.model.layout import Layout
from bbl.model.number_terms import to_raw

__all__ = ["MaximumInfluence"]


class MaximumInfluence(JointInfluence):
    """Influence of rows on the maximum of the likelihood P(group | row).

    Parameters
    ----------
    layout : Layout
    maximum : ConditionalMaximum
        `groups` (k,) contains the indices of the groups with rows, reference group first; `aliased`
        (1 + size,) marks columns of the design that depend linearly on others; `flat` (K, 1 + size,
        d) contains directions that do not change probabilities; `value` is the mean log-likelihood.
    codes : ndarray, shape (n, m)
        The distinct training rows.
    counts : ndarray, shape (n, K)
        The weight of each row in each group.

    Attributes
    ----------
    total : float
        Total weight W of the rows.
    coefficients : ndarray, shape (K, 1 + size)
        The estimate.
    reference : int
        The reference group.
    """

    maximum: ConditionalMaximum

    def __init__(
        self, layout: Layout, maximum: ConditionalMaximum, codes: np.ndarray, counts: np.ndarray
    ):
        self.layout = layout
        self.maximum = maximum
        self.total = float(counts.sum())
        # None without numeric predictors
        self._to_raw = to_raw(layout)
        self.coefficients = self._raw(maximum.coefficients, axis=1)
        self.reference = maximum.reference
        self._codes = codes
        self._counts = counts

    def _raw(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Convert values along `axis` to coefficients of unscaled numeric predictors.

        Before the conversion, the values refer to the coefficients of the design.
        """
        if self._to_raw is None:
            return values
        return np.moveaxis(np.tensordot(self._to_raw, values, axes=(1, axis)), 0, axis)

    @cached_property
    def _aliased(self) -> np.ndarray:
        """Whether each coefficient (1 + size,) is affected by linear dependences in the design."""
        aliased = self.maximum.aliased
        if self._to_raw is None:
            return aliased
        return np.asarray((self._to_raw[:, aliased] != 0.0).any(axis=1))

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of the training rows."""
        return self.total * self.maximum.value

    @property
    def flat(self) -> np.ndarray:
        """Directions (K, 1 + size, d) that do not change the fit.

        Such directions result from separated rows, aliased columns and absent groups.
        """
        is_free = np.tile(self.maximum.aliased, (len(self.coefficients), 1))  # (K, 1 + size)
        # groups without rows
        is_free[np.setdiff1d(np.arange(len(is_free)), self.maximum.groups)] = True
        unit_vectors = np.eye(is_free.size)[:, is_free.ravel()].reshape(*is_free.shape, -1)
        return self._raw(np.concatenate([self.maximum.flat, unit_vectors], axis=2), axis=1)

    @property
    def unbounded(self) -> set[tuple[int, int]]:
        """Levels, as (predictor, code), with parameters that diverge because rows are separated."""
        return self.layout.levels_of(
            (np.abs(self.maximum.flat[:, 1:]) > ZERO_LOADING).any(axis=(0, 2))
        )

    def determined(self, a: int, b: int) -> np.ndarray:
        """Return a mask (1 + size,) of the identified differences between groups `a` and `b`."""
        if self._to_raw is None:
            return self.maximum.determined(a, b)
        groups = self.maximum.groups
        if a not in groups or b not in groups:
            return np.zeros(len(self._aliased), dtype=bool)
        flat = self._raw(self.maximum.flat[a] - self.maximum.flat[b], axis=0)
        # relative to the coefficients of standardised numeric predictors
        flat = flat / np.abs(self._to_raw).max(axis=1)[:, None]
        return ~self._aliased & (np.abs(flat).max(axis=1, initial=0.0) < ZERO_LOADING)

    def separated(self, a: int, b: int) -> np.ndarray:
        """Return a mask (1 + size,) of differences between `a` and `b` without a finite maximum."""
        maximum = self.maximum
        if a not in maximum.groups or b not in maximum.groups:
            return np.zeros(len(maximum.aliased), dtype=bool)
        return ~self._aliased & ~self.determined(a, b)
