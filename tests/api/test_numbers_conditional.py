"""Numbers as regressors of ``method="conditional"``."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import reference_numbers as oracle
from numpy.testing import assert_allclose

import bbl
from bbl.errors import ConvergenceWarning, DataError, OptionError

sm = pytest.importorskip("statsmodels.api")

FORMULA = "y ~ a*u + b + u:v"
PAIRS = [(0, 1), (1, 3)]  # of a, u, b, v
IS_NUMBER = [False, True, False, True]
L = [3, 2, 2, 2]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    n = 400
    a = rng.integers(0, 3, n)
    b = rng.integers(0, 2, n)
    u = rng.normal(40.0, 12.0, n)
    v = rng.gamma(2.0, 10.0, n)
    score = -2.0 + 0.05 * u + 0.6 * (a == 1) - 0.02 * u * b + 0.02 * v
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-score)), "yes", "no")
    k = np.clip((score + rng.logistic(size=n) + 1.0).astype(int), 0, 2)
    k = pd.Categorical(np.array(["low", "mid", "high"])[k], ["low", "mid", "high"], ordered=True)
    return pd.DataFrame({"y": y, "k": k, "a": a, "u": u, "b": b, "v": v})


def conditional(formula, data, **options):
    return bbl.bbl(
        formula, data, **{"method": "conditional", "numeric": ["u", "v"], "verbose": 0} | options
    )


def codes(data):
    return data[["a", "u", "b", "v"]].to_numpy(float)


def regression(data, pairs=PAIRS, intercept=True):
    """Return the columns of the regression, in the order of the parameters."""
    columns = oracle.regressors(codes(data), IS_NUMBER, L)
    X = np.column_stack(oracle.products(columns, pairs))
    return sm.add_constant(X) if intercept else X


@pytest.mark.parametrize(("response", "shift"), [("y", 0.0), ("k", 0.0), ("y", 2000.0)])
def test_without_a_ridge_it_is_multinomial_regression(table, response, shift):
    data = table.assign(u=table["u"] + shift)
    fit = conditional(FORMULA.replace("y ~", f"{response} ~"), data, ridge=0)
    groups = fit.labels.groups
    y = pd.Categorical(data[response].astype(str), groups).codes
    # statsmodels is not precise for numbers far from zero
    model = sm.MNLogit(y, regression(table)).fit(disp=0, method="newton", tol=1e-14, maxiter=50)
    assert_allclose(fit.logLik(), model.llf, rtol=1e-10)
    assert fit.n_parameters == model.params.size
    estimates = np.array([fit.params[group] for group in groups[1:]]).T
    errors = np.array([fit.bse[group] for group in groups[1:]]).T
    expected, covariance = model.params, model.cov_params()
    # u + shift in place of u: a's fields and v's slope change
    change = np.eye(len(expected))
    for row, column in ((0, 3), (1, 6), (2, 7), (5, 8)):  # of the intercept, a, a, v
        change[row, column] = -shift
    assert_allclose(estimates, (change @ expected)[1:], rtol=1e-8, atol=1e-9)
    assert_allclose(
        errors.T.ravel(),
        np.concatenate(
            [
                np.sqrt(np.diag(change @ np.asarray(covariance)[block, block] @ change.T))[1:]
                for block in np.split(np.arange(expected.size), len(groups) - 1)
                for block in [slice(block[0], block[-1] + 1)]
            ]
        ),
        rtol=1e-8,
    )


@pytest.mark.parametrize("scale", [0.5, 0.0, 2.0])
def test_the_ridge_acts_on_standardised_numbers(table, scale):
    fit = conditional(FORMULA, table, ridge=1e-3, scale=scale)
    y = (table["y"] == "yes").to_numpy().astype(int)
    scores = oracle.ridge_scores(codes(table), y, IS_NUMBER, L, PAIRS, 1e-3, scale)
    log_odds = np.log(fit.predict(table, type="prob")[["no", "yes"]]).to_numpy()
    assert_allclose(np.diff(log_odds), np.diff(scores), atol=1e-6)


@pytest.mark.parametrize("options", [{"ridge": 0}, {"ridge": 1e-3}, {"ridge": "firth"}])
def test_a_weight_is_a_repeated_row_and_the_unit_does_not_matter(table, options):
    counts = np.arange(len(table)) % 3
    repeated = table.loc[table.index.repeat(counts)]
    one = conditional(FORMULA, table.assign(w=counts), weights="w", **options)
    other = conditional(FORMULA, repeated, **options)
    prob = [fit.predict(table, type="prob")["yes"] for fit in (one, other)]
    assert_allclose(*prob, rtol=1e-7)
    effects = [fit.avg_slopes(newdata=table).frame["std_error"] for fit in (one, other)]
    assert_allclose(*effects, rtol=1e-6)
    moved = table.assign(w=counts, u=table["u"] * 12.0 - 7.0)
    months = conditional(FORMULA, moved, weights="w", **options)
    assert_allclose(months.predict(moved, type="prob")["yes"], prob[0], rtol=1e-7)
    slope = one.avg_slopes("u", newdata=table).frame
    new_slope = months.avg_slopes("u", newdata=moved.drop(columns="w")).frame
    assert_allclose(new_slope["estimate"] * 12.0, slope["estimate"], rtol=1e-6)
    assert_allclose(new_slope["std_error"] * 12.0, slope["std_error"], rtol=1e-6)


def test_the_order_of_rows_and_the_scale_of_real_weights_do_not_matter(table):
    weights = np.random.default_rng(0).gamma(2.0, size=len(table))
    one = conditional(FORMULA, table.assign(w=weights), weights="w")
    shuffled = table.assign(w=7.0 * weights).sample(frac=1, random_state=1)
    other = conditional(FORMULA, shuffled, weights="w", n_jobs=2)
    prob = [fit.predict(table, type="prob")["yes"] for fit in (one, other)]
    assert_allclose(*prob, rtol=1e-9)


def test_effects_are_those_of_finite_differences(table):
    fit = conditional(FORMULA, table, ridge=0)

    def mean(data):
        return fit.predict(data, type="prob")["yes"].mean()

    step = fit.avg_comparisons("u", step={"u": 10}).frame
    assert_allclose(
        step["estimate"].iloc[-1], mean(table.assign(u=table["u"] + 10)) - mean(table), rtol=1e-9
    )
    slope = fit.avg_slopes("v").frame
    h = 1e-4
    expected = (mean(table.assign(v=table["v"] + h)) - mean(table.assign(v=table["v"] - h))) / h / 2
    assert_allclose(slope["estimate"].iloc[-1], expected, rtol=1e-5)
    pair = fit.avg_comparisons({"u": (50, 30)}).frame["estimate"].iloc[-1]
    assert_allclose(pair, mean(table.assign(u=50.0)) - mean(table.assign(u=30.0)), rtol=1e-9)
    grid = fit.avg_predictions(variables={"a": [1]}, grid="mode").frame["estimate"].iloc[-1]
    typical = table[["u", "v"]].mean()
    row = table.head(1).assign(a=1, b=table["b"].mode()[0], u=typical["u"], v=typical["v"])
    assert_allclose(grid, mean(row), rtol=1e-9)


def test_standard_errors_of_effects_follow_the_delta_method(table):
    data = table.assign(yes=(table["y"] == "yes").astype(int))
    fit = conditional(FORMULA, data.drop(columns="yes"), ridge=0)
    X = regression(data)
    model = sm.Logit(data["yes"], X).fit(disp=0, tol=1e-14, maxiter=50)
    moved = regression(data.assign(u=data["u"] + 10.0))

    def average(Z):
        p = model.predict(Z)
        return p.mean(), (p * (1.0 - p)) @ Z / len(Z)

    high, high_slopes = average(moved)
    low, low_slopes = average(X)
    difference = high_slopes - low_slopes
    frame = fit.avg_comparisons("u", step=10).frame
    assert_allclose(frame["estimate"].iloc[-1], high - low, rtol=1e-8)
    se = np.sqrt(difference @ model.cov_params() @ difference)
    assert_allclose(frame["std_error"].iloc[-1], se, rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("logits", ["adjacent", "cumulative"])
def test_ordered_responses_share_one_slope(table, logits):
    fit = conditional(FORMULA.replace("y ~", "k ~"), table, ridge=0, logits=logits)
    y = table["k"].cat.codes.to_numpy()
    Z = regression(table, intercept=False)
    if logits == "cumulative":
        order = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
        scaling = np.abs(Z).max(axis=0)
        start = order.OrderedModel(y, Z / scaling, distr="logit")
        model = start.fit(disp=0, method="bfgs", maxiter=500, gtol=1e-7)
        frame = fit.inference().table()
        frame = frame[frame["group"] == "mid"]
        size = Z.shape[1]
        assert_allclose(fit.logLik(), model.llf, rtol=1e-9)
        # statsmodels stops a little before the maximum
        deviation = (frame["estimate"] - model.params[:size] / scaling) / frame["se"]
        assert np.abs(deviation).max() < 1e-3
        assert_allclose(frame["se"], model.bse[:size] / scaling, rtol=1e-3)
        return
    # a conditional logit with the columns of group k times k
    K = 3
    expanded = [[np.append(np.eye(K)[g][1:], g * z) for g in range(K)] for z in Z]
    design = np.array(expanded)
    beta = np.zeros(design.shape[2])
    scaling = np.abs(design).max(axis=(0, 1))
    design = design / scaling
    for _ in range(50):
        p = np.exp(design @ beta)
        p /= p.sum(axis=1, keepdims=True)
        mean = np.einsum("nk,nkd->nd", p, design)
        gradient = (design[np.arange(len(y)), y] - mean).sum(axis=0)
        centred = design - mean[:, None]
        H = np.einsum("nk,nkd,nke->de", p, centred, centred)
        beta += np.linalg.solve(H, gradient)
    frame = fit.inference().table()
    frame = frame[frame["group"] == "mid"]
    assert_allclose(frame["estimate"], (beta / scaling)[2:], rtol=1e-7)
    se = np.sqrt(np.diag(np.linalg.inv(H))) / scaling
    assert_allclose(frame["se"], se[2:], rtol=1e-6)


def test_likelihood_ratio_of_nested_models(table):
    small = conditional("y ~ a + u + b + v", table, ridge=0)
    large = conditional(FORMULA, table, ridge=0)
    yes = (table["y"] == "yes").astype(int)
    llf = [sm.Logit(yes, regression(table, pairs)).fit(disp=0).llf for pairs in ([], PAIRS)]
    frame = bbl.anova(small, large)
    assert_allclose(frame["ratio"].iloc[-1], 2.0 * (llf[1] - llf[0]), rtol=1e-6)
    assert frame["df"].iloc[-1] == 3


def test_cross_validation_refits_every_fold(table):
    options = {"method": "conditional", "numeric": ["u", "v"], "nfold": 4, "verbose": 0}
    options |= {"score": "logloss", "shuffle": False}
    tables = [
        bbl.crossVal(FORMULA, table, ridge=ridge, **options).cvframe.set_index("ridge")
        for ridge in ([0.0, 1e-3], [1e-3])
    ]
    assert_allclose(*(frame.loc[1e-3, "score"] for frame in tables), rtol=1e-6)
    # the same folds by hand
    fold = np.arange(len(table)) % 4
    loss = 0.0
    for k in range(4):
        y = table["y"]
        held_out = table[fold == k]
        fit = conditional(FORMULA, table[fold != k], ridge=0)
        p = fit.predict(held_out, type="prob")
        loss -= np.log(np.where(y[fold == k] == "yes", p["yes"], p["no"])).sum()
    assert abs(tables[0].loc[0.0, "score"] - loss / len(table)) < 0.02


@pytest.mark.parametrize("ridge", [0, 1e-3])
@pytest.mark.parametrize("store_data", [True, False])
def test_saved_models_predict_the_same_bits(table, tmp_path, ridge, store_data):
    fit = conditional(FORMULA, table, ridge=ridge)
    fit.save(tmp_path / "model.bbl", store_data=store_data)
    loaded = bbl.load(tmp_path / "model.bbl")
    new = table.drop(columns="y").head(20)
    assert loaded.predict(new, type="prob").equals(fit.predict(new, type="prob"))
    assert str(loaded.summary()) == str(fit.summary())
    assert loaded.params.equals(fit.params)
    if store_data:
        assert_allclose(loaded.avg_slopes().frame["std_error"], fit.avg_slopes().frame["std_error"])


@pytest.mark.parametrize(
    "options", [{"ridge": 0}, {"ridge": 1e-3}, {"ridge": 1e-3, "calibrate": "temperature"}]
)
def test_contributions_add_up_to_the_log_odds(table, options):
    fit = conditional(FORMULA, table, **options)
    frame = fit.explain(table.head(20)).frame
    numbers = frame.drop(columns=["group", "against", "log_odds"]).to_numpy(float)
    assert_allclose(numbers.sum(axis=1), frame["log_odds"], atol=1e-9)
    p = fit.predict(table.head(20), type="prob")
    assert_allclose(frame["log_odds"], np.log(p["yes"] / p["no"]), rtol=1e-8)
    # at the mean of both numbers only terms of levels remain
    means = table[["u", "v"]].mean()
    row = table.head(1).assign(u=means["u"], v=means["v"])
    assert_allclose(fit.explain(row).frame[["u", "a:u", "v", "u:v"]], 0.0, atol=1e-9)


def test_tables_and_text_name_slopes(table):
    fit = conditional(FORMULA, table, ridge=0)
    assert fit.params["yes"].index.tolist()[-3:] == ["a=1 : u", "a=2 : u", "u : v"]
    assert "h_[u]^(yes):\n     slope" in repr(fit)
    assert fit.coef().h["yes"]["u"].index.tolist() == ["slope"]
    assert fit.tidy().query("predictor == 'u' and term == 'h'")["level"].isna().all()
    text = str(fit.summary())
    assert "u = number" in text
    assert not re.search("nan|-Inf|NaN", text)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_separation_is_reported(table):
    split = table.assign(y=np.where(table["u"] > 40.0, "yes", "no"))
    with pytest.warns(ConvergenceWarning, match="separate the groups perfectly"):
        conditional("y ~ a + u + b + v", split, ridge=0)
    firth = conditional("y ~ a + u + b + v", split, ridge="firth").inference().table()
    own = firth[(firth["group"] == "yes") & (firth["predictor"] == "u")]
    assert np.isfinite(own[["estimate", "lower"]]).all(axis=None)
    with pytest.warns(ConvergenceWarning, match=r"not identified.*'u'"):
        conditional("y ~ a + u + b + v", table.assign(v=2.0 * table["u"] + 1.0), ridge=0)


def test_firth_is_independent_of_the_origin_of_numbers(table):
    few = table.head(60)
    one = conditional("y ~ a + u*v", few, ridge="firth").inference().table()
    moved = few.assign(u=few["u"] - 500.0)
    other = conditional("y ~ a + u*v", moved, ridge="firth").inference().table()
    own = one["group"] == "yes"
    for column in ("estimate", "lower", "upper"):
        kept = own & (one["predictor"] != "v")  # the slope of v is that at u = 0
        assert_allclose(one.loc[kept, column], other.loc[kept, column], rtol=1e-4, atol=1e-6)


def test_many_rows_have_the_same_fit():
    rng = np.random.default_rng(0)
    n = 6000
    data = pd.DataFrame(
        {"u": rng.normal(size=n), "v": rng.normal(size=n), "a": rng.integers(2, size=n)}
    )
    data["y"] = (rng.random(n) < 1.0 / (1.0 + np.exp(-data["u"] + data["a"]))).astype(int)
    fit = conditional("y ~ a*u + v", data, ridge=1e-3)
    scores = oracle.ridge_scores(
        data[["a", "u", "v"]].to_numpy(float),
        data["y"].to_numpy(),
        [False, True, True],
        [2, 2, 2],
        [(0, 1)],
        1e-3,
        0.5,
    )
    p = fit.predict(data, type="prob")
    assert_allclose(np.log(p[1] / p[0]), np.diff(scores)[:, 0], atol=1e-5)


def test_what_does_not_apply_is_refused(table):
    with pytest.raises(OptionError, match="covariance describes the distribution of numeric"):
        conditional(FORMULA, table, covariance="shared")
    with pytest.raises(OptionError, match="start='pseudo' is not available with numeric"):
        conditional(FORMULA, table, start="pseudo")
    fit = conditional(FORMULA, table)
    with pytest.raises(DataError, match="fit with method='pseudo'"):
        fit.predict(table.assign(u=np.nan))
    other = bbl.bbl(FORMULA, table, numeric=["u", "v"], missing="marginal", verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(other.predict(table.assign(u=np.nan), type="prob")["yes"]).all()


@pytest.mark.parametrize("term", ["u:u", "u : u", "v + u:u"])
def test_squares_are_terms_of_conditional_fits(table, tmp_path, term):
    fit = conditional(f"y ~ a*u + b + v + {term}", table, ridge=0)
    X = np.column_stack([regression(table, [(0, 1)]), table["u"] ** 2])
    scaling = np.abs(X).max(axis=0)
    model = sm.Logit((table["y"] == "yes").astype(int), X / scaling).fit(disp=0, tol=1e-14)
    assert_allclose(fit.logLik(), model.llf, rtol=1e-10)
    assert_allclose(fit.params["yes"], (model.params / scaling)[1:], rtol=1e-7)
    assert_allclose(fit.bse["yes"], (model.bse / scaling)[1:], rtol=1e-7)
    assert fit.params["yes"].index[-1] == "u : u"
    fit.save(tmp_path / "model.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "model.bbl")
    assert loaded.predict(table, type="prob").equals(fit.predict(table, type="prob"))
    assert_allclose(loaded.avg_slopes().frame["std_error"], fit.avg_slopes().frame["std_error"])
    frame = fit.explain(table.head(5)).frame
    numbers = frame.drop(columns=["group", "against", "log_odds"]).to_numpy(float)
    assert_allclose(numbers.sum(axis=1), frame["log_odds"], atol=1e-9)
    high = fit.predict(table.assign(u=table["u"] + 1e-4), type="prob")["yes"].mean()
    low = fit.predict(table.assign(u=table["u"] - 1e-4), type="prob")["yes"].mean()
    slope = fit.avg_slopes("u").frame["estimate"].iloc[-1]
    assert_allclose(slope, (high - low) / 2e-4, rtol=1e-5)


def test_the_ridge_acts_on_squares_of_standardised_numbers(table):
    fit = conditional("y ~ a*u + b + v + u:u", table, ridge=1e-3)
    y = (table["y"] == "yes").to_numpy().astype(int)
    scores = oracle.ridge_scores(codes(table), y, IS_NUMBER, L, [(0, 1), (1, 1)], 1e-3, 0.5)
    log_odds = np.log(fit.predict(table, type="prob")[["no", "yes"]]).to_numpy()
    assert_allclose(np.diff(log_odds), np.diff(scores), atol=1e-6)
    contrasts = fit.inference().table(of=("yes", "no"))
    assert np.isfinite(contrasts["se"]).all()


@pytest.mark.parametrize("method", ["pseudo", "auto"])
def test_squares_are_refused_by_other_methods(table, method):
    with pytest.raises(OptionError, match="square of the numeric predictor 'u'"):
        conditional("y ~ a + v + u:u", table, method=method)
    data = table.assign(uu=table["v"])
    conditional("y ~ u:uu + a:u", data, numeric=["u", "uu"])
