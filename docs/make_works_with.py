"""Write the guide's page "What works with what" from what kinds of models declare that they lack.

Run in the checkout: ``python docs/make_works_with.py``. `tests/test_works_with.py` asks every kind
of model for every capability, and whether the page is current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from bbl.api.machine.average import AUTO_REFUSALS  # noqa: E402
from bbl.capabilities import ABSENT, CAPABILITIES, WITH_ZEROS, lacking  # noqa: E402
from bbl.engines import ENGINES  # noqa: E402
from bbl.results.comparisons.average import AverageResults  # noqa: E402
from bbl.results.network.network import NetworkResults  # noqa: E402
from bbl.results.shooter.shooter import ShooterResults  # noqa: E402

PAGE = DOCS / "guide" / "works_with.md"
MEMBERS = ENGINES["pseudo"].refusals()
AVERAGE = AverageResults._refusals | lacking(
    "crossVal",
    missing_marginal_batches=MEMBERS["missing_marginal_batches"],
    structural_zeros=MEMBERS["structural_zeros"],
)
KINDS: dict[str, Mapping[str, str]] = {
    **{name: engine.refusals() for name, engine in ENGINES.items()},
    "auto": AUTO_REFUSALS,
    "average": AVERAGE,
    "networks": NetworkResults._refusals,
    "shooter": ShooterResults._refusals,
}
HEAD = """\
---
html_theme.sidebar_secondary.remove: true
---

<!-- written by docs/make_works_with.py -->
# What works with what

One column for each `method=` of `bbl`, and for averages of fits (here: of pseudo-likelihood),
Bayesian networks and `shooter`. The table is made from the declarations by which the code itself
refuses, and a test asks each kind of model for each of its rows.

- **yes**: it works.
- a number: it is refused by an error with that reason, which says what to do instead; the reasons
  are below the tables.
- **–**: there is no such argument, or no such attribute.

What is not in the tables works everywhere: `missing="drop"` and `"level"`, counts as weights,
`predict`, `evaluate`, `summary()`, `plot()`, `report`, `save` and `load`, `with_priors`, and
predictions of data read in batches.
"""
REMARKS = """\
## Remarks

- `method="naive"` reads formulas with interactions, and fits fields alone.
- `method="shbm"` chooses its terms from all products of the predictors of a formula; `shooter` and
  networks look for theirs.
- An average reads what all of its members read. `method="auto"` has mean field, pseudo-likelihood,
  conditional likelihood, naive Bayes, Markov blankets and boosting as members; rows with missing
  values are left to those that sum them out.
- `aode` averages networks, so it has no graph to draw, and `explain` does not apply. Learners that
  search by cross-validation, and MANB, WANBIA and AWNB, need all rows in memory.
- Standard errors, tests and the bootstrap are of counts: with weights that are not integers
  they are refused, and a sampling design ({{doc}}`survey`) gives the first two.
- A fit with `structural_zeros=` refuses a few things more: {zeros}.
- The column of `conditional` is that of `ridge > 0`. With `ridge=0` it has standard errors,
  covariances, tests, `logLik()`, `aic` and `bic`, whatever the number of rows, and `ridge="firth"`
  has all of these but survey designs. Intervals of
  differences of a penalised fit need `start=None`, at most 5,000 distinct rows, a finite `ridge`,
  and no `early_stopping`. Codings of levels in order (`ordered=`) are of `ridge > 0`.
"""


def cell(reason: str | None, reasons: list[str]) -> str:
    """Return what stands in the table; a reason is numbered, and added to the list if it is new."""
    if reason is None:
        return "yes"
    if reason == ABSENT:
        return "–"
    general = re.sub(
        r"method='\w+'|shooter\(\)", "this method", re.sub("^it ", "the formula ", reason)
    )
    general = general[0].upper() + general[1:]
    if general not in reasons:
        reasons.append(general)
    return f"[{reasons.index(general) + 1}](#reasons)"


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    reasons = list[str]()
    for section in dict.fromkeys(capability.section for capability in CAPABILITIES.values()):
        rows = [
            f"## {section}",
            "",
            f"| | {' | '.join(KINDS)} |",
            f"| --- |{' :-: |' * len(KINDS)}",
        ]
        for name, capability in CAPABILITIES.items():
            if capability.section == section:
                cells = [cell(refusals.get(name), reasons) for refusals in KINDS.values()]
                rows.append(f"| {capability.title} | {' | '.join(cells)} |")
        parts.append("\n".join(rows) + "\n")
    listed = "\n".join(f"{number}. {reason}." for number, reason in enumerate(reasons, 1))
    zeros = "; ".join(f"{what} ({why})" for what, why in WITH_ZEROS.items())
    return "\n".join([*parts, f"## Reasons\n\n{listed}\n", REMARKS.format(zeros=zeros)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
