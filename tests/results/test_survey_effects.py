"""Effects on probabilities under sampling designs: R's domain means and regressions, replicates,
and what is said.
"""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import rsurvey

import bbl
from bbl.errors import DataError, DataWarning

METHODS = {
    "pseudo": {"lambda_": 0.0},
    "ml": {},
    "naive": {"prior_count": 0.0},
    "conditional": {"ridge": 0},
}
NEEDS_R = pytest.mark.skipif(
    not rsurvey.folder().exists(), reason="the reference numbers of R are not here"
)
MEANS = [
    "strat_fpc",
    "clus1_nofpc",
    "clus1_fpc",
    "clus2_twostage_fpc",
    "rep_jk1",
    "rep_bootstrap",
    "rep_jkn",
    "rep_brr",
]
DESIGN = bbl.survey("w", strata="stratum", cluster="psu")


def clustered(seed=0, n_clusters=60, size=12):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), size)
    shared = rng.normal(size=n_clusters)[cluster]

    def answer(shift):
        return (rng.random(len(cluster)) < 1.0 / (1.0 + np.exp(-0.8 * shared - shift))).astype(int)

    y = answer(0.0)
    table = {
        "y": np.where(y, "yes", "no"),
        "a": answer(0.5 * y),
        "b": answer(-0.3),
        "c": answer(0.2 * y),
    }
    table |= {"psu": cluster % 15, "stratum": np.array(list("NESW"))[cluster * 4 // n_clusters]}
    return pd.DataFrame(
        table | {"w": rng.uniform(0.5, 3.0, len(cluster)), "adult": rng.random(len(cluster)) < 0.8}
    )


DATA = clustered()


def fit(method="ml", design=DESIGN, formula="y ~ a*b + c", data=DATA, **options):
    return bbl.bbl(
        formula, data, design=design, method=method, verbose=0, **METHODS[method] | options
    )


@NEEDS_R
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MEANS)
@pytest.mark.thinned(3)
def test_saturated_models_have_the_domain_means_of_r(name, method):
    case, table = rsurvey.read(name)
    theirs = next(a for a in case["analyses"] if a["analysis"] == "mean_by")
    design, table = rsurvey.design(case, table)
    options = {}
    if (method, name) == ("pseudo", "rep_brr"):
        # in half of the replicates a class has one type of school only. Without a prior count,
        # however small, pseudo-likelihood adds a row of another type (section 2.2 of the paper),
        # and its errors are 0.8 % smaller
        options = {"prior_count": 1e-12}
    effects = fit(method, design, "awards ~ stype", table, **options).avg_predictions(
        by="stype", verbose=0
    )
    frame = effects.frame.sort_values(["group", "stype"])
    np.testing.assert_allclose(frame["estimate"], theirs["estimate"], atol=1e-10)
    errors = np.array(theirs["se"], dtype=float)
    np.testing.assert_allclose(frame["std_error"].fillna(0.0), errors, rtol=1e-8)
    assert (frame.loc[errors == 0.0, "note"] != "").all()


def regressions():
    if not rsurvey.folder().exists():
        return []
    cases = {name: rsurvey.read(name)[0] for name in rsurvey.names() if name != "lonely_fail"}
    return [
        (name, k)
        for name, case in cases.items()
        for k, a in enumerate(case["analyses"])
        if a["analysis"] == "glm" and case["design"]["type"] == "taylor"
    ]


@NEEDS_R
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, k", regressions())
@pytest.mark.thinned(5)
def test_predictions_of_conditional_fits_have_the_errors_of_svyglm(name, k):
    """R's covariance of the coefficients by the delta method."""
    case, table = rsurvey.read(name)
    theirs = case["analyses"][k]
    response, right = (text.strip() for text in theirs["formula"].split("~"))
    design, table = rsurvey.design(case, table)
    names = [name.strip() for name in right.replace("*", "+").split("+")]
    inside = table["inside"] & table[[response, *names]].notna().all(axis=1)
    levels = {
        name: table.loc[inside, name].cat.remove_unused_categories().cat.categories.tolist()
        for name in names
    }
    table[response] = table[response].astype("Int64")
    model = fit("conditional", design, theirs["formula"], table, missing="drop", xlevels=levels)
    frame = model.predictions(grid="balanced").frame.query("group == 1")
    rows = []
    for codes in itertools.product(*(range(len(values)) for values in levels.values())):
        blocks = [
            np.eye(len(values))[code][1:]
            for values, code in zip(levels.values(), codes, strict=True)
        ]
        products = [np.outer(blocks[0], blocks[1]).T.ravel()] if "*" in right else []
        rows.append(np.concatenate([np.ones(1), *blocks, *products]))
    Z, V = np.array(rows), np.array(theirs["covariance"], dtype=float)
    p = 1.0 / (1.0 + np.exp(-Z @ np.array(theirs["estimate"], dtype=float)))
    np.testing.assert_allclose(frame["estimate"], p, atol=1e-9)
    np.testing.assert_allclose(
        frame["std_error"], p * (1 - p) * np.sqrt(((Z @ V) * Z).sum(axis=1)), rtol=1e-7
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.long
def test_replicates_are_near_linearised_errors(method):
    linearised = fit(method).avg_comparisons(verbose=0)
    jackknife = fit(method, bbl.survey("w", strata="stratum", cluster="psu", type="JKn"))
    effects = jackknife.avg_comparisons(n_jobs=1, verbose=0)
    ratio = effects.frame["std_error"] / linearised.frame["std_error"]
    assert ratio.between(0.9, 1.15).all()
    pd.testing.assert_series_equal(effects.frame["estimate"], linearised.frame["estimate"])
    assert "56 degrees of freedom" in linearised.note and "60 replicates" in effects.note
    pd.testing.assert_frame_equal(
        effects.frame, jackknife.avg_comparisons(n_jobs=2, verbose=0).frame
    )


@pytest.mark.parametrize("method", METHODS)
def test_limits_are_of_a_t_distribution(method):
    from scipy.stats import t

    frame = fit(method).avg_comparisons("a").frame
    np.testing.assert_allclose(
        frame["conf_high"] - frame["estimate"], t(56).ppf(0.975) * frame["std_error"]
    )
    np.testing.assert_allclose(frame["p_value"], 2 * t(56).sf(frame["statistic"].abs()))


@pytest.mark.parametrize("method", METHODS)
def test_clusters_and_weights_count(method):
    clusters, single = (
        fit(method).avg_predictions().frame,
        fit(method, bbl.survey("w")).avg_predictions().frame,
    )
    assert (clusters["std_error"] > 1.1 * single["std_error"]).all()
    if method != "naive":  # its prior count goes by the sum of the weights
        large = fit(method, data=DATA.assign(w=1000 * DATA["w"])).avg_comparisons().frame
        pd.testing.assert_frame_equal(large, fit(method).avg_comparisons().frame, rtol=1e-6)


@pytest.mark.parametrize("method", ["ml", "conditional"])
def test_given_class_shares_have_no_errors_of_their_own(method):
    """The odds between levels, which do not depend on class shares, have the same errors."""
    free, fixed = fit(method, formula="y ~ a"), fit(method, formula="y ~ a", priors="equal")
    frames = [m.avg_comparisons("a", transform="lnoddsratio").frame for m in (free, fixed)]
    np.testing.assert_allclose(frames[1]["std_error"], frames[0]["std_error"], rtol=1e-6)
    both = [m.avg_predictions(by="a").frame["std_error"] for m in (free, fixed)]
    assert (np.abs(both[1] - both[0]) > 1e-4).all()


def test_a_domain_keeps_the_clusters_of_all_rows():
    design = bbl.survey("w", strata="stratum", cluster="psu", domain="adult")
    inside = fit("ml", design)
    frame = inside.avg_comparisons().frame
    cut = fit("ml", data=DATA[DATA["adult"]]).avg_comparisons().frame
    pd.testing.assert_series_equal(frame["estimate"], cut["estimate"])
    assert np.isfinite(frame["std_error"]).all()


@pytest.mark.long
def test_loaded_models_answer_alike(tmp_path):
    for design in (DESIGN, bbl.survey("w", strata="stratum", cluster="psu", type="JKn")):
        model = fit("ml", design)
        model.save(tmp_path / "fit.bbl", store_data=True)
        loaded = bbl.load(tmp_path / "fit.bbl").avg_comparisons(verbose=0).frame
        pd.testing.assert_frame_equal(
            loaded, model.avg_comparisons(verbose=0).frame, check_exact=True
        )


def test_a_replicate_without_rows_of_a_level_does_not_count():
    rare = np.where(np.arange(len(DATA)) < 12, 2, DATA["a"])
    data = DATA.assign(a=rare)  # level 2 is in one cluster only
    model = fit(
        "ml", bbl.survey("w", strata="stratum", cluster="psu", type="JKn"), "y ~ a + c", data
    )
    frame = model.avg_comparisons("a", verbose=0).frame
    assert (
        np.isfinite(frame["std_error"]).all()
        and frame["note"].str.contains("no rows at these levels").any()
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_lonely_stratum_without_a_group_counts_in_the_average(method):
    """The strata of the fit are averaged over, as in R's svyby and svyglm."""
    rng = np.random.default_rng(0)
    stratum = np.repeat([0, 1, 2, 3], [6, 30, 30, 30])
    psu = np.r_[np.zeros(6, int), np.tile(np.repeat(np.arange(5), 6), 3)]
    data = pd.DataFrame(
        {"stratum": stratum, "psu": psu, "a": rng.integers(0, 2, 96), "w": rng.uniform(0.5, 2, 96)}
    )
    data["y"] = np.where((rng.random(96) < 0.5) & (stratum > 0), "yes", "no")
    errors = {}
    for lonely in ("remove", "average"):
        design = bbl.survey("w", strata="stratum", cluster="psu", lonely=lonely)
        frame = fit(method, design, "y ~ a", data).avg_predictions(by="a").frame
        errors[lonely] = frame["std_error"].to_numpy()
    np.testing.assert_allclose(errors["average"] / errors["remove"], np.sqrt(4 / 3), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_an_average_over_no_strata_leaves_no_error(method):
    design = bbl.survey("w", strata="stratum", cluster="psu", lonely="average")
    model = fit(method, design, "y ~ a + b", DATA.assign(psu=0, a=DATA["a"] + DATA["c"]))
    assert model.inference().table()["se"].isna().all()
    frame = model.avg_predictions(by="a").frame
    assert frame["std_error"].isna().all() and frame["note"].str.contains("not estimable").all()


def separated_replicate():
    """Clusters of which the first alone has the group 0 at level 1."""
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(8), 15)
    data = pd.DataFrame(
        {"psu": cluster, "a": rng.integers(0, 2, 120), "b": rng.integers(0, 2, 120), "w": 1.0}
    )
    data["y"] = (rng.random(120) < 0.5).astype(int)
    data.loc[(data["a"] == 1) & (data["psu"] > 0), "y"] = 1
    data.loc[data.index[(data["a"] == 1) & (data["psu"] == 0)][:2], "y"] = 0
    return data


@pytest.mark.parametrize("method", ["conditional", "ml", "pseudo", "naive"])
def test_a_replicate_in_which_groups_are_separated_leaves_no_error(method):
    data = separated_replicate()
    replicates = fit(method, bbl.survey("w", cluster="psu", type="JK1"), "y ~ a + b", data)
    with pytest.warns(DataWarning, match="In 1 of 8 replicates, 1 of .* infinite.* Hint: Omit"):
        table = replicates.inference().table(of=(0, 1))
    assert table["se"].isna().tolist() == [True, False]
    # the hint works
    linearised = fit(method, bbl.survey("w", cluster="psu"), "y ~ a + b", data)
    errors = linearised.inference().table(of=(0, 1))["se"]
    assert (errors < 2.0).all()
    # effects have finite values in all replicates
    assert replicates.avg_comparisons("a", verbose=0).frame["std_error"].between(0.05, 0.3).all()


def test_a_prior_count_keeps_replicates_finite():
    design = bbl.survey("w", cluster="psu", type="JK1")
    model = fit("naive", design, "y ~ a + b", separated_replicate(), prior_count=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.bse).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_census_has_no_sampling_error(method):
    data = DATA.assign(N=15, a=DATA["a"] + DATA["c"])
    model = fit(method, bbl.survey("w", "stratum", "psu", "N"), "y ~ a + b", data)
    frame = model.avg_predictions(by="a").frame
    assert (frame["std_error"] == 0.0).all()
    np.testing.assert_array_equal(frame["conf_low"], frame["estimate"])
    assert frame["note"].str.contains("whole population").all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = model.inference().table(of=("yes", "no"))
    assert (table["se"] == 0.0).all() and (table["p"] == 0.0).all()


def test_what_has_no_interval_says_why():
    data = DATA.assign(psu=0)
    design = bbl.survey("w", strata="stratum", cluster="psu", lonely="adjust")
    frame = fit("ml", design, "y ~ a", data).avg_comparisons("a").frame
    assert frame["conf_low"].isna().all() and frame["note"].str.contains("too few clusters").all()
    with pytest.raises(DataError, match="sampling design"):
        fit().avg_comparisons(se="bootstrap")
    few = DATA.assign(a=np.where(np.arange(len(DATA)) % 240 < 3, 2, DATA["a"]), w=1e6 * DATA["w"])
    notes = fit("ml", data=few, formula="y ~ a + c").avg_comparisons({"a": (2, 0)}).frame["note"]
    assert notes.str.contains("few rows").all()
