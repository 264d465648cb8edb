"""Which predictors tell groups apart: forward selection by score tests in multinomial logistic regression.

K counts groups, m predictors, n rows, D levels of all predictors but the first of each. *Chosen* predictors are those
in the regression already, *candidates* all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.parallel import serial_blas
from bbl.stats.ties import first_largest

__all__ = ["Selection", "select_predictors"]

RIDGE = 0.1  # penalty of coefficients, so that they are finite where rows are separated
SCORE_VARIANCE = 1.0  # added to the variances of scores, so that a level in one or two rows is not significant
INTERCEPT_RIDGE = 1e-6  # penalty of intercepts
ROUNDING = 1e-9  # error of the sum of a row's shares of levels
NEWTON_STEPS = 8
LONGEST_STEP = 3.0  # largest change of a coefficient in a Newton step; longer steps are shortened
TOLERANCE = 1e-4  # a step that changes no coefficient by more is the last
MAX_PAIR_WORK = 5e8  # rows times columns squared up to which pairs are tested
MAX_WEIGHTED = 2**21  # numbers of weighted columns of the design that are multiplied at once
ROWS_PER_PARAMETER = 3.0  # rows that the regression needs for each of its parameters


class Selection(NamedTuple):
    """The predictors that were chosen, in their order.

    Attributes
    ----------
    predictors : tuple of int
    p_value : tuple of float
        The p-value of each when it was chosen, times twice the number of tests (Bonferroni), at most 1.
    """

    predictors: tuple[int, ...]
    p_value: tuple[float, ...]


def select_predictors(
    columns: np.ndarray, start: np.ndarray, y: np.ndarray, weights: np.ndarray, level: float
) -> Selection:
    """Choose predictors one after another, as long as the next one is significant at `level`.

    Each candidate is tested by its score test (Rao 1948) in the regression of the group on the chosen predictors: the
    statistic is ``u' V^-1 u``, u being the gradient by its coefficients at zero, and V the covariance of u given the
    other coefficients. The candidate of least p-value is chosen, if that is below half of `level` divided by the number
    of candidates. When there is none, products of pairs are tested in the same way, with the other half of `level`; the
    products of the chosen pair join the regression, and so do both of its predictors. If no predictor is relevant, the
    probability that any is chosen is at most `level`.

    Parameters
    ----------
    columns : ndarray, shape (n, D)
        Indicators of the levels of all predictors but the first of each; other numbers for missing values.
    start : ndarray of intp, shape (m + 1,)
        Column at which each predictor starts.
    y : ndarray of intp, shape (n,)
        Groups; all K occur.
    weights : ndarray, shape (n,)
        Frequencies of rows.
    level : float
        Significance level of the whole selection.

    Returns
    -------
    Selection

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0, 0], [1, 0], [0, 1], [1, 1]] * 20, dtype=float)
    >>> select_predictors(x, np.array([0, 1, 2]), x[:, 1].astype(int), np.ones(80), 0.05).predictors
    (1,)
    >>> select_predictors(x, np.array([0, 1, 2]), (x.sum(axis=1) == 1).astype(int), np.ones(80), 0.05).predictors
    (0, 1)
    """
    chosen: dict[int, float] = {}
    chosen_pairs: list[tuple[int, ...]] = []
    with serial_blas():  # one thread, so that sums do not depend on the number of threads
        regression = _Regression(columns, y, weights)
        is_varying = [_varies(columns[:, start[i] : start[i + 1]]) for i in range(len(start) - 1)]
        while regression.has_rows_for_more:
            candidates = [i for i in np.flatnonzero(is_varying).tolist() if i not in chosen]
            tested: list[tuple[int, ...]] = [(i,) for i in candidates]
            log_p = regression.score_tests(start, candidates) if candidates else np.empty(0)
            if not _is_significant(log_p, level) and len(y) * columns.shape[1] ** 2 <= MAX_PAIR_WORK:
                pairs = combinations(np.flatnonzero(is_varying).tolist(), 2)
                tested = [pair for pair in pairs if pair not in chosen_pairs]
                log_p = regression.pair_tests(start, tested, chosen) if tested else np.empty(0)
            if not _is_significant(log_p, level):
                break
            best = int(first_largest(-log_p))
            for i in tested[best]:
                if i not in chosen:
                    chosen[i] = float(min(1.0, 2.0 * len(tested) * np.exp(log_p[best])))
                    regression.add(columns[:, start[i] : start[i + 1]])
            if len(tested[best]) > 1:
                chosen_pairs.append(tested[best])
                one, other = (columns[:, start[i] : start[i + 1]] for i in tested[best])
                products = (one[:, :, None] * other[:, None]).reshape(len(y), -1)
                regression.add(
                    products, np.kron(_deviation_metric(one.shape[1] + 1), _deviation_metric(other.shape[1] + 1))
                )
    return Selection(tuple(chosen), tuple(chosen.values()))


def _is_significant(log_p: np.ndarray, level: float) -> bool:
    """Return whether the least of some p-values is below half of `level`, divided by their number."""
    return bool(len(log_p)) and float(log_p.min()) < np.log(0.5 * level / len(log_p))


def _varies(columns: np.ndarray) -> bool:
    """Return whether a predictor has two levels or more in n rows, given the columns (n, q) of all but its first."""
    return bool(len(columns)) and bool((columns.max(axis=0) > columns.min(axis=0)).any())


def _count_seen_levels(columns: np.ndarray) -> int:
    """Return how many levels of a predictor occur, given the columns of all but the first."""
    reference = 1.0 - columns.sum(axis=1)
    return int((columns.max(axis=0, initial=0.0) > 0.0).sum()) + bool(reference.max(initial=0.0) > ROUNDING)


def _deviation_metric(n: int) -> np.ndarray:
    """Return the matrix M (n - 1, n - 1) of ``v' M v = n / (n - 1) sum_k (x_k - mean x)^2``, for ``x = (0, v)``.

    The n values x are coefficients of all levels or groups, the first of which, the reference, has 0. A penalty
    ``v' M v`` does not depend on which of them is the reference. The factor makes the diagonal of M equal to 1.
    """
    return (n * np.eye(n - 1) - 1.0) / (n - 1)


def _log_tails(statistic: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Return the logarithms of the probabilities that chi-square variables exceed `statistic`."""
    from scipy.special import gammaincc
    from scipy.stats import chi2

    tails = gammaincc(df / 2.0, statistic / 2.0)
    has_tail = tails > 0.0  # else it is below the least number
    out = np.log(tails, where=has_tail, out=np.empty(len(tails)))
    if not has_tail.all():
        out[~has_tail] = chi2.logsf(statistic[~has_tail], df[~has_tail])
    return out


def _sum_tables(cells: np.ndarray, level_starts: np.ndarray) -> np.ndarray:
    """Return the sums (m, m) of `cells`, over all pairs of levels, in the table of each pair of predictors."""
    return np.add.reduceat(np.add.reduceat(cells, level_starts, axis=0), level_starts, axis=1)


class _Regression:
    """Multinomial logistic regression with a ridge penalty, whose first group is the reference.

    Coefficients are (p, K - 1), those of the constant first. Matrices over all coefficients run group by group.

    Attributes
    ----------
    K : int
        Number of groups.
    columns : ndarray, shape (n, D)
        Columns of all predictors.
    weights : ndarray, shape (n,)
    has_shares : ndarray of bool, shape (D,)
        Which columns hold other numbers than 0 and 1: shares of levels, for missing values.
    target : ndarray, shape (n, K - 1)
        Indicators of the groups but the first.
    group_metric : ndarray, shape (K - 1, K - 1)
        Metric of penalties over groups (see `_deviation_metric`).
    design : ndarray, shape (n, p)
        The constant, then the columns of chosen predictors and pairs.
    ridge : ndarray, shape (p, p)
        Metric of the penalty over the columns of `design`.
    coefficients : ndarray, shape (p, K - 1)
    probabilities : ndarray, shape (n, K - 1)
        Of the groups but the first.
    """

    def __init__(self, columns: np.ndarray, y: np.ndarray, weights: np.ndarray):
        self.columns, self.weights = columns, weights
        self.has_shares = ((columns != 0.0) & (columns != 1.0)).any(axis=0)
        self.K = int(y.max(initial=0)) + 1
        self.target = (y[:, None] == np.arange(1, self.K)).astype(float)
        self.group_metric = _deviation_metric(self.K)
        self.design, self.ridge = np.ones((len(y), 1)), np.full((1, 1), INTERCEPT_RIDGE)
        self.coefficients = np.zeros((1, self.K - 1))
        self._fit()

    @property
    def has_rows_for_more(self) -> bool:
        """Whether there are enough rows for further parameters."""
        return bool(self.coefficients.size * ROWS_PER_PARAMETER < self.weights.sum())

    def add(self, columns: np.ndarray, metric: np.ndarray | None = None) -> None:
        """Add columns (n, q) to the regression, with the metric (q, q) of their penalty, and fit it again."""
        p, q = len(self.ridge), columns.shape[1]
        ridge = np.zeros((p + q, p + q))
        ridge[:p, :p] = self.ridge
        ridge[p:, p:] = RIDGE * (_deviation_metric(q + 1) if metric is None else metric)
        self.design, self.ridge = np.column_stack([self.design, columns]), ridge
        self.coefficients = np.vstack([self.coefficients, np.zeros((q, self.K - 1))])
        self._fit()

    def score_tests(self, start: np.ndarray, candidates: list[int]) -> np.ndarray:
        """Return the log p-value of the score test of each candidate, given the first columns `start` of predictors.

        ``u = X' w (target - P)`` for the columns X of a candidate. ``V = V_xx - V_xz I^-1 V_zx + s``: V_xx and V_xz are
        covariances of scores, z being the design and I its penalised information, and s is `SCORE_VARIANCE` times the
        metric of levels and groups.
        """
        K1, p = self.K - 1, self.design.shape[1]  # K1 groups but the first
        D = self.columns.shape[1]
        scores = self.columns.T @ (self.weights[:, None] * (self.target - self.probabilities))
        # covariances of the scores of each column with those of the design (D, K1, K1, p), and with itself (K1, K1, D)
        cross, diagonals = np.empty((D, K1, K1, p)), np.empty((K1, K1, D))
        square = self.columns**2
        at_once = max(1, MAX_WEIGHTED // self.design.size)  # groups b for each group a
        for a in range(K1):
            for first in range(0, a + 1, at_once):
                groups = list(range(first, min(first + at_once, a + 1)))
                curvature = np.stack([self._curvature(a, b) for b in groups], axis=1)  # (n, len(groups))
                weighted = (curvature[:, :, None] * self.design[:, None]).reshape(len(curvature), -1)
                cross[:, a, groups] = (self.columns.T @ weighted).reshape(D, len(groups), p)
                cross[:, groups, a] = cross[:, a, groups]
                diagonals[a, groups] = (square.T @ curvature).T
                diagonals[groups, a] = diagonals[a, groups]
        inverse = np.linalg.inv(self._information())
        statistic, df = np.empty(len(candidates)), np.empty(len(candidates))
        for c, i in enumerate(candidates):
            levels = np.arange(start[i], start[i + 1])
            q = len(levels)
            # as all matrices of the class, group by group: row a q + level, column b p + column of the design
            candidate_cross = cross[levels].transpose(1, 0, 2, 3).reshape(K1 * q, K1 * p)
            # covariance of the candidate's scores, less the part that the coefficients of the regression explain
            variance = -candidate_cross @ inverse @ candidate_cross.T
            if self.has_shares[levels].any():
                variance += self._covariance(self.columns[:, levels])
            else:  # no row has two levels: only diagonals, of step q + 1 in the flat array, are added to
                for a in range(K1):
                    for b in range(K1):
                        variance[a * q : (a + 1) * q, b * q : (b + 1) * q].flat[:: q + 1] += diagonals[a, b, levels]
            variance += SCORE_VARIANCE * np.kron(self.group_metric, _deviation_metric(q + 1))
            score = scores[levels].T.ravel()
            statistic[c] = score @ np.linalg.solve(variance, score)
            df[c] = K1 * max(_count_seen_levels(self.columns[:, levels]) - 1, 1)
        return _log_tails(statistic, df)

    def pair_tests(self, start: np.ndarray, pairs: list[tuple[int, ...]], chosen: Iterable[int]) -> np.ndarray:
        """Return the log p-value of the joint levels of each pair, given the `chosen` predictors.

        The statistic is the sum of ``u' V^-1 u`` over the joint levels of a pair, for the score u (K - 1,) of the
        indicator of a joint level and its covariance V. Scores have less variance given the coefficients of the
        regression. That is neglected, so that p-values are rather too large.
        """
        K1 = self.K - 1
        predictor_columns = [self.columns[:, start[i] : start[i + 1]] for i in range(len(start) - 1)]
        # indicators of all levels, the first included
        X = np.column_stack([np.column_stack([1.0 - x.sum(axis=1), x]) for x in predictor_columns])
        level_starts = start[:-1] + np.arange(len(start) - 1)  # each predictor before has one column more in X
        residual = self.weights[:, None] * (self.target - self.probabilities)
        # of the indicator of each joint level of two predictors
        scores, variance = np.empty((X.shape[1], X.shape[1], K1)), np.empty((X.shape[1], X.shape[1], K1, K1))
        for a in range(K1):
            scores[:, :, a] = X.T @ (X * residual[:, [a]])
            for b in range(a + 1):
                variance[:, :, a, b] = variance[:, :, b, a] = X.T @ (X * self._curvature(a, b)[:, None])
        is_seen = variance[..., 0, 0] > 0.0  # joint levels that occur
        variance += SCORE_VARIANCE * self.group_metric
        statistic = (scores * np.linalg.solve(variance, scores[..., None])[..., 0]).sum(axis=2)
        # how many levels of each predictor occur together with a known level of the other one
        n_levels = np.add.reduceat(np.logical_or.reduceat(is_seen, level_starts, axis=1), level_starts, dtype=np.intp)
        # parameters of the joint levels that the regression has: the constant, and for each predictor of the pair that
        # is chosen its levels that occur, less one
        of_chosen = np.where(np.isin(np.arange(len(n_levels)), list(chosen))[:, None], n_levels - 1, 0)
        n_unknown = _sum_tables(is_seen.astype(np.intp), level_starts) - (1 + of_chosen + of_chosen.T)
        i, j = np.array(pairs).T
        return _log_tails(_sum_tables(statistic, level_starts)[i, j], K1 * np.maximum(n_unknown[i, j], 1))

    def _curvature(self, a: int, b: int) -> np.ndarray:
        """Return the second derivative (n,) of each row's loss by the class scores of groups 1 + a and 1 + b.

        It is ``w P_a ([a = b] - P_b)``; class scores are the linear predictors ``design @ coefficients``.
        """
        P = self.probabilities
        return self.weights * (P[:, a] * (a == b) - P[:, a] * P[:, b])

    def _information(self) -> np.ndarray:
        """Return the penalised information of all coefficients."""
        return self._covariance(self.design) + np.kron(self.group_metric, self.ridge)

    def _covariance(self, columns: np.ndarray) -> np.ndarray:
        """Return the covariance (K1 p, K1 p) of the scores of columns (n, p) in K1 = K - 1 groups, group by group."""
        K1, p = self.K - 1, columns.shape[1]
        out = np.empty((K1 * p, K1 * p))
        for a in range(K1):
            for b in range(a + 1):
                block = columns.T @ (columns * self._curvature(a, b)[:, None])
                out[a * p : (a + 1) * p, b * p : (b + 1) * p] = block
                out[b * p : (b + 1) * p, a * p : (a + 1) * p] = block
        return out

    def _fit(self) -> None:
        """Find the largest penalised likelihood by Newton's method from the present coefficients."""
        for _ in range(NEWTON_STEPS):
            self._predict()
            residual = self.weights[:, None] * (self.target - self.probabilities)
            gradient = self.design.T @ residual - self.ridge @ self.coefficients @ self.group_metric
            # gradient and step (p, K - 1) are flattened group by group, as the information is
            step = np.linalg.solve(self._information(), gradient.T.ravel()).reshape(self.K - 1, -1).T
            longest = float(np.abs(step).max())
            self.coefficients += step * min(1.0, LONGEST_STEP / longest if longest else 1.0)
            if longest < TOLERANCE:
                break
        self._predict()

    def _predict(self) -> None:
        """Set the probabilities (n, K - 1) of the groups but the first: ``exp(s_g) / (1 + sum_g exp(s_g))``."""
        scores = self.design @ self.coefficients
        highest = np.maximum(scores.max(axis=1, initial=0.0), 0.0)[:, None]
        odds = np.exp(scores - highest)
        self.probabilities = odds / (odds.sum(axis=1, keepdims=True) + np.exp(-highest))
