"""Comparison: a table of fitted models, one per row, with their criteria and the test against the previous model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.errors import BBLError, BBLTypeError, DataError, OptionError
from bbl.report.text import label_text
from bbl.results.model import ModelResults

__all__ = ["Fits", "check_fits", "compare_fits", "criteria"]

Fits = ModelResults | Sequence[ModelResults] | Mapping[Hashable, ModelResults]


def check_fits(fits: Fits, least: int = 1) -> dict[Hashable, ModelResults]:
    """Return fitted models by name, numbered if they come as a sequence; a BBLTypeError for fewer than `least`."""
    if isinstance(fits, Mapping):
        models = dict(fits)
    else:
        if isinstance(fits, str) or not isinstance(fits, Sequence):
            fits = [fits]
        models = {f"({k})": fit for k, fit in enumerate(fits, 1)}
    no_models = [fit for fit in models.values() if not isinstance(fit, ModelResults)]
    if no_models or len(models) < least:
        got = f"{no_models[0]!r}"[:80] if no_models else f"{len(models)} of them"
        raise BBLTypeError(f"fits must be {least} or more fitted models; got {got}.", argument="fits")
    return models


def compare_fits(fits: Fits) -> pd.DataFrame:
    """Return the table of `bbl.anova`: criteria of each fit, and its likelihood ratio test against the previous fit."""
    models = check_fits(fits, 2)
    rows, first = [], next(iter(models.values()))
    previous: ModelResults | None = None
    for name, fit in models.items():
        row: dict[str, Any] = {
            "model": f"{label_text(name)} {label_text(fit.formula)}, {fit._traits.name}",
            "parameters": fit.n_parameters,
            **criteria(fit, first),
            **dict.fromkeys(("ratio", "p"), np.nan),
            "df": 0,
            "test": "",
        }
        if previous is not None:
            try:
                row |= previous._ratio_test(fit)
            except (DataError, OptionError) as error:
                row["test"] = f"no test: {error}"
        rows.append(row)
        previous = fit
    columns = ["parameters", "logLik", "AIC", "BIC", "clAIC", "ratio", "df", "p", "test"]
    return pd.DataFrame(rows).set_index("model")[columns].rename_axis(None)


def criteria(fit: ModelResults, first: ModelResults) -> dict[str, float]:
    """Return log-likelihood, AIC, BIC and composite-likelihood AIC of a fit, nan for those that it lacks.

    The criteria are nan if `fit` and `first` have different numbers of observations: they would count other rows.
    """
    functions: dict[str, Callable[[], float]] = {
        "logLik": fit.logLik, "AIC": lambda: fit.aic, "BIC": lambda: fit.bic, "clAIC": fit._composite_aic,
    }  # fmt: skip
    values = {}
    for title, criterion in functions.items():
        try:
            values[title] = float(criterion())
        except BBLError:
            values[title] = float("nan")
    if fit.nobs() != first.nobs():
        values |= dict.fromkeys(("AIC", "BIC", "clAIC"), float("nan"))
    return values
