"""Tables and calls of a scenario: from the record that was drawn to data frames, sources and fitted
models.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bbl
from bbl import networks
from scenarios.scenario import MEMORY, NUMBER_KINDS, Scenario
from scenarios.words import column_names, level_names

__all__ = ["Table", "arguments", "fit", "formula", "make_table", "source"]

NUMBERS = [-1, 0, 3, 10, 11, 20, 100]
MIXED = [True, "True", 2, "2", 2.5, "x", False]
DECLARED = ("category", "ordered", "declared")  # the last without an unseen level


@dataclass(frozen=True)
class Table:
    """The cells of a scenario's table as codes, with what they stand for.

    Attributes
    ----------
    names, response, weight_name : list of str, str, str
    values, groups : list of lists, list
        The levels of each predictor, or the values of a numeric one that occur, and the groups.
    kinds, group_kind : tuple of str, str
        Dtypes.
    orders, group_order : list of arrays of int, array of int
        The order in which categories are declared.
    codes : ndarray of int, shape (n, m)
        -1 is missing.
    y : ndarray of int, shape (n,)
    weights : ndarray, shape (n,), or None
    zeros : dict of int to list of int
        Codes of the cells that cannot occur, by the position of a predictor; -1 is the response.
    design : dict of str to ndarray
        The columns of the sampling design beside the weights.
    """

    names: list[str]
    response: str
    weight_name: str
    values: list[list]
    groups: list
    kinds: tuple[str, ...]
    group_kind: str
    orders: list[np.ndarray]
    group_order: np.ndarray
    codes: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    zeros: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    design: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def numbers(self) -> list[str]:
        """The names of the numeric predictors."""
        return [
            name for name, kind in zip(self.names, self.kinds, strict=True) if kind in NUMBER_KINDS
        ]

    @property
    def nominal(self) -> list[int]:
        """Positions of the other predictors."""
        return [i for i, kind in enumerate(self.kinds) if kind not in NUMBER_KINDS]

    def take(self, rows: Any) -> Table:
        """Return the table of these rows."""
        weights = None if self.weights is None else self.weights[rows]
        design = {name: values[rows] for name, values in self.design.items()}
        return dataclasses.replace(
            self, codes=self.codes[rows], y=self.y[rows], weights=weights, design=design
        )

    def frame(
        self, response: bool = True, weights: bool = True, design: bool = True
    ) -> pd.DataFrame:
        """Return the table as a pandas frame."""
        columns = {}
        if response:
            columns[self.response] = column(self.groups, self.y, self.group_kind, self.group_order)
        for i, name in enumerate(self.names):
            columns[name] = column(self.values[i], self.codes[:, i], self.kinds[i], self.orders[i])
        if weights and self.weights is not None:
            columns[self.weight_name] = pd.Series(self.weights)
        if design:
            columns |= {name: pd.Series(values) for name, values in self.design.items()}
        index = pd.RangeIndex(self.n)
        for series in columns.values():
            series.index = index  # one for all columns, so that pandas need not align them
        return pd.DataFrame(columns, index=index)


def column(values: list, codes: np.ndarray, kind: str, order: np.ndarray) -> pd.Series:
    """Return a column of a dtype; -1 is missing."""
    if kind in DECLARED:
        unseen = (
            [] if kind == "declared" else ["(never seen)" if isinstance(values[0], str) else 999]
        )
        place = np.append(np.argsort(order), -1)
        declared = [values[a] for a in order] + unseen
        return pd.Series(
            pd.Categorical.from_codes(place[codes], declared, ordered=kind == "ordered")
        )
    cells = [None if a < 0 else values[a] for a in codes]
    if kind in NUMBER_KINDS:
        is_whole = kind == "whole"
        if (None in cells and is_whole) or kind == "Float64":
            return pd.Series(pd.array(cells, dtype="Int64" if is_whole else "Float64"))
        cells = [np.nan if c is None else c for c in cells]
        return pd.Series(np.array(cells, dtype="int64" if is_whole else float))
    if kind == "arrow":
        import pyarrow as pa

        return pd.Series(pd.array(cells, dtype=pd.ArrowDtype(pa.string())))
    if kind in ("Int64", "boolean", "string"):
        return pd.Series(pd.array(cells, dtype=kind))
    if kind == "float":
        return pd.Series(np.array([np.nan if c is None else c for c in cells], dtype=float))
    return pd.Series(cells, dtype=object if kind == "object" or not cells else None)


def level_values(kind: str, count: int, style: str, seed: int) -> list:
    """Return what the levels of a column are."""
    if kind in ("bool", "boolean"):
        return [False, True][:count]
    if kind in ("int", "Int64"):
        return NUMBERS[:count]
    if kind == "float":
        return [v + 0.5 for v in NUMBERS[:count]]
    if kind == "object":
        return MIXED[:count]
    return level_names(style, count, seed)


def make_table(s: Scenario) -> Table:
    """Return the table of a scenario."""
    m, K = len(s.levels), len(s.shares)
    rng = np.random.default_rng([s.seed, 1])
    shares = np.array(s.shares) + 1e-3
    y = rng.choice(K, s.n, p=shares / shares.sum())
    if s.n >= K and rng.random() < 0.95:  # every group has a row
        y[rng.choice(s.n, K, replace=False)] = np.arange(K)
    codes = np.zeros((s.n, m), dtype=int)
    for i, L in enumerate(s.levels):
        p = rng.dirichlet(np.full(L, 1.5), K)
        p[rng.random((K, L)) < s.absent] = 0.0
        p[p.sum(axis=1) == 0.0, 0] = 1.0
        rows = p[y] / p[y].sum(axis=1, keepdims=True)
        codes[:, i] = (rng.random((s.n, 1)) > rows.cumsum(axis=1)).sum(axis=1).clip(0, L - 1)
        if i and rng.random() < 0.5:  # pairs that go together
            with_last = rng.random(s.n) < 0.5
            codes[with_last, i] = np.minimum(codes[with_last, i - 1], L - 1)
    number_values = make_numbers(s, codes, y)
    gaps = np.random.default_rng([s.seed, 2]).random((s.n, m)) < s.gaps
    if s.missing != "drop" and s.seed % 20:  # which is refused
        gaps[:, [kind in NUMBER_KINDS for kind in s.kinds]] = False
    codes[gaps] = -1
    draws = np.random.default_rng([s.seed, 3])
    made = {
        "none": None,
        "counts": draws.integers(1, 6, s.n),
        "zero": draws.integers(0, 3, s.n),
        "real": np.round(draws.uniform(0.1, 3.0, s.n), 3),
        "huge": draws.integers(1, 4, s.n) * 10**9,
    }
    weights = made[s.weights]
    names = column_names(s.names, m, s.seed)
    weight_name = "weights" if s.names == "words" and "weights" not in names else "w"
    lazy = s.source not in ("pandas", "dict")
    kinds = tuple("str" if lazy and kind == "object" else kind for kind in s.kinds)
    orders = np.random.default_rng([s.seed, 4])
    table = Table(
        names[1:],
        names[0],
        weight_name,
        [
            number_values[i] if i in number_values else level_values(kind, L, s.names, s.seed + i)
            for i, (kind, L) in enumerate(zip(kinds, s.levels, strict=True))
        ],
        level_values(s.group_kind, K, s.names, s.seed + 99),
        kinds,
        s.group_kind,
        [orders.permutation(L) for L in s.levels],
        orders.permutation(K),
        codes,
        y,
        weights,
        make_zeros(s, codes, y) if s.zeros else {},
        design_columns(s, [*names, weight_name]) if s.design else {},
    )
    if s.columns is not None:
        keep = list(s.columns)
        at = {i: k for k, i in enumerate(keep)} | {-1: -1}
        zeros = (
            {at[i]: codes for i, codes in table.zeros.items()}
            if at.keys() >= table.zeros.keys()
            else {}
        )
        table = dataclasses.replace(
            table,
            names=[table.names[i] for i in keep],
            values=[table.values[i] for i in keep],
            kinds=tuple(table.kinds[i] for i in keep),
            orders=[table.orders[i] for i in keep],
            codes=table.codes[:, keep],
            zeros=zeros,
        )
    return table if s.rows is None else table.take(list(s.rows))


def make_numbers(s: Scenario, codes: np.ndarray, y: np.ndarray) -> dict[int, list]:
    """Return the values of each numeric predictor by its position, and enter the rows' positions
    among them into `codes`.

    Means depend on the groups and on the levels of the first predictor; numbers are correlated.
    """
    out = {}
    positions = [i for i, kind in enumerate(s.kinds) if kind in NUMBER_KINDS]
    before = np.zeros(s.n)
    for i in positions:
        rng = np.random.default_rng([s.seed, 11, i])
        shape = rng.choice(
            ["normal", "skewed", "few", "copied", "flat"], p=[0.6, 0.2, 0.1, 0.05, 0.05]
        )
        noise = rng.normal(size=s.n)
        u = noise**2 if shape == "skewed" else noise
        u = u + rng.normal(size=len(s.shares))[y] + rng.uniform(-1.0, 1.0) * before
        if positions[0]:
            u = u + rng.normal(size=s.levels[0])[codes[:, 0]]
        if shape == "copied" and i != positions[0]:
            u = 2.0 * before
        if shape == "flat":
            u = np.where(y == 0, u.round(), u)
        before = u
        if shape == "few":
            u = np.clip(u.round(), -1, 1)
        scale = float(rng.choice([1e-3, 1.0, 1.0, 1e4]))
        if s.kinds[i] == "whole":
            scale = max(scale, 1.0)
        values = (u + rng.choice([0.0, 0.0, 30.0])) * scale
        values = (10.0 * values).round() if s.kinds[i] == "whole" else values.round(9)
        distinct, position = np.unique(values, return_inverse=True)
        codes[:, i] = position.ravel()
        out[i] = [int(v) if s.kinds[i] == "whole" else float(v) for v in distinct]
    return out


def make_zeros(s: Scenario, codes: np.ndarray, y: np.ndarray) -> dict[int, list[int]]:
    """Return cells of two predictors, or of a predictor and the response, that never occur."""
    rng = np.random.default_rng([s.seed, 9])
    used = [i for i in s.used if i not in s.numbers]
    if not used:
        return {}
    columns = {-1: y, **{i: codes[:, i] for i in used}}
    one = int(rng.choice(used))
    other = int(rng.choice([i for i in columns if i != one and (i >= 0 or s.response)] or [one]))
    n_one, n_other = (int(columns[i].max(initial=0)) + 1 for i in (one, other))
    seen = set(zip(columns[one].tolist(), columns[other].tolist(), strict=True))
    cells = [(a, b) for a in range(n_one) for b in range(n_other) if (a, b) not in seen]
    chosen = [cells[k] for k in rng.permutation(len(cells))[: s.zeros]] if one != other else []
    return {one: [a for a, _ in chosen], other: [b for _, b in chosen]} if chosen else {}


def design_columns(s: Scenario, names: list[str]) -> dict[str, np.ndarray]:
    """Return the columns of a sampling design beside the weights, by names that the table does not
    have.
    """
    rng, d, columns = np.random.default_rng([s.seed, 10]), s.design, {}
    strata = rng.integers(0, d.get("strata", 1), s.n)
    if "strata" in d:
        columns["strata"] = strata
    for k, count in enumerate(d.get("cluster", [])):
        columns[f"cluster{k}"] = rng.integers(0, count, s.n)
    if "fpc" in d:
        columns |= {
            f"fpc{k}": np.full(s.n, 10 * s.n) for k in range(max(1, len(d.get("cluster", []))))
        }
    for k in range(d.get("replicates", 0)):
        columns[f"replicate{k}"] = rng.exponential(size=s.n).round(3) + 0.001
    if "domain" in d:
        columns["domain"] = rng.random(s.n) < d["domain"]
    return {name + "_" * (name in names): values for name, values in columns.items()}


def survey(s: Scenario, table: Table) -> Any:
    """Return the sampling design of a scenario."""
    options = {name: s.design[name] for name in ("lonely", "type", "mse") if name in s.design}
    for argument in ("strata", "cluster", "fpc", "replicate", "domain"):
        names = [name for name in table.design if name.startswith(argument)]
        if names:
            options["replicates" if argument == "replicate" else argument] = (
                names[0] if argument == "domain" else names
            )
    if options.get("type") == "bootstrap" and "replicates" not in options:
        options["replicates"] = 10
    return bbl.survey(table.weight_name, **options)


def structural_zeros(table: Table) -> dict[str, list] | None:
    """Return the cells that cannot occur, those whose levels occur, as a table; None if there are
    none.
    """
    present = [
        np.isin(codes, table.y if i < 0 else table.codes[:, i]) for i, codes in table.zeros.items()
    ]
    cells = np.flatnonzero(np.logical_and.reduce(present)) if present else []
    if not len(cells):
        return None
    return {
        table.response if i < 0 else table.names[i]: [
            (table.groups if i < 0 else table.values[i])[codes[k]] for k in cells
        ]
        for i, codes in table.zeros.items()
    }


def impossible(table: Table, codes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which rows are in cells that cannot occur."""
    wrong = np.zeros(len(y), dtype=bool)
    for cell in zip(*table.zeros.values(), strict=True):
        wrong |= np.logical_and.reduce(
            [
                (y if i < 0 else codes[:, i]) == code
                for i, code in zip(table.zeros, cell, strict=True)
            ]
        )
    return wrong


def kept_rows(s: Scenario, table: Table) -> np.ndarray:
    """Return which rows a fit uses: of positive weight, in the domain, and complete where the
    others are dropped.
    """
    kept = np.ones(table.n, dtype=bool) if table.weights is None else table.weights > 0
    for name in [name for name in table.design if name.startswith("domain")]:
        kept &= table.design[name]
    return kept & (table.codes >= 0).all(axis=1) if s.missing == "drop" else kept


def new_table(s: Scenario, table: Table, n: int = 12) -> Table:
    """Return rows to predict: levels that occur, in any combination, with the scenario's gaps."""
    rng = np.random.default_rng([s.seed, 5])
    present = kept_rows(s, table)
    codes = np.zeros((n, len(table.names)), dtype=int)
    for i in range(codes.shape[1]):
        known = np.unique(table.codes[present, i])
        blank = (known < 0).any()
        known = known[known >= 0]
        codes[:, i] = rng.choice(known, n) if len(known) else -1
        gaps = rng.random(n) < 0.15
        sums_nothing_out = {"conditional", "blanket", "boosting"} & {s.method, *s.method.split("+")}
        summed = s.missing == "marginal" and not sums_nothing_out
        # a gap is a level where the training rows have one
        if blank or (s.gaps and (summed or s.missing == "drop")):
            codes[gaps, i] = -1
    y = rng.choice(np.unique(table.y[present]), n) if present.any() else np.zeros(n, dtype=int)
    wrong = impossible(table, codes, y)
    if wrong.any() and present.any():
        rows = rng.choice(np.flatnonzero(present), int(wrong.sum()))
        codes[wrong], y[wrong] = table.codes[rows], table.y[rows]
    return dataclasses.replace(table, codes=codes, y=y, weights=None, design={})


def quoted(name: str) -> str:
    """Return a name as a formula has it."""
    return name if name.isascii() and name.isidentifier() else f"`{name}`"


def formula(s: Scenario, table: Table) -> str:
    """Return the formula of a scenario."""
    left = f"{quoted(table.response)} ~ " if s.response else "~ "
    if isinstance(s.terms, int):
        dropped = "" if s.response else f" - {quoted(table.response)}"
        return left + (f".^{s.terms}" if s.terms > 1 else ".") + dropped
    at = {i: k for k, i in enumerate(s.used)}
    terms = [t for t in s.terms if all(i in at for i in t)]
    return left + " + ".join(":".join(quoted(table.names[at[i]]) for i in t) for t in terms)


def arguments(s: Scenario, table: Table) -> dict[str, Any]:
    """Return the call's arguments beside formula, data and weights."""
    options = dict(s.options)
    if s.family != "bbl" and s.group_kind in ("category", "ordered") and "priors" in options:
        options["priors"] = "equal"  # groups that are declared count, whether they occur or not
    if isinstance(options.get("level_scores"), list):
        predictor, seed = options.pop("level_scores")
        if predictor in s.used:
            at = s.used.index(predictor)
            n_declared = len(table.values[at]) + 1  # and a level that is never seen
            steps = np.random.default_rng(seed).exponential(size=n_declared).round(2) + 0.1
            options["level_scores"] = {table.names[at]: np.cumsum(steps).tolist()}
    if "numeric" in options:
        # pandas stores integers with missing values as floats
        looks_measured = {"float", *NUMBER_KINDS, *(("int",) if s.gaps else ())}
        is_all = (
            options["numeric"] == "all"
            and {kind for kind in table.kinds if kind in looks_measured} <= {"number", "Float64"}
            and s.source != "dict"
        )
        numbers = table.numbers
        options["numeric"] = is_all or (numbers[0] if len(numbers) == 1 else numbers)
    if s.family == "bbl":
        options["method"] = s.method
        if (zeros := structural_zeros(table)) is not None:
            options["structural_zeros"] = zeros
        if table.design or s.design:
            options["design"] = survey(s, table)
    if isinstance(options.get("priors"), list):  # by name, of the groups that occur
        p = np.array(options["priors"][: len(table.groups)])
        present = np.unique(table.y[kept_rows(s, table)])
        p = p[present] / max(p[present].sum(), 1e-9)
        options["priors"] = {table.groups[g]: float(v) for g, v in zip(present, p, strict=True)}
    return options | {"verbose": 0}


def fit(s: Scenario, table: Table, data: Any, **changes: Any) -> Any:
    """Fit a scenario's model to data that hold its table."""
    options = arguments(s, table) | changes
    options.setdefault(
        "weights", None if table.weights is None or "design" in options else table.weight_name
    )
    text = options.pop("formula", None) or formula(s, table)
    if s.family == "bbl":
        return bbl.bbl(text, data, **options)
    if s.family == "shooter":
        return bbl.shooter(text, data, **options)
    if s.family == "network":
        options.pop("n_jobs", None)
        return networks.bnc(s.method, text, data, **options)
    weights, workers = options.pop("average"), options.pop("n_jobs", None)
    members = []
    for method in s.method.split("+"):
        if method in ("nb", "tan_cl"):
            members.append(networks.bnc(method, text, data, 1.0, **options))
        else:
            options.setdefault("novarOk", True)
            members.append(bbl.bbl(text, data, method=method, **options))
            options.pop("novarOk")
    return bbl.average(members, weights, n_jobs=workers)


@contextlib.contextmanager
def source(kind: str, frame: pd.DataFrame, seed: int = 0) -> Iterator[Any]:
    """Pass the rows of a frame as data of a kind, in memory or read in batches."""
    if kind in MEMORY:
        yield in_memory(kind, frame)
        return
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    rng = np.random.default_rng([seed, 6])
    cuts = sorted({0, *map(int, rng.integers(0, len(frame) + 1, 2)), len(frame)})
    parts = [arrow.slice(a, b - a) for a, b in zip(cuts[:-1], cuts[1:], strict=True)] or [arrow]
    with tempfile.TemporaryDirectory(prefix="scenario-") as name:
        folder = Path(name)
        if kind in ("file", "files", "folder", "dataset", "duckdb"):
            for k, part in enumerate([arrow] if kind == "file" else parts):
                pq.write_table(part, folder / f"part{k}.parquet")
        files = sorted(folder.iterdir())
        if kind in ("file", "files", "folder"):
            yield {"file": lambda: str(files[0]), "files": lambda: files, "folder": lambda: folder}[
                kind
            ]()
        elif kind == "dataset":
            yield ds.dataset(folder)
        elif kind == "reader":
            yield pa.RecordBatchReader.from_batches(
                arrow.schema, [b for p in parts for b in p.to_batches()]
            )
        elif kind == "lazyframe":
            yield in_memory("polars", frame).lazy()
        elif kind == "duckdb":
            import duckdb

            yield duckdb.read_parquet([str(file) for file in files])
        elif kind == "dask":
            import dask.dataframe as dd

            # dask turns Python objects into text, so that True becomes "True"
            objects = [
                n
                for n in frame
                if frame[n].dtype == object and not isinstance(frame[n].dropna().max(), str)
            ]
            yield dd.from_pandas(
                frame.assign(**{n: frame[n].convert_dtypes() for n in objects}), npartitions=2
            )
        else:
            yield lambda: (frame.iloc[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True))


def in_memory(kind: str, frame: pd.DataFrame) -> Any:
    """Return a frame as a table in memory of a kind."""
    if kind == "polars":
        import polars as pl

        declared = [
            n
            for n in frame
            if frame[n].dtype == "category" and isinstance(frame[n].cat.categories[0], str)
        ]
        plain = pl.from_pandas(frame.astype(dict.fromkeys(declared, object)))
        return plain.with_columns(  # a polars Categorical declares no order, an Enum does
            pl.col(n).cast(
                pl.Enum(frame[n].cat.categories.tolist())
                if frame[n].cat.ordered
                else pl.Categorical
            )
            for n in declared
        )
    if kind == "arrow":
        import pyarrow as pa

        return pa.Table.from_pandas(frame, preserve_index=False)
    return {name: frame[name].tolist() for name in frame} if kind == "dict" else frame
