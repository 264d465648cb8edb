"""Interactions of a model as a graph with a threshold and a heat map, drawn by a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bbl.report.markup import html_text
from bbl.report.page import wrap_in_scroll_box

__all__ = ["Coupling", "Pair", "interactions_html"]

MAX_PAIRS = 2000  # on a page
MAX_COUPLINGS = 1500  # on a page, of the strongest pairs
MAX_NAMES = 60  # predictors of a graph that can be read


@dataclass(frozen=True)
class Coupling:
    """A coupling of two levels. Its interval and p-value are None if they are not available."""

    levels: str
    estimate: float
    lower: float | None = None
    upper: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Pair:
    """Interacting predictors `i` and `j` in a `group`. `p` is None if the pair was not tested."""

    group: str
    i: int
    j: int
    strength: float
    p: float | None = None
    couplings: Sequence[Coupling] = ()


def interactions_html(names: Sequence[str], pairs: Sequence[Pair]) -> str:
    """Return HTML with the graph and the heat map of `pairs`, which are sorted by decreasing
    strength. The result is empty if there are too many predictors.

    Only predictors with interactions are drawn.
    """
    drawn = sorted({k for pair in pairs for k in (pair.i, pair.j)})
    if not 3 <= len(drawn) <= MAX_NAMES:  # two predictors have a single interaction
        return ""
    position = {k: number for number, k in enumerate(drawn)}
    groups = list(dict.fromkeys(pair.group for pair in pairs))
    shown = []
    n_couplings = 0
    for pair in pairs[:MAX_PAIRS]:
        n_couplings += len(pair.couplings)
        own = pair.couplings if n_couplings <= MAX_COUPLINGS else ()
        drawn_pair = replace(pair, i=position[pair.i], j=position[pair.j], couplings=own)
        shown.append(asdict(drawn_pair))
    data = {
        "names": [names[k] for k in drawn],
        "groups": groups,
        "pairs": shown,
    }
    content = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    options = "".join(f'<option value="{html_text(g)}">{html_text(g)}</option>' for g in groups)
    group = (
        f'<label>Group <select id="interactions-group">{options}</select></label>'
        if len(groups) > 1
        else ""
    )
    heat = wrap_in_scroll_box(
        '<table class="heat" id="interactions-heat"></table>', "Heat map of interactions"
    )
    couplings = ""
    if any(pair["couplings"] for pair in shown):
        table = wrap_in_scroll_box(
            '<table class="couplings"><caption>Couplings</caption><thead><tr>'
            '<th scope="col" class="text">Levels</th><th scope="col">estimate</th>'
            '<th scope="col">lower</th><th scope="col">upper</th>'
            '<th scope="col">p</th></tr></thead><tbody id="interactions-couplings"></tbody>'
            "</table>",
            "Couplings of a pair",
        )
        couplings = (
            '<div class="tools"><label>Couplings of <select id="interactions-pair"></select>'
            f"</label></div>{table}"
        )
    return f"""<div class="interactions" id="interactions" hidden>
<div class="tools">{group}<label>Smallest strength
<input type="range" id="interactions-threshold" min="0" max="1" step="any" value="0"></label></div>
<p id="interactions-count" role="status"></p>
<div class="body"><svg id="interactions-graph" viewBox="-90 0 700 520" role="img"
aria-label="Graph of the interactions that are listed in the table"></svg>{heat}</div>
{couplings}
<script type="application/json" id="interactions-data">{content}</script>
</div>"""
