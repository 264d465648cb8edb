"""Time and memory of sparse regression on products: ``python -m benchmarks.speed.shooter``."""

import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression

from bbl.parallel import serial_blas
from bbl.sparse.choice import choose
from bbl.sparse.products import Problem
from benchmarks.accuracy.shooter import PENALTIES, synthetic
from benchmarks.report import command, table, write_page

COLUMNS = ("problem", "method", "objective", "seconds", "peak")
NAMES = {
    "bbl": "order 1",
    "liblinear": "order 1",
    "saga": "order 1",
    "orders 1-3, no refit": "orders 1-3",
    "orders 1-3, auto": "orders 1-3",
}


def megabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def objective(model: LogisticRegression, X: np.ndarray, y: np.ndarray) -> float:
    """Return the L1 objective of a model of scikit-learn; its intercept is free."""
    link = X @ model.coef_[0] + model.intercept_[0]
    return float(
        np.logaddexp(0.0, -(2 * y - 1) * link).sum() + PENALTIES[0] * np.abs(model.coef_).sum()
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what some work returns, its CPU seconds at the fastest of three times, and the memory
    the first took.
    """
    before, seconds, peak = megabytes(), [], 0.0
    for k in range(3):
        begin = time.process_time()
        found = work()
        seconds.append(time.process_time() - begin)
        peak = peak if k else megabytes() - before
    return found, min(seconds), peak


def measured(method: str) -> tuple:
    """Return the row of one method; every one has a process of its own."""
    warnings.simplefilter("ignore")
    X, y, _, _ = synthetic()
    with serial_blas():
        if method in ("liblinear", "saga"):
            dense = 2.0 * X - 1
            exact = {"intercept_scaling": 100.0} if method == "liblinear" else {}
            model = LogisticRegression(
                l1_ratio=1,
                C=1 / PENALTIES[0],
                solver=method,
                tol=1e-6,
                max_iter=10000,
                random_state=0,
                **exact,
            )
            _, seconds, peak = timed(lambda: model.fit(dense, y))
            return NAMES[method], method, objective(model, dense, y), seconds, peak
        order = 1 if method == "bbl" else 3
        refit = "auto" if "auto" in method else False
        given = (X, [2] * X.shape[1], y, 2, np.ones(len(y)))
        options = {"order": order, "lambda_": PENALTIES[:order], "refit": refit}
        found, seconds, peak = timed(
            lambda: choose(Problem.make(*given), **options, rng=np.random.default_rng(0))
        )
        return (
            NAMES[method],
            f"shooter ({method})",
            found.path[0].stages[-1].objective,
            seconds,
            peak,
        )


def main() -> None:
    """Write the table."""
    args = command(__doc__, only=([], "names of methods"))
    rows = []
    for method in args.only or NAMES:  # one after the other, each in a fresh process
        rows += Parallel(n_jobs=2, backend="multiprocessing", max_nbytes=None)(
            [delayed(measured)(method)]
        )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    path = args.out / "shooter_speed.csv"
    if path.exists() and args.only:
        known = pd.read_csv(path)
        frame = pd.concat([known[~known["method"].isin(frame["method"])], frame])
        frame = frame.sort_values("problem", kind="stable")
    frame.to_csv(path, index=False, float_format="%.10g")
    write_page(args.out / "shooter_speed.md", page(frame))


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table."""
    lines = [
        "# Speed of sparse regression on products",
        "",
        "The synthetic data have 8,000 rows of 2,000 binary predictors (16 MB as bytes), with "
        "penalties 80, 100, 100 on the sum of losses. CPU seconds on one core are for the whole "
        "call, the fastest of three; peak is the additional memory of the process during the "
        "call, in MB. scikit-learn starts from a matrix of floats, which is not included; "
        "liblinear hardly penalises the intercept (`intercept_scaling=100`). `python -m "
        "benchmarks.speed.shooter`",
        "",
    ]
    cells = [
        [r.problem, r.method, f"{r.objective:.6f}", f"{r.seconds:.2f}", f"{r.peak:.0f}"]
        for r in frame.itertuples()
    ]
    lines += table(["problem", "method", "objective", "CPU s", "peak MB"], cells)
    seconds = dict(zip(frame["method"], frame["seconds"], strict=True))
    own = seconds.get("shooter (bbl)")
    ratios = [
        f"{seconds[k] / own:.1f} times that of {k}"
        for k in ("liblinear", "saga")
        if own and k in seconds
    ]
    if ratios:
        lines += [f"Speed of order 1: {' and '.join(ratios)}.", ""]
    lines += [
        "R's glinternet, which selects pairs of predictors, was not available and is not included.",
        "",
    ]
    return lines


if __name__ == "__main__":
    main()
