"""Comparison: a table of fitted models, one per row, with their criteria and the test against the
previous model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.errors import BBLError, BBLTypeError, DataError, DataWarning, OptionError
from bbl.report.text import fill, label_text, p_texts, statistic_texts, table_text
from bbl.results.model import ModelResults

__all__ = ["Fits", "check_fits", "compare_fits", "criteria", "is_comparable"]

Fits = ModelResults | Sequence[ModelResults] | Mapping[Any, ModelResults]


class ComparisonTable(pd.DataFrame):
    """The table returned by `bbl.anova`, a DataFrame. It is printed with the formulas above it, in
    lines of at most 80 characters.
    """

    def __repr__(self) -> str:
        numbers = [f"({k})" for k in range(1, len(self) + 1)]
        # models without names of their own already have these numbers
        titles = [
            name if name.startswith(f"{number} ") else f"{number} {name}"
            for number, name in zip(numbers, map(str, self.index), strict=True)
        ]
        models = [fill(title, indent="    ") for title in titles]
        texts = {
            str(name): p_texts(column)
            if name == "p"
            else statistic_texts(column, 7)
            if pd.api.types.is_float_dtype(column.dtype)
            else [label_text(value) for value in column]
            for name, column in self.dropna(axis=1, how="all").items()
            if name != "test"
        }
        table = pd.DataFrame(texts, index=numbers)
        tests: dict[str, list[str]] = {}  # numbers of the models, by test
        for number, test in zip(numbers, self.get("test", [""] * len(self)), strict=True):
            tests.setdefault(test, []).append(number)
        notes = [
            fill(f"{', '.join(models_of_test)}: {test}")
            for test, models_of_test in tests.items()
            if test
        ]
        return "\n".join([*models, "", table_text(table), *notes])


def check_fits(fits: Fits, least: int = 1) -> dict[Hashable, ModelResults]:
    """Return fitted models by name. Unnamed models are named (1), (2), ...

    Raises a BBLTypeError if there are fewer than `least` models or an entry is not a fitted model.
    """
    if isinstance(fits, Mapping):
        models = dict(fits)
    else:
        if isinstance(fits, str) or not isinstance(fits, Sequence):
            fits = [fits]
        models = {f"({k})": fit for k, fit in enumerate(fits, 1)}
    wrong_entries = [fit for fit in models.values() if not isinstance(fit, ModelResults)]
    if wrong_entries or len(models) < least:
        received = f"{wrong_entries[0]!r}"[:80] if wrong_entries else f"{len(models)} of them"
        raise BBLTypeError(
            f"fits must be {least} or more fitted models; got {received}.", argument="fits"
        )
    return models


def _method_text(fit: ModelResults) -> str:
    """Return the name of the fit's method, followed by its variant if there is one."""
    traits = fit._traits
    return ", ".join(filter(None, (traits.name, traits.variant)))


def compare_fits(fits: Fits) -> pd.DataFrame:
    """Return the table of `bbl.anova`: criteria of each fit, and likelihood ratio tests against the
    previous fit.
    """
    models = check_fits(fits, 2)
    table_rows = []
    first_fit = next(iter(models.values()))
    previous: ModelResults | None = None
    for name, fit in models.items():
        row: dict[str, Any] = {
            "model": f"{label_text(name)} {label_text(fit.formula)}, {_method_text(fit)}",
            "parameters": fit.n_parameters,
            **criteria(fit, first_fit),
            **dict.fromkeys(("ratio", "p"), np.nan),
            "df": 0,
            "test": "",
        }
        if previous is not None:
            try:
                row |= previous._ratio_test(fit)  # sets ratio, df, p and test
            except (DataError, OptionError) as error:
                row["test"] = f"no test: {error.message}"
        table_rows.append(row)
        previous = fit
    columns = ["parameters", "logLik", "AIC", "BIC", "clAIC", "ratio", "df", "p", "test"]
    return ComparisonTable(pd.DataFrame(table_rows).set_index("model")[columns].rename_axis(None))


def criteria(fit: ModelResults, first: ModelResults) -> dict[str, float]:
    """Return log-likelihood, AIC, BIC and composite-likelihood AIC of a fit, with nan for
    unavailable criteria.

    AIC, BIC and composite-likelihood AIC are nan unless they are comparable with the criteria of
    `first`, the first fit of the table (see `is_comparable`).
    """
    criterion_functions: dict[str, Callable[[], float]] = {
        "logLik": lambda: fit.logLik().check_comparable(),
        "AIC": lambda: fit.aic,
        "BIC": lambda: fit.bic,
        "clAIC": fit._composite_aic,
    }
    criterion_values = {}
    for title, criterion in criterion_functions.items():
        try:
            criterion_values[title] = float(criterion())
        except BBLError as error:
            criterion_values[title] = float("nan")
            # warn once, for logLik: AIC and BIC are then missing as well
            if title == "logLik" and error.argument == "log_z":
                warnings.warn(
                    DataWarning(f"{label_text(fit.formula)}: {error.message}", hint=error.hint),
                    stacklevel=5,
                )
    if not is_comparable(fit, first):
        criterion_values |= dict.fromkeys(("AIC", "BIC", "clAIC"), float("nan"))
    return criterion_values


def is_comparable(fit: ModelResults, other: ModelResults) -> bool:
    """Return whether the likelihoods of two fits refer to the same variables and the same number of
    observations.

    The likelihood of a fit is P(x, y) if it models the predictors, and otherwise P(y|x). P(x, y) is
    the probability of the response and all predictors, so the predictors of both fits must be the
    same. P(y|x) is the probability of the response alone, so the predictors may differ.
    """
    models_predictors = fit._traits.models_predictors
    has_same_predictors = set(fit.labels.names) == set(other.labels.names) or not models_predictors
    has_same_variables = (
        models_predictors == other._traits.models_predictors
        and fit.labels.response == other.labels.response
    )
    return fit.nobs() == other.nobs() and has_same_variables and has_same_predictors
