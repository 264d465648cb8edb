"""What exact likelihood refuses: trees too wide, tables too large, gaps in too many states, tests
of real weights.
"""

import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines.likelihood.solve import Solution
from bbl.errors import DataError, OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample


def binary(m, n=60):
    names = [f"x{k}" for k in range(m)]
    return pd.DataFrame(np.random.default_rng(m).integers(0, 2, (n, m)), columns=names)


@pytest.mark.parametrize("call", [bbl.bbl, bbl.crossVal])
def test_a_tree_too_wide_says_its_width_and_the_remedy_before_anything_is_allocated(call):
    data = binary(60).assign(y=np.arange(60) % 2)
    small = binary(3).assign(y=np.arange(60) % 2)
    # modules that are imported take memory too
    bbl.bbl("y ~ .^2", small, method="ml", lambda_=0.1, verbose=0)
    tracemalloc.start()
    with pytest.raises(OptionError) as caught:
        call("y ~ .^2", data, method="ml", verbose=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    text = str(caught.value)
    assert caught.value.argument == "method" and peak < 2**25
    for part in (
        "60 predictors",
        "1,770 interactions",
        "a table of at least 60 predictors",
        "Choose method='pseudo'",
    ):
        assert part in text, part
    bbl.bbl("y ~ .^2", data, method="pseudo", lambda_=0.1, verbose=0)  # the advice works


def test_a_lattice_is_as_wide_as_its_short_side():
    rows, columns = 40, 40
    site = np.arange(rows * columns).reshape(rows, columns)
    edges = [
        *zip(site[:, :-1].flat, site[:, 1:].flat, strict=True),
        *zip(site[:-1].flat, site[1:].flat, strict=True),
    ]
    from bbl.engines import MaximumLikelihood
    from bbl.model.layout import Layout
    from bbl.rows.sample import Sample

    codes = np.random.default_rng(0).integers(0, 2, (20, rows * columns)).astype(np.uint8)
    with pytest.raises(
        OptionError,
        match=r"1,600 predictors and 3,120 interactions requires a table of .* \d+",
    ):
        MaximumLikelihood().layout(
            Sample(codes, np.ones(20)), Layout(np.full(rows * columns, 2), edges)
        )


@pytest.mark.long
def test_a_table_of_2_to_the_40_cells_is_fitted_on_its_tree_and_never_listed():
    data = binary(40, 300)
    formula = "~ " + " + ".join(f"{a}*{b}" for a, b in pairwise(data.columns))
    fit = bbl.bbl(formula, data, method="ml", verbose=0)
    assert fit.converged and len(fit.odds_ratios()) == 39
    for name in ("goodness_of_fit", "cells"):
        with pytest.raises(
            OptionError, match=r"40 predictors has 1\.1e\+12 cells, but at most 1,048,576"
        ):
            getattr(fit, name)()
    with pytest.raises(OptionError, match="up to 4 variables and 400 cells"):
        fit.plot_mosaic()
    small = bbl.bbl(formula.replace("*x1 ", " + x1 ", 1), data, method="ml", verbose=0)
    row = bbl.anova(small, fit).iloc[1]
    table = pd.crosstab(data["x0"], data["x1"]).to_numpy()
    share = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    assert row["ratio"] == pytest.approx(
        2.0 * float((table * np.log(table / share)).sum()), rel=1e-7
    )


def test_gaps_of_more_states_than_can_be_listed_are_refused_with_the_remedy():
    data = binary(17).astype(object)
    data.iloc[0, 0] = None
    with pytest.raises(
        DataError, match=r"limited to 65,536 states, but 17 interacting predictors have 1.31e\+05"
    ) as one:
        bbl.bbl("~ .^2", data, method="ml", missing="marginal", verbose=0)
    assert one.value.argument == "missing" and "missing='drop'" in str(one.value)
    chains = [data.columns[:8], data.columns[8:]]
    two_chains = "~ " + " + ".join(f"{a}*{b}" for chain in chains for a, b in pairwise(chain))
    # parts that do not interact count apart
    bbl.bbl(two_chains, data, method="ml", missing="marginal", verbose=0)


def test_weights_that_are_no_counts_have_estimates_and_no_tests():
    table = binary(3, 200).value_counts().rename("n").reset_index()
    table["n"] *= 0.37
    with pytest.warns(bbl.DataWarning, match="not all integers"):
        small, large = (
            bbl.bbl(f, table, "n", method="ml", verbose=0)
            for f in ("~ x0 + x1 + x2", "~ x0*x1 + x2")
        )
    # the effective number of rows
    effective = table["n"].sum() ** 2 / (table["n"] ** 2).sum()
    assert large.cells()["observed"].sum() == pytest.approx(effective)
    for refused in (
        large.goodness_of_fit,
        large.inference,
        lambda: large.goodness_of_fit(bootstrap=9),
    ):
        with pytest.raises(DataError, match="not integers"):
            refused()
    row = bbl.anova(small, large).iloc[1]
    assert np.isnan(row["ratio"]) and np.isnan(row["p"]) and "not integers" in row["test"]
    for refused in (large.odds_ratios, lambda: bbl.step(large, verbose=0)):
        with pytest.raises(DataError, match="not integers"):
            refused()


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive", "conditional"])
def test_steps_of_methods_without_a_likelihood_name_the_one_that_has_it(method):
    data = binary(2, 200).assign(y=np.arange(200) % 2)
    fit = bbl.bbl("y ~ x0 + x1", data, method=method, verbose=0)
    with pytest.raises(
        OptionError,
        match=f"method='{method}' does not compute. Hint: Fit the formula with method='ml'",
    ) as one:
        bbl.step(fit)
    assert one.value.argument == "fit"


def test_steps_know_no_sampling_design():
    data = binary(3, 200).assign(weight=np.linspace(0.5, 2.0, 200), cluster=np.arange(200) // 10)
    design = bbl.survey(weights="weight", cluster="cluster")
    fit = bbl.bbl("~ x0 + x1 + x2", data, design=design, method="ml", verbose=0)
    with pytest.raises(
        DataError, match="Stepwise selection of terms assumes independently sampled rows"
    ):
        bbl.step(fit, verbose=0)
    # the advice
    by_wald = (
        bbl.bbl("~ x0*x1 + x2", data, design=design, method="ml", verbose=0).inference().tests()
    )
    assert by_wald["p"].notna().any()


@pytest.mark.parametrize(
    ("prior_count", "ridge", "is_advised"), [(0.5, 0.0, False), (0.0, 0.1, False), (0.0, 0.0, True)]
)
def test_a_penalty_in_force_is_no_advice(prior_count, ridge, is_advised):
    layout, rows = Layout([2, 2]), Sample(np.array([[0, 0], [1, 1]], dtype=np.uint8), np.ones(2))
    everything = np.ones(layout.size, dtype=bool)
    found = Solution(np.zeros(layout.size), 0.0, 1.0, 7, everything, everything)
    engine = bbl.MaximumLikelihood(prior_count=prior_count)
    (note,) = engine._finish(rows, layout, found, np.full(layout.size, ridge)).notes
    assert "Increase itmax" in note.hint and ("prior_count > 0" in note.hint) == is_advised
