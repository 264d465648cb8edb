"""Table of several fits side by side: coefficients, followed by key statistics (*facts*)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress

import numpy as np
import pandas as pd

from bbl.checks import flag, integer
from bbl.errors import BBLError, BBLTypeError, OptionError
from bbl.report.machine.inference_table import absent
from bbl.report.model_table import ModelTable
from bbl.report.text import distinct_names, label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.comparison import Fits, check_fits, criteria, is_comparable
from bbl.results.machine.estimates import Compared, resolve_of, without_reference
from bbl.results.machine.inference import Inference
from bbl.results.machine.machine import MachineResults
from bbl.results.model import ModelResults

__all__ = ["model_table"]

# (p-value, stars of a coefficient whose p is below)
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
# rows of key figures, below the coefficients; clAIC: AIC of the composite likelihood
FACTS = ("Method", "Observations", "Parameters", "logLik", "AIC", "BIC", "clAIC", "Accuracy")


def model_table(
    fits: Fits,
    of: Compared | None,
    keep: Sequence[Hashable] | None,
    pairs: bool,
    stars: bool,
    digits: int,
) -> ModelTable:
    """Return the table of `bbl.etable`, with a column for each fit.

    See `bbl.etable` for the arguments.

    `of` selects the coefficients: "group" for each group, "pooled" for the differences from the
    pooled fit to all rows, a pair (a, b) of groups for the difference a minus b. The default (None)
    is the second group minus the first if all fits have the same two groups, and otherwise "group".
    `keep` contains the predictors whose coefficients are shown, or is None for all. `pairs` and
    `stars` indicate whether couplings and stars are shown. `digits` is the number of decimals.
    """
    fits_by_name = check_fits(fits)
    if isinstance(of, ModelResults):
        raise BBLTypeError(
            f"of must be 'group', 'pooled' or a pair of groups; got a fitted {type(of).__name__}.",
            argument="of",
            hint="Pass all models in one list: etable([fit, other]).",
        )
    for fit in fits_by_name.values():
        # only checks `of`: raises an OptionError if a fit has no such groups. With pooled=True,
        # "pooled" passes here; `_coefficients` rejects fits without a pooled fit
        resolve_of("group" if of is None else of, list(fit.labels.groups), pooled=True)
    pairs = flag("pairs", pairs)
    stars = flag("stars", stars)
    digits = integer("digits", digits, 0, 12)
    predictors = {name for fit in fits_by_name.values() for name in fit.labels.names}
    for name in () if keep is None else keep:
        if name not in predictors:
            raise OptionError(
                f"keep contains {name!r}, which is not a predictor of these models.",
                argument="keep",
            )
    fits_in_order = list(fits_by_name.values())
    pair = _two_groups(fits_in_order) if of is None else None
    coefficients = None
    if pair is not None:
        with suppress(BBLError):  # a method without standard errors has no differences
            coefficients = [_coefficients(fit, pair, keep, pairs) for fit in fits_in_order]
    if coefficients is None:
        selected: Compared = "group" if of is None else of
        coefficients = [_coefficients(fit, selected, keep, pairs) for fit in fits_in_order]
    # rows of the table: the distinct keys of all fits, (group number, order, group, levels)
    keys = list(dict.fromkeys(key for fit_coefficients in coefficients for key in fit_coefficients))
    keys.sort(key=lambda key: (key[0], key[1]))  # stable: by group, then fields before couplings
    cells: dict[str, list[str]] = {}  # column of each fit
    # AIC, BIC and clAIC are shown for fits that are comparable with it
    first = next(iter(fits_by_name.values()))
    names = distinct_names(map(label_text, fits_by_name))
    for name, fit, fit_coefficients in zip(names, fits_by_name.values(), coefficients, strict=True):
        cells[name] = [_cell(fit_coefficients.get(key), stars, digits) for key in keys] + _facts(
            fit, first, digits
        )
    index = [_row_name(group, levels) for _, _, group, levels in keys] + list(FACTS)
    frame = pd.DataFrame(cells, index=pd.Index(index, dtype=object), dtype=object)
    # clAIC requires pseudo-likelihood fits
    is_empty = (frame == "").all(axis=1).to_numpy() & (frame.index == "clAIC")
    frame = frame[~is_empty]
    note = "Standard errors in parentheses."
    if stars:
        note += (
            " *: p < 0.05, **: p < 0.01, ***: p < 0.001. Estimates without a test have no stars."
        )
    if not all(is_comparable(fit, first) for fit in fits_by_name.values()):
        note += (
            " AIC, BIC and clAIC are shown only for models with the same variables and the same "
            "number of observations as the first."
        )
    response = label_text(first.labels.response)
    return ModelTable(frame, f"Models of {response}", note, len(FACTS) - int(is_empty.sum()))


def _two_groups(fits: Sequence[ModelResults]) -> tuple[Hashable, Hashable] | None:
    """Return the second and the first group of the Boltzmann machines among `fits`.

    Returns None unless all of them have the same two groups and at least one models the groups
    separately.
    """
    machines = [fit for fit in fits if isinstance(fit, MachineResults)]
    groups = {tuple(fit.labels.groups) for fit in machines}
    # in a regression only one group has coefficients anyway, with the intercept
    if len(groups) != 1 or all(fit.engine.joint for fit in machines):
        return None
    names = next(iter(groups))
    return (names[1], names[0]) if len(names) == 2 else None


def _coefficients(
    fit: ModelResults, of: Compared, keep: Sequence[Hashable] | None, pairs: bool
) -> dict[tuple, tuple]:
    """Return all coefficients of a fit as a dict that maps (group number, order, group, levels) to
    (estimate, standard error, p).

    The group number is the position of the group in the table of the fit. `levels` is a tuple of
    (predictor, level), and `order` is its length. Couplings are only included with `pairs`, and
    predictors that are not in `keep` are omitted. Only Boltzmann machines have coefficients.
    Standard errors and p are nan if the method has none.
    """
    if not isinstance(fit, MachineResults):
        return {}
    try:
        # a row for each coefficient of a non-reference level
        table = without_reference(fit.inference().table(of))
    except BBLError:
        if of != "group":  # other coefficients require standard errors
            raise
        table = fit.tidy().assign(se=np.nan, p=np.nan)
    groups = list(dict.fromkeys(table["group"]))
    coefficients: dict[tuple, tuple] = {}
    inference = fit.inference() if table["se"].notna().any() else None
    if fit.engine.joint and of == "group" and isinstance(inference, Inference):
        # without the reference group, whose coefficients are all zero
        table = table[table["group"] != fit.labels.groups[0]]
        for _, row in inference._intercepts().iterrows() if keep is None else ():
            key = groups.index(row["group"]), 0, row["group"], ()
            coefficients[key] = row["estimate"], row["se"], row["p"]
    # (rows, largest order) each: the columns predictor, predictor2, ..., and the columns level,
    # level2, ...
    predictors, predictor_levels = (
        table.filter(regex=rf"^{prefix}\d*$").to_numpy(object) for prefix in ("predictor", "level")
    )
    columns = (table[c] for c in ("group", "estimate", "se", "p"))
    # `term` is [predictors, levels] of a row, two arrays (largest order,), padded with missing
    # values
    for group, estimate, se, p, *term in zip(*columns, predictors, predictor_levels, strict=True):
        levels = tuple((name, level) for name, level in zip(*term, strict=True) if not absent(name))
        if (len(levels) == 1 or pairs) and (
            keep is None or all(name in keep for name, _ in levels)
        ):
            coefficients[groups.index(group), len(levels), group, levels] = (estimate, se, p)
    return coefficients


def _row_name(group: Hashable, levels: tuple[tuple[Hashable, Hashable], ...]) -> str:
    """Return the name of a row, ``group: predictor=level : ...``, where `levels` contains pairs
    (predictor, level).
    """
    if not levels:
        return f"{label_text(group)}: (Intercept)"
    return f"{label_text(group)}: " + " : ".join(
        f"{label_text(name)}={label_text(level)}" for name, level in levels
    )


def _cell(coefficient: tuple[float, float, float] | None, stars: bool, digits: int) -> str:
    """Format (estimate, standard error, p) as ``estimate* (standard error)``.

    The result is empty for a coefficient that is not in the model.
    """
    if coefficient is None:
        return ""
    estimate, se, p = coefficient
    stars_text = next((text for limit, text in STARS if p < limit), "") if stars else ""
    return f"{estimate:.{digits}f}{stars_text}" + ("" if np.isnan(se) else f" ({se:.{digits}f})")


def _observations_text(fit: ModelResults) -> str:
    """Return the number of observations or, with real-valued weights, the number of rows if it is
    known.
    """
    nobs = fit.nobs()
    training = getattr(fit, "training", None)
    return f"{nobs:g}" if isinstance(nobs, int) or training is None else f"{training.n:,}"


def _facts(fit: ModelResults, first: ModelResults, digits: int) -> list[str]:
    """Return the cells of the rows `FACTS` in the column of a fit.

    Cells are empty for unavailable statistics. AIC, BIC and clAIC are also empty unless the fit and
    `first`, the first fit of the table, have the same variables and number of observations.
    """
    accuracy = ""
    if isinstance(fit, ClassifierResults):
        with suppress(BBLError):  # a model loaded without training rows
            accuracy = f"{fit.evaluate().accuracy:.{digits}f}"
    # in the order of `FACTS`: logLik, AIC, BIC, clAIC
    criterion_texts = ["" if np.isnan(v) else f"{v:.1f}" for v in criteria(fit, first).values()]
    # `learner`: name of the method
    return [
        fit._traits.title,
        _observations_text(fit),
        str(fit.n_parameters),
        *criterion_texts,
        accuracy,
    ]
