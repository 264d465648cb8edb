"""Loader of R's reference numbers of log-linear models: tables, formulas and results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import rcases


def folder() -> Path:
    """Return where the reference numbers should be."""
    return rcases.folder() / "reference" / "loglin"


def names(kind: str) -> list[str]:
    """Return the names of the cases of a `kind` without cells that cannot occur; empty if the folder is absent."""
    return [path.stem for path in sorted(folder().glob("*.json")) if _is_of(json.loads(path.read_text()), kind)]


def _is_of(case: dict, kind: str) -> bool:
    columns = [column["name"] for column in (case.get("data") or {"columns": []})["columns"]]
    return case["kind"] == kind and "structural_zero" not in columns


def load(name: str) -> tuple[dict, pd.DataFrame, dict[str, list]]:
    """Return a case, its table with the counts in the column ``n``, and the levels of each factor in R's order."""
    case = json.loads((folder() / f"{name}.json").read_text())
    columns, levels = {}, {}
    for column in case["data"]["columns"]:
        if column["type"] == "factor":
            levels[column["name"]] = column["levels"]
            columns[column["name"]] = [column["levels"][code] for code in column["codes"]]
        else:
            columns[column["name"]] = column["values"]
    return case, pd.DataFrame(columns), levels


def numbers(values: list) -> np.ndarray:
    """Return stored numbers as floats; null is nan."""
    return np.array([np.nan if value is None else float(value) for value in values])
