"""Plots: what is drawn, how it is labelled, and what is refused."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.canvas import COLOURS, colour_limit, short_name
from bbl.report.machine.plot import plot_comparison, plot_configurations, plot_cv, plot_parameters

LABELS = Labels(
    "Survived",
    ("No", "Yes"),
    ("Class", "Sex", "Age"),
    (("1st", "2nd", "3rd", "Crew"), ("Female", "Male"), ("Adult", "Child")),
)
LAYOUT = Layout([4, 2, 2], [(0, 1), (1, 2)])
THETA = np.array(
    [
        [1.5, 3.0, 1.6, 3.2, 0.4, -1.2, -2.7, -1.4, -0.5],
        [-0.1, -0.8, -0.1, -1.1, -0.2, -0.9, 0.0, -0.3, 1.2],
    ]
)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def drawn(axes):
    """Lay the figure out and draw it, so that every label is really made."""
    figure = axes.figure
    figure.draw_without_rendering()
    return figure


def large(n_levels, K, pairs=None):
    rng = np.random.default_rng(3)
    layout, m = Layout(n_levels, pairs), len(n_levels)
    labels = Labels(
        "y",
        tuple(range(K)),
        tuple(f"X{i}" for i in range(m)),
        tuple(tuple(range(n)) for n in n_levels),
    )
    return labels, Parameters(layout, rng.normal(size=(K, layout.size)))


class TestParameters:
    @pytest.mark.long
    def test_bars(self):
        pooled = np.full(9, 0.25)
        axes = plot_parameters(LABELS, Parameters(LAYOUT, THETA + pooled, pooled))
        drawn(axes[0])
        bars = axes[0]
        heights = [[patch.get_height() for patch in group] for group in bars.containers]
        np.testing.assert_allclose(heights, THETA[:, :5])
        centres = [patch.get_x() + patch.get_width() / 2 for patch in bars.containers[0]]
        np.testing.assert_allclose(np.diff(centres), 1.0)
        assert [t.get_text() for t in bars.get_xticklabels()] == [
            "2nd",
            "3rd",
            "Crew",
            "Male",
            "Child",
        ]
        above = bars.child_axes[0]
        assert [t.get_text() for t in above.get_xticklabels()] == ["Class", "Sex", "Age"]
        assert above.get_xticks().tolist() == [1.0, 3.0, 4.0]
        assert "Delta h" in bars.get_ylabel()
        legend = bars.get_legend()
        assert legend.get_title().get_text() == "Survived"
        assert [t.get_text() for t in legend.get_texts()] == ["No", "Yes"]
        assert bars.containers[0][0].get_facecolor() == matplotlib.colors.to_rgba(COLOURS[0])

    @pytest.mark.long
    def test_maps(self):
        axes = plot_parameters(LABELS, Parameters(LAYOUT, THETA))
        figure = drawn(axes[0])
        assert len(axes) == 3
        assert [ax.get_title() for ax in axes[1:]] == ["Survived = No", "Survived = Yes"]
        image = axes[1].images[0]
        values = image.get_array()
        assert values.shape == (5, 5)
        assert values[2, 3] == values[3, 2] == -1.4
        assert values[3, 4] == -0.5
        assert values.mask[0, 1]  # levels of one predictor
        assert values.mask[0, 4]  # Class and Age do not interact
        assert axes[1].images[0].get_clim() == axes[2].images[0].get_clim() == (-2.7, 2.7)
        wanted = ["Class: 2nd", "Class: 3rd", "Class: Crew", "Sex: Male", "Age: Child"]
        assert [" ".join(t.get_text().split()) for t in axes[1].get_xticklabels()] == wanted
        assert [t.get_text() for t in axes[1].get_yticklabels()] == wanted
        (bar,) = [ax for ax in figure.axes if ax not in axes]
        assert bar.get_ylabel() == "Coupling $J$ (–: below 0)"

    @pytest.mark.long
    def test_no_text_lies_outside_the_figure(self):
        figure = drawn(plot_parameters(LABELS, Parameters(LAYOUT, THETA))[0])
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 > -0.02
        assert box.y0 > -0.02
        assert box.x1 < width + 0.02
        assert box.y1 < height + 0.02

    def test_no_pairs(self):
        layout = Layout([4, 2, 2], np.empty((0, 2)))
        axes = plot_parameters(LABELS, Parameters(layout, THETA[:, :5]))
        assert len(axes) == 1
        assert len(drawn(axes[0]).axes) == 1

    def test_given_axes(self):
        figure, mine = plt.subplots(3, 1)
        assert plot_parameters(LABELS, Parameters(LAYOUT, THETA), axes=mine) == list(mine)
        single = plt.figure().add_subplot()
        layout = Layout([4, 2, 2], np.empty((0, 2)))
        assert plot_parameters(LABELS, Parameters(layout, THETA[:, :5]), axes=single) == [single]
        with pytest.raises(OptionError, match="2 axes, but 3") as error:
            plot_parameters(LABELS, Parameters(LAYOUT, THETA), axes=mine[:2])
        assert error.value.argument == "axes"

    def test_groups(self):
        axes = plot_parameters(LABELS, Parameters(LAYOUT, THETA), groups=["Yes"])
        assert [ax.get_title() for ax in axes[1:]] == ["Survived = Yes"]
        assert axes[1].images[0].get_array()[3, 4] == 1.2
        for groups, words in (
            (["Maybe"], "'Maybe' is not a group of 'Survived'.*from 'No', 'Yes'"),
            ([], "empty"),
        ):
            with pytest.raises(OptionError, match=words):
                plot_parameters(LABELS, Parameters(LAYOUT, THETA), groups=groups)

    @pytest.mark.long
    def test_many_groups(self):
        """The genetic code: 21 groups, so fields are a map and the maps a grid."""
        axes = plot_parameters(*large([4, 4, 4], 21))
        drawn(axes[0])
        assert len(axes) == 22
        assert axes[0].images[0].get_array().shape == (21, 9)
        assert len(axes[0].get_yticklabels()) == 21
        assert [t.get_text() for t in axes[1].get_yticklabels()] == ["X0", "X1", "X2"]
        assert [t.get_text() for t in axes[-1].get_xticklabels()] == ["X0", "X1", "X2"]
        # those of the lowest panel of the column stand for them
        assert not axes[1].get_xticklabels()
        assert axes[1].images[0].get_array().shape == (9, 9)

    def test_pixels(self):
        """784 binary predictors: signed couplings, coarsened to the strongest of each block."""
        labels, parameters = large([2] * 784, 2)
        parameters.theta[0] *= 0.0
        parameters.theta[0, parameters.layout.D + 1] = -9.0  # pixels 0 and 2
        axes = plot_parameters(labels, parameters)
        drawn(axes[0])
        image = axes[1].images[0]
        values = image.get_array()
        assert values.shape == (262, 262)
        assert values[0, 0] == -9.0
        assert np.count_nonzero(values.filled(0.0)) == 1
        assert image.get_extent() == [-0.5, 783.5, 783.5, -0.5]
        assert 8 <= len(axes[1].get_xticklabels()) <= 16
        assert axes[1].get_xticklabels()[1].get_text() == f"X{int(axes[1].get_xticks()[1])}"
        assert axes[0].images[0].get_array().shape == (2, 784)

    def test_norms(self):
        """Too many levels to draw one by one: the Frobenius norm of each pair's table."""
        labels, parameters = large(
            [21] * 25, 2, pairs=[(i, j) for i in range(25) for j in range(i) if i + j != 3]
        )
        axes = plot_parameters(labels, parameters)
        figure = drawn(axes[0])
        values = axes[2].images[0].get_array()
        assert values.shape == (25, 25)
        wanted = np.linalg.norm(parameters.layout.table(parameters.theta[1], 4, 9))
        assert values[4, 9] == values[9, 4] == pytest.approx(wanted)
        assert values.mask[1, 2]
        assert axes[1].images[0].get_clim()[0] == 0.0
        assert "Vert" in next(ax for ax in figure.axes[::-1] if ax not in axes).get_ylabel()

    @pytest.mark.long
    def test_odd_names(self):
        """Names that matplotlib would read as mathematics, or leave out of a legend."""
        labels = Labels(
            "$y$", ("_no", "a$b"), ("x\n$^", "_"), (("0", "$\\frac{1"), ("0", "é" * 60))
        )
        axes = plot_parameters(labels, Parameters(Layout([2, 2]), np.ones((2, 3))))
        drawn(axes[0])
        assert [t.get_text() for t in axes[0].get_legend().get_texts()] == ["_no", r"a\$b"]
        assert short_name("é" * 60) == "é" * 14 + "…" + "é" * 9

    @pytest.mark.long
    def test_not_finite(self):
        theta = THETA.copy()
        theta[0, 0], theta[1, 6] = -np.inf, np.nan
        axes = plot_parameters(LABELS, Parameters(LAYOUT, theta))
        drawn(axes[0])
        assert np.isfinite(axes[0].get_ylim()).all()
        assert axes[1].images[0].get_clim() == (-2.7, 2.7)

    def test_all_zero(self):
        axes = plot_parameters(LABELS, Parameters(LAYOUT, np.zeros((2, 9))))
        drawn(axes[0])
        assert axes[1].images[0].get_clim() == (-1.0, 1.0)
        assert colour_limit(np.array([])) == 1.0


class TestCrossValidation:
    FRAME = pd.DataFrame(
        {
            "lambda": [1e-3, 1e-2, 1e-1],
            "AUC": [0.7, 0.8, 0.75],
            "ci1": [0.6, 0.72, 0.65],
            "ci2": [0.8, 0.88, 0.85],
        }
    )

    PENALTY = {"symbol": r"$\lambda$", "title": r"Penalty $\lambda$", "logarithmic": True}

    def test_auc(self):
        ax = plot_cv(self.FRAME, best=1e-2, **self.PENALTY)
        drawn(ax)
        assert ax.get_xscale() == "log"
        np.testing.assert_allclose(ax.lines[0].get_xydata(), self.FRAME[["lambda", "AUC"]])
        band = ax.collections[0].get_paths()[0].vertices
        assert (band[:, 1].min(), band[:, 1].max()) == (0.6, 0.88)
        marked = ax.lines[-1].get_xydata()
        np.testing.assert_allclose(marked, [[1e-2, 0.8]])
        assert ax.get_xlabel() == r"Penalty $\lambda$"
        assert ax.get_ylabel() == "AUC"
        assert [t.get_text() for t in ax.get_legend().get_texts()] == [
            "95% interval",
            r"best: $\lambda$ = 0.01",
        ]

    def test_score_and_other_settings(self):
        frame = pd.DataFrame({"epsilon": [0.3, 0.1], "score": [0.9, 0.8]})
        given = plt.figure().add_subplot()
        ax = plot_cv(
            frame, best=0.3, ax=given, symbol=r"$\epsilon$", title=r"Coupling weight $\epsilon$"
        )
        assert ax is given
        assert ax.get_xscale() == "linear"
        assert ax.lines[0].get_xdata().tolist() == [0.1, 0.3]
        assert (ax.get_xlabel(), ax.get_ylabel()) == (r"Coupling weight $\epsilon$", "Score")
        ax = plot_cv(frame.rename(columns={"epsilon": "prior_count"}))
        drawn(ax)
        assert ax.get_xlabel() == "prior_count"
        assert ax.get_legend() is None

    def test_zero_penalty(self):
        frame = self.FRAME.assign(**{"lambda": [0.0, 1e-2, 1e-1]})
        ax = plot_cv(frame, best=0.0, **self.PENALTY)
        drawn(ax)
        assert ax.get_xscale() == "symlog"
        assert (
            plot_cv(self.FRAME.iloc[:1].assign(**{"lambda": 0.0}), **self.PENALTY).get_xscale()
            == "linear"
        )

    @pytest.mark.long
    def test_one_setting_and_missing_scores(self):
        ax = plot_cv(self.FRAME.iloc[:1], best=1e-3, **self.PENALTY)
        drawn(ax)
        segment = ax.collections[1].get_segments()[0]
        assert segment[:, 1].tolist() == [0.6, 0.8]
        drawn(plot_cv(self.FRAME.assign(AUC=np.nan, ci1=np.nan, ci2=np.nan), **self.PENALTY))


class TestComparison:
    def test_pairs_of_arrays(self):
        h, J = [np.array([0.0, 1.0]), np.array([2.0])], {(0, 1): np.array([[3.0], [-1.0]])}
        found = [np.array([0.5, 1.0]), np.array([2.0])], {(0, 1): np.array([[3.0], [-2.0]])}
        ax = plot_comparison((h, J), found, title="m = 2")
        drawn(ax)
        line, fields, couplings = ax.lines
        assert fields.get_xydata().tolist() == [[0.0, 0.5], [1.0, 1.0], [2.0, 2.0]]
        assert couplings.get_xydata().tolist() == [[3.0, 3.0], [-1.0, -2.0]]
        assert fields.get_marker() != couplings.get_marker()
        assert tuple(line.get_xdata()) == tuple(line.get_ydata()) == ax.get_xlim() == ax.get_ylim()
        assert ax.get_title() == "m = 2"
        texts = [t.get_text() for t in ax.get_legend().get_texts()]
        assert texts == ["$h$ (rms difference 0.29)", "$J$ (rms difference 0.71)"]

    def test_mappings_and_objects(self):
        """Anything with .h and .J; mappings are matched by key."""

        class Model:
            h = {"a": pd.Series([1.0, 2.0]), "b": pd.Series([3.0])}
            J = {("a", "b"): pd.DataFrame([[4.0], [5.0]])}

        swapped = {"b": Model.h["b"], "a": Model.h["a"]}
        ax = plot_comparison(Model, (swapped, Model.J))
        for line in ax.lines[1:]:
            assert np.array_equal(line.get_xdata(), line.get_ydata())
        with pytest.raises(DataError, match="does not contain 'b'"):
            plot_comparison(Model, ({"a": Model.h["a"]}, Model.J))

    def test_no_couplings_and_unlike_models(self):
        ax = plot_comparison(([[1.0, 1.0]], {}), ([[1.0, 1.0]], {}))
        drawn(ax)
        assert len(ax.lines) == 2
        with pytest.raises(DataError, match="2 true and 1 inferred h"):
            plot_comparison(([1.0, 2.0], []), ([1.0], []))


class TestConfigurations:
    def test_images(self):
        codes = np.arange(24).reshape(2, 12) % 3
        axes = plot_configurations(codes, (3, 4), titles=np.array([0, "1$"], dtype=object))
        drawn(axes[0])
        assert [ax.get_title() for ax in axes] == ["0", r"1\$"]
        for ax, row in zip(axes, codes, strict=True):
            assert ax.images[0].get_array().tolist() == row.reshape(3, 4).tolist()
            assert ax.images[0].get_clim() == (0, 2)
            assert len(ax.get_xticks()) == 0

    def test_default_shape(self):
        assert plot_configurations(np.zeros((1, 16)))[0].images[0].get_array().shape == (4, 4)
        assert plot_configurations(np.zeros((2, 5)))[1].images[0].get_array().shape == (1, 5)

    def test_grid_has_no_empty_axes(self):
        axes = plot_configurations(np.zeros((7, 9)))
        assert len(axes) == 7 == len(axes[0].figure.axes)

    def test_positions(self):
        """Pixels that were left out as constant are drawn as code 0."""
        axes = plot_configurations([[1, 2]], (2, 2), positions=[3, 1])
        assert axes[0].images[0].get_array().tolist() == [[0, 2], [0, 1]]

    def test_names_below_a_single_row(self):
        axes = plot_configurations([[1, 2, 0]], (1, 4), positions=[3, 0, 1], names=["p", "q", "r"])
        assert [
            (t.get_text(), x)
            for t, x in zip(axes[0].get_xticklabels(), axes[0].get_xticks(), strict=True)
        ] == [
            ("q", 0),
            ("r", 1),
            ("p", 3),
        ]
        assert not plot_configurations(np.zeros((1, 4)), (2, 2), names="pqrs")[0].get_xticklabels()

    def test_given_axes(self):
        figure, mine = plt.subplots(1, 2)
        assert plot_configurations(np.zeros((2, 4)), axes=mine) == list(mine)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"shape": (3, 3)}, "shape=.3, 3. has 9 pixels, but there are 4 predictors"),
            (
                {"shape": (2, 2), "positions": [0, 1, 2, 4]},
                r"positions must be 4 distinct.*between 0 and 3",
            ),
            ({"shape": (2, 2), "positions": [0, 1, 1, 2]}, "positions"),
            ({"shape": (2, 2), "positions": [0, 1]}, "positions"),
            ({"titles": ["a"]}, "2 configurations, but 1 titles"),
            ({"names": ["a"]}, "4 predictors, but 1 names"),
            ({"axes": []}, "axes"),
        ],
    )
    def test_refused(self, arguments, words):
        with pytest.raises(OptionError, match=words):
            plot_configurations(np.zeros((2, 4)), **arguments)
