"""Write the guide's page "What works with what" from the refusals that kinds of models declare.

Run in the checkout: ``python docs/make_works_with.py``. `tests/test_works_with.py` tries every
capability with every kind of model, and checks that the page is current.
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

This page lists which options and results each method supports. There is one column for each
`method=` of `bbl`, and one each for averages (here, of pseudo-likelihood fits), Bayesian networks
and `shooter`. For example, mean field does not support `odds_ratios()`; the number in the table
refers to the reason:

```python
import bbl

fit = bbl.bbl("Survived ~ .", bbl.datasets.load_titanic(), weights="Freq", method="mf")
fit.odds_ratios()
```

```text
OptionError: Standard errors are available for methods that solve likelihood equations (such as
'pseudo' and 'naive'), not for method='mf'. Hint: Choose method='ml' or method='pseudo'.
```

- **yes**: supported.
- a number: not supported, for the reason with this number below the tables; the error message also
  suggests a remedy.
- **–**: there is no such argument or attribute.

The tables are generated from the declarations that the code uses to reject unsupported calls, and a
test checks every cell. The following works for all methods and is omitted from the tables:
`missing="drop"` and `"level"`, integer weights, `predict`, `evaluate`, `summary()`, `plot()`,
`report`, `save` and `load`, `with_priors`, and predictions for data read in batches.
"""
REMARKS = """\
## Remarks

- `method="naive"` accepts formulas with interactions, but fits only fields.
- `method="shbm"` selects terms among all products of the predictors in a formula; `shooter` and
  networks also select terms automatically.
- An average supports an option or result if all of its members support it. The members of
  `method="auto"` are mean field, pseudo-likelihood, conditional likelihood, naive Bayes, Markov
  blankets and boosting; rows with missing values are predicted by the members that can average
  over missing values.
- `aode` averages networks, so there is no graph to draw, and `explain` does not apply. Learners
  that search by cross-validation, and MANB, WANBIA and AWNB, require all rows in memory.
- Standard errors, tests and the bootstrap assume counts: they are not available for weights that
  are not integers. For sampling weights, a design ({{doc}}`survey`) provides standard errors and
  tests.
- With `structural_zeros=`, the following options and results are not available:
{zeros}
- The column for `conditional` applies to `ridge > 0`. With `ridge=0`, standard errors, covariances,
  tests, `logLik()`, `aic` and `bic` are available for any number of rows; the same holds with
  `ridge="firth"`, except that survey designs are not supported. Intervals for differences of a
  penalised fit require `start=None`, at most 5,000 distinct rows, a finite `ridge`, and no
  `early_stopping`. Codings of ordered levels (`ordered=`) require `ridge > 0`.
- Pseudo-likelihood and maximum likelihood with `ordered="linear"` support everything in their
  columns except structural zeros, `mlestimate` and `penalty="l1"` or `"group"`.
- Ordered responses (`logits="adjacent"` or `"cumulative"`) support everything that `conditional`
  supports, including sampling designs with `ridge=0`, except `ridge="firth"`, `start="pseudo"` and
  `early_stopping`. In addition, cumulative logits do not support `calibrate=`, standard errors of
  effects with `priors=`, `explain()` with `priors=`, or likelihood ratio tests against other
  logits.
"""


def cell(reason: str | None, reasons: list[str]) -> str:
    """Return the text of a cell; a reason is numbered, and added to the list if it is new."""
    if reason is None:
        return "yes"
    if reason == ABSENT:
        return "–"
    general = re.sub(
        r"method='\w+'|shooter\(\)", "this method", re.sub("^it ", "the formula ", reason)
    )
    if argument := re.match(r"\w+=\S+", general):
        general = f"`{argument[0]}`{general[argument.end() :]}"
    else:
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
    zeros = "\n".join(f"  - {what} ({why})" for what, why in WITH_ZEROS.items())
    return "\n".join([*parts, f"## Reasons\n\n{listed}\n", REMARKS.format(zeros=zeros)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
