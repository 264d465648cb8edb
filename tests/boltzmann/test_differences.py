"""Standard errors of differences between groups of a conditional fit: against oracles, in coverage,
and refused.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import bbl
from bbl.boltzmann.inference.covariance import difference_terms
from bbl.engines.conditional import engine as module
from bbl.engines.conditional.kernel import determined, make_basis, to_tables
from bbl.errors import BBLError, OptionError
from bbl.model.layout import Layout

LEVELS = np.array([2, 3, 2])
GROUPS = ["0", "1", "2"]


def make_frame(n=300, seed=0, K=3):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, L, n) for L in LEVELS])
    score = np.column_stack(
        [0.8 * g * (codes[:, 0] - 0.5 * codes[:, 1] * codes[:, 2]) for g in range(K)]
    )
    y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    return pd.DataFrame(codes.astype(str), columns=list("abc")).assign(y=y.astype(str))


def indicators(codes):
    """Return the indicators of all levels of encoded rows."""
    return np.column_stack([np.eye(L)[codes[:, i]] for i, L in enumerate(LEVELS)])


def explicit(codes, train, pairs, tau):
    """Return at `codes` the columns whose inner products are the kernel that was made of the rows
    `train`.
    """
    means = indicators(train).mean(axis=0)
    own = np.split(np.arange(len(means)), np.cumsum(LEVELS)[:-1])

    def columns(rows):
        X = indicators(rows) - means
        return X, [X[:, [a]] * X[:, [b]] for i, j in pairs for a in own[i] for b in own[j]]

    one, two = columns(train)
    X, products = columns(codes)
    one = X / np.sqrt((one**2).sum(axis=1).mean())
    if not pairs:
        return one
    size = np.sqrt((np.column_stack(two) ** 2).sum(axis=1).mean())
    return np.column_stack([one, np.sqrt(tau) * np.column_stack(products) / size]) / np.sqrt(
        1 + tau
    )


def parameters_of(train, pairs, tau):
    """Return the rows (size, columns) that make fields and couplings of weights: differences of
    explicit columns.
    """

    def at(**levels):
        return explicit(np.array([[levels.get(k, 0) for k in "abc"]]), train, pairs, tau)[0]

    zero, names = at(), "abc"
    rows = [at(**{names[i]: a}) - zero for i, L in enumerate(LEVELS) for a in range(1, L)]
    for i, j in pairs:
        rows += [
            at(**{names[i]: a, names[j]: b}) - at(**{names[i]: a}) - at(**{names[j]: b}) + zero
            for a in range(1, LEVELS[i])
            for b in range(1, LEVELS[j])
        ]
    return np.array(rows)


@pytest.mark.parametrize(
    ("formula", "pairs"), [("y ~ a*b*c - a:b:c", [(0, 1), (0, 2), (1, 2)]), ("y ~ a + b + c", [])]
)
@pytest.mark.long
def test_standard_errors_are_those_of_a_hessian_by_finite_differences(formula, pairs):
    frame, ridge, tau, K = make_frame(), 0.01, 0.5, 3
    fit = bbl.bbl(formula, frame, method="conditional", ridge=ridge, scale=tau, verbose=0)
    codes, y = frame[list("abc")].astype(int).to_numpy(), frame["y"].astype(int).to_numpy()
    F = np.column_stack([explicit(codes, codes, pairs, tau), np.ones(len(codes))])
    r = F.shape[1] - 1
    P = np.log(fit.predict(frame, type="prob")[GROUPS].to_numpy())
    # the fitted weights are the shortest that have these scores
    x = np.linalg.lstsq(F, P - P.mean(axis=1, keepdims=True), rcond=None)[0]

    def loss(flat):
        s = F @ flat.reshape(r + 1, K)
        return (np.logaddexp.reduce(s, axis=1) - s[np.arange(len(y)), y]).mean()

    size, step = x.size, 1e-3
    moved, bare = np.eye(size) * step, np.empty((size, size))
    for i in range(size):
        for j in range(i + 1):
            u, v, z = moved[i], moved[j], x.ravel()
            bare[i, j] = bare[j, i] = (
                loss(z + u + v) - loss(z + u - v) - loss(z - u + v) + loss(z - u - v)
            ) / (4 * step**2)
    H = bare + np.diag(np.repeat(np.append(np.full(r, ridge), 1e-8), K))
    # what all classes share is penalised alone, and no difference depends on it
    half = np.linalg.pinv(H, rcond=1e-5)
    V = (half @ bare @ half / len(y)).reshape(r + 1, K, r + 1, K)[:r, :, :r]
    W = V[:, 2, :, 2] + V[:, 0, :, 0] - V[:, 2, :, 0] - V[:, 0, :, 2]
    T = parameters_of(codes, pairs, tau)
    found = fit.inference().table(of=("2", "0"))
    np.testing.assert_allclose(found["se"], np.sqrt(np.einsum("ij,jk,ik->i", T, W, T)), rtol=2e-4)
    np.testing.assert_allclose(
        found["estimate"], fit.estimate.parameters.theta[2] - fit.estimate.parameters.theta[0]
    )


def test_without_a_penalty_and_pairs_they_are_those_of_multinomial_logistic_regression():
    frame = make_frame(800, seed=3)
    fit = bbl.bbl("y ~ a + b + c", frame, method="conditional", ridge=1e-9, verbose=0)
    codes = frame[list("abc")].astype(int).to_numpy()
    dummies = np.column_stack(
        [codes[:, i] == a for i, L in enumerate(LEVELS) for a in range(1, L)]
    ).astype(float)
    known = sm.MNLogit(frame["y"].astype(int), sm.add_constant(dummies)).fit(
        disp=0, method="newton", tol=1e-12
    )
    for k, other in enumerate(GROUPS[1:]):
        table = fit.inference().table(of=(other, "0"))
        np.testing.assert_allclose(table["estimate"], known.params.to_numpy()[1:, k], atol=1e-4)
        np.testing.assert_allclose(table["se"], known.bse.to_numpy()[1:, k], rtol=1e-4)
        limits = fit.conf_int(alpha=0.1, of=(other, "0"))
        np.testing.assert_allclose(
            limits["upper"] - limits["lower"],
            2 * 1.6448536 * known.bse.to_numpy()[1:, k],
            rtol=1e-4,
        )


def test_weights_are_repeated_rows_and_the_order_of_two_groups_is_a_sign():
    frame = make_frame(120)
    counts = frame.value_counts().rename("w").reset_index()
    by_rows = bbl.bbl("y ~ .^2", frame, method="conditional", verbose=0).inference()
    by_weights = bbl.bbl("y ~ .^2", counts, "w", method="conditional", verbose=0).inference()
    columns = ["estimate", "se", "lower", "upper"]
    one, two = by_rows.table(of=("0", "1"))[columns], by_weights.table(of=("0", "1"))[columns]
    np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-9)
    other = by_rows.table(of=("1", "0"))
    np.testing.assert_allclose(one["se"], other["se"], rtol=1e-9)
    np.testing.assert_allclose(one["lower"], -other["upper"], rtol=1e-9)
    assert by_rows.table(of=("0", "1"))[["z", "p"]].isna().all(axis=None)


def test_the_limits_of_a_strength_hold_the_ball_of_its_couplings():
    fit = bbl.bbl("y ~ .^2", make_frame(), method="conditional", verbose=0)
    frame = fit.interactions(of=("2", "0"))
    assert (
        list(frame.columns[3:6]) == ["strength", "lower", "upper"]
        and frame["strength"].is_monotonic_decreasing
    )
    # two predictors of two levels have one coupling, whose strength is half of it
    own = frame[(frame["predictor"] == "a") & (frame["predictor2"] == "c")].iloc[0]
    table = fit.inference().table(of=("2", "0"))
    one = table[(table["predictor"] == "a") & (table["predictor2"] == "c")].iloc[0]
    assert own["strength"] == pytest.approx(abs(one["estimate"]) / 2)
    assert own["upper"] - own["strength"] == pytest.approx((one["upper"] - one["lower"]) / 4)
    assert (frame["lower"] >= 0).all() and frame["test"].str.contains("penalty").all()
    assert fit.interactions(of=("2", "0"), apc=True)[["lower", "upper"]].isna().all(axis=None)
    draws = np.random.default_rng(0).multivariate_normal(
        np.zeros(2), difference_terms(fit.training, fit.estimate, fit.engine, (2, 0))[0][3], 4000
    )
    J = np.zeros((4000, 2, 3))
    J[:, 1, 1:] = draws
    J = J - J.mean(axis=1, keepdims=True)
    J = J - J.mean(axis=2, keepdims=True)
    ab = frame[(frame["predictor"] == "a") & (frame["predictor2"] == "b")].iloc[0]
    assert (np.sqrt((J**2).sum(axis=(1, 2))) <= ab["upper"] - ab["strength"]).mean() >= 0.945


def test_what_has_no_standard_errors_says_so(monkeypatch):
    frame = make_frame(150)
    fit = bbl.bbl("y ~ .^2", frame, method="conditional", verbose=0)
    for call in (
        fit.inference().table,
        fit.inference().tests,
        lambda: fit.bse,
        fit.cov_params,
        fit.conf_int,
        lambda: fit.inference().interactions("pooled"),
    ):
        with pytest.raises(OptionError, match=r"(single groups|no pooled fit).*of=\(a, b\)"):
            call()
    assert fit.interactions()["test"].str.contains("for single groups").all()
    with pytest.raises(OptionError, match="not a group"):
        fit.inference().table(of=("0", "x"))
    with pytest.raises(OptionError, match="ridge=inf"):
        bbl.bbl("y ~ .", frame, method="conditional", ridge=np.inf, verbose=0).inference()
    refined = bbl.bbl("y ~ .", frame, method="conditional", start="pseudo", lambda_=0.01, verbose=0)
    with pytest.raises(OptionError, match=r"starts from a generative fit.*bootstrap"):
        refined.inference()
    assert refined.interactions(of=("0", "1"))["test"].str.contains("bootstrap").all()
    early = bbl.bbl("y ~ .", frame, method="conditional", early_stopping=True, verbose=0)
    with pytest.raises(OptionError, match="stopped early"):
        early.inference()
    monkeypatch.setattr(module, "ROWS", 20)
    with pytest.raises(OptionError, match="distinct rows"):
        fit.inference().table(of=("0", "1"))


def test_a_fit_that_did_not_converge_has_no_standard_errors(monkeypatch, tmp_path):
    frame = make_frame(150)
    with monkeypatch.context() as hasty:
        hasty.setattr(module, "FINAL", module.FINAL._replace(rounds=3))
        with pytest.warns(bbl.ConvergenceWarning, match="did not converge .*Increase ridge"):
            fit = bbl.bbl("y ~ .^2", frame, method="conditional", verbose=0)
    fit.save(tmp_path / "fit.bbl", store_data=True)
    for own in (fit, bbl.load(tmp_path / "fit.bbl")):
        table = own.inference().table(of=("0", "1"))
        assert (
            table[["se", "lower", "upper"]].isna().all(axis=None)
            and table["estimate"].notna().all()
        )
        assert (table["test"] == "not estimable: the fit did not converge").all()
        assert own.conf_int(of=("0", "1"))[["lower", "upper"]].isna().all(axis=None)
        pairs = own.interactions(of=("0", "1"))
        assert (
            pairs[["lower", "upper"]].isna().all(axis=None)
            and (pairs["test"] == table["test"].iloc[0]).all()
        )
        assert "did not converge" in repr(own.inference())


def test_memory_is_estimated_before(monkeypatch):
    rng = np.random.default_rng(0)
    frame = (
        pd.DataFrame(rng.integers(0, 3, (700, 12)).astype(str))
        .add_prefix("x")
        .assign(y=np.arange(700) % 4)
    )
    fit = bbl.bbl("y ~ .^2", frame, method="conditional", ridge=0.1, verbose=0)
    assert fit.inference().table(of=(0, 1))["se"].notna().all()
    monkeypatch.setattr("bbl.memory.available_memory", lambda: 2**20)
    with pytest.raises(BBLError, match="Standard errors of 288 parameters in 4 groups"):
        fit.inference().table(of=(2, 1))


@pytest.mark.long
@pytest.mark.parametrize(("ridge", "truth"), [(1e-5, True), (1e-2, False)])
def test_intervals_of_fields_hold_their_level(ridge, truth):
    """Of the difference itself with next to no penalty, of the penalised estimate's expectation
    otherwise.
    """
    rng, n, fits, levels = np.random.default_rng(5), 500, 200, [2, 3, 2]
    codes = np.column_stack([rng.integers(0, L, n) for L in levels])
    X = np.column_stack([codes[:, i] == a for i, L in enumerate(levels) for a in range(1, L)])
    h = np.array([[0.0, 0.0, 0.0, 0.0], [0.8, -0.5, 0.3, 0.0], [-0.4, 0.6, 0.0, 0.5]])
    table = pd.DataFrame(codes, columns=list("abc")).astype(str).astype("category")
    estimates, lower, upper = [], [], []
    for _ in range(fits):
        y = (X @ h.T + rng.gumbel(size=(n, 3))).argmax(axis=1)
        fit = bbl.bbl(
            "y ~ a + b + c",
            table.assign(y=pd.Categorical.from_codes(y, list("012"))),
            method="conditional",
            ridge=ridge,
            verbose=0,
        )
        found = fit.inference().table(of=("1", "0"))
        estimates.append(found["estimate"])
        lower.append(found["lower"])
        upper.append(found["upper"])
    target = h[1] - h[0] if truth else np.mean(estimates, axis=0)
    covered = ((np.array(lower) <= target) & (target <= np.array(upper))).mean()
    assert 0.92 <= covered <= 0.98, covered


def test_what_the_penalty_decides_has_no_interval():
    frame = make_frame(300).assign(copy=lambda f: f["a"])
    fit = bbl.bbl("y ~ a + b + c + copy", frame, method="conditional", verbose=0)
    table = fit.inference().table(of=("1", "0")).set_index("predictor")
    assert table.loc[["a", "copy"], ["se", "lower", "upper"]].isna().all(axis=None)
    assert table.loc[["b", "c"], ["se", "lower", "upper"]].notna().all(axis=None)
    assert table["test"].str.startswith("not estimable").tolist() == [
        True,
        False,
        False,
        False,
        True,
    ]
    # no row of group 0 has both, so that nothing holds the coupling but the penalty
    apart = make_frame(300).query("not (a == '1' and c == '1' and y == '0')")
    fit = bbl.bbl("y ~ a + b + c + a:c + a:b", apart, method="conditional", verbose=0)
    pairs = fit.interactions(of=("1", "0")).set_index("predictor2")
    assert np.isnan(pairs.loc["c", "upper"]) and np.isfinite(pairs.loc["b", "upper"])
    other = fit.interactions(of=("1", "2")).set_index("predictor2")
    assert np.isfinite(other.loc["c", "upper"])


def test_parameters_are_determined_where_the_design_has_full_rank():
    rng = np.random.default_rng(2)
    layout = Layout(LEVELS)
    for n in (3, 5, 8, 12):
        codes = np.unique(np.column_stack([rng.integers(0, L, n) for L in LEVELS]), axis=0).astype(
            np.uint8
        )
        weights = rng.integers(1, 4, len(codes)).astype(float)
        X = [codes[:, i] == a for i, L in enumerate(LEVELS) for a in range(1, L)]
        X += [
            (codes[:, i] == a) & (codes[:, j] == b)
            for i, j in layout.pairs
            for a in range(1, LEVELS[i])
            for b in range(1, LEVELS[j])
        ]
        design = np.column_stack([np.ones(len(codes)), *X]).astype(float)
        unit = np.eye(design.shape[1])[1:]
        # a parameter is determined if its unit vector is in the row space
        expected = np.abs(unit @ np.linalg.pinv(design) @ design - unit).max(axis=1) < 1e-8
        basis = make_basis(codes, weights, layout, 0.5, 600)
        tables = to_tables(basis, np.eye(len(basis.spectrum)))[0]
        np.testing.assert_array_equal(determined(basis, tables, weights), expected)
