"""Effects on probabilities beside structural zeros: errors that know them, and levels that cannot
occur.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import DataError, OptionError


@pytest.fixture(scope="module")
def journeys():
    """Rows of two predictors with a cell that cannot occur, and the table of that cell."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.choice(list("pq"), 600), "b": rng.choice(list("rst"), 600)})
    data = data[(data.a != "q") | (data.b != "t")].reset_index(drop=True)
    p = np.where(data.a == "p", 0.3, 0.6) + np.where(data.b == "s", 0.2, 0.0)
    return data.assign(y=np.where(rng.random(len(data)) < p, "yes", "no")), {"a": ["q"], "b": ["t"]}


def test_errors_of_predictions_know_structural_zeros(journeys):
    data, zeros = journeys
    model = bbl.bbl("y ~ a*b", data, method="ml", structural_zeros=zeros, verbose=0)
    cells = (
        data.groupby(["a", "b"])["y"].agg(p=lambda y: (y == "yes").mean(), n="size").reset_index()
    )
    frame = model.predictions(cells).frame
    frame = frame[frame["group"] == "yes"]
    np.testing.assert_allclose(frame["estimate"], cells.p, rtol=1e-6)
    np.testing.assert_allclose(
        frame["std_error"], np.sqrt(cells.p * (1 - cells.p) / cells.n), rtol=1e-6
    )


def test_errors_of_predictions_know_structural_zeros_of_missing_cells_and_single_groups(journeys):
    """Where b is missing in a row of q, it is r or s; a cell that cannot occur in a group has no
    part in its sums.
    """
    data, zeros = journeys
    both = data.assign(c=data.a + data.b)
    model = bbl.bbl(
        "y ~ a*b", data, method="ml", structural_zeros=zeros, missing="marginal", verbose=0
    )
    # the same model, and no zeros
    one = bbl.bbl("y ~ c", both, method="ml", missing="marginal", verbose=0)
    np.testing.assert_allclose(
        model.predictions(data.head(40)).frame["std_error"],
        one.predictions(both.head(40)).frame["std_error"],
        rtol=1e-6,
    )
    found = model.predictions(pd.DataFrame({"a": ["q", "q"], "b": ["r", None]})).frame
    # saturated: the share of the group among all rows of q
    wanted = (data.y[data.a == "q"] == "yes").mean()
    assert found["estimate"].iloc[3] == pytest.approx(wanted, rel=1e-6)
    n = (data.a == "q").sum()
    assert found["std_error"].iloc[3] == pytest.approx(np.sqrt(wanted * (1 - wanted) / n), rel=1e-6)
    data = data[(data.a != "q") | (data.b != "s") | (data.y == "yes")]
    of_group = {"y": ["no", "yes", "no"], "a": ["q", "q", "q"], "b": ["t", "t", "s"]}
    frame = (
        bbl.bbl("y ~ a*b", data, method="ml", structural_zeros=of_group, verbose=0)
        .avg_predictions(by="a")
        .frame
    )
    y = data.y[data.a == "p"] == "yes"
    row = frame[(frame["group"] == "yes") & (frame["a"] == "p")].iloc[0]
    assert row["estimate"] == pytest.approx(y.mean(), rel=1e-6)
    cells = data[data.a == "p"].groupby("b")["y"].agg(p=lambda y: (y == "yes").mean(), n="size")
    # rows of each cell are given
    error = np.sqrt((cells.n * cells.p * (1 - cells.p)).sum()) / len(y)
    assert row["std_error"] == pytest.approx(error, rel=1e-6)


def test_errors_under_a_design_know_structural_zeros(journeys):
    data, zeros = journeys
    data = data.assign(w=1.0)
    shared = {"method": "ml", "structural_zeros": zeros, "verbose": 0}
    plain = bbl.bbl("y ~ a*b - w", data, **shared).avg_predictions(by="a").frame
    frame = bbl.bbl("y ~ a*b", data, design=bbl.survey("w"), **shared).avg_predictions(by="a").frame
    # (n - 1) / n of the variance
    np.testing.assert_allclose(frame["std_error"], plain["std_error"], rtol=0.01)


@pytest.mark.parametrize("design", [None, bbl.survey("w")], ids=["rows", "design"])
@pytest.mark.parametrize("never", [["p", "r"], ["q", "r"], ["p", "t"]])
def test_probabilities_beside_a_zero_of_reference_levels_have_errors(never, design):
    """No single parameter is determined where the cell of a reference level cannot occur; every
    probability is.
    """
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"a": rng.choice(list("pq"), 600), "b": rng.choice(list("rst"), 600)})
    data = data[(data.a != never[0]) | (data.b != never[1])].assign(w=1.0)
    data["y"] = np.where(rng.random(len(data)) < np.where(data.a == "p", 0.3, 0.6), "yes", "no")
    zeros = {"a": never[:1], "b": never[1:]}
    formula = "y ~ a*b - w" if design is None else "y ~ a*b"
    model = bbl.bbl(formula, data, design=design, method="ml", structural_zeros=zeros, verbose=0)
    frame = model.avg_predictions(by=["a", "b"]).frame.query("group == 'yes'")
    cells = data.groupby(["a", "b"])["y"].agg(p=lambda y: (y == "yes").mean(), n="size")
    np.testing.assert_allclose(frame["estimate"], cells.p, rtol=1e-6)
    error = np.sqrt(
        cells.p * (1 - cells.p) / cells.n * (1 if design is None else len(data) / (len(data) - 1))
    )
    np.testing.assert_allclose(frame["std_error"], error, rtol=1e-6)
    assert (frame["note"] == "").all()


def test_levels_that_cannot_occur_together_have_no_effect(journeys):
    data, zeros = journeys
    model = bbl.bbl("y ~ a + b", data, method="ml", structural_zeros=zeros, verbose=0)
    frame = model.avg_comparisons().frame
    is_possible = frame["contrast"] == "s - r"
    assert (
        frame["estimate"].notna().tolist()
        == is_possible.tolist()
        == frame["std_error"].notna().tolist()
    )
    assert frame.loc[~is_possible, "note"].str.contains("cells that are structural zeros").all()
    rows = model.comparisons({"a": ("q", "p")}).frame
    assert (rows["estimate"].isna() == rows["row"].isin(data.index[data.b == "t"])).all()
    assert model.avg_predictions(grid="balanced").frame["estimate"].notna().all()
    assert len(model.predictions(grid="balanced", se=False).frame) == 2 * 5
    with pytest.raises(OptionError, match="is a structural zero"):
        model.predictions(grid={"a": "q", "b": "t"})
    with pytest.raises(DataError, match="row 0 of newdata cannot be predicted"):
        model.predictions(pd.DataFrame({"a": ["q"], "b": ["t"]}))
    refitted = model.avg_comparisons(se="bootstrap", nboot=3, verbose=0).frame
    assert (
        refitted["estimate"].notna().tolist()
        == is_possible.tolist()
        == refitted["std_error"].notna().tolist()
    )


@pytest.mark.parametrize("levels", [{"a": ["p", "q"], "b": ["t"]}, {"a": ["q"], "b": ["t"]}])
def test_a_scenario_in_which_no_row_can_occur_is_undefined(journeys, levels):
    data, zeros = journeys
    model = bbl.bbl("y ~ a*b", data, method="ml", structural_zeros=zeros, verbose=0)
    frame = model.avg_predictions(variables=levels).frame
    is_undefined = (
        (frame["a"] == "q").to_numpy() if "a" in frame else frame["estimate"].isna().to_numpy()
    )
    assert frame.loc[is_undefined, "estimate"].isna().all()
    assert len(frame) == 2 * len(levels["a"])
    assert frame["estimate"].notna().sum() == 2 * (len(levels["a"]) - 1)
