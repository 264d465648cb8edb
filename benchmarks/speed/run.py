"""Run the benchmarks: ``python -m benchmarks.run --suite fit|predict|gibbs|latency|scaling|all
[--quick]``.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

import benchmarks.speed.closed_form  # these register their methods
import benchmarks.speed.methods
import benchmarks.speed.uses  # noqa: F401
from benchmarks.report import RESULTS, as_text, update
from benchmarks.speed import SUITES, config
from benchmarks.speed.measure import METHODS, REPEAT_SECONDS, Options
from benchmarks.speed.plots import draw
from benchmarks.speed.problems import PROBLEMS, Problem, make_model, pick_sites
from benchmarks.speed.summary import write_summary

ROOT = Path(__file__).resolve().parents[2]
KEY = ["suite", "case", "value", "method", "tolerance", "threads"]
COLUMNS = (
    *KEY,
    "job",
    "problem",
    "source",
    "version",
    "sites",
    "all_sites",
    "objective",
    "grad_norm",
    "user_s",
    "cpu_s",
    "wall_s",
    "peak_mb",
    "total_cpu_s",
    "total_wall_s",
    "more",
    "error",
)
TIMEOUT = 900
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "glum", "statsmodels", "dwave-samplers")
DISTRIBUTIONS = {"bbl": "boltzmann-bayes", "sklearn": "scikit-learn", "dwave": "dwave-samplers"}


# -- what is run -----------------------------------------------------------------------------------


def tasks(suite: str, quick: bool = False) -> list[dict[str, Any]]:
    """Return one task for each measurement of a suite, from config.toml."""
    out = []
    for case in config()[suite]:
        shared = {"suite": suite, "quick": quick} | {
            k: case.pop(k) for k in ("case", "job", "problem")
        }
        shared |= {"sites": case.pop("sites", 0), "timeout": case.pop("timeout", TIMEOUT)}
        methods, whole, args = case.pop("methods"), case.pop("whole", []), case.pop("args", {})
        axis, values = case.pop("axis", None), case.pop("values", [None])
        tolerances, counts = case.pop("tolerances", [None]), case.pop("threads", [1])
        for value, name, tolerance in itertools.product(
            values[:2] if quick else values, methods, tolerances
        ):
            task = shared | {
                "value": value,
                "args": args | ({axis: value} if axis else {}),
                "method": name,
            }
            task |= {"tolerance": tolerance, "whole": name in whole, "more": case}
            out += [task | {"threads": k} for k in (counts if name.startswith("bbl") else [1])]
    return out


# -- one measurement, in a process of its own ------------------------------------------------------


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in this process, held to one core if it has one thread, and return its
    figures.
    """
    if task.get("core") is not None and task["threads"] == 1:
        os.sched_setaffinity(0, {task["core"]})
    quick, method = task["quick"], METHODS[task["job"], task["method"]]
    make = (
        partial(make_model, task["problem"])
        if task["job"] == "gibbs"
        else PROBLEMS[task["problem"]]
    )
    problem = make(quick=quick, **task["args"])
    count = min(3, task["sites"]) if quick else task["sites"]
    compare = pick_sites(problem, count) if isinstance(problem, Problem) else None
    options = Options(
        tolerance=task["tolerance"] or 1e-6,
        threads=task["threads"],
        sites=None if task["whole"] else compare,
        compare=compare,
        repeat=0.02 if quick else REPEAT_SECONDS,
        more={
            k: max(1, v // 20) if quick and k.endswith("sweeps") else v
            for k, v in task["more"].items()
        },
    )
    found = method(problem, options)
    more = found.more | ({"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {})
    scale = more["all_sites"] / more["sites"] if "sites" in more else 1.0
    row = (
        vars(found)
        | {k: more.pop(k, None) for k in ("sites", "all_sites")}
        | {"source": problem.source}
    )
    return row | {
        "total_cpu_s": found.cpu_s * scale,
        "total_wall_s": found.wall_s * scale,
        "more": more,
    }


def launch(task: dict[str, Any], core: int | None) -> dict[str, Any]:
    """Run one measurement in a fresh interpreter."""
    env = dict(
        os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    for name in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "NUMEXPR_NUM", "VECLIB_MAXIMUM"):
        env[f"{name}_THREADS"] = "1"
    command = [sys.executable, "-m", "benchmarks.run", "--task", json.dumps(task | {"core": core})]
    tool = task["method"].split("-")[0]
    row = {k: task[k] for k in (*KEY, "job", "problem")} | {
        "version": installed(DISTRIBUTIONS.get(tool, tool))
    }
    try:
        done = subprocess.run(  # noqa: S603
            command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=task["timeout"]
        )
    except subprocess.TimeoutExpired:
        return row | {"error": f"not finished after {task['timeout']} s"}
    if done.returncode:
        return row | {
            "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        }
    return row | json.loads(done.stdout.strip().splitlines()[-1])


def installed(name: str) -> str:
    """Return the version of a distribution, "" if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "in place" if name == "boltzmann-bayes" else ""


# -- tables ----------------------------------------------------------------------------------------


def table_row(row: dict[str, Any]) -> pd.DataFrame:
    """Return a row as it is stored: more digits of the objective, and the other figures as JSON."""
    objective = row.get("objective")
    text = "" if objective is None or objective != objective else f"{objective:.10g}"
    more = json.dumps(row.get("more", {}), sort_keys=True)
    return pd.DataFrame([row | {"objective": text, "more": more}], columns=COLUMNS)


def environment() -> dict[str, Any]:
    """Return what the figures depend on: processor, system, versions."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (
                s.split(":")[1].strip()
                for s in info.read_text().splitlines()
                if s.startswith("model name")
            ),
            cpu,
        )
    out = {
        "processor": f"{cpu}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}",
    }
    out["python"] = platform.python_version()
    versions = {name: installed(name) for name in PACKAGES}
    return out | {name: found for name, found in versions.items() if found}


def run_suite(suite: str, quick: bool, only: str, core: int | None, out: Path) -> int:
    """Run a suite, writing its table after each measurement; return the number of failures."""
    every = tasks(suite, quick)
    order = list(as_text(pd.DataFrame(every)[KEY]).itertuples(index=False, name=None))
    failed = 0
    for task in every:
        label = " ".join(str(task[k]) for k in KEY if task[k] is not None)
        if only and only not in label:
            continue
        row = launch(task, core)
        failed += "error" in row
        shown = (
            row.get("error") or f"{row['total_cpu_s']:.4g} s CPU, gradient {row['grad_norm']:.2g}"
        )
        print(f"{label}: {shown}", flush=True)
        update(out / f"{suite}.csv", table_row(row), KEY, order)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument(
        "--suite", choices=(*SUITES, "all", "none"), default="all", help="none: only report"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny problems, to see that everything works"
    )
    parser.add_argument(
        "--only", default="", help="only measurements whose label contains this text"
    )
    parser.add_argument(
        "--core", type=int, default=None, help="core to run on (default: the first allowed one)"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="folder of the tables (default: benchmarks/results)"
    )
    parser.add_argument("--task", help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    if a.task:
        print(json.dumps(run_task(json.loads(a.task))))
        return 0
    core = None  # where processes cannot be held to one
    if hasattr(os, "sched_setaffinity"):
        core = min(os.sched_getaffinity(0)) if a.core is None else a.core
    out = a.out or (ROOT / "build" / "benchmarks" if a.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    suites = {"all": SUITES, "none": ()}.get(a.suite, (a.suite,))
    failed = sum(run_suite(suite, a.quick, a.only, core, out) for suite in suites)
    if suites:
        (out / "environment.json").write_text(
            json.dumps(environment() | {"quick": a.quick}, indent=1) + "\n"
        )
    draw(out)
    print(write_summary(out))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
