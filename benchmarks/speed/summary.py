"""The tables of results as one Markdown page: targets, then every case with its ratios."""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.report import number, table, write_page
from benchmarks.speed import SUITES, config

HERE = Path(__file__).resolve().parent
TEXTS = ["suite", "case", "method", "job", "problem", "source", "version", "more", "error"]
LIBRARIES = ("sklearn-lbfgs", "sklearn-newton-cholesky", "glum-lbfgs", "glum-irls")


class Results:
    """All measurements of a folder, and the quoted figures."""

    def __init__(self, folder: Path):
        self.rows: list[dict[str, Any]] = []
        for path in filter(Path.exists, (folder / f"{suite}.csv" for suite in SUITES)):
            frame = pd.read_csv(path, dtype=str, keep_default_na=False)
            numbers = frame.drop(columns=TEXTS).replace("", "nan").astype(float)
            self.rows += (
                frame[TEXTS]
                .assign(more=frame["more"].map(json.loads), **numbers)
                .to_dict("records")
            )
        path = folder / "environment.json"
        self.environment = json.loads(path.read_text()) if path.exists() else {}
        self.quick = bool(self.environment.pop("quick", False))
        # quoted figures and targets are for the full sizes
        self.quoted = [] if self.quick else pd.read_csv(HERE / "quoted.csv").to_dict("records")

    def of(self, **want: Any) -> list[dict[str, Any]]:
        """Return the successful rows whose columns have the given values."""
        return [r for r in self.rows if not r["error"] and all(r[k] == v for k, v in want.items())]

    def one(self, column: str, **want: Any) -> float:
        """Return one figure, nan where it was not measured."""
        found = next(iter(self.of(**want)), {"more": {}})
        return float(found.get(column, found["more"].get(column, np.nan)))

    def line(self, case: str, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what varies in a case of the suite "scaling", and the CPU seconds."""
        rows = self.of(suite="scaling", case=case, method=method)
        return np.array([r["value"] for r in rows]), np.array([r["cpu_s"] for r in rows])

    def quote(self, case: str, tool: str) -> float:
        """Return a quoted number of seconds."""
        return next(
            (q["cpu_s"] for q in self.quoted if q["case"] == case and q["tool"] == tool), np.nan
        )

    # -- figures of the targets

    def own(self, unit: str = "s", column: str = "cpu_s", **key: Any) -> float:
        """Return a figure of the package on one thread."""
        return (1e3 if unit == "ms" else 1.0) * self.one(column, method="bbl", threads=1.0, **key)

    def speedup(self, case: str, tolerance: float) -> float:
        """Return the CPU time of the fastest node-wise library over the package's, whole problem,
        same tolerance.
        """
        key = {"suite": "fit", "case": case, "tolerance": tolerance}
        times = [self.one("total_cpu_s", method=name, threads=1.0, **key) for name in LIBRARIES]
        return min((t for t in times if np.isfinite(t)), default=np.nan) / self.own(
            column="total_cpu_s", **key
        )

    def r_speedup(self, cases: list[str]) -> float:
        """Return the least ratio to R's bbl over these cases."""
        ratios = [
            self.quote(case, "R bbl") / self.own(suite="latency", case=case) for case in cases
        ]
        return float(np.min(ratios))

    def over_floor(self, case: str, method: str = "bbl") -> float:
        """Return the time of one gradient over the quoted floor."""
        case = f"gradient, {case}"
        return self.one("cpu_s", suite="scaling", case=case, method=method) / self.quote(
            case, "floor, float64"
        )

    def two_threads(self, case: str) -> float:
        """Return elapsed time with one thread over that with two."""
        key = {"suite": "fit", "case": case, "method": "bbl", "tolerance": 1e-6}
        return self.one("wall_s", threads=1.0, **key) / self.one("wall_s", threads=2.0, **key)

    def memory(self, case: str) -> float:
        """Return peak memory over codes + parameters + optimiser state."""
        key = {"suite": "fit", "case": case, "tolerance": 1e-6}
        return self.own(column="peak_mb", **key) / self.own(column="expected_mb", **key)


def targets() -> Iterator[tuple[str, Callable[[Results], float], str, float, str]]:
    """Yield what is aimed at: text, figure, ">=" or "<=", limit, unit."""
    for entry in config()["targets"]:
        text, figure, unit = (
            entry.pop("text"),
            getattr(Results, entry.pop("figure")),
            entry.pop("unit"),
        )
        sign, bound = (">=", "at_least") if "at_least" in entry else ("<=", "at_most")
        limit = entry.pop(bound)
        given = {"unit": unit} if unit == "ms" else {}
        lists = {
            k: v if isinstance(v, list) else [v]
            for k, v in entry.items()
            if k in ("case", "tolerance")
        }
        for values in itertools.product(*lists.values()):
            key = entry | dict(zip(lists, values, strict=True))
            yield text.format(**key), partial(figure, **given, **key), sign, limit, unit


def target_table(results: Results) -> list[str]:
    """Return targets that were measured, and whether they are met."""
    rows = []
    for text, figure, sign, limit, unit in targets():
        value = figure(results)
        if np.isfinite(value):
            met = value >= limit if sign == ">=" else value <= limit
            rows.append(
                [
                    text,
                    f"{sign} {number(limit)} {unit}",
                    f"{number(value)} {unit}",
                    "yes" if met else "**no**",
                ]
            )
    return ["## Targets", "", *table(["", "target", "measured", "met"], rows)] if rows else []


def _name(row: dict[str, Any]) -> str:
    name = row["method"] + (f", {row['threads']:.0f} threads" if row["threads"] > 1 else "")
    error = row["more"].get("scaled_relative_error")
    if row["sites"] < row["all_sites"]:
        spread = f" ± {100 * error:.0f}%" if error else ""
        name += f" ({row['sites']:.0f} of {row['all_sites']:.0f} sites, scaled{spread})"
    return name


def _measured(row: dict[str, Any], results: Results) -> list[str]:
    """Return the cells of one measurement; the ratio is to bbl in the same setting."""
    if row["error"]:
        return [_name(row), _setting(row), row["error"], *[""] * 5]
    same = {k: row[k] for k in ("tolerance", "value") if np.isfinite(row[k])}
    same |= {"suite": row["suite"], "case": row["case"], "threads": 1.0}
    rate, own = row["more"].get("updates_per_s"), "bbl-grid" if row["job"] == "crossval" else "bbl"
    if rate:
        cpu, ratio = f"{rate:.2e}/s", results.one("updates_per_s", method=own, **same) / rate
    else:
        cpu, ratio = (
            number(row["total_cpu_s"]),
            row["total_cpu_s"] / results.one("total_cpu_s", method=own, **same),
        )
    objective = f"{row['objective']:.8f}" if np.isfinite(row["objective"]) else ""
    figures = [number(row["total_wall_s"]), number(row["peak_mb"]), number(ratio)]
    return [_name(row), _setting(row), objective, number(row["grad_norm"]), cpu, *figures]


def case_tables(results: Results, suite: str) -> list[str]:
    """Return one table for each case of a suite; ratios are CPU time over that of bbl at the same
    tolerance.
    """
    out: list[str] = []
    for case in dict.fromkeys(r["case"] for r in results.rows if r["suite"] == suite):
        rows = [r for r in results.rows if r["suite"] == suite and r["case"] == case]
        body = [_measured(row, results) for row in rows]
        for q in results.quoted:
            if q["suite"] == suite and q["case"] == case:
                own = [
                    b["cpu_s"]
                    for b in results.of(suite=suite, case=case, threads=1.0, method="bbl")
                ]
                ratio = number(q["cpu_s"] / own[-1]) if own else ""
                body.append(
                    [
                        f"{q['tool']} (quoted: {q['remark']})",
                        "",
                        "",
                        "",
                        number(q["cpu_s"]),
                        "",
                        "",
                        ratio,
                    ]
                )
        head = [
            "method",
            "tolerance",
            "objective",
            "gradient",
            "CPU s",
            "wall s",
            "peak MB",
            "ratio",
        ]
        if suite == "gibbs":
            head[4] = "updates"
        if suite == "scaling":
            head[1] = case.split(", ")[-1] if not case.startswith("gradient, W") else ""
        names = {
            "gibbs": "mean energy",
            "latency": "objective or score",
            "predict": "mean certainty",
        }
        head[2] = names.get(suite, head[2])
        generated = {r["source"] for r in rows if r["source"]} == {"generated"}
        out += [f"### {case}" + (" (generated data)" if generated else ""), "", *table(head, body)]
    return [f"## {suite}", "", *out] if out else []


def _setting(row: dict[str, Any]) -> str:
    value = row["tolerance"] if np.isfinite(row["tolerance"]) else row["value"]
    return f"{value:g}" if np.isfinite(value) else ""


def exponent(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of ln y against ln x over the upper half of x, where fixed costs have
    faded.
    """
    upper = x >= np.sqrt(x.min() * x.max())
    return float(np.polyfit(np.log(x[upper]), np.log(y[upper]), 1)[0])


def exponent_table(results: Results) -> list[str]:
    """Return the fitted exponents of the scaling runs."""
    rows = []
    for case in ("n", "m", "L", "gradient, m", "gradient, L"):
        for name in ("bbl", "numpy"):
            x, y = results.line(case, name)
            if len(x) > 3:
                rows.append([f"{case}: {name}", f"{exponent(x, y):.2f}"])
    text = "CPU time grows as this power, fitted to the upper half of the range."
    return ["## Exponents", "", text, "", *table(["", "exponent"], rows)] if rows else []


def write_summary(folder: Path) -> Path:
    """Write summary.md into `folder` and return its path."""
    results = Results(folder)
    machine = ", ".join(f"{k} {v}" for k, v in results.environment.items())
    lines = [
        "# Benchmark results",
        "",
        machine + ".",
        "",
        (HERE / "notes.md").read_text(encoding="utf-8"),
    ]
    lines += (
        ["Tiny problems: only a check that everything runs.", ""]
        if results.quick
        else target_table(results)
    )
    for plot in sorted(folder.glob("*.png")):
        lines += [f"![{plot.stem}]({plot.name})", ""]
    for suite in ("fit", "predict", "gibbs", "latency"):
        lines += case_tables(results, suite)
    lines += exponent_table(results) + case_tables(results, "scaling")
    return write_page(folder / "summary.md", lines)
