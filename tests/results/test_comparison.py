"""Models side by side: the composite likelihood-ratio test and its level, tables, names of
statsmodels, figures.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bbl
from bbl import networks
from bbl.boltzmann.inference.nested import ratio_test
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.model.states import sample_states
from bbl.rows.sample import Sample

matplotlib.use("Agg")
LAYOUT = Layout([2, 3, 2, 2], [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
KEPT = np.array([True, True, False, True, False, False])


def groups(seed, n, strength=0.0):
    """Draw two groups from models that lack three pairs, or have them with a strength."""
    rng, own = np.random.default_rng(seed), np.random.default_rng(3)
    theta = np.zeros((2, LAYOUT.size))
    theta[:, : LAYOUT.D] = own.normal(0, 0.3, (2, LAYOUT.D))
    for p, kept in enumerate(KEPT):
        cells = slice(LAYOUT.pair_start[p], LAYOUT.pair_start[p + 1])
        theta[:, cells] = own.normal(0, 0.7, theta[:, cells].shape) if kept else strength
    drawn = [sample_states(*to_matrix(LAYOUT, t), LAYOUT.n_levels, n, rng) for t in theta]
    return [Sample(codes, np.ones(n)) for codes in drawn], theta


def data(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    y, a, b, c = rng.integers(0, 2, (4, n))
    return pd.DataFrame({"y": y, "a": a, "b": np.where(rng.random(n) < 0.3, a, b), "c": c})


@pytest.fixture(scope="module")
def fits():
    table = data()
    return {
        right: bbl.bbl(f"y ~ {right}", table)
        for right in ("a + b + c", "a * b + c", "a * b + a:c", "a * c + b")
    }


def table_ratio(table):
    """Return the likelihood ratio of independence of a and b in both groups."""
    parts = [pd.crosstab(g.a, g.b) for _, g in table.groupby("y")]
    return sum(
        stats.chi2_contingency(p, correction=False, lambda_="log-likelihood")[0] for p in parts
    )


def test_the_test_of_one_pair_of_two_levels_is_the_likelihood_ratio_of_its_table():
    """Both conditional likelihoods of a 2 x 2 table are the same: the ratio is twice that of the
    table.
    """
    table = data()
    found = bbl.anova(bbl.bbl("y ~ a + b", table), bbl.bbl("y ~ a * b", table)).iloc[1]
    assert found["ratio"] == pytest.approx(2 * table_ratio(table), rel=1e-6)
    assert found["df"] == 2
    apart = table.assign(b=np.random.default_rng(1).integers(0, 2, len(table)))
    found = bbl.anova(bbl.bbl("y ~ a + b", apart), bbl.bbl("y ~ a * b", apart, lambda_=0.5)).iloc[1]
    # whatever the penalty of the fit
    assert found["ratio"] == pytest.approx(2 * table_ratio(apart), rel=1e-5)
    assert found["p"] == pytest.approx(stats.chi2.sf(table_ratio(apart), 2), rel=0.05)


def test_order_and_direction_do_not_matter(fits):
    small, large = fits["a + b + c"], fits["a * b + c"]
    forth, back = bbl.anova(small, large).iloc[1], small.compare(large).iloc[1]
    pd.testing.assert_series_equal(forth, back)
    assert large.compare(small).iloc[1]["p"] == forth["p"] < 1e-6
    turned = bbl.bbl("y ~ c + b + a", data())
    assert turned.compare(large).iloc[1]["ratio"] == pytest.approx(forth["ratio"], rel=1e-9)
    named = bbl.anova({"small": small, "large": large})
    assert list(named.index) == ["small y ~ a + b + c, pseudo", "large y ~ a * b + c, pseudo"]


def test_a_weight_is_a_repeated_row(fits):
    counted = data().groupby(["y", "a", "b", "c"]).size().rename("n").reset_index()
    both = [bbl.bbl(f"y ~ {right}", counted, "n") for right in ("a + b + c", "a * b + c")]
    one, other = bbl.anova(*both).iloc[1], bbl.anova(fits["a + b + c"], fits["a * b + c"]).iloc[1]
    assert (one["ratio"], one["p"]) == pytest.approx((other["ratio"], other["p"]), rel=1e-9)


def test_what_cannot_be_tested_is_said_in_words(fits, tmp_path):
    table, few = data(), data(60)
    small = fits["a + b + c"]
    holes = table.astype(object)
    holes.loc[0, "a"] = None
    with_holes = [
        bbl.bbl(f"y ~ {right}", holes, missing="marginal") for right in ("a + b + c", "a * b + c")
    ]
    loaded = tmp_path / "fit.bbl"
    fits["a * b + c"].save(loaded)
    cases = [
        (fits["a * b + c"], fits["a * c + b"], "not nested"),
        (small, bbl.bbl("y ~ c + b + a", table), "same pairs"),
        (small, bbl.bbl("y ~ a * b", table), "'c'"),
        (small, bbl.bbl("y ~ a * b + c", table.iloc[1:]), "different rows"),
        (bbl.bbl("y ~ .^2", few), bbl.bbl("y ~ .^3", few), "too few rows"),
        (*with_holes, "missing values"),
        (small, bbl.bbl("y ~ a * b + c", table, method="mf"), "no test: "),
        (small, networks.bnc("nb", "y ~ .", table, 1), "Boltzmann machines"),
        (bbl.load(loaded), small, "training rows"),
    ]
    for one, other, words in cases:
        found = bbl.anova(one, other).iloc[1]
        assert (
            np.isnan(found["p"]) and found["test"].startswith("no test") and words in found["test"]
        ), words
    for wrong in (3, [small], [small, "fit"]):
        with pytest.raises(BBLTypeError, match="fits"):
            bbl.anova(wrong)


def holes(seed, n=3000):
    """Return three predictors of pure noise, of which a third of one is missing."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.integers(0, 3, (n, 3)), columns=list("abc")).astype(object)
    table.loc[rng.random(n) < 0.3, "a"] = None
    return table.assign(y=rng.integers(0, 2, n))


def test_composite_criteria_of_all_formulas_count_the_complete_rows():
    table = holes(0)
    fits = [
        bbl.bbl(f"y ~ {right}", table, missing="marginal")
        for right in ("a + b + c", "a * b + c", ".^2")
    ]
    noise = [(fit.claic - fits[0].claic, fit.clbic - fits[0].clbic) for fit in fits[1:]]
    # less than what was counted twice
    assert all(0 < aic < 80 and aic < bic < 500 for aic, bic in noise)
    table.loc[table.index % 2 == 0, "b"] = table["a"].where(table["a"].notna(), 0)[
        table.index % 2 == 0
    ]
    paired = [
        bbl.bbl(f"y ~ {right}", table, missing="marginal")
        for right in ("a + b + c", "a * b + c", "a + b * c")
    ]
    assert paired[1].claic < paired[0].claic - 500 and abs(paired[2].claic - paired[0].claic) < 80
    assert paired[1].claic == bbl.anova(*paired)["clAIC"].iloc[1]


def test_without_complete_rows_there_are_no_composite_criteria():
    table = holes(1, 400)
    table.loc[table["a"].notna() & (table["y"] == 0), "b"] = None
    fit = bbl.bbl("y ~ a + b + c", table, missing="marginal")
    for name in ("claic", "clbic"):
        with pytest.raises(DataError, match=r"group 0 has no complete rows.*aic or bic"):
            getattr(fit, name)
    assert np.isfinite([fit.aic, fit.bic]).all() and np.isnan(bbl.anova(fit, fit)["clAIC"]).all()


def test_criteria_of_other_rows_are_not_set_side_by_side():
    table = holes(2)
    fits = [
        bbl.bbl(f"y ~ {right}", table, missing="drop") for right in ("b + c", "a + b + c", "b * c")
    ]
    found = bbl.anova(*fits)[["AIC", "BIC", "clAIC"]].isna().all(axis=1)
    assert found.tolist() == [False, True, False]
    frame = bbl.etable(fits).frame.loc[["AIC", "BIC", "clAIC"]]
    assert (frame["(2)"] == "").all() and (frame[["(1)", "(3)"]] != "").all(axis=None)
    assert "number of observations" in repr(bbl.etable(fits))
    assert "number of observations" not in repr(bbl.etable(fits[:1]))


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_the_order_of_predictors_with_gaps_does_not_matter(method):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {name: rng.choice(list("uvw")[:L], 300) for name, L in (("a", 2), ("b", 3), ("y", 2))}
    )
    data.loc[rng.random(300) < 0.1, "a"] = None
    data.loc[rng.random(300) < 0.2, "b"] = None
    large, *small = (
        bbl.bbl(text, data, method=method, missing="marginal", verbose=0)
        for text in ("y ~ a*b", "y ~ a + b", "y ~ b + a")
    )
    reasons = [bbl.anova(fit, large)["test"].iloc[-1] for fit in small]
    assert (
        reasons[0] == reasons[1] and "models with different terms use different rows" in reasons[0]
    )
    again = bbl.bbl("y ~ b*a", data, method=method, missing="marginal", verbose=0)
    assert "have the same pairs" in bbl.anova(again, large)["test"].iloc[-1]


def test_terms_of_three_predictors_are_tested():
    table = data()
    fits = [bbl.bbl(f"y ~ {right}", table) for right in (".", ".^2", ".^3")]
    found = bbl.anova(*fits).iloc[2]
    tests = fits[2].inference().tests()
    triples = tests[tests["order"] == 3]["p"]
    assert found["p"] == pytest.approx(min(1.0, 2 * triples.min())) and found["df"] == 2
    assert found["test"] == "smallest p of 2 tests of terms, Bonferroni-corrected" and np.isnan(
        found["ratio"]
    )
    assert (
        bbl.anova(fits[0], fits[2]).iloc[1]["p"] < 1e-6
        and bbl.anova(fits[0], fits[2]).iloc[1]["df"] == 8
    )
    parity = table.assign(c=np.where(np.arange(len(table)) % 2, (table.a + table.b) % 2, table.c))
    assert bbl.anova(bbl.bbl("y ~ .^2", parity), bbl.bbl("y ~ .^3", parity)).iloc[1]["p"] < 1e-6


# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the training rows:bbl.DataWarning")
@pytest.mark.long
def test_pairs_of_sparse_cells_have_a_p_value_too():
    rng, p = np.random.default_rng(0), []
    for _ in range(40):
        table = pd.DataFrame(rng.choice(3, (90, 3), p=[0.7, 0.2, 0.1]), columns=list("abc")).assign(
            y=np.arange(90) % 2
        )
        fits = [
            bbl.bbl(f"y ~ {right}", table, lambdah=0.01, testNull=False)
            for right in ("a + b + c", "a * b + c")
        ]
        p.append(bbl.anova(*fits).iloc[1]["p"])
    assert np.isfinite(p).all() and np.mean(np.array(p) < 0.05) < 0.15
    table["b"] = np.where(rng.random(90) < 0.8, table["a"], table["b"])
    fits = [bbl.bbl(f"y ~ {right}", table, lambdah=0.01) for right in ("a + b + c", "a * b + c")]
    assert bbl.anova(*fits).iloc[1]["p"] < 1e-3


def test_a_group_with_too_few_rows_refuses_the_test_of_all():
    parts, theta = groups(0, 1000)
    found = ratio_test([(parts[0], None), (parts[1].rows(slice(40)), None)], LAYOUT, theta, KEPT)
    assert np.isnan(found.p) and {g for g, *_ in found.refused} == {1} and len(found.refused) == 3


def test_strong_pairs_are_found():
    parts, theta = groups(1, 1500, strength=0.6)
    found = ratio_test([(rows, None) for rows in parts], LAYOUT, theta, KEPT)
    assert found.p < 1e-6 and found.df == 2 * (1 + 2 + 1)


@pytest.mark.long
@pytest.mark.parametrize("n", [800, 3000])
def test_the_ratio_test_holds_its_level(n):
    p = []
    for seed in range(600):
        parts, theta = groups(seed, n)
        p.append(ratio_test([(rows, None) for rows in parts], LAYOUT, theta, KEPT).p)
    made = np.array(p)[~np.isnan(p)]
    assert len(made) > 300
    for alpha in (0.01, 0.05, 0.1):
        assert (made < alpha).mean() < alpha + 3 * np.sqrt(alpha * (1 - alpha) / len(made))
    assert stats.kstest(made, "uniform").pvalue > 0.001


def test_a_table_of_models_has_estimates_errors_stars_and_facts(fits):
    table = bbl.etable([fits["a + b + c"], fits["a * b + c"]], of="group")
    known = fits["a * b + c"].inference().table()
    row = known[
        (known["group"] == 0) & (known["predictor"] == "a") & known["predictor2"].isna()
    ].iloc[0]
    assert table.frame.loc["0: a=1", "(2)"].startswith(f"{row['estimate']:.3f}")
    assert f"({row['se']:.3f})" in table.frame.loc["0: a=1", "(2)"]
    coupling = table.frame.loc["0: a=1 : b=1"]
    assert coupling["(1)"] == "" and "***" in coupling["(2)"]
    facts = ["Method", "Observations", "Parameters", "logLik", "AIC", "BIC", "clAIC", "Accuracy"]
    assert list(table.frame.index[-8:]) == facts
    assert table.frame.loc["Observations"].tolist() == ["1500", "1500"]
    plain = bbl.etable({"x": fits["a * b + c"]}, keep=["a"], pairs=False, stars=False, digits=1)
    # one row for two groups, unless both are asked for
    assert [name for name in plain.frame.index if "=" in name] == ["1 - 0: a=1"]
    assert "1: a=1" in table.frame.index
    assert "*" not in repr(plain)
    others = [bbl.bbl("y ~ .", data(), method="mf"), networks.bnc("nb", "y ~ .", data(), 1)]
    others.append(bbl.shooter("y ~ .", data(), lambda_=20))
    mixed = bbl.etable([fits["a + b + c"], *others])
    assert mixed.frame.loc["Method"].tolist() == ["pseudo", "mf", "nb", "shooter"]
    assert "(" not in mixed.frame.loc["0: a=1", "(2)"] and mixed.frame.loc["0: a=1", "(3)"] == ""
    with pytest.raises(OptionError, match="'d'"):
        bbl.etable(fits["a + b + c"], keep=["d"])


def test_a_table_of_models_checks_what_it_compares_for_every_kind_of_model(fits):
    network = networks.bnc("nb", "y ~ .", data(), 1)
    for fit in (fits["a + b + c"], network):
        with pytest.raises(BBLTypeError, match=r"in one list: etable\(\[fit, other\]\)"):
            bbl.etable(fit, network)
        for wrong in ("nonsense", (0, 2), (1, 1), 3):
            with pytest.raises((OptionError, BBLTypeError)) as caught:
                bbl.etable(fit, wrong)
            assert caught.value.argument == "of"
    beside = bbl.etable([fits["a + b + c"], network], of=(1, 0)).frame
    assert list(beside.columns) == ["(1)", "(2)"] and "1 - 0: a=1" in beside.index


def test_a_table_of_models_escapes_names_in_every_form():
    table = data(200).rename(columns={"a": "<a|_$>"})
    found = bbl.etable({"m|<b>": bbl.bbl("y ~ .", table, method="naive")})
    assert "&lt;a|_$&gt;" in found.as_html() and "<b>" not in found.as_html()
    assert found._repr_html_() == found.as_html()
    assert r"\textless{}a\textbar{}\_\$\textgreater{}" in found.as_latex()
    rows = [line for line in found.as_markdown().splitlines() if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in rows}) == 1


def test_inference_prints_a_summary_as_text_and_html(fits):
    fit = fits["a * b + a:c"]
    text = str(fit.inference().summary())
    assert "Tests of the couplings" in text and "0: a=1 : b=1" in text
    assert "<table>" in fit.inference().summary().as_html()


@pytest.mark.filterwarnings("ignore:On the training rows:bbl.DataWarning")
def test_a_summary_of_many_parameters_says_which_are_shown():
    def heading(n, right):
        table = data(n, 7).assign(
            **{f"x{k}": np.random.default_rng(k).integers(0, 2, n) for k in range(10)}
        )
        fit = bbl.bbl(f"y ~ {right}", table, lambda_=0.1, lambdah=0.1, verbose=0)
        return str(fit.inference().summary())

    assert "Parameters (the 20 of 26 with the smallest p)" in heading(400, ".")
    assert "Parameters (the first 20 of 182; none has a test)" in heading(60, ".^2")


def test_coefficients_are_drawn_with_their_intervals(fits):
    fit = fits["a * b + a:c"]
    ax = fit.plot(kind="coefficients")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a=1", "b=1", "c=1"]
    assert len(ax.get_legend().get_texts()) == 2
    ends = np.concatenate([line[:, 0] for line in ax.collections[0].get_segments()])
    wanted = fit.conf_int().loc[0].iloc[:3].to_numpy().ravel()
    np.testing.assert_allclose(np.sort(ends), np.sort(wanted))
    difference = fit.inference().plot((0, 1), pairs=True)
    assert difference.get_legend() is None and len(difference.get_yticklabels()) == 2
    plt.close("all")


def test_models_without_a_response_are_compared_too():
    table = data()
    fits = [bbl.bbl(f"~ {right}", table) for right in ("a + b", "a * b")]
    found = bbl.anova(*fits).iloc[1]
    exact = stats.chi2_contingency(
        pd.crosstab(table.a, table.b), correction=False, lambda_="log-likelihood"
    )[0]
    assert found["ratio"] == pytest.approx(2 * exact, rel=1e-6) and found["df"] == 1
    assert bbl.etable(fits).frame.loc["Accuracy"].tolist() == ["", ""]


def test_models_without_a_likelihood_stand_beside_the_others(tmp_path):
    """What is missing is missing in a model from a file too, and asked for by itself it says
    why.
    """
    table = data(200)
    field = bbl.bbl("y ~ .^2", table, method="mf")
    joint = bbl.bbl("y ~ .^2", table, method="conditional", verbose=0)
    joint.save(tmp_path / "joint.bbl", store_data=True)
    # groups that hardly differ
    with pytest.warns(bbl.DataWarning, match="for the class proportions"):
        average = bbl.average([field, joint])
    average.save(tmp_path / "average.bbl")
    fits = [
        field,
        joint,
        bbl.load(tmp_path / "joint.bbl"),
        average,
        bbl.load(tmp_path / "average.bbl"),
    ]
    found = bbl.anova(*fits)
    blank = found[["logLik", "AIC", "BIC", "clAIC"]].isna()
    assert blank.iloc[1:].all(axis=None) and blank.iloc[0].tolist() == [False, False, False, True]
    frame = bbl.etable(fits).frame
    assert (
        frame.loc["logLik"].ne("").tolist()
        == frame.loc["AIC"].ne("").tolist()
        == [True] + 4 * [False]
    )
    assert frame["(2)"].equals(frame["(3)"]) and frame["(2)"].iloc[0]
    for fit in fits[1:]:
        for call in (fit.logLik, lambda fit=fit: fit.aic, lambda fit=fit: fit.bic):
            with pytest.raises(OptionError, match=r"P\(x\|y\)|An average"):
                call()


@pytest.mark.long
def test_criteria_of_other_variables_are_not_set_side_by_side():
    """P(x, y) of fewer predictors, P(y|x) and P(x) are of other variables: their AIC says nothing
    beside the first.
    """
    titanic = bbl.datasets.load_titanic()
    formulas = ("Survived ~ Sex + Age", "Survived ~ Sex * Age", "Survived ~ Sex", "~ Sex + Age")
    fits = [bbl.bbl(formula, titanic, "Freq", verbose=0) for formula in formulas]
    fits += [
        bbl.shooter(formula, titanic, "Freq", refit=False, verbose=0)
        for formula in (formulas[0], formulas[2])
    ]
    criteria = bbl.anova(*fits)[["logLik", "AIC", "BIC"]]
    assert criteria["logLik"].notna().all()
    assert (
        criteria["AIC"].notna().tolist()
        == criteria["BIC"].notna().tolist()
        == [True] * 2 + [False] * 4
    )
    given_predictors = bbl.anova(*fits[4:])
    # P(y|x) is of the response, whatever the predictors
    assert given_predictors["AIC"].notna().all()
    assert "the same variables" in repr(bbl.etable(fits)) and "the same variables" not in repr(
        bbl.etable(fits[:2])
    )


def test_long_tables_are_cut_where_they_are_shown_and_say_so(monkeypatch):
    table = bbl.etable(
        bbl.bbl("Survived ~ Class * Sex + Sex * Age", bbl.datasets.load_titanic(), weights="Freq")
    )
    assert "more coefficients" not in repr(table)
    monkeypatch.setattr("bbl.report.model_table.SHOWN_COEFFICIENTS", 4)
    hidden = (
        f"{len(table.frame) - table.n_facts - 4} more coefficients: see .frame or as_html() for all"
    )
    assert (
        hidden in repr(table)
        and hidden in table._repr_html_()
        and len(repr(table).splitlines()) == 4 + 8 + 3
    )
    assert table.as_html().count("<tr>") == len(table.frame) + 2 and "clAIC" in repr(table)
