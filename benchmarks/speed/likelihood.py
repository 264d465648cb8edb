"""Time of exact maximum likelihood, beside its peers: ``python -m benchmarks.speed.likelihood``."""

import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bbl.datasets import load_titanic
from bbl.engines import MaximumLikelihood
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample
from benchmarks.report import command, table, write_page

TARGETS = {
    "Titanic, terms of three": 0.005,
    "15 binary, all pairs": 0.3,
    "tree 200 x 4": 0.1,
    "lattice 8 x 25": 5.0,
}
COLUMNS = ("problem", "method", "parameters", "gradient", "seconds")
PEER_STATES = 2**15  # a Poisson regression holds a dense matrix: one row for each state
LOGLIN = """
folder <- commandArgs(TRUE)
counts <- array(scan(file.path(folder, "counts"), quiet = TRUE), scan(file.path(folder, "shape"), quiet = TRUE))
scopes <- lapply(strsplit(readLines(file.path(folder, "scopes")), " "), as.integer)
fit <- function() loglin(counts, scopes, fit = TRUE, eps = 1e-6, iter = 10000, print = FALSE)$fit
calls <- 1
repeat {  # the clock of R counts thousandths: as many calls as take half a second
    seconds <- system.time(for (call in seq_len(calls)) fitted <- fit())[["user.self"]]
    if (seconds > 0.5) break
    calls <- 2 * calls
}
writeLines(format(c(seconds / calls, fitted), digits = 17), file.path(folder, "answer"))
"""  # noqa: E501


def copying_codes(
    rng: np.random.Generator, n: int, m: int, L: int, pairs: list[tuple[int, int]]
) -> np.ndarray:
    """Return codes (n, m) in which the second predictor of each pair copies the first in part of
    the rows.
    """
    codes = rng.integers(0, L, (n, m)).astype(np.uint8)
    for i, j in pairs:
        codes[:, j] = np.where(rng.random(n) < 0.4, codes[:, i], codes[:, j])
    return codes


def problems() -> dict[str, tuple[Sample, Layout]]:
    """Return rows and model of each problem."""
    rng = np.random.default_rng(1)
    titanic = load_titanic()
    titanic = titanic[titanic["Freq"] > 0]
    codes = np.column_stack(
        [titanic[name].cat.codes for name in ("Class", "Sex", "Age", "Survived")]
    )
    cells = Sample(np.ascontiguousarray(codes, dtype=np.uint8), titanic["Freq"].to_numpy(float))
    triples = [term for order in (2, 3) for term in combinations(range(4), order)]
    tree = [(int(rng.integers(0, i)), i) for i in range(1, 200)]
    site = np.arange(200).reshape(8, 25)
    lattice = [*zip(site[:, :-1].flat, site[:, 1:].flat, strict=True)]
    lattice += [*zip(site[:-1].flat, site[1:].flat, strict=True)]

    def rows(n: int, m: int, L: int, pairs: list[tuple[int, int]]) -> Sample:
        return Sample(copying_codes(rng, n, m, L, pairs), np.ones(n))

    chain = [(i, i + 1) for i in range(14)]
    twelve = copying_codes(np.random.default_rng(12), 5000, 12, 2, chain[:11])
    return {
        "Titanic, terms of three": (cells, Layout([4, 2, 2, 2], triples)),
        "8 binary, all pairs": (rows(5000, 8, 2, chain[:7]), Layout([2] * 8)),
        "10 binary, all pairs": (rows(5000, 10, 2, chain[:9]), Layout([2] * 10)),
        "12 binary, all pairs": (Sample(twelve, np.ones(5000)), Layout([2] * 12)),
        "15 binary, all pairs": (rows(5000, 15, 2, chain), Layout([2] * 15)),
        "tree 200 x 4": (rows(10_000, 200, 4, tree), Layout([4] * 200, tree)),
        "lattice 8 x 25": (rows(10_000, 200, 2, lattice), Layout([2] * 200, lattice)),
    }


def all_states(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix of a Poisson regression (states, 1 + parameters), and the number of rows in
    each state.
    """
    shape = tuple(layout.n_levels)
    states = np.indices(shape).reshape(layout.m, -1).T
    counts = np.zeros(shape)
    np.add.at(counts, tuple(sample.codes.T), sample.weights)
    columns = [np.ones(len(states))]
    for scope in layout.scopes:
        for cell in np.ndindex(*(layout.n_levels[list(scope)] - 1)):
            columns.append((states[:, scope] == np.array(cell) + 1).all(axis=1))
    return np.column_stack(columns).astype(float), counts.ravel()


def fastest(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work returns, and its CPU seconds at the fastest of several times."""
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 0.5 and len(seconds) < 50):
        begin = time.process_time()
        result = work()
        seconds.append(time.process_time() - begin)
    return result, min(seconds)


def loglin(counts: np.ndarray, scopes: list[tuple[int, ...]]) -> tuple[np.ndarray, float]:
    """Return the fitted counts of R's ``loglin``, stopped at 1e-6 rows, and its CPU seconds a
    call.
    """
    largest = [s for s in scopes if not any(set(s) < set(other) for other in scopes)]
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        np.savetxt(at / "counts", counts.ravel(order="F"))
        np.savetxt(at / "shape", counts.shape, fmt="%d")
        (at / "scopes").write_text(
            "".join(" ".join(str(v + 1) for v in scope) + "\n" for scope in largest)
        )
        (at / "loglin.R").write_text(LOGLIN)
        subprocess.run(["Rscript", "--vanilla", at / "loglin.R", folder], check=True)  # noqa: S603, S607  # our script
        seconds, *fitted = np.loadtxt(at / "answer")
    return np.reshape(fitted, counts.shape, order="F").ravel(), float(seconds)


def measured(name: str, sample: Sample, layout: Layout) -> list[tuple]:
    """Return the row of the package, and those of the peers where they can do the problem; R where
    it is installed.
    """
    import statsmodels.api as sm

    engine = MaximumLikelihood()
    fit, seconds = fastest(lambda: engine.fit(sample, layout))
    rows = [(name, "bbl", layout.size, float(fit.grad_norm.max()), seconds)]
    if np.prod(layout.n_levels.astype(float)) > PEER_STATES:
        return rows
    X, counts = all_states(sample, layout)
    poisson = sm.GLM(counts, X, sm.families.Poisson())
    peer, seconds = fastest(lambda: poisson.fit(tol=1e-10))
    fitted = {"statsmodels": (peer.fittedvalues, seconds)}
    if shutil.which("Rscript"):
        fitted["R loglin"] = loglin(counts.reshape(layout.n_levels), list(layout.scopes))
    for method, (values, seconds) in fitted.items():
        residual = X.T @ (counts - values) / counts.sum()
        rows.append((name, method, layout.size, float(np.linalg.norm(residual)), seconds))
    return rows


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table."""
    seconds = frame.set_index(["problem", "method"])["seconds"]
    cells = []
    for r in frame.itertuples():
        target = TARGETS.get(r.problem) if r.method == "bbl" else None
        ratio = f"{r.seconds / seconds[r.problem, 'bbl']:.3g}"
        limit = (
            ""
            if target is None
            else f"{target:g} ({'met' if r.seconds <= target else '**not met**'})"
        )
        cells.append(
            [
                r.problem,
                r.method,
                f"{r.parameters:,}",
                f"{r.gradient:.1g}",
                f"{r.seconds:.4f}",
                ratio,
                limit,
            ]
        )
    return [
        "# Speed of exact likelihood",
        "",
        "The table shows the time to fit log-linear models without a penalty, from codes to the "
        "maximum: CPU seconds on one core of a shared machine, the fastest of several runs. "
        "statsmodels fits the same model as a Poisson regression of the number of rows in each "
        "state (`GLM`, excluding the time to build its design matrix), for up to 32,768 states. "
        "R's `loglin` (R 4.2.2, C code) scales the table until its margins agree within 1e-6 "
        "rows, and returns only fitted counts: no coefficients or information matrix, and no "
        "check that the maximum exists. The tree and the lattice have too many states for a "
        "table. Gradient: norm of the differences between observed and fitted margins, as "
        "proportions of the rows. Titanic: 2,201 rows in 24 cells, all three-way terms of four "
        "predictors; lattice: 10,000 rows of 8 x 25 binary predictors, neighbours interact; tree: "
        "10,000 rows of 200 predictors with 4 levels. `python -m benchmarks.speed.likelihood`",
        "",
        *table(
            ["problem", "method", "parameters", "gradient", "CPU s", "times bbl", "target, s"],
            cells,
        ),
    ]


def main() -> None:
    """Run and write ``results/likelihood_speed.csv`` and ``likelihood_speed.md``."""
    args = command(__doc__)
    warnings.simplefilter("ignore")
    with serial_blas():
        rows = [row for name, problem in problems().items() for row in measured(name, *problem)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame.to_csv(args.out / "likelihood_speed.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "likelihood_speed.md", page(frame)).read_text())


if __name__ == "__main__":
    main()
