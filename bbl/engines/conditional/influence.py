"""Fisher information at the maximum of P(group | row), and the influence of rows on the maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from bbl.engines.conditional.firth import FirthProfile
from bbl.engines.conditional.likelihood import design, make_design, raw_design
from bbl.engines.conditional.maximum import ConditionalMaximum, leading_columns, null_directions
from bbl.engines.conditional.maximum_influence import MaximumInfluence
from bbl.engines.likelihood.existence import rank
from bbl.engines.likelihood.influence import inverse_on_basis
from bbl.memory import check_memory
from bbl.model.drawn_rows import error_rows, residuals_on_counts
from bbl.model.layout import Layout
from bbl.model.number_terms import in_unit, to_raw
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities

__all__ = ["ConditionalInfluence", "influence_of_sample"]

ERROR_BLOCK = 512  # rows at a time, for sampling errors


def influence_of_sample(
    layout: Layout,
    coefficients: np.ndarray,
    codes: np.ndarray,
    counts: np.ndarray,
    weights: np.ndarray,
    expansion: np.ndarray,
) -> ConditionalInfluence:
    """Return the influence of rows at the estimate from all rows, using information from a sample.

    The inverse information of n out of N rows is on average larger than the inverse information of
    all rows by the factor ``1 + r (1 / n - 1 / N)``, where r is the rank of the design. The inverse
    information is therefore divided by this factor.

    Parameters
    ----------
    layout : Layout
    coefficients : ndarray, shape (K, 1 + size)
        The estimate.
    codes : ndarray, shape (n, m)
    counts : ndarray, shape (n, K)
        Weight of each distinct row of the sample in each group. The sample has the same expected
        weight as all rows.
    weights, expansion : ndarrays, shape (N,)
        Weight of each sampled row, and the inverse of its probability of being drawn.
    """
    excess = float(((1.0 - 1.0 / expansion) * weights**2).sum() / weights.sum() ** 2)
    groups = np.flatnonzero(counts.sum(axis=0) > 0.0)
    rows = make_design(codes, layout)
    coefficients = coefficients - coefficients[groups[0]]
    if (scale := to_raw(layout)) is not None:
        coefficients = np.linalg.solve(scale, coefficients.T).T
    row_shares = counts.sum(axis=1) / counts.sum()
    with serial_blas():
        columns, aliased = rows.independent_columns()
        log_p = log_probabilities(rows.scores(coefficients[groups]))
        free = np.repeat(columns[None], len(groups) - 1, axis=0)
        fisher = rows.information(np.exp(log_p), row_shares, free)
        basis = rank(fisher)[0]
        directions = null_directions(fisher, basis)
    flat = np.zeros((*coefficients.shape, directions.shape[1]))
    own = np.zeros((*free.shape, directions.shape[1]))
    own[free] = directions
    flat[groups[1:]] = own
    estimated = np.zeros(coefficients.shape, dtype=bool)
    free[free] = basis
    estimated[groups[1:]] = free
    value = float((counts[:, groups] * log_p).sum() / counts.sum())
    maximum = ConditionalMaximum(
        groups,
        coefficients,
        value,
        0.0,
        0,
        estimated,
        flat,
        columns,
        aliased,
        rows.occurs(),
        len(codes),
        is_separated=False,
    )
    influence = ConditionalInfluence(
        layout, maximum, codes, counts, information=fisher[np.ix_(basis, basis)]
    )
    influence.bias = 1.0 + excess * float(columns.sum())
    return influence


class ConditionalInfluence(MaximumInfluence):
    """Influence of rows on the maximum of the likelihood P(group | row).

    Each of K groups has 1 + size coefficients, which are an intercept and the parameters of the
    layout. All coefficients of the reference group are zero. A row with score u changes the
    estimate by ``I^-1 u / W``, where I is the Fisher information of one observation and W is the
    total weight of the rows. The covariance of the estimate is ``I^-1 / W``. The *basis* consists
    of the estimated coefficients. All other coefficients are held fixed, because the data do not
    identify them separately.

    Parameters
    ----------
    layout : Layout
    maximum : ConditionalMaximum
        `groups` (k,) contains the indices of the groups with rows, reference group first; `basis`
        (K, 1 + size) marks the coefficients in the basis; `aliased` (1 + size,) marks columns of
        the design that depend linearly on others; `flat` (K, 1 + size, d) contains directions that
        do not change probabilities; `value` is the mean log-likelihood.
    codes : ndarray, shape (n, m)
        The distinct training rows.
    counts : ndarray, shape (n, K)
        The weight of each row in each group.
    firth : bool, default False
        Whether the likelihood has Firth's penalty.
    information : ndarray, shape (r, r), optional
        Information of one observation for the basis, if it has already been computed.

    Attributes
    ----------
    total : float
        Total weight W of the rows.
    coefficients : ndarray, shape (K, 1 + size)
        The estimate.
    reference : int
        The reference group.
    bias : float
        Factor by which the inverse information is divided.
    """

    def __init__(
        self,
        layout: Layout,
        maximum: ConditionalMaximum,
        codes: np.ndarray,
        counts: np.ndarray,
        firth: bool = False,
        information: np.ndarray | None = None,
    ):
        super().__init__(layout, maximum, codes, counts)
        self.firth = firth
        self._information = information
        self.bias = 1.0  # of the inverse of the information of sampled rows
        self._weights = counts.sum(axis=1)

    def probabilities(self, Z: np.ndarray) -> np.ndarray:
        """Return P(group | row), shape (n, K), for a design (n, 1 + size).

        The probability of groups without rows is zero.
        """
        groups = self.maximum.groups
        coefficients = self.maximum.coefficients
        out = np.zeros((len(Z), len(coefficients)))
        out[:, groups] = np.exp(log_probabilities(Z @ coefficients[groups].T))
        return out

    @cached_property
    def _inverse(self) -> np.ndarray:
        """Inverse (r, r) of the information matrix of one observation for the basis."""
        groups = self.maximum.groups
        with serial_blas():
            fisher = self._information
            if fisher is None:
                rows = make_design(self._codes, self.layout)
                # the reference group has no coefficients in the basis
                p = np.exp(log_probabilities(rows.scores(self.maximum.coefficients[groups])))
                basis = self.maximum.basis[groups[1:]]
                fisher = rows.information(p, self._weights / self.total, basis)
            # all coefficients in the basis are kept
            return inverse_on_basis(fisher, np.ones(len(fisher), dtype=bool)) / self.bias

    def covariance(self) -> np.ndarray:
        """Return the covariance (K, 1 + size, K, 1 + size) of coefficients; 0 outside the basis."""
        shape = self.coefficients.shape
        basis = self.maximum.basis.ravel()
        check_memory(
            8.0 * float(basis.size) ** 2, f"A covariance of {basis.size:,} coefficients", "See bse."
        )
        out = np.zeros((basis.size, basis.size))
        out[np.ix_(basis, basis)] = self._inverse / self.total
        out = out.reshape(*shape, *shape)
        return self._raw(self._raw(out, axis=1), axis=3)

    def covariance_between(self, a: int, b: int) -> np.ndarray:
        """Return the covariance (1 + size, 1 + size) of differences between groups `a` and `b`."""
        # group and column of each coefficient in the basis; in the difference, it has a plus sign
        # in group a and a minus sign in group b
        group, column = np.nonzero(self.maximum.basis)
        to_difference = np.zeros((len(group), self.coefficients.shape[1]))
        to_difference[np.arange(len(group)), column] = (group == a).astype(float) - (group == b)
        out = to_difference.T @ self._inverse @ to_difference / self.total
        return self._raw(self._raw(out, axis=0), axis=1)

    def at(self, coefficients: np.ndarray) -> ConditionalInfluence:
        """Return the influence of rows on one Newton step from `coefficients` (K, 1 + size).

        The coefficients may be the estimate of a smaller model. The basis consists of linearly
        independent columns of the design for which the rows contain information at these
        coefficients.
        """
        groups = self.maximum.groups
        columns = self.maximum.columns
        rows = make_design(self._codes, self.layout)
        if self._to_raw is not None:
            coefficients = np.linalg.solve(self._to_raw, coefficients.T).T
        moved = replace(self.maximum, coefficients=coefficients)
        p = np.exp(log_probabilities(rows.scores(coefficients[groups])))
        free = np.repeat(columns[None], len(groups) - 1, axis=0)
        with serial_blas():
            fisher = rows.information(p, self._weights / self.total, free)
            free[free] = rank(fisher)[0]
        basis = np.zeros(coefficients.shape, dtype=bool)
        basis[groups[1:]] = free
        moved = replace(moved, basis=basis, flat=np.zeros((*coefficients.shape, 0)))
        return ConditionalInfluence(self.layout, moved, self._codes, self._counts)

    def sampling_errors(self, rows: Sample, expansion: np.ndarray) -> np.ndarray:
        """Return the relative error (K, 1 + size) of each standard error, for sampled rows.

        The `rows` were drawn independently, with probabilities ``1 / expansion`` (n,). A row adds
        ``v (z'b)^2`` to the variance of a coefficient, where v is the variance of the group and b
        the column of the inverse information. These terms, minus their regression on the levels,
        whose counts are exact, are estimated from some of the rows.
        """
        groups = self.maximum.groups
        group, column = np.nonzero(self.maximum.basis)
        drawn_share = 1.0 - 1.0 / expansion
        chosen, factor = error_rows(drawn_share)
        spread = factor * drawn_share[chosen] * (rows.weights[chosen] / self.total) ** 2
        rows = rows.rows(chosen)
        rows = replace(rows, weights=rows.weights * factor)
        # the coefficients whose errors are estimated
        own_group, own_column = group, column
        inverse = self._inverse
        if self._to_raw is not None:
            # a raw coefficient is a sum of coefficients of the same group
            own_group = np.repeat(groups[1:], self.coefficients.shape[1])
            own_column = np.tile(np.arange(self.coefficients.shape[1]), len(groups) - 1)
            is_same = group[:, None] == own_group
            inverse = inverse @ (self._to_raw[np.ix_(own_column, column)].T * is_same)
        parts = np.empty((rows.n, inverse.shape[1]))
        with serial_blas():
            for first in range(0, rows.n, ERROR_BLOCK):
                block = slice(first, first + ERROR_BLOCK)
                Z = design(rows.codes[block], self.layout)
                p = self.probabilities(Z)
                mean = np.zeros(parts[block].shape)
                parts[block] = 0.0
                for g in groups[1:].tolist():
                    own = group == g
                    scores = Z[:, column[own]] @ inverse[own]
                    mean += p[:, [g]] * scores
                    parts[block] += p[:, [g]] * scores**2
                parts[block] -= mean**2
        total = (rows.weights / self.total) @ parts
        residuals = residuals_on_counts(parts, rows, self.layout)
        out = np.full(self.coefficients.shape, np.nan)
        errors = np.sqrt(spread @ residuals**2) / (2.0 * np.maximum(total, 1e-300))
        out[own_group, own_column] = errors
        return out

    def profile(self, a: int, b: int, quantile: float) -> np.ndarray:
        """Return statistics, lower and upper limits (3, size) from Firth's profile likelihood.

        They refer to the differences between the parameters of groups `a` and `b`. At the limits,
        twice the decrease in the penalised log-likelihood is equal to `quantile`. Parameters that
        are not identified are nan.
        """
        out = np.full((3, self.layout.size), np.nan)
        groups = [b, *(g for g in self.maximum.groups.tolist() if g != b)]
        with serial_blas():
            Z, scale = self._scaled_design()
            columns = np.asarray(self.maximum.basis.any(axis=0))
            start = (self.coefficients[groups] - self.coefficients[b])[1:] * scale
            profile = FirthProfile(Z, self._counts[:, groups], columns, start)
            for k in np.flatnonzero(self.determined(a, b)[1:]):
                interval = profile.interval(groups.index(a) - 1, 1 + int(k), quantile)
                unit = scale[1 + k]
                out[:, k] = interval.statistic, interval.lower / unit, interval.upper / unit
        return out

    def _scaled_design(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a design (n, 1 + size) and the factors (1 + size,) of its coefficients.

        The coefficients are equal to the coefficients of unscaled numeric predictors times the
        factors.
        """
        if self.layout.numbers is None:
            return design(self._codes, self.layout), np.ones(1 + self.layout.size)
        layout = in_unit(self.layout, centred=False, scaled=True)
        scale = to_raw(layout)
        assert scale is not None  # noqa: S101  # there are numbers
        return design(self._codes, layout), 1.0 / scale.diagonal()

    def penalised_ratio(self, dropped: np.ndarray) -> float:
        """Return twice the decrease in Firth's penalised log-likelihood after dropping parameters.

        The parameters in the mask `dropped` (size,) are set to 0 in all groups. The information
        matrix still covers all parameters, so the decrease is non-negative and does not depend on
        the reference levels.
        """
        groups = self.maximum.groups
        with serial_blas():
            Z, _ = self._scaled_design()
            is_dropped = np.append(False, dropped)
            # columns of the smaller model first
            order = np.argsort(is_dropped, kind="stable")
            columns = leading_columns(Z, order)
            start = np.zeros((len(groups) - 1, Z.shape[1]))
            profile = FirthProfile(Z, self._counts[:, groups], columns, start)
            fixed = np.where(is_dropped, 0.0, np.nan) * np.ones_like(start)
            return profile.ratio(fixed)[0]

    def scores(self, rows: Sample) -> np.ndarray:
        """Return the derivatives of ln P(group | row) with respect to the coefficients.

        The result has shape (n, K, 1 + size).

        `rows` contains the level codes (n, m), and the groups as `response` (n,).
        """
        residual = self._residuals(rows)
        return residual[:, :, None] * raw_design(rows.codes, self.layout)[:, None, :]

    def _residuals(self, rows: Sample) -> np.ndarray:
        """Return the derivatives (n, K) of ln P(group | row) with respect to the class scores."""
        residual = -self.probabilities(design(rows.codes, self.layout))
        residual[np.arange(rows.n), rows.response] += 1.0
        residual[:, self.reference] = 0.0  # its coefficients are fixed at zero
        return residual

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, K, 1 + size) of rows on coefficients, multiplied by `total`.

        The rows must have a response. The influence on coefficients outside the basis is zero.
        """
        scores = self._residuals(rows)[:, :, None] * design(rows.codes, self.layout)[:, None, :]
        basis = self.maximum.basis
        out = np.zeros(scores.shape)
        out[:, basis] = scores[:, basis] @ self._inverse
        return self._raw(out, axis=2)
