"""Recovery of couplings by persistent variational inference: ``python -m
benchmarks.studies.recovery``.
"""

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from bbl.model.gauge import zero_sum
from benchmarks.files import shared_file
from benchmarks.report import command, number, table, update, write_page

FOLDER = ("data", "posterior")  # of the data that are not shipped
PVI = "pvi"
COLUMNS = (
    "problem",
    "n",
    "method",
    "iterations",
    "rms",
    "precision",
    "cover_all",
    "cover_edges",
    "nlpl",
    "scale",
    "seconds",
    "ratio",
)
ISING = ("ising_ferro_s0", "ising_ferro_s1", "ising_glass_s0", "ising_glass_s1")
SIZES = (300, 500, 1000, 2000)
OTHERS = ("ising_glass_sep_s1", "potts_mixed_s0", "protein_authors", "protein_own_s0")


NOTE = """\
`PersistentVI()` with its defaults (protein: 5,000 iterations of 10 sweeps, 40 chains, one draw) on
data with known couplings; CPU seconds of one thread on a shared machine. *Error* is the root mean
square error over all pairs, in spin coding (Potts: over all cells in the zero-sum gauge). *Ratio*
is the error relative to node-wise L1 logistic regression with 5-fold cross-validation on the same
rows (Potts: group L1; protein: the ratio of the -log pseudo-likelihoods of the test rows).
*Precision* is the proportion of true pairs among the strongest pairs, as many as there are true
ones. *Covered* is the coverage of 95 % intervals, for all pairs and for the true pairs."""


def stored(name: str):
    """Return the arrays of a data set; an error if the folder is not there."""
    path = shared_file(*FOLDER, f"{name}.npz")
    if path is None:
        raise SystemExit(f"{name}.npz is not there; name its folder in BBL_SHARED.")
    with np.load(path) as data:
        return {key: data[key] for key in data.files}


def fitted(codes: np.ndarray, method, L: np.ndarray | int | None = None):
    """Return a fit of one group, and the CPU seconds that it took."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.ConvergenceWarning)
        fit = bbl.mlestimate(codes, L=L, method=method, log_z="half", n_jobs=1, verbose=0)
    return fit, time.process_time() - began


def ising(name: str, n: int, method, J_true: np.ndarray, codes: np.ndarray) -> dict:
    """Return error, precision and coverage of spin couplings."""
    fit, seconds = fitted(codes[:n], method)
    i, j = np.triu_indices(len(J_true), 1)
    J = np.array([fit.J[a, b][0, 0] for a, b in zip(i, j, strict=True)]) / 4.0
    truth, row = J_true[i, j], {"seconds": seconds}
    edges = truth != 0.0
    top = np.argsort(-np.abs(J), kind="stable")[: edges.sum()]
    row |= {"rms": np.sqrt(np.mean((J - truth) ** 2)), "precision": edges[top].mean()}
    if fit.sd_J is not None:
        sd = np.array([fit.sd_J[a, b][0, 0] for a, b in zip(i, j, strict=True)]) / 4.0
        covered = np.abs(J - truth) <= 1.96 * sd
        row |= {
            "cover_all": covered.mean(),
            "cover_edges": covered[edges].mean(),
            "scale": fit.history["scale_couplings"].iloc[-1],
        }
    return row


def potts(
    codes: np.ndarray, L: np.ndarray, pairs: np.ndarray, truth: dict, test: np.ndarray, method
) -> dict:
    """Return error of zero-sum couplings, precision, and the test rows' negative log
    pseudo-likelihood.
    """
    fit, seconds = fitted(codes, method, L)
    m, error, cells = len(L), 0.0, 0
    strength = np.zeros((m, m))
    for i, j in zip(*np.triu_indices(m, 1), strict=True):
        own = zero_sum(np.pad(fit.J[i, j], ((1, 0), (1, 0))))
        strength[i, j] = np.sqrt((own**2).sum())
        error += ((own - truth.get((i, j), np.zeros(own.shape))) ** 2).sum()
        cells += own.size
    at = np.triu_indices(m, 1)
    top = np.argsort(-strength[at], kind="stable")[: len(pairs)]
    known = {tuple(sorted(pair)) for pair in pairs.tolist()}
    hits = [(int(at[0][k]), int(at[1][k])) in known for k in top]
    row = {
        "rms": np.sqrt(error / cells),
        "precision": np.mean(hits),
        "seconds": seconds,
        "nlpl": nlpl(fit, L, test),
    }
    return row | ({} if fit.sd_J is None else {"scale": fit.history["scale_couplings"].iloc[-1]})


def nlpl(fit, L: np.ndarray, codes: np.ndarray) -> float:
    """Return the mean negative log pseudo-likelihood of some rows."""
    total = np.zeros(len(codes))
    for i in range(len(L)):
        field = np.zeros((len(codes), L[i])) + np.append(0.0, fit.h[i])
        for j in range(len(L)):
            if j != i:
                field += np.pad(fit.J[i, j], ((1, 0), (1, 0))).T[codes[:, j]]
        top = field.max(axis=1)
        total += (
            np.log(np.exp(field - top[:, None]).sum(axis=1))
            + top
            - field[np.arange(len(codes)), codes[:, i]]
        )
    return float(total.mean())


def baseline(name: str, n: int) -> float:
    """Return the error of node-wise L1 with cross-validation (or its equivalent) on the same
    rows.
    """
    known = json.loads(Path(shared_file(*FOLDER, "baselines.json")).read_text())[name]
    if name == "ising_glass_sep_s1":
        return next(own["plm_l1"] for own in known if "plm_l1" in own)
    if name == "potts_mixed_s0":
        return known["plm_group_cv"]["rms_zs"]
    return (
        known["plm_group_10_.1"]["nlpl"]
        if name.startswith("protein")
        else known[str(n)]["plm_l1"]["rms"]
    )


def problems(only: str) -> Iterator[tuple[str, int]]:
    """Yield names of data sets with numbers of rows, those whose label has `only` in it."""
    for name, n in [*((name, n) for name in ISING for n in SIZES), *((name, 0) for name in OTHERS)]:
        if only in f"{name}:{n}":
            yield name, n


def run(name: str, n: int, iterations: int) -> Iterator[dict]:
    """Yield the rows of one data set."""
    data, slabs = stored(name), (1.0, np.inf) if name == "ising_glass_sep_s1" else (1.0,)
    for slab in slabs:
        label = PVI if slab == 1.0 else f"{PVI}, slab=inf"
        if name.startswith("protein"):
            method = bbl.PersistentVI(
                n_iter=min(iterations, 5000), sweeps=10, chains=40, draws=1, slab=slab
            )
            truth = {
                tuple(pair): zero_sum(J.astype(float))
                for pair, J in zip(data["contacts"].tolist(), data["J"], strict=True)
            }
            L = np.full(50, 20)
            row = potts(
                data["codes"][:400], L, data["contacts"], truth, data["codes"][400:], method
            )
        else:
            method = bbl.PersistentVI(n_iter=iterations, slab=slab)
            if name.startswith("ising"):
                codes = (data["x"] > 0).astype(np.uint8)
                row = ising(name, n or len(codes), method, data["J"], codes)
            else:
                L, J = data["L"].astype(int), data["J_zs"]
                truth = {(i, j): J[i, j, : L[i], : L[j]] for i, j in data["pairs"].tolist()}
                row = potts(data["codes"], L, data["pairs"], truth, data["codes"], method)
        judged = row["nlpl"] if name.startswith("protein") else row["rms"]
        known = {"problem": name, "n": n, "method": label, "iterations": method.n_iter}
        yield {**known, **row, "ratio": judged / baseline(name, n)}


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page."""
    lines = ["# Recovery of couplings", "", *NOTE.splitlines(), ""]
    heads = [
        "",
        "rows",
        "iterations",
        "error",
        "ratio",
        "precision",
        "covered: all",
        "pairs",
        "-log PL",
        "scale",
        "seconds",
    ]
    columns = ("rms", "ratio", "precision", "cover_all", "cover_edges", "nlpl", "scale", "seconds")
    rows = []
    for row in frame.to_dict("records"):
        label = f"{row['problem']}, {row['method']}"
        values = [number(float(row[key] or "nan")) for key in columns]
        rows.append([label, row["n"] if row["n"] != "0" else "", row["iterations"], *values])
    return lines + table(heads, rows)


def main() -> None:
    """Run and write ``results/recovery.csv`` and ``recovery.md``, one data set after the other."""
    args = command(
        __doc__,
        only=("", "data sets with this in their label (name:rows)"),
        iterations=(20000, "iterations"),
    )
    order = [(name, str(n)) for name, n in problems("")]
    for name, n in problems(args.only):
        found = pd.DataFrame(list(run(name, n, args.iterations)), columns=list(COLUMNS))
        frame = update(
            args.out / "recovery.csv", found, ["problem", "n", "method", "iterations"], order
        )
        write_page(args.out / "recovery.md", summarise(frame))
        print(found.to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
