"""The what-if section as HTML: a form with the levels of each predictor, and elements for the
results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from bbl.report.explore.score_model import ScoreModel, pack
from bbl.report.markup import html_text
from bbl.report.page import wrap_in_scroll_box

__all__ = ["Slider", "Start", "WhatIf", "read_asset"]

UNKNOWN = -1  # the answer "unknown"
MAX_BUTTONS = 6  # levels that are shown as buttons; more are in a list
MAX_LISTED = 20  # with more predictors, all levels are in lists
MIN_SEARCHED = 12  # number of predictors from which they can be searched
MAX_PRIORS = 12  # groups with inputs for class proportions
MAX_COSTS = 6  # groups with inputs for costs


@dataclass(frozen=True)
class Start:
    """Initial answers, with a `label` for the list of starting points. An answer is a level or
    UNKNOWN or, for a numeric predictor, a number or None.
    """

    label: str
    answers: Sequence[float | None]


@dataclass(frozen=True)
class Slider:
    """Range of a numeric predictor's slider, and the predictor's mean. Numbers outside the range
    can be typed.
    """

    low: float
    high: float
    step: float
    mean: float


@dataclass(frozen=True)
class WhatIf:
    """A model, and the names and initial values that its what-if section displays.

    Attributes
    ----------
    model : ScoreModel
    response : str or None
    groups : sequence of K str
    names : sequence of m str
    levels : sequence of m sequences of str
    shares : ndarray, shape (K,)
        Class proportions in the training rows.
    priors : ndarray, shape (K,)
        Initial class proportions of the page.
    starts : sequence of Start
        One or more initial choices of answers.
    sliders : dict of int to Slider
        Numeric predictors by position; the others have levels.
    """

    model: ScoreModel
    response: str | None
    groups: Sequence[str]
    names: Sequence[str]
    levels: Sequence[Sequence[str]]
    shares: np.ndarray
    priors: np.ndarray
    starts: Sequence[Start]
    sliders: Mapping[int, Slider] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the page's JSON; raises an OptionError if the model is too large
        for a page.
        """
        n_levels = [1 if i in self.sliders else len(own) for i, own in enumerate(self.levels)]
        packed = pack(self.model, np.array(n_levels))
        if packed["unknown"]["most"] == len(self.names) and not packed["unknown"]["never"]:
            nothing = [None if i in self.sliders else UNKNOWN for i in range(len(self.names))]
            empty = [Start("No answers", nothing)]
        else:
            empty = []
        return {
            "response": self.response,
            "groups": list(self.groups),
            "predictors": [
                {
                    "name": name,
                    "kind": "number" if i in self.sliders else "levels",
                    "levels": [] if i in self.sliders else list(levels),
                }
                for i, (name, levels) in enumerate(zip(self.names, self.levels, strict=True))
            ],
            "shares": self.shares.tolist(),
            "priors": self.priors.tolist(),
            "starts": [
                {"label": start.label, "answers": list(start.answers)}
                for start in [*self.starts, *empty]
            ],
            **packed,
        }

    def as_html(self) -> str:
        """Return the form and the model's JSON, without the script."""
        content = self.as_dict()
        unknown = content["unknown"]
        can_be_unknown = [
            i not in unknown["never"] and (i in self.sliders or unknown["most"] > 0)
            for i in range(len(self.names))
        ]
        as_buttons = len(self.names) <= MAX_LISTED
        fields = "\n".join(
            _number_field(i, name, self.sliders[i], can_be_unknown[i])
            if i in self.sliders
            else _answer_field(i, name, levels, can_be_unknown[i], as_buttons)
            for i, (name, levels) in enumerate(zip(self.names, self.levels, strict=True))
        )
        starts = _options([(str(k), s["label"]) for k, s in enumerate(content["starts"])])
        # "<" would end the element early in "</script>"
        model_json = json.dumps(content, allow_nan=False).replace("<", "\\u003c")
        search = (
            '<label>Find a predictor <input type="search" id="whatif-search"></label>'
            if len(self.names) >= MIN_SEARCHED
            else ""
        )
        return f"""<noscript><p>This section requires JavaScript, which is disabled.</p></noscript>
<div class="whatif" id="whatif" hidden>
<div class="whatif-columns">
<form class="answers">
<div class="tools"><label>Start from <select id="whatif-start">{starts}</select></label>
<button type="button" id="whatif-reset">Reset</button>{search}</div>
{fields}
{self._unknown_note(unknown)}
</form>
<div class="results">
{self._results()}
<p class="link"><a id="whatif-link" href="#whatif">Link to these answers</a></p>
</div>
</div>
<script type="application/json" id="whatif-model">{model_json}</script>
</div>"""

    def _results(self) -> str:
        """Return the elements for bars, decision and contributions, and their inputs."""
        if self.response is None:
            categories = [(str(i), n) for i, n in enumerate(self.names) if i not in self.sliders]
            options = _options(categories)
            target = (
                f'<label>Probabilities of <select id="whatif-target">{options}</select></label>'
            )
            return f'<div class="tools">{target}</div>{_bars("Probabilities")}'
        parts = [_bars(f"Probabilities of {self.response}"), self._priors(), self._costs()]
        if self.model.explained is None:
            parts.append(
                "<p>Contributions of individual levels are not available: "
                f"{html_text(self.model.unexplained)}</p>"
            )
        else:
            parts.append(
                f"<h3>Why</h3>{self._pair()}"
                '<table class="bars"><caption id="whatif-explained"></caption>'
                '<tbody id="whatif-contributions"></tbody></table>'
            )
        return "\n".join(parts)

    def _pair(self) -> str:
        """Return the lists for choosing which groups to explain, or an empty string for two
        groups.
        """
        if len(self.groups) == 2:
            return ""
        groups = [(str(k), group) for k, group in enumerate(self.groups)]
        group = _options([("", "the most probable group"), *groups])
        against = _options([("", "the next"), *groups])
        return (
            f'<div class="tools"><label>Explain <select id="whatif-group">{group}</select></label>'
            f'<label>against <select id="whatif-against">{against}</select></label></div>'
        )

    def _priors(self) -> str:
        """Return the inputs for class proportions, or an empty string if there are many groups."""
        if len(self.groups) > MAX_PRIORS:
            return ""
        rows = "".join(
            f'<div class="prior"><span id="whatif-prior{k}">{html_text(group)}</span>'
            f'<input type="range" min="0" max="1" step="0.001" data-prior="{k}" '
            f'aria-label="{html_text(group)}: proportion, slider">'
            f'<input type="number" min="0" max="1" step="any" data-prior="{k}" '
            f'aria-labelledby="whatif-prior{k}"></div>'
            for k, group in enumerate(self.groups)
        )
        # open if they are not the proportions in the training rows
        is_open = "" if np.array_equal(self.priors, self.shares) else " open"
        return (
            f"<details{is_open}><summary>Class proportions (priors)</summary><p>Enter the "
            "proportion of each class in the population for which you predict. Probabilities are "
            "updated by Bayes' rule. When you change one proportion, the ratios of the others "
            f"stay the same.</p>{rows}</details>"
        )

    def _costs(self) -> str:
        """Return the inputs for costs, or an empty string if there are many groups."""
        if len(self.groups) > MAX_COSTS:
            return ""
        header = "".join(f'<th scope="col">{html_text(group)}</th>' for group in self.groups)
        rows = "".join(
            f'<tr><th scope="row">{html_text(true)}</th>'
            + "".join(
                f'<td><input type="number" min="0" step="any" data-cost="{k} {g}" '
                f'aria-label="{html_text(f"Cost of deciding {decided} when {true} is true")}"></td>'
                for g, decided in enumerate(self.groups)
            )
            + "</tr>"
            for k, true in enumerate(self.groups)
        )
        table = (
            "<table><caption>Cost of each decision (columns) for each true class "
            f"(rows)</caption><thead><tr><td></td>{header}</tr></thead><tbody>{rows}</tbody></table>"
        )
        box = wrap_in_scroll_box(table, "Costs of decisions")
        return f"<details><summary>Costs of wrong decisions</summary>{box}</details>"

    def _unknown_note(self, unknown: dict[str, Any]) -> str:
        """Return a sentence about the predictors that cannot be unknown."""
        if unknown["never"]:
            names = ", ".join(self.names[i] for i in unknown["never"])
            text = (
                "This model does not describe the distribution of the predictors, so it cannot "
                f"average over an unknown {names}."
            )
        elif not unknown["most"] and len(self.sliders) < len(self.names):
            text = "No predictor can be unknown: the sum over its levels is too large for a page."
        elif unknown["most"] < len(self.names):
            text = (
                f"At most {unknown['most']} predictors with levels can be unknown at once: the sum "
                "over all of their levels would be too large for a page."
            )
        else:
            text = "Predictions are averaged exactly over the unknown predictors."
        return f"<p>{html_text(text)}</p>"


def read_asset(name: str) -> str:
    """Return a script or style sheet of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _bars(caption: str) -> str:
    """Return a line of text for the decision, followed by an empty table of probabilities."""
    return (
        '<p class="status" id="whatif-status" role="status"></p>'
        f'<table class="bars"><caption>{html_text(caption)}</caption>'
        '<tbody id="whatif-bars"></tbody></table>'
    )


def _options(values: Sequence[tuple[str, str]]) -> str:
    """Return the HTML options of a drop-down list, given (value, text) pairs."""
    return "".join(f'<option value="{v}">{html_text(text)}</option>' for v, text in values)


def _answer_field(
    i: int, name: str, levels: Sequence[str], can_be_unknown: bool, as_buttons: bool
) -> str:
    """Return the input for the level of predictor `i`: buttons, or a list for many levels."""
    choices = [(str(code), level) for code, level in enumerate(levels)]
    if can_be_unknown:
        choices.append((str(UNKNOWN), "unknown"))
    if as_buttons and len(levels) <= MAX_BUTTONS:
        buttons = "".join(
            f'<label><input type="radio" name="whatif{i}" value="{value}"> '
            f"{html_text(text)}</label>"
            for value, text in choices
        )
        return (
            f'<fieldset data-predictor="{i}"><legend>{html_text(name)}</legend>'
            f'<div class="choices">{buttons}</div></fieldset>'
        )
    return (
        f'<fieldset data-predictor="{i}"><label><span class="name">{html_text(name)}</span><br>'
        f"<select>{_options(choices)}</select></label></fieldset>"
    )


def _number_field(i: int, name: str, slider: Slider, can_be_unknown: bool) -> str:
    """Return the inputs for a numeric predictor: a slider, a text field, and a checkbox for an
    unknown value.
    """
    title = html_text(name)
    box = '<label><input type="checkbox"> unknown</label>' if can_be_unknown else ""
    return (
        f'<fieldset data-predictor="{i}"><legend id="whatif-number{i}">{title}</legend>'
        f'<div class="number"><input type="range" min="{slider.low:.12g}" max="{slider.high:.12g}" '
        f'step="{slider.step:.12g}" aria-label="{title}, slider">'
        f'<input type="number" step="any" aria-labelledby="whatif-number{i}">'
        f"{box}</div></fieldset>"
    )
