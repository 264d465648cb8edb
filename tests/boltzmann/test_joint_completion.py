"""The joint most probable completion of rows with several gaps, by enumeration."""

import itertools

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import OptionError

pytestmark = pytest.mark.filterwarnings("error")


def table(seed, n=80, levels=(2, 3, 2, 3)):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"x{i}": rng.integers(0, L, n).astype(str) for i, L in enumerate(levels)})
    frame["x1"] = np.where(rng.random(n) < 0.6, frame["x3"], frame["x1"])
    return frame.assign(y=rng.choice(["s", "t"], n, p=[0.4, 0.6]))


@pytest.mark.parametrize("formula", ["~ x0 * x1 + x1 * x3 + x2", "y ~ (x0 + x1 + x2 + x3)^2"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.thinned(3)
def test_is_the_most_probable_of_all_completions(formula, seed):
    data = table(seed)
    fit = bbl.bbl(formula, data, method="ml", prior_count=0.5, verbose=0)
    names = list(fit.labels.names)
    rng = np.random.default_rng(seed)
    rows = data.sample(8, random_state=seed).astype(object)
    rows[names] = rows[names].mask(rng.random((8, 4)) < 0.6)
    rows = rows.drop(columns="y") if seed % 2 and "y" in formula[:2] else rows
    found = fit.reconstruct(rows, type="joint", verbose=0)
    groups = ["s", "t"] if formula.startswith("y") else [None]
    for position in range(len(rows)):
        row = rows.iloc[position]
        choices = [[row[n]] if isinstance(row[n], str) else sorted(set(data[n])) for n in names]
        states = pd.DataFrame(list(itertools.product(*choices)), columns=names)
        candidates = [row["y"]] if groups[0] and "y" in row else groups
        scores = [
            fit.score_samples(states).to_numpy()  # ln P(x); of a response, plus ln P(y | x)
            + (np.log(fit.predict(states, type="prob")[g].to_numpy()) if g else 0.0)
            for g in candidates
        ]
        best = np.max(scores, axis=0)
        filled = tuple(found.iloc[position].astype(str))
        assert best[[tuple(s) == filled for s in states.to_numpy()]] == pytest.approx(best.max())


def test_filled_rows_can_occur_where_single_cells_would_not():
    cells = pd.DataFrame(
        [("u", "p", "r", 40), ("v", "q", "r", 31), ("w", "q", "s", 29)], columns=list("abcn")
    )
    fit = bbl.bbl("~ a*b + a*c", cells, weights="n", method="ml", prior_count=0.01, verbose=0)
    gaps = pd.DataFrame({name: [None] for name in "abc"})
    assert fit.reconstruct(gaps, type="class", verbose=0).iloc[0].tolist() == ["u", "q", "r"]
    assert fit.reconstruct(gaps, type="joint", verbose=0).iloc[0].tolist() == ["u", "p", "r"]


def test_a_level_that_stands_for_missing_values_fills_no_cell():
    data = table(5)
    data.loc[:50, "x0"] = None
    fit = bbl.bbl("~ x0 * x1", data, missing="level", prior_count=0.5, verbose=0)
    rows = pd.DataFrame({"x0": [None], "x1": [None]})
    assert fit.reconstruct(rows, type="joint", verbose=0)["x0"].iloc[0] in ("0", "1")


def test_too_many_gaps_are_refused_and_the_advice_works():
    wide = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (60, 30)).astype(str))
    wide.columns = [f"v{i}" for i in range(30)]
    fit = bbl.bbl("~ .^2", wide, lambda_=0.1, log_z="half", verbose=0)
    gaps = wide.head(1).astype(object).mask(np.ones((1, 30), dtype=bool))
    with pytest.raises(OptionError, match="Hint: Use type='class'"):
        fit.reconstruct(gaps, type="joint", verbose=0)
    assert fit.reconstruct(gaps, type="class", verbose=0).shape == (1, 30)


def test_structural_zeros_are_refused_and_the_advice_works():
    data = table(7)
    zeros = pd.DataFrame({"x0": ["0"], "x1": ["2"]})
    data = data[~((data["x0"] == "0") & (data["x1"] == "2"))]
    fit = bbl.bbl(
        "~ x0 * x1", data, method="ml", structural_zeros=zeros, prior_count=0.5, verbose=0
    )
    gaps = pd.DataFrame({"x0": [None], "x1": [None]})
    with pytest.raises(OptionError, match="structural zeros. Hint: Use type='class'"):
        fit.reconstruct(gaps, type="joint", verbose=0)
    assert fit.reconstruct(gaps, type="class", verbose=0).notna().all(axis=None)
