"""Pseudo-likelihood of data read in batches: passes, gradients, CPU; two workers of Dask, one of them lost.

A part of ``python -m benchmarks.scale``; alone, ``python -m benchmarks.scale_pseudo``, with a page of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.report import as_text, command, number, table, write_page

CHUNK = 250_000
TASKS = {"lambda 1e-2": (1e-2, 4, 0.0), "lambda 1e-5": (1e-5, 4, 0.0), "rare levels": (1e-5, 6, 1.2)}  # levels, skew
WIDE = ("coins", "independent", "factors")
WAYS = ("memory", "batches", "two processes", "one killed")
BARS = "CPU 1.2 of memory, of one process for two; theta 1e-8 (lambda 1e-2); passes 10 (rare levels 15)"


def write_batches(path: Path, n: int, batch: Callable[[int], dict[str, Any]]) -> Path:
    """Write `n` rows to a Parquet file, some at a time: ``batch(size)`` are columns as dictionary arrays."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for first in range(0, n, CHUNK):
        columns = batch(min(CHUNK, n - first))
        rows = pa.table({name: column.cast("string") for name, column in columns.items()})
        writer = writer or pq.ParquetWriter(path, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
    return path


def write_rows(path: Path, n: int, levels: int, skew: float, m: int = 20) -> Path:
    """Write `n` rows of a response and `m` chained predictors, strings, to a Parquet file; `skew` makes levels rare."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    shares = np.exp(-skew * np.arange(levels))
    cuts, names = np.cumsum(shares / shares.sum())[:-1], [f"level {a}" for a in range(levels)]

    def batch(size: int) -> dict[str, Any]:
        y = rng.integers(2, size=size)
        columns, last = {"y": pa.DictionaryArray.from_arrays(y.astype(np.int8), ["no", "yes"])}, y
        for i in range(m):
            own = np.searchsorted(cuts, rng.random(size))
            copied = rng.random(size) < np.where(y, 0.2, 0.35)
            own[copied] = last[copied]
            columns[f"x{i}"], last = pa.DictionaryArray.from_arrays(own.astype(np.int8), names), own
        return columns

    return write_batches(path, n, batch)


def used() -> float:
    """Return the user seconds of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def one_way(path: str, how: str, lambda_: float, out: str) -> dict[str, Any]:
    """Fit all pairs in one of the `WAYS`; return what it took, and write the parameters."""
    import bbl

    def fitted(data: Any, **where: Any) -> dict[str, Any]:
        fit = bbl.bbl("y ~ .^2", data, lambda_=lambda_, n_jobs=1, verbose=0, **where)
        np.save(out, fit.parameters.theta)
        fits = fit.estimate.fits
        passes = max(int(own.state["streamed"][2]) if "streamed" in own.state else 0 for own in fits)
        return {"passes": passes, "gradient": max(float(own.grad_norm.max()) for own in fits)}

    if how in ("memory", "batches"):
        before = used()
        found = fitted(pd.read_parquet(path) if how == "memory" else path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"user_s": used() - before, "peak_mb": peak, **found}
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "bbl")
        before = used() + sum(client.run(used).values())
        if how == "one killed":
            victim = next(iter(client.run(os.getpid).values()))
            threading.Timer(10.0, os.kill, (victim, signal.SIGKILL)).start()
        found = fitted(path, client=client)
        took = used() + sum(client.run(used).values()) - before
        return {"user_s": np.nan if how == "one killed" else took, "peak_mb": np.nan, **found}


def compare(n: int, folder: Path) -> pd.DataFrame:
    """Return one row for each task and way."""
    rows = []
    for task, (lambda_, levels, skew) in TASKS.items():
        path = write_rows(folder / "rows.parquet", n, levels, skew)
        for how in WAYS if task == "lambda 1e-2" else WAYS[:2]:
            out = folder / f"{how}.npy"
            call = [sys.executable, "-m", "benchmarks.scale_pseudo", "--one", str(path), how, str(lambda_), str(out)]
            done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603  # our own command
            found, theta = json.loads(done.stdout.splitlines()[-1]), np.load(out)
            gap = np.abs(theta - np.load(folder / "memory.npy")).max()
            same = how == "one killed" and theta.tobytes() == np.load(folder / "two processes.npy").tobytes()
            rows.append({"task": task, "rows": n, "how": how, **found, "difference": gap, "same bits": same})
            print(rows[-1], file=sys.stderr)
        path.unlink()
    return pd.DataFrame(rows)


def wide_rows(path: Path, kind: str, m: int = 1000, n: int = 5000) -> Path:
    """Write a response and `m` binary predictors, by themselves or with 8 common factors, to a Parquet file."""
    rng = np.random.default_rng(0)
    if kind == "factors":
        scores = rng.normal(size=(n, 8)) @ rng.normal(0.0, 0.5, (8, m)) + rng.normal(0.0, 0.5, m)
        codes = scores + rng.logistic(size=(n, m)) > 0.0
    else:
        codes = rng.random((n, m)) < (0.5 if kind == "coins" else rng.uniform(0.2, 0.8, m))
    frame = pd.DataFrame(codes.astype(np.uint8), columns=[f"x{i}" for i in range(m)])
    frame.insert(0, "y", np.where(rng.integers(2, size=n), "yes", "no"))
    frame.to_parquet(path)
    return path


def one_wide(path: str, lambda_: float) -> dict[str, Any]:
    """Fit all pairs of a wide table, two groups and the pooled fit; return what it took and whether it converged."""
    import bbl

    data, before = pd.read_parquet(path), used()
    fits = bbl.bbl("y ~ .^2", data, lambda_=lambda_, n_jobs=1, verbose=0).estimate.fits
    steps = max(int(own.n_iter.max()) for own in fits)
    gradient = max(float(own.grad_norm.max()) for own in fits)
    return {"user_s": used() - before, "iterations": steps, "gradient": gradient}


def compare_wide(folder: Path, lambda_: float = 1e-5) -> pd.DataFrame:
    """Return one row for each kind of wide table."""
    rows = []
    for kind in WIDE:
        path = wide_rows(folder / "wide.parquet", kind)
        call = [sys.executable, "-m", "benchmarks.scale_pseudo", "--wide", str(path), str(lambda_)]
        done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603  # our own command
        rows.append({"predictors": kind, **json.loads(done.stdout.splitlines()[-1])})
        print(rows[-1], file=sys.stderr)
        path.unlink()
    return pd.DataFrame(rows)


def wide_page(rows: pd.DataFrame) -> list[str]:
    """Return the part of the page on wide tables."""
    body = [
        [own.predictors, number(own.user_s), str(own.iterations), number(own.gradient)]
        for own in rows.itertuples(index=False)
    ]
    return [
        "## 1,000 binary predictors",
        "",
        "5,000 rows in two groups, in memory; all pairs, `lambda_=1e-5`; two groups and the pooled fit; one thread.",
        "Predictors are coins, independent with shares of .2 to .8, or have eight factors in common.",
        "",
        *table(["predictors", "user s", "iterations at most", "gradient"], body),
    ]


def page(rows: pd.DataFrame) -> list[str]:
    """Return the page of the results."""
    body = []
    for own in rows.itertuples(index=False):
        bits = "same bits" if own[-1] else ""
        numbers = [number(own.user_s), number(own.peak_mb), str(own.passes or ""), number(own.gradient)]
        body.append([own.task, f"{own.rows:,}", own.how, *numbers, number(own.difference), bits])
    head = ["task", "rows", "how", "user s", "peak MB", "passes", "gradient", "difference in theta", ""]
    return [
        "## Pseudo-likelihood",
        "",
        "A response and 20 predictors, all strings, 4 levels (rare ones: 6, the last in 2 of 1,000 rows); all",
        "pairs; two groups and the pooled fit; one thread; reading included. Workers of Dask are two processes on the",
        "same computer, all user seconds together.",
        "",
        *table(head, body),
        f"Bars: {BARS}.",
    ]


def main() -> None:
    """Run the comparison and write its table and its page."""
    if sys.argv[1:2] == ["--one"]:
        path, how, lambda_, out = sys.argv[2:]
        print(json.dumps(one_way(path, how, float(lambda_), out)))
        return
    if sys.argv[1:2] == ["--wide"]:
        print(json.dumps(one_wide(sys.argv[2], float(sys.argv[3]))))
        return
    args = command(
        __doc__, rows=(2_000_000, "number of rows"), folder=(tempfile.gettempdir(), "where the data are written")
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows = compare(args.rows, Path(folder))
    as_text(rows).to_csv(args.out / "scale_pseudo.csv", index=False)
    print(write_page(args.out / "scale_pseudo.md", page(rows)))


if __name__ == "__main__":
    main()
