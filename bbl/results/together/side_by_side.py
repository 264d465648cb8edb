"""Fits side by side: their coefficients under common names, and their facts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress

import numpy as np
import pandas as pd

from bbl.checks import flag, integer
from bbl.errors import BBLError, BBLTypeError, OptionError
from bbl.names import distinct_names
from bbl.report.machine.inference_table import absent
from bbl.report.model_table import ModelTable
from bbl.report.text import label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.comparison import Fits, check_fits, criteria
from bbl.results.machine.estimates import Compared
from bbl.results.machine.inference import resolve_of
from bbl.results.machine.machine import MachineResults
from bbl.results.model import ModelResults

__all__ = ["model_table"]

STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
FACTS = ("Method", "Observations", "Parameters", "logLik", "AIC", "BIC", "clAIC", "Accuracy")


def model_table(
    fits: Fits, of: Compared, keep: Sequence[Hashable] | None, pairs: bool, stars: bool, digits: int
) -> ModelTable:
    """Return the table of `bbl.etable`: one column of coefficients and facts for each fit."""
    named = check_fits(fits)
    if isinstance(of, ModelResults):
        raise BBLTypeError(
            f"of must be 'group', 'pooled' or a pair of groups; got a fitted {type(of).__name__}. Give all models in "
            "one list: etable([fit, other]).",
            argument="of",
        )
    for fit in named.values():
        resolve_of(of, list(fit.labels.groups), pooled=True)
    pairs, stars, digits = flag("pairs", pairs), flag("stars", stars), integer("digits", digits, 0, 12)
    predictors = {name for fit in named.values() for name in fit.labels.names}
    for name in () if keep is None else keep:
        if name not in predictors:
            raise OptionError(f"keep names {name!r}, which is no predictor of these models.", argument="keep")
    columns = [_coefficients(fit, of, keep, pairs) for fit in named.values()]
    rows = list(dict.fromkeys(key for column in columns for key in column))
    rows.sort(key=lambda key: (key[0], key[1]))  # stable: groups, then fields before couplings
    cells: dict[str, list[str]] = {}
    first = next(iter(named.values()))
    for name, fit, column in zip(distinct_names(map(label_text, named)), named.values(), columns, strict=True):
        cells[name] = [_cell(column.get(key), stars, digits) for key in rows] + _facts(fit, first, digits)
    index = [_row_name(*key[2:]) for key in rows] + list(FACTS)
    frame = pd.DataFrame(cells, index=pd.Index(index, dtype=object), dtype=object)
    note = "Standard errors in brackets."
    if stars:
        note += " p < 0.05: *, 0.01: **, 0.001: ***; without a star too where there is no test."
    if any(fit.nobs() != first.nobs() for fit in named.values()):
        note += " Criteria are those of models with as many observations as the first: others count other rows."
    response = label_text(first.labels.response)
    return ModelTable(frame, f"Models of {response}", note)


def _coefficients(fit: ModelResults, of: Compared, keep: Sequence[Hashable] | None, pairs: bool) -> dict[tuple, tuple]:
    """Return (estimate, standard error, p) of every coefficient by (group number, order, group, levels).

    The levels are a tuple of (predictor, level). Models other than Boltzmann machines have no coefficients here.
    """
    if not isinstance(fit, MachineResults):
        return {}
    try:
        table = fit.inference().table(of)
    except BBLError:
        if of != "group":
            raise
        table = fit.tidy().assign(se=np.nan, p=np.nan)
    groups, coefficients = list(dict.fromkeys(table["group"])), {}
    names, levels = (table.filter(regex=rf"^{kind}\d*$").to_numpy(object) for kind in ("predictor", "level"))
    columns = (table[c] for c in ("group", "estimate", "se", "p"))
    for group, estimate, error, p, *term in zip(*columns, names, levels, strict=True):
        cells = tuple((name, level) for name, level in zip(*term, strict=True) if not absent(name))
        if (len(cells) == 1 or pairs) and (keep is None or all(name in keep for name, _ in cells)):
            coefficients[groups.index(group), len(cells), group, cells] = (estimate, error, p)
    return coefficients


def _row_name(group: Hashable, cells: tuple[tuple[Hashable, Hashable], ...]) -> str:
    return f"{label_text(group)}: " + " : ".join(f"{label_text(name)}={label_text(level)}" for name, level in cells)


def _cell(coefficient: tuple[float, float, float] | None, stars: bool, digits: int) -> str:
    """Return ``estimate (standard error)``, with stars for p if asked; empty if the model lacks the coefficient."""
    if coefficient is None:
        return ""
    estimate, error, p = coefficient
    mark = next((sign for limit, sign in STARS if p < limit), "") if stars else ""
    return f"{estimate:.{digits}f}{mark}" + ("" if np.isnan(error) else f" ({error:.{digits}f})")


def _facts(fit: ModelResults, first: ModelResults, digits: int) -> list[str]:
    """Return the cells of the rows `FACTS`; empty where the model has no such number."""
    accuracy = ""
    if isinstance(fit, ClassifierResults):
        with suppress(BBLError):  # without training rows
            accuracy = f"{fit.evaluate().accuracy:.{digits}f}"
    texts = ["" if np.isnan(v) else f"{v:.1f}" for v in criteria(fit, first).values()]
    return [fit._traits.learner, f"{fit.nobs():g}", str(fit.n_parameters), *texts, accuracy]
