"""Unidentified coefficients of an unpenalised fit of P(group | row), for warnings."""

from __future__ import annotations

import numpy as np

from bbl.engines.base import absent_levels
from bbl.engines.conditional.maximum import ConditionalMaximum
from bbl.engines.engine_fit import Limit, Note
from bbl.engines.likelihood.existence import first_parameters, holds_absent_level
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.rows.sample import Rows

__all__ = ["limits"]

SEPARATED = "the predictors separate the groups perfectly, so the likelihood has no maximum"
TOO_FEW_ROWS = (
    "there are fewer distinct rows than coefficients, so the coefficients are not identified"
)
ALIASED = "it is not identified given the other terms"


def limits(maximum: ConditionalMaximum, sample: Rows, layout: Layout) -> list[Limit]:
    """Return the number of coefficients, the unbounded parameters and the notes for each group.

    Notes about all groups are returned with the first group. Couplings of levels that never occur
    together are not mentioned, because the parameter tables report them.

    Parameters
    ----------
    maximum : ConditionalMaximum
        The fit, with coefficients (K, 1 + size).
    sample : Rows
        The sample. Its `pooled` rows are the rows of all groups.
    layout : Layout
    """
    # weights (L_i,) of the levels of each predictor
    is_number = layout.is_number
    counts = level_counts(sample.nominal(is_number, layout.n_levels).pooled, layout.n_levels)
    for i in np.flatnonzero(is_number):  # a slope is not that of an absent level
        counts[i] = np.ones(2)
    # masks (size,) of parameters; [1:] leaves the intercept out
    has_absent_level = holds_absent_level(layout, counts)
    aliased = maximum.aliased[1:]
    # one for each level without rows
    notes = absent_levels(counts, hint="Set ridge > 0.")
    if maximum.is_separated:
        # -1: of no predictor and no level
        notes += (Note(-1, -1, SEPARATED, hint=f"{maximum.remedy}."),)
    elif maximum.n_rows < len(maximum.aliased):  # fewer distinct rows than columns of the design
        notes += (Note(-1, -1, TOO_FEW_ROWS, hint="Use ridge='cv'."),)
    else:
        # the first such parameter of each predictor, a tuple (predictor, level, ...)
        aliased_parameters = first_parameters(
            layout, aliased & maximum.occurs[1:] & ~has_absent_level
        )
        notes += tuple(
            Note(i, -1, ALIASED, hint="Leave one of the terms out, or use ridge='cv'.")
            for i, *_ in aliased_parameters
        )
    out = []
    for g in range(len(maximum.coefficients)):
        # a group without rows has no unbounded parameters
        is_unbounded = (
            ~maximum.determined(g, maximum.reference)[1:] & ~aliased & (g in maximum.reported)
        )
        unbounded_parameters = (
            () if maximum.is_separated else first_parameters(layout, is_unbounded)
        )
        out.append(
            Limit(maximum.rank(g), unbounded_parameters, notes if g == 0 else (), maximum.remedy)
        )
    return out
