"""Selection of predictors by score tests, against derivatives of the penalised likelihood and on
known networks.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr
from scipy.stats import chi2

import bbl.stats.relevance as relevance
from bbl._ext.model.joint_levels import joint_sums
from bbl.stats.relevance import RIDGE, SCORE_VARIANCE, select_predictors
from tests.reference import logsumexp


def indicators(codes, L):
    """Return the indicators of all levels but the first of each predictor, and where each predictor
    starts.
    """
    columns = [(codes[:, i, None] == np.arange(1, L[i])).astype(float) for i in range(len(L))]
    return np.hstack(columns), np.cumsum([0, *(n - 1 for n in L)])


def penalised_loss(flat, Z, y, w, K, free):
    """Return minus the log-likelihood of a multinomial logistic regression plus the ridge penalty
    of slopes.
    """
    B = flat.reshape(K - 1, -1)
    scores = np.column_stack([np.zeros(len(Z)), Z @ B.T])
    # squared deviations from the means over groups and levels, of which the first is 0
    padded = np.vstack([np.zeros(Z.shape[1]), B])
    padded = padded - padded.mean(axis=0)
    slopes = np.column_stack([np.zeros(K), padded[:, 1:]])
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    squares = K / (K - 1) * (1e-6 * (padded[:, 0] ** 2).sum() + RIDGE * (slopes**2).sum() * free)
    return -(w @ (scores[np.arange(len(y)), y] - logsumexp(scores))) + 0.5 * float(squares)


def derivatives(f, x, step=1e-4):
    """Return the gradient and the Hessian of a function by central differences."""
    n, E = len(x), np.eye(len(x)) * step
    gradient = np.array([(f(x + e) - f(x - e)) / (2 * step) for e in E])
    hessian = np.array(
        [
            [(f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * step**2) for b in E]
            for a in E
        ]
    )
    return gradient.reshape(n), hessian


def first_p_value(X, start, y, w, K, df=None):
    """Return the p-value of the first choice, by numerical derivatives at the fit without any
    predictor.
    """
    out = []
    for i in range(len(start) - 1):
        Z = np.column_stack([np.ones(len(X)), X[:, start[i] : start[i + 1]]])
        p, constant = Z.shape[1], np.arange(K - 1) * Z.shape[1]
        only = np.ones((len(X), 1))
        best = minimize(penalised_loss, np.zeros(K - 1), (only, y, w, K, False), tol=1e-12).x
        at = np.zeros((K - 1) * p)
        at[constant] = best
        gradient, hessian = derivatives(lambda b, Z=Z: penalised_loss(b, Z, y, w, K, False), at)
        slopes = np.setdiff1d(np.arange(len(at)), constant)
        across = hessian[np.ix_(slopes, constant)]
        variance = hessian[np.ix_(slopes, slopes)] - across @ np.linalg.solve(
            hessian[np.ix_(constant, constant)], across.T
        )
        group, level = ((n * np.eye(n - 1) - 1.0) / (n - 1) for n in (K, p))
        variance += SCORE_VARIANCE * np.kron(group, level)
        statistic = gradient[slopes] @ np.linalg.solve(variance, gradient[slopes])
        out.append(chi2.sf(statistic, len(slopes) if df is None else df))
    return np.array(out)


@pytest.mark.parametrize("K", [2, 3])
def test_first_choice_has_the_p_value_of_the_score_test(K):
    rng = np.random.default_rng(K)
    L = [2, 3, 2]
    codes = np.column_stack([rng.integers(0, n, 60) for n in L])
    y, w = (codes[:, 1] + (rng.random(60) < 0.4)) % K, rng.integers(1, 4, 60).astype(float)
    X, start = indicators(codes, L)
    p = first_p_value(X, start, y, w, K)
    chosen = select_predictors(X, start, y, w, 0.999)
    assert chosen.predictors[0] == p.argmin()
    assert chosen.p_value[0] == pytest.approx(min(1.0, 6 * p.min()), rel=1e-3)


@pytest.mark.parametrize("level", [0, 1])
def test_a_constant_predictor_is_not_tested_whatever_its_level(level):
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 2, 60), rng.integers(1, 4, 60).astype(float)
    y = np.where(rng.random(60) < 0.6, x, rng.integers(0, 2, 60))
    X, start = indicators(np.column_stack([x, np.full(60, level)]), [2, 2])
    chosen = select_predictors(X, start, y, w, 0.05)
    assert chosen.predictors == (0,)
    expected = 2 * first_p_value(X[:, :1], start[:2], y, w, 2)[0]  # one test
    assert chosen.p_value[0] == pytest.approx(expected, rel=1e-3)


def test_blanket_of_a_chain_is_chosen_and_its_far_end_is_not():
    rng = np.random.default_rng(0)
    near = rng.integers(0, 3, 2000)
    # tells of the group through `near` alone
    far = np.where(rng.random(2000) < 0.8, near, rng.integers(0, 3, 2000))
    y = np.where(rng.random(2000) < 0.6, near, rng.integers(0, 3, 2000))
    X, start = indicators(np.column_stack([far, near, rng.integers(0, 2, 2000)]), [3, 3, 2])
    assert select_predictors(X, start, y, np.ones(2000), 0.05).predictors == (1,)


def test_first_of_equal_predictors_is_chosen_and_the_other_adds_nothing():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 2, (2, 300))
    y = np.where(rng.random(300) < 0.7, x, y)
    X, start = indicators(np.column_stack([x, 1 - x, x]), [2, 2, 2])
    assert select_predictors(X, start, y, np.ones(300), 0.05).predictors == (0,)


@pytest.mark.parametrize("weight", [200.0, 2e9])
def test_predictors_equal_to_a_chosen_one_that_separates_the_groups_add_nothing(weight):
    # three rows whose levels and groups are permutations of one another
    codes = np.array([[2, 0, 1], [1, 1, 2], [0, 2, 0]])
    X, start = indicators(codes, [3, 3, 3])
    for y in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        chosen = select_predictors(X, start, np.array(y), np.full(3, weight), 0.5)
        assert chosen.predictors == (0,)


def test_pair_without_effects_of_its_own_is_chosen():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 3, (500, 8))
    y = np.where(rng.random(500) < 0.6, (codes[:, 2] + codes[:, 6]) % 3, rng.integers(0, 3, 500))
    X, start = indicators(codes, [3] * 8)
    assert select_predictors(X, start, y, np.ones(500), 0.05).predictors == (2, 6)


def test_groups_and_candidates_are_taken_together_as_far_as_memory_goes(monkeypatch):
    rng = np.random.default_rng(5)
    codes, L = rng.integers(0, 3, (300, 4)), [3] * 4
    y = np.where(rng.random(300) < 0.5, codes[:, 0] + codes[:, 1], rng.integers(0, 5, 300))
    columns, start = indicators(codes, L)
    together = select_predictors(columns, start, y, np.ones(300), 0.05)
    # pairs of groups at once at first, then one; one candidate
    monkeypatch.setattr(relevance, "MAX_NUMBERS", 100)
    assert len(together.predictors) > 1 and select_predictors(
        columns, start, y, np.ones(300), 0.05
    ) == (
        together.predictors,
        pytest.approx(together.p_value, rel=1e-9),
    )


def table_with_shares(rng, L, n):
    """Return columns of n rows with shares in place of missing values of the first predictor, and
    their starts.
    """
    X, start = indicators(np.column_stack([rng.integers(0, k, n) for k in L]), L)
    X[rng.random(n) < 0.2, : L[0] - 1] = 1.0 / L[0]
    return X, start


def regression_on(X, start, y, w, chosen):
    """Return a regression on some predictors, the probabilities (n, K - 1) by the rows, and the
    design (n, p).
    """
    regression, columns = (
        relevance._Regression(X, start, y, w),
        [X[:, start[i] : start[i + 1]] for i in chosen],
    )
    for added in columns:
        regression.add(added)
    Z = np.hstack([np.ones((len(y), 1)), *columns])
    odds = np.exp(Z @ regression.coefficients)
    return regression, odds / (1.0 + odds.sum(axis=1, keepdims=True)), Z


def curvature_of(P, w):
    """Return the second derivatives (n, K - 1, K - 1) of rows' losses by their class scores."""
    return w[:, None, None] * (P[:, :, None] * np.eye(P.shape[1]) - P[:, :, None] * P[:, None])


def metric(n):
    """Return the metric of penalties over n levels or groups but the first."""
    return (n * np.eye(n - 1) - 1.0) / (n - 1)


def information_of(Z, C, ridge):
    """Return the information of coefficients (K - 1, p) with and without the ridge penalty."""
    g, p = C.shape[1], Z.shape[1]
    information = np.einsum("kab,ki,kj->aibj", C, Z, Z).reshape(g * p, -1)
    return information + np.kron(metric(g + 1), ridge), information


def test_scores_given_chosen_predictors_are_tested_as_by_sums_over_rows():
    rng = np.random.default_rng(11)
    X, start = table_with_shares(rng, [3, 2, 4, 2], 200)
    y, w = (X[:, 2] + rng.integers(0, 2, 200)).astype(int), rng.integers(1, 4, 200).astype(float)
    regression, P, Z = regression_on(X, start, y, w, [1, 2])
    C, g, p = curvature_of(P, w), y.max(), Z.shape[1]  # g groups but the first
    ridge = np.zeros((p, p))
    ridge[0, 0], ridge[1:2, 1:2], ridge[2:, 2:] = 1e-6, RIDGE * metric(2), RIDGE * metric(4)
    penalised, information = information_of(Z, C, ridge)
    residual = w[:, None] * ((y[:, None] == np.arange(1, g + 1)) - P)
    gradient = Z.T @ residual - ridge @ regression.coefficients @ metric(g + 1)
    assert np.abs(gradient).max() < 1e-3
    for i, log_p in zip([0, 3], regression.score_tests([0, 3]), strict=True):
        x = X[:, start[i] : start[i + 1]]
        q = x.shape[1]
        across = np.einsum("kab,ki,kj->aibj", C, x, Z).reshape(g * q, -1)
        variance = np.einsum("kab,ki,kj->aibj", C, x, x).reshape(g * q, -1)
        # the score of x minus its regression on the scores of Z, and its variance
        slopes = np.linalg.solve(penalised, across.T).T
        u = (x.T @ residual).T.ravel() - slopes @ (Z.T @ residual).T.ravel()
        variance += slopes @ information @ slopes.T - slopes @ across.T - across @ slopes.T
        variance += SCORE_VARIANCE * np.kron(metric(g + 1), metric(q + 1))
        statistic = u @ np.linalg.solve(variance, u)
        assert log_p == pytest.approx(chi2.logsf(statistic, g * q), rel=1e-9)


def test_pairs_are_tested_as_by_sums_over_the_rows_of_joint_levels():
    rng = np.random.default_rng(12)
    L = [3, 2, 3]
    X, start = table_with_shares(rng, L, 150)
    y, w = rng.integers(0, 3, 150), rng.integers(1, 4, 150).astype(float)
    X[:, start[2] + 1] = 0.0  # the last level of predictor 2 never occurs
    regression, P, Z = regression_on(X, start, y, w, [1])
    C = curvature_of(P, w)
    penalised, _ = information_of(Z, C, np.diag([1e-6, RIDGE]))
    residual = w[:, None] * ((y[:, None] == [1, 2]) - P)
    step = np.linalg.solve(penalised, (Z.T @ residual).T.ravel()).reshape(2, -1)
    residual -= np.einsum("kab,kb->ka", C, Z @ step.T)
    levels = [np.column_stack([1.0 - x.sum(axis=1), x]) for x in np.split(X, start[1:-1], axis=1)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    for (i, j), log_p in zip(pairs, regression.pair_tests(pairs, [1]), strict=True):
        statistic, n_cells = 0.0, 0
        for one in levels[i].T:
            for other in levels[j].T:
                u = (one * other) @ residual
                V = np.tensordot(one * other, C, 1) + SCORE_VARIANCE * metric(3)
                statistic, n_cells = (
                    statistic + u @ np.linalg.solve(V, u),
                    n_cells + (one * other).any(),
                )
        known = 1 + (1 in (i, j))  # the constant, and the second level of predictor 1
        assert log_p == pytest.approx(chi2.logsf(statistic, 2 * (n_cells - known)), rel=1e-9)


@pytest.mark.parametrize("F", [1, 5])
def test_joint_sums_are_weighted_products_of_columns(F):
    rng = np.random.default_rng(F)
    X, values = rng.choice([0.0, 1.0, 0.4], (50, 6)), rng.normal(size=(50, F))
    expected = np.einsum("kc,kd,kf->cdf", X, X, values) * np.triu(np.ones((6, 6)), 1)[:, :, None]
    np.testing.assert_allclose(joint_sums(X, values), expected, atol=1e-12)
    assert not joint_sums(X[:0], values[:0]).any() and joint_sums(X[:, :0], values).shape == (
        0,
        0,
        F,
    )


def test_logarithms_of_probabilities_below_the_least_number():
    statistic = np.array([2.0, 1400.0, 1e4, 1e6])
    of_one, of_two = (relevance._log_tails(statistic, np.full(4, df)) for df in (1, 2))
    np.testing.assert_allclose(of_one, np.log(2.0) + log_ndtr(-np.sqrt(statistic)), rtol=1e-12)
    np.testing.assert_allclose(of_two, -statistic / 2.0, rtol=1e-12)


def test_the_stronger_of_two_predictors_is_chosen_first_where_both_probabilities_are_below_the_least_number():  # noqa: E501
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 8000)
    weaker, stronger = (np.where(rng.random(8000) < error, 1 - y, y) for error in (0.15, 0.1))
    for columns, first in (([weaker, stronger], 1), ([stronger, weaker], 0)):
        selection = select_predictors(
            np.column_stack(columns).astype(float), np.arange(3), y, np.ones(8000), 0.05
        )
        assert selection.predictors[0] == first and selection.p_value[0] == 0.0


@pytest.mark.parametrize("is_separated", [True, False])
def test_the_regression_ends_at_its_optimum_with_products_of_separated_predictors(is_separated):
    """Newton's method needs many steps, shortened ones, and an information that is not of an
    earlier step.
    """
    L, K, n, weight = 4, 3, 2400, 10.0 if is_separated else 1.0
    rng = np.random.default_rng(202)
    x = np.minimum(rng.geometric(0.5, (n, 2)) - 1, L - 1)
    p = rng.dirichlet(np.full(K, 0.1), (L, L))
    y = (rng.random(n)[:, None] > p[x[:, 0], x[:, 1]].cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    if is_separated:
        y = (x[:, 0] == x[:, 1]).astype(int)
    one, other = ((x[:, [i]] == np.arange(1, L)).astype(float) for i in (0, 1))
    regression = relevance._Regression(
        np.hstack([one, other]), np.array([0, 3, 6]), y, np.full(n, weight)
    )
    metric = relevance._deviation_metric(L)
    for columns, own_metric in (
        (one, None),
        (other, None),
        (np.einsum("na,nb->nab", one, other), np.kron(metric, metric)),
    ):
        regression.add(columns.reshape(n, -1), own_metric)
        residual = (
            regression.cell_targets - regression.cell_weights[:, None] * regression.probabilities
        )
        gradient = (
            regression.design.T @ residual
            - regression.ridge @ regression.coefficients @ regression.group_metric
        )
        assert np.abs(gradient).max() < 1e-4


def test_neither_the_order_of_groups_nor_of_levels_matters():
    rng = np.random.default_rng(6)
    L = [3, 4, 2, 3]
    codes = np.column_stack([rng.integers(0, n, 150) for n in L])
    y = np.where(rng.random(150) < 0.5, (codes[:, 0] + codes[:, 3]) % 3, codes[:, 1] % 3)
    found = select_predictors(*indicators(codes, L), y, np.ones(150), 0.3)
    other = select_predictors(*indicators(codes, L), np.array([2, 0, 1])[y], np.ones(150), 0.3)
    assert len(found.predictors) > 2 and found.predictors == other.predictors
    np.testing.assert_allclose(found.p_value, other.p_value, rtol=1e-6)
    renamed = (codes + 1) % np.array(L)
    other = select_predictors(*indicators(renamed, L), y, np.ones(150), 0.3)
    assert found.predictors[0] == other.predictors[0]
    assert found.p_value[0] == pytest.approx(other.p_value[0], rel=1e-9)


def test_order_of_levels_does_not_matter_with_shares_for_gaps_and_levels_that_never_occur():
    """Rows with a gap have the shares of the levels; level 3 never occurs, as the reference or as
    another.
    """
    rng = np.random.default_rng(8)
    codes, y = rng.integers(0, 3, (60, 2)), rng.integers(0, 2, 60)
    gap = rng.random(60) < 0.3
    p_values = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]):
        table = np.eye(4)[codes[:, 0]]
        table[gap] = table[~gap].mean(axis=0)
        other = np.eye(4)[codes[:, 1]]
        X = np.column_stack([table[:, order][:, 1:], other[:, order][:, 1:]])
        p_values.append(first_p_value(X, np.array([0, 3, 6]), y, np.ones(60), 2, df=2))
        chosen = select_predictors(X, np.array([0, 3, 6]), y, np.ones(60), 0.999)
        best = int(p_values[-1].argmin())
        assert chosen.predictors[0] == best
        assert chosen.p_value[0] == pytest.approx(min(1.0, 4 * p_values[-1][best]), rel=1e-3)
    np.testing.assert_allclose(p_values[1:], p_values[:-1], rtol=1e-4)


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    codes, w = rng.integers(0, 2, (80, 5)), rng.integers(1, 5, 80)
    y = (codes[:, 0] + codes[:, 1] + rng.integers(0, 2, 80)) % 3
    X, start = indicators(codes, [2] * 5)
    weighted = select_predictors(X, start, y, w.astype(float), 0.5)
    repeated = select_predictors(
        np.repeat(X, w, axis=0), start, np.repeat(y, w), np.ones(w.sum()), 0.5
    )
    assert weighted.predictors == repeated.predictors
    np.testing.assert_allclose(weighted.p_value, repeated.p_value, rtol=1e-9)


@pytest.mark.parametrize(
    "columns",
    [np.zeros((20, 2)), np.zeros((20, 0)), np.ones((20, 1))],
    ids=["absent", "none", "constant"],
)
def test_predictors_that_do_not_vary_are_never_chosen(columns):
    start = np.arange(columns.shape[1] + 1)
    assert (
        select_predictors(columns, start, np.repeat([0, 1], 10), np.ones(20), 0.9).predictors == ()
    )


def test_separated_groups_end_the_choice():
    x = np.repeat([0.0, 1.0], 30)[:, None]
    chosen = select_predictors(
        np.hstack([x, x]), np.array([0, 1, 2]), x[:, 0].astype(int), np.ones(60), 0.05
    )
    assert chosen.predictors == (0,)


@pytest.mark.long
@pytest.mark.parametrize(("n", "K"), [(300, 2), (300, 5), (60, 2)])
def test_noise_is_chosen_at_most_at_the_level(n, K):
    rng = np.random.default_rng(n + K)
    found = 0
    for _ in range(400):
        codes, y = rng.integers(0, 3, (n, 30)), rng.integers(0, K, n)
        y[:K] = np.arange(K)
        X, start = indicators(codes, [3] * 30)
        found += len(select_predictors(X, start, y, np.ones(n), 0.05).predictors) > 0
    assert found <= 33  # 5 % and three standard errors


def test_the_order_of_levels_does_not_matter_once_a_pair_is_chosen():
    """Reference levels moved p-values of predictors after a pair by 1 part in 25."""
    rng = np.random.default_rng(0)
    L = [3] * 5
    codes = rng.integers(0, 3, (300, 5))
    score = 1.5 * ((codes[:, 0] + codes[:, 1]) % 3 == 1)
    score += 0.9 * (codes[:, 2] == 1) + 0.9 * (codes[:, 3] == 2) - 1.0
    y = (rng.random(300) < 1 / (1 + np.exp(-score))).astype(int)
    found = select_predictors(*indicators(codes, L), y, np.ones(300), 0.2)
    assert found.predictors == (3, 0, 1, 4, 2)  # 0 and 1 as a pair
    for _ in range(3):
        turned = np.column_stack([rng.permutation(3)[codes[:, i]] for i in range(5)])
        other = select_predictors(*indicators(turned, L), y, np.ones(300), 0.2)
        assert other.predictors == found.predictors
        np.testing.assert_allclose(other.p_value, found.p_value, rtol=1e-5)
