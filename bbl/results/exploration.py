"""Interactive "what if" pages of a fitted model, and the levels that they initially show.

There are K groups, m predictors, and predictor i has L_i levels.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np

from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.report.explore.score_model import ScoreModel
from bbl.report.explore.section import Start, WhatIf, read_asset
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
    "combinations of levels of at least five training rows; it contains no other rows and makes "
    "no network requests."
)


@dataclass(frozen=True, repr=False)
class Exploration:
    """A page to explore a fitted model, as returned by ``fit.explore()``.

    Notebooks show the page; elsewhere it has been written to a file.

    Attributes
    ----------
    html : str
        The page.
    path : Path or None
        Where it was written.

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
        """Return a frame with the page; its script cannot reach the notebook."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="What if" '
            'style="width: 100%; height: 46rem; border: 0"></iframe>'
        )


def is_in_notebook() -> bool:
    """Return whether the code runs in a kernel that shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def refuse_numbers(labels: Labels) -> None:
    """Raise an OptionError for numeric predictors, which would need sliders."""
    if labels.numbers:
        raise OptionError(
            f"Predictor {labels.names[labels.numbers[0]]!r} is numeric, but a page can show only "
            "predictors with levels.",
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
    """Return the what-if section of a model without numeric predictors.

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
    return WhatIf(
        model=model,
        response=response,
        groups=groups,
        names=[label_text(name) for name in labels.names],
        levels=levels,
        shares=shares,
        priors=priors,
        starts=_list_starts(response, groups, levels, counts, training),
    )


def what_if_part(section: WhatIf) -> Part:
    """Return the what-if section of a page."""
    if section.response is None:
        text = (
            "Choose levels, and see the probabilities of one predictor given the others under "
            "the model."
        )
    else:
        text = "Choose levels, and see what the model predicts and which levels contribute to it."
    return Part("What if", [text], widget=section.as_html())


def what_if_page(section: WhatIf, title: str, lead: str) -> str:
    """Return a page with the what-if section alone."""
    return page_html(
        title,
        lead,
        [what_if_part(section)],
        f"Generated by bbl, the Boltzmann Bayes learner. {CONTENT}",
        **what_if_assets(),
    )


def what_if_assets() -> dict[str, str]:
    """Return the style and the script of interactive pages."""
    return {
        "style": read_asset("section.css"),
        "script": "".join(map(read_asset, SCRIPTS)),
    }


def _list_starts(
    response: str | None,
    groups: Sequence[str],
    levels: Sequence[Sequence[str]],
    counts: Sequence[np.ndarray],
    training: Sample | None,
) -> list[Start]:
    """Return the initial choices of levels: most frequent levels, of all rows and of each group,
    and frequent combinations.
    """
    starts = [Start("Most frequent levels", [int(own.sum(axis=0).argmax()) for own in counts])]
    for k, group in enumerate(groups if response is not None else ()):
        # levels of fewer rows would describe single rows
        if all(own[k].max(initial=0.0) >= MIN_CELL for own in counts):
            answers = [int(own[k].argmax()) for own in counts]
            starts.append(Start(f"Most frequent levels if {response} is {group}", answers))
    if training is None or not training.whole or not len(levels):
        return starts
    known = training if training.missing is None else training.rows(~training.missing.any(axis=1))
    combinations, position = np.unique(known.codes, axis=0, return_inverse=True)
    n_rows = np.bincount(position.ravel(), known.weights, len(combinations))
    for c in np.argsort(-n_rows, kind="stable")[:MAX_STARTS]:
        if n_rows[c] >= MIN_CELL:
            answers = combinations[c].tolist()
            texts = [own[code] for own, code in zip(levels, answers, strict=True)]
            more = ", ..." if len(texts) > MAX_NAMED else ""
            label = f"{', '.join(texts[:MAX_NAMED])}{more} ({n_rows[c]:,.0f} rows)"
            starts.append(Start(label, answers))
    return starts
