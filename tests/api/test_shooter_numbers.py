"""`shooter` on real-valued predictors: scikit-learn's L1 regression, units, files, refusals."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import BBLTypeError, DataError, LevelError, OptionError

NAMES = list("abcdef")


@pytest.fixture(scope="module")
def table():
    """600 rows of six numbers in [0, 1], two categories, and a response with an interaction."""
    rng = np.random.default_rng(3)
    data = pd.DataFrame(rng.random((600, 6)), columns=NAMES)
    data["d"] = rng.integers(0, 5, 600) / 4
    data["g"] = rng.choice(["u", "v"], 600)
    data["k"] = rng.choice(["p", "q", "r"], 600)
    f = 12 * (data.a - 0.5) * data.b + 3 * (data.c - 0.5) + (data.g == "u") * data.d
    data["y"] = np.where(rng.random(600) < 1 / (1 + np.exp(-f)), "yes", "no")
    return data


def l1_regression(Z, y, lambda_, solver):
    """Return coefficients and intercept of scikit-learn's L1 logistic regression."""
    from sklearn.linear_model import LogisticRegression

    options = {"solver": solver, "tol": 1e-12, "max_iter": 100_000, "C": 1 / lambda_}
    model = LogisticRegression(l1_ratio=1.0, **options).fit(Z, y)
    return model.coef_[0], model.intercept_[0]


@pytest.mark.parametrize("standardise", [False, True])
def test_optimum_is_that_of_scikit_learn(table, standardise):
    X = table[NAMES].to_numpy()
    if standardise:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    lambda_ = 3.0
    options = {"lambda_": lambda_, "numeric": True, "standardise": standardise, "refit": False}
    formula = "y ~ " + " + ".join(NAMES)
    first = bbl.shooter(formula, table, order=1, verbose=0, **options)
    weight, constant = l1_regression(X, table.y, lambda_, "saga")
    found = np.zeros(6)
    for (i,), w in first.chosen.items():
        found[i] = w[0, 0]
    assert np.abs(found - weight).max() < 1e-5
    assert abs(first.intercept[0] - constant) < 1e-5
    # order 2: the chosen numbers, and their products with any other
    kept = [i for (i,) in first.chosen]
    terms = [(i,) for i in kept] + [p for p in combinations(range(6), 2) if set(p) & set(kept)]
    Z = np.column_stack([X[:, list(term)].prod(axis=1) for term in terms])
    weight, constant = l1_regression(Z, table.y, lambda_, "saga")
    second = bbl.shooter(formula, table, order=2, verbose=0, **options)
    found = np.array([second.chosen[t][0, 0] if t in second.chosen else 0.0 for t in terms])
    assert (weight != 0).sum() > 3
    assert np.abs(found - weight).max() < 1e-5
    assert abs(second.intercept[0] - constant) < 1e-5


def test_coefficients_give_the_log_odds_of_categories_and_numbers(table):
    fit = bbl.shooter("y ~ .", table, order=3, lambda_=4, numeric=NAMES, verbose=0)
    assert any({"g", "k"} & set(term) and set(NAMES) & set(term) for term in fit.terms.predictors)
    link = np.zeros(len(table))
    for row in fit.coef().itertuples(index=False):
        value = np.full(len(table), row[-1])
        for name, level in zip(row.predictors, row.levels, strict=True):
            value = value * (table[name] if name in NAMES else table[name] == level)
        link += value
    p = fit.predict(table, type="prob")["yes"]
    np.testing.assert_allclose(np.log(p / (1 - p)), link, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_standardised_predictions_do_not_depend_on_units(table):
    options = {"order": 2, "lambda_": 5, "numeric": True, "standardise": True, "verbose": 0}
    other = table[NAMES] * 1000.0 + 7.0
    fit = bbl.shooter("y ~ .", table[[*NAMES, "y"]], **options)
    shifted = bbl.shooter("y ~ .", other.assign(y=table.y), **options)
    p = fit.predict(table, type="prob")["yes"]
    np.testing.assert_allclose(shifted.predict(other, type="prob")["yes"], p, atol=1e-6)


def test_weights_are_repeated_rows_and_order_does_not_matter(table):
    weights = np.arange(len(table)) % 3 + 1
    repeated = table.loc[np.repeat(table.index, weights)].sample(frac=1, random_state=0)
    options = {"order": 2, "lambda_": 8, "numeric": NAMES, "verbose": 0, "refit": True}
    one = bbl.shooter("y ~ . - k", table, weights=weights, **options)
    two = bbl.shooter("y ~ . - k", repeated, **options)
    assert list(one.chosen) == list(two.chosen)
    assert all((one.chosen[t] == two.chosen[t]).all() for t in one.chosen)


def test_three_groups_satisfy_the_optimality_conditions(table):
    y = np.where(table.e > 0.7, "third", table.y)
    y[::5] = "third"
    data = table.assign(z=y)
    options = {"order": 2, "lambda_": 5, "numeric": True, "refit": False, "verbose": 0}
    fit = bbl.shooter("z ~ a + b + c + e", data, **options)
    assert fit.path["violation"].max() < 1e-6
    assert fit.score(data) > 0.5


@pytest.mark.long
@pytest.mark.parametrize("store_data", [False, True])
def test_file_has_numbers_and_categories(table, tmp_path, store_data):
    fit = bbl.shooter(
        "y ~ .", table, order=2, lambda_=5, numeric=NAMES, standardise=True, verbose=0
    )
    path = tmp_path / "fit.bbl"
    fit.save(path, store_data=store_data)
    loaded = bbl.load(path)
    new = table.assign(a=table.a + 0.123)
    pd.testing.assert_frame_equal(loaded.predict(new), fit.predict(new))
    assert repr(loaded) == repr(fit)
    assert str(loaded.summary()) == str(fit.summary())
    if store_data:
        pd.testing.assert_frame_equal(loaded.predict(), fit.predict())
        assert (loaded.fitted() == fit.fitted()).all(axis=None)


def test_damaged_numbers_are_refused(table):
    from bbl.design.design import Design

    design = bbl.shooter("y ~ a", table, lambda_=5, order=1, numeric=True, verbose=0).design
    stored = design.to_dict()
    stored["predictors"][0]["number"][1] = 0.0
    with pytest.raises(DataError, match="scale"):
        Design.from_dict(stored)


def test_unknown_numbers_are_replaced_by_their_mean(table):
    fit = bbl.shooter("y ~ a + b + c", table, order=2, lambda_=5, numeric=True, verbose=0)
    codes, _ = fit.design.encode(table)
    missing = np.zeros(codes.shape, dtype=bool)
    missing[:, 1] = True
    mean = codes.copy()
    mean[:, 1] = table.b.mean()
    np.testing.assert_allclose(fit._class_scores(codes, missing), fit._class_scores(mean))
    assert fit.importance(table).frame.loc["a", "importance"] > 0


def test_printed_fit_and_report_name_numbers(table, tmp_path, undrawn):
    fit = bbl.shooter("y ~ a + g", table, order=2, lambda_=2, numeric=["a"], verbose=0)
    assert "a = number" in repr(fit) and "g = u v" in repr(fit)
    assert "per unit" in str(fit.summary())
    fit.report(tmp_path / "fit.html")
    assert "numbers" in (tmp_path / "fit.html").read_text()


@pytest.mark.parametrize(
    ("change", "options", "error", "text"),
    [
        ({"a": np.inf}, {}, DataError, "infinite"),
        ({"a": np.nan}, {}, DataError, "missing='drop'"),
        ({"a": "x"}, {}, BBLTypeError, "to_numeric"),
        ({"a": 1.0}, {}, LevelError, "one level"),
        ({}, {"numeric": ["aa"]}, OptionError, "Did you mean 'a'"),
        ({}, {"numeric": 3}, BBLTypeError, "numeric=True"),
        ({}, {"numeric": False, "standardise": True}, OptionError, "numeric=True"),
        ({}, {"xlevels": {"a": [0, 1]}}, OptionError, "xlevels"),
        ({"a": np.nan}, {"missing": "level"}, DataError, "missing='drop'"),
    ],
)
def test_refusals(table, change, options, error, text):
    with pytest.raises(error, match=text):
        bbl.shooter(
            "y ~ a + b", table.assign(**change), **{"numeric": True, "verbose": 0} | options
        )


def test_refusals_of_new_rows(table):
    fit = bbl.shooter("y ~ a + b", table, numeric=True, lambda_=5, order=1, verbose=0)
    with pytest.raises(DataError, match="infinite"):
        fit.predict(table.assign(a=-np.inf))
    with pytest.raises(DataError, match="missing"):
        fit.predict(table.assign(a=np.nan))
    with pytest.raises(OptionError, match="coef"):
        fit.explain(table)


def test_estimators_take_arrays_of_numbers(table):
    from bbl.sklearn import ShooterClassifier, ShooterFeatures

    X = table[NAMES].to_numpy()
    model = ShooterClassifier(2, 5.0, numeric=True).fit(X, table.y)
    named = bbl.shooter(
        "y ~ " + " + ".join(NAMES), table, order=2, lambda_=5, numeric=True, verbose=0
    )
    new = X + 0.01
    expected = named.predict(pd.DataFrame(new, columns=NAMES), type="prob")
    np.testing.assert_array_equal(model.predict_proba(new), expected[["no", "yes"]])
    features = ShooterFeatures(2, 5.0, numeric=list(range(6))).fit(X, table.y)
    products = [
        X[:, [int(part[1:]) for part in name.split(":")]].prod(axis=1)
        for name in features.get_feature_names_out()
    ]
    np.testing.assert_allclose(features.transform(X), np.column_stack(products))


def test_frame_of_the_fit_has_the_numbers(table):
    fit = bbl.shooter(
        "y ~ a + g", table, order=1, numeric=["a"], standardise=True, lambda_=5, verbose=0
    )
    np.testing.assert_allclose(fit.model_frame["a"], table.a)
