"""Models with terms of any order through the verbs, results, files, figures, scikit-learn and the
command line.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl import memory
from bbl.errors import BBLError, DataError, FormulaError, OptionError

TITANIC = bbl.datasets.load_titanic()
FORMULA = "Survived ~ Class*Sex*Age"


@pytest.fixture(scope="module")
def fit():
    return bbl.bbl(FORMULA, TITANIC, weights="Freq", lambda_=1e-3, verbose=0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a, b, c, d = rng.integers(0, 2, (4, 1200))
    c = np.where(rng.random(1200) < 0.3, a ^ b, c)
    y = (rng.random(1200) < np.where(a & b & d, 0.85, 0.35)).astype(int)
    return pd.DataFrame({"y": y, "a": a, "b": b, "c": c, "d": d})


def tables_of(layout, theta):
    return {scope: layout.table(theta, *scope) for scope in layout.scopes}


def test_a_saturated_model_gives_back_the_frequencies(table):
    fit = bbl.bbl("y ~ a*b*d", table, lambda_=0.0, verbose=0)
    layout = fit.estimate.parameters.layout
    shape = tuple(layout.n_levels)
    for g in range(2):
        rows = fit.training.group(g)
        index = np.ravel_multi_index(tuple(rows.codes.T.astype(int)), shape)
        observed = np.bincount(index, rows.weights, np.prod(shape)) / rows.total
        p = oracle.term_probabilities(tables_of(layout, fit.estimate.parameters.theta[g]), shape)
        np.testing.assert_allclose(p, observed, atol=1e-10)
        assert fit.log_z.iloc[g] == pytest.approx(
            oracle.term_log_z(tables_of(layout, fit.estimate.parameters.theta[g]), shape)
        )


def test_scores_are_energies_less_ln_z(fit):
    codes = fit.training.codes
    layout = fit.estimate.parameters.layout
    score = np.column_stack(
        [
            oracle.term_energy(tables_of(layout, theta), codes) - lz + np.log(share)
            for theta, lz, share in zip(
                fit.estimate.parameters.theta, fit.log_z, fit.estimate.class_prior, strict=True
            )
        ]
    )
    expected = np.exp(score - oracle.logsumexp(score)[:, None])
    found = fit.predict(TITANIC[TITANIC["Freq"] > 0], type="prob").iloc[:, :2].to_numpy()
    np.testing.assert_allclose(found, expected[:, :2], atol=1e-12)


def test_coefficients_have_a_column_for_each_predictor(fit):
    frame = fit.tidy()
    assert [c for c in frame.columns if c.startswith("predictor")] == [
        "predictor",
        "predictor2",
        "predictor3",
    ]
    J = fit.coef().J["Yes"]["Class", "Sex", "Age"]
    own = frame[(frame["group"] == "Yes") & frame["predictor3"].notna()]
    np.testing.assert_array_equal(J.to_numpy().ravel(), own["estimate"])
    np.testing.assert_array_equal(
        fit.coef().J["Yes"]["Age", "Class", "Sex"].to_numpy().ravel(), own["estimate"]
    )


def test_interactions_rank_terms_of_all_orders(fit):
    frame = fit.interactions()
    assert frame.columns.tolist()[:6] == [
        "group",
        "order",
        "predictor",
        "predictor2",
        "predictor3",
        "strength",
    ]
    assert sorted(frame["order"]) == [2] * 6 + [3] * 2
    assert (np.diff(frame["strength"]) <= 0).all()
    three = fit.interactions(order=3)
    assert three["order"].tolist() == [3, 3]
    table = np.pad(
        fit.estimate.parameters.layout.table(fit.estimate.parameters.theta[1], 0, 1, 2),
        [(1, 0)] * 3,
    )
    for axis in range(3):
        table = table - table.mean(axis=axis, keepdims=True)
    assert three.set_index("group")["strength"]["Yes"] == pytest.approx(np.sqrt((table**2).sum()))
    assert fit.interactions(order=4).empty
    assert "Class:Sex:Age" in str(fit.summary())


def test_strengths_do_not_depend_on_the_reference_level(table):
    # of a saturated model, at whose optimum the members of a term agree
    usual, turned = (
        bbl.bbl("y ~ a*b*d", table, lambda_=0.0, xlevels=levels, verbose=0)
        for levels in (None, {"b": [1, 0], "d": [1, 0]})
    )
    key = ["group", "order", "predictor", "predictor2"]
    found = [f.interactions().sort_values(key)["strength"].to_numpy() for f in (usual, turned)]
    np.testing.assert_allclose(*found, rtol=1e-8)


def test_files_keep_terms_of_any_order(fit, tmp_path):
    fit.save(tmp_path / "model.bbl")
    again = bbl.load(tmp_path / "model.bbl")
    assert again.estimate.parameters.layout == fit.estimate.parameters.layout
    np.testing.assert_array_equal(again.estimate.parameters.theta, fit.estimate.parameters.theta)
    pd.testing.assert_frame_equal(again.predict(TITANIC), fit.predict(TITANIC))
    # tests need the rows
    key = ["group", "order", "predictor", "predictor2", "predictor3", "strength"]
    pd.testing.assert_frame_equal(again.interactions()[key], fit.interactions()[key])


def test_a_term_without_its_pairs_is_fitted_alone(table):
    fit = bbl.bbl("y ~ a + b + d + a:b:d", table, lambda_=1e-3, verbose=0)
    assert [len(found) for found in fit.estimate.parameters.layout.terms] == [0, 1]
    assert repr(fit).count("dJ_[a,b,d]") == 2
    assert fit.plot()[0] is not None
    with pytest.raises(DataError, match="no pairs to draw.*plot_terms"):
        fit.plot_network()
    plt.close("all")


def test_a_penalty_for_each_order(table):
    strong = bbl.bbl("y ~ .^3", table, lambda_=[1e-4, 10.0], verbose=0)
    pairs = bbl.bbl("y ~ .^2", table, lambda_=1e-4, verbose=0)
    layout = strong.estimate.parameters.layout
    assert np.abs(strong.estimate.parameters.theta[:, layout.pair_start[-1] :]).max() < 5e-3
    np.testing.assert_allclose(
        strong.estimate.parameters.theta[:, : layout.pair_start[-1]],
        pairs.estimate.parameters.theta,
        atol=0.02,
    )
    with pytest.raises(OptionError, match="each order from 2 to 3, but it contains 3"):
        bbl.bbl("y ~ .^3", table, lambda_=[1, 2, 3], verbose=0)


def test_weights_are_repeated_rows():
    few = TITANIC.assign(Freq=(TITANIC["Freq"] // 8).clip(1, 20))
    once = bbl.bbl(FORMULA, few, weights="Freq", lambda_=1e-2, verbose=0)
    often = bbl.bbl(FORMULA, bbl.freq2raw(few, "Freq"), lambda_=1e-2, verbose=0)
    np.testing.assert_array_equal(once.estimate.parameters.theta, often.estimate.parameters.theta)
    np.testing.assert_array_equal(once.log_z, often.log_z)


def test_missing_predictors_are_summed_out(fit):
    some = TITANIC.astype(object).head(6)
    some.loc[0, "Sex"] = some.loc[2, "Age"] = some.loc[3, "Class"] = None
    marginal = bbl.bbl(
        FORMULA, TITANIC, weights="Freq", lambda_=1e-3, missing="marginal", verbose=0
    )
    found = marginal.predict(some, type="prob").iloc[:, :2].to_numpy()
    layout, levels = fit.estimate.parameters.layout, fit.labels.levels
    x = [
        [-1 if v is None else levels[i].index(v) for i, v in enumerate(row)]
        for row in some[["Class", "Sex", "Age"]].to_numpy()
    ]
    score = np.column_stack(
        [
            oracle.term_marginal_energy(tables_of(layout, theta), tuple(layout.n_levels), x)
            - lz
            + np.log(share)
            for theta, lz, share in zip(
                fit.estimate.parameters.theta, fit.log_z, fit.estimate.class_prior, strict=True
            )
        ]
    )
    np.testing.assert_allclose(found, np.exp(score - oracle.logsumexp(score)[:, None]), atol=1e-12)


def test_cross_validation_tuning_and_calibration(table):
    cv = bbl.crossVal(
        "y ~ .^3", table, lambda_=[0.01, 1.0], nfold=3, shuffle=True, seed=1, verbose=0
    )
    assert cv.model.estimate.parameters.layout.order == 3
    tuned = bbl.bbl("y ~ .^3", table, lambda_="cv", calibrate="offset", verbose=0)
    assert tuned.tuning.option == "lambda_"
    assert tuned.engine.lambda_ in tuned.tuning.values


def test_sampling_verbs_take_terms_of_three(fit):
    found = bbl.mcSample(fit, nsteps=200, seed=1, verbose=0)
    layout = fit.estimate.parameters.layout
    for g, group in enumerate(fit.labels.groups):
        E = oracle.term_energy(
            tables_of(layout, fit.estimate.parameters.theta[g]),
            oracle.states(tuple(layout.n_levels)),
        )
        assert found.emax[group] == pytest.approx(E.max(), abs=1e-12)
    levels = [[0, 1], [0, 1], [0, 1]]
    par = bbl.GroupParameters([np.zeros(1)] * 3, {(0, 1, 2): np.full((1, 1, 1), 3.0)})
    rows = bbl.sample_xi(20_000, levels, par.h, par.J, code_out=True, seed=1).to_numpy()
    Z = 7 + np.exp(3.0)
    assert (rows.all(axis=1)).mean() == pytest.approx(np.exp(3.0) / Z, abs=0.02)
    assert "J[0, 1, 2]:\n  1:1\n1   3" in repr(par)
    drawn = bbl.randomsamp(levels, ["u", "v"], par=[par, par], nsample=5000, seed=2)
    assert (drawn[["x1", "x2", "x3"]] == 1).all(axis=1).mean() == pytest.approx(
        np.exp(3.0) / Z, abs=0.04
    )


def test_engines_of_fewer_orders_say_why(table):
    with pytest.raises(
        FormulaError,
        match="a:b:c, a term of three or more predictors, but method='mf'.*pairwise covariances",
    ):
        bbl.bbl("y ~ .^3", table, method="mf", verbose=0)
    naive = bbl.bbl("y ~ .^3", table, method="naive", verbose=0)
    assert naive.estimate.parameters.layout.order == 1


@pytest.mark.long
def test_too_many_terms_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 2**30)
    wide = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (40, 784)).astype(np.int8))
    wide.columns = [f"p{k}" for k in range(784)]
    wide.insert(0, "y", [0, 1] * 20)
    with pytest.raises(
        BBLError,
        match=r"80,314,920 terms with 80,314,920 couplings.*31.* GiB of memory, but 8.0 GiB",
    ):
        bbl.bbl("y ~ .^3", wide, verbose=0)


def test_levels_that_never_occur_together_and_copies_are_told(table):
    apart = table.assign(b=np.where(table["a"] == 1, 0, table["b"]))
    fit = bbl.bbl("y ~ a*b*d", apart, lambda_=1e-3, verbose=0)
    tests = fit.inference().tests()
    three = tests[tests["predictor3"].notna()]
    assert (three["test"] == "not estimable: no rows").all() and three["p"].isna().all()
    copied = bbl.bbl("y ~ a*e*d", table.assign(e=table["a"]), lambda_=1e-3, verbose=0)
    three = copied.inference().tests().dropna(subset="predictor3")
    assert three["p"].isna().all() and three["test"].str.startswith("not estimable").all()


def test_figures_of_a_term(fit):
    axes = fit.plot_terms()
    assert len(axes) == 2
    np.testing.assert_array_equal(
        axes[1].images[0].get_array(),
        fit.estimate.parameters.layout.table(fit.estimate.parameters.shift[1], 0, 1, 2)[:, :, 0],
    )
    assert len(fit.plot_terms(["Sex", "Age", "Class"], groups=["Yes"])) == 3
    for make in (fit.plot, fit.plot_network, lambda: fit.plot_logo(kind="fields")):
        assert make()
    with pytest.raises(OptionError, match="term of three.*Did you mean 'Class'"):
        fit.plot_terms(["Clas", "Sex", "Age"])
    with pytest.raises(DataError, match="no terms of three"):
        bbl.bbl("Survived ~ .^2", TITANIC, weights="Freq", verbose=0).plot_terms()
    plt.close("all")


def test_the_classifier_has_an_order(table):
    pytest.importorskip("sklearn")
    from bbl.sklearn import BBLClassifier

    X, y = table.drop(columns="y"), table["y"]
    model = BBLClassifier("pseudo", order=3, lambda_=1e-3).fit(X, y)
    assert [len(t) for t in model.result_.estimate.parameters.layout.terms] == [6, 4]
    some = BBLClassifier("pseudo", pairs=[("a", "b"), ("a", "b", "d")], lambda_=1e-3).fit(X, y)
    assert [len(t) for t in some.result_.estimate.parameters.layout.terms] == [1, 1]
    assert (model.predict(X) == y).mean() > 0.5
    with pytest.raises(ValueError, match="order"):
        BBLClassifier("pseudo", order=0).fit(X, y)


def test_all_terms_are_listed_in_order(table):
    fit = bbl.bbl("y ~ .^4", table, lambda_=0.1, verbose=0)
    names = [tuple(key) for key in fit.coef().J[0]]
    assert names == [t for k in (2, 3, 4) for t in itertools.combinations("abcd", k)]
