"""Recorded outputs of R's bnclassify: data sets as codes, tables and structures in the order of our
arrays.
"""

import json
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bbl.bayesnet.dag import Dag
from bbl.rows.sample import Sample

FOLDER = (
    Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    / "reference/bnclassify/open"
)
SETS = ("car", "voting", "votingc", "syn_a", "syn_b", "tiny")


def number(value):
    return (
        {"Inf": math.inf, "-Inf": -math.inf, "NaN": math.nan}.get(value, value)
        if isinstance(value, str)
        else value
    )


def numbers(values):
    return np.array([number(v) for v in values], dtype=float)


@cache
def case(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def cases(topic):
    """Return the names of the data sets that have a case of this topic."""
    return [name for name in SETS if (FOLDER / f"{name}_{topic}.json").exists()]


@dataclass(frozen=True)
class Data:
    """A recorded data set: features by position, in the order of the data, and its rows as
    codes.
    """

    class_: str
    names: tuple
    levels: dict
    sample: Sample
    new: Sample | None

    @property
    def n_levels(self):
        return np.array([len(self.levels[name]) for name in self.names])

    @property
    def K(self):
        return len(self.levels[self.class_])

    def dag(self, families):
        """Return the structure of recorded families, features in their recorded order."""
        at = {name: i for i, name in enumerate(self.names)}
        return Dag(
            tuple(
                (at[x], tuple(at[p] for p in scope[1:-1]))
                for x, scope in families.items()
                if x != self.class_
            )
        )

    def by_name(self, values):
        return numbers([values[name] for name in self.names])


@cache
def data(name):
    stored = case(f"data_{name}")
    names = tuple(n for n in stored["train"]["columns"] if n != stored["class"])
    levels = stored["levels"]

    def encode(part):
        columns, n = part["columns"], part["n"]
        code = {v: {level: k for k, level in enumerate(levels[v])} for v in levels}
        codes = np.array([[-1 if x is None else code[v][x] for x in columns[v]] for v in names]).T
        y = np.array(
            [
                -1 if x is None else code[stored["class"]][x]
                for x in columns.get(stored["class"], [None] * n)
            ]
        )
        missing = codes < 0
        return Sample(
            np.ascontiguousarray(np.where(missing, 0, codes), dtype=np.uint8),
            np.ones(n),
            y.astype(np.intp),
            missing if missing.any() else None,
        )

    return Data(
        stored["class"],
        names,
        levels,
        encode(stored["train"]),
        encode(stored["newdata"]) if "newdata" in stored else None,
    )


def table(cpt):
    """Return a recorded table with our axes (parents..., child, class); its own are (child,
    parents..., class).
    """
    values = numbers(cpt["values"]).reshape(cpt["dim"], order="F")
    return values if values.ndim == 1 else np.moveaxis(values, 0, -2)
