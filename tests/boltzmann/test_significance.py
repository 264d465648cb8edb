"""Tests that hold their level: what cannot be estimated, sparse cells, no finite optimum,
permutations.
"""

import time

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.inference.comparisons import compare_groups, compare_pooled
from bbl.boltzmann.inference.covariance import Covariances
from bbl.boltzmann.inference.permutation import permutation_tests
from bbl.boltzmann.inference.significance import Kind, evidence, of_group
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines import PseudoLikelihood
from bbl.errors import ConvergenceWarning, DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.unpenalised import cell_counts, unpenalised
from bbl.rows.sample import Sample

TITANIC = bbl.datasets.load_titanic()
EMPTY = pd.DataFrame(([(0, 0)] * 85 + [(0, 1)] * 5 + [(1, 0)] * 10) * 2, columns=["a", "b"]).assign(
    y=["u"] * 100 + ["v"] * 100
)
ABSENT = "not estimable: no rows"


def test_empty_cells_of_the_titanic_are_marked_and_not_tested():
    inference = bbl.bbl("Survived ~ .^2", TITANIC, weights="Freq").inference()
    table = inference.table()
    cells = table[
        (table["group"] == "No") & (table["predictor"] == "Class") & (table["level2"] == "Child")
    ]
    assert (cells["test"] == ABSENT).all() and len(cells) == 3
    assert cells[["se", "z", "p", "lower", "upper"]].isna().all(axis=None)
    tests = inference.tests()
    pairs = tests[(tests["predictor"] == "Class") & (tests["predictor2"] == "Age")].set_index(
        "group"
    )
    # the crew had no children; those of the second class are missed among the dead
    assert (
        pairs.loc["No", "test"] == "exact (mid-p), 1 of 3"
        and pairs.loc["No", "df"] == 1
        and pairs.loc["No", "p"] < 1e-3
    )
    # and no child of the crew lived
    assert pairs.loc["Yes", "df"] == 3 and pairs.loc["Yes", "test"] == "exact (mid-p)"
    assert (
        table.loc[table["test"] == "Wald", ["se", "z", "p", "lower", "upper"]]
        .notna()
        .all(axis=None)
    )
    text = str(bbl.bbl("Survived ~ .^2", TITANIC, weights="Freq").summary())
    assert "exact (mid-p), 1 of 3" in text


@pytest.mark.parametrize("lambda_", [0.0, 1e-5, 1e-3])
def test_a_coupling_of_levels_that_never_meet_has_no_p_and_its_pair_that_of_fisher_whatever_the_penalty(  # noqa: E501
    lambda_,
):
    options = {"lambda_": lambda_, "lambdah": lambda_, "verbose": 0}
    if lambda_:
        fit = bbl.bbl("y ~ .^2", EMPTY, **options)
    else:
        with pytest.warns(
            ConvergenceWarning,
            match="no finite estimate.*group 'u', predictor 'a' .level 1 with level 1 of 'b'",
        ):
            fit = bbl.bbl("y ~ .^2", EMPTY, **options)
    assert fit.converged == (lambda_ > 0)
    from scipy.stats import hypergeom

    pairs, couplings = fit.interactions(), fit.inference().table().query("term == 'J'")
    assert couplings["p"].isna().all() and (couplings["test"] == ABSENT).all()
    # mid-p: the rows say nothing, and are not expected to
    half = 0.5 * hypergeom.pmf(0, 100, 10, 5)
    np.testing.assert_allclose(pairs["p"], 2 * min(half, 1 - half), rtol=1e-9)
    for of in ("pooled", ("u", "v")):
        pairs = fit.interactions(of)
        assert pairs["p"].isna().all() and (pairs["test"] == ABSENT).all()
    boot = fit.bootstrap(4, seed=0) if lambda_ else None
    assert boot is None or boot.loc[boot["test"] == ABSENT, ["se", "lower", "upper"]].isna().all(
        axis=None
    )
    # as Fisher's test says
    assert (fit.interactions(pvalues="permutation", seed=0)["p"] == 1.0).all()


def test_tests_do_not_depend_on_the_penalty():
    tables = [
        bbl.bbl("Survived ~ .^2", TITANIC, "Freq", lambda_=v, lambdah=v).inference().table()
        for v in (1e-5, 1e-2)
    ]
    for column in ("p", "lower", "upper"):
        np.testing.assert_allclose(tables[0][column], tables[1][column], rtol=1e-6, atol=1e-12)
    assert (tables[0]["test"] == tables[1]["test"]).all()


def test_copied_and_collinear_predictors_have_no_tests_and_do_not_converge():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (400, 3)), columns=list("abc")).assign(
        y=rng.integers(0, 2, 400)
    )
    data["d"] = data["a"]
    with pytest.warns(ConvergenceWarning, match="no finite estimate.*'d'"):
        fit = bbl.bbl("y ~ .^2", data, lambda_=0, lambdah=0, verbose=0)
    assert not fit.converged
    pairs = fit.interactions()
    touched = (pairs[["predictor", "predictor2"]].isin(["a", "d"])).any(axis=1)
    copies = touched & pairs[["predictor", "predictor2"]].isin(["a", "d"]).all(axis=1)
    assert pairs.loc[touched & ~copies, "p"].isna().all() and pairs.loc[~touched, "p"].notna().all()
    assert pairs.loc[touched & ~copies, "test"].str.startswith("not estimable").all()
    assert (pairs.loc[copies, "p"] < 1e-30).all()
    assert (pairs.loc[copies, "test"] == "exact (mid-p)").all()
    table = fit.inference().table()
    assert table.loc[table["predictor"].isin(["a", "d"]), "p"].isna().all()


def test_ordinary_data_converges_without_a_penalty_in_silence():
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.integers(0, 3, (600, 3)), columns=list("abc")).assign(
        y=rng.integers(0, 2, 600)
    )
    fit = bbl.bbl("y ~ .^2", data, lambda_=0, lambdah=0, verbose=0)
    assert fit.converged and (fit.inference().table()["test"] == "Wald").all()


def test_the_optimum_without_a_penalty_is_that_of_a_fit_without():
    rng, layout = np.random.default_rng(2), Layout([2, 3, 2])
    codes = np.column_stack([rng.integers(0, L, 300) for L in layout.n_levels]).astype(np.uint8)
    sample = Sample(codes, np.ones(300))
    start = PseudoLikelihood(lambda_=0.05, lambdah=0.05).fit(sample, layout).site_theta
    found, determined = unpenalised(sample, layout, start)
    np.testing.assert_allclose(
        found, PseudoLikelihood(lambda_=0.0).fit(sample, layout).site_theta, atol=1e-8
    )
    # all but a predictor's columns of itself
    assert determined.sum() == 1 + 3 + 1 + 3 + 2 * (1 + 2) + 2 - 1 - 1
    cells = cell_counts(sample, layout)[:, :, 0]
    wanted = [[((codes[:, 0] == a) & (codes[:, 1] == b)).sum() for b in (0, 1)] for a in (0, 1)]
    np.testing.assert_array_equal(cells, wanted)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 0.004, 0.3, 7.7, 1e5])
def test_an_empty_cell_is_empty_at_any_scale_of_weights(scale):
    data = pd.DataFrame(
        {
            "a": ["1", "1", "2", "0", "1", "2", "0", "2"],
            "b": ["1", "0", "2", "1", "1", "0", "2", "1"],
            "w": np.array([0.5, 0.2, 0.3, 0.2, 0.7, 0.1, 0.9, 0.13]) * scale,
        }
    )
    design = bbl.survey(weights="w")
    table = bbl.bbl("~ a*b", data, design=design, lambda_=0.1, verbose=0).inference().table()
    of_cell = table[(table["level"] == "1") & (table["level2"] == "1")]
    assert of_cell["test"].tolist() == [ABSENT]  # no row has a=0 and b=0


def test_separation_without_an_empty_cell_is_found():
    # c is decided by a and b together: every pair of levels occurs
    rows = (
        [(0, 0, 0)] * 30 + [(0, 1, 1)] * 30 + [(1, 0, 1)] * 30 + [(1, 1, 1)] * 30 + [(0, 0, 1)] * 0
    )
    layout = Layout([2, 2, 2])
    sample = Sample(np.array(rows, dtype=np.uint8), np.ones(len(rows)))
    start = PseudoLikelihood(lambda_=1e-3, lambdah=1e-3).fit(sample, layout).site_theta
    _, determined = unpenalised(sample, layout, start)
    assert not determined[2].any()


@pytest.mark.long
def test_the_level_of_the_sparse_pairs_on_the_page():
    """Independent a (10 %) and b (5 %), n = 100: 65 % were rejected once, nearly all of them empty
    cells.
    """
    rng, layout, rejected, made = np.random.default_rng(3), Layout([2, 2]), 0, 0
    for _ in range(100):
        groups = []
        for _ in range(2):
            codes = (rng.random((100, 2)) < [0.1, 0.05]).astype(np.uint8)
            sample = Sample(codes, np.ones(100)).collapsed([2, 2])
            engine = PseudoLikelihood(lambda_=1e-3, lambdah=1e-3)
            groups.append(
                evidence(sample, layout, engine.fit(engine.prepare(sample, layout), layout).theta)
            )
        for found in (*map(of_group, groups), compare_groups(*groups)):
            p = found.tables()[2][2:]
            rejected, made = rejected + int((p < 0.05).sum()), made + int((~np.isnan(p)).sum())
    assert made > 50 and rejected / made < 0.08


def test_more_predictors_than_rows_bear_no_test():
    rng = np.random.default_rng(4)
    data = pd.DataFrame(rng.integers(0, 2, (40, 30)), columns=[f"x{k}" for k in range(30)]).assign(
        y=np.arange(40) % 2
    )
    fit = bbl.bbl("y ~ .^2", data, verbose=0)
    pairs = fit.interactions()
    assert pairs["p"].isna().all() and pairs["strength"].notna().all()
    assert set(pairs["test"]) <= {Kind.FEW.text, ABSENT}


@pytest.mark.long
def test_weights_are_repeated_rows_in_every_test():
    rng = np.random.default_rng(5)
    data = (
        pd.DataFrame(rng.random((40, 3)) < [0.3, 0.2, 0.15], columns=list("abc"))
        .astype(int)
        .assign(y=np.arange(40) % 2)
    )
    data["w"] = rng.integers(1, 8, 40)
    one = bbl.bbl("y ~ .^2", data, weights="w", verbose=0)
    other = bbl.bbl("y ~ .^2", data.loc[data.index.repeat(data["w"])].drop(columns="w"), verbose=0)
    for of in ("group", "pooled", (0, 1)):
        pd.testing.assert_frame_equal(
            one.inference().table(of), other.inference().table(of), check_exact=True
        )
    options = {"pvalues": "permutation", "n": 99, "seed": 1}
    pd.testing.assert_frame_equal(
        one.interactions(**options, n_jobs=1), other.interactions(**options, n_jobs=2)
    )


def test_permutation_agrees_with_the_exact_test_and_takes_tables_of_any_size():
    rng, layout = np.random.default_rng(6), Layout([2, 2])
    codes = (rng.random((60, 2)) < 0.3).astype(np.uint8)
    codes[:25, 1] = codes[:25, 0]
    sample = Sample(codes, np.ones(60))
    _, df, p = permutation_tests(sample, layout, 9999, rng, 1)
    from scipy.stats import fisher_exact

    assert df[0] == 1 and p[0] == pytest.approx(
        fisher_exact(cell_counts(sample, layout)[:, :, 0])[1], abs=0.01
    )
    wide = Layout([3, 4, 2])
    codes = np.column_stack([rng.integers(0, L, 200) for L in wide.n_levels]).astype(np.uint8)
    _, df, p = permutation_tests(Sample(codes, np.ones(200)), wide, 99, rng, 1)
    assert df.tolist() == [6, 2, 3] and (p > 0.01).all()


def test_permutation_tests_hold_what_explains_a_pair_fixed():
    # a - c - b: a and b depend on each other only through c
    rng = np.random.default_rng(8)
    c = rng.integers(0, 2, 1000)
    data = pd.DataFrame(
        {"a": c ^ (rng.random(1000) < 0.1), "b": c ^ (rng.random(1000) < 0.1), "c": c, "y": 0}
    )
    data.loc[500:, "y"] = 1
    pairs = bbl.bbl("y ~ .^2", data, verbose=0).interactions(pvalues="permutation", seed=0)
    apart = (pairs["predictor"] == "a") & (pairs["predictor2"] == "b")
    assert (pairs.loc[apart, "p"] > 0.01).all() and (pairs.loc[~apart, "p"] == 0.001).all()


def test_strengths_are_there_without_tests(tmp_path):
    mean_field = bbl.bbl("Survived ~ .^2", TITANIC, "Freq", "mf")
    pairs = mean_field.interactions("pooled")
    assert (
        pairs["strength"].notna().all()
        and pairs["p"].isna().all()
        and pairs["test"].str.contains("mf").all()
    )
    assert mean_field.interactions(pvalues="permutation", seed=0)["p"].notna().all()
    fit = bbl.bbl("Survived ~ .^2", TITANIC, "Freq")
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    pairs = loaded.interactions(("Yes", "No"))
    np.testing.assert_array_equal(pairs["strength"], fit.interactions(("Yes", "No"))["strength"])
    assert pairs["p"].isna().all() and pairs["test"].str.contains("training rows").all()
    with pytest.raises(DataError, match="training rows"):
        loaded.interactions(pvalues="permutation")
    with pytest.raises(OptionError, match="single group"):
        fit.interactions("pooled", pvalues="permutation")
    with pytest.raises(OptionError, match="pvalues"):
        fit.interactions(pvalues="exact")
    with pytest.raises(OptionError, match="n must"):
        fit.interactions(pvalues="permutation", n=0)


def test_the_naive_bayes_test_of_the_summary_is_exact_where_counts_are_small():
    data = pd.DataFrame({"y": list("uuuuvvvvvvvvv"), "a": list("ppqppppppqqqp")})
    data["a"] = ["p", "p", "p", "q"] + ["q"] * 9
    summary = bbl.bbl("y ~ a", data, method="naive", verbose=0).summary()
    assert summary.tables["tests"]["Pr(>chisq)"].iloc[0] == pytest.approx(4 / 286)
    assert "(exact)" in str(summary)


def test_a_group_without_rows_has_no_tests_and_the_others_have():
    rng, layout, engine = np.random.default_rng(9), Layout([2, 2]), PseudoLikelihood()
    sample = Sample(
        rng.integers(0, 2, (400, 2)).astype(np.uint8), np.ones(400), np.repeat([0, 1], 200)
    )
    (result,) = estimate_path(FitData(sample, layout, 3), FitSpec(engine), pooled=True)
    found = Covariances(sample, result, engine)
    assert np.isfinite(found.standard_errors(found.group[0])).all() and found.composite[2] == (
        0.0,
        0.0,
    )
    assert (
        np.isnan(found.standard_errors(found.group[2])).all()
        and np.isnan(found.standard_errors(found.shift[2])).all()
    )
    groups = [
        evidence(sample.group(g), layout, theta) for g, theta in enumerate(result.parameters.theta)
    ]
    pooled = compare_pooled(groups, evidence(sample.pooled, layout, result.parameters.pooled))
    for full, empty in ((of_group(groups[0]), of_group(groups[2])), (pooled[0], pooled[2])):
        assert (
            np.isfinite(full.p).all()
            and np.isnan(empty.p).all()
            and (empty.verdict == Kind.ABSENT).all()
        )
    assert np.isnan(compare_groups(groups[0], groups[2]).p).all()


@pytest.mark.long
def test_the_level_of_a_sparse_pair_is_held_by_the_sum_over_all_tables():
    """Two independent predictors: every 2 x 2 table of n rows, its chance, and what the test says
    of it.
    """
    from scipy.special import gammaln

    layout, n, q = Layout([2, 2]), 14, np.array([0.5, 0.3, 0.1])
    states = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], dtype=np.uint8)
    rejected = np.zeros(3)
    for r in range(1, n):
        for c in range(1, n):
            for t in range(max(0, r + c - n), min(r, c) + 1):
                counts = np.array([n - r - c + t, c - t, r - t, t], dtype=float)
                rows = Sample(states, counts).rows(counts > 0)
                p = of_group(evidence(rows, layout, np.zeros(3))).tables()[2][2]
                ways = np.exp(gammaln(n + 1) - gammaln(counts + 1).sum())
                rejected += ways * q ** (r + c) * (1 - q) ** (2 * n - r - c) * (p < 0.05)
                assert np.isfinite(p)  # wherever both levels of both occur
    assert (rejected < 0.055).all() and rejected[0] > 0.02


def test_a_field_that_only_certain_rows_tell_of_has_no_test():
    # in group b, x = 1 is all that goes with z = 0, where fields compare levels: 0 and 3 go with z
    # = 2 only
    rows = pd.DataFrame(
        {
            "y": list("aabbb"),
            "x": [3, 0, 0, 1, 3],
            "z": [0, 0, 2, 0, 2],
            "w": [100, 50, 100, 100, 100],
        }
    )
    with pytest.warns(ConvergenceWarning):
        fit = bbl.bbl("y ~ .^2", rows, weights="w")
    for of in ("group", "pooled"):
        table = fit.inference().table(of=of)
        field = table[(table["group"] == "b") & (table["term"] == "h") & (table["level"] == 3)]
        assert (
            field["test"].tolist() == ["not estimable: no finite optimum"]
            and np.isnan(field["se"]).all()
        )


def test_tables_of_one_hypothesis_have_one_p_value_and_say_that_it_is_mid_p():
    """Of two groups, the difference and that from the pooled fit had p = .0837 and .0915."""
    inference = bbl.bbl("Survived ~ Class * Sex + Sex * Age", TITANIC, weights="Freq").inference()
    for of in ("pooled", ("Yes", "No")):
        for frame in (inference.table(of=of), inference.tests(of=of)):
            of_age = frame[(frame["predictor"] == "Age") & frame["predictor2"].isna()]
            assert of_age["p"].to_numpy() == pytest.approx(0.091477, abs=1e-6)
            assert set(of_age["test"]) == {"exact (mid-p)"}
    # a binomial count has no mid-p
    assert set(inference.verdicts()) == {"Wald", "exact", "exact (mid-p)"}


def test_a_permutation_p_at_its_bound_is_named():
    pairs = bbl.bbl("Survived ~ .^2", TITANIC, weights="Freq").interactions(
        pvalues="permutation", n=99, seed=1
    )
    is_bound = pairs["p"] == 0.01
    assert is_bound.any() and not is_bound.all()
    assert set(pairs.loc[is_bound, "test"]) == {"permutation: p is at most 1/100"}
    assert (pairs.loc[~is_bound, "test"] == "permutation").all()


@pytest.mark.long
def test_interactions_of_eighty_levels_take_seconds_and_show_their_progress(monkeypatch):
    """They took 553 s of CPU without a bar, for a fit of 6,320 parameters whose tests are exact."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 80, 5000)
    near = np.clip(codes + rng.integers(-8, 9, 5000), 0, 79)
    ages = pd.DataFrame({"age": codes, "age2": near, "y": rng.integers(0, 2, 5000)}).astype(str)
    fit = bbl.bbl("y ~ age*age2", ages, lambda_=0.01, verbose=0)
    bars = []
    show = bbl.results.machine.inference.progress_bar

    def spy(total, title, verbose):
        bars.append((total, title, verbose))
        return show(total, title, verbose)

    monkeypatch.setattr("bbl.results.machine.inference.progress_bar", spy)
    start = time.process_time()
    pairs = fit.interactions()
    assert time.process_time() - start < 5.0
    assert bars == [(2, "unpenalised fits", True), (2, "tests", True)]
    assert pairs["test"].str.startswith("exact (mid-p)").all() and (pairs["p"] < 1e-5).all()


def test_levels_of_one_cluster_alone_have_no_statistic_of_rounding_errors():
    """Deviations of one cluster's rows sum to zero up to rounding: t was 2e11 and p 3e-45."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "y": rng.choice(["u", "v"], 600),
            "w": rng.uniform(0.5, 3, 600),
            "c": rng.integers(0, 5, 600),
        }
    )
    data["b"] = np.where(data["c"] == 0, rng.choice(["p", "q"], 600), "r")
    fit = bbl.bbl("y ~ b", data, design=bbl.survey("w", cluster="c"), method="naive", verbose=0)
    table = fit.inference().table()
    assert table[["t", "p", "lower", "upper"]].isna().all(axis=None)
    assert set(table["test"]) == {"too few rows"}
    assert fit.inference().tests()["p"].isna().all()
