"""Stored outputs of R's survey package: cases read as tables, and their designs as arrays."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.design.survey import SurveyDesign, survey
from bbl.stats.survey.plan import SamplingPlan
from bbl.stats.survey.replicates import Replicates

LONELY = {"fail": "error", "certainty": "remove"}


def folder() -> Path:
    """Return where the stored cases should be."""
    shared = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    return shared / "reference" / "survey"


def names() -> list[str]:
    """Return the stored cases."""
    return sorted(path.stem for path in folder().glob("*.json"))


@functools.cache
def stored(name: str) -> dict:
    """Return a case, which nobody may change."""
    return json.loads((folder() / f"{name}.json").read_text(encoding="utf-8"))


def read(name: str) -> tuple[dict, pd.DataFrame]:
    """Return a case and its table."""
    case = stored(name)
    table = {}
    for column in case["data"]["columns"]:
        if column["type"] == "factor":
            codes = [-1 if code is None else code for code in column["codes"]]
            table[column["name"]] = pd.Categorical.from_codes(codes, column["levels"])
        else:
            table[column["name"]] = column["values"]
    return case, pd.DataFrame(table)


def members(case: dict, table: pd.DataFrame) -> np.ndarray:
    """Return which rows belong to the subpopulation of a case."""
    rule = case["design"].get("subpopulation")
    if not rule:
        return np.ones(len(table), dtype=bool)
    keep = np.ones(len(table), dtype=bool)
    for part in rule.split(" (")[0].split("&"):
        differs = "!=" in part
        column, value = (
            text.strip().strip("'\"") for text in part.split("!=" if differs else "==")
        )
        is_value = (table[column].astype(object) == value).to_numpy()
        keep &= ~is_value if differs else is_value
    return keep


def codes(columns: list[pd.Series]) -> np.ndarray:
    """Return numbers of the distinct rows of columns."""
    return (
        pd.DataFrame(dict(enumerate(columns)))
        .groupby(list(range(len(columns))), observed=True)
        .ngroup()
        .to_numpy()
    )


def plan(case: dict, table: pd.DataFrame) -> SamplingPlan:
    """Return the sampling plan of a case that has no replicates."""
    design = case["design"]
    strata = [table[name] for name in design["strata"] or []]
    above = strata if design["nest"] else []
    stages = []
    for name in design["ids"] or []:
        above = [*above, table[name]]
        stages.append(codes(above))
    return SamplingPlan(
        table[design["weights"]].to_numpy(float),
        codes(strata) if strata else np.zeros(len(table), dtype=np.intp),
        tuple(stages) or (np.arange(len(table)),),
        tuple(table[name].to_numpy(float) for name in design["fpc"]) if design["fpc"] else None,
        LONELY.get(design["lonely_psu"], design["lonely_psu"]),
    )


def replicates(case: dict) -> tuple[np.ndarray, Replicates]:
    """Return the sampling weights and the replicates of a case that has some."""
    design = case["design"]
    made = Replicates(
        np.array(design["repweights"], dtype=float),
        design["scale"],
        np.array(design["rscales"], float),
        design["mse"],
    )
    return np.array(design["sampling_weights"], dtype=float), made


def order_of_r(sizes: list[int], interact: bool) -> np.ndarray:
    """Return our positions of R's coefficients of factors with `sizes`, of which the first two may
    interact.
    """
    out = np.arange(sum(sizes))
    if interact:  # the levels of the first factor vary fastest in R
        cells = sum(sizes) + np.arange(sizes[0] * sizes[1]).reshape(sizes[0], sizes[1])
        out = np.append(out, cells.T.ravel())
    return out


def design(case: dict, table: pd.DataFrame) -> tuple[SurveyDesign, pd.DataFrame]:
    """Return the design of a case, and its table with columns of replicates and of the domain."""
    d = case["design"]
    table = table.assign(inside=members(case, table))
    if d["type"] == "taylor":
        lonely = LONELY.get(d["lonely_psu"], d["lonely_psu"])
        arguments = {
            "strata": d["strata"],
            "cluster": d["ids"],
            "fpc": d["fpc"],
            "nested": d["nest"],
        }
        return survey(d["weights"], **arguments, lonely=lonely, domain="inside"), table
    weights, made = replicates(case)
    names = [f"replicate {r}" for r in range(made.weights.shape[1])]
    table = pd.concat([table, pd.DataFrame(made.weights, columns=names)], axis=1).assign(pw=weights)
    arguments = {"scale": made.scale, "rscales": made.rscales.tolist(), "mse": made.mse}
    return survey("pw", replicates=names, type="JK1", **arguments, domain="inside"), table
