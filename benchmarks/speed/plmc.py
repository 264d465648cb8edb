"""One gradient beside an iteration of plmc, and whole fits: ``python -m benchmarks.speed.plmc
--program PATH``.

Both run in single precision on one core, on the same sequences, in turn. plmc is not shipped; PATH
is the program that ``make all32`` builds from its sources.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.report import command, table, write_page
from benchmarks.speed.problems import alignment, close_family
from benchmarks.speed.widths import WIDTHS, machine

ROWS = 5000
SITES = (60, 120, 200)
WHOLE = (60, 120)  # sites of whole fits
ROUNDS = 2
PENALTY = 0.01  # of fields and couplings, for each row
TOLERANCE = 1e-4  # of a site's gradient norm in whole fits
LETTERS = "-ACDEFGHIKLMNPQRSTVWY"
FEW, MANY = 2, 6  # iterations of plmc; a run's set-up takes as long with both


def gradient_seconds(m: int) -> float:
    """Return the CPU seconds of one gradient of all `m` sites, with its parameters read and
    written.
    """
    from bbl._ext.pseudo.pseudo import PseudoProblem

    part = alignment(ROWS, m)
    problem = PseudoProblem(
        part.codes, np.ones(ROWS), part.n_levels, ~np.eye(m, dtype=bool), precision="single"
    )
    theta = np.random.default_rng(1).normal(scale=0.02, size=(20 * m, 1 + 20 * m))
    times = []
    for _ in range(4):
        begin = time.process_time()
        problem.objective(theta, 0.01, 0.01)
        times.append(time.process_time() - begin)
    return min(times)


def fit_seconds(m: int) -> float:
    """Return the CPU seconds of a fit of all `m` sites to `TOLERANCE`, from codes to parameters."""
    from bbl.engines import PseudoLikelihood
    from bbl.model.layout import Layout
    from bbl.rows.sample import Sample

    part = close_family(ROWS, m)
    engine = PseudoLikelihood(PENALTY, lambdah=PENALTY, precision="single", tolerance=TOLERANCE)
    begin = time.process_time()
    fit = engine.fit(Sample(part.codes, np.ones(ROWS)), Layout(part.n_levels), workers=1)
    seconds = time.process_time() - begin
    if not fit.converged.all():
        raise RuntimeError("the fit did not converge")
    return seconds


def in_a_process(m: int, width: int, what: str = "sites") -> float:
    """Return `gradient_seconds`, or with `what` "fit" `fit_seconds`, from a new process with
    vectors of up to `width` bytes.
    """
    variables = {"BBL_VECTORS": str(width), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(  # noqa: S603  # this module
        [sys.executable, "-m", "benchmarks.speed.plmc", f"--{what}", str(m)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(out.stdout))


def iteration_seconds(program: str, path: Path) -> float:
    """Return the CPU seconds of an iteration of plmc on the sequences in a FASTA file."""
    times = []
    for iterations in (FEW, MANY):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        arguments = ["-c", "couplings.txt", "-a", LETTERS, "-t", "-1"]
        arguments += ["-le", "0.01", "-lh", "0.01", "-m", str(iterations), str(path)]
        subprocess.run(  # noqa: S603  # the program that the user names
            [program, *arguments], cwd=path.parent, capture_output=True, check=True
        )
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
    return (times[1] - times[0]) / (MANY - FEW)


def whole_fit(program: str, path: Path, m: int) -> dict[str, float]:
    """Return the CPU seconds, iterations and gradient norm of a fit by plmc, until it stops.

    plmc minimises the sum over rows, in which a coupling counts once, with penalties that are not
    halved. The norm is that of the mean over rows, divided by the root of the number of sites: the
    root mean square over sites.
    """
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = ["-c", "couplings.txt", "-a", LETTERS, "-t", "-1", "-m", "1000"]
    arguments += ["-le", str(PENALTY * ROWS), "-lh", str(PENALTY * ROWS / 2), str(path)]
    out = subprocess.run(  # noqa: S603  # the program that the user names
        [program, *arguments], cwd=path.parent, capture_output=True, check=True, text=True
    )
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line.split("\t") for line in (out.stdout + out.stderr).splitlines()]
    last = [line for line in lines if len(line) == 7 and line[0].isdigit()][-1]
    norm = float(last[2]) * np.hypot(float(last[5]), float(last[6])) / ROWS / np.sqrt(m)
    seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {"plmc": seconds, "iterations": float(last[0]), "norm": norm}


def write_fasta(codes: np.ndarray, path: Path) -> None:
    """Write sequences in FASTA format."""
    letters = np.array(list(LETTERS))
    lines = (f">s{k}\n{''.join(row)}\n" for k, row in enumerate(letters[codes]))
    path.write_text("".join(lines), encoding="ascii")


def page(frame: pd.DataFrame, fits: pd.DataFrame) -> list[str]:
    """Return the page of two tables with a row for each number of sites: gradients and fits."""
    cells = []
    for m, row in frame.iterrows():
        times = [f"{row[w]:.3f} ({row['plmc'] / row[w]:.1f} x)" for w in WIDTHS]
        cells.append([str(m), f"{row['plmc']:.2f}", *times])
    fit_cells = []
    for m, row in fits.iterrows():
        times = [f"{row[w]:.2f} ({row['plmc'] / row[w]:.0f} x)" for w in WIDTHS]
        reached = [f"{row['plmc']:.0f}", f"{row['iterations']:.0f}", f"{row['norm']:.1e}"]
        fit_cells.append([str(m), *reached, *times])
    return [
        "# Gradients and fits beside plmc",
        "",
        f"CPU seconds of one gradient of all sites ({ROWS:,} related sequences, 21 levels, single "
        "precision), beside an iteration of plmc (`make all32`, its own flags) on the same "
        "sequences, in one run of `python -m benchmarks.speed.plmc` on "
        f"{machine()}: the shortest of {ROUNDS} runs in turn. An iteration of plmc has at least "
        "one evaluation of its objective. In brackets: plmc's time relative to ours.",
        "",
        *table(["sites", "plmc", *(f"vectors of {w} bytes" for w in WIDTHS)], cells),
        "",
        f"Whole fits of {ROWS:,} closely related sequences (each descends from one of the 200 "
        f"preceding ones), with a penalty of {PENALTY:g} for each row: CPU seconds. Our fits reach "
        f"a gradient norm of {TOLERANCE:g} at each site. plmc stops when rounding errors in single "
        "precision prevent further progress, at the norm in the table (root mean square over "
        "sites).",
        "",
        *table(
            [
                "sites",
                "plmc",
                "its iterations",
                "its norm",
                *(f"vectors of {w} bytes" for w in WIDTHS),
            ],
            fit_cells,
        ),
    ]


def main() -> None:
    """Run and write ``results/plmc.csv``, ``plmc_fits.csv`` and ``plmc.md``."""
    args = command(
        __doc__,
        program=("plmc", "path of plmc"),
        sites=(0, "measure one gradient"),
        fit=(0, "measure one fit"),
    )
    if args.sites or args.fit:
        print(json.dumps(fit_seconds(args.fit) if args.fit else gradient_seconds(args.sites)))
        return
    best: dict[int, dict[object, float]] = {m: {} for m in SITES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sequences.fa"
        for m in SITES:
            write_fasta(alignment(ROWS, m).codes, path)
            for _ in range(ROUNDS):
                found: dict[object, float] = {w: in_a_process(m, w) for w in WIDTHS}
                found["plmc"] = iteration_seconds(args.program, path)
                for name, seconds in found.items():
                    best[m][name] = min(seconds, best[m].get(name, np.inf))
        fits = {}
        for m in WHOLE:
            write_fasta(close_family(ROWS, m).codes, path)
            fits[m] = whole_fit(args.program, path, m)
            fits[m] |= {w: in_a_process(m, w, "fit") for w in WIDTHS}
    frame = pd.DataFrame.from_dict(best, orient="index")
    frame.to_csv(args.out / "plmc.csv", index_label="sites", float_format="%.4g")
    fit_frame = pd.DataFrame.from_dict(fits, orient="index")
    fit_frame.to_csv(args.out / "plmc_fits.csv", index_label="sites", float_format="%.4g")
    print(write_page(args.out / "plmc.md", page(frame, fit_frame)).read_text())


if __name__ == "__main__":
    main()
