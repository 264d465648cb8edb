"""Run the benchmarks: ``python -m benchmarks.run --suite fit|predict|gibbs|latency|scaling|all [--quick]``."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import SUITES

HERE = Path(__file__).resolve().parent
SETTINGS = (
    "case", "job", "problem", "args", "methods", "tolerances", "sites", "whole", "threads", "timeout", "axis", "values",
)  # fmt: skip
KEY = ("suite", "case", "value", "method", "tolerance", "threads")
COLUMNS = (
    *KEY, "job", "problem", "source", "version", "sites", "all_sites", "objective", "grad_norm",
    "user_s", "cpu_s", "wall_s", "peak_mb", "total_cpu_s", "total_wall_s", "more", "error",
)  # fmt: skip
TIMEOUT = 900
DISTRIBUTIONS = {
    "bbl": "boltzmann-bayes",
    "sklearn": "scikit-learn",
    "glum": "glum",
    "statsmodels": "statsmodels",
    "dwave": "dwave-samplers",
    "numpy": "numpy",
}


# -- what is run ------------------------------------------------------------------------------------------------------


def tasks(suite: str, quick: bool = False) -> list[dict[str, Any]]:
    """Return one task for each measurement of a suite, from config.toml."""
    with (HERE / "config.toml").open("rb") as file:
        cases = tomllib.load(file)[suite]
    out = []
    for case in cases:
        values = case.get("values", [None])
        for value in values[:2] if quick else values:
            args = {**case.get("args", {}), **({case["axis"]: value} if value is not None else {})}
            for name in case["methods"]:
                for tolerance in case.get("tolerances", [None]):
                    for threads in case.get("threads", [1]) if name.startswith("bbl") else [1]:
                        out.append(
                            {
                                "suite": suite,
                                "case": case["case"],
                                "value": value,
                                "job": case["job"],
                                "problem": case["problem"],
                                "args": args,
                                "method": name,
                                "tolerance": tolerance,
                                "threads": threads,
                                "sites": case.get("sites", 0),
                                "whole": name in case.get("whole", []),
                                "timeout": case.get("timeout", TIMEOUT),
                                "more": {k: v for k, v in case.items() if k not in SETTINGS},
                                "quick": quick,
                            }
                        )
    return out


# -- one measurement, in a process of its own -------------------------------------------------------------------------


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in this process and return its figures."""
    import benchmarks.closed_form  # these register their methods
    import benchmarks.methods
    import benchmarks.uses  # noqa: F401
    from benchmarks.measure import METHODS, REPEAT_SECONDS, Options
    from benchmarks.problems import PROBLEMS, TABLES, make_model, pick_sites

    quick, name = task["quick"], task["problem"]
    compare = None
    if task["job"] == "gibbs":
        problem, source = make_model(name, quick), "file" if not quick else "generated"
    elif name in TABLES:
        problem = TABLES[name](quick=quick, **task["args"])
        source = problem.source
    else:
        problem = PROBLEMS[name](quick=quick, **task["args"])
        source = problem.source
        compare = pick_sites(problem, min(3, task["sites"]) if quick else task["sites"])
    if quick:
        task["more"] |= {k: max(1, v // 20) for k, v in task["more"].items() if k.endswith("sweeps")}
    options = Options(
        tolerance=task["tolerance"] or 1e-6,
        threads=task["threads"],
        sites=None if task["whole"] else compare,
        compare=compare,
        repeat=0.02 if quick else REPEAT_SECONDS,
        more=task["more"],
    )
    found = METHODS[task["job"], task["method"]](problem, options)
    more = found.more | ({"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {})
    scale = more["all_sites"] / more["sites"] if "sites" in more else 1.0
    row = {k: getattr(found, k) for k in ("objective", "grad_norm", "user_s", "cpu_s", "wall_s", "peak_mb")}
    row |= {"sites": more.pop("sites", None), "all_sites": more.pop("all_sites", None), "source": source}
    return row | {"total_cpu_s": found.cpu_s * scale, "total_wall_s": found.wall_s * scale, "more": more}


def launch(task: dict[str, Any], core: int | None) -> dict[str, Any]:
    """Run one measurement in a fresh interpreter, held to one core (to all of them with more threads)."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "VECLIB"):
        env[f"{name}{'_MAXIMUM' if name == 'VECLIB' else '_NUM'}_THREADS"] = "1"
    command = [sys.executable, "-m", "benchmarks.run", "--task", json.dumps(task)]
    if core is not None and task["threads"] == 1:
        command += ["--core", str(core)]
    row = {k: task[k] for k in (*KEY, "job", "problem")} | {"version": tool_version(task["method"]), "more": {}}
    try:
        done = subprocess.run(  # noqa: S603
            command, env=env, cwd=HERE.parent, capture_output=True, text=True, timeout=task["timeout"]
        )
    except subprocess.TimeoutExpired:
        return row | {"error": f"not finished after {task['timeout']} s"}
    if done.returncode:
        return row | {"error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    return row | json.loads(done.stdout.strip().splitlines()[-1])


def tool_version(name: str) -> str:
    """Return the version of the distribution that a method's name begins with."""
    distribution = DISTRIBUTIONS[name.split("-")[0]]
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "in place" if distribution == "boltzmann-bayes" else ""


def set_core(core: int) -> None:
    """Hold this process to one core, where the system lets it (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


# -- tables -----------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, as text; none if there is no table."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def text_row(row: dict[str, Any]) -> dict[str, str]:
    """Return a row as it is written: numbers to six digits, `more` as JSON."""
    out = {}
    for name in COLUMNS:
        value = row.get(name)
        if name == "more":
            text = json.dumps(value or {}, sort_keys=True)
        elif value is None or (isinstance(value, float) and math.isnan(value)):
            text = ""
        elif isinstance(value, float):
            text = f"{value:.10g}" if name == "objective" else f"{value:.6g}"
        else:
            text = str(value)
        out[name] = text
    return out


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def merge(old: list[dict[str, str]], new: dict[str, str], order: list[tuple]) -> list[dict[str, str]]:
    """Return the table with one row replaced or added, in the order of the configuration."""
    rows = {tuple(r[k] for k in KEY): r for r in [*old, new]}
    at = {key: p for p, key in enumerate(order)}
    return [rows[k] for k in sorted((k for k in rows if k in at), key=at.__getitem__)]


def environment() -> dict[str, Any]:
    """Return what the figures depend on: processor, system, versions."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((s.split(":")[1].strip() for s in info.read_text().splitlines() if s.startswith("model name")), cpu)
    out = {"processor": f"{cpu}, {os.cpu_count()} cores", "system": f"{platform.system()} {platform.machine()}"}
    out["python"] = platform.python_version()
    for name in ("numpy", "scipy", "pandas", "scikit-learn", "glum", "statsmodels", "dwave-samplers"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def run_suite(suite: str, quick: bool, only: str, core: int | None, out: Path) -> int:
    """Run a suite, writing its table after each measurement; return the number of failures."""
    every = tasks(suite, quick)
    order = [tuple("" if t[k] is None else text_row(t)[k] for k in KEY) for t in every]
    path = out / f"{suite}.csv"
    failed = 0
    for task in every:
        label = " ".join(str(task[k]) for k in KEY if task[k] is not None)
        if only and only not in label:
            continue
        row = launch(task, core)
        failed += "error" in row
        shown = row.get("error") or f"{row['total_cpu_s']:.4g} s CPU, gradient {row['grad_norm']:.2g}"
        print(f"{label}: {shown}", flush=True)
        write_rows(path, merge(read_rows(path), text_row(row), order))
    return failed


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--suite", choices=(*SUITES, "all", "none"), default="all", help="none: only report")
    parser.add_argument("--quick", action="store_true", help="tiny problems, to see that everything works")
    parser.add_argument("--only", default="", help="only measurements whose label contains this text")
    parser.add_argument("--core", type=int, default=None, help="core to run on (default: the first allowed one)")
    parser.add_argument("--out", type=Path, default=None, help="folder of the tables (default: benchmarks/results)")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.task:
        if a.core is not None:
            set_core(a.core)
        print(json.dumps(run_task(json.loads(a.task))))
        return 0
    core = a.core
    if core is None and hasattr(os, "sched_getaffinity"):
        core = min(os.sched_getaffinity(0))
    out = a.out or (HERE.parent / "build" / "benchmarks" if a.quick else HERE / "results")
    out.mkdir(parents=True, exist_ok=True)
    suites = SUITES if a.suite == "all" else () if a.suite == "none" else (a.suite,)
    failed = sum(run_suite(suite, a.quick, a.only, core, out) for suite in suites)
    if suites:
        (out / "environment.json").write_text(json.dumps(environment() | {"quick": a.quick}, indent=1) + "\n")

    from benchmarks.plots import draw
    from benchmarks.report import write_summary

    draw(out)
    print(write_summary(out))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
