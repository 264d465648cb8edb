"""Plots of logos, networks and calibration, and intervals on the fields: what is drawn, and what is
refused.
"""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import bbl
from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.gauge import zero_sum
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.machine.plot_interactions import draw_network
from bbl.report.machine.plot_logo import (
    AMINO_ACIDS,
    NUCLEOTIDES,
    draw_logo,
    information,
    zero_sum_fields,
)
from bbl.report.machine.plot_parameters import plot_parameters
from bbl.report.plot_check import plot_calibration
from bbl.report.plot_coefficients import plot_coefficients
from bbl.report.plot_effects import plot_effects

DNA = tuple("ACGT")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def titanic():
    return bbl.bbl(
        "Survived ~ .^2", bbl.datasets.load_titanic(), weights="Freq", lambda_=1e-3, verbose=0
    )


def drawn(axes):
    """Lay the figure out and draw it, so that every label is really made."""
    figure = axes[0].figure
    figure.draw_without_rendering()
    return figure


def inside(figure):
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02


def model(n_levels, K, pairs=None, seed=3):
    layout, m = Layout(n_levels, pairs), len(n_levels)
    labels = Labels(
        "y",
        tuple("abcdefghijkl"[:K]),
        tuple(f"X{i}" for i in range(m)),
        tuple(map(range, n_levels)),
    )
    labels = Labels(
        labels.response, labels.groups, labels.names, tuple(tuple(x) for x in labels.levels)
    )
    return labels, Parameters(layout, np.random.default_rng(seed).normal(size=(K, layout.size)))


def boxes(ax):
    """Extents of the letters of a logo: middle, low, high, colour; bottom up, left to right."""
    found = []
    for patch in ax.patches:
        box = patch.get_path().get_extents()
        found.append(
            (
                (box.x0 + box.x1) / 2,
                box.y0,
                box.y1,
                matplotlib.colors.to_hex(patch.get_facecolor()).upper(),
            )
        )
    return sorted(found)


class TestIntervals:
    @pytest.mark.long
    def test_bars_bear_them(self, titanic):
        axes = titanic.plot(intervals=True)
        drawn(axes)
        table = titanic.inference().table("pooled")
        fields = table[table["predictor2"].isna()]
        limits = []
        for container in axes[0].containers:
            if isinstance(container, matplotlib.container.ErrorbarContainer):
                limits += [
                    segment[:, 1] for segment in container[2][0].get_segments() if len(segment)
                ]
        known = fields[fields["lower"].notna()]
        assert 0 < len(known) < len(fields)
        # a penalised estimate can lie outside its interval; the bar then ends at the estimate
        ends = [known[["lower", "estimate"]].min(axis=1), known[["upper", "estimate"]].max(axis=1)]
        np.testing.assert_allclose(limits, np.transpose(ends))
        assert len(axes) == 3
        assert len(titanic.plot()[0].containers) == 2

    def test_without_a_pooled_fit(self):
        data = bbl.datasets.load_titanic()
        fit = bbl.bbl(
            "Survived ~ .", data, weights="Freq", method="naive", testNull=False, verbose=0
        )
        (ax,) = fit.plot(intervals=True)
        (first, *_) = [
            c for c in ax.containers if isinstance(c, matplotlib.container.ErrorbarContainer)
        ]
        low = first[2][0].get_segments()[0][0, 1]
        assert low == pytest.approx(fit.conf_int()["lower"].iloc[0])

    def test_groups_and_maps(self):
        labels, parameters = model([3, 3], 2)
        half = np.arange(8.0).reshape(2, 4)
        axes = plot_parameters(labels, parameters, groups=["b"], errors=half)
        (bars,) = [
            c for c in axes[0].containers if isinstance(c, matplotlib.container.ErrorbarContainer)
        ]
        lengths = [np.diff(s[:, 1])[0] for s in bars[2][0].get_segments()]
        np.testing.assert_allclose(lengths, 2 * half[1])
        labels, parameters = model([3] * 60, 2)
        fields = parameters.theta[:, : parameters.layout.D]
        ax = plot_parameters(labels, parameters, errors=np.full(fields.shape, 0.5))[0]
        marked = np.zeros(fields.shape, dtype=bool)
        x, y = ax.lines[0].get_data()
        marked[np.asarray(y, int), np.asarray(x, int)] = True
        np.testing.assert_array_equal(marked, np.abs(fields) > 0.5)

    def test_refused(self, titanic):
        labels, parameters = model([3, 3], 2)
        for wrong in (np.zeros((1, 4)), -np.ones((2, 4))):
            with pytest.raises(DataError, match="2 x 4 non-negative numbers"):
                plot_parameters(labels, parameters, errors=wrong)
        with pytest.raises(BBLTypeError, match="intervals must be True or False"):
            titanic.plot(intervals=0.95)
        fit = bbl.bbl(
            "Survived ~ .^2", bbl.datasets.load_titanic(), weights="Freq", method="mf", verbose=0
        )
        with pytest.raises(OptionError, match="Standard errors"):
            fit.plot(intervals=True)


class TestLogo:
    labels = Labels("y", ("site", "rest"), ("1", "2"), (DNA, ("C", "T")))
    counts = ([[8, 0, 0, 0], [2, 2, 2, 2]], [[4, 4], [0, 8]])

    def test_information(self):
        one, two = information(self.labels, self.counts)
        np.testing.assert_allclose(one, [[2, 0, 0, 0], [0, 0, 0, 0]], atol=1e-12)
        # two nucleotides out of four: a position where the others never occur is not without
        # information
        np.testing.assert_allclose(two, [[0.5, 0.5], [0, 2]])
        words = Labels("y", ("a",), ("x",), (("low", "high"),))
        np.testing.assert_allclose(
            information(words, [[[1, 3]]])[0][0], np.array([1, 3]) / 4 * (1 - 0.8112781244591328)
        )
        np.testing.assert_array_equal(information(words, [[[0, 0]]])[0], [[0, 0]])
        residues = Labels("y", ("a",), ("x",), (tuple("ACDEFGHIKL"),))
        assert information(residues, [np.eye(10)[:1]])[0].sum() == pytest.approx(np.log2(20))

    def test_letters(self):
        axes = draw_logo(self.labels, [[[0.2, 1.0, 0, -0.3], [0] * 4], [[-0.1, -0.5], [0, 0.4]]])
        figure = drawn(axes)
        assert inside(figure)
        expected = [
            (0, -0.3, 0.0, NUCLEOTIDES["T"]),
            (0, 0.0, 0.2, NUCLEOTIDES["A"]),
            (0, 0.2, 1.2, NUCLEOTIDES["C"]),
            (1, -0.6, -0.1, NUCLEOTIDES["T"]),
            (1, -0.1, 0.0, NUCLEOTIDES["C"]),
        ]
        found = boxes(axes[0])
        np.testing.assert_allclose([f[:3] for f in found], [e[:3] for e in expected], atol=1e-9)
        assert [f[3] for f in found] == [e[3] for e in expected]
        assert len(boxes(axes[1])) == 1
        assert axes[0].get_ylim() == axes[1].get_ylim()
        assert axes[0].get_ylim()[0] < -0.6
        assert axes[0].get_ylim()[1] > 1.2
        assert [ax.get_title() for ax in axes] == ["y = site", "y = rest"]
        assert [t.get_text() for t in axes[1].get_xticklabels()] == ["1", "2"]

    def test_zero_sum_fields_do_not_depend_on_the_reference(self):
        labels, parameters = model([3, 2, 4], 2)
        layout = parameters.layout
        fields = zero_sum_fields(parameters)
        for k, theta in enumerate(parameters.theta):
            for i in range(3):
                h = np.concatenate([[0.0], layout.table(theta, i)])
                for j in {0, 1, 2} - {i}:
                    h = h + np.pad(layout.table(theta, i, j), ((1, 0), (1, 0))).mean(axis=1)
                np.testing.assert_allclose(fields[i][k], h - h.mean())
        pooled = Parameters(layout, parameters.theta, parameters.theta[0])
        np.testing.assert_allclose(zero_sum_fields(pooled)[0][0], 0, atol=1e-12)
        np.testing.assert_allclose(zero_sum_fields(pooled)[2][1], fields[2][1] - fields[2][0])

    @pytest.mark.parametrize("K", [1, 4, 11])
    @pytest.mark.thinned(3)
    def test_sizes(self, K):
        labels = Labels("y", tuple(range(K)), tuple(f"pos{i}" for i in range(5)), (DNA,) * 5)
        rng = np.random.default_rng(1)
        axes = draw_logo(
            labels, information(labels, [rng.integers(0, 9, (K, 4)) for _ in range(5)])
        )
        assert len(axes) == K
        assert inside(drawn(axes))

    def test_any_levels(self):
        levels = (
            ("low", "middling", "a very long name indeed"),
            (True, False),
            (1, 2),
            (" ", "$x$"),
            ("_", "-"),
        )
        labels = Labels("y", ("a",), tuple("vwxyz"), levels)
        axes = draw_logo(labels, [np.ones((1, len(x))) for x in levels])
        drawn(axes)
        assert len(boxes(axes[0])) == 10  # the blank has no shape
        amino = Labels("y", ("a",), ("x",), (tuple("ACDEFGHIKL"),))
        (ax,) = draw_logo(amino, [np.ones((1, 10))])
        assert {b[3] for b in boxes(ax)} == {AMINO_ACIDS[x] for x in "ACDEFGHIKL"}

    def test_refused(self):
        with pytest.raises(DataError, match="one finite"):
            draw_logo(self.labels, [np.ones((2, 4))])
        with pytest.raises(DataError, match="one finite"):
            draw_logo(self.labels, [np.ones((2, 4)), np.full((2, 2), np.nan)])
        with pytest.raises(OptionError, match="'x' is not a group"):
            draw_logo(self.labels, [np.ones((2, 4)), np.ones((2, 2))], groups=["x"])
        wide = Labels("y", ("a",), tuple(range(201)), (DNA,) * 201)
        with pytest.raises(OptionError, match="space for 200"):
            draw_logo(wide, [np.ones((1, 4))] * 201)

    def test_of_a_fit(self, titanic, tmp_path):
        axes = titanic.plot_logo()
        drawn(axes)
        frame = titanic.model_frame.assign(w=titanic.weights)
        share = frame[frame["Survived"] == "No"].groupby("Sex", observed=True)["w"].sum()
        share = (share / share.sum()).to_numpy()
        height = share * (1 + (share * np.log2(share)).sum())
        sex = [b for b in boxes(axes[0]) if round(b[0]) == 1]
        np.testing.assert_allclose(sorted(b[2] - b[1] for b in sex), sorted(height))
        mine = plt.figure().add_subplot()
        assert titanic.plot_logo("fields", groups=["Yes"], axes=mine) == [mine]
        assert "Delta h" in mine.get_ylabel()
        titanic.save(tmp_path / "fit.bbl")  # without the rows
        again = boxes(bbl.load(tmp_path / "fit.bbl").plot_logo()[0])
        assert again == boxes(axes[0])
        with pytest.raises(OptionError, match="kind='field' is unknown"):
            titanic.plot_logo("field")


class TestNetwork:
    def test_edges(self):
        layout = Layout([2, 2, 2, 2], [(0, 1), (1, 2), (2, 3)])
        labels = Labels("y", ("a", "b"), tuple("pqrs"), ((0, 1),) * 4)
        theta = np.zeros((2, layout.size))
        theta[:, layout.D :] = [[4.0, -2.0, 0.0], [1.0, 0.0, 0.5]]
        axes = draw_network(labels, Parameters(layout, theta))
        assert inside(drawn(axes))
        for ax, values in zip(axes, ([-1.0, 2.0], [0.25, 0.5]), strict=True):
            (edges,) = ax.collections
            # |J| / 2, weakest first; zero is not drawn
            np.testing.assert_allclose(edges.get_array(), values)
            assert edges.get_clim() == (-2.0, 2.0)
        widths = axes[0].collections[0].get_linewidths()
        assert widths[1] == pytest.approx(2 * widths[0])
        ends = axes[0].collections[0].get_segments()[1][[0, -1]]
        place = np.column_stack(axes[0].lines[0].get_data())
        np.testing.assert_allclose(ends, place[[0, 1]], atol=1e-12)
        assert [t.get_text() for t in axes[0].texts] == list("pqrs")
        assert [ax.get_title() for ax in axes] == [
            f"y = {x}\nshowing the 2 strongest of 3 pairs" for x in "ab"
        ]

    def test_groups_and_differences(self):
        labels, parameters = model([2, 2, 2], 3)
        (ax,) = draw_network(labels, parameters, groups=[("c", "a")], top=1)
        layout, difference = parameters.layout, parameters.theta[2] - parameters.theta[0]
        strongest = np.abs(difference[layout.D :]).argmax()
        assert ax.collections[0].get_array() == pytest.approx(difference[layout.D + strongest] / 2)
        assert ax.get_title() == "y = c minus a\nshowing the strongest of 3 pairs"
        mine = plt.figure().subplots(1, 2)
        assert draw_network(labels, parameters, groups=["b", ("a", "b")], axes=mine) == list(mine)

    @pytest.mark.parametrize(("m", "K"), [(2, 1), (12, 2), (30, 2), (40, 5), (784, 1)])
    @pytest.mark.long
    def test_sizes(self, m, K):
        labels, parameters = model([2] * m, K)
        axes = draw_network(labels, parameters)
        assert len(axes) == K
        assert inside(drawn(axes))
        names = {t.get_text() for t in axes[0].texts}
        if m <= 40:
            assert names == set(labels.names)

    def test_refused(self, titanic):
        labels, parameters = model([2, 2], 2, pairs=[])
        with pytest.raises(DataError, match="no interactions to draw"):
            draw_network(labels, parameters)
        with pytest.raises(OptionError, match="'Maybe' is not a group"):
            titanic.plot_network(groups=[("Yes", "Maybe")])
        with pytest.raises(OptionError, match="groups is empty"):
            titanic.plot_network(groups=[])
        with pytest.raises(OptionError, match="top must be at least 1"):
            titanic.plot_network(top=0)

    def test_of_a_fit(self, titanic):
        axes = titanic.plot_network()
        drawn(axes)
        pairs = titanic.interactions("pooled")
        for ax, group in zip(axes, titanic.labels.groups, strict=True):
            strength = np.sort(pairs.loc[pairs["group"] == group, "strength"])
            np.testing.assert_allclose(np.abs(ax.collections[0].get_array()), strength)

    def test_strength_in_the_zero_sum_gauge(self):
        _, parameters = model([2, 3, 4, 3], 1, pairs=[(0, 1), (1, 3), (2, 3), (0, 2)])
        layout, theta = parameters.layout, parameters.theta[0]
        strength = interaction_strength(layout, theta)
        for p, (i, j) in enumerate(layout.pairs):
            table = np.pad(layout.table(theta, i, j), ((1, 0), (1, 0)))
            free = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            np.testing.assert_allclose(zero_sum(table), free, atol=1e-12)
            assert strength[p] == pytest.approx(np.linalg.norm(free))


class TestCalibration:
    labels = Labels("y", ("No", "Yes"), (), ())

    def test_two_groups(self):
        p = np.array([0.1, 0.15, 0.15, 0.6, 0.8, 1.0])
        y, w = np.array([0, 1, 0, 1, 0, 1]), np.array([4.0, 2, 1, 3, 2, 5])
        diagram, histogram = plot_calibration(
            self.labels, np.column_stack([1 - p, p]), y, w, bins=2
        )
        assert inside(drawn([diagram, histogram]))
        x, share = diagram.lines[-1].get_data()
        np.testing.assert_allclose(x, [(0.4 + 0.3 + 0.15) / 7, (1.8 + 1.6 + 5) / 10])
        np.testing.assert_allclose(share, [2 / 7, 0.8])
        for (low, high), (k, n) in zip(
            (s[:, 1] for s in diagram.collections[0].get_segments()), ((2, 7), (8, 10)), strict=True
        ):
            interval = binomtest(k, n).proportion_ci(method="wilson")
            assert (low, high) == pytest.approx((interval.low, interval.high))
        np.testing.assert_allclose(histogram.patches[0].get_data().values, [7, 10])
        assert histogram.get_xlabel() == "Predicted probability of y = Yes"
        assert diagram.get_legend() is None

    @pytest.mark.parametrize("K", [3, 12])
    @pytest.mark.thinned(2)
    def test_many_groups(self, K):
        rng = np.random.default_rng(2)
        labels = Labels("_y", tuple(f"_{k}" for k in range(K)), (), ())
        p = rng.dirichlet(np.ones(K), 500)
        y = (p.cumsum(axis=1) < rng.random(500)[:, None]).sum(axis=1)
        axes = plot_calibration(labels, p, y)
        assert inside(drawn(axes))
        assert len(axes) == 2 * K
        assert [ax.get_title() for ax in axes[::2]] == [f"_y = _{k}" for k in range(K)]
        for k, (diagram, histogram) in enumerate(zip(axes[::2], axes[1::2], strict=True)):
            (stairs,) = histogram.patches
            np.testing.assert_array_equal(
                stairs.get_data().values, np.histogram(p[:, k], 10, (0, 1))[0]
            )
            assert diagram.get_position().y0 > histogram.get_position().y1
        # all in two axes
        diagram, histogram = plot_calibration(labels, p, y, axes=plt.figure().subplots(2, 1))
        assert [t.get_text() for t in diagram.get_legend().get_texts()] == list(labels.groups)
        assert [sum(stairs.get_data().values) for stairs in histogram.patches] == [500] * K
        np.testing.assert_array_equal(diagram.lines[1].get_ydata(), axes[0].lines[1].get_ydata())

    def test_refused(self):
        p = np.full((3, 2), 0.5)
        for args in (
            (p, [0, 1]),
            (p, [0, 1, 2]),
            (2 * p + 1, [0, 1, 1]),
            (p * np.nan, [0, 1, 1]),
            (p, [0, 1, 1], [1]),
        ):
            with pytest.raises(DataError, match="probabilities must"):
                plot_calibration(self.labels, *args)
        with pytest.raises(OptionError, match="bins must be at least 1"):
            plot_calibration(self.labels, p, [0, 1, 1], bins=0)
        with pytest.raises(OptionError, match="1 axes, but 2"):
            plot_calibration(self.labels, p, [0, 1, 1], axes=plt.figure().add_subplot())

    def test_of_a_cross_validation(self):
        data = bbl.datasets.load_titanic()
        cv = bbl.crossVal(
            "Survived ~ .^2", data, weights="Freq", lambda_=[0.01], shuffle=True, seed=1, verbose=0
        )
        diagram, histogram = cv.plot_calibration(bins=5)
        p = 1 / (1 + np.exp(-cv.pooled["Yes"].to_numpy()))
        table = cv.observed.assign(p=p, bin=pd.cut(p, np.linspace(0, 1, 6), labels=False))
        total = table.groupby("bin")["weights"].sum().reindex(range(5), fill_value=0)
        np.testing.assert_allclose(histogram.patches[0].get_data().values, total)
        hits = table[table["y"] == "Yes"].groupby("bin")["weights"].sum()
        np.testing.assert_allclose(
            diagram.lines[-1].get_ydata(), (hits / total[total > 0]).dropna()
        )


def test_positions_of_sampled_configurations(titanic):
    sample = bbl.mcSample(titanic, nsteps=5, nchains=2, seed=1, verbose=0)
    axes = sample.plot((2, 2), positions=[3, 0, 1])
    image = np.asarray(axes[0].images[0].get_array())
    np.testing.assert_array_equal(image.ravel()[[3, 0, 1]], sample.codes[0])
    assert image.ravel()[2] == 0


def test_comparison_is_public():
    ax = bbl.plot_comparison(([1.0], [2.0]), ([1.5], [2.0]))
    assert "rms difference 0.5" in ax.get_legend().get_texts()[0].get_text()


def test_a_plot_of_many_coefficients_shows_those_that_are_farthest_from_zero():
    n = 60
    estimate = np.linspace(0.0, 3.0, n)[None]
    half = np.where(np.arange(n) % 2, 0.5, 50.0)[None]
    half[0, -1] = np.nan  # a coefficient without an interval comes after all others
    names = [f"x{i}" for i in range(n)]
    ax = plot_coefficients(names, ["all"], estimate, estimate - half, estimate + half)
    shown = [tick.get_text() for tick in ax.get_yticklabels()]
    clearest = sorted(range(n - 1), key=lambda i: -estimate[0, i] / half[0, i])[:40]
    assert shown == [f"x{i}" for i in clearest]
    assert ax.figure.texts[0].get_text() == "showing the strongest 40 of 60 coefficients"
    plt.close(ax.figure)


@pytest.mark.long
@pytest.mark.parametrize(
    ("top", "expected"), [(2, ["2 of 3 effects", "24 of 30 groups"]), (9, ["24 of 30 groups"])]
)
def test_effects_of_many_groups_say_how_many_of_them_are_shown(top, expected):
    groups = tuple(range(30))
    labels = Labels("y", groups, ("x",), ((0, 1),))
    axes = plot_effects(labels, groups, ["a", "b", "c"], np.zeros((30, 3, 3)), "effect", 0.0, top)
    notes = axes[0].figure.texts
    assert len(axes) == 24 and [note.get_text() for note in notes] == [
        f"showing the first {n}" for n in expected
    ]
    bottoms = [note.get_position()[1] * axes[0].figure.get_figheight() for note in notes]
    assert np.diff(bottoms).tolist() == pytest.approx([0.2] * (len(notes) - 1))
    plt.close(axes[0].figure)
