"""Mosaics: areas are counts, shades are residuals, every level is named where it stands, and
nothing overlaps.
"""

from itertools import combinations, product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import bbl
from bbl.errors import OptionError

TITANIC = bbl.datasets.load_titanic()
pytestmark = pytest.mark.filterwarnings("ignore::bbl.errors.ConvergenceWarning")


@pytest.fixture(autouse=True)
def closed():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def fitted(formula, data=TITANIC, weights="Freq"):
    return bbl.bbl(formula, data, weights, method="ml", verbose=0)


def sides(ax):
    """Return the tick labels of all sides: below, left, above, right."""
    above, right = (
        ([c for c in ax.child_axes if c._orientation == way] or [None])[0] for way in ("x", "y")
    )
    axes = [ax.xaxis, ax.yaxis, above and above.xaxis, right and right.yaxis]
    return [[] if axis is None else axis.get_ticklabels() for axis in axes]


def texts(labels):
    return [label.get_text().replace("\n", " ") for label in labels]


def test_areas_are_counts_and_shades_residuals():
    fit = fitted("~ Class + Sex")
    cells, tiles = fit.cells(), fit.plot_mosaic().patches
    assert len(tiles) == len(cells)
    widths = np.array([tile.get_width() for tile in tiles]).reshape(4, 2)
    heights = np.array([tile.get_height() for tile in tiles]).reshape(4, 2)
    observed = cells["observed"].to_numpy().reshape(4, 2)
    np.testing.assert_allclose(
        widths[:, 0] / widths[0, 0], observed.sum(axis=1) / observed[0].sum(), rtol=1e-6
    )
    np.testing.assert_allclose(
        heights[:, 1] / heights[:, 0], observed[:, 1] / observed[:, 0], rtol=1e-6
    )
    shades = np.array(["#2166ac", "#92c5de", "#f7f7f7", "#f4a582", "#b2182b"])
    expected = shades[np.digitize(cells["pearson"], [-4, -2, 2, 4])]
    assert [to_hex(tile.get_facecolor()) for tile in tiles] == expected.tolist()
    assert [tile.get_linestyle() == "--" for tile in tiles] == (cells["pearson"] < -2).tolist()


def test_the_response_splits_first_and_sides_name_all_levels_in_place():
    ax = fitted("Survived ~ Class + Sex").plot_mosaic()
    below, left, above, right = map(texts, sides(ax))
    assert (below, left, right) == (["No", "Yes"], ["1st", "2nd", "3rd", "Crew"], [])
    assert above == ["Female", "Male"] * 2
    assert ax.get_xlabel() == "Survived" and ax.get_ylabel() == "Class"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first level on top


def test_an_empty_slice_is_drawn_and_has_no_name():
    ax = fitted("~ Class + Sex + Age + Survived").plot_mosaic()
    above = texts(sides(ax)[2])
    assert above == ["Adult", "Child"] * 3 + ["Adult"]  # there are no children in the crew
    assert texts(sides(ax)[3]) == ["No", "Yes"] * 2


def test_a_fourth_variable_may_have_many_levels_and_a_variable_may_be_constant():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "a": 0,
            "b": rng.integers(0, 2, 500),
            "c": rng.integers(0, 2, 500),
            "d": rng.integers(0, 7, 500),
        }
    )
    fit = bbl.bbl(
        "~ a + b + c + d", rows, method="ml", xlevels={"a": [0, 1]}, lambdah=0.1, verbose=0
    )
    ax = fit.plot_mosaic()
    assert len(ax.patches) == 56 and set(texts(sides(ax)[3])) == set("0123456")


def test_one_variable_and_the_axes_of_the_caller():
    _, ax = plt.subplots()
    assert fitted("~ Class").plot_mosaic(ax=ax) is ax
    assert texts(sides(ax)[0]) == ["1st", "2nd", "3rd", "Crew"] and not sides(ax)[1]


@pytest.mark.long
def test_long_names_of_a_four_by_four_by_two_table_are_whole_and_do_not_overlap():
    levels = {
        "Highest completed level of education": [
            "no schooling",
            "primary only",
            "secondary completed",
            "university",
        ],
        "State of health, as reported": [
            "excellent",
            "good, minor complaints",
            "fair, some limitation",
            "poor, serious",
        ],
        "Smoking history of the respondent": ["current or former smoker", "never a regular smoker"],
    }
    table = pd.DataFrame(list(product(*levels.values())), columns=list(levels))
    table["count"] = 5 + np.random.default_rng(1).poisson(
        60 * np.random.default_rng(2).gamma(2.0, 1.0, len(table))
    )
    ax = fitted("~ .", table, "count").plot_mosaic()
    ax.figure.canvas.draw()
    labels = [label for side in sides(ax) for label in side]
    assert set(texts(labels)) == {level for names in levels.values() for level in names}
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    figure = ax.figure.bbox
    assert all(
        figure.x0 <= box.x0 and box.x1 <= figure.x1 and figure.y0 <= box.y0 and box.y1 <= figure.y1
        for box in boxes
    )


def test_tables_that_no_figure_can_show_are_refused():
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 25, (900, 2)), columns=["a", "b"])
    with pytest.raises(
        OptionError,
        match=r"up to 4 variables and 400 cells, but this model has 2 and 625\..*cells\(\)",
    ):
        fitted("~ a + b", rows, None).plot_mosaic()
