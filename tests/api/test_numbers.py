"""Numeric predictors: the location model, and what is computed from it."""

import json
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import reference_numbers as oracle
from numpy.testing import assert_allclose
from scipy import stats

import bbl
from bbl.__main__ import main
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.stats.group_means import equal_means

L = [2, 3]
PARTNERS = np.array([[True, True], [True, True]])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    n = 240
    y = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.3 + 0.4 * y).astype(int)
    b = rng.integers(0, 3, n)
    u = rng.normal(size=n) + y + 0.8 * a - 0.5 * (b == 2)
    v = 0.6 * u + rng.normal(size=n) + 100.0
    return pd.DataFrame({"y": np.array(["n", "s"])[y], "a": a, "b": b, "u": u, "v": v})


def location(fit):
    return fit.estimate.location


def numeric(formula, data, **options):
    return bbl.bbl(formula, data, **{"numeric": ["u", "v"], "lambda_": 0.0} | options)


def columns(data):
    codes = data[["a", "b"]].to_numpy()
    return codes, data[["u", "v"]].to_numpy(), (data["y"] == "s").to_numpy().astype(int)


def location_model(codes, u, y):
    """Return the logarithms of the groups' shares, and a function of the codes and numbers of a
    row and its group that returns ln p(x, u | y), both by enumeration.
    """
    means, S = oracle.location(codes, u, y, L, PARTNERS, np.ones((2, 2), bool))
    n = np.array(
        [np.bincount(3 * c[:, 0] + c[:, 1], minlength=6) for c in (codes[y == 0], codes[y == 1])]
    )
    log_p = [
        {(a, b): np.log(n[g, 3 * a + b] / n[g].sum()) for a in range(2) for b in range(3)}
        for g in range(2)
    ]

    def log_joint(x, numbers, g):
        return oracle.log_joint(x, numbers, log_p[g], means[g], S[g], L, PARTNERS)

    return np.log(n.sum(axis=1) / n.sum()), log_joint


@pytest.mark.parametrize("covariance", ["group", "shared"])
@pytest.mark.parametrize("divisor", ["moment", "ml"])
def test_means_and_covariances_are_least_squares(table, covariance, divisor):
    fit = numeric("y ~ (a + b + u + v)^2", table, covariance=covariance, divisor=divisor)
    means, S = oracle.location(
        *columns(table), L, PARTNERS, np.ones((2, 2), bool), covariance == "shared",
        divisor == "moment",
    )  # fmt: skip
    for g, group in enumerate(fit.labels.groups):
        for j, name in enumerate("uv"):
            assert_allclose(fit.means().loc[name, group], means[g][j], rtol=1e-9)
        assert_allclose(fit.covariances(group), S[g], rtol=1e-9)


def test_probabilities_follow_bayes_rule(table):
    fit = numeric("y ~ (a + b + u + v)^2", table, method="ml")
    codes, u, y = columns(table)
    shares, log_joint = location_model(codes, u, y)
    scores = [
        [shares[g] + log_joint(x, numbers, g) for g in range(2)]
        for x, numbers in zip(codes[:20], u[:20], strict=True)
    ]
    p = np.exp(np.array(scores) - np.logaddexp.reduce(scores, axis=1)[:, None])
    assert_allclose(fit.predict(table.head(20), type="prob")[["n", "s"]], p, atol=1e-9)
    total = sum(map(log_joint, codes, u, y))
    assert_allclose(float(fit.logLik()), total, rtol=1e-9)


def test_missing_levels_and_numbers_are_averaged_over(table):
    gaps = table.astype({"a": "Int64", "b": "Int64"})
    fit = numeric("y ~ (a + b + u + v)^2", gaps, method="ml", missing="marginal")
    codes, u, y = columns(table)
    shares, log_joint = location_model(codes, u, y)
    new = gaps.head(8).copy()
    x, numbers = codes[:8].copy(), u[:8].copy()
    new.loc[[0, 3, 7], "a"], x[[0, 3, 7], 0] = pd.NA, -1
    new.loc[[1, 3], "b"], x[[1, 3], 1] = pd.NA, -1
    new.loc[[2, 3, 4], "u"], numbers[[2, 3, 4], 0] = np.nan, np.nan
    new.loc[[4, 7], "v"], numbers[[4, 7], 1] = np.nan, np.nan
    scores = [[shares[g] + log_joint(x[k], numbers[k], g) for g in range(2)] for k in range(8)]
    p = np.exp(np.array(scores) - np.logaddexp.reduce(scores, axis=1)[:, None])
    assert_allclose(fit.predict(new, type="prob")[["n", "s"]], p, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"covariance": "shared"}, {"transform": "normal"}])
def test_a_weight_is_a_repeated_row(table, options):
    counts = np.arange(len(table)) % 3
    repeated = table.loc[table.index.repeat(counts)]
    one = numeric("y ~ (a + b + u + v)^2", table.assign(w=counts), weights="w", **options)
    other = numeric("y ~ (a + b + u + v)^2", repeated, **options)
    assert_allclose(one.means(), other.means(), rtol=1e-9)
    assert_allclose(one.covariances(), other.covariances(), rtol=1e-9)
    effects = [
        fit.avg_comparisons(["a", "u"], newdata=table.drop(columns="w", errors="ignore"))
        for fit in (one, other)
    ]
    assert_allclose(effects[0].frame["std_error"], effects[1].frame["std_error"], rtol=1e-7)


def test_the_order_of_rows_and_their_number_of_threads_do_not_matter(table):
    mixed = table.sample(frac=1.0, random_state=3)
    one = numeric("y ~ (a + b + u + v)^2", table)
    for other in (
        numeric("y ~ (a + b + u + v)^2", mixed),
        numeric("y ~ (a + b + u + v)^2", table, n_jobs=2),
    ):
        assert_allclose(one.predict(table)[["n", "s"]], other.predict(table)[["n", "s"]], rtol=1e-9)


def test_the_scale_of_real_weights_does_not_matter(table):
    w = np.random.default_rng(1).random(len(table)) + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [numeric("y ~ a + b + a:u + u + v", table, weights=w * s) for s in (1e-5, 1.0, 1e5)]
    for fit in fits[1:]:
        assert "analysis of variance" not in str(fit.summary())
        assert_allclose(fit.means(), fits[0].means(), rtol=1e-9)
        assert_allclose(fit.covariances(), fits[0].covariances(), rtol=1e-9)


def test_numbers_that_are_left_out_of_the_interactions_are_independent(table):
    fit = numeric("y ~ a + b + u + v", table, divisor="ml")
    assert fit.means().index.tolist() == [("u", "mean"), ("v", "mean")]
    own = table[table["y"] == "s"]
    assert_allclose(fit.covariances("s"), np.diag(own[["u", "v"]].var(ddof=0)), rtol=1e-9)


def test_partial_correlations_that_are_left_out_are_zero():
    rng = np.random.default_rng(2)
    data = pd.DataFrame(rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)), columns=list("uvw"))
    data["y"] = rng.integers(0, 2, 200)
    fit = bbl.bbl("y ~ u*v + v*w", data, numeric=["u", "v", "w"])
    for g in range(2):
        S = fit.covariances(g).to_numpy()
        assert abs(np.linalg.inv(S)[0, 2]) < 1e-12 * np.abs(np.linalg.inv(S)).max()
        rows = data.loc[data["y"] == g, ["u", "v", "w"]]
        raw = np.cov(rows, rowvar=False)
        kept = ~np.isin(np.arange(9).reshape(3, 3), [2, 6])
        assert_allclose(S[kept], raw[kept], rtol=1e-12)


def test_different_partners_of_correlated_numbers_maximise_the_likelihood(table):
    fit = numeric("y ~ a + b + u*v + a:u + b:v", table, divisor="ml")
    model = location(fit).model

    def profile(C, rows):
        """Return the log-likelihood of rows of one group, maximised over the covariance."""
        r = rows[:, model.numbers] - model.indicators(rows) @ C
        return -0.5 * len(rows) * np.linalg.slogdet(r.T @ r / len(rows))[1]

    for g, C in enumerate(location(fit).C):
        rows = fit.training.codes[fit.training.y == g]
        for j, column in np.argwhere(model.has_column):
            step = np.zeros_like(C)
            step[column, j] = 1e-4
            slope = (profile(C + step, rows) - profile(C - step, rows)) / 2e-4
            assert abs(slope) < 1e-4


def test_a_level_without_rows_in_a_group_has_the_mean_of_the_group(table):
    data = table[(table["y"] == "s") | (table["b"] != 0)]
    fit = bbl.bbl("y ~ b + u + b:u", data, numeric="u", lambdah=0.01)
    own = data[data["y"] == "n"]
    means = fit.means()["n"].loc["u"]
    assert_allclose(means["(reference levels)"], own["u"].mean(), rtol=1e-9)
    assert_allclose(means.iloc[:1].sum() + means["b: 1"], own.loc[own["b"] == 1, "u"].mean())
    effects = fit.avg_comparisons("b", newdata=data.head(5))
    assert (
        "not estimable" in set(effects.frame["note"]).pop()
        or effects.frame["std_error"].isna().any()
    )


def test_a_prior_count_shrinks_effects_and_covariances(table):
    fits = [
        bbl.bbl("y ~ a + u + v + a:u + u:v", table, numeric=["u", "v"], prior_count=c)
        for c in (0.0, 10.0, 1e9)
    ]
    effects = [abs(fit.means().loc[("u", "a: 1")]).max() for fit in fits]
    assert effects[0] > effects[1] > effects[2] and effects[2] < 1e-6
    assert abs(fits[2].covariances("s").loc["u", "v"]) < 1e-6


def test_shrinking_moves_covariances_to_the_pooled_diagonal(table):
    none, half, full = (
        numeric("y ~ u*v", table, shrink=s).covariances("s").to_numpy() for s in (0.0, 0.5, 1.0)
    )
    assert_allclose(half, (none + full) / 2)
    assert full[0, 1] == 0.0


def test_normal_scores_make_predictions_invariant_to_monotone_changes(table):
    changed = table.assign(u=np.exp(table["u"]), v=table["v"] ** 3)
    one, other = (
        numeric("y ~ a + b + u*v + a:u", data, transform="normal") for data in (table, changed)
    )
    assert_allclose(one.predict(table)[["n", "s"]], other.predict(changed)[["n", "s"]], rtol=1e-9)


@pytest.mark.long
def test_saved_models_predict_the_same_bits(table, tmp_path):
    for options in ({}, {"transform": "normal"}, {"covariance": "shared"}):
        fit = numeric("y ~ (a + b + u + v)^2", table, **options)
        fit.save(tmp_path / "fit.bbl", store_data=True)
        loaded = bbl.load(tmp_path / "fit.bbl")
        pd.testing.assert_frame_equal(loaded.predict(table), fit.predict(table), check_exact=True)
        pd.testing.assert_frame_equal(loaded.model_frame, fit.model_frame)
        assert repr(loaded) == repr(fit)
        effects = [one.avg_comparisons("u").frame for one in (loaded, fit)]
        pd.testing.assert_frame_equal(*effects)


def test_draws_have_the_moments_of_the_model(table):
    fit = numeric("y ~ (a + b + u + v)^2", table)
    drawn = fit.sample(40_000, seed=1)
    again = numeric("y ~ (a + b + u + v)^2", drawn)
    assert_allclose(again.means(), fit.means(), atol=0.12)
    assert_allclose(again.covariances(), fit.covariances(), atol=0.1)


def test_contributions_add_up_to_the_log_odds(table):
    for formula in ("y ~ (a + b + u + v)^2", "y ~ a + b + u + v + a:u", "y ~ u*v"):
        explained = numeric(formula, table).explain(table.head(5)).frame
        assert_allclose(explained.iloc[:, 2:-1].sum(axis=1), explained["log_odds"], rtol=1e-9)


def test_importance_and_cross_validation_refit_numbers(table):
    importance = numeric("y ~ (a + b + u + v)^2", table).importance().frame
    assert set(importance.index) == {"a", "b", "u", "v"}
    assert importance.loc["u", "importance"] > 0.01
    cv = bbl.crossVal(
        "y ~ (a + b + u + v)^2", table, numeric=["u", "v"], lambda_=[0.01, 1.0], verbose=0
    )
    assert cv.cvframe["AUC"].min() > 0.7


def test_all_numbers_and_columns_that_look_like_numbers(table):
    fit = bbl.bbl(
        "y ~ .", table.assign(k=np.arange(240) % 30, few=np.arange(240) % 3), numeric=True
    )
    assert [fit.labels.names[i] for i in fit.labels.measured] == ["u", "v", "k"]
    alone = bbl.bbl("y ~ u", table, numeric=True)
    assert alone.predict(table).shape == (240, 3)
    assert "Means of u" in repr(alone)


def test_density_of_rows_with_numbers(table):
    fit = bbl.bbl("~ a + u + a:u", table, numeric="u", divisor="ml")
    share = table["a"].mean()
    row = table.iloc[0]
    own = table[table["a"] == row["a"]]["u"]
    residual = table["u"] - table.groupby("a")["u"].transform("mean")
    expected = np.log(share if row["a"] else 1 - share) + oracle.log_normal(
        np.array([row["u"]]), np.array([own.mean()]), np.array([[residual.var(ddof=0)]])
    )
    assert_allclose(fit.score_samples(table.head(1)), expected, rtol=1e-6)


def test_steps_and_values_of_numbers(table):
    fit = numeric("y ~ (a + b + u + v)^2", table)
    sd = table["u"].std(ddof=0)
    one = fit.avg_comparisons("u").frame["estimate"]
    same = fit.avg_comparisons("u", step=sd).frame["estimate"]
    assert_allclose(one, same)
    moved = fit.predict(table.assign(u=table["u"] + sd), type="prob")[["n", "s"]].mean()
    assert_allclose(one.iloc[-1], (moved - fit.predict(table, type="prob")[["n", "s"]].mean())["s"])
    pair = fit.avg_comparisons({"u": (1.0, 0.0)}).frame
    at = [fit.predict(table.assign(u=c), type="prob")["s"].mean() for c in (0.0, 1.0)]
    assert_allclose(pair["estimate"].iloc[-1], at[1] - at[0])
    assert pair["contrast"].iloc[0] == "1 - 0"
    slopes = fit.avg_slopes("u").frame["estimate"].iloc[-1]
    h = 1e-3
    up, down = (fit.predict(table.assign(u=table["u"] + s), type="prob")["s"] for s in (h, -h))
    assert_allclose(slopes, ((up - down) / (2 * h)).mean(), rtol=1e-5)


@pytest.mark.long
def test_standard_errors_are_those_of_the_bootstrap(table):
    fit = numeric("y ~ (a + b + u + v)^2", table, method="ml")
    delta = fit.avg_comparisons(["a", "u", "v"]).frame["std_error"]
    drawn = fit.avg_comparisons(["a", "u", "v"], se="bootstrap", nboot=200, verbose=0)
    assert_allclose(delta, drawn.frame["std_error"], rtol=0.25)


def test_invalid_numbers_are_refused(table):
    with pytest.raises(DataError, match=r"infinite"):
        numeric("y ~ a + u + v", table.assign(u=np.inf))
    with pytest.raises(DataError, match=r"'u' has 1 missing value"):
        numeric("y ~ a + u + v", table.assign(u=table["u"].where(table.index > 0)))
    with pytest.raises(BBLTypeError, match="not a number"):
        numeric("y ~ a + u + v", table.assign(u=table["u"].astype(str) + "x"))
    with pytest.raises(OptionError, match="numeric contains 'z'"):
        bbl.bbl("y ~ a", table, numeric="z")
    with pytest.raises(OptionError, match="covariance='full' is unknown"):
        numeric("y ~ a + u + v", table, covariance="full")
    with pytest.raises(
        DataError, match=r"'v' is a linear function of the other numeric predictors in group 'n'"
    ):
        numeric("y ~ u*v", table.assign(u=table["v"] * 2 - 1, v=table["v"]))


# R 4.2.2, MASS 7.3-58.2: predict(lda(y ~ ., iris))$posterior and qda, rows 109 and 121
R_LDA = [[1.3233896287596031e-42, 0.00022353129126725794, 0.9997764687087326]]


def test_discriminant_analysis_of_iris():
    iris = pytest.importorskip("sklearn.datasets").load_iris(as_frame=True)
    data = iris["data"].set_axis(["sl", "sw", "pl", "pw"], axis=1).assign(y=iris["target"])
    lda = bbl.bbl("y ~ .^2", data, numeric=True, covariance="shared")
    p = lda.predict(data.iloc[[108]], type="prob")[[0, 1, 2]].to_numpy()
    assert_allclose(p, R_LDA, rtol=1e-8)
    qda = bbl.bbl("y ~ .^2", data, numeric=True)
    assert (qda.predict(type="class").to_numpy() == data["y"]).mean() == 0.98


def reference(shared, name):
    folder = shared / "reference" / "numbers"
    return pd.read_csv(folder / f"{name}.csv"), json.loads((folder / "expected.json").read_text())[
        name
    ]


@pytest.mark.parametrize("name", ["iris", "penguins", "titanic_age"])
def test_mass_and_lm_agree(shared, name):
    data, expected = reference(shared, name)
    numbers = [c for c in data if data[c].dtype.kind == "f"]
    nominal = [c for c in data if c not in [*numbers, "y"]]
    rows = np.array(expected["rows (0-based)"], dtype=int)
    K = data["y"].nunique()

    def check(key, formula, **options):
        fit = bbl.bbl(formula, data, numeric=numbers, lambda_=0, **options)
        p = fit.predict(data.iloc[rows], type="prob").iloc[:, :K]
        assert_allclose(p, np.reshape(expected[key], (-1, K)), atol=1e-10)
        return fit

    joined = " + ".join(numbers)
    pairs = f"y ~ ({joined})^2"
    check("lda moment posterior (rows x groups)", pairs, covariance="shared")
    check("lda mle posterior", pairs, covariance="shared", divisor="ml")
    check("qda moment posterior", pairs)
    check("qda mle posterior", pairs, divisor="ml")
    check("gaussian naive bayes mle posterior", f"y ~ {joined}", divisor="ml")
    full = pairs + "".join(f" + {a}" for a in nominal)
    full += "".join(f" + {a}:{u}" for a in nominal for u in numbers)
    check("location posterior, naive x, shared moment covariance", full, covariance="shared")
    fit = check("location posterior, naive x, group moment covariance", full)
    for group in fit.labels.groups:
        C = np.reshape(
            expected[f"means coefficients (coefficient x number) of {group}"], (-1, len(numbers))
        )
        ours = fit.means()[group].to_numpy().reshape(len(numbers), -1).T
        assert_allclose(ours, C, rtol=1e-9, atol=1e-9)
        S = np.ravel(expected[f"covariance moment of {group}"])
        assert_allclose(fit.covariances(group).to_numpy().ravel(), S, rtol=1e-9)
    group, together, ratio, df = expected[
        "logLik of numbers given x and y, ml: group, shared, 2 x difference, df"
    ]
    alone = bbl.bbl(f"y ~ {' + '.join(nominal) or 1}", data)
    fits = [
        bbl.bbl(full, data, numeric=numbers, lambda_=0, divisor="ml", covariance=c)
        for c in ("group", "shared")
    ]
    for fit, value in zip(fits, (group, together), strict=True):
        assert_allclose(float(fit.logLik()) - float(alone.logLik()), value, rtol=1e-9)
    assert fits[0].n_parameters - fits[1].n_parameters == df
    assert_allclose(2 * (float(fits[0].logLik()) - float(fits[1].logLik())), ratio, rtol=1e-7)


def test_effects_and_sandwich_errors_agree(shared):
    data, _ = reference(shared, "titanic_age")
    expected = json.loads((shared / "reference" / "numbers" / "titanic_effects.json").read_text())
    for options in ({"lambda_": 0}, {"method": "ml"}):
        fit = bbl.bbl("y ~ (sex + passengerClass + age)^2", data, numeric="age", **options)
        frame = pd.concat(
            [
                fit.avg_comparisons(["sex", "age"], step={"age": 10}).frame,
                fit.avg_slopes("age").frame,
            ]
        )
        assert_allclose(frame["estimate"], np.ravel(expected["estimate"]), atol=1e-6)
        assert_allclose(frame["std_error"], np.ravel(expected["se_sandwich"]), rtol=1e-4)


# R 4.2.2: anova(lm(u ~ y)) and summary(manova(cbind(...) ~ y), test="Wilks") of iris
R_F = [119.26450218450466, 49.1600400896121, 1180.1611822529778, 960.0071468018059]
R_WILKS = ["0.02344", "199.1", "8 and 288", "1.365e-112"]


def test_the_summary_tests_group_means():
    iris = pytest.importorskip("sklearn.datasets").load_iris(as_frame=True)
    data = iris["data"].set_axis(["sl", "sw", "pl", "pw"], axis=1).assign(y=iris["target"])
    lda, qda = (bbl.bbl("y ~ .^2", data, numeric=True, covariance=c) for c in ("shared", "group"))
    text = str(lda.summary())
    assert all(value in text for value in R_WILKS)
    sums = location(lda).T[:, 0, 1:]
    squares = location(lda).T[:, 1:, 1:].diagonal(0, 1, 2)
    assert_allclose(equal_means(location(lda).n, sums, squares).F, R_F, rtol=1e-9)
    table = bbl.anova(lda, qda)
    assert "Box's M" in str(table)
    # biotools::boxM(iris[, 1:4], iris$Species)
    assert "140.9430" in str(table)


def test_models_of_numbers_are_compared_by_their_likelihood(table):
    small, large = (numeric(f, table, divisor="ml") for f in ("y ~ a + u*v", "y ~ a + u*v + a:u"))
    result = small._ratio_test(large)
    assert_allclose(result["ratio"], 2 * (float(large.logLik()) - float(small.logLik())), rtol=1e-6)
    assert result["df"] == 2 and result["p"] < 1e-3
    levels = [numeric(f, table, numeric="u") for f in ("y ~ a*b + u", "y ~ a + b + u")]
    without = bbl.bbl("y ~ a*b", table, lambda_=0.0), bbl.bbl("y ~ a + b", table, lambda_=0.0)
    assert levels[1]._ratio_test(levels[0])["p"] == without[1]._ratio_test(without[0])["p"]
    with pytest.raises(OptionError, match="differ in both couplings and numeric predictors"):
        levels[1]._ratio_test(numeric("y ~ a*b + a:u + u", table, numeric="u"))


@pytest.mark.long
def test_box_test_has_its_size():
    rng = np.random.default_rng(5)
    rejected = 0
    for _ in range(400):
        data = pd.DataFrame(rng.normal(size=(120, 4)), columns=list("abcd"))
        data["y"] = np.repeat(np.arange(3), 40)
        one, two = (
            bbl.bbl("y ~ .^2", data, numeric=True, covariance=c) for c in ("shared", "group")
        )
        rejected += one._ratio_test(two)["p"] < 0.05
    assert 6 <= rejected <= 36


def test_the_command_line_fits_numbers(table, tmp_path, capsys):
    table.to_csv(tmp_path / "t.csv", index=False)
    path = str(tmp_path / "t.csv")
    model = str(tmp_path / "fit.bbl")
    assert main(["y ~ a + u + v + a:u", path, "--numeric", "u,v", "--save", model]) == 0
    assert "Means of u" in capsys.readouterr().out
    assert main(["predict", model, path]) == 0
    rows = capsys.readouterr().out.splitlines()
    fit = bbl.bbl("y ~ a + u + v + a:u", table, numeric=["u", "v"])
    assert float(rows[1].split(",")[0]) == pytest.approx(
        fit.predict(table, type="prob")["n"].iloc[0]
    )


def test_the_estimator_fits_numbers(table):
    sklearn = pytest.importorskip("bbl.sklearn")
    X, y = table.drop(columns="y"), table["y"]
    model = sklearn.BBLClassifier("naive", numeric=["u", "v"], options={"shrink": 0.1}).fit(X, y)
    fit = bbl.bbl("y ~ .", table, method="naive", numeric=["u", "v"], shrink=0.1)
    assert_allclose(model.predict_proba(X), fit.predict(table, type="prob")[["n", "s"]])


# R 4.2.2, MASS 7.3-58.2: lda(Species ~ ., iris)$scaling, up to the sign
R_SCALING = [
    [0.8293776, 1.5344731, -2.2012117, -2.8104603],
    [0.0241021, 2.1645212, -0.9319212, 2.8391879],
]


def test_discriminants_are_those_of_lda():
    iris = pytest.importorskip("sklearn.datasets").load_iris(as_frame=True)
    data = iris["data"].set_axis(["sl", "sw", "pl", "pw"], axis=1).assign(y=iris["target"])
    found = bbl.bbl("y ~ .^2", data, numeric=True).discriminants()
    for k, column in enumerate(R_SCALING):
        sign = np.sign(found.iloc[0, k] * column[0])
        assert_allclose(found.iloc[:, k], sign * np.array(column), atol=1e-6)


def iris_fit(**options):
    iris = pytest.importorskip("sklearn.datasets").load_iris(as_frame=True)
    data = iris["data"].set_axis(["sl", "sw", "pl", "pw"], axis=1).assign(y=iris["target"])
    return bbl.bbl("y ~ .^2", data, numeric=True, **options)


@pytest.mark.parametrize("covariance", ["shared", "group"])
def test_a_figure_of_discriminants_has_the_scores_of_each_row(covariance):
    fit = iris_fit(covariance=covariance)
    ax = fit.plot_discriminants()
    # R 4.2.2, MASS 7.3-58.2: the proportions of trace
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("LD1 (99.1 %)", "LD2 (0.9 %)")
    numbers = pytest.importorskip("sklearn.datasets").load_iris()["data"]
    scores = (numbers - numbers.mean(axis=0)) @ fit.discriminants().to_numpy()
    ellipses = [line for line in ax.lines if len(line.get_xdata()) > 1]
    means = [line for line in ax.lines if len(line.get_xdata()) == 1]
    for g in range(3):
        own = scores[50 * g : 50 * (g + 1)]
        assert_allclose(ax.collections[g].get_offsets(), own, atol=1e-9)
        assert_allclose(means[g].get_xydata()[0], own.mean(axis=0), atol=1e-9)
        # squared Mahalanobis distance of the ellipse: the 95 % quantile of chi-square, 2 df
        S = np.eye(2) if covariance == "shared" else np.cov(own.T)
        from_mean = ellipses[g].get_xydata() - own.mean(axis=0)
        distances = (from_mean @ np.linalg.inv(S) * from_mean).sum(axis=1)
        assert_allclose(distances, 5.991464547, rtol=1e-8)
    plt.close("all")


def test_a_single_discriminant_has_normal_densities(table):
    fit = numeric("y ~ u*v + a", table)
    axis = fit.plot_discriminants()
    scores = fit.discriminants()["LD1"]
    projected = (table[["u", "v"]] - table[["u", "v"]].mean()) @ scores
    for group, line in zip(fit.labels.groups, axis.lines, strict=True):
        own = projected[table["y"] == group]
        x, density = line.get_data()
        assert_allclose(density, stats.norm.pdf(x, own.mean(), own.std()), rtol=1e-8)
    plt.close("all")


@pytest.mark.long
def test_figures_show_means_and_regions(table):
    fit = numeric("y ~ u*v", table)
    for panels in (fit.plot_means(), fit.plot()):
        assert [ax.get_title() for ax in panels] == ["u", "v"]
        centre = panels[0].lines[0].get_ydata()[0]
        assert_allclose(centre, table.loc[table["y"] == "n", "u"].mean())
    ax = numeric("y ~ (a + b + u + v)^2", table).plot_regions("u", "v")
    winner = ax.collections[0].get_array().reshape(300, 300)
    u, v = (np.linspace(*limits, 300) for limits in (ax.get_xlim(), ax.get_ylim()))
    new = pd.DataFrame({"a": 0, "b": 0, "u": u[[3, 75, 140]], "v": v[[10, 75, 100]]})
    expected = numeric("y ~ (a + b + u + v)^2", table).predict(new, type="class") == "s"
    assert winner[[10, 75, 100], [3, 75, 140]].tolist() == expected.astype(int).tolist()
    numeric("y ~ u*v + a", table).plot(kind="confusion")
    plt.close("all")


def test_large_models_with_numbers_are_fitted_by_lbfgs(table, monkeypatch):
    """The solver for large models does not accept predictors with one level."""
    from bbl.engines.pseudo import engine

    plain = numeric("y ~ (a + b + u + v)^2", table, lambda_=1e-3)
    monkeypatch.setattr(engine, "is_small", lambda n, layout: False)
    large = numeric("y ~ (a + b + u + v)^2", table, lambda_=1e-3)
    assert_allclose(large.predict(table)[["n", "s"]], plain.predict(table)[["n", "s"]], atol=1e-4)


def test_parts_of_an_explanation_without_levels_add_up(table):
    frame = numeric("y ~ u + v", table).explain(table).frame
    assert_allclose(frame.iloc[:, 2:-1].sum(axis=1), frame["log_odds"], atol=1e-9)


def test_effects_of_a_model_with_numbers_alone_have_errors(table):
    effects = bbl.bbl("y ~ u*v", table, numeric=["u", "v"], method="naive").avg_comparisons("u")
    assert (effects.frame["std_error"] > 0.0).all()


def test_names_of_numbers_are_names_not_their_printed_text(table):
    renamed = table.rename(columns={"u": "a\tb"})
    fit = bbl.bbl("y ~ `a\tb` + v", renamed, numeric=["a\tb", "v"])
    assert fit.means().index.get_level_values("number").tolist() == ["a\tb", "v"]


def test_a_covariance_without_degrees_of_freedom_is_singular():
    data = pd.DataFrame({"y": list("aab"), "u": [1.0, 2.0, 4.0], "c": list("pqp")})
    with pytest.warns(bbl.DataWarning), pytest.raises(DataError, match="Leave .u. out") as caught:
        bbl.bbl("y ~ c*u", data, numeric="u", covariance="shared")
    assert "shrink" not in caught.value.hint


def test_a_copied_number_with_other_partners_is_singular(table):
    copied = table.assign(v=2.0 * table["u"])
    with pytest.raises(DataError, match="linear function"):
        numeric("y ~ a:u + b + a + u*v", copied)


def test_discriminants_of_dependent_numbers_are_refused(table):
    copied = table.assign(v=2.0 * table["u"])
    fit = numeric("y ~ u*v", copied, shrink=0.2)
    with pytest.raises(DataError, match="no discriminants"):
        fit.discriminants()


@pytest.mark.parametrize("scale", [1, 3, 7, 103])
def test_the_number_named_as_dependent_is_the_last(table, scale):
    """Two dependencies: the null space of the covariance has many bases, chosen by rounding."""
    copied = table.assign(w=2.0 * table["u"], x=3.0 * table["v"], weight=scale * (table["a"] + 1))
    options = {"numeric": list("uvwx"), "shrink": 0.2}
    fit = bbl.bbl("y ~ (u + v + w + x)^2", copied, "weight", **options)
    with pytest.raises(DataError, match="no discriminants") as caught:
        fit.discriminants()
    assert caught.value.column == "x"


def test_wald_tests_of_means_are_robust_regressions(table):
    """The statistics of statsmodels' least squares with HC0 covariances, group by group."""
    import statsmodels.api as sm

    fit = numeric("y ~ a + b + u + v + a:u + b:u + u:v", table)
    tests = fit.inference().tests(of=("s", "n"))
    own = tests[tests["predictor"].isin(["u", "v"]) | tests["predictor2"].isin(["u", "v"])]
    assert list(zip(own["predictor"], own["predictor2"].fillna(""), own["df"], strict=True)) == [
        ("u", "", 1),
        ("v", "", 1),
        ("a", "u", 1),
        ("b", "u", 2),
    ]
    # v has other partners than u, but its regression by itself only loses precision
    alone = numeric("y ~ a + b + u + v + a:u + b:u", table).inference().tests(of=("s", "n"))
    found = alone[alone["predictor"].isin(["u", "v"]) | alone["predictor2"].isin(["u", "v"])]
    fits = []
    for group in ("s", "n"):
        rows = table[table["y"] == group]
        z = [np.ones(len(rows)), rows["a"] == 1, rows["b"] == 1, rows["b"] == 2]
        fits.append(sm.OLS(rows["u"], np.column_stack(z).astype(float)).fit(cov_type="HC0"))
    d = (fits[0].params - fits[1].params).to_numpy()
    V = (fits[0].cov_params() + fits[1].cov_params()).to_numpy()
    for columns, statistic in (([0], "u"), ([1], ("a", "u")), ([2, 3], ("b", "u"))):
        expected = d[columns] @ np.linalg.solve(V[np.ix_(columns, columns)], d[columns])
        names = (statistic, None) if isinstance(statistic, str) else statistic
        is_row = (found["predictor"] == names[0]) & (
            found["predictor2"].isna() if names[1] is None else found["predictor2"] == names[1]
        )
        assert_allclose(found.loc[is_row, "chisq"].item(), expected, rtol=1e-9)
    within = fit.inference().tests()
    assert within.loc[within["predictor2"] == "u", "predictor"].tolist() == ["a", "b"] * 2
    assert not within["predictor"].isin(["u", "v"]).any()


def test_means_without_rows_are_not_tested(table):
    lacking = table[(table["y"] != "s") | (table["b"] != 2)]
    fit = numeric("y ~ a + b + u + v + a:u + b:u", lacking, lambdah=0.1)
    tests = fit.inference().tests(of=("s", "n")).set_index(["predictor", "predictor2"])
    assert tests.loc[("b", "u"), "test"] == "Wald, 1 of 2"


def test_models_of_numbers_alone_have_tests(table):
    fit = bbl.bbl("y ~ u*v", table, numeric=["u", "v"], method="naive")
    tests = fit.inference().tests(of=("s", "n"))
    assert tests["predictor"].tolist() == ["u", "v"]
    assert tests["p"].between(0.0, 1.0).all()
    assert len(fit.inference().table()) == len(fit.bse) == len(fit.conf_int()) == 0
    assert "Wald" not in str(fit.summary())


def test_conditional_couplings_are_log_odds_ratios_given_the_numbers(table):
    """By enumeration: density ratios of four cells at the same numbers, of two numbers, and of
    partial correlations by regression.
    """
    table = table.assign(c=np.random.default_rng(2).integers(0, 2, len(table)))
    fit = numeric("y ~ a*b + c + a:u + b:u + b:v + c:v + u*v", table, method="ml")
    found = fit.conditional_couplings()
    assert set(found["kind"]) == {"coupling", "slope", "partial correlation"}
    base = {"a": 0, "b": 0, "c": 0, "u": 0.3, "v": 99.0}
    group = "s"

    def log_density(**changes):
        row = base | changes
        shape = {name: [row[name]] for name in base}
        total = fit.score_samples(shape).item()
        p = fit.predict(shape, type="prob")[group].item()
        return total + np.log(p)

    own = found[found["group"] == group]
    for row in own[own["kind"] == "coupling"].itertuples():
        i, j, a, b = row.predictor, row.predictor2, row.level, row.level2
        expected = (
            log_density(**{i: a, j: b}) - log_density(**{i: a})
            - log_density(**{j: b}) + log_density()
        )  # fmt: skip
        assert_allclose(row.estimate, expected, atol=1e-8)
    # b and c have no coupling, but both shift numbers
    assert {("a", "b"), ("b", "c"), ("a", "c")} == set(
        own.loc[own["kind"] == "coupling", ["predictor", "predictor2"]].itertuples(
            index=False, name=None
        )
    )
    for row in own[own["kind"] == "slope"].itertuples():
        i, a, u = row.predictor, row.level, row.predictor2
        moved = base[u] + 1.0
        expected = (
            log_density(**{i: a, u: moved}) - log_density(**{i: a})
            - log_density(**{u: moved}) + log_density()
        )  # fmt: skip
        assert_allclose(row.estimate, expected, atol=1e-8)
    partial = own.loc[own["kind"] == "partial correlation", "estimate"].item()
    S = fit.covariances(group).to_numpy()
    assert_allclose(partial, S[0, 1] / np.sqrt(S[0, 0] * S[1, 1]), rtol=1e-9)
    averaged = own.loc[own["kind"] == "coupling", "averaged"].to_numpy()
    assert_allclose(averaged[:2], fit.coef().J[group]["a", "b"].to_numpy().ravel(), atol=1e-12)


@pytest.mark.long
def test_intervals_of_effects_are_effects_of_moved_coefficients(table):
    """By hand for one number in two groups; weights are repeated rows, and shared covariances are
    one block.
    """
    fit = bbl.bbl("y ~ u", table, numeric="u", divisor="ml", method="ml", verbose=0)
    new = {"u": [0.5, 2.0]}
    frames = [
        fit.avg_slopes("u", newdata=new).frame,
        fit.avg_comparisons("u", newdata=new, step=0.7).frame,
    ]
    y = (table["y"] == "s").to_numpy()
    u = table["u"].to_numpy()
    at = np.array(new["u"])

    def log_odds(w, x):
        """Return the log odds of the first group at x, with weights w of the rows."""
        out = 0.0
        for g, sign in ((False, 1.0), (True, -1.0)):
            mean = np.average(u[y == g], weights=w[y == g])
            sd = np.sqrt(np.average((u[y == g] - mean) ** 2, weights=w[y == g]))
            out += sign * (np.log(w[y == g].sum()) + stats.norm.logpdf(x, mean, sd))
        return out

    h = 1e-4 * u.std()
    ones = np.ones(len(u))
    for frame, (high, low, unit) in zip(
        frames, [(at + h, at - h, 2 * h), (at + 0.7, at, 1.0)], strict=True
    ):
        x = np.concatenate([high, low])
        # influences of the rows on the log odds at all points
        E = np.empty((len(u), len(x)))
        for k in range(len(u)):
            up, down = ones.copy(), ones.copy()
            up[k] += 1e-5
            down[k] -= 1e-5
            E[k] = (log_odds(up, x) - log_odds(down, x)) / 2e-5

        def effect(scores, unit=unit):
            p = 1.0 / (1.0 + np.exp(-scores))
            return (p[:2] - p[2:]).mean() / unit

        scores = log_odds(ones, x)
        slopes = np.exp(-np.abs(scores)) / (1.0 + np.exp(-np.abs(scores))) ** 2
        psi = E @ (slopes * np.array([1, 1, -1, -1]) / 2 / unit)
        variance = (psi**2).sum()
        df = 2.0 * variance**2 / ((psi**4).sum() - variance**2 / len(u))
        direction = psi @ E / np.sqrt(variance)
        q = stats.t.ppf(0.975, df)
        limits = sorted([effect(scores - q * direction), effect(scores + q * direction)])
        row = frame.iloc[0]
        assert_allclose(row["estimate"], effect(scores), rtol=1e-6)
        assert_allclose(row["std_error"], np.sqrt(variance), rtol=1e-5)
        assert_allclose(row[["conf_low", "conf_high"]].astype(float), limits, rtol=1e-5)
        # a null value of zero at a limit has a p-value of 5 %
        width = effect(scores) - limits[0] if effect(scores) > 0.0 else limits[1] - effect(scores)
        p = 2 * stats.t.sf(q * abs(effect(scores)) / width, df)
        assert_allclose(row["p_value"], p, rtol=1e-3)
        # the other group has the opposite effect
        assert_allclose(frame.iloc[1]["conf_low"], -limits[1], rtol=1e-5)
    counts = 1 + np.arange(len(table)) % 3
    one = bbl.bbl("y ~ u", table.assign(w=counts), weights="w", numeric="u", covariance="shared")
    repeated = table.loc[table.index.repeat(counts)]
    other = bbl.bbl("y ~ u", repeated, numeric="u", covariance="shared")
    limits = [fit.avg_slopes("u", newdata={"u": [0.5]}).frame["conf_low"] for fit in (one, other)]
    assert_allclose(*limits, rtol=1e-7)


def test_units_do_not_matter_to_numbers_with_different_partners(table):
    """Generalised least squares with units that differ by orders of magnitude."""
    formula = "y ~ a + b + a:u + b:v + u*v"
    plain = numeric(formula, table)
    scaled = numeric(formula, table.assign(u=1e-5 * table["u"], v=1e6 * table["v"]))
    assert_allclose(scaled.means().loc["u"], 1e-5 * plain.means().loc["u"], rtol=1e-6)
    assert_allclose(
        scaled.predict(table.assign(u=1e-5 * table["u"], v=1e6 * table["v"]))[["n", "s"]],
        plain.predict(table)[["n", "s"]],
        rtol=1e-6,
        atol=1e-8,
    )


def test_a_figure_of_discriminants_shows_groups_with_a_single_row():
    values = np.random.default_rng(0).normal(size=(13, 2))
    rows = pd.DataFrame(values, columns=["u", "v"]).assign(y=[*"aaaaaabbbbbbc"])
    for formula in ("y ~ u*v", "y ~ u"):
        fit = bbl.bbl(formula, rows, numeric=True, covariance="shared", verbose=0)
        drawn = [line.get_xydata() for line in fit.plot_discriminants().lines]
        assert all(np.isfinite(points).all() for points in drawn)
    plt.close("all")


def test_a_prior_count_adds_no_rank():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"u": rng.normal(size=9), "a": [*"ppppppqqq"], "y": [*"ssssssttt"]})
    plain = bbl.bbl("y ~ a*u", rows, numeric="u", covariance="shared", method="mf", eps=0.5)
    prior = bbl.bbl(
        "y ~ a*u", rows, numeric="u", covariance="shared", method="mf", eps=0.5, prior_count=1e-9
    )
    # each group has one level of a, so its effect on u is not identified without a prior count
    assert_allclose(prior.covariances(), plain.covariances(), rtol=1e-6)
    means = [fit.means().loc["u"].iloc[0] for fit in (plain, prior)]
    assert_allclose(means[0][["s"]], means[1][["s"]], rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("method", ["pseudo", "conditional"])
def test_a_report_has_the_means_of_the_numbers(method, table, tmp_path):
    fit = bbl.bbl("y ~ u + a", table, numeric="u", method=method, verbose=0)
    fit.report(tmp_path / "fit.html", verbose=0)
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert f"mean {table['u'].mean():.4g}" in page


@pytest.mark.parametrize("covariance", ["group", "shared"])
def test_limits_of_effects_are_those_of_the_moved_fit_in_each_row(table, covariance):
    """Moves along directions of least favour, from derivatives of scores in a complete table."""
    from scipy.linalg import block_diag

    fit = numeric("y ~ (a + b + u + v)^2", table, covariance=covariance)
    delta = fit._delta_method
    K, size = delta.gradient.n_groups, delta.gradient.n_coefficients
    rows = table.head(6)
    frame = fit.predictions(rows).frame
    codes, _ = fit.design.encode(bbl.design.frames.to_frame(rows, "rows"))
    groups = list(fit.labels.groups)
    scores = np.log(fit.predict(rows, type="prob")[groups].to_numpy(float))
    starts = np.arange(len(rows) + 1)
    # derivatives (n, K, K, size) of the scores of each group
    unit_changes = np.zeros((len(rows), K, K, size))
    for g, c in np.ndindex(K, size):
        direction = np.zeros((len(rows), K, size))
        direction[:, g, c] = 1.0
        unit_changes[:, :, g, c] = delta.gradient.score_changes(
            codes, None, direction[None], starts
        )[0]
    V = block_diag(*delta.covariance.blocks)
    for _, own in frame.iterrows():
        g = groups.index(own["group"])
        row = list(rows.index).index(own["row"])
        p = np.exp(scores[row])
        gradient = np.tensordot(p[g] * ((np.arange(K) == g) - p), unit_changes[row], 1).ravel()
        move = V @ gradient / np.sqrt(gradient @ V @ gradient)
        changes = unit_changes[row].reshape(K, -1) @ move
        df = delta.covariance.degrees_of_freedom(gradient.reshape(K, size))
        for scale in (1e-90, 1e90):  # of steep functions, whose fourth power would overflow
            same = delta.covariance.degrees_of_freedom(scale * gradient.reshape(K, size))
            assert_allclose(same, df, rtol=1e-9)
        q = stats.t.ppf(0.975, df)
        moved = [np.exp(scores[row] + side * q * changes) for side in (-1.0, 1.0)]
        limits = sorted(one[g] / one.sum() for one in moved)
        assert_allclose([own["conf_low"], own["conf_high"]], limits, rtol=1e-9)
        assert limits[0] > 0.0
        assert limits[1] < 1.0


def test_levels_without_rows_have_the_mean_of_their_group_whatever_their_order():
    """Also if correlated numbers have different partners, whose regressions are not separate."""
    rng = np.random.default_rng(3)
    a = rng.choice(["p", "q", "r"], 120)
    y = np.where(np.arange(120) % 2, "s", "t")
    a[y == "t"] = "q"
    x = rng.normal(size=120) + (a == "p")
    data = pd.DataFrame({"y": y, "a": a, "x": x, "z": x + rng.normal(size=120)})
    options = {"numeric": ["x", "z"], "method": "blanket", "verbose": 0}
    fit = bbl.bbl("y ~ a + x + z + a:x + x:z", data, **options)
    other = bbl.bbl("y ~ a + x + z + a:x + x:z", data, xlevels={"a": ["r", "q", "p"]}, **options)
    rows = pd.DataFrame({"a": ["p", "q", "r"], "x": [0.5, 0.2, -1.0], "z": [0.0, 1.0, 0.3]})
    np.testing.assert_allclose(
        fit.predict(rows, type="prob")[["s", "t"]],
        other.predict(rows, type="prob")[["s", "t"]],
        atol=1e-10,
    )
    effects = fit.means().loc["x", "t"].iloc[1:]  # differences from the reference levels
    np.testing.assert_allclose(effects, 0.0, atol=1e-10)
