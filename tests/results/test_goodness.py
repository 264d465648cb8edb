"""Goodness of fit, cells and odds ratios of exact fits: R's numbers, an own design matrix,
refusals.
"""

import numpy as np
import pandas as pd
import pytest
import rloglinear
from rcases import array
from scipy.stats.contingency import odds_ratio

import bbl
from bbl.boltzmann.inference.goodness import leverages
from bbl.engines.likelihood.states import StateTable
from bbl.errors import DataError, OptionError

TITANIC = bbl.datasets.load_titanic()
QUIET = {"method": "ml", "verbose": 0}
pytestmark = pytest.mark.filterwarnings(
    "ignore::bbl.errors.ConvergenceWarning", "ignore::bbl.errors.DataWarning"
)


FITS = [name for name in rloglinear.names() if rloglinear.read(name)["kind"] == "fit"]
ODDS_RATIOS = [path.stem for path in sorted(rloglinear.folder().glob("or_*.json"))]


@pytest.mark.parametrize("name", FITS or [None])
@pytest.mark.thinned(3)
def test_numbers_are_those_of_r(name, shared):
    case = rloglinear.read(name)
    table, fit = rloglinear.table(case), rloglinear.fitted(case, case["model"]["formula"])
    result, test, cells = case["result"], fit.goodness_of_fit(), fit.cells()
    assert (test["df"] == result["df"]).all()
    values = test.loc[["G2", "X2"], "value"]
    np.testing.assert_allclose(values, [result["G2"], result["X2"]], rtol=1e-8, atol=1e-9)
    if result["df"]:
        np.testing.assert_allclose(
            test.loc[["G2", "X2"], "p"], [result["p_G2"], result["p_X2"]], rtol=1e-7
        )
    factors = [column for column in table if column not in ("n", rloglinear.ZEROS)]
    possible = table[rloglinear.ZEROS] == 0 if rloglinear.ZEROS in table else slice(None)
    cells = table[factors].merge(cells, on=factors, how="left")
    np.testing.assert_array_equal(cells["observed"], table["n"])
    np.testing.assert_allclose(cells["fitted"], array(result["fitted"]), rtol=1e-8, atol=1e-9)
    for residual in ("pearson", "deviance", "adjusted") if result["residuals"] else ():
        # R's leverages are those of its last but one iteration: good to 3e-9
        expected = array(result["residuals"][residual])
        np.testing.assert_allclose(cells.loc[possible, residual], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ODDS_RATIOS or [None])
def test_odds_ratios_of_saturated_models_are_those_of_r(name, shared):
    case = rloglinear.read(name)
    variables = case["vars"]
    fit = rloglinear.fitted(case, "~ " + "*".join(variables))
    ratios = fit.odds_ratios([tuple(variables[:2])])
    expected = case["result"]["log_odds_ratios_to_reference"]
    assert len(ratios) == len(expected["rows"])
    strata = [
        f"{variables[2]}={row['stratum']}" if len(variables) > 2 else "" for row in expected["rows"]
    ]
    keys = [
        (r["row"], r["column"], given) for r, given in zip(expected["rows"], strata, strict=True)
    ]
    ratios = ratios.set_index(["level", "level2", "given"]).loc[keys]
    for column, name_in_r in (
        ("log_odds_ratio", "estimate"),
        ("se", "se"),
        ("odds_ratio", "odds_ratio"),
        ("lower", "or_lower"),
        ("upper", "or_upper"),
    ):
        tolerance = 1e-8 if column in ("log_odds_ratio", "odds_ratio") else 1e-7
        np.testing.assert_allclose(
            ratios[column], array(expected[name_in_r]), rtol=tolerance, atol=1e-9
        )


@pytest.mark.parametrize(
    "formula", ["~ Class + Sex + Age", "~ Class*Sex + Age", "~ (Class + Sex + Age)^2"]
)
def test_leverages_are_the_diagonal_of_the_projection_on_the_design(formula):
    fit = bbl.bbl(formula, TITANIC, "Freq", **QUIET)
    fitted, layout = fit.cells()["fitted"].to_numpy(), fit.estimate.parameters.layout
    table = StateTable(layout)
    design = np.sqrt(fitted)[:, None] * np.column_stack([np.ones(table.n), table.indicators()])
    u, singular, _ = np.linalg.svd(design, full_matrices=False)
    expected = (u[:, singular > 1e-10 * singular[0]] ** 2).sum(axis=1)
    np.testing.assert_allclose(leverages(layout, fitted), expected, atol=1e-12)


def test_quadratic_forms_are_those_of_the_indicators():
    layout = bbl.bbl(
        "~ Class*Sex*Age + Survived", TITANIC, "Freq", **QUIET
    ).estimate.parameters.layout
    table, rng = StateTable(layout), np.random.default_rng(0)
    matrix, indicators = rng.normal(size=(layout.size, layout.size)), table.indicators()
    expected = np.einsum("ij,jk,ik->i", indicators, matrix, indicators)
    np.testing.assert_allclose(table.quadratic_forms(matrix), expected, atol=1e-12)


def test_with_a_response_statistics_are_summed_over_groups_and_cells_name_them():
    both = bbl.bbl("Survived ~ Class*Sex + Age", TITANIC, "Freq", **QUIET)
    levels = {name: sorted(TITANIC[name].unique()) for name in ("Class", "Sex", "Age")}
    total, frames = 0.0, []
    for group in ("No", "Yes"):
        rows = TITANIC[TITANIC["Survived"] == group]
        alone = bbl.bbl("~ Class*Sex + Age", rows, "Freq", xlevels=levels, **QUIET)
        total = total + alone.goodness_of_fit()[["value", "df"]]
        frames.append(alone.cells().assign(group=group))
    pd.testing.assert_frame_equal(
        both.goodness_of_fit()[["value", "df"]], total, check_dtype=False, rtol=1e-12
    )
    cells, expected = both.cells(), pd.concat(frames, ignore_index=True)
    assert cells.columns[0] == "group" and (cells["group"] == expected["group"]).all()
    counts = ["observed", "fitted", "pearson", "deviance", "adjusted"]
    pd.testing.assert_frame_equal(cells[counts], expected[counts], rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_the_bootstrap_has_the_level_of_the_test_and_its_seed():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.integers(0, 3, (400, 2)), columns=["a", "b"])
    fit = bbl.bbl("~ a + b", table, **QUIET)
    one, again = (
        fit.goodness_of_fit(bootstrap=400, seed=1),
        fit.goodness_of_fit(bootstrap=400, seed=1),
    )
    pd.testing.assert_frame_equal(one, again)
    assert np.abs(one["p_bootstrap"] - one["p"]).max() < 0.1  # counts are large: both are right
    assert (one["test"] == "chi-square").all()
    dependent = table.assign(b=np.where(rng.random(400) < 0.5, table["a"], table["b"]))
    far = bbl.bbl("~ a + b", dependent, **QUIET).goodness_of_fit(bootstrap=99)
    np.testing.assert_allclose(far["p_bootstrap"], 0.01)


def test_the_frame_says_when_the_bootstrap_is_needed():
    sparse = bbl.bbl("~ (Class + Sex + Age + Survived)^2", TITANIC, "Freq", **QUIET)
    assert "use bootstrap=999" in sparse.goodness_of_fit()["test"].iloc[0]
    assert "see p_bootstrap" in sparse.goodness_of_fit(bootstrap=3)["test"].iloc[0]
    saturated = bbl.bbl("~ Class*Sex", TITANIC, "Freq", **QUIET).goodness_of_fit()
    assert (
        saturated["p"].isna().all()
        and (saturated["test"] == "no test: no degrees of freedom").all()
    )
    penalised = bbl.bbl("~ Class*Sex", TITANIC, "Freq", lambda_=0.1, **QUIET)
    assert penalised.goodness_of_fit()["p"].isna().all()
    assert penalised.goodness_of_fit(bootstrap=9)["p_bootstrap"].notna().all()
    assert penalised.cells()["adjusted"].isna().all()


def test_a_predictor_may_have_the_name_of_a_column():
    table = TITANIC.rename(columns={"Class": "observed", "Sex": "group"})
    cells = bbl.bbl("Survived ~ observed + group", table, "Freq", **QUIET).cells()
    assert list(cells)[:5] == ["group_", "observed", "group", "observed_", "fitted"]


def test_other_methods_and_missing_values_are_refused_with_the_remedy():
    pseudo = bbl.bbl("~ Class*Sex", TITANIC, "Freq", verbose=0)
    for name in ("goodness_of_fit", "cells", "plot_mosaic"):
        with pytest.raises(OptionError, match="exact fit.*method='ml'"):
            getattr(pseudo, name)()
    gaps = TITANIC.astype({"Sex": object})
    gaps.loc[gaps["Freq"].idxmax(), "Sex"] = None
    fit = bbl.bbl("~ Class*Sex", gaps, "Freq", missing="marginal", **QUIET)
    for name in ("goodness_of_fit", "cells", "plot_mosaic"):
        with pytest.raises(DataError, match="complete rows.*missing='drop'"):
            getattr(fit, name)()
    assert len(fit.odds_ratios()) == 3
    with pytest.raises(DataError, match="Goodness-of-fit tests require integer weights"):
        bbl.bbl("~ Class", TITANIC, TITANIC["Freq"] + 0.5, **QUIET).goodness_of_fit()


def test_tables_that_are_too_large_are_refused_before_anything_is_listed(monkeypatch):
    rows = pd.DataFrame(
        np.random.default_rng(0).integers(0, 2, (50, 60)), columns=[f"x{k}" for k in range(60)]
    )
    fit = bbl.bbl("~ .", rows, **QUIET)
    monkeypatch.setattr("bbl.results.machine.goodness.group_cells", None)  # not even called
    for name in ("goodness_of_fit", "cells"):
        with pytest.raises(OptionError, match=r"1\.15e\+18 cells, but.*1,048,576 are supported"):
            getattr(fit, name)()
    with pytest.raises(OptionError, match="up to 4 variables and 400 cells"):
        fit.plot_mosaic()


def test_pairs_of_odds_ratios_are_checked_and_either_order_will_do():
    fit = bbl.bbl("~ Class*Sex + Age*Sex", TITANIC, "Freq", **QUIET)
    one, other = fit.odds_ratios([("Class", "Sex")]), fit.odds_ratios([["Sex", "Class"]])
    np.testing.assert_allclose(one["odds_ratio"], other["odds_ratio"], rtol=1e-12)
    assert one["level"].tolist() == other["level2"].tolist()
    np.testing.assert_allclose(
        one["log_odds_ratio"], fit.coef().J["all"]["Class", "Sex"].to_numpy().ravel()[-3:]
    )
    for pairs, text in (
        ([("Class", "Age")], "do not interact"),
        ([("Class", "Sexe")], r"predictor\. Hint: Did you mean 'Sex'"),
        ([("Class", "Sex", "Age")], "a list of pairs"),
        ("Class", "a list of pairs"),
    ):
        with pytest.raises(OptionError, match=text):
            fit.odds_ratios(pairs)
    with pytest.raises(DataError, match="The model has no interactions"):
        bbl.bbl("~ Class + Sex", TITANIC, "Freq", **QUIET).odds_ratios()
    with pytest.raises(OptionError, match="conf_level"):
        fit.odds_ratios(conf_level=95)


def test_odds_ratios_of_pairs_have_the_standard_errors_of_the_couplings():
    for method in ("ml", "pseudo"):
        fit = bbl.bbl("Survived ~ Class*Sex + Age*Sex", TITANIC, "Freq", method=method, verbose=0)
        ratios, table = fit.odds_ratios(), fit.inference().table()
        couplings = table[table["predictor2"].notna()].reset_index(drop=True)
        known = couplings["se"].notna() & ratios["se"].notna()
        assert known.sum() >= 6 and (ratios["group"] == couplings["group"]).all()
        np.testing.assert_allclose(
            ratios["log_odds_ratio"][known], couplings["estimate"][known], rtol=1e-10
        )
        np.testing.assert_allclose(ratios["se"][known], couplings["se"][known], rtol=1e-10)


@pytest.mark.parametrize("method", ["ml", "pseudo"])
def test_odds_ratios_of_empty_cells_have_exact_limits(method):
    """The limits of R's fisher.test, here by scipy, for the crew, who had no children."""
    ratios = bbl.bbl("~ Class*Age", TITANIC, "Freq", method=method, verbose=0).odds_ratios()
    is_empty = (ratios["level"] == "Crew") & (ratios["level2"] == "Child")
    assert (ratios["interval"] == np.where(is_empty, "exact", "Wald")).all()
    assert (ratios["reason"] == "").all()
    found = ratios[is_empty].iloc[0]
    # adults and children of the first class, and of the crew
    limits = odds_ratio(np.array([[319, 6], [885, 0]])).confidence_interval(0.95)
    assert found["odds_ratio"] == found["lower"] == limits.low == 0.0
    assert found["upper"] == pytest.approx(limits.high, rel=1e-6)
    assert found["upper"] == pytest.approx(0.308593, rel=1e-5)
    assert np.isnan(found["se"]) and found["log_odds_ratio"] == -np.inf


def test_a_missing_odds_ratio_has_its_reason():
    """Among the dead of the first, second class and the crew there were no children."""
    fit = bbl.bbl("Survived ~ Class*Age*Sex", TITANIC, "Freq", method="ml", verbose=0)
    ratios = fit.odds_ratios([("Class", "Age")])
    assert (ratios["upper"].isna() == (ratios["reason"] != "")).all()
    dead = ratios[ratios["group"] == "No"]
    assert set(dead.loc[dead["level"] != "3rd", "reason"]) == {
        "a row or a column of the 2 x 2 table is empty"
    }
    men = dead[(dead["level"] == "3rd") & (dead["given"] == "Sex=Male")].iloc[0]
    limits = odds_ratio(np.array([[118, 0], [387, 35]])).confidence_interval(0.95)
    assert men["odds_ratio"] == men["upper"] == limits.high == np.inf
    assert men["lower"] == pytest.approx(limits.low, rel=1e-6)
    assert men["lower"] == pytest.approx(2.685354, rel=1e-6)
