"""Forward selection of predictors by score tests in a multinomial logistic regression.

K, m and n are the numbers of groups, predictors and rows; D is the number of non-reference levels
of all predictors. A *cell* is a set of rows with the same levels of all selected predictors.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl._ext.model.joint_levels import joint_sums
from bbl.parallel import serial_blas
from bbl.stats.metrics import first_largest

__all__ = ["Selection", "select_predictors"]

RIDGE = 0.1  # penalty of coefficients, which keeps them finite if rows are separated
# added to the variances of scores, so that a level with one or two rows is not significant
SCORE_VARIANCE = 1.0
INTERCEPT_RIDGE = 1e-6  # penalty of intercepts
ROUNDING = 1e-9  # rounding error of the sum of a row's level proportions
NEWTON_STEPS = 30
SLOW = 0.3  # a step longer than this proportion of the previous one recomputes the information
LONGEST_STEP = 3.0  # largest change of a coefficient in a Newton step; longer steps are shortened
TOLERANCE = 1e-6  # stop after a step that changes no coefficient by more than this
# pairs are tested only up to this amount of work, rows times columns squared, and this number of
# sums of joint levels (160 MB): for each pair of columns, K - 1 scores and K (K - 1) / 2 variances
MAX_PAIR_WORK = 5e8
MAX_PAIR_SUMS = 2e7
# maximum number of weighted columns, or of variances of candidates, computed at once
MAX_NUMBERS = 2**21
TAIL_TERMS = 100  # terms of the continued fraction for tail probabilities
ROWS_PER_PARAMETER = 3.0  # rows required per parameter of the regression


class Selection(NamedTuple):
    """The selected predictors, in the order of selection.

    Attributes
    ----------
    predictors : tuple of int
    p_value : tuple of float
        P-value of each predictor at selection, multiplied by twice the number of tests
        (Bonferroni); at most 1.
    """

    predictors: tuple[int, ...]
    p_value: tuple[float, ...]


def select_predictors(
    columns: np.ndarray, start: np.ndarray, y: np.ndarray, weights: np.ndarray, level: float
) -> Selection:
    """Select predictors one at a time as long as the next predictor is significant at `level`.

    Each candidate is tested by a score test (Rao 1948) in the regression of the group on the
    selected predictors. The statistic is ``u' V^-1 u``, where u is the gradient with respect to the
    candidate's coefficients at zero, and V is the covariance of u given the other coefficients. The
    candidate with the smallest p-value is selected if this p-value is below half of `level` divided
    by the number of candidates. Otherwise, products of pairs are tested in the same way, with the
    other half of `level`. If a pair is selected, its products and both of its predictors are added
    to the regression. If none of the predictors is relevant, the probability of selecting any of
    them is at most `level`.

    Parameters
    ----------
    columns : ndarray, shape (n, D)
        Indicators of the non-reference levels of all predictors; for missing values, level
        proportions.
    start : ndarray of intp, shape (m + 1,)
        First column of each predictor.
    y : ndarray of intp, shape (n,)
        Group of each row; all K groups must occur.
    weights : ndarray, shape (n,)
        Row frequencies.
    level : float
        Significance level of the entire selection.

    Returns
    -------
    Selection

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0, 0], [1, 0], [0, 1], [1, 1]] * 20, dtype=float)
    >>> select_predictors(x, np.array([0, 1, 2]), x[:, 1].astype(int), np.ones(80), 0.05).predictors
    (1,)
    >>> select_predictors(
    ...     x, np.array([0, 1, 2]), (x.sum(axis=1) == 1).astype(int), np.ones(80), 0.05
    ... ).predictors
    (0, 1)
    """
    chosen: dict[int, float] = {}
    chosen_pairs: list[tuple[int, ...]] = []
    with serial_blas():  # one thread, so that sums do not depend on the number of threads
        regression = _Regression(columns, start, y, weights)
        varying = regression.varying.tolist()
        K1 = regression.K - 1
        column_pairs = columns.shape[1] ** 2
        can_test_pairs = (
            len(y) * column_pairs <= MAX_PAIR_WORK
            and column_pairs * K1 * (K1 + 3) / 2 <= MAX_PAIR_SUMS
        )
        while regression.has_rows_for_more:
            candidates = [i for i in varying if i not in chosen]
            tested: list[tuple[int, ...]] = [(i,) for i in candidates]
            log_p = regression.score_tests(candidates) if candidates else np.empty(0)
            if can_test_pairs and not _is_significant(log_p, level):
                pairs = combinations(varying, 2)
                tested = [pair for pair in pairs if pair not in chosen_pairs]
                log_p = regression.pair_tests(tested, chosen) if tested else np.empty(0)
            if not _is_significant(log_p, level):
                break
            best = int(first_largest(-log_p))
            # centred over levels: the penalised coefficients of the constant and of single
            # predictors are means over the levels of the (other) chosen predictors, whatever the
            # reference levels
            centred = [
                columns[:, start[i] : start[i + 1]] - 1.0 / (start[i + 1] - start[i] + 1.0)
                for i in tested[best]
            ]
            for i, own in zip(tested[best], centred, strict=True):
                if i not in chosen:
                    chosen[i] = float(min(1.0, 2.0 * len(tested) * np.exp(log_p[best])))
                    regression.add(own)
            if len(centred) > 1:
                chosen_pairs.append(tested[best])
                one, other = centred
                products = (one[:, :, None] * other[:, None]).reshape(len(y), -1)
                regression.add(
                    products,
                    np.kron(
                        _deviation_metric(one.shape[1] + 1), _deviation_metric(other.shape[1] + 1)
                    ),
                )
    return Selection(tuple(chosen), tuple(chosen.values()))


def _is_significant(log_p: np.ndarray, level: float) -> bool:
    """Return whether the smallest of n p-values is below half of `level` divided by n."""
    return bool(len(log_p)) and float(log_p.min()) < np.log(0.5 * level / len(log_p))


def _deviation_metric(n: int) -> np.ndarray:
    """Return the matrix M (n - 1, n - 1) of a penalty on deviations from the mean.

    ``v' M v = n / (n - 1) sum_k (x_k - mean x)^2`` for ``x = (0, v)``, where x contains the n
    coefficients of all levels or groups, with 0 for the reference. The penalty ``v' M v`` does not
    depend on the choice of the reference. With the factor ``n / (n - 1)``, the diagonal of M equals
    1.
    """
    return (n * np.eye(n - 1) - 1.0) / (n - 1)


def _log_tails(statistic: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Return the log-probabilities that chi-square variables exceed `statistic`.

    Probabilities that are too small for floats are computed from the continued fraction of the
    incomplete gamma function, ``exp(-x) x^a / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) /
    ...))`` (Abramowitz & Stegun 1964, eq. 6.5.31, contracted).
    """
    from scipy.special import gammaincc, gammaln

    a = df / 2.0
    x = np.maximum(statistic, 0.0) / 2.0  # with large weights, rounding may make it negative
    tails = gammaincc(a, x)
    has_tail = tails > 0.0
    out = np.log(tails, where=has_tail, out=np.empty(len(tails)))
    a = a[~has_tail]
    x = x[~has_tail]
    denominator = x + 2.0 * TAIL_TERMS + 1.0 - a
    for k in range(TAIL_TERMS, 0, -1):
        denominator = x + 2.0 * k - 1.0 - a - k * (k - a) / denominator
    out[~has_tail] = a * np.log(x) - x - gammaln(a) - np.log(denominator)
    return out


def _curvature(P: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the second derivatives (n, f) of losses with respect to the scores of groups a and b
    (f,).

    They are ``P_a ([a = b] - P_b)`` for probabilities P (n, K - 1).
    """
    return P[:, a] * ((a == b) - P[:, b])


def _sum_tables(cells: np.ndarray, level_starts: np.ndarray) -> np.ndarray:
    """Sum `cells` over all pairs of levels, for each pair of predictors (m, m)."""
    return np.add.reduceat(np.add.reduceat(cells, level_starts, axis=0), level_starts, axis=1)


class _Regression:
    """Multinomial logistic regression with a ridge penalty; the first group is the reference.

    Rows with identical design are merged into R cells, and the likelihood is computed from sums
    over cells. Coefficients have shape (p, K - 1); the first row is the constant. Matrices over all
    coefficients are ordered by group.

    Attributes
    ----------
    K : int
        Number of groups.
    columns : ndarray, shape (n, D)
        Columns of all predictors.
    start : ndarray of intp, shape (m + 1,)
        First column of each predictor.
    weights : ndarray, shape (n,)
    has_shares : ndarray of bool, shape (D,)
        Columns with values other than 0 and 1, i.e. level proportions for missing values.
    first_levels : ndarray, shape (n, m)
        Indicators, or proportions, of each predictor's first level.
    varying : ndarray of intp
        Predictors that are not constant.
    n_seen : ndarray, shape (m,)
        Number of levels of each predictor that occur.
    target : ndarray, shape (n, K - 1)
        Indicators of all groups except the first.
    group_metric : ndarray, shape (K - 1, K - 1)
        Penalty metric over groups (see `_deviation_metric`).
    ridge : ndarray, shape (p, p)
        Penalty metric over the columns of `design`.
    coefficients : ndarray, shape (p, K - 1)
    cell : ndarray of intp, shape (n,)
        The cell of each row.
    design : ndarray, shape (R, p)
        The constant, followed by the columns of selected predictors and pairs, for each cell.
    cell_weights : ndarray, shape (R,)
    cell_targets : ndarray, shape (R, K - 1)
        Weights of all groups except the first in each cell.
    column_weights : ndarray, shape (R, D)
        Sums of ``weights * columns`` over the rows of each cell.
    probabilities : ndarray, shape (R, K - 1)
        Probabilities of all groups except the first in each cell.
    unshrunk : ndarray, shape (R, K - 1)
        `probabilities` without the bias of the penalty: after one Newton step from `coefficients`
        towards the unpenalised estimates, to first order in the step.
    explaining : ndarray, shape (p (K - 1), p (K - 1))
        ``I^-1 (I + S) I^-1`` for the penalised information I and the penalty S.
    """

    def __init__(self, columns: np.ndarray, start: np.ndarray, y: np.ndarray, weights: np.ndarray):
        self.columns = columns
        self.start = start
        self.weights = weights
        self.has_shares = ((columns != 0.0) & (columns != 1.0)).any(axis=0)
        # (D, m): the predictor of each column
        is_of = np.repeat(np.eye(len(start) - 1), np.diff(start), axis=0)
        self.first_levels = 1.0 - columns @ is_of
        highest = columns.max(axis=0, initial=0.0)
        lowest = columns.min(axis=0, initial=1.0)
        self.varying = np.flatnonzero((highest > lowest) @ is_of)
        self.n_seen = (highest > 0.0) @ is_of + (
            self.first_levels.max(axis=0, initial=0.0) > ROUNDING
        )
        self.K = int(y.max(initial=0)) + 1
        self.target = (y[:, None] == np.arange(1, self.K)).astype(float)
        self.group_metric = _deviation_metric(self.K)
        self.ridge, self.coefficients = np.full((1, 1), INTERCEPT_RIDGE), np.zeros((1, self.K - 1))
        self.cell = np.zeros(len(y), dtype=np.intp)
        self.design = np.ones((1, 1))
        self._fit()

    @property
    def has_rows_for_more(self) -> bool:
        """Whether the number of rows is sufficient for additional parameters."""
        return bool(self.coefficients.size * ROWS_PER_PARAMETER < self.weights.sum())

    def add(self, columns: np.ndarray, metric: np.ndarray | None = None) -> None:
        """Add columns (n, q) with a penalty metric (q, q) to the regression and refit it."""
        p = len(self.ridge)
        q = columns.shape[1]
        ridge = np.zeros((p + q, p + q))
        ridge[:p, :p] = self.ridge
        ridge[p:, p:] = RIDGE * (_deviation_metric(q + 1) if metric is None else metric)
        self.ridge, self.coefficients = (
            ridge,
            np.vstack([self.coefficients, np.zeros((q, self.K - 1))]),
        )
        # split cells by the values of the columns; first_row (R,) is one row of each cell
        values = np.column_stack([self.cell, columns])
        _, first_row, cell = np.unique(values, axis=0, return_index=True, return_inverse=True)
        self.design = np.column_stack([self.design[self.cell[first_row]], columns[first_row]])
        self.cell = cell.ravel()
        self._fit()

    def score_tests(self, candidates: list[int]) -> np.ndarray:
        """Return the log p-value of the score test of each candidate.

        For a candidate's columns X, ``u = X' w (target - P)`` for the probabilities P in
        `unshrunk`. This is the efficient score ``u_x - V_xz I^-1 u_z`` (Neyman 1959), where u_x and
        u_z are scores at the penalised estimates, V_xz is their covariance, and z is the design
        with penalised information I. So candidates that are functions of z do not become
        significant through the bias of the penalty. With the penalty S, ``V = V_xx - V_xz I^-1 (I +
        S) I^-1 V_zx + s``, where s is `SCORE_VARIANCE` times the metric over levels and groups.
        """
        # K1: number of groups minus 1
        K1 = self.K - 1
        p = self.design.shape[1]
        scores = (
            self.columns.T @ (self.weights[:, None] * self.target)
            - self.column_weights.T @ self.unshrunk
        )
        # covariances between the scores of each column and of the design
        cross = self._covariances(self.column_weights, self.design, self.probabilities).reshape(
            -1, K1, K1 * p
        )
        chosen_from = np.array(candidates, dtype=np.intp)
        n_columns = np.diff(self.start)[chosen_from]
        statistic = np.empty(len(candidates))
        # test candidates with the same number of levels at once
        for q in np.unique(n_columns).tolist():
            same_size = np.flatnonzero(n_columns == q)
            at_once = max(1, MAX_NUMBERS // (q * K1 * K1 * max(p, q)))
            for first in range(0, len(same_size), at_once):
                tested = same_size[first : first + at_once]
                # (c, q): columns of the c candidates
                levels = self.start[chosen_from[tested]][:, None] + np.arange(q)
                statistic[tested] = self._score_statistics(scores[levels], cross[levels], levels)
        return _log_tails(statistic, K1 * np.maximum(self.n_seen[chosen_from] - 1, 1))

    def _score_statistics(
        self, scores: np.ndarray, cross: np.ndarray, levels: np.ndarray
    ) -> np.ndarray:
        """Return ``u' V^-1 u`` (c,) for candidates with columns `levels` (c, q).

        `scores` (c, q, K1) and `cross` (c, q, K1, K1 p) are computed from the columns (see
        `score_tests`).
        """
        c, q, K1 = scores.shape
        # order scores and variances by level instead of by group
        flat_cross = cross.reshape(c, q * K1, -1)
        # covariance of the candidates' scores, minus the part explained by the coefficients in the
        # regression
        variance = -(flat_cross @ self.explaining) @ flat_cross.swapaxes(1, 2)
        variance += SCORE_VARIANCE * np.kron(_deviation_metric(q + 1), self.group_metric)
        each = np.arange(q)
        has_shares = self.has_shares[levels].any(axis=1)
        # the variances of a 0/1 column are its covariances with the constant, the first column of
        # the design
        own = cross.reshape(c, q, K1, K1, -1)[..., 0] * ~has_shares[:, None, None, None]
        # levels without proportions are mutually exclusive
        variance.reshape(c, q, K1, q, K1)[:, each, :, each] += own.swapaxes(0, 1)
        for candidate in np.flatnonzero(has_shares):
            X = self.columns[:, levels[candidate]]
            own = self._covariances(self.weights[:, None] * X, X, self.probabilities[self.cell])
            variance[candidate] += own.swapaxes(2, 3).reshape(q * K1, q * K1)
        u = scores.reshape(c, -1)
        return (u * np.linalg.solve(variance, u[..., None])[..., 0]).sum(axis=1)

    def pair_tests(self, pairs: list[tuple[int, ...]], chosen: Iterable[int]) -> np.ndarray:
        """Return the log p-value for the joint levels of each pair, given the `chosen` (selected)
        predictors.

        The statistic is the sum of ``u' V^-1 u`` over the joint levels of a pair, where u (K - 1,)
        is the score of a joint level's indicator and V is its covariance. V does not account for
        the reduction in variance due to the estimated coefficients, so p-values tend to be too
        large.
        """
        K1 = self.K - 1
        # indicators of all levels
        X = np.insert(self.columns, self.start[:-1], self.first_levels, axis=1)
        # each predictor has one column more than in X
        level_starts = self.start[:-1] + np.arange(len(self.start) - 1)
        P = self.probabilities[self.cell]
        (a, b) = np.tril_indices(K1)
        sums = joint_sums(
            X,
            self.weights[:, None]
            * np.column_stack([self.target - self.unshrunk[self.cell], _curvature(P, a, b)]),
        )
        is_seen = sums[:, :, K1] > 0.0  # joint levels that occur
        cells = np.flatnonzero(is_seen)
        # position of each pair of groups among the sums
        position = np.empty((K1, K1), dtype=np.intp)
        position[a, b] = position[b, a] = np.arange(K1, sums.shape[2])
        cell_sums = sums.reshape(-1, sums.shape[2]).take(cells, axis=0)
        del sums
        scores = cell_sums[:, :K1]
        variance = cell_sums.take(position.ravel(), axis=1).reshape(-1, K1, K1)
        variance += SCORE_VARIANCE * self.group_metric
        statistic = np.zeros(is_seen.shape)
        statistic.ravel()[cells] = (
            scores * np.linalg.solve(variance, scores[..., None])[..., 0]
        ).sum(axis=1)
        is_seen |= is_seen.T
        # number of levels of each predictor that occur together with a known level of the other one
        n_levels = np.add.reduceat(
            np.logical_or.reduceat(is_seen, level_starts, axis=1), level_starts, dtype=np.intp
        )
        # parameters for joint levels already in the regression: the constant, and for each chosen
        # predictor of the pair the number of its levels that occur, minus one
        of_chosen = np.where(
            np.isin(np.arange(len(n_levels)), list(chosen))[:, None], n_levels - 1, 0
        )
        n_unknown = _sum_tables(is_seen.astype(np.intp), level_starts) - (
            1 + of_chosen + of_chosen.T
        )
        i, j = np.array(pairs).T
        return _log_tails(
            _sum_tables(statistic, level_starts)[i, j], K1 * np.maximum(n_unknown[i, j], 1)
        )

    def _information(self) -> np.ndarray:
        """Return the penalised information of all coefficients."""
        K1 = self.K - 1
        p = self.design.shape[1]
        covariances = self._covariances(
            self.cell_weights[:, None] * self.design, self.design, self.probabilities
        )
        return covariances.swapaxes(0, 1).reshape(K1 * p, K1 * p) + self._penalty()

    def _penalty(self) -> np.ndarray:
        """Return the second derivatives of the penalty with respect to all coefficients."""
        return np.kron(self.group_metric, self.ridge)

    def _residual(self) -> np.ndarray:
        """Return the weights (R, K - 1) of groups in each cell, minus their expectations."""
        return self.cell_targets - self.cell_weights[:, None] * self.probabilities

    def _covariances(self, weighted: np.ndarray, columns: np.ndarray, P: np.ndarray) -> np.ndarray:
        """Return the covariances (d, K - 1, K - 1, p) of the scores of two sets of columns.

        There is one covariance for each pair of groups other than the first group. `weighted`
        (r, d) is the first set multiplied by the weights of rows (or cells), and `columns` (r, p)
        is the second set. P (r, K - 1) contains probabilities.
        """
        K1 = self.K - 1
        (r, p) = columns.shape
        out = np.empty((weighted.shape[1], K1, K1, p))
        group, other = np.tril_indices(K1)
        at_once = max(1, MAX_NUMBERS // columns.size)  # number of group pairs
        for first in range(0, len(group), at_once):
            a = group[first : first + at_once]
            b = other[first : first + at_once]
            curvature = _curvature(P, a, b)
            products = weighted.T @ (curvature[:, :, None] * columns[:, None]).reshape(r, -1)
            out[:, a, b] = out[:, b, a] = products.reshape(-1, len(a), p)
        return out

    def _fit(self) -> None:
        """Sum the rows in each cell, and maximise the penalised likelihood by Newton's method.

        The iteration starts from the current coefficients. Computing the information matrix takes
        much longer than computing the gradient, so it is reused as long as steps become much
        shorter.
        """
        from scipy.linalg import cho_factor, cho_solve
        from scipy.sparse import csr_array

        # row r has the weights of the rows in cell r
        to_cells = csr_array(
            (self.weights, (self.cell, np.arange(len(self.cell)))),
            (len(self.design), len(self.cell)),
        )
        self.cell_weights = to_cells @ np.ones(len(self.cell))
        self.cell_targets = to_cells @ self.target
        self.column_weights = to_cells @ self.columns
        factor = None
        longest = np.inf
        for _ in range(NEWTON_STEPS):
            self._predict()
            gradient = self.design.T @ self._residual()
            gradient -= self.ridge @ self.coefficients @ self.group_metric
            # gradient and step (p, K - 1) are flattened by group, like the information
            longest_before = longest
            flat_gradient = gradient.T.ravel()
            if factor is not None:
                step = cho_solve(factor, flat_gradient)
                longest = float(np.abs(step).max())
            # the information is too far off
            if factor is None or not longest < SLOW * longest_before:
                factor = cho_factor(self._information())
                step = cho_solve(factor, flat_gradient)
                longest = float(np.abs(step).max())
            self.coefficients += step.reshape(self.K - 1, -1).T * min(
                1.0, LONGEST_STEP / max(longest, LONGEST_STEP)
            )
            if longest < TOLERANCE:
                break
        self._predict()
        inverse = np.linalg.inv(self._information())
        self.explaining = inverse + inverse @ self._penalty() @ inverse
        step = inverse @ (self.design.T @ self._residual()).T.ravel()
        change = self.design @ step.reshape(self.K - 1, -1).T
        P = self.probabilities
        self.unshrunk = P + P * (change - (P * change).sum(axis=1, keepdims=True))

    def _predict(self) -> None:
        """Set the probabilities (R, K - 1) of all groups except the first, given scores s.

        They are ``exp(s_g) / (1 + sum_g exp(s_g))``.
        """
        scores = self.design @ self.coefficients
        highest = np.maximum(scores.max(axis=1, initial=0.0), 0.0)[:, None]
        odds = np.exp(scores - highest)
        self.probabilities = odds / (odds.sum(axis=1, keepdims=True) + np.exp(-highest))
