"""Effects where a parameter has no finite estimate: errors of what is determined all the same, and
marks.
"""

import numpy as np
import pandas as pd
import pytest

import bbl

pytestmark = pytest.mark.filterwarnings("ignore")
METHODS = {"conditional": {"ridge": 0}, "ml": {}, "pseudo": {"lambda_": 0.0}}


def draw(n=400, seed=1):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"a": rng.integers(0, 2, n), "b": rng.choice(list("rst"), n), "w": 1.0})
    return data.assign(y=rng.choice(["yes", "no", "maybe"], n))


@pytest.mark.parametrize("design", [None, bbl.survey("w")], ids=["rows", "design"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.thinned(2)
def test_levels_that_a_class_never_has_leave_the_errors_of_shares(method, design, tmp_path):
    data = draw()
    data = data[(data.b != "t") | (data.y != "maybe")]
    rows = data if design is not None else data.drop(columns="w")
    model = bbl.bbl("y ~ b", rows, design=design, method=method, verbose=0, **METHODS[method])
    frame = model.avg_comparisons({"b": ("t", "r")}).frame.set_index("group")
    shares = pd.crosstab(data.b, data.y, normalize="index")
    n, more = data.b.value_counts(), 1.0 if design is None else len(data) / (len(data) - 1)
    variance = (shares * (1 - shares)).div(n, axis=0) * more
    np.testing.assert_allclose(frame["estimate"], shares.loc["t"] - shares.loc["r"], atol=1e-8)
    np.testing.assert_allclose(
        frame["std_error"], np.sqrt(variance.loc["t"] + variance.loc["r"]), rtol=1e-6
    )
    assert frame["note"].str.contains("no finite estimate").all()
    model.save(tmp_path / "fit.bbl", store_data=True)
    loaded = (
        bbl.load(tmp_path / "fit.bbl").avg_comparisons({"b": ("t", "r")}).frame.set_index("group")
    )
    pd.testing.assert_frame_equal(loaded, frame, check_exact=True)


def test_rows_between_separated_ones_have_the_errors_of_their_shares():
    """The log odds of (0, 0) fall without end and those of (1, 1) rise: a direction that no margin
    shows.
    """
    cells = pd.DataFrame(
        {
            "a": [0, 0, 0, 1, 1, 1],
            "b": [0, 1, 1, 0, 0, 1],
            "y": [0, 0, 1, 0, 1, 1],
            "n": [20, 30, 20, 15, 35, 25],
        }
    )
    model = bbl.bbl("y ~ a + b", cells, weights="n", method="conditional", ridge=0, verbose=0)
    frame = model.avg_predictions(by=["a", "b"]).frame.query("group == 1")
    p, n = np.array([0.4, 0.7]), np.array([50, 50])
    np.testing.assert_allclose(frame["estimate"], [0, *p, 1], atol=1e-8)
    np.testing.assert_allclose(frame["std_error"].iloc[1:3], np.sqrt(p * (1 - p) / n), rtol=1e-6)
    assert frame["note"].iloc[[0, 3]].str.contains("no variation").all()
    assert model.avg_comparisons("a").frame["note"].str.contains("no finite estimate").all()


def test_combinations_of_levels_that_no_row_has_have_no_interval():
    """Nothing tells of the cell, though both levels occur."""
    data = draw().drop(columns="w")
    data = data[(data.a == 0) | (data.b != "t")]
    for method in ("conditional", "ml"):
        model = bbl.bbl("y ~ a*b", data, method=method, verbose=0, **METHODS[method])
        frame = model.predictions(pd.DataFrame({"a": [0, 1], "b": ["t", "t"]})).frame
        assert frame.loc[frame["row"] == 0, "std_error"].notna().all()
        assert (
            frame.loc[frame["row"] == 1, "conf_low"].isna().all()
            and (frame["note"][3:] != "").all()
        )
