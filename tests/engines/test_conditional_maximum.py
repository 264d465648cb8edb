"""Conditional likelihood without a penalty: R's numbers, separation, what rows do not determine,
and influences.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import rlogistic

import bbl
from bbl.engines import Conditional
from bbl.engines.conditional.maximum import find_maximum
from bbl.errors import ConvergenceWarning, OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

pytestmark = pytest.mark.filterwarnings("error")


def joint(fit):
    return fit.engine.joint.maximum(
        fit.engine, fit.training, fit.estimate.parameters.layout, len(fit.labels.groups)
    )


@pytest.mark.parametrize("name", rlogistic.names() or [None])
def test_numbers_of_r(name, shared):
    case = rlogistic.read(name)
    fit = case.fit()
    influence, columns = joint(fit), rlogistic.column_numbers(case, fit)
    groups = [fit.labels.groups.index(group) for group in case.classes]
    coefficients = influence.coefficients - influence.coefficients[groups[0]]
    np.testing.assert_allclose(
        coefficients[groups[1:]][:, columns], case.coefficients, rtol=0, atol=1e-8
    )
    differences = (np.eye(len(groups)) - np.eye(len(groups))[groups[0]])[groups[1:]]
    covariance = np.einsum("ag,gchd,bh->acbd", differences, influence.covariance(), differences)
    covariance = covariance[:, columns][:, :, :, columns].reshape(case.covariance.shape)
    np.testing.assert_allclose(covariance, case.covariance, rtol=1e-7)
    assert influence.log_likelihood == pytest.approx(case.log_likelihood, rel=1e-12)
    assert fit.converged and fit.n_parameters == case.coefficients.size


def test_there_are_fifteen_cases(shared):
    assert len(rlogistic.names()) == 15


def random_rows(rng, n, K, levels):
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    return Sample(codes, rng.integers(1, 4, n).astype(float), rng.integers(0, K, n).astype(np.intp))


@pytest.mark.parametrize("pairs", [None, [(0, 1)], []])
def test_influences_are_the_change_when_a_row_counts_more(pairs):
    levels, K = np.array([2, 3, 2]), 3
    rows, layout = random_rows(np.random.default_rng(1), 200, K, levels), Layout(levels, pairs)
    engine = Conditional(0.0)
    influence = engine.maximum(rows, layout, K)
    psi = influence(rows)
    np.testing.assert_allclose(rows.weights @ psi.reshape(rows.n, -1), 0.0, atol=1e-7)
    for k in (0, 57, 199):
        moved = [
            engine.maximum(
                Sample(rows.codes, rows.weights + h * (np.arange(rows.n) == k), rows.y), layout, K
            )
            for h in (-1e-3, 1e-3)
        ]
        change = (moved[1].coefficients - moved[0].coefficients) / 2e-3
        np.testing.assert_allclose(psi[k] / influence.total, change, atol=1e-7)
    score = influence.scores(rows)
    information = influence.covariance()[1:, :, 1:].reshape(2 * (1 + layout.size), -1)
    np.testing.assert_allclose(
        information @ (score[:, 1:].reshape(rows.n, -1).T),
        psi[:, 1:].reshape(rows.n, -1).T / influence.total,
        atol=1e-12,
    )
    difference = influence.between(2, 1)
    np.testing.assert_allclose(
        difference.theta, (influence.coefficients[2] - influence.coefficients[1])[1:]
    )
    np.testing.assert_allclose(difference(rows), (psi[:, 2] - psi[:, 1])[:, 1:])
    assert [len(term) for term in difference.terms(rows)] == np.diff(layout.cuts).tolist()


def by_brute_force(codes, counts, layout):
    """Return which cells keep a probability: by one linear programme for each empty cell."""
    from scipy.optimize import linprog

    from bbl.engines.conditional.maximum import design

    Z, (n, K) = design(codes, layout), counts.shape
    width = Z.shape[1]

    def change(x, a, b):
        row = np.zeros((K, width))
        row[a], row[b] = Z[x], -Z[x]
        return row.ravel()

    equal, below, cells = [], [], []
    for x in range(n):
        first = int(counts[x].argmax())
        for g in range(K):
            if g != first and counts[x, g]:
                equal.append(change(x, g, first))
            elif not counts[x, g]:
                below.append(change(x, g, first))
                cells.append((x, g))
    support = np.ones((n, K), dtype=bool)
    for cell, row in zip(cells, below, strict=True):
        found = linprog(
            row,
            np.array(below),
            np.zeros(len(below)),
            np.array(equal) if equal else None,
            np.zeros(len(equal)) if equal else None,
            bounds=(-1, 1),
        )
        support[cell] = found.fun > -1e-7
    return support


@pytest.mark.long
def test_separated_cells_are_those_of_one_programme_for_each_cell():
    n_partly = 0
    for seed in range(150):
        rng = np.random.default_rng([seed, 3])
        levels, K = rng.integers(2, 4, rng.integers(1, 4)), int(rng.integers(2, 4))
        m = len(levels)
        pairs = [(i, j) for i in range(m) for j in range(i + 1, m) if rng.random() < 0.5]
        layout = Layout(levels, pairs)
        sample = random_rows(rng, int(rng.integers(4, 40)), K, levels)
        sample = sample.rows(rng.random(sample.n) < 0.9) if rng.random() < 0.5 else sample
        y = (sample.codes.sum(axis=1) % K) if rng.random() < 0.3 else sample.y
        codes, at = np.unique(sample.codes, axis=0, return_inverse=True)
        counts = np.zeros((len(codes), K))
        np.add.at(counts, (at.ravel(), y), sample.weights)
        counts = counts[:, counts.any(axis=0)]
        if counts.shape[1] < 2:
            continue
        maximum = find_maximum(codes, counts, layout)
        expected = by_brute_force(codes, counts, layout)
        scores = (
            np.column_stack([np.ones(len(codes)), *_columns(codes, layout)])
            @ maximum.coefficients.T
        )
        p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
        np.testing.assert_array_equal(p > 1e-12, expected, str(seed))
        assert maximum.is_separated == (expected.sum(axis=1) == 1).all()
        assert maximum.norm < 1e-9
        n_partly += not expected.all()
    assert n_partly > 50


def _columns(codes, layout):
    from bbl.engines.likelihood.influence import row_indicators

    return row_indicators(layout, codes).T


def frame_of(n=300, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, L, n) for L in (2, 3, 2)])
    score = np.column_stack(
        [0.8 * g * (codes[:, 0] - 0.5 * codes[:, 1] * codes[:, 2]) for g in range(3)]
    )
    y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    return pd.DataFrame(codes.astype(str), columns=list("abc")).assign(y=y.astype(str))


def fit(formula="y ~ a*b + c", data=None, weights=None, **options):
    data = frame_of() if data is None else data
    return bbl.bbl(
        formula, data, weights, method="conditional", verbose=0, **{"ridge": 0.0} | options
    )


@pytest.mark.parametrize("name", [*rlogistic.names()[::4]] or [None])
def test_tables_hold_the_numbers_of_r(name, shared):
    case = rlogistic.read(name)
    found = case.fit()
    columns = [k - 1 for k in rlogistic.column_numbers(case, found)[1:]]
    first, *others = case.classes
    errors = np.sqrt(np.diag(case.covariance)).reshape(case.coefficients.shape)
    for k, other in enumerate(others):
        table = found.inference().table(of=(other, first)).iloc[columns]
        np.testing.assert_allclose(table["estimate"], case.coefficients[k, 1:], atol=1e-8)
        np.testing.assert_allclose(table["se"], errors[k, 1:], rtol=1e-8)
        np.testing.assert_allclose(
            table["z"], case.coefficients[k, 1:] / errors[k, 1:], rtol=1e-6, atol=1e-9
        )
        assert (table["test"] == "Wald").all()
    assert (
        found.logLik() == pytest.approx(case.log_likelihood)
        and found.logLik().df == case.coefficients.size
    )
    assert found.aic == pytest.approx(-2 * case.log_likelihood + 2 * case.coefficients.size)


def test_the_numbers_are_those_of_statsmodels():
    import statsmodels.api as sm

    data = frame_of(800, seed=3)
    found, codes = fit("y ~ a + b + c", data), data[list("abc")].astype(int).to_numpy()
    dummies = np.column_stack(
        [codes[:, i] == a for i, L in enumerate((2, 3, 2)) for a in range(1, L)]
    ).astype(float)
    known = sm.MNLogit(data["y"].astype(int), sm.add_constant(dummies)).fit(
        disp=0, method="newton", tol=1e-12
    )
    for k, group in enumerate("12"):
        np.testing.assert_allclose(
            found.params.loc[group], known.params.to_numpy()[1:, k], atol=1e-8
        )
        np.testing.assert_allclose(found.bse.loc[group], known.bse.to_numpy()[1:, k], rtol=1e-7)
        np.testing.assert_allclose(
            found.pvalues.loc[group], known.pvalues.to_numpy()[1:, k], rtol=1e-5, atol=1e-12
        )
    assert (found.params.loc["0"] == 0.0).all() and found.bse.loc["0"].isna().all()
    assert (
        found.inference().table().query("group == '0'")["test"] == "zero: the reference group"
    ).all()
    covariance = found.cov_params()
    np.testing.assert_allclose(np.diag(covariance), found.bse**2)
    places = [1, 2, 3, 4, 6, 7, 8, 9]
    np.testing.assert_allclose(
        covariance.loc[["1", "2"], ["1", "2"]],
        known.cov_params().to_numpy()[np.ix_(places, places)],
        rtol=1e-6,
    )
    between = found.inference().table(of=("2", "1"))
    np.testing.assert_allclose(
        between["estimate"], found.params.loc["2"].to_numpy() - found.params.loc["1"].to_numpy()
    )
    assert found.logLik() == pytest.approx(known.llf) and found.aic == pytest.approx(known.aic)
    np.testing.assert_allclose(
        found.predict(data, type="prob")[list("012")], known.predict(), atol=1e-9
    )


def test_a_small_ridge_comes_near_and_weights_are_repeated_rows():
    data = frame_of()
    counts = data.value_counts().rename("w").reset_index()
    found, by_weights = fit(data=data), fit(data=counts, weights="w")
    pd.testing.assert_series_equal(found.params, by_weights.params, rtol=1e-9, atol=1e-11)
    pd.testing.assert_series_equal(found.bse, by_weights.bse, rtol=1e-9)
    near = fit(data=data, ridge=1e-9).inference().table(of=("2", "0"))
    np.testing.assert_allclose(
        found.inference().table(of=("2", "0"))["estimate"], near["estimate"], atol=1e-3
    )
    with pytest.warns(bbl.errors.DataWarning, match="not all integers"):
        halved = fit(data=counts.assign(w=counts["w"] / 2 + 0.25), weights="w")
    assert np.isfinite(halved.logLik()) and halved.converged
    with pytest.raises(bbl.errors.DataError, match="not integers"):
        halved.bse  # noqa: B018
    with pytest.warns(bbl.errors.DataWarning):
        smaller = fit("y ~ a", counts.assign(w=counts["w"] / 2 + 0.25), "w")
    assert "not integers" in bbl.anova([smaller, halved])["test"].iloc[1]


def test_nested_models_are_compared_by_their_likelihoods():
    data = frame_of()
    small, large = fit("y ~ a", data), fit("y ~ a*b", data)
    table = bbl.anova([small, large])
    ratio = 2 * (large.logLik() - small.logLik())
    assert table["ratio"].iloc[1] == pytest.approx(ratio) and table["df"].iloc[1] == 8
    from scipy.stats import chi2

    assert (
        table["p"].iloc[1] == pytest.approx(chi2.sf(ratio, 8))
        and table["test"].iloc[1] == "likelihood ratio"
    )
    assert table[["AIC", "BIC"]].notna().all(axis=None)
    for other, why in (
        (fit("y ~ b", data), "not nested"),
        (fit("y ~ a", data), "same terms"),
        (fit("y ~ a*b", data[:-1]), "different rows"),
        (fit("y ~ a*b", data, ridge=0.1), "on different scales"),
    ):
        assert why in bbl.anova([small, other])["test"].iloc[1]
    # an empty cell leaves the larger model no parameter more
    same = data.assign(d=data["a"])
    with pytest.warns(ConvergenceWarning, match="not identified"):
        copied = fit("y ~ a + d", same)
    assert "no additional parameters" in bbl.anova([fit("y ~ a", same), copied])["test"].iloc[1]


def quiet_fit(*args, **options):
    """Return a fit whose separated levels are known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(*args, **options)


def separated_table():
    """Counts in which level c of `e` occurs in group k alone."""
    cells = ["auk9", "aul17", "avk7", "avl11", "buk13", "bul12", "bvk12", "bvl15", "cuk2", "cvk2"]
    rows = [(*cell[:3], int(cell[3:])) for cell in cells]
    return pd.DataFrame(rows, columns=["e", "w", "y", "n"])


def test_a_separated_level_has_a_degree_of_freedom_as_in_r():
    from scipy.stats import chi2

    data = separated_table()
    small, large = quiet_fit("y ~ w", data, weights="n"), quiet_fit("y ~ e + w", data, weights="n")
    ratio = 2 * (float(large.logLik()) - float(small.logLik()))
    row = bbl.anova(small, large).iloc[1]
    # R: anova(glm(y ~ w, binomial, weights = n), glm(y ~ e + w, ...)), AIC()
    assert row["df"] == 2 and row["p"] == pytest.approx(chi2.sf(ratio, 2))
    assert row["p"] == pytest.approx(0.0185, abs=5e-5)
    assert row["AIC"] == pytest.approx(8 - 2 * float(large.logLik()))
    assert large.bic == pytest.approx(4 * np.log(100) - 2 * float(large.logLik()))
    tests = large.inference().table(of=("l", "k")).set_index("level")["test"]
    assert tests["c"] == "not estimable: separation" and tests["b"] == "Wald"


def test_levels_that_never_occur_and_copies_have_no_degree_of_freedom():
    data = separated_table()
    absent = data.assign(e=pd.Categorical(data["e"], list("abcd")), f=data["w"])
    small = quiet_fit("y ~ w", absent, weights="n")
    for formula, df in (("y ~ e + w", 2), ("y ~ e + w + f", 2), ("y ~ e * w", 4)):
        large = quiet_fit(formula, absent, weights="n", novarOk=True)
        assert large.n_parameters == small.n_parameters + df
        assert bbl.anova(small, large)["df"].iloc[1] == df


def test_a_separated_level_counts_under_a_design_too():
    data = separated_table()
    data = data.loc[data.index.repeat(data["n"])].reset_index(drop=True)
    data = data.assign(s=1.0, psu=np.arange(len(data)))
    formulas = ("y ~ w", "y ~ e + w")

    def p_value(rows, **options):
        test = bbl.anova(*(quiet_fit(formula, rows, **options) for formula in formulas)).iloc[1]
        assert test["df"] == 2
        return test["p"]

    plain = p_value(data)
    for options in ({}, {"type": "JKn"}):
        single = p_value(data, design=bbl.survey("s", **options))
        assert plain < single < 2 * plain  # the statistic is an F, whose spread is estimated
        twice = pd.concat([data, data])
        design = bbl.survey("s", cluster="psu", **options)
        assert p_value(twice, design=design) == pytest.approx(single, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("has_design", [False, True])
def test_true_hypotheses_about_rare_levels_are_rejected_at_their_level(has_design):
    rng = np.random.default_rng(7)
    n_samples = 600
    options = {"design": bbl.survey("s", cluster="psu")} if has_design else {}
    rejected = 0
    for _ in range(n_samples):
        data = pd.DataFrame(
            {
                "e": pd.Categorical.from_codes([*rng.integers(0, 2, 97), 2, 2, 2], list("abc")),
                "w": pd.Categorical.from_codes(rng.integers(0, 2, 100), list("uv")),
                "y": pd.Categorical.from_codes(rng.integers(0, 2, 100), list("kl")),
                "s": rng.choice([1.0, 2.0], 100) if has_design else 1.0,
                "psu": np.arange(100) // 2,
            }
        )
        fits = [quiet_fit(formula, data, **options) for formula in ("y ~ w", "y ~ e + w")]
        rejected += bbl.anova(*fits)["p"].iloc[1] < 0.05
    assert 0.03 < rejected / n_samples < 0.07


def test_a_model_is_kept_by_its_file(tmp_path):
    found = fit()
    for store_data in (True, False):
        found.save(tmp_path / "model.bbl", store_data=store_data)
        loaded = bbl.load(tmp_path / "model.bbl")
        assert str(loaded.summary()) == str(found.summary())
        assert (loaded.aic, loaded.n_parameters, loaded.logLik()) == (
            found.aic,
            found.n_parameters,
            found.logLik(),
        )
    assert "Intercepts against 0" in str(found.summary())


def test_a_fit_is_pickled_after_its_tests():
    found = fit(design=bbl.survey("s"), data=frame_of().assign(s=1.0))
    errors = found.bse
    copied = pickle.loads(pickle.dumps(found))  # noqa: S301  # written one call before
    pd.testing.assert_series_equal(copied.bse, errors)


def test_what_the_rows_leave_open_is_named_and_has_no_standard_error():
    data = frame_of()
    alone = data[~((data["b"] == "2") & (data["y"] == "1"))]  # level 2 of b never occurs in group 1
    with pytest.warns(
        ConvergenceWarning, match=r"group '1', predictor 'b'.*level '2'.*|ridge='cv'"
    ):
        found = fit("y ~ a + b + c", alone)
    assert not found.converged
    table = found.inference().table()
    row = table[(table["group"] == "1") & (table["level"] == "2")].iloc[0]
    assert row["test"] == "not estimable: separation" and np.isnan(row["se"])
    assert (
        table[(table["group"] == "2") | ((table["group"] == "1") & (table["level"] != "2"))]["se"]
        .notna()
        .all()
    )
    assert found.n_parameters == 2 * 5  # as in R, where a separated level has a coefficient
    p = found.predict(data[data["b"] == "2"], type="prob")["1"]
    assert (p < 1e-15).all()
    # a predictor and its copy say the same, and what is beside them is as without the copy
    with pytest.warns(ConvergenceWarning, match="'a'.*not identified|2 places"):
        copied = fit("y ~ a + b + copy", data.assign(copy=data["a"]))
    assert copied.converged and copied.n_parameters == 2 * 4
    table, plain = (
        copied.inference().table(of=("2", "0")),
        fit("y ~ a + b", data).inference().table(of=("2", "0")),
    )
    assert table["test"].str.startswith("not estimable").tolist() == [True, False, False, True]
    np.testing.assert_allclose(table["se"][1:3], plain["se"][1:3], rtol=1e-9)


def test_separated_groups_have_no_maximum_and_the_advice_works():
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(
        rng.integers(0, 3, (60, 70)).astype(str), columns=[f"x{i}" for i in range(70)]
    )
    wide["y"] = np.repeat(["u", "v"], 30)
    for name in ("x0", "x1", "x2"):
        wide[name] = np.where(rng.random(60) < 0.9, wide["y"], "w")
    with pytest.warns(ConvergenceWarning, match="separate the groups perfectly.*ridge='cv'"):
        found = fit("y ~ .", wide)
    assert not found.converged and found.n_parameters == 60  # the rank of the design, as in R
    assert (found.predict(wide, type="class") == wide["y"]).all()
    assert found.inference().table(of=("v", "u"))["se"].isna().all()
    assert fit("y ~ .", wide, ridge="cv").converged


def test_coefficients_without_information_have_no_standard_error():
    """The rows are separated, so that probabilities are 0 and 1 to rounding."""
    few = pd.DataFrame({"y": list("baaab"), "a": list("22133"), "b": list("21222")})
    with pytest.warns(ConvergenceWarning, match="not identified"):
        found = fit("y ~ .^2", few)
    # every warning of numpy's is an error
    assert found.inference().table(of=("b", "a"))["se"].isna().all()


@pytest.mark.long
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_the_report_does_without_what_needs_a_model_of_the_predictors(ridge, tmp_path):
    fit(ridge=ridge).report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "are classified correctly" in text and "Most important" not in text


@pytest.mark.parametrize(
    "options", [{"start": "pseudo"}, {"early_stopping": True}, {"scale": "cv"}, {"scale": 0}]
)
def test_options_of_penalised_fits_are_refused(options):
    (name,) = options
    with pytest.raises(OptionError, match=f"does not depend on {name}"):
        Conditional(0.0, **options)


def test_what_is_not_there_without_a_penalty_either_says_so():
    found = fit()
    for call, why in (
        (lambda: found.conf_int(of="pooled"), "no pooled fit"),
        (lambda: found.claic, "composite"),
        (found.odds_ratios, "odds of predictors"),
        (found.bootstrap, "model of the predictors"),
    ):
        with pytest.raises(OptionError, match=why):
            call()


def test_folds_are_fitted_without_a_penalty(monkeypatch):
    data = frame_of(400)
    options = {
        "method": "conditional",
        "shuffle": True,
        "seed": 1,
        "score": "logloss",
        "verbose": 0,
    }
    table = bbl.crossVal("y ~ a + b + c", data, ridge=[0.0, 1e-9], **options).cvframe
    assert table.iloc[0, 1] == pytest.approx(table.iloc[1, 1], abs=1e-5)
    assert fit(data=data, calibrate="temperature", seed=1).log_loss.loss < 1.1
    one, two = (
        bbl.crossVal("y ~ a", data, ridge=[0.0], n_jobs=n, **options).cvframe for n in (1, 2)
    )
    pd.testing.assert_frame_equal(one, two)


def test_many_rows_and_large_programmes_fall_back(monkeypatch):
    from bbl.engines.conditional import maximum as module

    data = frame_of()
    apart = data[~((data["b"] == "2") & (data["y"] == "1"))].assign(
        d=lambda f: np.where(f["y"] == "2", "s", "t")
    )
    monkeypatch.setattr(module, "MAX_CELLS", 0)
    with pytest.warns(ConvergenceWarning):
        found = fit("y ~ a + b + d", apart)
    table = found.inference().table(of=("2", "0")).set_index("predictor")
    assert np.isnan(table.loc["d", "se"])


@pytest.mark.long
@pytest.mark.parametrize("n", [200, 2000])
def test_intervals_cover_and_tests_hold_their_level(n):
    rng, covered, rejected = np.random.default_rng(n), [], []
    h = np.array([[0.0, 0.0, 0.0, 0.0], [0.8, -0.5, 0.3, 0.0], [-0.4, 0.6, 0.0, 0.5]])
    for _ in range(500):
        codes = np.column_stack([rng.integers(0, L, n) for L in (2, 3, 2)])
        X = np.column_stack(
            [codes[:, i] == a for i, L in enumerate((2, 3, 2)) for a in range(1, L)]
        )
        y = (X @ h.T + rng.gumbel(size=(n, 3))).argmax(axis=1)
        data = pd.DataFrame(
            {
                name: pd.Categorical.from_codes(own, list("012"[: own.max() + 1]))
                for name, own in zip("abcy", (*codes.T, y), strict=True)
            }
        )
        table = fit("y ~ a + b + c", data).inference().table(of=("1", "0"))
        covered.append((table["lower"] <= h[1]) & (h[1] <= table["upper"]))
        rejected.append(table["p"].iloc[3] < 0.05)
    assert 0.93 <= np.mean(covered) <= 0.97 and 0.03 <= np.mean(rejected) <= 0.07
