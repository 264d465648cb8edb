"""Ordered responses: adjacent and cumulative logits against R, the oracle and repeated fits."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import reference

import bbl
from bbl.engines import Conditional
from bbl.engines.conditional.ordinal_logits import ordinal_logits
from bbl.engines.conditional.ordinal_maximum import OrdinalLikelihood
from bbl.errors import ConvergenceWarning, DataError, LevelError, OptionError

LOGITS = ("adjacent", "cumulative")
pytestmark = pytest.mark.filterwarnings("error")


def ordered(values, levels):
    return pd.Categorical(values, levels, ordered=True)


def drawn(n=400, K=4, seed=0, effect=1.0):
    """Return rows with a response that increases with `a` and `b`."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = rng.integers(0, 2, n)
    c = rng.integers(0, 3, n)
    latent = effect * (0.8 * a - 1.1 * b + 0.4 * a * b) + rng.logistic(size=n)
    cuts = np.quantile(latent, np.arange(1, K) / K)
    return pd.DataFrame(
        {
            "y": ordered(np.searchsorted(cuts, latent).astype(str), [str(g) for g in range(K)]),
            "a": pd.Categorical(np.array(list("uvw"))[a]),
            "b": np.array(list("pq"))[b],
            "c": np.array(list("rst"))[c],
        }
    )


def fitted(data, formula="y ~ a*b + c", **options):
    return bbl.bbl(formula, data, **{"method": "conditional", "ridge": 0, "verbose": 0} | options)


def as_in_r(fit):
    """Return thresholds and effects, and their standard errors."""
    own = fit.inference().thresholds()
    effects = fit.inference().table()
    effects = effects[effects["group"] == fit.labels.groups[1]]
    tables = fit.summary().tables
    assert len(tables["Thresholds"]) == len(own) and len(tables["Effects"]) == len(effects)
    return np.append(own["estimate"], effects["estimate"]), np.append(own["se"], effects["se"])


def housing(shared):
    data = pd.read_csv(shared / "reference" / "numbers" / "housing.csv")
    data["Sat"] = ordered(data["Sat"], ["Low", "Medium", "High"])
    return "Sat ~ Infl + Type + Cont", data, "Freq"


def wine(shared):
    data = pd.read_csv(shared / "reference" / "numbers" / "wine_rating.csv")
    data["rating"] = ordered(data["rating"].astype(str), list("12345"))
    return "rating ~ temp + contact", data.astype({"temp": str, "contact": str}), None


@pytest.mark.parametrize("table", ["housing", "wine_rating"])
@pytest.mark.parametrize("logits", LOGITS)
def test_numbers_of_r(table, logits, shared):
    # ordinal::clm and VGAM::acat (parallel)
    numbers = shared / "reference" / "numbers" / "expected.json"
    if not numbers.is_file():
        pytest.skip(f"{numbers} is absent")
    expected = json.loads(numbers.read_text(encoding="utf-8"))[table]
    formula, data, weights = (housing if table == "housing" else wine)(shared)
    levels = {"Infl": ["High", "Low", "Medium"], "Cont": ["High", "Low"]}
    xlevels = levels if table == "housing" else {"temp": ["cold", "warm"]}
    fit = fitted(data, formula, weights=weights, logits=logits, xlevels=xlevels)
    names = {
        "adjacent": "adjacent intercepts then effects (VGAM::acat, parallel)",
        "cumulative": "cumulative thresholds then effects (ordinal::clm)",
    }
    estimate, se = as_in_r(fit)
    np.testing.assert_allclose(estimate, expected[names[logits]], rtol=0, atol=1e-9)
    np.testing.assert_allclose(se, expected[f"{logits} se"], rtol=0, atol=1e-9)
    assert float(fit.logLik()) == pytest.approx(expected[f"{logits} logLik"][0], abs=1e-9)
    assert fit.n_parameters == len(estimate) and fit.converged
    if logits == "cumulative":
        p = fit.predict(data.head(6), type="prob").drop(columns="yhat").to_numpy()
        np.testing.assert_allclose(
            p.ravel(),
            expected["cumulative probabilities of the first 6 rows (row-major)"],
            rtol=0,
            atol=1e-9,
        )


WINE = """\
cold no 1:4 2:9 3:5 4:0 5:0
cold yes 1:1 2:7 3:8 4:2 5:0
warm no 1:0 2:5 3:8 4:3 5:2
warm yes 1:0 2:1 3:5 4:7 5:5
"""


def counted_wine():
    rows = []
    for line in WINE.splitlines():
        temp, contact, *cells = line.split()
        rows += [(temp, contact, *cell.split(":")) for cell in cells]
    data = pd.DataFrame(rows, columns=["temp", "contact", "rating", "n"])
    data["rating"] = ordered(data["rating"], list("12345"))
    return data.astype({"n": int})


def test_a_few_numbers_of_r():
    # R 4.2.2: ordinal::clm(rating ~ temp + contact, data = wine), VGAM::vglm(rating ~ temp +
    # contact, acat(parallel = TRUE), wine)
    fit = fitted(counted_wine(), "rating ~ temp + contact", weights="n", logits="cumulative")
    estimate, se = as_in_r(fit)
    np.testing.assert_allclose(
        estimate, [-1.344383, 1.250809, 3.466887, 5.006404, 2.503102, 1.527798], atol=5e-7
    )
    np.testing.assert_allclose(
        se, [0.517102, 0.437880, 0.597760, 0.730906, 0.528680, 0.476623], atol=5e-7
    )
    assert float(fit.logLik()) == pytest.approx(-86.491923, abs=5e-7)
    fit = fitted(counted_wine(), "rating ~ temp + contact", weights="n", logits="adjacent")
    estimate, se = as_in_r(fit)
    np.testing.assert_allclose(
        estimate, [0.989905, -0.890106, -2.515837, -2.785044, 1.688484, 0.964854], atol=5e-7
    )
    np.testing.assert_allclose(
        se, [0.506769, 0.377478, 0.576158, 0.763601, 0.408814, 0.323234], atol=5e-7
    )
    assert float(fit.logLik()) == pytest.approx(-85.644160, abs=5e-7)


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("K", [2, 3, 5])
def test_likelihood_and_gradient_of_the_oracle(logits, K):
    rng = np.random.default_rng(K)
    Z = rng.integers(0, 2, (12, 3)).astype(float)
    Y = rng.integers(0, 3, (12, K)).astype(float)
    thresholds = (
        np.sort(rng.normal(size=K - 1)) if logits == "cumulative" else rng.normal(size=K - 1)
    )
    b = rng.normal(size=3)
    value, gradient = reference.ordinal_log_likelihood(thresholds, b, Z, Y, logits)
    step = 1e-6
    for k in range(K - 1 + 3):  # the oracle agrees with itself
        moved = [np.append(thresholds, b) + s * step * (np.arange(K + 2) == k) for s in (1, -1)]
        up, down = (
            reference.ordinal_log_likelihood(x[: K - 1], x[K - 1 :], Z, Y, logits)[0] for x in moved
        )
        assert gradient[k] == pytest.approx((up - down) / (2 * step), abs=1e-6)
    c = -thresholds if logits == "cumulative" else np.cumsum(thresholds)
    total = Y.sum()
    free = np.ones(K + 2, dtype=bool)
    objective = OrdinalLikelihood(
        ordinal_logits(logits, np.arange(K)), Z, Y / total, free, np.zeros(K + 2)
    )
    assert objective.value(np.append(c, b)) * total == pytest.approx(value, rel=1e-13)
    in_c, in_b = np.split(objective.gradient() * total, [K - 1])
    # c_g is the sum of the first g thresholds, or minus a threshold
    in_thresholds = -in_c if logits == "cumulative" else np.cumsum(in_c[::-1])[::-1]
    np.testing.assert_allclose(np.append(in_thresholds, in_b), gradient, rtol=0, atol=1e-11)
    curvature = objective.curvatures()[0]
    point = np.append(c, b)
    for k in range(K + 2):
        gradients = []
        for s in (1, -1):
            objective.value(point + s * step * (np.arange(K + 2) == k))
            gradients.append(objective.gradient())
        np.testing.assert_allclose(
            curvature[k], (gradients[1] - gradients[0]) / (2 * step), atol=1e-7
        )


@pytest.mark.parametrize("logits", LOGITS)
def test_fits_are_at_the_maximum_of_the_oracle(logits):
    data = drawn()
    fit = fitted(data, "y ~ a + b", logits=logits)
    cells = data.groupby(["a", "b", "y"], observed=False).size().unstack().reset_index()
    Z = np.column_stack([cells["a"] == "v", cells["a"] == "w", cells["b"] == "q"]).astype(float)
    Y = cells[[str(g) for g in range(4)]].to_numpy(float)
    estimate = as_in_r(fit)[0]
    value, gradient = reference.ordinal_log_likelihood(estimate[:3], estimate[3:], Z, Y, logits)
    assert float(fit.logLik()) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)


@pytest.mark.parametrize("ridge", [0, 1e-2])
def test_two_groups_have_the_same_fit_with_all_logits(ridge):
    data = drawn(K=2)
    by_logits = [fitted(data, logits=logits, ridge=ridge) for logits in ("nominal", *LOGITS)]
    p = [fit.predict(data, type="prob").drop(columns="yhat").to_numpy() for fit in by_logits]
    np.testing.assert_allclose(p[1], p[0], atol=1e-7)
    np.testing.assert_allclose(p[2], p[0], atol=1e-7)
    effects = [fit.avg_comparisons().frame[["estimate", "std_error"]] for fit in by_logits]
    np.testing.assert_allclose(effects[1], effects[0], atol=1e-7)
    np.testing.assert_allclose(effects[2], effects[0], atol=1e-7)
    assert len({fit.n_parameters for fit in by_logits}) == (1 if ridge == 0 else 2)


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("ridge", [0, 1e-3])
def test_many_distinct_rows_have_the_same_fit(logits, ridge, monkeypatch):
    # beyond this number of rows, contrasts of levels take the place of a kernel basis
    data = drawn()
    few = fitted(data, logits=logits, ridge=ridge)
    monkeypatch.setattr("bbl.engines.conditional.engine.ROWS", 5)
    many = fitted(data, logits=logits, ridge=ridge)
    np.testing.assert_allclose(
        many.estimate.parameters.theta, few.estimate.parameters.theta, atol=1e-9
    )
    np.testing.assert_allclose(many.thresholds, few.thresholds, atol=1e-9)


@pytest.mark.parametrize("coding", ["linear", "cumulative"])
@pytest.mark.parametrize("logits", LOGITS)
def test_coded_predictors(coding, logits, monkeypatch):
    data = drawn()
    data["a"] = data["a"].cat.as_ordered()
    few = fitted(data, logits=logits, ridge=1e-3, ordered=coding)
    monkeypatch.setattr("bbl.engines.conditional.engine.ROWS", 5)
    many = fitted(data, logits=logits, ridge=1e-3, ordered=coding)
    np.testing.assert_allclose(
        many.estimate.parameters.theta, few.estimate.parameters.theta, atol=1e-9
    )
    if coding == "linear":
        of_v, of_w = few.estimate.parameters.theta[1, :2]
        assert of_w == pytest.approx(2 * of_v)


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("ridge", [0, 1e-3])
def test_weights_equal_repeated_rows_and_order_does_not_matter(logits, ridge):
    data = drawn(200)
    counted = data.groupby(list(data), observed=True).size().rename("n").reset_index()
    counted = counted.sample(frac=1.0, random_state=1)
    fits = [
        fitted(data, logits=logits, ridge=ridge),
        fitted(counted, weights="n", logits=logits, ridge=ridge),
        fitted(counted.assign(n=0.37 * counted["n"]), weights="n", logits=logits, ridge=ridge)
        if ridge
        else None,
    ]
    for fit in fits[1:]:
        if fit is not None:
            np.testing.assert_allclose(
                fit.estimate.coefficients, fits[0].estimate.coefficients, atol=1e-9
            )


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.long
def test_errors_of_effects_are_those_of_refits(logits):
    data = drawn(600)
    for ridge in (0, 1e-3):
        fit = fitted(data, "y ~ a + b", logits=logits, ridge=ridge)
        frame = fit.avg_comparisons("b").frame
        boot = fit.avg_comparisons("b", se="bootstrap", nboot=200, seed=1).frame
        np.testing.assert_allclose(frame["estimate"], boot["estimate"], atol=1e-12)
        np.testing.assert_allclose(frame["std_error"], boot["std_error"], rtol=0.25, atol=2e-4)


@pytest.mark.parametrize("logits", LOGITS)
def test_derivatives_of_effects(logits):
    # the gradient is the change of average probabilities when a coefficient changes
    from dataclasses import replace

    fit = fitted(drawn(300), "y ~ a + b", logits=logits)
    delta = fit._delta_method
    estimate = fit.estimate
    rows = fit.training
    starts = np.array([0, rows.n])
    weights = np.full(rows.n, 1.0 / rows.n)

    def average(changed):
        scores = changed.class_scores(rows.codes)
        return np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, None]).mean(axis=0)

    p = np.exp(estimate.class_scores(rows.codes))
    p /= p.sum(axis=1, keepdims=True)
    gradient = delta.gradient.sums(rows.codes, None, p, weights, starts)[0]
    for g in range(1, 4):
        for column in range(3):
            changes = []
            for s in (1e-5, -1e-5):
                theta = estimate.parameters.theta.copy()
                log_z = estimate.log_z.copy()
                if column:
                    theta[g, column - 1] += s
                else:
                    log_z[g] -= s
                moved = replace(
                    estimate, parameters=replace(estimate.parameters, theta=theta), log_z=log_z
                )
                changes.append(average(moved))
            np.testing.assert_allclose(
                gradient[:, g, column], (changes[0] - changes[1]) / 2e-5, atol=1e-8
            )


@pytest.mark.parametrize("logits", LOGITS)
def test_influences_are_the_change_when_a_row_counts_more(logits):
    from bbl.rows.sample import Sample

    fit = fitted(drawn(150), "y ~ a + b", logits=logits)
    rows = fit.training
    layout = fit.estimate.parameters.layout
    engine = Conditional(0.0, logits=logits)
    influence = engine.maximum(rows, layout, 4)
    psi = influence(rows)
    for k in (0, 77, 149):
        moved = [
            engine.maximum(
                Sample(rows.codes, rows.weights + h * (np.arange(rows.n) == k), rows.y), layout, 4
            )
            for h in (-1e-3, 1e-3)
        ]
        change = (moved[1].coefficients - moved[0].coefficients) / 2e-3
        np.testing.assert_allclose(psi[k] / influence.total, change, atol=1e-6)
    covariance = influence.covariance()
    for a, b in ((1, 0), (3, 1)):
        between = (
            covariance[a, :, a] + covariance[b, :, b] - covariance[a, :, b] - covariance[b, :, a]
        )
        np.testing.assert_allclose(influence.covariance_between(a, b), between, atol=1e-12)


def test_equal_steps_are_tested_and_cumulative_logits_are_not_nested():
    data = drawn()
    fits = {logits: fitted(data, "y ~ a + b", logits=logits) for logits in ("nominal", *LOGITS)}
    table = bbl.anova(fits["adjacent"], fits["nominal"])
    last = table.iloc[-1]
    ratio = 2 * (float(fits["nominal"].logLik()) - float(fits["adjacent"].logLik()))
    assert last["ratio"] == pytest.approx(ratio) and last["df"] == 6
    assert 0.0 < last["p"] < 1.0
    fewer = fitted(data, "y ~ a", logits="adjacent")
    assert bbl.anova(fewer, fits["nominal"]).iloc[-1]["df"] == 7
    for other in ("nominal", "adjacent"):
        told = str(bbl.anova(fits["cumulative"], fits[other]))
        assert "not nested" in told and "AIC" in told
    smaller = fitted(data, "y ~ a", logits="cumulative")
    assert bbl.anova(smaller, fits["cumulative"]).iloc[-1]["df"] == 1
    more = fitted(data, "y ~ a + b + c", logits="adjacent")
    assert "not nested" in str(bbl.anova(more, fits["nominal"]))


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("ridge", [0, 1e-3])
def test_save_and_load(logits, ridge, tmp_path):
    data = drawn()
    fit = fitted(data, logits=logits, ridge=ridge)
    for store in (True, False):
        fit.save(tmp_path / "m.bbl", store_data=store)
        again = bbl.load(tmp_path / "m.bbl")
        pd.testing.assert_frame_equal(
            again.predict(data, type="prob"), fit.predict(data, type="prob")
        )
        assert again.engine == fit.engine and again.thresholds.equals(fit.thresholds)
        assert str(again.summary()) == str(fit.summary())
        assert str(again) == str(fit)


def test_the_best_logits_are_chosen_by_cross_validation():
    data = drawn(300, effect=2.0)
    fit = fitted(data, logits="cv", ridge="cv")
    assert fit.engine.logits in LOGITS
    losses = {
        logits: fitted(data, logits=logits, ridge="cv").log_loss.loss
        for logits in ("nominal", *LOGITS)
    }
    assert min(losses, key=losses.get) == fit.engine.logits
    # two groups have one kind of logits
    assert fitted(drawn(K=2), logits="cv", ridge="cv").engine.logits == "nominal"


@pytest.mark.long
def test_cross_validation_without_a_penalty_and_fold_by_fold(monkeypatch):
    data = drawn(200)
    for logits in LOGITS:
        folds = bbl.crossVal(
            "y ~ a + b",
            data,
            method="conditional",
            ridge=[0, 1e-2],
            logits=logits,
            verbose=0,
            score="logloss",
        )
        together = fitted(data, "y ~ a + b", logits=logits, ridge="cv", seed=1)
        monkeypatch.setattr(Conditional, "held_out", lambda *arguments: None)
        apart = fitted(data, "y ~ a + b", logits=logits, ridge="cv", seed=1)
        monkeypatch.undo()
        assert together.engine.ridge == apart.engine.ridge
        # a kernel of all rows or of each fold's: slightly different penalties
        assert together.log_loss.loss == pytest.approx(apart.log_loss.loss, rel=1e-3)
        assert folds.cvframe["ridge"].tolist() == [0.0, 0.01]


@pytest.mark.parametrize("logits", LOGITS)
def test_separated_groups(logits):
    data = drawn(300)
    data.loc[data["a"] == "w", "y"] = "3"
    data.loc[data["a"] != "w", "y"] = data["y"].where(data["y"] != "3", "2")
    with pytest.warns(ConvergenceWarning, match="no finite estimate.*level 'w'") as told:
        fit = fitted(data, "y ~ a + b", logits=logits)
    assert "group '1'" in str(told[0].message) and "group '2'" not in str(told[0].message)
    p = fit.predict(data, type="prob")
    assert (p["3"][data["a"] == "w"] > 1 - 1e-12).all()
    # the other rows are fitted as without these
    rest = fitted(
        data[data["a"] != "w"].assign(a=data["a"].astype(str)), "y ~ a + b", logits=logits
    )
    np.testing.assert_allclose(
        p.loc[data["a"] != "w", ["0", "1", "2"]],
        rest.predict(data[data["a"] != "w"], type="prob")[["0", "1", "2"]],
        atol=1e-7,
    )
    assert float(fit.logLik()) == pytest.approx(float(rest.logLik()), abs=1e-6)
    assert fit.n_parameters == 3 + 3
    table = fit.inference().table()
    own = table[table["group"] == "1"].set_index("level")
    assert np.isnan(own.loc["w", "se"]) and own.loc[["v", "q"], "se"].notna().all()
    # no row has group 3 with one level of b and not with the other
    assert fit.avg_comparisons("b").frame["std_error"].notna().tolist() == [True] * 3 + [False]
    penalised = fitted(data, "y ~ a + b", logits=logits, ridge=1e-3)
    assert np.isfinite(penalised.estimate.coefficients).all() and penalised.converged


@pytest.mark.parametrize("logits", LOGITS)
def test_perfectly_separated_groups(logits):
    data = pd.DataFrame({"y": ordered(list("uvw") * 10, list("uvw")), "a": list("pqr") * 10})
    with pytest.warns(ConvergenceWarning, match="separate the groups perfectly"):
        fit = fitted(data, "y ~ a", logits=logits)
    assert float(fit.logLik()) == pytest.approx(0.0, abs=1e-9)
    assert (fit.predict(data)["yhat"] == data["y"].astype(str)).all()


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("ridge", [0, 1e-3])
def test_aliased_predictors_and_few_rows(logits, ridge):
    data = drawn(30, K=3)
    data["d"] = data["a"].astype(str) + "!"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fitted(data, "y ~ a + d + b", logits=logits, ridge=ridge)
        once = fitted(data, "y ~ a + b", logits=logits, ridge=0)
    if ridge == 0:
        assert float(fit.logLik()) == pytest.approx(float(once.logLik()), abs=1e-8)
        assert fit.n_parameters == once.n_parameters == 2 + 3
        assert fit.bse.isna().sum() >= 4
    assert np.isfinite(fit.estimate.coefficients).all()


@pytest.mark.parametrize("logits", LOGITS)
def test_a_group_without_rows_in_a_fold(logits):
    # the groups of the training rows of one fold are 0, 1 and 3
    from bbl.model.layout import Layout
    from bbl.rows.sample import Sample

    data = drawn(300)
    fit = fitted(data, "y ~ a + b", logits=logits)
    rows = fit.training
    kept = np.flatnonzero(rows.response != 2)
    layout = Layout(fit.design.n_levels, [])
    sample = rows.rows(kept)
    for ridge in (0.0, 1e-3):
        engine = Conditional(ridge, logits=logits)
        (joint,) = engine.fit_groups(sample, layout, 4, None, None, np.random.default_rng(0))
        assert np.isfinite(joint.theta).all() and not joint.theta[2].any()
        if logits == "adjacent":  # the step from 1 to 3 counts twice
            np.testing.assert_allclose(joint.theta[3], 3 * joint.theta[1], atol=1e-12)
    without = Sample(
        sample.codes, sample.weights, np.where(sample.y == 3, 2, sample.y).astype(np.intp)
    )
    if logits == "cumulative":
        whole = Conditional(0.0, logits=logits).maximum(sample, layout, 4)
        three = Conditional(0.0, logits=logits).maximum(without, layout, 3)
        np.testing.assert_allclose(whole.coefficients[[0, 1, 3]], three.coefficients, atol=1e-10)


def test_sampling_designs():
    data = drawn(400)
    data["w"] = np.random.default_rng(0).gamma(2.0, size=400)
    data["psu"] = np.arange(400) // 8
    for logits in LOGITS:
        design = bbl.survey(weights="w", cluster="psu")
        fit = fitted(data, "y ~ a + b", design=design, logits=logits)
        replicated = fitted(
            data,
            "y ~ a + b",
            design=bbl.survey(weights="w", cluster="psu", type="JKn"),
            logits=logits,
        )
        own = fit.inference().table()
        np.testing.assert_allclose(
            own["se"], replicated.inference().table()["se"], rtol=0.1, atol=1e-12
        )
        assert "Thresholds" in fit.summary().tables
        smaller = fitted(data, "y ~ a", design=design, logits=logits)
        assert "Rao-Scott" in str(bbl.anova(smaller, fit))


def test_real_weights_have_no_errors():
    data = drawn(200)
    data["w"] = np.random.default_rng(0).gamma(2.0, size=200)
    for logits in LOGITS:
        with pytest.warns(bbl.errors.DataWarning, match="not all integers"):
            fit = fitted(data, "y ~ a + b", weights="w", logits=logits)
        with pytest.raises(DataError, match="require"):
            fit.inference()
        assert "Thresholds" in fit.summary().tables


def test_refusals():
    data = drawn()
    plain = data.assign(y=data["y"].astype(str))
    for logits in (*LOGITS, "cv"):
        with pytest.raises(LevelError, match=r"pd.Categorical\(.*ordered=True"):
            fitted(plain, logits=logits)
        with pytest.raises(OptionError, match="only available with logits='nominal'"):
            fitted(data, logits=logits, ridge="firth")
        with pytest.raises(OptionError, match="only available with logits='nominal'"):
            fitted(data, logits=logits, ridge=0.1, start="pseudo")
    with pytest.raises(OptionError, match="calibrate"):
        fitted(data, logits="cumulative", ridge=0.1, calibrate="temperature")
    fit = fitted(data, logits="cumulative")
    with pytest.raises(OptionError, match="effects are the same"):
        fit.inference().table(of=("2", "1"))
    assert fit.inference().table(of=("2", "0"))["se"].notna().all()
    with pytest.raises(OptionError, match="Omit of="):
        fit.explain(data.head(), of=("2", "1"))
    with pytest.raises(OptionError, match="no thresholds"):
        _ = fitted(data).thresholds


@pytest.mark.parametrize("logits", LOGITS)
def test_explanations_add_up(logits):
    data = drawn()
    fit = fitted(data, logits=logits)
    frame = fit.explain(data.head(20)).frame
    terms = frame.drop(columns=["group", "against", "log_odds"])
    np.testing.assert_allclose(terms.sum(axis=1), frame["log_odds"], atol=1e-9)
    p = fit.predict(data.head(20), type="prob").drop(columns="yhat")
    for k in range(20):
        if logits == "cumulative":
            low = frame["group"].iloc[k].split(" or ")[0]
            above = p.iloc[k].loc[low:].sum()
            odds = above / (1 - above)
        else:
            odds = p.iloc[k][frame["group"].iloc[k]] / p.iloc[k][frame["against"].iloc[k]]
        assert frame["log_odds"].iloc[k] == pytest.approx(np.log(odds), abs=1e-9)


@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.long
def test_results_that_use_class_scores(logits, tmp_path, undrawn):
    data = drawn()
    fit = fitted(data, logits=logits)
    assert fit.evaluate().scores.loc["log-loss", "estimate"] == pytest.approx(
        -float(fit.logLik()) / len(data)
    )
    equal = fit.with_priors("equal").predict(data.head(3), type="prob").drop(columns="yhat")
    p = fit.predict(data.head(3), type="prob").drop(columns="yhat")
    shifted = p / fit.class_shares
    np.testing.assert_allclose(equal, shifted.div(shifted.sum(axis=1), axis=0), atol=1e-12)
    report = fit.report(tmp_path / "r.html")
    assert "Thresholds" in (tmp_path / "r.html").read_text(encoding="utf-8") and report is not False
    assert "Thresholds" in str(fit)
    assert fit.bse.loc["1"].notna().all() and fit.cov_params("1").notna().all(axis=None)
    # P(at least g) against lower groups has the same effects for all g
    theta = fit.estimate.parameters.theta
    factor = np.arange(4) if logits == "adjacent" else np.minimum(np.arange(4), 1)
    np.testing.assert_allclose(theta, np.outer(factor, theta[1]), atol=1e-12)


def test_dropped_rows():
    data = drawn()
    data.loc[data.index[::7], "a"] = np.nan
    for logits in LOGITS:
        fit = fitted(data, missing="drop", logits=logits)
        complete = fitted(data.dropna(), logits=logits)
        np.testing.assert_allclose(fit.estimate.coefficients, complete.estimate.coefficients)
        assert fit.predict(data, type="prob").iloc[0].isna().any()


def test_relevance_with_cumulative_logits(tmp_path):
    data = drawn(600)
    fit = fitted(data, "y ~ .^2", ridge=1e-3, logits="cumulative", relevance=0.05)
    assert "a" in str(fit.relevant().index.tolist())
    data["a"] = np.array(list("uv"))[np.random.default_rng(99).integers(0, 2, 600)]
    none = fitted(data, "y ~ a", ridge=1e-3, logits="cumulative", relevance=1e-12)
    p = none.predict(data.head(1), type="prob").drop(columns="yhat")
    np.testing.assert_allclose(p.iloc[0], none.class_shares)
    none.save(tmp_path / "m.bbl")
    pd.testing.assert_frame_equal(
        bbl.load(tmp_path / "m.bbl").predict(data, type="prob"), none.predict(data, type="prob")
    )
