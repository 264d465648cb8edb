"""Stored logistic and multinomial regressions of R: cases as tables, and coefficients by class and
column.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import bbl


class Case(NamedTuple):
    """A regression: formula, table, column of weights or None, levels, and what R made of it."""

    formula: str
    frame: pd.DataFrame
    weights: str | None
    levels: dict[str, list[str]]
    classes: list[str]  # the reference class first
    names: list[str]  # of columns: "Intercept", "A[T.x]", "A[T.x]:B[T.y]"
    coefficients: np.ndarray  # (classes - 1, columns)
    covariance: np.ndarray  # ((classes - 1) * columns,) * 2
    log_likelihood: float

    def fit(self, **options) -> bbl.BBLResults:
        return bbl.bbl(
            self.formula,
            self.frame,
            self.weights,
            method="conditional",
            verbose=0,
            **{"ridge": 0.0, "xlevels": self.levels} | options,
        )


def folder() -> Path:
    shared = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    return shared / "reference" / "effects"


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.json"))


def read(name: str) -> Case:
    stored = json.loads((folder() / f"{name}.json").read_text(encoding="utf-8"))
    model, fit, columns, levels = stored["model"], stored["fit"], {}, {}
    for column in stored["data"]["columns"]:
        if column["type"] == "factor":
            levels[column["name"]] = column["levels"]
            columns[column["name"]] = np.array(column["levels"], dtype=object)[column["codes"]]
        else:
            columns[column["name"]] = column["values"]
    predictors = {name: levels[name] for name in model["predictors"]}
    classes = [model["reference_class"], *fit["coefficients"]]
    return Case(
        model["formula"],
        pd.DataFrame(columns),
        model["weights"],
        predictors,
        classes,
        fit["names"],
        np.array(list(fit["coefficients"].values())),
        np.array(fit["covariance"]),
        fit["loglik"],
    )


def column_numbers(case: Case, fit: bbl.BBLResults) -> list[int]:
    """Return where R's columns are among the coefficients of a fit: 0 for the intercept, then its
    parameters.
    """
    labels, layout = fit.labels, fit.estimate.parameters.layout
    number = np.arange(1, 1 + layout.size)
    at = {frozenset(["Intercept"]): 0}
    for scope in layout.scopes:
        for cell, k in np.ndenumerate(layout.table(number, *scope)):
            parts = (
                f"{labels.names[i]}[T.{labels.levels[i][a + 1]}]"
                for i, a in zip(scope, cell, strict=True)
            )
            at[frozenset(parts)] = int(k)
    return [at[frozenset(name.split(":"))] for name in case.names]
