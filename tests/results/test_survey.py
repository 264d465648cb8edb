"""Fits with sampling designs: estimates of real weights, errors of designs, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import rsurvey

import bbl
from bbl.errors import BBLTypeError, DataError, DataWarning, OptionError
from bbl.stats.survey.plan import SamplingPlan

METHODS = ("pseudo", "ml", "naive", "conditional")
UNPENALISED = {"conditional": {"ridge": 0}}
NEEDS_R = pytest.mark.skipif(
    not rsurvey.folder().exists(), reason="the reference numbers of R are not here"
)


def clustered(seed=0, n_clusters=60, size=12):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), size)
    n, shared = len(cluster), rng.normal(size=n_clusters)[cluster]

    def answer(shift):
        return (rng.random(n) < 1.0 / (1.0 + np.exp(-0.8 * shared - shift))).astype(int)

    y = answer(0.0)
    table = {
        "y": np.where(y, "yes", "no"),
        "a": answer(0.5 * y),
        "b": answer(-0.3),
        "c": answer(0.2 * y),
    }
    table |= {"psu": cluster % 15, "stratum": np.array(list("NESW"))[cluster * 4 // n_clusters]}
    return pd.DataFrame(table | {"w": rng.uniform(0.5, 3.0, n), "adult": rng.random(n) < 0.8})


DATA = clustered()
DESIGN = bbl.survey("w", strata="stratum", cluster="psu")
FORMULA = "y ~ (a + b + c)^2"


def fit(method="pseudo", design=DESIGN, formula=FORMULA, data=DATA, **options):
    options = UNPENALISED.get(method, {}) | options
    return bbl.bbl(formula, data, design=design, method=method, verbose=0, **options)


@pytest.fixture(scope="module", params=METHODS)
def fitted(request):
    return fit(request.param)


def test_estimates_are_those_of_real_weights(fitted):
    with pytest.warns(DataWarning, match="design=bbl.survey"):
        method = fitted.engine.name
        plain = bbl.bbl(FORMULA, DATA, "w", method=method, verbose=0, **UNPENALISED.get(method, {}))
    assert (plain.params.to_numpy() == fitted.params.to_numpy()).all()
    with pytest.raises(DataError, match=r"design=bbl.survey\(weights=...\)"):
        plain.inference()


def test_a_sum_of_weights_does_not_matter(fitted):
    if fitted.engine.name == "naive":
        return  # its prior count goes by the sum of the weights
    other = fit(fitted.engine.name, data=DATA.assign(w=1000 * DATA["w"]))
    pd.testing.assert_frame_equal(other.inference().table(), fitted.inference().table(), rtol=1e-6)


def test_clusters_widen_intervals(fitted):
    single = fit(fitted.engine.name, bbl.survey("w"))
    errors = fitted.bse.to_numpy(), single.bse.to_numpy()
    assert np.nanmean(errors[0]) > np.nanmean(errors[1])
    assert fitted.survey.df == 56 and single.survey.df == len(DATA) - 1


def test_single_rows_of_equal_weights_have_the_sandwich(fitted):
    """With weights of 1 and no clusters the design is that of rows drawn with replacement."""
    data = DATA.assign(w=1.0)
    plain = (
        bbl.bbl(FORMULA, data.drop(columns="w"), method=fitted.engine.name, lambda_=0, verbose=0)
        if (fitted.engine.name == "pseudo")
        else None
    )
    if plain is None:
        return
    single = fit("pseudo", bbl.survey("w"), data=data, lambda_=0)
    n = len(data)
    known = single.bse.notna() & plain.bse.notna()
    np.testing.assert_allclose(
        single.bse[known], plain.bse[known] * np.sqrt(n / (n - 1.0)), rtol=1e-6
    )


def test_p_values_and_limits_say_the_same(fitted):
    for of in (
        ("group", ("no", "yes")) if fitted.engine.joint else ("group", "pooled", ("no", "yes"))
    ):
        table = fitted.inference().table(of)
        tested = table[table["p"].notna()]
        assert len(tested)
        assert ((tested["p"] < 0.05) == ((tested["lower"] > 0) | (tested["upper"] < 0))).all()


def test_joint_tests_of_one_parameter_are_its_own(fitted):
    inference = fitted.inference()
    table, tests = inference.table(), inference.tests()
    order = ["group", "predictor", "predictor2"]
    table, tests = (frame.sort_values(order, ignore_index=True) for frame in (table, tests))
    np.testing.assert_allclose(tests["p"], table["p"], rtol=1e-6)  # all predictors have two levels
    assert set(tests.loc[tests["p"].notna(), "test"]) == {"Rao-Scott"}


def test_covariances_of_groups_share_clusters(fitted):
    covariance = fitted.cov_params()
    half = len(covariance) // 2
    V = covariance.to_numpy()
    assert fitted.engine.joint or np.nanmax(np.abs(V[:half, half:])) > 1e-4
    difference = fitted.inference().table(of=("no", "yes"))["se"].to_numpy()
    pairs = [V[k, k] + V[half + k, half + k] - 2 * V[k, half + k] for k in range(half)]
    known = ~np.isnan(pairs) & ~np.isnan(difference)
    np.testing.assert_allclose(difference[known], np.sqrt(np.array(pairs)[known]), rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.diag(V)), fitted.bse, rtol=1e-8)


def test_saved_and_loaded(fitted, tmp_path):
    path = tmp_path / "fit.bbl"
    fitted.save(path, store_data=True)
    loaded = bbl.load(path)
    pd.testing.assert_frame_equal(loaded.inference().table(), fitted.inference().table())
    assert str(loaded.summary()) == str(fitted.summary())
    fitted.save(path)
    without_rows = bbl.load(path)
    assert without_rows.survey is None
    assert str(without_rows.summary()) == str(fitted.summary())


def test_the_summary_names_the_design(fitted):
    text = str(fitted.summary())
    assert "Sampling design" in text and "4 strata, 60 clusters; 56 degrees of freedom" in text


@pytest.mark.parametrize("method", ["pseudo", "ml", "conditional"])
def test_working_ratios_of_nested_fits(method):
    large, small = fit(method), fit(method, formula="y ~ a*b + c")
    table = bbl.anova(small, large)
    assert table["test"].str.contains("Rao-Scott").any()
    with pytest.raises(DataError, match="different sampling designs"):
        large._ratio_test(fit(method, bbl.survey("w"), "y ~ a*b + c"))


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["JKn", "bootstrap"])
def test_replicates_are_near_linearised_errors(method, kind):
    linearised, design = (
        fit(method),
        bbl.survey("w", strata="stratum", cluster="psu", type=kind, replicates=None),
    )
    ratio = fit(method, design).bse / linearised.bse
    assert ratio.dropna().between(0.85, 1.2).all()


def test_given_replicates_are_those_that_are_made():
    rows = fit(design=bbl.survey("w", strata="stratum", cluster="psu", type="JKn")).survey
    names = [f"r{k}" for k in range(rows.replicates.weights.shape[1])]
    data = pd.concat([DATA, pd.DataFrame(rows.replicates.weights, columns=names)], axis=1)
    given = bbl.survey("w", replicates=names, type="JKn", rscales=rows.replicates.rscales.tolist())
    made = bbl.survey("w", strata="stratum", cluster="psu", type="JKn")
    one, other = (fit("naive", design, "y ~ a + b + c", data) for design in (given, made))
    pd.testing.assert_series_equal(one.bse, other.bse)


@pytest.mark.parametrize("method", METHODS)
def test_lost_replicates_are_told(method):
    alone = DATA.assign(y=np.where(DATA.index < 12, "rare", DATA["y"]))
    without = pd.DataFrame(
        {f"r{k}": np.where(DATA.index < 12, 0.0, DATA["w"] * (1 + DATA["psu"] % k)) for k in (2, 3)}
    )
    design = bbl.survey("w", replicates=["r2", "r3"], type="bootstrap")
    formula = "y ~ a + b"
    model = fit(method, design, formula, alone.join(without))
    with pytest.warns(DataWarning, match="2 of 2 replicates contain no rows of one of the groups"):
        table = model.inference().table()
    rare = table[table["group"] == "rare"]
    assert rare["se"].isna().all() and rare["lower"].isna().all()
    assert rare["test"].str.contains("few rows|such rows").all()
    reported = set(table["test"][table["se"].isna()])
    assert "Wald" not in reported


def test_designs_are_compared_whole():
    model = fit("ml", formula="y ~ a * b", design=bbl.survey("w", "stratum", "psu"))
    small = fit(
        "ml",
        formula="y ~ a + b",
        design=bbl.survey("w", "stratum", "psu", fpc="N"),
        data=DATA.assign(N=90.0),
    )
    assert "different sampling designs" in bbl.anova(model, small)["test"].iloc[1]


def test_domains_keep_the_design():
    domain = fit(
        "naive", bbl.survey("w", strata="stratum", cluster="psu", domain="adult"), "y ~ a + b + c"
    )
    part = fit("naive", formula="y ~ a + b + c", data=DATA[DATA["adult"]])
    assert domain.training.n == DATA["adult"].sum() and domain.survey.plan.n == len(DATA)
    np.testing.assert_array_equal(domain.params, part.params)


def test_the_dot_leaves_out_columns_of_the_design():
    design = bbl.survey("w", strata="stratum", cluster="psu", domain="adult")
    assert fit(design=design, formula="y ~ .").labels.names == ("a", "b", "c")
    assert "stratum" in fit(design=DESIGN, formula="y ~ a + stratum").labels.names


def test_folds_are_whole_clusters():
    cv = bbl.crossVal(
        FORMULA, DATA, design=DESIGN, nfold=4, shuffle=True, seed=1, lambda_=[0.01, 0.1], verbose=0
    )
    assert cv.model.survey is not None
    tuned = fit(lambda_="cv")
    assert tuned.tuning is not None and tuned.survey.df == 56
    with pytest.raises(OptionError, match="requires at least .* clusters"):
        bbl.crossVal(FORMULA, DATA, design=DESIGN, nfold=61, verbose=0)


@pytest.mark.long
def test_columns_of_replicates_name_no_clusters_so_that_folds_may_be_given():
    made = DATA.assign(**{f"r{k}": np.where(DATA["psu"] == k, 0.0, DATA["w"]) for k in range(15)})
    design = bbl.survey("w", replicates=[f"r{k}" for k in range(15)], type="JK1")
    assert len(np.unique(fit("naive", design, data=made).survey.clusters)) == len(DATA)
    cluster = DATA["stratum"] + DATA["psu"].astype(str)
    folds = [
        (np.flatnonzero(cluster != name), np.flatnonzero(cluster == name))
        for name in cluster.unique()
    ]
    cv = bbl.crossVal(FORMULA, made, design=design, method="naive", cv=folds, verbose=0)
    assert len(cv.observed) == len(DATA)


@pytest.mark.parametrize("method", ["pseudo", "ml", "conditional"])
def test_blocks_of_rows_go_by_the_number_of_parameters(method, monkeypatch):
    whole = fit(method).conf_int()
    shapes, totals = [], SamplingPlan.totals

    def watched(plan, values, *arguments):
        shapes.append(values.shape)
        return totals(plan, values, *arguments)

    monkeypatch.setattr("bbl.boltzmann.inference.survey.MAX_INFLUENCES", 1000)
    monkeypatch.setattr(SamplingPlan, "totals", watched)
    blocks = fit(method).conf_int()
    assert all(n * size <= 1000 for n, size in shapes) and len(shapes) > 5
    pd.testing.assert_frame_equal(blocks, whole, rtol=1e-12)


def regressions():
    if not rsurvey.folder().exists():
        return []
    cases = (
        (name, rsurvey.read(name)[0]["analyses"])
        for name in rsurvey.names()
        if name != "lonely_fail"
    )
    return [
        (name, k)
        for name, analyses in cases
        for k, a in enumerate(analyses)
        if a["analysis"] == "glm"
    ]


@NEEDS_R
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, k", regressions())
@pytest.mark.thinned(5)
def test_conditional_fits_are_svyglm(name, k):
    case, table = rsurvey.read(name)
    theirs = case["analyses"][k]
    response, right = (text.strip() for text in theirs["formula"].split("~"))
    design, table = rsurvey.design(case, table)
    used = [response, *(name.strip() for name in right.replace("*", "+").split("+"))]
    inside = table["inside"] & table[used].notna().all(axis=1)
    levels = {
        name: table.loc[inside, name].cat.remove_unused_categories().cat.categories.tolist()
        for name in used[1:]
    }
    if "pw" in table and (table["pw"] == 0).any():
        table = table[table["pw"] > 0]
    table[response] = table[response].astype("Int64")
    model = fit("conditional", design, theirs["formula"], table, missing="drop", xlevels=levels)
    estimates, errors = np.array(theirs["estimate"][1:], float), np.array(theirs["se"][1:], float)
    order = rsurvey.order_of_r([len(values) - 1 for values in levels.values()], "*" in right)
    np.testing.assert_allclose(
        model.params.loc[1].to_numpy()[order], estimates, rtol=1e-7, atol=1e-9
    )
    table_of_models = bbl.etable([model], stars=False, digits=12).frame
    intercept = table_of_models.filter(like="(Intercept)", axis=0).iloc[0, 0]
    np.testing.assert_allclose(
        [float(text) for text in intercept.rstrip(")").split(" (")],
        [float(theirs["estimate"][0]), float(theirs["se"][0])],
        rtol=2e-7,
        atol=1e-9,
    )
    assert len(table_of_models) == 1 + len(estimates) + 7  # of one group, and without a clAIC
    V, scale = np.array(theirs["covariance"], float)[1:, 1:], np.outer(errors, errors)
    np.testing.assert_allclose(
        model.cov_params(1).to_numpy()[np.ix_(order, order)] / scale, V / scale, atol=2e-7
    )


@NEEDS_R
@pytest.mark.parametrize("name", ["strat_fpc", "clus1_nofpc", "clus1_fpc", "clus2_twostage_fpc"])
def test_fields_of_naive_bayes_are_logs_of_means(name):
    case, table = rsurvey.read(name)
    analysis = next(a for a in case["analyses"] if a["analysis"] == "mean_by")
    design, table = rsurvey.design(case, table)
    naive = fit("naive", design, "stype ~ awards", table, prior_count=0.0)
    means, V = np.array(analysis["estimate"]), np.array(analysis["covariance"])
    K = len(means) // 2
    jacobian = np.hstack([np.diag(-1.0 / means[:K]), np.diag(1.0 / means[K:])])
    np.testing.assert_allclose(naive.params, np.log(means[K:] / means[:K]), rtol=1e-8)
    theirs = jacobian @ V @ jacobian.T
    np.testing.assert_allclose(
        naive.cov_params().to_numpy(), theirs, rtol=1e-7, atol=1e-8 * np.abs(theirs).max()
    )


def bad(match, error=DataError, data=DATA, **design):
    with pytest.raises(error, match=match):
        fit(design=bbl.survey(**({"weights": "w"} | design)), data=data)


def test_bad_designs_are_answered():
    bad("row 0 has -1", data=DATA.assign(w=-1.0))
    bad(
        "must be positive, but row 3 has 0",
        data=DATA.assign(w=np.where(np.arange(len(DATA)) == 3, 0.0, 1.0)),
    )
    bad("row 5", data=DATA.assign(w=np.where(np.arange(len(DATA)) == 5, np.nan, 1.0)))
    bad("missing in row 2", data=DATA.assign(psu=DATA["psu"].where(DATA.index != 2)), cluster="psu")
    bad(
        r"cluster '0' of column 'psu' is in the strata",
        strata="stratum",
        cluster="psu",
        nested=False,
    )
    lone = DATA.assign(stratum=np.where(DATA.index < 12, "alone", DATA["stratum"]))
    bad(r"stratum 'alone' has only one cluster, ", data=lone, strata="stratum", cluster="psu")
    for lonely in ("adjust", "average", "remove"):
        assert (
            fit("naive", bbl.survey("w", "stratum", "psu", lonely=lonely), "y ~ a", lone)
            .bse.notna()
            .all()
        )
    bad("no column 'r1'", replicates=["r1", "r2"], type="JK1")
    bad("2 columns of the design are missing from", replicates=["r1", "r2"], type="JK1")
    bad("type", OptionError, replicates=["r1", "r2"])
    bad("rscales", OptionError, replicates=["r1", "r2"], type="JKn")
    bad("JK1", OptionError, strata="stratum", cluster="psu", type="JK1")
    bad("two clusters in each stratum", OptionError, strata="stratum", cluster="psu", type="BRR")
    bad(
        "design has only one cluster, .*omit the cluster argument",
        data=DATA.assign(psu=0),
        cluster="psu",
    )
    uneven = DATA.assign(N=np.where(DATA.index == 7, 60.0, 50.0))
    bad(
        "has 50 in row 0 and 60 in row 7 of the same stratum",
        data=uneven,
        strata="stratum",
        cluster="psu",
        fpc="N",
    )
    bad("in row 7 of the same design", data=uneven, cluster="psu", fpc="N")
    stages = uneven.assign(M=100.0, ssu=np.arange(len(DATA)))
    bad(
        "in row 7 of the same cluster of 'psu'",
        data=stages,
        cluster=["psu", "ssu"],
        fpc=["M", "N"],
    )
    alone = stages.assign(N=50.0, ssu=np.where(DATA["psu"] == 3, 0, stages["ssu"]))
    bad(
        "one cluster of column 'psu' has only one cluster, .*cluster, or pass lonely='remove'",
        data=alone,
        cluster=["psu", "ssu"],
        fpc=["M", "N"],
    )
    replicated = DATA.assign(r1=DATA["w"], r2=DATA["w"])
    bad(
        "rho is.*type='Fay'",
        OptionError,
        replicated,
        replicates=["r1", "r2"],
        type="BRR",
        rho=0.5,
    )
    bad("type='Fay' requires rho", OptionError, replicated, replicates=["r1", "r2"], type="Fay")
    bad("mse applies to replicates.*Omit the mse argument, or choose a type", OptionError, mse=True)
    bad(
        "Omit the fpc argument, or use type='JKn'",
        OptionError,
        DATA.assign(N=99.0),
        strata="stratum",
        cluster="psu",
        fpc="N",
        type="BRR",
    )
    assert fit(
        "naive",
        bbl.survey("w", "stratum", "psu", "N", type="JKn", mse=True),
        "y ~ a",
        DATA.assign(N=99.0),
    )
    bad("more units were sampled there", data=DATA.assign(N=3.0), cluster="psu", fpc="N")
    bad("fpc lists 1 columns", OptionError, cluster=["psu", "a"], fpc="N")
    bad("True and False", domain="psu")
    with pytest.raises(BBLTypeError, match="Add the values to the table"):
        bbl.survey("w", strata=DATA["stratum"])
    with pytest.raises(BBLTypeError, match="Add the values to the table"):
        bbl.survey("w", domain=DATA["adult"])
    for names in ([], ["w", "a"], None):
        with pytest.raises(BBLTypeError, match="weights must be the name of one column"):
            bbl.survey(names)
    with pytest.raises(OptionError, match="Omit the weights argument"):
        bbl.bbl(FORMULA, DATA, "w", design=DESIGN)
    with pytest.raises(BBLTypeError, match="result of bbl.survey"):
        bbl.bbl(FORMULA, DATA, design="w")
    for method in ("mf", "pvi", "bayes", "auto"):
        with pytest.raises(OptionError, match="sampling design"):
            fit(method)


def test_what_counts_single_rows_is_refused():
    model = fit("ml")
    for ask in (model.bootstrap, model.goodness_of_fit, model.odds_ratios, lambda: model.claic):
        with pytest.raises((DataError, OptionError), match="sampling design|composite|likelihood"):
            ask()


def test_the_text_of_one_cluster_is_singular():
    model = fit(
        "naive", bbl.survey("w", cluster="psu", lonely="adjust"), "y ~ a", DATA.assign(psu=0)
    )
    assert "(1 cluster; 0 degrees of freedom)" in model.inference().note


@pytest.mark.parametrize("groups", [("small", "big"), ("small", "big", "other")])
def test_a_difference_from_the_pooled_fit_is_as_uncertain_as_the_other_groups(groups):
    """With two groups "big against all" is the hypothesis of "small against all": what few rows
    withhold, both lack.
    """
    rows = [("small", 0, 24), ("small", 1, 6), ("big", 0, 2400), ("big", 1, 510), ("big", 2, 90)]
    rows += [("other", 0, 24), ("other", 1, 6)]
    data = pd.DataFrame(
        [(y, a) for y, a, n in rows if y in groups for _ in range(n)], columns=["y", "a"]
    )
    model = bbl.bbl("y ~ a", data.assign(w=1.0), design=bbl.survey("w"), method="naive", verbose=0)
    table = model.inference().table("pooled").set_index(["group", "level"])
    assert table["p"].isna()[:, 2].all() and table.loc[("big", 2), "test"] != "Wald"
    assert np.isfinite(table.loc[("big", 1), "p"])


def test_the_summary_of_a_regression_has_its_coefficients():
    model = fit("conditional", DESIGN, "y ~ a + b")
    summary = model.summary()
    text = str(summary)
    assert "naive Bayes" not in text and "NaN" not in text and "chisq" not in text
    table = summary.tables["Coefficients"]
    assert table.index.tolist() == ["(Intercept)", "a=1", "b=1"]
    assert table.columns.tolist() == ["Estimate", "Std. Error", "t", "Pr(>|t|)"]
    errors = table["Std. Error"].astype(float).to_numpy()
    np.testing.assert_allclose(errors[1:], model.bse.loc["yes"], rtol=1e-3)
    tests = summary.tables["Tests of the fields, h = 0 (yes)"]
    # F of one parameter is the square of its t
    np.testing.assert_allclose(
        tests["F"].astype(float), table["t"].astype(float).iloc[1:] ** 2, rtol=2e-3
    )
    assert f"Observations: effective number {model.nobs():,.1f}" in text
    assert "720 rows" in text


@pytest.mark.parametrize("method", ["ml", "pseudo", "naive"])
def test_a_summary_under_a_design_has_no_tests_that_count_rows(method):
    model = fit(method, DESIGN, "y ~ a + b")
    text = str(model.summary())
    assert "naive Bayes" not in text and "NaN" not in text and "chisq" not in text
    assert "t" in model.inference().table() and "z" not in model.inference().table()
    assert " t " in str(model.avg_comparisons("a")) and " z " not in str(model.avg_comparisons("a"))
    assert "clAIC" not in bbl.etable([model]).frame.index


def test_messages_count_rows_and_not_weights():
    data = DATA.assign(w=DATA["w"] * 1000.0, id=np.arange(len(DATA)))
    gaps = data.assign(a=data["a"].astype(object).where(data.index % 72 > 0, None))
    model = bbl.bbl("y ~ a + b", gaps, design=DESIGN, method="ml", missing="drop")
    assert "10 observations with missing values dropped" in str(model.summary())
    with pytest.raises(DataError, match="720 distinct numbers in 720 rows"):
        bbl.bbl("y ~ id + a", data, design=DESIGN, method="ml")
    assert bbl.etable([model]).frame.loc["Observations"].tolist() == ["710"]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("naive", {"prior_count": 1.0}),
        ("ml", {"prior_count": 2.0}),
        ("pseudo", {"prior_count": 1.0}),
    ],
)
@pytest.mark.long
def test_the_scale_of_sampling_weights_does_not_matter(method, options):
    few = DATA[DATA["psu"] % 3 == 0]  # each cluster is a refit of the jackknife
    for kind, data in (({}, DATA), ({"type": "JKn"}, few)):
        design = bbl.survey("w", strata="stratum", cluster="psu", **kind)
        plain, *others = (
            fit(method, design, "y ~ a * b", data.assign(w=data["w"] * factor), **options)
            for factor in (1.0, 1e-6, 0.37, 1e6)
        )
        for scaled in others:
            for name in ("params", "bse", "tvalues", "pvalues"):
                np.testing.assert_allclose(getattr(scaled, name), getattr(plain, name), rtol=1e-5)
            np.testing.assert_allclose([scaled.aic, scaled.bic], [plain.aic, plain.bic], rtol=1e-8)


def test_an_evaluation_of_new_rows_does_not_depend_on_the_scale_of_their_weights():
    weights = np.random.default_rng(0).integers(1, 9, len(DATA))
    model = fit("ml", DESIGN, "y ~ a + b")
    plain = model.evaluate(DATA, weights=weights)
    for factor in (1e-6, 0.3, 1000):
        scaled = model.evaluate(DATA, weights=weights * factor)
        np.testing.assert_allclose(
            scaled.scores.to_numpy(float), plain.scores.to_numpy(float), rtol=1e-9
        )
        assert "720 rows (effective number" in str(scaled)
