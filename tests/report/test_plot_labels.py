"""Labels of the figures: they fit, stay apart and differ, whatever the names and however many there
are.
"""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.ticker import ScalarFormatter
from scipy.optimize import minimize

from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.canvas import (
    fit_names,
    plain_log_axis,
    shorten_names,
    spread_apart,
    text_inches,
    wrap_names,
)
from bbl.report.grid import MOST_PANELS, grid_columns
from bbl.report.machine.plot import plot_comparison, plot_configurations, plot_cv
from bbl.report.machine.plot_interactions import draw_network
from bbl.report.machine.plot_logo import draw_logo
from bbl.report.machine.plot_parameters import plot_parameters
from bbl.report.plot_check import plot_calibration

WORDS = [
    "erythema scaling",
    "of",
    "the",
    "borders itching koebner-phenomenon involvement of knees and elbows",
]
SKIN = [
    f"{w}_{k}" if k % 3 else f"{w}_of_the_papillary_dermis_{k}" for k, w in enumerate(WORDS * 9)
][:33]
SENTENCES = [
    f"{w} of the measured concentration in the {p} part of sample"
    for w in ("mean", "range")
    for p in "abcd"
]
PLACES = tuple(
    f"lesion at the {x}" for x in ("trunk", "neck", "upper limb", "lower limb", "scalp", "face")
)
DISEASES = tuple(
    f"pityriasis {x}"
    for x in ("rosea", "rubra pilaris", "lichenoides", "versicolor", "alba", "amiantacea")
)
MUSHROOM = [6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 2, 4, 3, 5, 9, 6, 7]


def labels_of(groups, names, n_levels, response="class"):
    levels = [x if isinstance(x, tuple) else tuple("abcdefghijkl"[:x]) for x in n_levels]
    return Labels(response, tuple(groups), tuple(names), tuple(levels))


SHAPES = {
    "six groups of 33 predictors": labels_of(DISEASES, SKIN, [4] * 10 + [2] + [4] * 22),
    "names of 60 characters": labels_of(
        ["without any findings, first", "without any findings, second"], SENTENCES, [3] * 8
    ),
    "22 predictors of 2 to 12 levels": labels_of(
        "ep", [f"stalk-surface-{k}-ring" for k in range(22)], MUSHROOM
    ),
    "30 predictors": labels_of("abc", [f"X{k}" for k in range(30)], [3] * 30),
    "levels that begin alike": labels_of(
        DISEASES, ["place of onset", "sign", "itching"], [PLACES, 4, 2]
    ),
    "plain": labels_of(
        ["No", "Yes"], ["Class", "Sex", "Age"], [("1st", "2nd", "3rd", "Crew"), 2, 2], "Survived"
    ),
}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def figure_of(kind, labels):
    rng = np.random.default_rng(4)
    layout, K = Layout([len(x) for x in labels.levels]), len(labels.groups)
    parameters = Parameters(layout, rng.normal(size=(K, layout.size)))
    if kind == "parameters":
        return plot_parameters(labels, parameters)
    if kind == "network":
        return draw_network(labels, parameters)
    if kind == "logo":
        return draw_logo(
            labels, [np.eye(len(x))[rng.integers(len(x), size=K)] for x in labels.levels]
        )
    if kind == "calibration":
        return plot_calibration(labels, rng.dirichlet(np.ones(K), 60), rng.integers(K, size=60))
    codes = [[rng.integers(len(x)) for x in labels.levels] for _ in range(K)]
    return plot_configurations(
        codes, (1, len(labels.names)), titles=labels.groups, names=labels.names
    )


def corners(text, renderer):
    """Corners (4, 2) of the box of a text in pixels, turned as the text is."""
    box = text.get_window_extent(renderer)
    if text.get_rotation() % 90 == 0:
        return np.array([[box.x0, box.y0], [box.x1, box.y0], [box.x1, box.y1], [box.x0, box.y1]])
    turn = np.radians(text.get_rotation())
    text.set_rotation(0)
    level = text.get_window_extent(renderer)
    text.set_rotation(np.degrees(turn))
    anchor = text.get_transform().transform(text.get_position())
    left = 0.0 if text.get_horizontalalignment() == "left" else -level.width
    x, y = np.array([left, left + level.width]), np.array([-level.height / 2, level.height / 2])
    flat = np.array([[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]])
    return anchor + flat @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])


def meet(a, b, slack=1.0):
    """Whether two convex shapes overlap by more than some pixels: no side of either parts them."""
    for shape in (a, b):
        for side in np.diff(shape, axis=0, append=shape[:1]):
            normal = np.array([-side[1], side[0]]) / max(np.linalg.norm(side), 1e-9)
            p, q = a @ normal, b @ normal
            if p.max() < q.min() + slack or q.max() < p.min() + slack:
                return False
    return True


def texts_of(ax):
    """Return the texts that axes show: a tick outside the limits has none."""
    found = [ax.title, *ax.texts]
    if ax.get_legend() is not None:
        found += [ax.get_legend().get_title(), *ax.get_legend().get_texts()]
    for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
        low, high = sorted(axis.get_view_interval())
        inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        found += [
            axis.label,
            axis.get_offset_text(),
            *(t for tick in inside for t in (tick.label1, tick.label2)),
        ]
    return found + [t for child in ax.child_axes for t in texts_of(child)]


def overlapping(figure):
    """Return pairs of texts of a figure that overlap, and texts that reach beyond it."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts = [*figure.texts, *(t for ax in figure.axes for t in texts_of(ax))]
    texts = [t for t in texts if t.get_visible() and t.get_text().strip()]
    shapes = [corners(t, renderer) for t in texts]
    low, high = np.array([s.min(axis=0) for s in shapes]), np.array([s.max(axis=0) for s in shapes])
    near = (low[:, None] < high[None]).all(axis=2)
    pairs = [
        (texts[i].get_text(), texts[j].get_text())
        for i, j in zip(*np.nonzero(np.triu(near & near.T, 1)), strict=True)
        if meet(shapes[i], shapes[j])
    ]
    beyond = (low < -1).any(axis=1) | (high > figure.bbox.size + 1).any(axis=1)
    return pairs, [t.get_text() for t, out in zip(texts, beyond, strict=True) if out]


@pytest.mark.parametrize("kind", ["parameters", "network", "logo", "calibration", "configurations"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.long
def test_texts_of_a_figure_lie_apart_and_inside_it(kind, shape):
    labels = SHAPES[shape]
    axes = figure_of(kind, labels)
    figure = axes[0].figure
    pairs, beyond = overlapping(figure)
    assert not pairs
    assert not beyond
    width, height = figure.get_size_inches()
    assert width <= 16
    assert height <= 20
    for ax in figure.axes:
        assert min(ax.get_window_extent().size) >= 10  # the least is the bar of a colour scale
        assert not ax.xaxis.get_offset_text().get_text()
        assert not ax.yaxis.get_offset_text().get_text()
    for ax in axes:
        if kind in ("logo", "configurations"):
            found = [t.get_text() for t in ax.get_xticklabels()]
        else:
            found = (
                [t.get_text() for t in ax.texts]
                if kind == "network"
                else [t.get_text() for t in ax.get_yticklabels()]
            )
        if kind != "parameters" or ax is not axes[0]:
            assert len(set(found)) == len(found)
    titles = [ax.get_title() for ax in axes if ax.get_title()]
    assert len(set(titles)) == len(titles)
    if kind == "parameters" and shape == "six groups of 33 predictors":
        assert all(min(ax.get_window_extent().size) > 240 for ax in axes[1:])
        assert len(axes[1].get_yticklabels()) == len(axes[-1].get_xticklabels()) == 33
        assert not axes[2].get_yticklabels()  # the first of a row names them
    if kind in ("logo", "configurations", "network"):  # all predictors are named
        last = axes[-1].texts if kind == "network" else axes[-1].get_xticklabels()
        assert len(last) == len(labels.names)


@pytest.mark.long
def test_levels_that_begin_alike_can_be_told_apart():
    bars, *maps = figure_of("parameters", SHAPES["levels that begin alike"])
    levels = [" ".join(t.get_text().split()) for t in bars.get_xticklabels()]
    assert levels[:5] == list(PLACES[1:])
    assert len({t.get_text() for t in maps[0].get_yticklabels()}) == 9


@pytest.mark.parametrize("kind", ["parameters", "network", "logo", "calibration"])
@pytest.mark.thinned(2)
def test_a_new_figure_of_many_groups_is_bounded_and_says_what_it_leaves_out(kind):
    labels = labels_of([f"g{k}" for k in range(40)], "pq", [2, 2])
    axes = figure_of(kind, labels)
    panels = {"parameters": len(axes) - 1, "calibration": len(axes) / 2}.get(kind, len(axes))
    assert panels == MOST_PANELS
    (note,) = [t.get_text() for t in axes[0].figure.texts]
    assert note.startswith("showing the first 24 of 40 ")
    assert max(axes[0].figure.get_size_inches()) <= 22


def test_a_network_says_which_pairs_it_shows():
    axes = figure_of("network", SHAPES["six groups of 33 predictors"])
    assert {ax.get_title().split("\n")[-1] for ax in axes} == {
        "showing the 30 strongest of 528 pairs"
    }
    labels = labels_of("a", "pqr", [2, 2, 2])
    empty = Parameters(Layout([2, 2, 2]), np.zeros((1, 6)))
    assert draw_network(labels, empty)[0].get_title() == "class = a\nno coupled pairs"
    assert (
        draw_network(labels, Parameters(empty.layout, np.ones((1, 6))))[0].get_title()
        == "class = a"
    )


def test_the_sign_of_an_edge_is_seen_without_colours():
    theta = np.array([[0, 0, 0, 3.0, -2.0, 1.0]])
    (ax,) = draw_network(labels_of("a", "pqr", [2, 2, 2]), Parameters(Layout([2, 2, 2]), theta))
    (edges,) = ax.collections
    for value, (_, dashes) in zip(edges.get_array(), edges.get_linestyle(), strict=True):
        assert (dashes is not None) == (value < 0)


@pytest.mark.long
def test_negative_couplings_bear_a_minus_where_cells_are_large():
    theta = np.array([[0, 0, 0, 3.0, -2.0, -0.5]])
    _, ax = plot_parameters(labels_of("a", "pqr", [2, 2, 2]), Parameters(Layout([2, 2, 2]), theta))
    marked = [
        tuple(xy) for line in ax.lines if line.get_marker() == "_" for xy in line.get_xydata()
    ]
    assert sorted(marked) == [(0, 2), (1, 2), (2, 0), (2, 1)]
    _, fine, _ = figure_of("parameters", SHAPES["22 predictors of 2 to 12 levels"])
    assert not any(line.get_marker() == "_" for line in fine.lines)


def test_axes_of_the_caller_are_kept_and_their_names_fit():
    labels = SHAPES["six groups of 33 predictors"]
    parameters = Parameters(
        Layout([len(x) for x in labels.levels]),
        np.ones((6, Layout([len(x) for x in labels.levels]).size)),
    )
    mine = plt.figure(figsize=(12, 9)).subplots(2, 1)
    assert draw_network(labels, parameters, groups=DISEASES[:2], axes=mine) == list(mine)
    sizes = [t.get_fontsize() for t in mine[0].texts]
    assert len(sizes) == 33
    mine = plt.figure(figsize=(3, 3)).subplots()
    draw_network(labels, parameters, groups=DISEASES[:1], axes=mine)
    pairs, _ = overlapping(mine.figure)
    assert not pairs
    assert 5 < len(mine.texts) <= 33


def test_numbers_are_written_in_full():
    import pandas as pd

    score = 0.9999 + 1e-6 * np.arange(4)
    ax = plot_cv(pd.DataFrame({"epsilon": [0.1, 0.2, 0.3, 0.4], "AUC": score}))
    both = plot_comparison(([10000 + score], []), ([10000 + score], []))
    for one in (ax, both):
        one.figure.draw_without_rendering()
        for side in (one.xaxis, one.yaxis):
            assert isinstance(side.get_major_formatter(), ScalarFormatter)
            assert not side.get_offset_text().get_text()
    written = [float(t.get_text()) for t in ax.get_yticklabels()]
    np.testing.assert_allclose(written, ax.get_yticks(), rtol=1e-7)
    assert len(set(written)) > 3


class TestShortened:
    def test_the_middle_goes_at_the_same_place_of_all(self):
        names = ["stalk-surface-above-ring", "stalk-surface-below-ring", "odor"]
        found = shorten_names(names, 16)
        assert all(len(x) <= 16 for x in found)
        assert len(set(found)) == 3
        assert found[2] == "odor"
        assert found[0].index("…") == found[1].index("…")

    @pytest.mark.parametrize("length", [5, 8, 12, 24])
    def test_names_that_differ_anywhere_stay_different(self, length):
        rng = np.random.default_rng(length)
        base = "".join(rng.choice(list("abc_ "), 60))
        names = (
            [base]
            + [base[:k] + "X" + base[k + 1 :] for k in range(0, 60, 7)]
            + [base[:40], base[:20], "short", base]
        )
        found = shorten_names(names, length)
        assert all(len(x) <= length for x in found)
        assert len(set(found)) == len(set(names))
        assert found[0] == found[-1]  # the same name reads the same

    def test_where_alike_names_part_is_shown(self):
        names = ["a" * 30 + x + "b" * 30 for x in ("one", "two", "six")]
        found = shorten_names(names, 16)
        assert [any(x in y for x in ("one", "two", "six")) for y in found] == [True] * 3


def test_spread_moves_as_little_as_possible():
    rng = np.random.default_rng(0)
    for _ in range(5):
        at = np.sort(rng.random(6))
        found = spread_apart(at, 0.15)
        apart = {"type": "ineq", "fun": lambda x: np.diff(x) - 0.15}
        wanted = minimize(
            lambda x, a=at: ((x - a) ** 2).sum(), np.arange(6.0), constraints=apart, tol=1e-12
        ).x
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert spread_apart(np.array([0.0, 1.0, 2.0]), 0.5).tolist() == [0.0, 1.0, 2.0]


def test_widths_of_texts_are_those_that_are_drawn():
    figure = plt.figure(dpi=600)  # a coarse one rounds the width of each letter
    for text in ("erythema", "PNL_infiltrate", "WWW iii", "one\nlonger line"):
        drawn = figure.text(0, 0, text, fontsize=9, family="DejaVu Sans")
        width = drawn.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
        assert text_inches(text, 9) == pytest.approx(width, rel=0.02)


def test_names_fit_their_room_in_few_lines():
    found = wrap_names(SENTENCES, 1.0, 8, 3)
    assert len(set(found)) == len(SENTENCES)
    assert all(x.count("\n") < 3 and text_inches(x, 8) <= 1.0 for x in found)
    assert wrap_names(["a$b"], 3.0, 8) == [r"a\$b"]


def test_names_along_an_axis():
    level = fit_names(["low", "high"], [0, 1], 1.0, 1.5)
    assert (level.upright, level.texts, level.positions.tolist()) == (
        False,
        ["low", "high"],
        [0, 1],
    )
    turned = fit_names(SENTENCES, range(8), 0.3, 1.5)
    assert turned.upright
    assert turned.depth <= 1.5
    # pushed apart, none left out
    crowded = fit_names(["a", "b", "c"], [0, 1, 20], 0.08, 1.5, upright=True)
    assert len(crowded.texts) == 3
    assert np.diff(crowded.positions).min() * 0.08 > 6 / 72
    many = fit_names([f"X{k}" for k in range(784)], range(784), 0.005, 1.5)
    assert 8 <= len(many.texts) <= 16
    assert [f"X{k:.0f}" for k in many.positions] == many.texts


def test_grids_are_nearly_full():
    assert [grid_columns(n, 2.0) for n in (1, 2, 3, 6, 7, 19, 24)] == [1, 2, 3, 6, 4, 5, 6]
    assert grid_columns(6, 4.0) == 3
    assert grid_columns(5, 99.0) == 1


@pytest.mark.parametrize(
    ("lowest", "highest"), [(10.5, 65.0), (0.002, 0.009), (3.0, 290.0), (0.5, 1.1)]
)
def test_numbers_on_a_short_logarithmic_axis_are_in_full_and_apart(lowest, highest):
    figure, ax = plt.subplots(figsize=(5.2, 3.6))
    ax.set_xscale("log")
    ax.plot([lowest, highest], [0, 1])
    plain_log_axis(ax.xaxis, lowest, highest)
    figure.canvas.draw()
    low, high = ax.get_xlim()
    shown = [
        t
        for t in ax.get_xticklabels(which="both")
        if t.get_text() and low <= t.get_position()[0] <= high
    ]
    assert len(shown) > 1 and [float(t.get_text()) for t in shown] == pytest.approx(
        [t.get_position()[0] for t in shown]
    )
    ends = [
        (box.x0, box.x1)
        for box in sorted((t.get_window_extent() for t in shown), key=lambda box: box.x0)
    ]
    assert all(left[1] + 3 < right[0] for left, right in zip(ends, ends[1:], strict=False))
    plt.close(figure)
