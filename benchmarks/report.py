"""The tables of results as one Markdown page: targets, then every case with its ratios."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import SUITES

__all__ = ["Results", "write_summary"]

HERE = Path(__file__).resolve().parent
NUMBERS = (
    "value", "tolerance", "threads", "sites", "all_sites", "objective", "grad_norm", "user_s", "cpu_s", "wall_s",
    "peak_mb", "total_cpu_s", "total_wall_s",
)  # fmt: skip
LIBRARIES = ("sklearn-lbfgs", "sklearn-newton-cholesky", "glum-lbfgs", "glum-irls")
R_FILES = ("2,000 x 50 x 4", "10,000 x 50 x 2", "1,000 x 100 x 2", "1,000 x 200 x 2")


class Results:
    """All measurements of a folder, and the quoted figures."""

    def __init__(self, folder: Path):
        self.rows: list[dict[str, Any]] = []
        for path in sorted(folder / f"{suite}.csv" for suite in SUITES):
            if not path.exists():
                continue
            with path.open(newline="", encoding="utf-8") as file:
                self.rows += [self._parsed(row) for row in csv.DictReader(file)]
        path = folder / "environment.json"
        self.environment = json.loads(path.read_text()) if path.exists() else {}
        self.quick = bool(self.environment.pop("quick", False))
        self.quoted: list[dict[str, Any]] = []
        if not self.quick:  # quoted figures and targets are for the full sizes
            with (HERE / "quoted.csv").open(newline="", encoding="utf-8") as file:
                self.quoted = [row | {"cpu_s": float(row["cpu_s"])} for row in csv.DictReader(file)]

    @staticmethod
    def _parsed(row: dict[str, str]) -> dict[str, Any]:
        numbers = {k: float(row[k]) if row[k] else np.nan for k in NUMBERS}
        return row | numbers | {"more": json.loads(row["more"] or "{}")}

    def of(self, **want: Any) -> list[dict[str, Any]]:
        """Return the successful rows whose columns have the given values."""
        return [r for r in self.rows if not r["error"] and all(r[k] == v for k, v in want.items())]

    def one(self, column: str, **want: Any) -> float:
        """Return one figure, nan where it was not measured."""
        found = self.of(**want)
        if not found:
            return np.nan
        value = found[0].get(column, found[0]["more"].get(column))
        return np.nan if value is None else float(value)

    def quote(self, case: str, tool: str) -> float:
        """Return a quoted number of seconds."""
        return next((q["cpu_s"] for q in self.quoted if q["case"] == case and q["tool"] == tool), np.nan)

    # -- figures of the targets

    def speedup(self, case: str, tolerance: float) -> float:
        """Return the CPU time of the fastest node-wise library over the package's, whole problem, same tolerance."""
        key = {"suite": "fit", "case": case, "tolerance": tolerance, "threads": 1.0}
        times = [r["total_cpu_s"] for name in LIBRARIES for r in self.of(method=name, **key)]
        return min(times, default=np.nan) / self.one("total_cpu_s", method="bbl", **key)

    def r_speedup(self) -> float:
        """Return the least ratio to R's bbl over its pseudo-likelihood files of 50 predictors and more."""
        ratios = [
            self.quote(f"pseudo, {f}", "R bbl") / self.one("cpu_s", suite="latency", case=f"pseudo, {f}")
            for f in R_FILES
        ]
        return float(np.min(ratios))

    def over_floor(self, name: str) -> float:
        """Return the time of one gradient over the quoted floor."""
        case = f"gradient, {name}"
        return self.one("cpu_s", suite="scaling", case=case, method="bbl") / self.quote(case, "floor, float64")

    def two_threads(self, case: str) -> float:
        """Return elapsed time with one thread over that with two."""
        key = {"suite": "fit", "case": case, "method": "bbl", "tolerance": 1e-6}
        return self.one("wall_s", threads=1.0, **key) / self.one("wall_s", threads=2.0, **key)

    def memory(self, case: str) -> float:
        """Return peak memory over codes + parameters + optimiser state."""
        key = {"suite": "fit", "case": case, "method": "bbl", "tolerance": 1e-6, "threads": 1.0}
        return self.one("peak_mb", **key) / self.one("expected_mb", **key)


Target = tuple[str, Callable[[Results], float], str, float, str]


def targets() -> list[Target]:
    """Return what is aimed at: text, figure, ">=" or "<=", limit, unit."""
    out: list[Target] = []
    for case, limit in (("W1", 30), ("W5", 30), ("W2", 40), ("W3", 40)):
        for tolerance in (1e-6, 1e-4):
            text = f"{case}: times faster than the best node-wise library, tolerance {tolerance:g}"
            out.append((text, lambda r, c=case, t=tolerance: r.speedup(c, t), ">=", limit, "x"))
    out.append(
        (
            "times faster than R bbl on its files of 50 and more predictors (the least)",
            Results.r_speedup,
            ">=",
            500,
            "x",
        )
    )

    def cpu(text: str, limit: float, unit: str = "s", column: str = "cpu_s", **key: Any) -> None:
        scale = 1e3 if unit == "ms" else 1.0
        out.append((text, lambda r: scale * r.one(column, method="bbl", threads=1.0, **key), "<=", limit, unit))

    cpu("W4 pseudo-likelihood", 6, suite="fit", case="W4", tolerance=1e-6)
    cpu("full MNIST pseudo-likelihood, ten groups, lambda 0.1", 60, suite="fit", case="MNIST", tolerance=1e-6)
    cpu("full MNIST mean field", 2, suite="fit", case="MNIST, mean field")
    for name, limit in (("W1", 2.5), ("W3", 2.5), ("W4", 2.5), ("W2", 4.0)):
        out.append((f"one gradient of {name} over the floor", lambda r, n=name: r.over_floor(n), "<=", limit, "x"))
    for case in ("W2", "W4", "MNIST"):
        out.append((f"{case}: two threads over one, elapsed", lambda r, c=case: r.two_threads(c), ">=", 1.8, "x"))
    for case in ("W1", "W2", "W3", "W4", "MNIST"):
        text = f"{case}: peak memory over codes + parameters + optimiser state"
        out.append((text, lambda r, c=case: r.memory(c), "<=", 2.0, "x"))
    titanic = "Titanic, Class*Sex + Sex*Age, counts"
    cpu("Titanic whole call, elapsed", 5, "ms", "wall_s", suite="latency", case=titanic)
    cpu("import bbl, elapsed", 0.6, "s", "wall_s", suite="latency", case="import bbl")
    for case, limit in (("100 x 2 levels", 3e8), ("784 x 2 levels", 5e7), ("50 x 4 levels", 1e7)):
        key = {"suite": "gibbs", "case": case, "method": "bbl"}
        out.append(
            (f"Gibbs updates per second, {case}", lambda r, k=key: r.one("updates_per_s", **k), ">=", limit, "/s")
        )
    rows = "1,000,000 rows x 50 x 4, 2 groups"
    cpu("prediction of 1,000,000 rows x 50 x 4 levels x 2 groups", 1, suite="predict", case=rows)
    return out


def number(value: float) -> str:
    """Return a number to three digits."""
    if not np.isfinite(value):
        return ""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a Markdown table: the first two columns to the left, the others to the right."""
    align = ["---" if c < 1 else "---:" for c in range(len(head))]
    return ["| " + " | ".join(r) + " |" for r in (head, align, *rows)] + [""]


def target_table(results: Results) -> list[str]:
    """Return targets that were measured, and whether they are met."""
    rows = []
    for text, figure, sign, limit, unit in targets():
        value = figure(results)
        if np.isfinite(value):
            met = value >= limit if sign == ">=" else value <= limit
            rows.append([text, f"{sign} {number(limit)} {unit}", f"{number(value)} {unit}", "yes" if met else "**no**"])
    return ["## Targets", "", *table(["", "target", "measured", "met"], rows)] if rows else []


def _name(row: dict[str, Any]) -> str:
    partial = row["sites"] < row["all_sites"]
    error = row["more"].get("scaled_relative_error")
    threads = f", {row['threads']:.0f} threads" if row["threads"] > 1 else ""
    spread = f" ± {100 * error:.0f}%" if error else ""
    return (
        row["method"]
        + threads
        + (f" ({row['sites']:.0f} of {row['all_sites']:.0f} sites, scaled{spread})" if partial else "")
    )


def case_tables(results: Results, suite: str) -> list[str]:
    """Return one table for each case of a suite; ratios are CPU time over that of bbl at the same tolerance."""
    out: list[str] = []
    for case in dict.fromkeys(r["case"] for r in results.rows if r["suite"] == suite):
        rows = [r for r in results.rows if r["suite"] == suite and r["case"] == case]
        body = []
        for r in rows:
            if r["error"]:
                body.append([_name(r), _setting(r), r["error"], *[""] * 5])
                continue
            same = {"suite": suite, "case": case, "threads": 1.0} | {
                k: r[k] for k in ("tolerance", "value") if np.isfinite(r[k])
            }
            base = [b for b in results.of(**same) if b["method"] in ("bbl", "bbl-grid")]
            ratio = r["total_cpu_s"] / base[0]["total_cpu_s"] if base else np.nan
            if "updates_per_s" in r["more"] and base:
                ratio = base[0]["more"]["updates_per_s"] / r["more"]["updates_per_s"]
            rate = r["more"].get("updates_per_s", np.nan)
            cpu = f"{rate:.2e}/s" if np.isfinite(rate) else number(r["total_cpu_s"])
            objective = f"{r['objective']:.8f}" if np.isfinite(r["objective"]) else ""
            wall = number(r["total_wall_s"])
            body.append(
                [
                    _name(r),
                    _setting(r),
                    objective,
                    number(r["grad_norm"]),
                    cpu,
                    wall,
                    number(r["peak_mb"]),
                    number(ratio),
                ]
            )
        for q in results.quoted:
            if q["suite"] == suite and q["case"] == case:
                base = [b for b in results.of(suite=suite, case=case, threads=1.0, method="bbl")][-1:]
                ratio = q["cpu_s"] / base[0]["cpu_s"] if base else np.nan
                body.append(
                    [f"{q['tool']} (quoted: {q['remark']})", "", "", "", number(q["cpu_s"]), "", "", number(ratio)]
                )
        files = {r["source"] for r in rows if r["source"]}
        head = ["method", "tolerance", "objective", "gradient", "CPU s", "wall s", "peak MB", "ratio"]
        if suite == "gibbs":
            head[4], head[2] = "updates", "mean energy"
        if suite == "scaling":
            head[1] = case.split(", ")[-1] if not case.startswith("gradient, W") else ""
        if suite in ("latency", "predict"):
            head[2] = {"latency": "objective or score", "predict": "mean certainty"}[suite]
        out += [f"### {case}" + (" (generated data)" if files == {"generated"} else ""), "", *table(head, body)]
    return [f"## {suite}", "", *out] if out else []


def _setting(row: dict[str, Any]) -> str:
    value = row["tolerance"] if np.isfinite(row["tolerance"]) else row["value"]
    return f"{value:g}" if np.isfinite(value) else ""


def exponent(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of ln y against ln x over the upper half of x, where fixed costs have faded."""
    upper = x >= np.sqrt(x.min() * x.max())
    return float(np.polyfit(np.log(x[upper]), np.log(y[upper]), 1)[0])


def exponent_table(results: Results) -> list[str]:
    """Return the fitted exponents of the scaling runs."""
    rows = []
    for case in ("n", "m", "L", "gradient, m", "gradient, L"):
        for name in ("bbl", "numpy"):
            found = results.of(suite="scaling", case=case, method=name)
            if len(found) > 3:
                x, y = (np.array([r[k] for r in found]) for k in ("value", "cpu_s"))
                rows.append([f"{case}: {name}", f"{exponent(x, y):.2f}"])
    return ["## Exponents", "", "CPU time grows as this power, fitted to the upper half of the range.", "",
            *table(["", "exponent"], rows)] if rows else []  # fmt: skip


NOTES = """\
`bbl` is this package. Times are from codes (or, under latency, from the data frame) to the solution, set-up included,
on one core unless threads are named; **ratio** is CPU time over that of `bbl` at the same tolerance. CPU seconds are
user + system; short runs are medians. Objective: mean over sites of the mean negative log-likelihood given all other
predictors + lambda/2 |J|^2, fields free, computed by the same code from every tool's solution; with more than two
levels scikit-learn fits, and is reported at, its own full-gauge objective (a row of coefficients for every level, all
of them penalised), which is a little lower. Gradient: the largest norm over sites at the solution. Methods that fit a
random subset of sites are scaled up to all of them, with the sampling error of that; objectives of a case are those of
the subset for all its methods. `bbl-single` is the package in single precision, which stops at a gradient norm of 1e-5
at the least. Tools marked as quoted cannot be installed by pip and were not run here:
their figures are of earlier runs.
"""


def write_summary(folder: Path) -> Path:
    """Write summary.md into `folder` and return its path."""
    results = Results(folder)
    lines = ["# Benchmark results", ""]
    lines += [", ".join(f"{k} {v}" for k, v in results.environment.items()) + ".", "", NOTES]
    lines += ["Tiny problems: only a check that everything runs.", ""] if results.quick else target_table(results)
    for plot in sorted(folder.glob("*.png")):
        lines += [f"![{plot.stem}]({plot.name})", ""]
    for suite in ("fit", "predict", "gibbs", "latency"):
        lines += case_tables(results, suite)
    lines += exponent_table(results) + case_tables(results, "scaling")
    path = folder / "summary.md"
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return path
