"""Influence of rows on the parameters of a location model, and derivatives of averaged group
probabilities with respect to these parameters.

The *parameters* of a group are the coefficients of the means that are not fixed at zero, predictor
by predictor, the variances, and the covariances of the pairs of numeric predictors that may be
correlated.
"""
# Dimensions: K groups, n rows, q numbers, p columns of the means, d parameters of a group.

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl.errors import OptionError
from bbl.model.location import Location
from bbl.model.score_gradient import ScoreGradient
from bbl.rows.sample import nominal_codes

__all__ = ["LocationInfluence", "NumberScoreGradient"]

NO_ROWS = 1e-9  # smaller proportions of rows are rounding errors
RANK = 1e-11  # relative size of eigenvalues that count as zero
ROWS = 16384  # rows whose derivatives are in memory at a time


@dataclass(frozen=True, eq=False)
class LocationInfluence:
    """Influence of rows on the parameters (d,) of each group, and the derivatives of log densities
    with respect to these parameters.

    The influence of a row is the derivative of the estimate with respect to the row's weight. The
    transformation of the numeric predictors and the diagonal towards which covariances are shrunk
    are treated as fixed.
    """

    location: Location

    @cached_property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """The numeric predictor and the column of each coefficient of the means."""
        number, column = np.nonzero(self.location.model.has_column)
        return number, column

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (i, j), with i <= j, of the covariances that are parameters."""
        i, j = np.nonzero(np.triu(self.location.model.correlated))
        return i, j

    @property
    def size(self) -> int:
        """Number d of parameters in each group."""
        return len(self.coefficients[0]) + len(self.edges[0])

    def directions(self, g: int) -> np.ndarray:
        """Return the directions (d, u) along which the parameters of group g can change without
        changing the fit.

        These are the effects of levels without rows in the group.
        """
        model = self.location.model
        if model.prior_count or not self.location.n[g]:
            return np.zeros((self.size, 0))
        number, column = self.coefficients
        shares = self.location.T[g].diagonal()[: model.p] / self.location.n[g]
        out = []
        for start, stop in itertools.pairwise(model.start):
            absent = start + np.flatnonzero(shares[start:stop] < NO_ROWS)
            without_reference = 1.0 - shares[start:stop].sum() < NO_ROWS
            for j in range(model.q):
                if not model.has_column[j, start]:
                    continue
                own = number == j
                for level in absent:
                    out.append((own & (column == level)).astype(float))
                if without_reference:
                    is_level = own & (column >= start) & (column < stop)
                    out.append((own & (column == 0)).astype(float) - is_level)
        directions = np.zeros((self.size, len(out)))
        directions[: len(number)] = np.array(out).T if out else 0.0
        return directions

    @cached_property
    def _bread(self) -> list[list[np.ndarray]]:
        """Inverse information matrices of the coefficients in each group.

        Each group has one matrix for each numeric predictor, or a single matrix if all numeric
        predictors are estimated jointly.
        """
        model = self.location.model
        out = []
        for g, T in enumerate(self.location.T):
            if model.is_seemingly_unrelated:
                A = model.information(T, self.location.precision[g])
                out.append([_scaled_inverse(A)])
                continue
            own = []
            for has in model.has_column:
                columns = np.flatnonzero(has)
                A = (T[: model.p, : model.p] + model.penalty)[np.ix_(columns, columns)]
                own.append(_scaled_inverse(A))
            out.append(own)
        return out

    @cached_property
    def _scale(self) -> np.ndarray:
        """Factors (K, q, q) that convert products of residuals to covariances."""
        model = self.location.model
        ranks = self.location.ranks * (model.divisor == "moment")
        df = np.maximum(self.location.n[:, None] - ranks, 0.0)  # (K, q)
        if model.covariance == "shared":
            df = np.broadcast_to(df.sum(axis=0), df.shape)
            prior = 0.0
        else:
            prior = model.prior_count
        products = np.sqrt(df[:, :, None] * df[:, None, :]) + prior
        return (1.0 - float(model.shrink)) * np.divide(
            1.0, products, out=np.zeros_like(products), where=products > 0.0
        )

    def coefficient_influences(self, codes: np.ndarray, g: int) -> np.ndarray:
        """Return the influences of rows of group g on the means of the group,
        shape (n, coefficients).
        """
        model = self.location.model
        z = model.indicators(codes)
        residuals = self.location.numbers(codes) - z @ self.location.C[g]
        number, column = self.coefficients
        shift = (model.penalty @ self.location.C[g]) / max(self.location.n[g], 1e-300)  # (p, q)
        if model.is_seemingly_unrelated:
            precision = self.location.precision[g]
            scores = z[:, column] * (residuals @ precision)[:, number]
            scores -= (shift * precision.diagonal())[column, number]
            return scores @ self._bread[g][0]
        scores = z[:, column] * residuals[:, number] - shift[column, number]
        out = np.empty_like(scores)
        for j in range(model.q):
            own = np.flatnonzero(number == j)
            out[:, own] = scores[:, own] @ self._bread[g][j]
        return out

    def covariance_influences(self, codes: np.ndarray, g: int) -> np.ndarray:
        """Return the influences (n, edges) of rows of group g on the covariances of the group, or
        on the shared covariance.
        """
        i, j = self.edges
        residuals = self.location.residuals(codes, g)
        products = residuals[:, i] * residuals[:, j] - self._mean_products[g]
        return products * self._scale[g][i, j]

    @cached_property
    def _mean_products(self) -> np.ndarray:
        """Means (K, edges) of the products of residuals in each group, or over all rows if the
        covariance is shared.
        """
        i, j = self.edges
        sums = self.location.residual_sums[:, i, j]
        n = self.location.n[:, None]
        if self.location.model.covariance == "shared":
            sums = np.broadcast_to(sums.sum(axis=0), sums.shape)
            n = np.broadcast_to(n.sum(axis=0), n.shape)
        return np.divide(sums, n, out=np.zeros_like(sums), where=n > 0.0)

    def derivatives(self, codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        """Return the derivatives (n, K, d) of the log density of rows in each group with respect to
        the group's parameters.

        Numeric values marked in `missing` (n, m) are averaged over. Other predictors must be known
        if a known numeric predictor depends on them.
        """
        location = self.location
        model = location.model
        number, column = self.coefficients
        z = model.indicators(codes)
        out = np.zeros((len(codes), len(location.C), self.size))
        if missing is None:
            patterns = np.ones((1, model.q), dtype=bool)
            pattern_of_row = np.zeros(len(codes), dtype=np.intp)
        else:
            patterns, pattern_of_row = np.unique(
                ~missing[:, model.numbers], axis=0, return_inverse=True
            )
        values = location.numbers(codes)
        for k, is_known in enumerate(patterns):
            rows = np.flatnonzero(pattern_of_row.ravel() == k)
            known = np.flatnonzero(is_known)
            if not len(known):
                continue
            for g in range(len(location.C)):
                residuals = (values[rows] - z[rows] @ location.C[g])[:, known]
                precision = np.linalg.inv(location.S[g][np.ix_(known, known)])
                weighted = np.zeros((len(rows), model.q))
                weighted[:, known] = residuals @ precision
                out[rows, g, : len(number)] = z[rows][:, column] * weighted[:, number]
                full_precision = np.zeros((model.q, model.q))
                full_precision[np.ix_(known, known)] = precision
                out[rows, g, len(number) :] = self._covariance_derivatives(
                    weighted, full_precision, g
                )
        return out

    def _covariance_derivatives(
        self, weighted: np.ndarray, precision: np.ndarray, g: int
    ) -> np.ndarray:
        """Return the derivatives of log densities with respect to the free covariances,
        shape (n, edges).

        `weighted` (n, q) contains the residuals multiplied by the `precision` (q, q) of the known
        numeric values, and 0 for missing values. The other covariances are functions of the free
        covariances.
        """
        i, j = np.triu_indices(self.location.model.q)
        # derivatives with respect to all covariances, each pair counted once
        of_all = (weighted[:, i] * weighted[:, j] - precision[i, j]) * np.where(i == j, 0.5, 1.0)
        return of_all @ self._expansion[g]

    @cached_property
    def _expansion(self) -> np.ndarray:
        """Derivatives (K, pairs, edges) of the covariances of all pairs i <= j with respect to the
        free covariances.

        With Gaussian covariance selection, the chain rule is applied to the precisions of the
        edges.
        """
        i, j = np.triu_indices(self.location.model.q)
        first, second = self.edges
        if len(first) == len(i):
            return np.broadcast_to(np.eye(len(i)), (len(self.location.S), len(i), len(i)))
        out = []
        is_edge = self.location.model.correlated[i, j]
        for S in self.location.S:
            # minus the derivative of a covariance with respect to a precision
            by_precision = S[i][:, first] * S[j][:, second] + S[i][:, second] * S[j][:, first]
            by_precision[:, first == second] *= 0.5
            out.append(np.linalg.solve(by_precision[is_edge].T, by_precision.T).T)
        return np.array(out)


def _scaled_inverse(A: np.ndarray) -> np.ndarray:
    """Return the pseudoinverse of an information matrix, which is first scaled to unit diagonal."""
    scale = np.sqrt(np.maximum(A.diagonal(), 1e-300))
    inverse = np.linalg.pinv(A / scale[:, None] / scale, rcond=RANK, hermitian=True)
    return inverse / scale[:, None] / scale


class NumberScoreGradient:
    """Derivatives of weighted sums of P(group | row) for models with numeric predictors.

    The coefficients of a group are those of `ScoreGradient` for the other predictors, followed by
    the parameters of the location model.

    Parameters
    ----------
    gradient : ScoreGradient
        The gradient for the non-numeric predictors.
    location : Location
    """

    def __init__(self, gradient: ScoreGradient, location: Location):
        self._gradient = gradient
        self._location = location
        self._influence = LocationInfluence(location)
        self.n_groups = gradient.n_groups
        self.n_coefficients = gradient.n_coefficients + self._influence.size

    def sums(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        p: np.ndarray,
        weights: np.ndarray,
        starts: np.ndarray,
    ) -> np.ndarray:
        """Return the derivatives (U, K, K, coefficients) of U sums, as in `ScoreGradient.sums`."""
        levels, missing_levels = self._levels(codes, missing)
        of_levels = self._gradient.sums(levels, missing_levels, p, weights, starts)
        K = self.n_groups
        of_numbers = np.zeros((*of_levels.shape[:3], self._influence.size))
        unit = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        for first in range(0, len(codes), ROWS):
            rows = slice(first, first + ROWS)
            derivatives = self._influence.derivatives(
                codes[rows], None if missing is None else missing[rows]
            )
            by_score = -p[rows][:, :, None] * p[rows][:, None, :]
            by_score[:, np.arange(K), np.arange(K)] += p[rows]
            by_score *= weights[rows][:, None, None]
            # units of these rows, which are consecutive
            own_units, first_rows = np.unique(unit[rows], return_index=True)
            bounds = np.append(first_rows, len(derivatives))
            for u, lo, hi in zip(own_units, bounds, bounds[1:], strict=False):
                of_numbers[u] += np.einsum(
                    "nyg,ngd->ygd", by_score[lo:hi], derivatives[lo:hi], optimize=True
                )
        return np.concatenate([of_levels, of_numbers], axis=3)

    def score_changes(
        self,
        codes: np.ndarray,
        missing: np.ndarray | None,
        directions: np.ndarray,
        starts: np.ndarray,
    ) -> np.ndarray:
        """Return the derivatives (T, n, K) of class scores along T directions (T, U, K,
        coefficients), as in `ScoreGradient.score_changes`.
        """
        levels, missing_levels = self._levels(codes, missing)
        n_own = self._gradient.n_coefficients
        out = self._gradient.score_changes(levels, missing_levels, directions[..., :n_own], starts)
        for first in range(0, len(codes), ROWS):
            rows = slice(first, first + ROWS)
            derivatives = self._influence.derivatives(
                codes[rows], None if missing is None else missing[rows]
            )
            # units of these rows, which are consecutive
            bounds = np.clip(starts - first, 0, len(derivatives))
            for u in np.flatnonzero(np.diff(bounds)):
                own = slice(bounds[u], bounds[u + 1])
                changes = np.einsum(
                    "ngd,tgd->tng", derivatives[own], directions[:, u, :, n_own:], optimize=True
                )
                out[:, rows][:, own] += changes
        return out

    def _levels(
        self, codes: np.ndarray, missing: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes and missing cells of the non-numeric predictors."""
        model = self._location.model
        if missing is not None and self._location.is_needed(missing).any():
            raise OptionError(
                "Standard errors are not available for rows with a missing predictor on which the "
                "mean of a numeric predictor depends.",
                argument="se",
                hint="Use se='bootstrap' or se=False, or complete rows.",
            )
        chosen = model.categories
        levels = nominal_codes(codes, model.is_number, model.n_levels)[:, chosen]
        return np.ascontiguousarray(levels), None if missing is None else missing[:, chosen]
