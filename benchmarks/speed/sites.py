"""Sequences of many sites: seconds, gradients and memory of pseudo-likelihood: ``python -m
benchmarks.speed.sites``.
"""

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from bbl.engines import PseudoLikelihood
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from benchmarks.report import command, table, write_page
from benchmarks.speed.plots import PLAIN, STYLE
from benchmarks.speed.problems import family

SHAPES = (
    (5000, 30),
    (5000, 60),
    (5000, 90),
    (5000, 120),
    (5000, 160),
    (5000, 200),
    (20000, 60),
    (100000, 200),
)
DOUBLE = ((5000, 200),)  # also in double precision
PARALLEL = ((100000, 200),)  # also by two threads
COLUMNS = (
    "rows",
    "sites",
    "precision",
    "threads",
    "cpu",
    "wall",
    "gradients",
    "norm",
    "memory",
    "weights",
)


def measured(n: int, m: int, precision: str, threads: int) -> tuple:
    """Return the row of one fit, in a process of its own; `weights` are the CPU seconds of
    effective weights.
    """
    codes = np.ascontiguousarray(family(False, n, m).parts[0].codes)
    begin = time.process_time()
    bbl.effective_weights(codes)
    weights = time.process_time() - begin
    engine = PseudoLikelihood(0.01, precision=precision, tolerance=1e-4)
    begin, begin_wall = time.process_time(), time.perf_counter()
    fit = engine.fit(Sample(codes, np.ones(n)), Layout([21] * m), workers=threads)
    cpu, wall = time.process_time() - begin, time.perf_counter() - begin_wall
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        n,
        m,
        precision,
        threads,
        cpu,
        wall,
        int(fit.n_iter.max()),
        float(fit.grad_norm.max()),
        memory,
        weights,
    )


def settings() -> list[tuple]:
    """Return the arguments of all fits."""
    out = [(*shape, "single", 1) for shape in SHAPES]
    return (
        out
        + [(*shape, "double", 1) for shape in DOUBLE]
        + [(*shape, "single", 2) for shape in PARALLEL]
    )


def exponent(frame: pd.DataFrame) -> float:
    """Return the power of the number of sites with which CPU seconds grow, for 5,000 rows from 60
    sites on.
    """
    some = frame[
        (frame["rows"] == 5000) & (frame["sites"] >= 60) & (frame["precision"] == "single")
    ]
    return float(np.polyfit(np.log(some["sites"]), np.log(some["cpu"]), 1)[0])


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw seconds over sites."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    some = frame[(frame["rows"] == 5000) & (frame["precision"] == "single")]
    with plt.rc_context(PLAIN | {"font.size": 9, "legend.frameon": False}):
        figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="tight")
        colour, marker = STYLE["bbl"]
        ax.plot(some["sites"], some["cpu"], marker=marker, color=colour, label="bbl, to 1e-4")
        sites = sorted(some["sites"])
        ax.set(
            xscale="log", yscale="log", xlabel="sites of 21 levels", ylabel="CPU seconds, one core"
        )
        ax.set_xticks(sites, [str(m) for m in sites])
        ax.minorticks_off()
        ax.legend()
        figure.savefig(path, dpi=130, bbox_inches="tight")
        plt.close(figure)


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table."""
    cells = []
    for r in frame.itertuples():
        numbers = [
            f"{r.cpu:.1f}",
            f"{r.wall:.1f}",
            str(r.gradients),
            f"{r.norm:.1e}",
            f"{r.memory:.0f}",
        ]
        shape = [f"{r.rows:,} x {r.sites}", r.precision, str(r.threads)]
        cells.append([*shape, *numbers, f"{r.weights:.2f}"])
    head = [
        "rows x sites",
        "precision",
        "threads",
        "CPU s",
        "s",
        "gradients",
        "norm",
        "MB",
        "effective weights, CPU s",
    ]
    return [
        "# Long sequences",
        "",
        "Time from codes to parameters for related sequences, as in an alignment (`family`): "
        "sites with 21 levels, no response, `lambda_=0.01`, tolerance 1e-4. The number of "
        "gradients is the maximum over sites. Memory is the "
        f"maximum of the process. CPU seconds grow with the power {exponent(frame):.2f} of the "
        "number of sites (60 to 200). `python -m benchmarks.speed.sites`",
        "",
        "![CPU seconds against the number of sites](sites.png)",
        "",
        *table(head, cells),
    ]


def main() -> None:
    """Run and write ``results/sites.csv``, ``sites.md`` and ``sites.png``."""
    args = command(__doc__)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        rows = list(pool.map(measured, *zip(*settings(), strict=True)))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame.to_csv(args.out / "sites.csv", index=False, float_format="%.6g")
    draw(frame, args.out / "sites.png")
    print(write_page(args.out / "sites.md", page(frame)).read_text())


if __name__ == "__main__":
    main()
