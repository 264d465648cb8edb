"""Data read in batches against the same rows in memory, in CPU and peak memory: ``python -m
benchmarks.scale``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks import scale_pseudo
from benchmarks.report import as_text, command, number, table, write_page

LEVELS = np.array(["lark", "robin", "heron", "crane"])
BARS = {"growth": 1.3, "share": 0.1, "naive": 0.0, "mf": 1e-14}
COLUMNS = ["task", "rows", "how", "user_s", "peak_mb"]


def write_rows(path: Path, n: int, m: int = 20, seed: int = 0) -> Path:
    """Write `n` rows of a response and `m` predictors, all strings, to a Parquet file, some rows at
    a time.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    edges = rng.dirichlet(np.full(4, 2.0), size=(m, 2, 4)).cumsum(axis=-1)[..., :-1]

    def batch(size: int) -> dict[str, Any]:
        y, x = rng.integers(2, size=size), np.zeros(size, dtype=np.intp)
        columns = {"y": pa.DictionaryArray.from_arrays(y.astype(np.int8), ["no", "yes"])}
        for i in range(m):
            x = (rng.random(size)[:, None] > edges[i, y, x]).sum(axis=1)
            columns[f"x{i}"] = pa.DictionaryArray.from_arrays(x.astype(np.int8), LEVELS)
        return columns

    return scale_pseudo.write_batches(path, n, batch)


def one_task(task: str, path: str, how: str, out: str) -> dict[str, Any]:
    """Do one task in this process; return what it took and write what it found."""
    import resource

    import bbl

    data: Any = path if how == "batches" else pd.read_parquet(path)
    options: dict[str, Any] = {"method": task.partition(" ")[0], "n_jobs": 1, "verbose": 0}
    if task.endswith("cv"):
        found = bbl.crossVal("y ~ .^2", data, score="logloss", **options)
        numbers = found.cvframe.to_numpy()
    elif task == "predict":
        fit = bbl.bbl("y ~ .", path, method="naive", n_jobs=1)
        fit.predict_batches(data, to=out + ".parquet") if how == "batches" else fit.predict(data)
        numbers = fit.estimate.parameters.theta
    else:
        numbers = bbl.bbl("y ~ .^2", data, **options).estimate.parameters.theta
    np.save(out, numbers)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"user_s": used.ru_utime, "peak_mb": used.ru_maxrss / 1024}


def measured(task: str, path: Path, how: str, out: Path) -> dict[str, Any]:
    """Return what `one_task` takes in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.scale", "--one", task, str(path), how, str(out)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603  # our own command
    return json.loads(done.stdout.splitlines()[-1])


def compare(tasks: list[str], sizes: list[int], folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row for each task, size and way, and the greatest difference of numbers of each
    task and size.
    """
    rows, gaps = [], []
    for n in sizes:
        path = write_rows(folder / f"rows{n}.parquet", n)
        for task in tasks:
            for how in ("batches", "memory"):
                found = measured(task, path, how, folder / f"{how}.npy")
                rows.append({"task": task, "rows": n, "how": how, **found})
                print(rows[-1], file=sys.stderr)
            gap = np.abs(np.load(folder / "batches.npy") - np.load(folder / "memory.npy")).max()
            gaps.append({"task": task, "rows": n, "difference": gap})
        path.unlink()
    return pd.DataFrame(rows)[COLUMNS], pd.DataFrame(gaps)


def page(rows: pd.DataFrame, gaps: pd.DataFrame) -> list[str]:
    """Return the page of the results."""
    sizes = sorted(rows["rows"].unique())
    wide = rows.pivot_table(index=["task", "rows"], columns="how", values=["user_s", "peak_mb"])
    lines = [
        "# Data read in batches",
        "",
        "The data are a response and 20 predictors with 4 levels, all strings, in one Parquet "
        "file. Each task uses one thread in its own process, and times include reading. `memory` "
        "reads the table with `pandas.read_parquet`. Peaks include about 160 MB for the imports.",
        "",
    ]
    body = []
    for (task, n), own in wide.iterrows():
        gap = gaps.query("task == @task and rows == @n")["difference"].iloc[0]
        shown = [
            own["user_s", "batches"],
            own["user_s", "memory"],
            own["peak_mb", "batches"],
            own["peak_mb", "memory"],
        ]
        share = own["peak_mb", "batches"] / own["peak_mb", "memory"]
        body.append([task, f"{n:,}", *map(number, [*shown, share, gap])])
    head = [
        "task",
        "rows",
        "s, batches",
        "s, memory",
        "MB, batches",
        "MB, memory",
        "share of MB",
        "difference",
    ]
    lines += table(head, body)
    for task, own in (
        rows[rows["how"] == "batches"].groupby("task", sort=False) if len(sizes) > 1 else ()
    ):
        peak = own.set_index("rows")["peak_mb"]
        growth = peak[sizes[-1]] / peak[sizes[0]]
        lines.append(
            f"- {task}: peak at {sizes[-1]:,} rows / at {sizes[0]:,}: {growth:.2f} (target "
            f"{BARS['growth']})"
        )
    return lines


def main() -> None:
    """Run the comparison and write its table and its page."""
    if sys.argv[1:2] == ["--one"]:
        task, path, how, out = sys.argv[2:]
        print(json.dumps(one_task(task, path, how, out)))
        return
    args = command(
        __doc__,
        rows=(["1000000", "10000000"], "numbers of rows"),
        tasks=(["naive", "mf"], 'what is done; also "mf cv" and predict'),
        pseudo=(
            1_500_000,
            "rows of the comparison of pseudo-likelihood, with workers of Dask; 0 for none",
        ),
        repeats=(5, "of what is compared with two workers"),
        wide=(1, "whether 1,000 predictors are fitted; 0 for not"),
        folder=(tempfile.gettempdir(), "where the data are written, and removed"),
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows, gaps = compare(args.tasks, [int(n) for n in args.rows], Path(folder))
        more = (
            scale_pseudo.compare(args.pseudo, Path(folder), args.repeats) if args.pseudo else None
        )
        wide = scale_pseudo.compare_wide(Path(folder)) if args.wide else None
    as_text(rows).to_csv(args.out / "scale.csv", index=False)
    lines = page(rows, gaps)
    if more is not None:
        as_text(more).to_csv(args.out / "scale_pseudo.csv", index=False)
        lines += ["", *scale_pseudo.page(more)]
    if wide is not None:
        as_text(wide).to_csv(args.out / "scale_wide.csv", index=False)
        lines += ["", *scale_pseudo.wide_page(wide)]
    print(write_page(args.out / "scale.md", lines))


if __name__ == "__main__":
    main()
