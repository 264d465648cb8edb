"""Inference, effects, evaluations and logistic regression of data read in batches, beside other
libraries: ``python -m benchmarks.scale_inference``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.report import as_text, command, number, table, write_page
from benchmarks.scale_pseudo import write_rows
from benchmarks.speed.measure import peak_memory, reset_peak

ROWS = 10_000_000
HELD_OUT = 200_000  # rows of another file, for log-losses
M = 20
FEW = 6  # predictors of the table of states
BATCH = 65_536
FEW_FORMULA = f"y ~ ({' + '.join(f'x{i}' for i in range(FEW))})^2"
TASKS = {
    "pseudo": "bbl, pseudo-likelihood of all pairs",
    "ridge=0": "bbl, conditional, ridge=0",
    "ridge=1e-4": "bbl, conditional, ridge=1e-4",
    "sgd": "scikit-learn, SGDClassifier.partial_fit, one epoch",
    "states": f"bbl, conditional, ridge=0, {FEW} predictors",
    "glm": f"DuckDB and statsmodels GLM, {FEW} predictors",
}


class Clock:
    """The user seconds of this process at the last call, and the parts measured so far, with their
    peak memory.
    """

    def __init__(self):
        reset_peak()
        self.last = used()
        self.parts: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    def __call__(self, part: str) -> None:
        """Note the user seconds since the last call, and the peak memory in MB."""
        now = used()
        self.parts[part] = now - self.last
        self.peaks[part] = peak_memory() / 2**20
        reset_peak()
        self.last = now


def used() -> float:
    """Return the user seconds of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def fit_bbl(path: str, test: str, clock: Clock, **options: Any) -> dict[str, Any]:
    """Fit all pairs, and do what the method can do with the fit."""
    import bbl

    fit = bbl.bbl("y ~ .^2", path, verbose=0, n_jobs=1, **options)
    clock("fit")
    found = {"gradient": max(float(own.grad_norm.max()) for own in fit.estimate.fits)}
    found["log_loss"] = fit.evaluate(test).log_loss.loss
    clock("test rows")
    if not fit.engine.penalised or fit.engine.name == "pseudo":
        assert fit.bse.notna().any()  # noqa: S101  # computed
        clock("bse")
        fit.interactions(of=("no", "yes"))
        clock("interactions")
        fit.avg_comparisons("x0")
        clock("avg_comparisons")
    fit.evaluate()
    clock("evaluate")
    with tempfile.TemporaryDirectory() as folder:
        fit.predict_batches(path, to=Path(folder) / "predicted.parquet")
    clock("predict_batches")
    return found


def fit_sgd(path: str, test: str, clock: Clock) -> dict[str, Any]:
    """Fit fields and pairs, as sparse indicators, in one epoch over the batches of the file."""
    import pyarrow.parquet as pq
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    first, second = np.triu_indices(M, 1)
    n_columns = 4 * M + 16 * len(first)

    def batches(name: str):
        """Yield the indicators and the response of each batch of rows."""
        for batch in pq.ParquetFile(name).iter_batches(BATCH):
            frame = batch.to_pandas(strings_to_categorical=True)
            x = np.column_stack(
                [frame[f"x{i}"].str[-1].astype(np.int32).to_numpy() for i in range(M)]
            )
            pairs = 16 * np.arange(len(first)) + 4 * x[:, first] + x[:, second]
            columns = np.hstack([4 * np.arange(M) + x, 4 * M + pairs]).astype(np.int32)
            start = np.arange(0, columns.size + 1, columns.shape[1], dtype=np.int32)
            values = np.ones(columns.size)
            yield (
                csr_matrix((values, columns.ravel(), start), shape=(len(x), n_columns)),
                (frame["y"] == "yes").to_numpy(),
            )

    # with the default step length, 210 indicators that are 1 in each row diverge; averages of the
    # coefficients predict better than the last ones
    model = SGDClassifier(
        loss="log_loss", alpha=1e-6, learning_rate="constant", eta0=1e-3, average=True
    )
    for X, y in batches(path):
        model.partial_fit(X, y, classes=[False, True])
    clock("fit")
    loss = n = 0.0
    for X, y in batches(test):
        p = model.predict_proba(X)[np.arange(len(y)), y.astype(int)]
        loss -= float(np.log(np.maximum(p, 1e-15)).sum())
        n += len(y)
    return {"log_loss": loss / n}


def fit_states(path: str, test: str, clock: Clock) -> dict[str, Any]:
    """Fit the pairs of few predictors, whose states bbl counts."""
    import bbl

    fit = bbl.bbl(FEW_FORMULA, path, method="conditional", ridge=0, verbose=0, n_jobs=1)
    clock("fit")
    se = fit.bse["yes"]
    clock("bse")
    return {"coefficients": list(fit.estimate.parameters.theta[1]), "se": list(se)}


def fit_glm(path: str, test: str, clock: Clock) -> dict[str, Any]:
    """Count the states by DuckDB, and fit the same model by statsmodels."""
    import duckdb
    import statsmodels.api as sm

    columns = ", ".join(f"x{i}" for i in range(FEW))
    counts = duckdb.sql(
        f"select {columns}, count(*) filter (y = 'yes') as yes, "  # noqa: S608  # our own names
        f"count(*) filter (y = 'no') as no from '{path}' group by all"
    ).df()
    x = np.column_stack([counts[f"x{i}"].str[-1].astype(int) for i in range(FEW)])
    indicators = [(x[:, [i]] == np.arange(1, 4)).astype(float) for i in range(FEW)]
    design = [np.ones((len(x), 1)), *indicators]
    for i in range(FEW):
        for j in range(i + 1, FEW):
            pairs = indicators[i][:, :, None] * indicators[j][:, None]
            design.append(pairs.reshape(len(x), -1))
    fit = sm.GLM(counts[["yes", "no"]], np.hstack(design), family=sm.families.Binomial()).fit(
        tol=1e-12, maxiter=50
    )
    clock("fit")
    return {"coefficients": list(fit.params[1:]), "se": list(fit.bse[1:])}


FITS: dict[str, Callable[..., dict[str, Any]]] = {
    "pseudo": lambda *arguments: fit_bbl(*arguments, lambda_=1e-4),
    "ridge=0": lambda *arguments: fit_bbl(*arguments, method="conditional", ridge=0),
    "ridge=1e-4": lambda *arguments: fit_bbl(*arguments, method="conditional", ridge=1e-4),
    "sgd": fit_sgd,
    "states": fit_states,
    "glm": fit_glm,
}


def one_task(task: str, path: str, test: str) -> dict[str, Any]:
    """Do one task in this process, and return what it took and found."""
    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = FITS[task](path, test, clock)
    return {"task": task, **found, "seconds": clock.parts, "peaks": clock.peaks}


def measured(task: str, path: Path, test: Path) -> dict[str, Any]:
    """Return the result of `one_task` in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.scale_inference", "--one", task, str(path), str(test)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603  # our own command
    return json.loads(done.stdout.splitlines()[-1])


def page(found: dict[str, dict[str, Any]], n: int) -> list[str]:
    """Return the page of the results."""
    base = found["ridge=0"]["seconds"]["fit"]
    lines = [
        "# Inference and logistic regression of data read in batches",
        "",
        f"The data are a response and {M} predictors with four levels, all strings, in one Parquet "
        f"file of {n:,} rows. Each line is one process with one thread; times are user seconds and "
        "include reading the file. Ratios are to the fit of `ridge=0`. Log-losses are those of "
        f"{HELD_OUT:,} other rows.",
        "",
    ]
    body = []
    for task in ("pseudo", "ridge=0", "ridge=1e-4", "sgd"):
        own = found[task]
        took = own["seconds"]["fit"]
        figures = [took, took / base, own["peaks"]["fit"]]
        body.append([TASKS[task], *map(number, figures), f"{own['log_loss']:.5f}"])
    lines += table(["fit of all fields and pairs", "s", "ratio", "MB", "log-loss"], body)
    parts = ("bse", "interactions", "avg_comparisons", "evaluate", "predict_batches")
    body = [
        [TASKS[task], *(number(found[task]["seconds"].get(part, np.nan)) for part in parts)]
        for task in ("pseudo", "ridge=0", "ridge=1e-4")
    ]
    lines += table(["user seconds after the fit", *parts], body)
    body = [
        [TASKS[task], *(number(found[task]["peaks"].get(part, np.nan)) for part in parts)]
        for task in ("pseudo", "ridge=0", "ridge=1e-4")
    ]
    lines += table(["peak memory, MB", *parts], body)
    states, glm = found["states"], found["glm"]
    gaps = [
        float(np.max(np.abs(np.divide(states[name], glm[name]) - 1.0)))
        for name in ("coefficients", "se")
    ]
    body = [
        [
            TASKS[task],
            number(sum(found[task]["seconds"].values())),
            number(max(found[task]["peaks"].values())),
        ]
        for task in ("states", "glm")
    ]
    lines += [
        f"With {FEW} predictors, both bbl and DuckDB count the states first:",
        "",
        *table(["estimates and standard errors", "s", "MB"], body),
        f"The largest relative differences are {gaps[0]:.0e} between estimates and {gaps[1]:.0e} "
        "between standard errors.",
    ]
    return lines


def main() -> None:
    """Measure all tasks and write the page."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one_task(*sys.argv[2:])))
        return
    args = command(
        __doc__,
        rows=(ROWS, "number of rows"),
        folder=(tempfile.gettempdir(), "where the data are written, and removed"),
    )
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        path = write_rows(Path(name) / "rows.parquet", args.rows, 4, 0.0)
        test = write_rows(Path(name) / "test.parquet", HELD_OUT, 4, 0.0, seed=1)
        found = {}
        for task in TASKS:
            found[task] = measured(task, path, test)
            print(task, found[task]["seconds"], file=sys.stderr)
    frame = pd.DataFrame(
        [
            {
                "task": task,
                "part": part,
                "user_s": seconds,
                "peak_mb": own["peaks"][part],
                "log_loss": own.get("log_loss", np.nan),
            }
            for task, own in found.items()
            for part, seconds in own["seconds"].items()
        ]
    )
    as_text(frame).to_csv(args.out / "scale_inference.csv", index=False)
    print(write_page(args.out / "scale_inference.md", page(found, args.rows)))


if __name__ == "__main__":
    main()
