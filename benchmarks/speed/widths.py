"""Kernels with vector instructions at each vector width: ``python -m benchmarks.speed.widths``.

Each measurement runs in a process of its own, in which ``BBL_VECTORS`` limits the width. The widths
of a kernel are measured in turn, twice, and the shortest times are reported.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.report import command, table, write_page

WIDTHS = (64, 32, 16)  # bytes per vector
ROUNDS = 2  # processes for each kernel and width
SECONDS = 0.2  # CPU seconds of repetitions in a process

Work = Callable[[], object]
KERNELS: dict[str, Callable[[], Work]] = {}


def kernel(name: str) -> Callable[[Callable[[], Work]], Callable[[], Work]]:
    """Register a function that returns the work to be measured under a name."""

    def register(prepare: Callable[[], Work]) -> Callable[[], Work]:
        KERNELS[name] = prepare
        return prepare

    return register


def data(n: int, m: int, L: int):
    """Return rows with weight 1 and their layout."""
    from bbl.model.layout import Layout
    from bbl.rows.sample import Sample
    from benchmarks.speed.problems import potts

    part = potts(n, m, L, 4.0 / m)
    return Sample(part.codes, np.ones(n)), Layout(part.n_levels)


def gradient(n: int, m: int, L: int, precision: str) -> Work:
    """Return the evaluation of all sites' objectives and gradients."""
    from bbl._ext.pseudo.pseudo import PseudoProblem

    sample, layout = data(n, m, L)
    problem = PseudoProblem(
        sample.codes, sample.weights, layout.n_levels, layout.mask, precision=precision
    )
    theta = np.random.default_rng(1).normal(scale=0.1, size=(layout.D, 1 + layout.D))
    return lambda: problem.objective(theta, 0.01, 0.0)


@kernel("pseudo-likelihood, gradient, 5,000 x 100 x 2, double")
def _binary() -> Work:
    return gradient(5000, 100, 2, "double")


@kernel("pseudo-likelihood, gradient, 5,000 x 50 x 4, double")
def _four_levels() -> Work:
    return gradient(5000, 50, 4, "double")


@kernel("pseudo-likelihood, gradient, 5,000 x 40 x 21, single")
def _many_levels() -> Work:
    return gradient(5000, 40, 21, "single")


@kernel("pseudo-likelihood, five epochs of 4 sites, 2,000 x 60 x 21, single")
def _epochs() -> Work:
    from bbl._ext.pseudo.dual import DualProblem

    sample, layout = data(2000, 60, 21)
    problem = DualProblem(sample.codes, sample.weights, layout.n_levels, 0.0, True)
    reports = [np.zeros(60), np.zeros(60), *(np.zeros(60, dtype=np.int32) for _ in range(3))]
    stop = np.zeros(1, dtype=np.int32)

    def work() -> None:
        theta = np.zeros((layout.D, 1 + layout.D))
        for site in range(4):
            problem.solve(site, 0.01, 0.01, 0.0, 0.0, 5, theta, *reports, stop)

    return work


@kernel("pseudo-likelihood, ten iterations, 2,000 x 600 x 2, mixed")
def _wide() -> Work:
    from bbl._ext.pseudo.pseudo import PseudoProblem

    sample, layout = data(2000, 600, 2)
    problem = PseudoProblem(sample.codes, sample.weights, layout.n_levels, layout.mask)

    def work() -> None:
        theta = problem.start()
        for task in range(problem.n_tasks):
            problem.solve(task, 0.01, 0.0, 1e-9, 10, theta)

    return work


@kernel("influences and Hessians, 2,000 x 20 x 3")
def _influences() -> Work:
    from bbl.engines import PseudoLikelihood

    sample, layout = data(2000, 20, 3)
    found, rows = PseudoLikelihood(0.1).influence(sample, layout)
    return lambda: found.terms(rows)


def sweeps(m: int, L: int, count: int) -> Work:
    """Return `count` Gibbs sweeps of 64 chains."""
    from bbl.model.chains import Chains

    rng = np.random.default_rng(1)
    D = m * (L - 1)
    J = np.triu(rng.normal(scale=0.1, size=(D, D))) * (
        1.0 - np.kron(np.eye(m), np.ones((L - 1, L - 1)))
    )
    chains = Chains(rng.normal(size=D), J + J.T, np.full(m, L), 64, 1)
    return lambda: chains.sweep(count)


@kernel("Gibbs sampling, 100 sweeps of 64 chains, 100 x 2")
def _gibbs_binary() -> Work:
    return sweeps(100, 2, 100)


@kernel("Gibbs sampling, 50 sweeps of 64 chains, 30 x 21")
def _gibbs_many() -> Work:
    return sweeps(30, 21, 50)


@kernel("persistent variational inference, 30 iterations, 60 x 2")
def _variational() -> Work:
    from bbl.engines import PersistentVI

    sample, layout = data(500, 60, 2)
    engine = PersistentVI(n_iter=30, draws=2)
    return lambda: engine.fit(sample, layout)


@kernel("calibration, 50,000 rows, 4 classes")
def _calibration() -> Work:
    from bbl.stats.calibration import fit_calibration

    rng = np.random.default_rng(1)
    scores = rng.normal(size=(50_000, 4))
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return lambda: fit_calibration(scores, y, np.ones(len(y)), "temperature")


@kernel("boosting, 2 rounds, 5,000 x 12 x 4, 4 classes")
def _boosting() -> Work:
    from bbl.engines.boosting.rounds import Rows, boost

    sample, layout = data(5000, 12, 4)
    y = np.random.default_rng(1).integers(0, 4, len(sample.codes))
    held = (np.arange(len(y)) % 5 == 0).astype(float)
    codes = np.ascontiguousarray(sample.codes.T, dtype=np.int32)
    pairs = np.ascontiguousarray(np.array(np.triu_indices(12, 1), dtype=np.intp).T)
    levels = np.asarray(layout.n_levels, dtype=np.intp)

    def work() -> None:
        rows = Rows(codes, levels, y, 1.0 - held, held)
        boost(rows, np.full(4, -np.log(4)), pairs, 2, 0.3, np.random.default_rng(1))

    return work


def labelled(n: int, m: int, L: int, K: int):
    """Return rows, their layout and classes of `K` groups."""
    sample, layout = data(n, m, L)
    return sample, layout, np.random.default_rng(1).integers(0, K, n)


@kernel("conditional likelihood, minibatches, 5,000 x 20 x 4, 3 classes")
def _minibatches() -> Work:
    from bbl.engines.conditional.discriminative import fit_minibatches

    sample, layout, y = labelled(5000, 20, 4, 3)
    return lambda: fit_minibatches(
        sample.codes,
        y,
        sample.weights,
        layout,
        3,
        0.5,
        1e-3,
        2,
        np.random.default_rng(1),
        None,
    )


@kernel("conditional likelihood, all rows, 5,000 x 20 x 4, 3 classes")
def _all_rows() -> Work:
    from bbl.engines.conditional.full_batch import FullBatch

    sample, layout, y = labelled(5000, 20, 4, 3)
    full = FullBatch(sample.codes, y, sample.weights, layout, 3, 0.5, 1e-3, 1e-8, None)
    start = full.to_vector(np.zeros((3, layout.size)), np.zeros(3))
    return lambda: full.minimise(start, 1e-9, 5)


@kernel("conditional likelihood, kernel functions, 1,000 x 12 x 3, 3 classes")
def _functions() -> Work:
    from bbl._ext.conditional.multinomial import Panels
    from bbl.engines.conditional.discriminative import solve
    from bbl.engines.conditional.kernel import make_basis

    sample, layout, _ = labelled(1000, 12, 3, 3)
    basis = make_basis(sample.codes, sample.weights, layout, 0.5, 100)
    panels = Panels(basis.functions, "double")
    hits = np.random.default_rng(1).random((1000, 3))
    return lambda: solve(panels, basis.spectrum, hits, [np.inf, 1e-2], None)


@kernel("sparse regression, 2,000 x 8 x 3, pairs, 3 classes")
def _sparse() -> Work:
    from itertools import combinations

    from bbl.sparse.products import Problem
    from bbl.sparse.workingset import Descent, Penalty

    sample, layout, y = labelled(2000, 8, 3, 3)
    problem = Problem.make(sample.codes, layout.n_levels, y, 3, sample.weights)
    terms = [(i,) for i in range(8)] + list(combinations(range(8), 2))
    weights = {term: np.zeros((problem.size(term), 2)) for term in terms}

    def work() -> None:
        Descent(problem, Penalty((2.0,) * 6, True), weights, np.zeros(2)).minimise()

    return work


def measured(name: str) -> float:
    """Return the CPU seconds of a kernel's work: the shortest of several runs."""
    work = KERNELS[name]()
    work()  # loads what is loaded on first use
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def in_a_process(name: str, width: int) -> float:
    """Return `measured` from a new process with vectors of up to `width` bytes."""
    variables = {"BBL_VECTORS": str(width), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(  # noqa: S603  # this module
        [sys.executable, "-m", "benchmarks.speed.widths", "--kernel", name],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(out.stdout))


def machine() -> str:
    """Return the processor, its caches and the compiler, in words."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    caches = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (folder / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            caches.append(f"level {level}: {size.replace('K', ' kB')}")
    cached = f" (caches: {', '.join(caches)})" if caches else ""
    return f"{model}{cached}, one core"


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table with a row for each kernel and a column for each width."""
    cells = []
    for name, row in frame.iterrows():
        times = [f"{1e3 * row[width]:.3g}" for width in frame.columns]
        ratios = [
            f"{row[narrow] / row[wide]:.2f}"
            for wide, narrow in zip(frame.columns[:-1], frame.columns[1:], strict=True)
        ]
        cells.append([str(name), *times, *ratios])
    head = ["kernel", *(f"{w} bytes, ms" for w in frame.columns)]
    head += [f"{n} / {w}" for w, n in zip(frame.columns[:-1], frame.columns[1:], strict=True)]
    return [
        "# Vector widths",
        "",
        "Every kernel with vector instructions at each vector width, measured in one run of "
        f"`python -m benchmarks.speed.widths` on {machine()}: CPU milliseconds, the shortest of "
        "several runs in several processes. The last columns are ratios of neighbouring widths.",
        "",
        *table(head, cells),
    ]


def main() -> None:
    """Run and write ``results/widths.csv`` and ``widths.md``."""
    args = command(
        __doc__, kernel=("", "measure this kernel in this process"), only=("", "part of a name")
    )
    if args.kernel:
        print(json.dumps(measured(args.kernel)))
        return
    best: dict[str, dict[int, float]] = {}
    for _ in range(ROUNDS):
        for name in KERNELS:
            for width in WIDTHS if args.only in name else ():
                seconds = in_a_process(name, width)
                times = best.setdefault(name, {})
                times[width] = min(seconds, times.get(width, np.inf))
    frame = pd.DataFrame.from_dict(best, orient="index", columns=list(WIDTHS))
    frame.to_csv(args.out / "widths.csv", index_label="kernel", float_format="%.4g")
    print(write_page(args.out / "widths.md", page(frame)).read_text())


if __name__ == "__main__":
    main()
