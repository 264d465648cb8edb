"""Pseudo-likelihood of data read in batches: passes, gradients, CPU; two workers of Dask, one of
them lost.

A part of ``python -m benchmarks.scale``; alone, ``python -m benchmarks.scale_pseudo``, with a page
of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.report import as_text, command, number, table, write_page

CHUNK = 250_000
IDLE = 5.0  # seconds in which the clocks of Dask are looked at
# levels, skew
TASKS = {
    "lambda 1e-2": (1e-2, 4, 0.0),
    "lambda 1e-5": (1e-5, 4, 0.0),
    "rare levels": (1e-5, 6, 1.2),
}
WIDE = ("coins", "independent", "factors")
WAYS = ("memory", "batches", "two at once", "two processes", "slow clocks", "one killed")
IN_TURN = WAYS[1:5]  # whose user seconds are compared, and so measured some times in turn
SLOW = {  # what Dask does every 10, 20, 100 and 500 ms, in each process
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
BARS = (
    "CPU 1.2 of memory, of one process for two; theta 1e-8 (lambda 1e-2); passes 10 (rare levels "
    "15)"
)


def write_batches(path: Path, n: int, batch: Callable[[int], dict[str, Any]]) -> Path:
    """Write `n` rows to a Parquet file, some at a time: ``batch(size)`` are columns as dictionary
    arrays.
    """
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


def write_rows(path: Path, n: int, levels: int, skew: float, m: int = 20, seed: int = 0) -> Path:
    """Write `n` rows of a response and `m` chained predictors, strings, to a Parquet file; `skew`
    makes levels rare.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
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
        np.save(out, fit.estimate.parameters.theta)
        fits = fit.estimate.fits
        passes = max(
            int(own.state["streamed"][2]) if "streamed" in own.state else 0 for own in fits
        )
        return {"passes": passes, "gradient": max(float(own.grad_norm.max()) for own in fits)}

    if how not in WAYS[3:]:
        before = used()
        found = fitted(pd.read_parquet(path) if how == "memory" else path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"user_s": used() - before, "clocks_s": 0.0, "peak_mb": peak, **found}
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set(SLOW if how == "slow clocks" else {}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(__import__, "bbl")
        if how == "one killed":
            kill_later(next(iter(client.run(os.getpid).values())))
            return {
                "user_s": np.nan,
                "clocks_s": np.nan,
                "peak_mb": np.nan,
                **fitted(path, client=client),
            }

        def all_used() -> float:
            return used() + sum(client.run(used).values())

        start, before = time.monotonic(), all_used()
        found = fitted(path, client=client)
        took, wall = all_used() - before, time.monotonic() - start
        before = all_used()
        time.sleep(IDLE)
        clocks = (all_used() - before) / IDLE * wall
        return {"user_s": took, "clocks_s": clocks, "peak_mb": np.nan, **found}


def kill_later(victim: int) -> None:
    """Kill a worker after the third pass over all rows."""
    from bbl.rows.stored import StoredSample

    count = StoredSample._count_pass

    def count_and_kill(sample: StoredSample) -> None:
        count(sample)
        if sample.file.passes == 3:
            os.kill(victim, signal.SIGKILL)

    StoredSample._count_pass = count_and_kill


def one_measured(path: Path, how: str, lambda_: float, out: Path) -> dict[str, Any]:
    """Return what `one_way` does, of a process of its own; or the means of two that run at once."""
    call = [sys.executable, "-m", "benchmarks.scale_pseudo", "--one", str(path), how, str(lambda_)]
    files = [out, out.with_suffix(".other.npy")][: 1 + (how == "two at once")]
    running = [
        subprocess.Popen([*call, str(file)], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for file in files
    ]
    said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{how}: {said}")
    found = [json.loads(text.splitlines()[-1]) for text in said]
    return {**found[0], "user_s": float(np.mean([own["user_s"] for own in found]))}


def compare(n: int, folder: Path, repeats: int) -> pd.DataFrame:
    """Return one row for each task and way: of the ways `IN_TURN` the one that took least of some
    repeats.
    """
    rows = []
    for task, (lambda_, levels, skew) in TASKS.items():
        path, in_turn = write_rows(folder / "rows.parquet", n, levels, skew), task == "lambda 1e-2"
        best: dict[str, dict[str, Any]] = {}
        took: dict[str, list[float]] = {how: [] for how in WAYS}
        for k in range(repeats if in_turn else 1):
            for how in (IN_TURN if k else WAYS) if in_turn else WAYS[:2]:
                found = one_measured(path, how, lambda_, folder / f"{how}.npy")
                print({"task": task, "how": how, **found}, file=sys.stderr)
                took[how].append(found["user_s"])
                if how not in best or found["user_s"] < best[how]["user_s"]:
                    best[how] = found
        known = np.load(folder / "memory.npy")
        for how, found in best.items():
            theta = np.load(folder / f"{how}.npy")
            same = (
                how == "one killed"
                and theta.tobytes() == np.load(folder / "two processes.npy").tobytes()
            )
            gap = np.abs(theta - known).max()
            told = {"task": task, "rows": n, "how": how, **found, "median_s": np.median(took[how])}
            rows.append({**told, "difference": gap, "same bits": same})
        path.unlink()
    return pd.DataFrame(rows)


def wide_rows(path: Path, kind: str, m: int = 1000, n: int = 5000) -> Path:
    """Write a response and `m` binary predictors, by themselves or with 8 common factors, to a
    Parquet file.
    """
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
    """Fit all pairs of a wide table, two groups and the pooled fit; return what it took and whether
    it converged.
    """
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
        "5,000 rows in two groups, in memory; all pairs, with `lambda_=1e-5`, in two groups and "
        "for the pooled rows, with one thread. `coins`: independent predictors with probability "
        "1/2; `independent`: with probabilities from .2 to .8; `factors`: predictors that depend "
        "on eight common factors.",
        "",
        *table(["predictors", "user s", "iterations at most", "gradient"], body),
    ]


def page(rows: pd.DataFrame) -> list[str]:
    """Return the page of the results."""
    body = []
    for own in rows.itertuples(index=False):
        bits = "same bits" if own[-1] else ""
        numbers = [
            number(own.user_s),
            number(own.peak_mb),
            str(own.passes or ""),
            number(own.gradient),
        ]
        body.append([own.task, f"{own.rows:,}", own.how, *numbers, number(own.difference), bits])
    head = [
        "task",
        "rows",
        "how",
        "user s",
        "peak MB",
        "passes",
        "gradient",
        "difference in theta",
        "",
    ]
    took = rows[rows["how"].isin(IN_TURN) & (rows["task"] == rows["task"].iloc[0])].set_index("how")
    share, middle = (took[name] / took[name]["batches"] for name in ("user_s", "median_s"))
    least = {how: f"{share[how]:.2f} of one process (medians {middle[how]:.2f})" for how in IN_TURN}
    clocks = " and ".join(
        f"{took['clocks_s'][how]:.2g} s of the {took['user_s'][how]:.3g}" for how in IN_TURN[2:]
    )
    return [
        "## Pseudo-likelihood",
        "",
        "The data are a response and 20 predictors, all strings, with 4 levels (rare levels: 6, "
        "the last in 2 of 1,000 rows). All pairs are fitted, in two groups and for the pooled "
        "rows, with one thread; times include reading. `two processes`: two Dask workers on the "
        "same computer, with their user seconds added. `two at once`: the mean of two independent "
        "processes that run at the same time. `slow clocks`: two Dask workers that check their "
        "state less often (the settings `SLOW` in the script). These times are the minimum of "
        "several alternating repeats.",
        "",
        *table(head, body),
        f"Targets: {BARS}.",
        "",
        f"- two Dask processes, total: {least['two processes']}; target 1.2",
        f"- with slow clocks: {least['slow clocks']}",
        f"- each of two simultaneous processes: {least['two at once']}",
        "- periodic checks by Dask, which also run in idle processes, with two processes and with "
        f"slow clocks: {clocks}",
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
        __doc__,
        rows=(1_500_000, "number of rows"),
        repeats=(5, "of what is compared with two workers"),
        folder=(tempfile.gettempdir(), "where the data are written"),
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows = compare(args.rows, Path(folder), args.repeats)
    as_text(rows).to_csv(args.out / "scale_pseudo.csv", index=False)
    print(write_page(args.out / "scale_pseudo.md", page(rows)))


if __name__ == "__main__":
    main()
