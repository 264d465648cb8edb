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
from bbl._ext.pseudo.plan import LANES, widths
from bbl.engines import PseudoLikelihood
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from benchmarks.report import command, table, write_page
from benchmarks.speed.plots import PLAIN, STYLE
from benchmarks.speed.problems import alignment, close_family
from benchmarks.speed.widths import machine

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
CLOSE = ((5000, 60), (5000, 120), (5000, 200))  # also with closely related sequences
DOUBLE = ((5000, 200),)  # also in double precision
PARALLEL = ((100000, 200),)  # also by two threads
COLUMNS = (
    "rows",
    "sites",
    "close",
    "precision",
    "threads",
    "cpu",
    "wall",
    "iterations",
    "norm",
    "memory",
    "weights",
)


def measured(n: int, m: int, close: bool, precision: str, threads: int) -> tuple:
    """Return the row of one fit, in a process of its own; `weights` are the CPU seconds of
    effective weights.
    """
    codes = np.ascontiguousarray((close_family if close else alignment)(n, m).codes)
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
        close,
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
    out = [(*shape, False, "single", 1) for shape in SHAPES]
    return (
        out
        + [(*shape, True, "single", 1) for shape in CLOSE]
        + [(*shape, False, "double", 1) for shape in DOUBLE]
        + [(*shape, False, "single", 2) for shape in PARALLEL]
    )


def exponent(frame: pd.DataFrame, close: bool) -> float:
    """Return the power of the number of sites with which CPU seconds grow, for 5,000 rows from 60
    sites on.
    """
    some = frame[
        (frame["rows"] == 5000)
        & (frame["sites"] >= 60)
        & (frame["precision"] == "single")
        & (frame["close"] == close)
    ]
    return float(np.polyfit(np.log(some["sites"]), np.log(some["cpu"]), 1)[0])


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw seconds over sites."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    is_shown = (frame["rows"] == 5000) & (frame["precision"] == "single")
    with plt.rc_context(PLAIN | {"font.size": 9, "legend.frameon": False}):
        figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="tight")
        colour, marker = STYLE["bbl"]
        for close, line, label in ((False, "-", "related"), (True, "--", "closely related")):
            some = frame[is_shown & (frame["close"] == close)]
            ax.plot(
                some["sites"], some["cpu"], line, marker=marker, color=colour, label=f"{label} rows"
            )
        sites = sorted(set(frame["sites"][is_shown]))
        ax.set(
            xscale="log", yscale="log", xlabel="sites of 21 levels", ylabel="CPU seconds, one core"
        )
        ax.set_xticks(sites, [str(m) for m in sites])
        ax.minorticks_off()
        ax.legend()
        figure.savefig(path, dpi=130, bbox_inches="tight")
        plt.close(figure)


def widest() -> int:
    """Return the bytes of the widest vectors that the kernels use."""
    return 8 * max(LANES[name] for name in widths())


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table."""
    cells = []
    for r in frame.itertuples():
        numbers = [
            f"{r.cpu:.1f}",
            f"{r.wall:.1f}",
            str(r.iterations),
            f"{r.norm:.1e}",
            f"{r.memory:.0f}",
        ]
        rows = f"{r.rows:,}, closely related" if r.close else f"{r.rows:,}"
        shape = [rows, str(r.sites), r.precision, str(r.threads)]
        cells.append([*shape, *numbers, f"{r.weights:.2f}"])
    head = [
        "rows",
        "sites",
        "precision",
        "threads",
        "CPU s",
        "s",
        "iterations",
        "norm",
        "MB",
        "effective weights, CPU s",
    ]
    return [
        "# Long sequences",
        "",
        "Time from codes to parameters for related sequences, as in an alignment: sites with 21 "
        "levels, no response, `lambda_=0.01`, tolerance 1e-4. Sequences descend from any earlier "
        "one, with a tenth of the sites changed, or, if they are closely related, from one of the "
        "200 preceding ones, with 35 % changed. The number of iterations is the maximum over "
        "sites: epochs of dual coordinate ascent, or steps of L-BFGS (20,000 and 100,000 rows). "
        "Memory is the maximum of the process. CPU seconds grow with the power "
        f"{exponent(frame, False):.2f} of the number of sites (60 to 200), and "
        f"{exponent(frame, True):.2f} for closely related sequences. Measured on {machine()}, "
        f"vectors of {widest()} bytes. `python -m benchmarks.speed.sites`",
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
