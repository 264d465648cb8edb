"""The location model of numeric predictors: Gaussian, with means that depend on the levels of other
predictors (Olkin & Tate 1961).

In group y, the numeric predictors u given the levels x of the other predictors have the density
``N(u; mu_y(x), S_y)``, where ``mu_y(x) = C_y' z(x)`` and ``z(x)`` is 1 followed by indicators of
levels.
"""
# Dimensions: K groups, n rows, m predictors, q of them numbers; p columns of z: a constant, and the
# non-reference levels of the predictors on which some mean depends (the *partners*). Codes are
# (n, m) floats, with numbers measured from their centre.

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from bbl.errors import DataError
from bbl.memory import check_memory
from bbl.rows.sample import Rows, Sample, nominal_codes
from bbl.rows.stored import CHUNK_ROWS, StoredSample

__all__ = [
    "Location",
    "LocationModel",
    "NormalScores",
    "NumberNames",
    "EnergyWithNumbers",
    "singular_number",
]

# Maps integer codes (n, m) and unknown cells (n, m) or None to energies (n, K).
Energies = Callable[[np.ndarray, "np.ndarray | None"], np.ndarray]
LOG_2PI = float(np.log(2.0 * np.pi))
BLOCK = 4096  # rows whose moments are summed at a time
# A covariance is singular if a variance given the other numbers is below this share of the number's
# own variance: a copied number leaves rounding errors of about 1e-16.
SINGULAR = 1e-10
STATIONARY = 1e-13  # relative change at which the iterations for C and S stop
MAX_ROUNDS = 1000
MAX_STATES = 2**16  # of unknown partners in a row
MAX_CELLS = 2**22  # states times rows that are scored at a time


@dataclass(frozen=True, eq=False)
class NormalScores:
    """Transformation of numeric values to normal scores of their mid-ranks in the training rows.

    New values are interpolated linearly. Values outside the range of the training rows have the
    score of the minimum or maximum.

    Attributes
    ----------
    values, scores : tuple of q ndarrays
        The distinct training values of each numeric predictor, in increasing order, and their
        scores.
    """

    values: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]

    @classmethod
    def of_values(cls, numbers: np.ndarray, weights: np.ndarray) -> NormalScores:
        """Return the transformation estimated from values (n, q) with weights (n,)."""
        from scipy.special import ndtri

        values = []
        scores = []
        for column in numbers.T:
            distinct, position = np.unique(column, return_inverse=True)
            counts = np.bincount(position.ravel(), weights)
            values.append(distinct)
            scores.append(ndtri((np.cumsum(counts) - counts / 2.0) / counts.sum()))
        return cls(tuple(values), tuple(scores))

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """Return the scores (n, q) of values (n, q); nan values remain nan."""
        return np.column_stack(
            [
                np.interp(column, values, scores)
                for column, values, scores in zip(numbers.T, self.values, self.scores, strict=True)
            ]
        )

    def inverse(self, scores: np.ndarray) -> np.ndarray:
        """Return the values (n, q) with the given `scores` (n, q), interpolated linearly."""
        return np.column_stack(
            [
                np.interp(column, own_scores, values)
                for column, values, own_scores in zip(
                    scores.T, self.values, self.scores, strict=True
                )
            ]
        )


@dataclass(frozen=True, eq=False)
class LocationModel:
    """Specification of the means and covariances, with estimation options.

    Attributes
    ----------
    n_levels : ndarray of int, shape (m,)
        Number of levels of each predictor; 1 for numeric predictors.
    numbers : ndarray of int, shape (q,)
        Positions of the numeric predictors among all predictors.
    partners : ndarray of bool, shape (q, m)
        Whether the mean of each numeric predictor depends on the level of each predictor.
    correlated : ndarray of bool, shape (q, q)
        Whether two numeric predictors are correlated given the others; True on the diagonal.
    covariance : {"group", "shared", "cv"}
        Whether each group has its own covariance. Here and below, "cv" means that the option has
        yet to be chosen by cross-validation.
    divisor : {"moment", "ml"}
        Whether residual sums are divided by the degrees of freedom, as in MASS, or by the number of
        rows.
    prior_count : float
        Pseudocount that shrinks effects of levels towards zero, and covariances towards the
        diagonal of the pooled covariance.
    shrink : float or "cv"
        Weight of the diagonal of the pooled covariance in each covariance, 0 to 1.
    transform : {"none", "normal", "cv"}
        Whether numeric values are replaced by normal scores.
    tuned : tuple of str
        Names of the options that were chosen by cross-validation.
    keeps_prior_count : bool
        Whether refits keep `prior_count` instead of using the prior count of the engine.
    """

    n_levels: np.ndarray
    numbers: np.ndarray
    partners: np.ndarray
    correlated: np.ndarray
    covariance: str = "group"
    divisor: str = "moment"
    prior_count: float = 0.0
    shrink: float | str = 0.0
    transform: str = "none"
    tuned: tuple[str, ...] = ()
    keeps_prior_count: bool = False

    @property
    def undecided(self) -> tuple[str, ...]:
        """Options that have yet to be chosen by cross-validation."""
        return tuple(
            name for name in ("covariance", "transform", "shrink") if getattr(self, name) == "cv"
        )

    @classmethod
    def of_pairs(
        cls, n_levels: np.ndarray, is_number: np.ndarray, pairs: np.ndarray, **options: Any
    ) -> LocationModel | None:
        """Return the specification for the numeric predictors in the mask `is_number` (m,) and the
        interacting `pairs` (P, 2), or None if no predictor is numeric. `options` are other
        attributes.
        """
        numbers = np.flatnonzero(is_number)
        if not len(numbers):
            return None
        position = np.full(len(n_levels), -1)
        position[numbers] = np.arange(len(numbers))
        partners = np.zeros((len(numbers), len(n_levels)), dtype=bool)
        correlated = np.eye(len(numbers), dtype=bool)
        for i, j in pairs:
            a, b = position[i], position[j]
            if a >= 0 and b >= 0:
                correlated[a, b] = correlated[b, a] = True
            elif a >= 0:
                partners[a, j] = True
            elif b >= 0:
                partners[b, i] = True
        return cls(n_levels, numbers, partners, correlated, **options)

    @property
    def q(self) -> int:
        """Number of numeric predictors."""
        return len(self.numbers)

    @cached_property
    def is_number(self) -> np.ndarray:
        """Mask of numeric predictors, shape (m,)."""
        is_number = np.zeros(len(self.n_levels), dtype=bool)
        is_number[self.numbers] = True
        return is_number

    @cached_property
    def categories(self) -> np.ndarray:
        """Positions of the predictors that are not numeric, in increasing order."""
        return np.flatnonzero(~self.is_number)

    def without_numbers(self, rows: Sample) -> Sample:
        """Return rows with integer codes of the non-numeric predictors only."""
        return rows.nominal(self.is_number, self.n_levels).only(self.categories)

    @cached_property
    def components(self) -> list[np.ndarray]:
        """Numeric predictors (positions) in each connected component of the correlation graph."""
        from scipy.sparse.csgraph import connected_components

        n_components, component = connected_components(self.correlated, directed=False)
        return [self.numbers[component == k] for k in range(n_components)]

    @cached_property
    def used(self) -> np.ndarray:
        """Positions of the predictors that affect the mean of a numeric predictor, in increasing
        order.
        """
        return np.flatnonzero(self.partners.any(axis=0))

    @cached_property
    def start(self) -> np.ndarray:
        """First column in z of each predictor in `used`, followed by p; shape (used + 1,)."""
        return np.concatenate([[1], 1 + np.cumsum(self.n_levels[self.used] - 1)]).astype(np.intp)

    @property
    def p(self) -> int:
        """Number of columns of z."""
        return int(self.start[-1])

    @cached_property
    def owner(self) -> np.ndarray:
        """Predictor that corresponds to each column of z, shape (p,); -1 for the constant."""
        return np.concatenate([[-1], np.repeat(self.used, np.diff(self.start))]).astype(np.intp)

    @cached_property
    def has_column(self) -> np.ndarray:
        """Whether the mean of each numeric predictor uses each column of z, shape (q, p)."""
        return np.column_stack(
            [np.ones(self.q, dtype=bool), self.partners[:, self.owner[1:]]]
        ).astype(bool)

    def indicators(self, codes: np.ndarray) -> np.ndarray:
        """Return z (n, p) for rows with `codes` (n, m)."""
        z = np.zeros((len(codes), self.p))
        z[:, 0] = 1.0
        rows = np.arange(len(codes))
        for start, i in zip(self.start, self.used, strict=False):
            levels = codes[:, i].astype(np.intp)
            is_indicated = levels > 0
            z[rows[is_indicated], start - 1 + levels[is_indicated]] = 1.0
        return z

    def moments(self, rows: Rows, K: int, scores: NormalScores | None = None) -> np.ndarray:
        """Return the second moments ``T = sum w t t'`` of ``t = (z, u)`` in each group,
        shape (K, p + q, p + q).

        The moments of separate blocks of rows or folds can be added.
        """
        check_memory(
            8.0 * K * (self.p + self.q) ** 2,
            f"The moments of {self.q} numeric predictors and {self.p - 1} levels in {K} groups",
            "Leave out interactions of numeric predictors with levels.",
        )
        sum_moments = partial(self._moments_of_sample, K=K, scores=scores)
        if scores is None or rows.in_memory:
            # rows outside memory store the sums of each fold under this key
            return rows.sums(("location", self.partners.tobytes(), K), sum_moments)
        return cast(StoredSample, rows).summed(sum_moments)

    def _moments_of_sample(self, rows: Sample, K: int, scores: NormalScores | None) -> np.ndarray:
        """Return the `moments` of rows in memory."""
        T = np.zeros((K, self.p + self.q, self.p + self.q))
        for block in rows.blocks(BLOCK):
            numbers = block.codes[:, self.numbers]
            t = np.column_stack(
                [self.indicators(block.codes), numbers if scores is None else scores(numbers)]
            )
            y = block.response
            for g in np.unique(y[y >= 0]) if K > 1 else range(1):
                in_group = t if K == 1 else t[y == g]
                weights = block.weights if K == 1 else block.weights[y == g]
                T[g] += in_group.T @ (in_group * weights[:, None])
        return T

    def fit(self, rows: Rows, K: int, names: NumberNames | None = None) -> Location:
        """Return the location model of K groups, estimated from rows.

        Raises
        ------
        DataError
            If a covariance is singular.
        """
        scores = self.normal_scores(rows)
        return self.from_moments(self.moments(rows, K, scores), scores, names)

    def normal_scores(self, rows: Rows) -> NormalScores | None:
        """Return the normal scores of the numeric values in `rows`, or None if the values are not
        transformed.
        """
        if self.transform != "normal":
            return None
        blocks = [
            (block.codes[:, self.numbers], block.weights) for block in rows.chunks(CHUNK_ROWS)
        ]
        numbers, weights = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        return NormalScores.of_values(numbers, weights)

    def from_moments(
        self, T: np.ndarray, scores: NormalScores | None = None, names: NumberNames | None = None
    ) -> Location:
        """Return the location model that is estimated from second moments T (K, p + q, p + q)."""
        n = T[:, 0, 0].copy()
        C, ranks = self._regressions(T, self.has_column)
        residuals = _residuals(T, C)
        of_numbers = T[:, self.p :, self.p :].sum(axis=0).diagonal()
        size = of_numbers / max(float(n.sum()), 1e-300)
        if self.is_seemingly_unrelated:
            # the likelihood is unbounded if a linear combination of the numbers is a function of
            # the levels
            C_all, ranks_all = self._regressions(T, np.ones_like(self.has_column))
            _refuse_singular(_residuals(T, C_all), n, ranks_all, size, self, names)
            C, residuals = self._generalised(T, C, residuals, n)
        _refuse_singular(residuals, n, ranks, size, self, names)
        S = self.covariances(residuals, n, ranks)
        selected = np.array([select_covariance(covariance, self.correlated) for covariance in S])
        return Location(self, C, selected, n, ranks, T, scores)

    def coefficients(self, T: np.ndarray) -> np.ndarray:
        """Return the coefficients C (K, p, q) estimated from second moments; covariances may be
        singular.
        """
        C, _ = self._regressions(T, self.has_column)
        if self.is_seemingly_unrelated:
            C, _ = self._generalised(T, C, _residuals(T, C), T[:, 0, 0])
        return C

    def _regressions(self, T: np.ndarray, has_column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the regression coefficients (K, p, q) and the ranks (K, q) for each numeric
        predictor.

        The regressors are the columns of z marked in `has_column` (q, p).
        """
        C = np.zeros((len(T), self.p, self.q))
        ranks = np.zeros((len(T), self.q), dtype=np.intp)
        # numeric predictors with the same regressors are solved for together
        designs, design = np.unique(has_column, axis=0, return_inverse=True)
        for k, has in enumerate(designs):
            columns = np.flatnonzero(has)
            own = np.flatnonzero(design.ravel() == k)
            for g in np.flatnonzero(T[:, 0, 0] > 0.0):
                C[np.ix_([g], columns, own)], ranks[g, own] = self._regress(T[g], own, columns)
        return C, ranks

    def _regress(
        self, T: np.ndarray, numbers: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Return the coefficients (columns, numbers) of some numeric predictors for some `columns`
        of z, and the rank of the design.

        `T` (p + q, p + q) contains the moments of a group. Without a prior count, the mean at a
        level that does not occur in the group equals the mean of the group.
        """
        from scipy import linalg

        cross = T[np.ix_(columns, self.p + numbers)]
        is_kept, shares = self._identified(T, columns)
        kept = np.flatnonzero(is_kept)
        A = T[np.ix_(columns[kept], columns[kept])]
        scale = np.sqrt(A.diagonal())
        solution, _, rank, _ = linalg.lstsq(
            A / scale[:, None] / scale, cross[kept] / scale[:, None], cond=1e-11
        )
        if self.prior_count:  # which identifies all effects, but adds no rows to the rank
            penalised = T[np.ix_(columns, columns)] + self.penalty[np.ix_(columns, columns)]
            return linalg.solve(penalised, cross, assume_a="pos"), int(rank)
        coefficients = np.zeros(cross.shape)
        coefficients[kept] = solution / scale[:, None]
        _set_absent_levels(coefficients, shares)
        return coefficients, int(rank)

    def _identified(
        self, T: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Return a mask of the `columns` of z to use for a regression in a group, and the shares of
        levels.

        `T` (p + q, p + q) contains the moments of the group. Levels that do not occur are left out,
        and the first level of each partner that occurs is the reference of the regression. For each
        partner, the second result contains the positions of its levels in `columns` and the shares
        of all its levels, including the first one.
        """
        n = T[0, 0]
        counts = T[columns, columns]  # of the levels, as z are indicators
        is_kept = counts > 0.0
        shares_by_partner = []
        for i in np.unique(self.owner[columns[1:]]):
            own = np.flatnonzero(self.owner[columns] == i)
            shares = np.concatenate([[n - counts[own].sum()], counts[own]]) / n
            # rounding errors of real-valued weights are not rows
            shares[shares < 1e-9] = 0.0
            if shares[0] == 0.0:
                is_kept[own[np.flatnonzero(shares[1:])[:1]]] = False
            shares_by_partner.append((own, shares))
        return is_kept, shares_by_partner

    @cached_property
    def penalty(self) -> np.ndarray:
        """Matrix (p, p) of the penalty on effects of levels: `prior_count` times the sum of the
        squares of zero-sum effects.
        """
        penalty = np.zeros((self.p, self.p))
        for start, stop in itertools.pairwise(self.start):
            L = stop - start + 1
            penalty[start:stop, start:stop] = np.eye(L - 1) - 1.0 / L
        return self.prior_count * penalty

    @property
    def is_seemingly_unrelated(self) -> bool:
        """Whether numeric predictors with different partners are correlated.

        If so, separate regressions do not maximise the likelihood.
        """
        differ = (self.has_column[:, None] != self.has_column[None]).any(axis=2)
        return bool((differ & self.correlated).any())

    def _generalised(
        self, T: np.ndarray, C: np.ndarray, residuals: np.ndarray, n: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the maximum likelihood estimate of C (K, p, q) and the residual sums (K, q, q).

        Generalised least squares for C and the estimation of the covariance alternate until both
        converge.
        """
        C = C.copy()
        used = np.flatnonzero(n > 0.0)
        columns = [np.flatnonzero(has) for has in self.has_column]
        identified = {g: [self._identified(T[g], own) for own in columns] for g in used}
        scale = np.sqrt(
            np.maximum(T[used, self.p :, self.p :].diagonal(0, 1, 2).max(axis=0), 1e-300)
        )
        for _ in range(MAX_ROUNDS):
            S = self.covariances(residuals, n, np.zeros((len(T), self.q)), divisor="ml")
            before = C.copy()
            for g in used:
                covariance = select_covariance(S[g], self.correlated)
                # scaled, because units of the numeric predictors may differ by orders of magnitude
                sd = np.sqrt(np.maximum(covariance.diagonal(), 1e-300))
                correlation = covariance / sd[:, None] / sd
                precision = np.linalg.pinv(correlation, hermitian=True) / sd[:, None] / sd
                C[g] = self._generalised_step(T[g], precision, identified[g])
            residuals = _residuals(T, C)
            if (np.abs(C - before) <= STATIONARY * np.maximum(np.abs(C).max(), scale.max())).all():
                break
        return C, residuals

    def _generalised_step(
        self,
        T: np.ndarray,
        precision: np.ndarray,
        identified: list[tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]],
    ) -> np.ndarray:
        """Estimate C (p, q) of a group by generalised least squares with a `precision` (q, q).

        `identified` has the result of `_identified` for the columns of each numeric predictor.
        """
        number, column = np.nonzero(self.has_column)
        b = np.zeros(len(column))
        for j in range(self.q):
            b += precision[number, j] * T[column, self.p + j]
        A = self.information(T, precision)
        # a prior count identifies the effects of all levels
        kept = np.flatnonzero(
            np.concatenate([is_kept for is_kept, _ in identified]) | (self.prior_count > 0.0)
        )
        scale = np.sqrt(A[kept, kept])
        scaled = A[np.ix_(kept, kept)] / scale[:, None] / scale
        solution = np.zeros(len(column))
        solution[kept] = np.linalg.lstsq(scaled, b[kept] / scale, rcond=1e-11)[0] / scale
        if not self.prior_count:
            for j, (_, shares) in enumerate(identified):
                coefficients = solution[number == j, None]
                _set_absent_levels(coefficients, shares)
                solution[number == j] = coefficients[:, 0]
        C = np.zeros((self.p, self.q))
        C[column, number] = solution
        return C

    def information(self, T: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the information of all coefficients of a group, predictor by predictor, given its
        moments and the `precision` (q, q) of the numeric predictors.
        """
        number, column = np.nonzero(self.has_column)
        moments = T[np.ix_(column, column)]
        if self.prior_count:  # effects on different numeric predictors have separate penalties
            is_same = number[:, None] == number
            moments = moments + is_same * self.penalty[np.ix_(column, column)]
        return precision[np.ix_(number, number)] * moments

    def covariances(
        self, residuals: np.ndarray, n: np.ndarray, ranks: np.ndarray, divisor: str | None = None
    ) -> np.ndarray:
        """Return the covariances (K, q, q) from residual sums (K, q, q), before covariance
        selection sets elements of their inverses to zero.
        """
        is_moment = (divisor or self.divisor) == "moment"
        # (K, q): numbers of different ranks have different degrees of freedom
        df = np.maximum(n[:, None] - ranks * is_moment, 0.0)
        pooled_df = np.sqrt(df.sum(axis=0)[:, None] * df.sum(axis=0))
        pooled = np.zeros_like(residuals[0])
        np.divide(residuals.sum(axis=0), pooled_df, out=pooled, where=pooled_df > 0.0)
        if self.covariance == "shared":
            S = np.broadcast_to(pooled, residuals.shape).copy()
        else:
            group_df = np.sqrt(df[:, :, None] * df[:, None, :])
            S = np.divide(residuals, group_df, out=np.zeros_like(residuals), where=group_df > 0.0)
            S[n == 0.0] = pooled  # a group without rows
            if self.prior_count:
                c = self.prior_count
                S = (S * group_df + c * np.diag(pooled.diagonal())) / (group_df + c)
        if self.shrink:
            shrink = float(self.shrink)
            S = (1.0 - shrink) * S + shrink * np.diag(pooled.diagonal())
        return (S + S.transpose(0, 2, 1)) / 2.0  # without rounding errors


def _residuals(T: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return the sums of squares and products of the residuals ``u - C'z``, shape (K, q, q)."""
    q = C.shape[2]
    D = np.concatenate([-C, np.broadcast_to(np.eye(q), (len(C), q, q))], axis=1)
    return D.transpose(0, 2, 1) @ T @ D


def select_covariance(S: np.ndarray, correlated: np.ndarray) -> np.ndarray:
    """Return the maximum likelihood covariance whose inverse is zero for pairs that are not
    `correlated`.

    The sample covariance is `S` (q, q). This is Dempster's (1972) covariance selection, computed by
    algorithm 17.1 of Hastie, Tibshirani & Friedman (2009).
    """
    q = len(S)
    if correlated.all() or q == 1:
        return S
    others = ~np.eye(q, dtype=bool)
    if not (correlated & others).any():
        return np.diag(S.diagonal())
    W = np.diag(S.diagonal())
    for _ in range(MAX_ROUNDS):
        before = W.copy()
        for j in range(q):
            neighbours = correlated[j] & others[j]
            beta = np.zeros(q)
            if neighbours.any():
                beta[neighbours] = np.linalg.solve(
                    W[np.ix_(neighbours, neighbours)], S[neighbours, j]
                )
            W[others[j], j] = W[j, others[j]] = (W @ beta)[others[j]]
        if np.abs(W - before).max() <= 1e-15 * np.abs(S).max():
            break
    return W


@dataclass(frozen=True)
class NumberNames:
    """Names of the numeric predictors (q,) and groups (K,) for error messages."""

    numbers: Sequence[object]
    groups: Sequence[object]


def _set_absent_levels(
    coefficients: np.ndarray, shares_by_partner: list[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Set the effects of levels without rows, in place, so that their mean is that of the group.

    The rows of `coefficients` are the constant and the levels. For `shares_by_partner`, see
    `LocationModel._identified`.
    """
    for own, shares in shares_by_partner:
        effects = np.concatenate([np.zeros((1, coefficients.shape[1])), coefficients[own]])
        occurs = shares > 0.0
        if not occurs.all():
            effects[~occurs] = shares @ effects  # the average effect of the others
            coefficients[0] += effects[0]
            coefficients[own] = effects[1:] - effects[0]


def _refuse_singular(
    residuals: np.ndarray,
    n: np.ndarray,
    ranks: np.ndarray,
    size: np.ndarray,
    model: LocationModel,
    names: NumberNames | None,
) -> None:
    """Raise a DataError that names the predictor and group if a covariance is singular.

    `residuals` (K, q, q) contains residual sums of squares and products, `n` (K,) contains the
    number of rows in each group, `ranks` (K, q) contains the ranks of the regressions, and `size`
    (q,) contains the variances of the numeric predictors over all rows.
    """
    found = _find_singular(residuals, n, ranks, size, model)
    if found is None:
        return
    names = names or NumberNames(tuple(range(model.q)), tuple(range(len(n))))
    where = "all groups together" if found.g < 0 else f"group {names.groups[found.g]!r}"
    remedies = []
    for option, value in (("covariance", "shared"), ("shrink", 0.1)):
        other: dict[str, Any] = {option: value}
        changed = replace(model, **other)
        if _find_singular(residuals, n, ranks, size, changed) is None:
            remedies.append(f"{option}={value!r}")
    n_rows = float(n.sum() if found.g < 0 else n[found.g])
    name = names.numbers[found.number]
    reason = (
        f"column {name!r} is constant in {where}, given the predictors it depends on"
        if found.is_constant
        else f"column {name!r} is a linear function of the other numeric predictors in {where}"
    )
    leave = f"leave {name!r} out of the formula."
    raise DataError(
        f"{reason} ({n_rows:,g} rows), so its covariance is singular.",
        column=name,
        hint=f"Use {', '.join(remedies)}, or {leave}" if remedies else f"L{leave[1:]}",
    )


@dataclass(frozen=True)
class SingularCovariance:
    """The group and the numeric predictor for which a covariance is singular.

    Attributes
    ----------
    g : int
        Index of the group; -1 for the covariance of all groups.
    number : int
        Index of the numeric predictor that is constant or a linear function of the others.
    is_constant : bool
    """

    g: int
    number: int
    is_constant: bool


def _find_singular(
    residuals: np.ndarray, n: np.ndarray, ranks: np.ndarray, size: np.ndarray, model: LocationModel
) -> SingularCovariance | None:
    """Return the first singular covariance of a model with these residual sums, or None."""
    S = model.covariances(residuals, n, ranks)
    is_shared = model.covariance == "shared"
    for g in range(1 if is_shared else len(S)):
        j = singular_number(S[g], size, model.correlated)
        if j is not None and (n[g] > 0.0 or is_shared):
            return SingularCovariance(
                -1 if is_shared else g, j, not S[g][j, j] > SINGULAR * size[j]
            )
    return None


def singular_number(S: np.ndarray, size: np.ndarray, correlated: np.ndarray) -> int | None:
    """Return the last numeric predictor that is constant or a linear function of the others
    according to the covariance S (q, q), or None if S is nonsingular. `size` (q,) contains the
    variances that define the scale of each predictor.
    """
    variance = S.diagonal()
    is_constant = ~(variance > SINGULAR * size)
    if is_constant.any():
        return int(np.flatnonzero(is_constant)[-1])
    if not (correlated & ~np.eye(len(S), dtype=bool)).any():
        return None
    scale = np.sqrt(variance)
    values, vectors = np.linalg.eigh(S / scale[:, None] / scale)
    if values[0] > SINGULAR:
        return None
    # unlike a single eigenvector, the norms do not depend on the basis of the null space
    weight = np.linalg.norm(vectors[:, values <= SINGULAR], axis=1)
    return int(np.flatnonzero(weight > 0.9 * weight.max())[-1])


@dataclass(frozen=True, eq=False)
class Location:
    """A fitted location model.

    Attributes
    ----------
    model : LocationModel
    C : ndarray, shape (K, p, q)
        Coefficients of the means; 0 where a mean does not depend on a level.
    S : ndarray, shape (K, q, q)
        Covariances.
    n : ndarray, shape (K,)
        Total weight of each group's rows.
    ranks : ndarray of int, shape (K, q)
        Number of estimable coefficients of each mean.
    T : ndarray, shape (K, p + q, p + q)
        Second moments of the training rows (see `LocationModel.moments`).
    scores : NormalScores or None
        Transformation of the numeric values, if any.
    """

    model: LocationModel
    C: np.ndarray
    S: np.ndarray
    n: np.ndarray
    ranks: np.ndarray
    T: np.ndarray
    scores: NormalScores | None = None

    @cached_property
    def precision(self) -> np.ndarray:
        """Inverses (K, q, q) of the covariances, with zeros for numeric predictors that are not
        correlated given the others.
        """
        return np.array(
            [
                np.where(self.model.correlated, np.linalg.inv(covariance), 0.0)
                for covariance in self.S
            ]
        )

    def effects(self, i: int) -> np.ndarray:
        """Return the effects of the non-reference levels of predictor i on the means,
        shape (K, L_i - 1, q).

        They are 0 for numeric predictors that do not interact with predictor i.
        """
        position = np.flatnonzero(self.model.used == i)
        if not len(position):
            return np.zeros((len(self.C), int(self.model.n_levels[i]) - 1, self.model.q))
        start, stop = self.model.start[position[0] : position[0] + 2]
        return self.C[:, start:stop]

    def level_couplings(self, i: int, j: int) -> np.ndarray:
        """Return the couplings (K, L_i - 1, L_j - 1) of predictors i and j that result from
        averaging over the numeric predictors, ``M_i' L M_j``.
        """
        return self.effects(i) @ self.precision @ self.effects(j).transpose(0, 2, 1)

    @property
    def n_parameters(self) -> int:
        """Number of estimable parameters: coefficients of the means and covariances."""
        q = self.model.q
        n_covariances = q + int((self.model.correlated.sum() - q) // 2)
        n_groups = 1 if self.model.covariance == "shared" else int((self.n > 0.0).sum())
        return int(self.ranks[self.n > 0.0].sum()) + n_groups * n_covariances

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Return the numeric values (n, q) of rows, transformed to normal scores if the model uses
        them.
        """
        numbers = codes[:, self.model.numbers]
        return numbers if self.scores is None else self.scores(numbers)

    def group_means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weights (K,) of the groups, the means (K, q) of the numeric predictors, and
        the sums of products (K, q, q) of deviations from these means. All are computed over all
        levels of the other predictors.
        """
        own = slice(self.model.p, self.model.p + self.model.q)
        n = np.maximum(self.n, 1e-300)[:, None]
        means = self.T[:, 0, own] / n
        products = self.T[:, own, own] - n[:, :, None] * means[:, :, None] * means[:, None, :]
        return self.n, means, products

    @property
    def residual_sums(self) -> np.ndarray:
        """Sums of squares and products (K, q, q) of the residuals of the training rows."""
        return _residuals(self.T, self.C)

    def residuals(self, codes: np.ndarray, g: int) -> np.ndarray:
        """Return the deviations of the numeric predictors from their means in group g,
        shape (n, q).
        """
        return self.numbers(codes) - self.model.indicators(codes) @ self.C[g]

    def log_density(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln N(u; mu_y(x), S_y)`` of rows in each group, shape (n, K).

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), optional
            Missing numeric values are averaged over. Other predictors must be known if a known
            numeric predictor depends on them.
        """
        numbers = self.numbers(codes)
        z = self.model.indicators(codes)
        out = np.zeros((len(codes), len(self.C)))
        if missing is None or not missing[:, self.model.numbers].any():
            patterns = np.ones((1, self.model.q), dtype=bool)
            pattern_of_row = np.zeros(len(codes), dtype=np.intp)
        else:
            patterns, pattern_of_row = np.unique(
                ~missing[:, self.model.numbers], axis=0, return_inverse=True
            )
            pattern_of_row = pattern_of_row.ravel()
        for k, is_known in enumerate(patterns):
            known = np.flatnonzero(is_known)
            if not len(known):
                continue
            # a slice avoids copies of complete rows
            rows = slice(None) if len(patterns) == 1 else np.flatnonzero(pattern_of_row == k)
            for g in range(len(self.C)):
                factor = np.linalg.cholesky(self.S[g][np.ix_(known, known)])
                residuals = numbers[rows][:, known] - z[rows] @ self.C[g][:, known]
                # not `solve_triangular`, which starts threads
                inverse = np.tril(np.linalg.inv(factor))
                standardised = residuals @ inverse.T
                out[rows, g] = (
                    -0.5 * np.einsum("nq,nq->n", standardised, standardised)
                    - np.log(factor.diagonal()).sum()
                    - 0.5 * len(known) * LOG_2PI
                )
        return out

    def component_densities(
        self, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the log density (n, K, components) of each component of correlated numeric
        predictors.

        It is 0 in rows where a known member of the component depends on a missing predictor.
        """
        hidden = np.zeros(codes.shape, dtype=bool) if missing is None else missing
        out = np.empty((len(codes), len(self.C), len(self.model.components)))
        for k, component in enumerate(self.model.components):
            others = np.setdiff1d(self.model.numbers, component)
            own_hidden = hidden.copy()
            own_hidden[:, others] = True
            out[:, :, k] = self.log_density(codes, own_hidden)
            out[self.is_needed(own_hidden).any(axis=1), :, k] = 0.0
        return out

    def draw(self, codes: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw numeric values (n, q) given the levels in `codes` (n, m) and the groups `y` (n,)."""
        z = self.model.indicators(codes)
        out = np.empty((len(codes), self.model.q))
        noise = rng.standard_normal(out.shape)
        for g in range(len(self.C)):
            rows = y == g
            factor = np.linalg.cholesky(self.S[g])
            out[rows] = z[rows] @ self.C[g] + noise[rows] @ factor.T
        return out if self.scores is None else self.scores.inverse(out)

    def is_needed(self, missing: np.ndarray) -> np.ndarray:
        """Return a mask of the missing cells that affect the mean of a known numeric predictor,
        shape (n, m).
        """
        known_numbers = ~missing[:, self.model.numbers]
        return missing & (known_numbers.astype(float) @ self.model.partners > 0.0)

    def add_to(self, energy: Energies) -> EnergyWithNumbers:
        """Return a function that adds the log density of the numeric predictors to `energy`."""
        return EnergyWithNumbers(self, energy)


@dataclass(frozen=True, eq=False)
class EnergyWithNumbers:
    """Energies of rows with numeric predictors.

    The log density of the numeric predictors is added to the energies of the levels.

    If the mean of a known numeric predictor depends on an unknown predictor, the unknown predictor
    is marginalised by a sum over its levels. Other unknown predictors are marginalised by `energy`.

    Attributes
    ----------
    location : Location
    energy : callable
        Maps integer codes (n, m) and unknown cells (n, m) or None to energies (n, K).
    """

    location: Location
    energy: Energies

    def __call__(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return the energies (n, K) of `codes` (n, m), marginalised over the cells in `unknown`
        (n, m).
        """
        if unknown is None or not unknown.any():
            return self._sum(codes, None)
        needed = self.location.is_needed(unknown)
        out = np.empty((len(codes), len(self.location.C)))
        patterns, pattern_of_row = np.unique(needed, axis=0, return_inverse=True)
        for k, pattern in enumerate(patterns):
            rows = np.flatnonzero(pattern_of_row.ravel() == k)
            predictors = np.flatnonzero(pattern)
            if not len(predictors):
                out[rows] = self._sum(codes[rows], unknown[rows])
                continue
            L = self.location.model.n_levels[predictors].astype(np.intp)
            n_states = float(np.prod(L.astype(float)))
            if n_states > MAX_STATES:
                raise DataError(
                    f"The means of numeric predictors depend on {len(predictors)} missing "
                    f"predictors with {n_states:.0e} combinations of levels, but the limit is "
                    f"{MAX_STATES:,}.",
                    argument="newdata",
                    hint="Predict rows with fewer missing values.",
                )
            states = np.column_stack(np.unravel_index(np.arange(int(n_states)), L))
            size = max(1, MAX_CELLS // (len(states) * codes.shape[1]))
            for first in range(0, len(rows), size):
                chunk = rows[first : first + size]
                expanded = np.repeat(codes[chunk], len(states), axis=0)
                expanded[:, predictors] = np.tile(states, (len(chunk), 1))
                still_unknown = np.repeat(unknown[chunk] & ~pattern, len(states), axis=0)
                energies = self._sum(expanded, still_unknown)
                out[chunk] = np.logaddexp.reduce(
                    energies.reshape(len(chunk), len(states), -1), axis=1
                )
        return out

    def _sum(self, codes: np.ndarray, unknown: np.ndarray | None) -> np.ndarray:
        """Return the energies of rows where all partners of known numeric predictors are known,
        shape (n, K).
        """
        model = self.location.model
        levels = nominal_codes(codes, model.is_number, model.n_levels)
        unknown_levels = None if unknown is None else unknown & ~model.is_number
        if unknown_levels is not None and not unknown_levels.any():
            unknown_levels = None
        return self.energy(levels, unknown_levels) + self.location.log_density(codes, unknown)
