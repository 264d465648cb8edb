"""Tests of the oracle in tests/reference.py: identities, finite differences, and R's stored
numbers.
"""

import itertools

import numpy as np
import pytest
import rcases
import reference as oracle

L = [2, 3, 2]
ALL = set(itertools.combinations(range(3), 2))


@pytest.fixture
def model():
    """A model of three predictors with random fields and couplings."""
    rng = np.random.default_rng(4)
    h = [rng.normal(size=n - 1) for n in L]
    J = {(i, j): rng.normal(size=(L[i] - 1, L[j] - 1)) for i, j in sorted(ALL)}
    return h, J


@pytest.fixture
def rows():
    """200 weighted rows over three predictors."""
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.integers(0, n, 200) for n in L])
    x[:, 2] = np.where(rng.random(200) < 0.6, x[:, 0], x[:, 2])
    return x, rng.integers(1, 4, 200).astype(float)


def test_energy_is_the_sum_of_fields_and_couplings(model):
    h, J = model
    grid = oracle.states(L)
    assert grid.shape == (12, 3)
    slow = [
        sum(oracle.field(h, i, s[i]) for i in range(3))
        + sum(oracle.coupling(J, i, j, s[i], s[j]) for i, j in J)
        for s in grid
    ]
    np.testing.assert_allclose(oracle.energy(h, J, grid), slow, atol=1e-14)
    assert oracle.energy(h, J, [[1, 2, 1]])[0] == pytest.approx(
        h[0][0] + h[1][1] + h[2][0] + J[0, 1][0, 1] + J[0, 2][0, 0] + J[1, 2][1, 0], abs=1e-14
    )


def test_probabilities_and_highest_state(model):
    p = oracle.probabilities(*model, L)
    grid = oracle.states(L)
    assert p.sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(
        np.log(p), oracle.energy(*model, grid) - oracle.log_partition(*model, L), atol=1e-13
    )
    state, top = oracle.highest(*model, L)
    assert top == oracle.energy(*model, grid).max() == oracle.energy(*model, [state])[0]


@pytest.mark.parametrize("i", range(3))
def test_conditionals_are_those_of_the_joint_distribution(model, i):
    grid, p = oracle.states(L), oracle.probabilities(*model, L)
    found = oracle.conditionals(*model, grid, i)
    for k, s in enumerate(grid):
        same = (np.delete(grid, i, axis=1) == np.delete(s, i)).all(axis=1)
        joint = np.array([p[same & (grid[:, i] == a)].sum() for a in range(L[i])])
        np.testing.assert_allclose(found[k], joint / joint.sum(), atol=1e-13)


def test_site_gradient_and_hessian_by_differences(rows):
    x, w = rows
    X = oracle.site_design(x, L, None, 1)
    theta = np.random.default_rng(6).normal(size=(2, X.shape[1]))
    value, gradient, hessian = oracle.site_objective(theta, X, x[:, 1], w, 0.3, 0.1)
    P = oracle.conditionals(
        [np.zeros(1), theta[:, 0], np.zeros(1)], {(1, 0): theta[:, 1:2], (1, 2): theta[:, 2:]}, x, 1
    )
    direct = -np.sum(w * np.log(P[np.arange(len(x)), x[:, 1]])) / w.sum()
    direct += 0.05 * np.sum(theta[:, 0] ** 2) + 0.15 * np.sum(theta[:, 1:] ** 2)
    assert value == pytest.approx(direct, abs=1e-14)
    step = 1e-5
    for k in range(theta.size):
        d = np.zeros(theta.size)
        d[k] = step
        d = d.reshape(theta.shape)
        up, down = (oracle.site_objective(theta + s * d, X, x[:, 1], w, 0.3, 0.1) for s in (1, -1))
        assert gradient.ravel()[k] == pytest.approx((up[0] - down[0]) / (2 * step), abs=1e-9)
        np.testing.assert_allclose(hessian[k], ((up[1] - down[1]) / (2 * step)).ravel(), atol=1e-9)


def test_pseudo_likelihood_recovers_the_model_from_its_exact_distribution(model):
    h, J = model
    fit = oracle.PseudoFit(oracle.states(L), oracle.probabilities(h, J, L), L, ALL, 0.0, 0.0)
    assert not fit.augmented
    for i in range(3):
        np.testing.assert_allclose(fit.h[i], h[i], atol=1e-10)
    for pair, table in J.items():
        np.testing.assert_allclose(fit.J[pair], table, atol=1e-10)
        np.testing.assert_allclose(fit.J_raw[pair[::-1]], table.T, atol=1e-10)


def test_weights_are_repeated_rows(rows):
    x, w = rows
    long = np.repeat(x, w.astype(int), axis=0)
    one = np.ones(len(long))
    a, b = (
        oracle.PseudoFit(x, w, L, None, 0.01, 0.02),
        oracle.PseudoFit(long, one, L, None, 0.01, 0.02),
    )
    assert a.lkh == pytest.approx(b.lkh, abs=1e-12)
    for half in (False, True):
        assert a.log_z(half) == pytest.approx(b.log_z(half), abs=1e-12)
    for i in range(3):
        np.testing.assert_allclose(a.h[i], b.h[i], atol=1e-11)
    for left, right in zip(
        oracle.mean_field(x, w, L)[:3], oracle.mean_field(long, one, L)[:3], strict=True
    ):
        for k in (
            left if isinstance(left, dict) else range(len(left) if isinstance(left, list) else 0)
        ):
            np.testing.assert_allclose(left[k], right[k], atol=1e-12)


@pytest.mark.parametrize(
    ("column", "rule", "extra"),
    [(0, "spec", [0, 1, 0]), (2, "spec", [0, 0, 0]), (0, "r", [0, 0, 0]), (2, "r", [0, 0, 0])],
)
def test_extra_instance(rows, column, rule, extra):
    x, w = rows
    x = x.copy()
    x[:, 1] = column
    y, v = oracle.augmented(x, w, L, rule)
    assert (y[:-1] == x).all() and list(y[-1]) == extra
    assert v[-1] == 1 and v.sum() == w.sum() + 1
    assert len(oracle.augmented(x, w, L, "none")[0]) == len(x)


def test_mean_field_without_interaction_is_naive_bayes(rows):
    x, w = rows
    h, J, lz, _ = oracle.mean_field(x, w, L, None, 0.0, 1.0)
    g, _, exact = oracle.naive_bayes(x, w, L, 1.0)
    for i in range(3):
        np.testing.assert_allclose(h[i], g[i], atol=1e-12)
    assert all((table == 0).all() for table in J.values())
    assert lz == pytest.approx(exact, abs=1e-12) == oracle.log_partition(g, {}, L)


def test_mean_field_covariance_and_prior_count(rows):
    x, w = rows
    W = w.sum()
    _, J, _, C = oracle.mean_field(x, w, L, None, 1.0, 0.0)
    onehot = np.column_stack([x[:, 0] == 1, x[:, 1] == 1, x[:, 1] == 2, x[:, 2] == 1]).astype(float)
    mean = w @ onehot / W
    np.testing.assert_allclose(
        C, (onehot * w[:, None]).T @ onehot / W - np.outer(mean, mean), atol=1e-13
    )
    np.testing.assert_allclose(J[0, 1], -np.linalg.inv(C)[:1, 1:3], atol=1e-10)
    f, f2 = oracle.frequencies(x, w, L, 2.0)
    assert f[1][2] == pytest.approx((w[x[:, 1] == 2].sum() + 2 / 3) / (W + 2), abs=1e-14)
    np.testing.assert_allclose(f2[0, 1].sum(axis=1), f[0], atol=1e-14)
    np.testing.assert_allclose(f2[0, 1].sum(axis=0), f[1], atol=1e-14)


def test_naive_bayes_likelihood_and_ratio_test(rows):
    x, w = rows
    y = (x[:, 0] + x[:, 1]) % 2
    h, _, lz = oracle.naive_bayes(x, w, L)
    assert np.sum(w * (oracle.energy(h, {}, x) - lz)) == pytest.approx(
        oracle.naive_log_likelihood(x, w, L), rel=1e-12
    )
    q, df = oracle.ratio_test(x, w, y, L)
    gain = sum(oracle.naive_log_likelihood(x[y == g], w[y == g], L) for g in (0, 1))
    assert q.sum() == pytest.approx(2 * (gain - oracle.naive_log_likelihood(x, w, L)), rel=1e-11)
    assert df == [1, 2, 1]


def test_posterior():
    link, prob = oracle.posterior([[1000.0, 1001.0], [0.0, 0.0]], [0.0, 0.0], [0.25, 0.75])
    np.testing.assert_allclose(prob[1], [0.25, 0.75], atol=1e-15)
    np.testing.assert_allclose(link[0], [-1 - np.log(3), 1 + np.log(3)], atol=1e-12)
    np.testing.assert_allclose(prob, 1 / (1 + np.exp(-link)), atol=1e-12)
    assert oracle.posterior([[3.0]], [0.0], [1.0])[0][0, 0] == np.inf


def test_delong_by_hand():
    auc, low, high, variance = oracle.delong(
        np.array([3.0, 1.0, 2.0, 2.0, 0.0]), np.array([1, 1, 0, 0, 0], dtype=bool)
    )
    assert auc == pytest.approx((3 + 1) / 6)
    cases, controls = np.array([1, 1 / 3]), np.array([0.5, 0.5, 1])
    assert variance == pytest.approx(cases.var(ddof=1) / 2 + controls.var(ddof=1) / 3)
    assert 0 <= low < auc < high <= 1


def test_contiguous_folds_by_hand():
    folds = oracle.contiguous_folds([0, 1, 0, 0, 1, 0, 0], 2)
    assert [list(f) for f in folds] == [[0, 2, 1], [3, 5, 6, 4]]
    assert [list(f) for f in oracle.contiguous_folds([0, 0, 0], 2)] == [[0], [1, 2]]


# -- against R -------------------------------------------------------------------------------------
def with_optimum():
    """Return the names of the stored fits that come with the exact optimum."""
    found = []
    for name in rcases.names():
        case = rcases.Case(name)
        if case.kind == "bbl" and "exact" in case.runs.get("tight", {}).get(
            "independent_check", {}
        ):
            found.append(name)
    return found or [None]


@pytest.mark.parametrize("name", with_optimum())
@pytest.mark.thinned(3)
def test_oracle_is_the_stored_optimum(name, shared):
    """Switched to R's conventions, the oracle gives the stored optimum: coefficients, both ln Z,
    lkh.
    """
    case = rcases.Case(name)
    exact = case.runs["tight"]["independent_check"]["exact"]
    problem = case.problem()
    fits = rcases.exact_groups(problem, case, "r")
    lkh = 0.0
    for g, (label, fit) in enumerate(zip(problem.rgroups, fits, strict=True)):
        h, J = problem.r_parameters(exact["h"][label], (exact["J"] or {}).get(label))
        for i in range(len(h)):
            np.testing.assert_allclose(fit.h[i], h[i], atol=1e-11)
        assert J.keys() == fit.J.keys()
        for pair, table in J.items():
            np.testing.assert_allclose(fit.J[pair], table, atol=1e-11)
        assert fit.log_z(case.half, weighted=False) == pytest.approx(
            exact["lz_r"][label], abs=1e-11
        )
        assert fit.log_z(case.half) == pytest.approx(exact["lz_weighted"][label], abs=1e-11)
        lkh += fit.lkh * (problem.y == g).sum()
    assert lkh == pytest.approx(exact["lkh_r"], rel=1e-13)


@pytest.mark.long
def test_oracle_scores_like_proc(shared):
    """AUC, DeLong's interval and folds of every stored cross-validation whose pooled predictions
    are stored.
    """
    done = 0
    for name in rcases.names():
        case = rcases.Case(name)
        pooled = case.raw.get("folds", {}).get("pooled_at_regstar")
        if case.kind != "crossVal":
            continue
        data = rcases.expand(case.data, case.weights)
        groups = case.runs["default"]["stored_model"]["groups"]
        response = case.formula.split("~")[0].strip()
        y = np.array([groups.index(str(v)) for v in data[response]])
        folds = oracle.contiguous_folds(y, case.raw["folds"]["nfold"])
        stored = [np.array(f) - 1 for f in case.raw["folds"]["validation_rows"]]
        assert all((a == b).all() for a, b in zip(folds, stored, strict=True)), name
        if pooled is None:
            continue
        frame = case.runs["default"]["cvframe"]
        at = int(np.argmax(frame.get("AUC", frame.get("score"))))
        truth = y[np.concatenate(stored)]
        if "AUC" in frame:
            found = oracle.delong(rcases.array(pooled["link"])[:, 1], truth == 1)[:3]
            np.testing.assert_allclose(
                found, [frame[k][at] for k in ("AUC", "ci1", "ci2")], atol=1e-12
            )
        else:
            assert np.mean([groups.index(v) for v in pooled["yhat"]] == truth) == pytest.approx(
                frame["score"][at]
            )
        done += 1
    assert done >= 10
