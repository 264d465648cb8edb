"""Interactive "what if" pages of a fitted model, and the levels that are initially selected.

There are K groups and m predictors, and predictor i has L_i levels.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import cast

import numpy as np

from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.design.numbers import NumberFactor
from bbl.errors import OptionError
from bbl.report.explore.score_model import ScoreModel
from bbl.report.explore.section import Slider, Start, WhatIf, read_asset
from bbl.report.page import Part, page_html
from bbl.report.text import label_text
from bbl.results.report_page import MIN_CELL
from bbl.rows.sample import Sample

__all__ = [
    "CONTENT",
    "Exploration",
    "is_in_notebook",
    "refuse_numbers",
    "what_if",
    "what_if_assets",
    "what_if_page",
    "what_if_part",
]

SCRIPTS = ("scores.js", "form.js", "interactions.js", "tables.js", "figures.js")
MAX_STARTS = 5  # frequent combinations that are listed
MAX_NAMED = 4  # predictors whose levels name a combination
CONTENT = (
    "This page contains the parameters of the model, the names of its predictors and levels, and "
    "the combinations of levels that occur in at least five training rows, with the means of "
    "their numeric predictors. It contains no other training data and makes no network requests."
)


@dataclass(frozen=True, repr=False)
class Exploration:
    """A page to explore a fitted model, as returned by ``fit.explore()``.

    In a notebook, the page is displayed; otherwise, it has been written to a file.

    Attributes
    ----------
    html : str
        HTML source of the page.
    path : Path or None
        File that contains the page.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = fit.explore(Path(folder, "titanic.html"))
    >>> page.path.name, page.html[:15]
    ('titanic.html', '<!DOCTYPE html>')
    """

    html: str = field(repr=False)
    path: Path | None

    def __repr__(self) -> str:
        size = f"{len(self.html.encode()) / 1000:,.0f} kB"
        if self.path is None:
            return f"A page to explore the model ({size})"
        return f"A page to explore the model ({size}), written to {self.path}"

    def _repr_html_(self) -> str:
        """Return an inline frame with the page, whose script does not have access to the
        notebook.
        """
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="What if" '
            'style="width: 100%; height: 46rem; border: 0"></iframe>'
        )


def is_in_notebook() -> bool:
    """Return whether the code is running in a kernel that can render HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def refuse_numbers(labels: Labels) -> None:
    """Raise an OptionError if a model other than a Boltzmann machine has numeric predictors."""
    others = [i for i in labels.numbers if i not in labels.measured]
    if others:
        raise OptionError(
            f"Predictor {labels.names[others[0]]!r} is numeric, but a page of this model can show "
            "only predictors with levels.",
            argument="numeric",
            hint="Bin it with bbl.bin().",
        )


def what_if(
    model: ScoreModel,
    design: Design,
    counts: Sequence[np.ndarray],
    training: Sample | None,
    shares: np.ndarray,
    priors: np.ndarray,
) -> WhatIf:
    """Return the what-if section of a model.

    Parameters
    ----------
    model : ScoreModel
    design : Design
    counts : sequence of m ndarrays, shape (K, L_i)
        Weighted counts of levels in the training rows.
    training : Sample or None
        Training rows, if the model has them in memory.
    shares, priors : ndarrays, shape (K,)
        Class proportions in the training rows, and for predictions.
    """
    labels = design.labels
    response = None if labels.response is None else label_text(labels.response)
    groups = [label_text(group) for group in labels.groups]
    levels = [[label_text(level) for level in own] for own in labels.levels]
    rows = None
    if training is not None and training.whole and len(levels):
        # without missing values
        is_known = slice(None) if training.missing is None else ~training.missing.any(axis=1)
        rows = training.rows(is_known)
    sliders = {
        i: _slider(cast(NumberFactor, design.predictors[i]), i, rows) for i in labels.measured
    }
    return WhatIf(
        model=model,
        response=response,
        groups=groups,
        names=[label_text(name) for name in labels.names],
        levels=levels,
        shares=shares,
        priors=priors,
        starts=_list_starts(response, groups, levels, counts, rows, _Numbers(labels, sliders)),
        sliders=sliders,
    )


def what_if_part(section: WhatIf) -> Part:
    """Return the what-if section as a part of a page."""
    choose = "Choose levels and numbers" if section.sliders else "Choose levels"
    if section.response is None:
        text = f"{choose} to see the probabilities of one predictor given the others."
    else:
        text = f"{choose} to see the predictions of the model and the contributions to them."
    return Part("What if", [text], widget=section.as_html())


def what_if_page(section: WhatIf, title: str, lead: str) -> str:
    """Return a page that only contains the what-if section."""
    return page_html(
        title,
        lead,
        [what_if_part(section)],
        f"Generated by bbl, the Boltzmann Bayes learner. {CONTENT}",
        **what_if_assets(),
    )


def what_if_assets() -> dict[str, str]:
    """Return the style sheet and the script of interactive pages."""
    return {
        "style": read_asset("section.css"),
        "script": "".join(map(read_asset, SCRIPTS)),
    }


def _slider(factor: NumberFactor, i: int, rows: Sample | None) -> Slider:
    """Return the range of the slider of predictor `i`.

    To avoid disclosing individual values, at least `MIN_CELL` rows are at or beyond each end, which
    is then rounded outwards.
    """
    step = 10.0 ** (np.floor(np.log10(factor.sd)) - 1.0)
    # `center` is the value with code 0, `mean` the mean of the codes
    mean = factor.center + factor.mean
    ends = mean + np.array([-2.5, 2.5]) * factor.sd
    if rows is not None:
        values = np.sort(rows.codes[rows.weights > 0.0, i]) + factor.center
        if np.abs(values - values.round()).max(initial=0.0) < 1e-9 * (1.0 + abs(mean)):
            step = max(step, 1.0)  # integers
        if len(values) >= 2 * MIN_CELL:
            ends = values[[MIN_CELL - 1, -MIN_CELL]]
    low = float(np.floor(ends[0] / step + 1e-9) * step)
    high = float(np.ceil(ends[1] / step - 1e-9) * step)
    return Slider(low, max(high, low + step), float(step), mean)


@dataclass(frozen=True)
class _Numbers:
    """Typical values of numeric predictors: means, rounded to the steps of their `sliders`."""

    labels: Labels
    sliders: Mapping[int, Slider]

    def answers(self, levels: Sequence[int], rows: Sample | None) -> list[float]:
        """Return initial values of the predictors: `levels` (m,), but means for numeric predictors.

        The means are over `rows`, or over all training rows if `rows` is None.
        """
        found: list[float] = [int(level) for level in levels]
        for i, slider in self.sliders.items():
            mean = slider.mean
            if rows is not None and rows.weights.sum() > 0.0:
                codes_mean = float(rows.weights @ rows.codes[:, i] / rows.weights.sum())
                mean = self.labels.center(i) + codes_mean
            # 12 digits: 3 * 0.1 is not 0.3
            found[i] = float(f"{round(mean / slider.step) * slider.step:.12g}")
        return found

    @property
    def title(self) -> str:
        """Title of the initial values for all rows."""
        if len(self.sliders) == len(self.labels.names):
            return "Means"
        return "Most frequent levels" + (" and means" if self.sliders else "")


def _list_starts(
    response: str | None,
    groups: Sequence[str],
    levels: Sequence[Sequence[str]],
    counts: Sequence[np.ndarray],
    rows: Sample | None,
    numbers: _Numbers,
) -> list[Start]:
    """Return the initial choices of levels: the most frequent levels in all rows and in each group,
    and frequent combinations.
    """
    most_frequent = [int(own.sum(axis=0).argmax()) for own in counts]
    starts = [Start(numbers.title, numbers.answers(most_frequent, None))]
    for k, group in enumerate(groups if response is not None else ()):
        # levels of fewer rows would describe single rows
        if not all(own[k].max(initial=0.0) >= MIN_CELL for own in counts):
            continue
        of_group = None
        if numbers.sliders:
            if rows is None:
                continue
            of_group = rows.rows(rows.response == k)
            if len(of_group.weights) < MIN_CELL:
                continue
        answers = numbers.answers([int(own[k].argmax()) for own in counts], of_group)
        starts.append(Start(f"{numbers.title} if {response} is {group}", answers))
    categories = [i for i in range(len(levels)) if i not in numbers.sliders]
    if rows is None or not categories:
        return starts
    combinations, position = np.unique(rows.codes[:, categories], axis=0, return_inverse=True)
    n_rows = np.bincount(position.ravel(), rows.weights, len(combinations))
    for c in np.argsort(-n_rows, kind="stable")[:MAX_STARTS]:
        if n_rows[c] >= MIN_CELL:
            codes = [0] * len(levels)
            for i, code in zip(categories, combinations[c].tolist(), strict=True):
                codes[i] = int(code)
            texts = [levels[i][codes[i]] for i in categories]
            more = ", ..." if len(texts) > MAX_NAMED else ""
            label = f"{', '.join(texts[:MAX_NAMED])}{more} ({n_rows[c]:,.0f} rows)"
            own_rows = rows.rows(position.ravel() == c) if numbers.sliders else None
            if own_rows is not None and len(own_rows.weights) < MIN_CELL:
                own_rows = None  # the mean of few rows would describe them
            starts.append(Start(label, numbers.answers(codes, own_rows)))
    return starts
