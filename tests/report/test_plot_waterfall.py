"""Waterfalls: bars follow each other to the sum, and names of any length can be read and stay
inside the figure.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from bbl.report.plot_waterfall import plot_waterfall

matplotlib.use("Agg")
SHORT = ["(baseline)", *(f"x{k}=yes" for k in range(33))]
LONG = [
    "(baseline)",
    *(f"answer to question {k:02d} on satisfaction with the local services=yes" for k in range(33)),
]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(names, **options):
    values = np.random.default_rng(1).normal(size=34)
    ax = plot_waterfall(names, values, **options)
    ax.figure.canvas.draw()
    return ax, values


def test_bars_go_from_the_baseline_to_the_sum():
    ax, values = drawn(SHORT, top=5)
    left = np.array([bar.get_x() for bar in ax.patches])
    width = np.array([bar.get_width() for bar in ax.patches])
    # each begins where the one before ends
    np.testing.assert_allclose(left[1:-1], (left + width)[:-2])
    assert (
        left[0] == left[-1] == 0.0
        and width[0] == values[0]
        and width[-1] == pytest.approx(values.sum())
    )
    largest = np.sort(np.abs(values[1:]))[::-1]
    np.testing.assert_allclose(np.abs(width[1:6]), largest[:5])
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[0] == "(baseline)" and names[-2:] == ["28 others", "sum"]
    assert [text.get_text() for text in ax.texts] == [f"{step:+.2f}" for step in width]


@pytest.mark.long
@pytest.mark.parametrize("names", [SHORT, LONG], ids=["short", "long"])
def test_names_can_be_read_apart_and_are_inside_the_figure(names):
    ax, _ = drawn(names)
    labels = ax.get_yticklabels()
    boxes = [text.get_window_extent() for text in labels]
    figure = ax.figure.bbox
    assert min(text.get_fontsize() for text in labels) >= 7.0
    assert all(box.x0 >= figure.x0 and box.y0 >= figure.y0 and box.y1 <= figure.y1 for box in boxes)
    heights = sorted((box.y0, box.y1) for box in boxes)
    assert all(a[1] <= b[0] for a, b in zip(heights, heights[1:], strict=False))
    texts = [text.get_text().replace("\n", " ") for text in labels]
    assert len(set(texts)) == len(texts)
    if names is LONG:  # in full
        assert set(texts[1:-2]) <= {name.replace("=", "= ") for name in names} | set(names)


def test_given_axes_are_drawn_in():
    _, ax = plt.subplots(figsize=(5, 4))
    assert plot_waterfall(SHORT[:3], np.array([0.5, -1.0, 2.0]), ax=ax) is ax
    assert len(ax.patches) == 4
