"""Information at the maximum for an ordered response, and the influence of rows on the maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from bbl.engines.conditional.likelihood import design, raw_design
from bbl.engines.conditional.maximum_influence import MaximumInfluence
from bbl.engines.conditional.ordinal_logits import ordinal_logits
from bbl.engines.conditional.ordinal_maximum import (
    OrdinalLikelihood,
    OrdinalMaximum,
    to_coefficients,
)
from bbl.engines.likelihood.existence import rank
from bbl.engines.likelihood.influence import inverse_on_basis
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["OrdinalInfluence"]


class OrdinalInfluence(MaximumInfluence):
    """Influence of rows on the maximum of the likelihood of an ordered response.

    The coefficients (K, 1 + size) of all groups are linear functions of q unknowns, which are the
    intercepts and effects. A row with score u changes the unknowns by ``I^-1 u / W``, where I is
    the observed information per observation and W is the total weight of the rows.

    Parameters
    ----------
    layout : Layout
    maximum : OrdinalMaximum
    codes : ndarray, shape (n, m)
        The distinct training rows.
    counts : ndarray, shape (n, K)
        The weight of each row in each group.
    name : {"adjacent", "cumulative"}
        The logits.
    """

    maximum: OrdinalMaximum

    def __init__(
        self,
        layout: Layout,
        maximum: OrdinalMaximum,
        codes: np.ndarray,
        counts: np.ndarray,
        name: str,
    ):
        super().__init__(layout, maximum, codes, counts)
        self._name = name
        self._logits = ordinal_logits(name, maximum.groups)

    @property
    def distinct(self) -> np.ndarray:
        """First group after the reference group.

        The parameters of other groups are multiples of its parameters.
        """
        return self.maximum.groups[1:2]

    @cached_property
    def _inverse(self) -> np.ndarray:
        """Inverse (q, q) of the information of one observation, with 0 for fixed unknowns."""
        maximum = self.maximum
        out = np.zeros((len(maximum.free),) * 2)
        with serial_blas():
            inverse = inverse_on_basis(maximum.fisher, np.ones(len(maximum.fisher), dtype=bool))
        out[np.ix_(maximum.free, maximum.free)] = inverse
        return out

    def _spread(self, unknowns: np.ndarray) -> np.ndarray:
        """Return the coefficients (K, 1 + size, ...) given unknowns (q, ...)."""
        return to_coefficients(unknowns, self._logits, len(self.coefficients))

    def _pair_rows(self, a: int, b: int) -> np.ndarray:
        """Return the matrix (1 + size, q) that maps unknowns to group `a` minus group `b`."""
        q = len(self.maximum.free)
        groups = self.maximum.groups.tolist()
        k = len(groups)
        size = self.layout.size
        out = np.zeros((1 + size, q))
        multiplier = 0.0
        for g, sign in ((a, 1.0), (b, -1.0)):
            if g in groups[1:]:
                out[0, groups.index(g) - 1] += sign
                multiplier += sign * float(self._logits.multipliers[groups.index(g)])
        out[np.arange(1, 1 + size), k - 1 + np.arange(size)] = multiplier
        return out

    def unknowns_covariance(self) -> np.ndarray:
        """Return the covariance (q, q) of the intercepts and effects."""
        return self._inverse / self.total

    def covariance(self) -> np.ndarray:
        """Return the covariance (K, 1 + size, K, 1 + size) of all coefficients."""
        n_coefficients = self.coefficients.size
        check_memory(
            16.0 * float(n_coefficients) ** 2,
            f"A covariance of {n_coefficients:,} coefficients",
            "See bse.",
        )
        half = self._spread(self._inverse / self.total)  # (K, 1 + size, q)
        shape = self.coefficients.shape
        out = np.moveaxis(self._spread(half.reshape(n_coefficients, -1).T), -1, 0).reshape(
            *shape, *shape
        )
        return self._raw(self._raw(out, axis=1), axis=3)

    def covariance_between(self, a: int, b: int) -> np.ndarray:
        """Return the covariance (1 + size, 1 + size) of differences between groups `a` and `b`."""
        rows = self._raw(self._pair_rows(a, b), axis=0)
        return rows @ self._inverse @ rows.T / self.total

    def at(self, coefficients: np.ndarray) -> OrdinalInfluence:
        """Return the influence of rows on one Newton step from `coefficients` (K, 1 + size)."""
        maximum = self.maximum
        groups = maximum.groups
        if self._to_raw is not None:
            coefficients = np.linalg.solve(self._to_raw, coefficients.T).T
        own = coefficients[groups] - coefficients[groups[0]]
        unknowns = np.concatenate([own[1:, 0], own[1, 1:] / self._logits.multipliers[1]])
        eligible = np.append(np.ones(len(groups) - 1, dtype=bool), maximum.columns[1:])
        shares = self._counts[:, groups] / self.total
        with serial_blas():
            X = design(self._codes, self.layout)[:, 1:]
            likelihood = OrdinalLikelihood(self._logits, X, shares, eligible, unknowns)
            likelihood.value(unknowns[eligible])
            likelihood.gradient()
            (fisher,) = likelihood.curvatures()
            basis = rank(fisher)[0]
        free = eligible.copy()
        free[eligible] = basis
        moved = replace(
            maximum,
            coefficients=coefficients,
            unknowns=unknowns,
            free=free,
            fisher=fisher[np.ix_(basis, basis)],
            basis=self._spread(free.astype(float)) > 0.0,
            flat=np.zeros((*coefficients.shape, 0)),
        )
        return OrdinalInfluence(self.layout, moved, self._codes, self._counts, self._name)

    def _scores(self, rows: Sample) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of ln P(group | row) with respect to the logits, and the design.

        The derivatives have shape (n, k).
        """
        Z = design(rows.codes, self.layout)
        maximum = self.maximum
        k = len(maximum.groups)
        log_p = self._logits.log_p(Z[:, 1:] @ maximum.unknowns[k - 1 :], maximum.unknowns[: k - 1])
        assert log_p is not None  # noqa: S101  # the maximum is in order
        y = np.searchsorted(maximum.groups, rows.response)
        return self._logits.logit_scores(np.exp(log_p), y), Z

    def scores(self, rows: Sample) -> np.ndarray:
        """Return the derivatives of ln P(group | row) with respect to the coefficients.

        The result has shape (n, K, 1 + size).
        """
        scores, _ = self._scores(rows)
        Z = raw_design(rows.codes, self.layout)
        out = np.zeros((rows.n, *self.coefficients.shape))
        out[:, self.maximum.groups] = scores[:, :, None] * Z[:, None, :]
        return out

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, K, 1 + size) of rows on coefficients, multiplied by `total`."""
        scores, Z = self._scores(rows)
        # derivatives (n, q) in the unknowns
        in_unknowns = np.column_stack(
            [scores[:, 1:], (scores @ self._logits.multipliers)[:, None] * Z[:, 1:]]
        )
        out = np.moveaxis(self._spread((in_unknowns @ self._inverse).T), -1, 0)
        return self._raw(out, axis=2)
