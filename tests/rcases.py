"""Loader of the stored outputs of the R package bbl 1.0.0: JSON cases to data frames, arguments,
codes and arrays.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import reference as oracle

# R's argument names to ours; crossVal's grids keep their names
ARGUMENTS = {"lambda": "lambda_", "prior.count": "prior_count", "use.auc": "use_auc"}


def folder() -> Path:
    """Return where the shared material should be: ``BBL_SHARED``, or ``shared`` beside the
    repository.
    """
    return Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def names() -> list[str]:
    """Return the names of all stored cases, sorted; empty if the folder is absent."""
    return sorted(p.stem for p in (folder() / "reference" / "bbl").glob("*.json"))


def number(value):
    """Return a stored number as a float: null is NaN, the strings "NaN", "Inf" and "-Inf" are
    themselves.
    """
    return np.nan if value is None else float(value)


def array(values) -> np.ndarray:
    """Return nested lists of stored numbers as a float array."""
    return np.vectorize(number, otypes=[float])(np.array(values, dtype=object))


def bare(name: str) -> str:
    """Return a column name without R's back quotes."""
    return name.strip("`")


def frame(table, response: str | None = None) -> pd.DataFrame:
    """Return a stored data table as a DataFrame of the types that R had.

    R's bbl keeps the declared order of the response's levels and sorts those of the predictors;
    ours keeps every declared order, so factors other than the response are plain text here.
    """
    columns = {}
    for column in table["columns"]:
        values = column["values"]
        if column["type"] == "factor" and column["name"] == response:
            columns[column["name"]] = pd.Categorical(values, categories=column["levels"])
        elif column["type"] == "integer":
            columns[column["name"]] = np.array(values, dtype=np.int64)
        elif column["type"] == "numeric":
            columns[column["name"]] = np.array(values, dtype=float)
        else:
            columns[column["name"]] = np.array(values, dtype=object)
    return pd.DataFrame(columns)


def expand(data: pd.DataFrame, weights) -> pd.DataFrame:
    """Return the data with every row repeated as often as its weight says (R's freq2raw)."""
    return (
        data
        if weights is None
        else data.loc[data.index.repeat(weights.astype(int))].reset_index(drop=True)
    )


class Problem:
    """The codes behind a formula call, built from R's own account of names, levels and pairs.

    Attributes
    ----------
    names, groups, levels : list
        Bare predictor names; response levels and predictor levels with the data's own types.
    L : list of int
        Number of levels of each predictor.
    pairs : set of (int, int)
        Interacting pairs, ``i < j``.
    x, y, w : ndarray
        Codes (n, m), response codes and weights of the rows with positive weight.
    """

    def __init__(self, data: pd.DataFrame, weights, run: dict):
        self.response = run["groupname"]
        self.rnames = list(run["xlevels"])
        self.names = [bare(n) for n in self.rnames]
        self.rlevels = list(run["xlevels"].values())
        self.rgroups = run["groups"]
        self.levels = [
            self.typed(data[n], labels) for n, labels in zip(self.names, self.rlevels, strict=True)
        ]
        self.groups = self.typed(data[self.response], self.rgroups)
        self.L = [len(v) for v in self.levels]
        qJ = run.get("qJ")
        m = len(self.names)
        on = (
            np.zeros((m, m), dtype=bool)
            if qJ is None or np.ndim(qJ) < 2
            else np.array(qJ, dtype=bool)
        )
        self.pairs = {(i, j) for i in range(m) for j in range(i + 1, m) if on[i, j]}
        self.additive = not self.pairs
        w = np.ones(len(data)) if weights is None else weights
        self.kept = w > 0
        self.w = w[self.kept]
        self.x = self.encode(data)[self.kept]
        self.y = self.group_codes(data[self.response])[self.kept]
        self.K = len(self.groups)

    @staticmethod
    def typed(column, labels):
        """Return R's level labels (text) with the type of the data's own values."""
        kinds = {type(v) for v in column}
        if kinds <= {int, np.int64}:
            return [int(v) for v in labels]
        if kinds <= {float, np.float64}:
            return [float(v) for v in labels]
        return (
            [{"TRUE": True, "FALSE": False}[v] for v in labels] if kinds <= {bool} else list(labels)
        )

    def encode(self, data: pd.DataFrame) -> np.ndarray:
        """Return the level codes (n, m) of a data frame."""
        columns = [
            [levels.index(v) for v in data[name]]
            for name, levels in zip(self.names, self.levels, strict=True)
        ]
        return np.array(columns, dtype=int).T.reshape(len(data), len(self.names))

    def group_codes(self, values) -> np.ndarray:
        """Return the response codes of labels with the data's own type, or of R's text labels."""
        known = {v: k for k, v in enumerate(self.groups)} | {
            v: k for k, v in enumerate(self.rgroups)
        }
        return np.array([known[v] for v in values], dtype=int)

    @property
    def unweighted(self) -> bool:
        """Whether every weight is one, so that R's means over rows are right."""
        return bool((self.w == 1).all())

    @property
    def odd_augmentation(self) -> bool:
        """Whether R's extra row differs from ours: a predictor constant at its reference level in
        some group.
        """
        for g in range(self.K):
            rows = self.x[self.y == g]
            constant = (rows == rows[0]).all(axis=0)
            if (constant & (rows[0] == 0)).any():
                return True
        return False

    def r_parameters(self, h: dict, J: list | None):
        """Return R's stored ``h`` and ``J`` of one group (or of the pooled fit) as the oracle's
        ``(h, J)``.
        """
        fields = [array(list(h[n].values())) for n in self.rnames]
        tables = {}
        for entry in J or []:
            i, j = self.rnames.index(entry["i"]), self.rnames.index(entry["j"])
            tables[i, j] = array(entry["values"]).reshape(self.L[i] - 1, self.L[j] - 1)
        return fields, tables


class Case:
    """One stored case.

    Attributes
    ----------
    name, kind : str
    raw : dict
        The whole JSON document.
    """

    def __init__(self, name: str):
        self.name = name
        self.raw = json.loads(
            (folder() / "reference" / "bbl" / f"{name}.json").read_text(encoding="utf-8")
        )
        self.kind = self.raw["kind"]
        self.input = self.raw["input"]
        self.runs = self.raw.get("runs", {})

    @property
    def formula(self) -> str:
        return self.input["formula"]

    @property
    def response(self) -> str:
        if "response" in self.input:
            return self.input["response"]
        return bare(self.formula.split("~")[0].strip())

    @property
    def args(self) -> dict:
        """The explicit arguments under R's names."""
        return self.input.get("args", {})

    @functools.cached_property
    def data(self) -> pd.DataFrame:
        return frame(self.input["data"], self.response)

    @functools.cached_property
    def newdata(self) -> pd.DataFrame | None:
        table = self.input.get("newdata")
        return None if table is None else frame(table, self.response)

    @property
    def weights(self) -> np.ndarray | None:
        w = self.input.get("weights")
        return None if w is None else np.array(w, dtype=float)

    @property
    def method(self) -> str:
        return self.args.get("method", "pseudo")

    @property
    def lambda_(self) -> float:
        return self.args.get("lambda", 1e-5)

    @property
    def lambdah(self) -> float:
        value = self.args.get("lambdah", 0.0)
        return self.lambda_ if value is None else value

    @property
    def half(self) -> bool:
        return self.args.get("lz.half", False)

    def best(self) -> dict:
        """Return the run to compare with: the converged one, or the only one."""
        return self.runs.get("tight", self.runs.get("default"))

    def keywords(self, args: dict | None = None) -> dict:
        """Return R's arguments under our names, with the ln Z that R uses."""
        args = self.args if args is None else args
        method = args.get("method", "pseudo")
        # Q28: R takes it and does nothing
        unused = {"lz.half", "prior.count"} if method == "pseudo" else {"lz.half"}
        out = {ARGUMENTS.get(k, k): v for k, v in args.items() if k not in unused}
        out["log_z"] = "half" if args.get("lz.half") else {"pseudo": "pseudo", "mf": "mf"}[method]
        if method == "pseudo":
            out["tolerance"] = 1e-11
        return out

    def problem(self, run: dict | None = None) -> Problem:
        """Return the codes of the formula call."""
        return Problem(self.data, self.weights, run or self.runs["default"])


class Part(Case):
    """One model of a "split" case, as a formula case on the training rows."""

    def __init__(self, case: Case, train: pd.DataFrame, model: dict):
        self.name, self.kind, self.raw = case.name, "bbl", case.raw
        self.input = {
            "formula": model["formula"],
            "args": model["args"],
            "newdata": case.input["newdata"],
        }
        self.runs = model["runs"]
        self.data = train


def mnist(shared: Path):
    """Return the training and test tables of the down-sampled MNIST data, without constant training
    columns.
    """
    train, test = (
        pd.read_csv(shared / "data" / "bbl-r" / f"mnist_{part}.csv.gz")
        for part in ("train", "test")
    )
    columns = [c for c in train.columns if c == "y" or train[c].nunique() > 1]
    return train[columns], test[columns]


def exact_groups(problem: Problem, case: Case, rule="spec"):
    """Return the oracle's pseudo-likelihood solution of every group of a case, as a list of
    PseudoFit.
    """
    return [
        oracle.PseudoFit(
            problem.x[problem.y == g],
            problem.w[problem.y == g],
            problem.L,
            problem.pairs,
            case.lambda_,
            case.lambdah,
            rule,
        )
        for g in range(problem.K)
    ]
