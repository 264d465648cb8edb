"""Predictors whose levels are in order, in conditional likelihood: codings against a dense fit, and
what users see.
"""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import bbl
from bbl.engines.conditional import engine as conditional_engine
from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.full_batch import FullBatch
from bbl.engines.conditional.kernel import determined, make_basis, to_tables
from bbl.errors import OptionError
from bbl.model.layout import Layout

CODINGS = ("nominal", "linear", "cumulative")


def table(n, seed=0, levels="abcde", m=3, ordered=True):
    """Rows whose response follows a slope of x0, a slope of x1 and their product; x2 is nominal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, len(levels), (n, m))
    centred = x - (len(levels) - 1) / 2
    log_odds = 0.8 * centred[:, 0] - 0.5 * centred[:, 1] + 0.3 * centred[:, 0] * centred[:, 1]
    columns = {
        f"x{i}": pd.Categorical.from_codes(x[:, i], list(levels), ordered=ordered and i != 2)
        for i in range(m)
    }
    return pd.DataFrame(
        columns | {"y": np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), "p", "q")}
    )


def level_features(ordered, k, L):
    """Features of L levels of which k are in order, written out."""
    if ordered == "nominal" or k == 0:
        return np.eye(L)
    F = np.zeros((L, 1 if ordered == "linear" else k - 1))
    for a in range(k):
        if ordered == "linear":
            F[a, 0] = np.sqrt(2.0) * a / (k - 1)
        else:
            F[a] = [np.sqrt(2.0 / (k - 1)) * (a > threshold) for threshold in range(k - 1)]
    for behind in range(k, L):  # as far from the first level in order as from the last
        F[behind] = F[:k].mean(axis=0) if ordered == "linear" else 0.5 * (F[0] + F[k - 1])
        F = np.column_stack([F, np.sqrt(1.5) * (np.arange(L) == behind)])
    return F


def dense_probabilities(codes, y, K, n_levels, n_ordered, pairs, ordered, tau, ridge):
    """P(group | row) of the penalised fit by a design with a column for each feature and each
    product of features.
    """
    features = []
    for i, (L, k) in enumerate(zip(n_levels, n_ordered, strict=True)):
        phi = level_features(ordered, k, L)[codes[:, i]]
        features.append(phi - phi.mean(axis=0))
    fields = np.column_stack(features)
    couplings = [
        np.einsum("na,nb->nab", features[i], features[j]).reshape(len(codes), -1) for i, j in pairs
    ]
    couplings = np.column_stack([np.zeros((len(codes), 0)), *couplings])
    a, b = (fields**2).sum(axis=1).mean(), (couplings**2).sum(axis=1).mean()
    factor = 1.0 + (tau if b else 0.0)
    Z = np.column_stack(
        [fields / np.sqrt(a * factor), couplings * np.sqrt(tau / (b or 1.0) / factor)]
    )
    target = np.eye(K)[y]

    def objective(x):
        w, offset = x[:-K].reshape(-1, K), x[-K:]
        scores = Z @ w + offset
        log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        residual = (np.exp(log_p) - target) / len(Z)
        value = (
            -(target * log_p).sum() / len(Z)
            + 0.5 * ridge * (w**2).sum()
            + 0.5e-8 * (offset**2).sum()
        )
        return value, np.concatenate(
            [(Z.T @ residual + ridge * w).ravel(), residual.sum(axis=0) + 1e-8 * offset]
        )

    x = np.zeros((Z.shape[1] + 1) * K)
    x = minimize(
        objective,
        x,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    ).x
    scores = Z @ x[:-K].reshape(-1, K) + x[-K:]
    return np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))


@pytest.mark.parametrize("with_gaps", [False, True])
@pytest.mark.parametrize("formula", ["y ~ .", "y ~ .^2", "y ~ x0 * x1 + x2"])
@pytest.mark.parametrize("ordered", CODINGS)
def test_probabilities_are_those_of_a_dense_fit(ordered, formula, with_gaps):
    data = table(200, levels="abcd")
    if with_gaps:
        data.loc[data.index % 7 == 0, "x0"] = None
    fit = bbl.bbl(
        formula, data, method="conditional", ordered=ordered, ridge=0.01, missing="level", verbose=0
    )
    codes = np.column_stack([data[c].cat.codes for c in ("x0", "x1", "x2")])
    codes[codes < 0] = 4
    y = (data["y"] == "q").to_numpy().astype(int)
    pairs = {"y ~ .": [], "y ~ .^2": [*combinations(range(3), 2)], "y ~ x0 * x1 + x2": [(0, 1)]}[
        formula
    ]
    n_levels = (5 if with_gaps else 4, 4, 4)
    expected = dense_probabilities(codes, y, 2, n_levels, (4, 4, 0), pairs, ordered, 0.5, 0.01)
    found = fit.predict(data, type="prob")[["p", "q"]]
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("formula", ["y ~ .", "y ~ .^2"])
def test_a_linear_coding_has_equal_steps_and_products_of_slopes(formula):
    fit = bbl.bbl(formula, table(150), method="conditional", ordered="linear", ridge=1e-3)
    h = fit.coef().h["p"]["x0"].to_numpy()
    np.testing.assert_allclose(h, h[0] * np.arange(1, 5), atol=1e-9)
    nominal_h = fit.coef().h["p"]["x2"].to_numpy()
    assert np.abs(np.diff(nominal_h, 2)).max() > 1e-3
    if formula == "y ~ .^2":
        J = fit.coef().J["p"]["x0", "x1"].to_numpy()
        np.testing.assert_allclose(
            J, J[0, 0] * np.outer(np.arange(1, 5), np.arange(1, 5)), atol=1e-9
        )
    # x0 and x1 have a slope each, x2 four fields; the pairs have 1, 4 and 4 couplings
    assert fit.n_parameters == 2 * (6 if formula == "y ~ ." else 15)


@pytest.mark.parametrize("ordered", CODINGS[1:])
def test_the_direction_of_an_order_makes_no_difference(ordered):
    data = table(120)
    turned = data.assign(x0=data["x0"].cat.reorder_categories(list("edcba"), ordered=True))
    p = [
        bbl.bbl("y ~ .^2", d, method="conditional", ordered=ordered).predict(d, type="prob")["p"]
        for d in (data, turned)
    ]
    np.testing.assert_allclose(p[1], p[0], atol=1e-9)


@pytest.mark.parametrize("ordered", CODINGS[1:])
def test_two_levels_are_the_same_in_each_coding(ordered):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (40, 3)).astype(np.uint8)
    of_order, nominal = (
        make_basis(codes, np.ones(40), Layout([2, 2, 2], n_ordered=[2, 2, 0]), 0.5, 20, which)
        for which in (ordered, "nominal")
    )
    np.testing.assert_array_equal(of_order.functions, nominal.functions)


@pytest.mark.parametrize("ordered", CODINGS)
def test_gradients_over_all_rows_are_finite_differences(ordered):
    rng = np.random.default_rng(1)
    layout = Layout([4, 5, 2, 3], [(0, 1), (1, 2), (0, 3)], n_ordered=[4, 4, 2, 0])
    codes = np.column_stack([rng.integers(0, L, 80) for L in layout.n_levels]).astype(np.uint8)
    y, weights = rng.integers(0, 3, 80), rng.uniform(0.5, 2.0, 80)
    full = FullBatch(
        codes, y, weights, layout, 3, 0.5, 0.01, 1e-3, rng.normal(size=(80, 3)), ordered
    )
    n_couplings = {"nominal": 22, "linear": 1 + 2 + 2 + 0, "cumulative": 22}[ordered]
    x = rng.normal(size=len(full.scale)) * 0.3
    if ordered == "linear":  # x0: 1 slope; x1: slope and missing level; pairs 1 x 2, 2 x 1, 1 x 2
        n_couplings = 1 * 2 + 2 * 1 + 1 * 2
        assert full.basis.shape == (10, 1 + 2 + 1 + 2)
    assert len(x) == 3 * (full.basis.shape[1] + n_couplings) + 3 + 1
    value, gradient = full(x)
    for k in range(0, len(x), 5):
        step = np.zeros(len(x))
        step[k] = 1e-3
        slope = (full(x + step)[0] - full(x - step)[0]) / 2e-3
        assert gradient[k] == pytest.approx(slope, abs=2e-4)
    theta, constant, temperature = full.tables(x)
    np.testing.assert_allclose(full.to_vector(theta, constant, temperature), x, atol=1e-9)
    assert np.isfinite(value)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("ordered", CODINGS[1:])
def test_many_rows_are_fitted_as_few_are(ordered, early_stopping, monkeypatch):
    data = table(400)
    options = {"method": "conditional", "ordered": ordered, "ridge": 0.01, "seed": 1}
    few = bbl.bbl("y ~ .^2", data, **options)
    monkeypatch.setattr(conditional_engine, "ROWS", 10)
    many = bbl.bbl("y ~ .^2", data, early_stopping=early_stopping, **options)
    p = [fit.predict(data, type="prob")["p"] for fit in (few, many)]
    np.testing.assert_allclose(p[1], p[0], atol=0.02 if early_stopping else 1e-3)
    h = many.coef().h["p"]["x0"].to_numpy()
    if ordered == "linear":
        np.testing.assert_allclose(h, h[0] * np.arange(1, 5), atol=1e-9)


@pytest.mark.parametrize("ordered", CODINGS)
def test_rows_determine_what_they_show(ordered):
    """Without a row of the last level only a linear coding knows its parameter, from the slope of
    the others.
    """
    rng = np.random.default_rng(2)
    layout = Layout([4, 3], n_ordered=[4, 3])
    codes = np.column_stack([rng.integers(0, 3, 60), rng.integers(0, 3, 60)]).astype(np.uint8)
    basis = make_basis(codes, np.ones(60), layout, 0.5, 60, ordered)
    tables, _ = to_tables(basis, np.eye(len(basis.spectrum)))
    is_determined = determined(basis, tables, np.ones(60))
    assert is_determined[:2].all()
    assert is_determined[2] == (ordered == "linear")


@pytest.mark.parametrize("ordered", CODINGS)
def test_features_of_rows_and_levels_agree(ordered):
    layout = Layout([4, 3, 2, 5], n_ordered=[4, 2, 2, 4])
    coding = coding_of(layout, ordered)
    codes = np.array([[3, 2, 1, 4], [0, 0, 0, 0]], dtype=np.uint8)
    rows = coding.row_features(codes)
    for i, columns in enumerate(coding.columns):
        distance = coding.squared_distances(i, rows[1, columns])[codes[0, i]]
        # of the last level from the first, whatever the coding
        assert distance == pytest.approx(2.0)
        np.testing.assert_allclose(
            coding.values_at_levels(i, rows[0, columns])[codes[0, i]], (rows[0, columns] ** 2).sum()
        )


@pytest.mark.long
def test_cross_validation_chooses_slopes_where_there_are_slopes(tmp_path):
    data, new = table(300, m=2), table(5000, seed=9, m=2)
    fits = {
        o: bbl.bbl("y ~ .^2", data, method="conditional", ordered=o, ridge="cv", seed=1)
        for o in (*CODINGS, "cv")
    }
    loss = {name: fit.evaluate(new).log_loss.loss for name, fit in fits.items()}
    assert loss["linear"] < loss["cumulative"] < loss["nominal"]
    assert fits["cv"].engine.ordered == "linear"
    assert loss["cv"] == loss["linear"]
    assert "In order: x0, x1 (linear)" in str(fits["cv"].summary())
    assert "In order" not in str(fits["nominal"].summary())
    fits["cv"].save(tmp_path / "model.bbl")
    loaded = bbl.load(tmp_path / "model.bbl")
    assert loaded.engine == fits["cv"].engine
    pd.testing.assert_frame_equal(loaded.predict(new), fits["cv"].predict(new))


def test_intervals_of_differences_know_the_coding():
    """With one slope the standard errors of the levels rise in equal steps, as the parameters
    do.
    """
    fit = bbl.bbl("y ~ .", table(300, m=2), method="conditional", ordered="linear", ridge=1e-4)
    errors = fit.inference().table(of=("p", "q"))["se"].to_numpy()[:4]
    assert errors[0] > 0.0
    np.testing.assert_allclose(errors, errors[0] * np.arange(1, 5), rtol=1e-6)


def test_repeats_folds_and_relevance_keep_the_order():
    data = table(250)
    options = {"method": "conditional", "ordered": "linear", "seed": 1}
    scores = bbl.crossVal("y ~ .^2", data, ridge=[0.1, 0.001], **options)
    assert np.isfinite(scores.cvframe.to_numpy(float)).all()
    chosen = bbl.bbl("y ~ .", data, relevance=0.05, **options)
    assert chosen.n_parameters <= 2 * 6
    h = chosen.coef().h["p"]["x0"].to_numpy()
    np.testing.assert_allclose(h, h[0] * np.arange(1, 5), atol=1e-9)


@pytest.mark.long
def test_the_average_takes_the_declared_order():
    """`auto` takes the order that is declared, and is what it was where none is."""
    data = table(200)
    plain = table(200, ordered=False)
    in_order, nominal = (
        bbl.bbl("y ~ .^2", d, method="auto", verbose=0, seed=1) for d in (data, plain)
    )
    p, q = (fit.predict(d, type="prob")["p"] for fit, d in ((in_order, data), (nominal, plain)))
    assert np.abs(p - q).max() > 1e-4
    new = table(4000, seed=8)
    losses = [
        fit.evaluate(d).log_loss.loss
        for fit, d in ((in_order, new), (nominal, table(4000, 8, ordered=False)))
    ]
    assert losses[0] < losses[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ordered": "cubic"}, "ordered='cubic' is unknown"),
        ({"ordered": "linear", "ridge": 0}, "Use ridge='cv' or ridge > 0, or ordered='nominal'"),
        ({"ordered": "cv", "ridge": 0}, "ordered='nominal'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(OptionError, match="ordered") as error:
        bbl.bbl("y ~ .", table(50), method="conditional", **options)
    assert words in str(error.value)


def test_an_order_that_nobody_declared_is_refused():
    data = table(60, ordered=False)
    with pytest.raises(OptionError, match=r"an ordered pd\.Categorical, or use ordered='nominal'"):
        bbl.bbl("y ~ .", data, method="conditional", ordered="linear")
    assert bbl.bbl("y ~ .", data, method="conditional", ordered="cv").engine.ordered == "nominal"
    with pytest.raises(OptionError, match="single coding to crossVal"):
        bbl.crossVal("y ~ .", table(60), method="conditional", ordered="cv", ridge=[0.1, 0.01])
