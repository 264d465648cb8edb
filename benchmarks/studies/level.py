"""Level and power of the tests on sparse and dense tables, beside Fisher's test and a log-linear
model.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.special import chdtrc, gammaln, ndtr, xlogy

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.inference.comparisons import compare_groups
from bbl.boltzmann.inference.covariance import Covariances
from bbl.boltzmann.inference.significance import Evidence, evidence, of_group
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines import PseudoLikelihood
from bbl.errors import ConvergenceWarning
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.wald import adjust
from benchmarks.report import table

FEWER = 500  # replicates of the power, which needs no small Monte-Carlo error
ROWS, MARGINS, PENALTIES = (50, 100, 400, 1000, 4000), (0.5, 0.2, 0.1, 0.05), (0.0, 1e-5, 1e-3)
COLUMNS = ("what", "m", "n", "margin", "lambda", "test", "made", "rejected", "offered")


def draw(rng: np.random.Generator, n: int, m: int, margin: float, coupling: float) -> np.ndarray:
    """Return binary predictors (n, m), independent but for a coupling of the first two that keeps
    their margins.
    """
    x = rng.random((n, m)) < margin
    if coupling:
        odds = np.exp(coupling)
        a, b = odds - 1.0, -(1.0 + 2.0 * margin * (odds - 1.0))
        both = (-b - np.sqrt(b * b - 4.0 * a * odds * margin**2)) / (2.0 * a)
        share = np.where(x[:, 0], both / margin, (margin - both) / (1.0 - margin))
        x[:, 1] = rng.random(n) < share
    return x.astype(np.uint8)


def fitted(counts: np.ndarray, m: int, lambda_: float) -> tuple[Evidence, float]:
    """Fit one group, given how often each state occurs; return what its rows say, and z of a
    penalised coupling.
    """
    layout, seen = Layout([2] * m), np.flatnonzero(counts)
    codes = np.column_stack(np.unravel_index(seen, (2,) * m)).astype(np.uint8)
    sample = Sample(codes, counts[seen].astype(float), np.zeros(len(seen), dtype=np.intp))
    engine, z = PseudoLikelihood(lambda_=lambda_, lambdah=lambda_), np.nan
    (result,) = estimate_path(FitData(sample, layout, 1), FitSpec(engine))
    theta = result.parameters.theta[0]
    if m == 2 and lambda_:
        found = Covariances(sample, result, engine)
        z = theta[-1] / found.standard_errors(found.group[0])[-1]
    return evidence(sample.group(0), layout, theta), z


@lru_cache(maxsize=100_000)
def fisher(n: tuple[tuple[int, int], tuple[int, int]]) -> float:
    """Return the p-value of Fisher's test."""
    (n00, n01), (n10, n11) = n
    row, column, total = n10 + n11, n01 + n11, n00 + n01 + n10 + n11
    t = np.arange(max(0, row + column - total), min(row, column) + 1)
    log_p = -(
        gammaln(t + 1)
        + gammaln(row - t + 1)
        + gammaln(column - t + 1)
        + gammaln(total - row - column + t + 1)
    )
    p = np.exp(log_p - log_p.max())
    return float(p[p <= p[n11 - t[0]] * (1.0 + 1e-7)].sum() / p.sum())


def others(x: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the p-values of Fisher's test and of the log-linear likelihood-ratio test of each
    pair.
    """
    exact, linear = [], []
    for i, j in Layout([2] * x.shape[1]).pairs:
        n = np.bincount(2 * x[:, i] + x[:, j], minlength=4).reshape(2, 2)
        exact.append(fisher(tuple(map(tuple, n.tolist()))))
        parts = xlogy(n, n).sum() - sum(xlogy(v, v).sum() for v in (n.sum(axis=0), n.sum(axis=1)))
        linear.append(float(chdtrc(1, max(0.0, 2.0 * (parts + xlogy(n.sum(), n.sum()))))))
    return exact, linear


def _count(p: np.ndarray) -> tuple[int, int, int]:
    p = np.asarray(p, dtype=float)
    return int((~np.isnan(p)).sum()), int((p < 0.05).sum()), len(p)


def _any(p: np.ndarray) -> np.ndarray:
    """The smallest adjusted p-value: below 0.05 where the family has a rejection."""
    return np.array(
        [np.nan if np.isnan(p).all() else np.nanmin(adjust(np.asarray(p, dtype=float), "holm"))]
    )


def cell(m: int, n: int, margin: float, power: bool, replicates: int) -> list[tuple]:
    """Simulate two groups `replicates` times, fit at all penalties, and count rejections."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    rng = np.random.default_rng([m, n, round(100 * margin), power])
    coupling = min(3.0, 3.0 / np.sqrt(n) / (margin * (1.0 - margin))) if power else 0.0
    total: dict[tuple, np.ndarray] = {}

    def add(what: str, lambda_: object, test: str, p: np.ndarray) -> None:
        key = (what, m, n, margin, lambda_, test)
        total[key] = total.get(key, np.zeros(3, dtype=int)) + _count(p)

    known: dict[tuple, tuple[Evidence, float]] = {}  # small tables come again and again
    for _ in range(replicates):
        halves = [draw(rng, n, m, margin, coupling) for _ in range(2)]
        states = [
            np.bincount(np.ravel_multi_index(tuple(x.T), (2,) * m), minlength=2**m) for x in halves
        ]
        for lambda_ in PENALTIES if m == 2 and not power else PENALTIES[-1:]:
            for counts in states:
                if (lambda_, counts.tobytes()) not in known:
                    known[lambda_, counts.tobytes()] = fitted(counts, m, lambda_)
            groups, z = zip(*(known[lambda_, counts.tobytes()] for counts in states), strict=True)
            for k, found in enumerate([*map(of_group, groups), compare_groups(*groups)]):
                one, of = (1, "") if k < 2 else (2, " (difference)")
                p = found.tables()[2][m:]
                if power and one == 1:
                    add("power", lambda_, "bbl", p)
                if not power:
                    add("pairs" + of, lambda_, "bbl", p)
                    add("parameters J" + of, lambda_, "bbl", found.p[m:])
                    if margin == 0.5 or one == 2:
                        add("parameters h" + of, lambda_, "bbl", found.p[:m])
                    if m > 2:
                        add("family" + of, lambda_, "bbl", _any(p))
            if m == 2 and lambda_:
                add(
                    "power" if power else "pairs", lambda_, "penalised Wald", 2.0 * ndtr(-np.abs(z))
                )
        for x in halves:
            for name, p in zip(("Fisher", "log-linear"), others(x), strict=True):
                add("power" if power else "pairs", "", name, p)
                if m > 2:
                    add("family", "", name, _any(p))
    return [(*key, *values) for key, values in total.items()]


def run(replicates: int, jobs: int) -> pd.DataFrame:
    """Return counts of tests made and rejected over the grid."""
    grid = [(m, n, margin, False) for m, n, margin in product((2, 4), ROWS, MARGINS)]
    grid += [(2, n, margin, True) for n, margin in product(ROWS, MARGINS)]
    runs = Parallel(n_jobs=jobs)(
        delayed(cell)(*at, min(replicates, FEWER) if at[3] else replicates) for at in grid
    )
    return pd.DataFrame([row for found in runs for row in found], columns=COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown tables: level per cell, then power."""
    frame = frame.assign(share=100.0 * frame["rejected"] / frame["offered"])
    frame["of_made"] = 100.0 * frame["rejected"] / frame["made"].clip(lower=1)
    frame["spread"] = np.sqrt(frame["share"] * (100.0 - frame["share"]) / frame["offered"])
    own = frame[(frame["test"] == "bbl") & (frame["what"] != "power")]
    ascending = own.sort_values("share", kind="stable")
    worst = ascending.groupby(["what", "m"], sort=False).tail(1).sort_values(["m", "what"])
    lines = [
        "## Level",
        "",
        "Independent binary predictors with equal margins, n rows in each of two groups, nominal "
        "level 5 %. If a test is not available, this counts as no rejection; 'of those made' "
        "excludes these cases. Models of two predictors are fitted with penalties 0, 1e-5 and "
        "1e-3, models of four with 1e-3. 'family' is the probability of any rejection after "
        "Holm's adjustment over the six pairs of four predictors. The worst case over n, margins "
        "and penalties, with its Monte-Carlo error:",
        "",
        *table(
            ["", "m", "n", "margin", "penalty", "rejected %", "of those made %"],
            [
                [r.what, str(r.m), f"{r.n:,}", f"{r.margin:g}", f"{r.lambda_:g}"]
                + [f"{r.share:.2f} ± {r.spread:.2f}", f"{r.of_made:.2f}"]
                for r in worst.rename(columns={"lambda": "lambda_"}).itertuples()
            ],
        ),
        "",
        "All cases, with the maximum over penalties (rejected %), compared with Fisher's test, "
        "the log-linear likelihood-ratio test and the Wald test of the penalised estimate on the "
        "same data:",
        "",
    ]
    rows = []
    for (m, n, margin), part in frame[frame["what"] != "power"].groupby(
        ["m", "n", "margin"], sort=False
    ):

        def largest(what: str, test: str = "bbl", part: pd.DataFrame = part) -> str:
            found = part.loc[(part["what"] == what) & (part["test"] == test), "share"]
            return f"{found.max():.2f}" if len(found) else ""

        names = [
            w + of
            for w in ("pairs", "parameters J", "parameters h", "family")
            for of in ("", " (difference)")
        ]
        rest = [largest("pairs", t) for t in ("penalised Wald", "Fisher", "log-linear")]
        rows.append(
            [
                str(m),
                f"{n:,}",
                f"{margin:g}",
                *map(largest, names),
                *rest,
                largest("family", "Fisher"),
            ]
        )
    head = [
        "m",
        "n",
        "margin",
        "pair",
        "pair, diff.",
        "J",
        "J, diff.",
        "h",
        "h, diff.",
        "family",
        "family, diff.",
    ]
    lines += table([*head, "penalised Wald", "Fisher", "log-linear", "family, Fisher"], rows)
    power = frame[frame["what"] == "power"]
    tests = ["bbl", "penalised Wald", "Fisher", "log-linear"]
    text = (
        "Two predictors with a coupling of min(3, 3 / (sqrt(n) q (1 - q))), where q is the "
        "margin, with penalty 1e-3; rejected %."
    )
    found = []
    for (n, q), part in power.groupby(["n", "margin"], sort=False):
        share = part.set_index("test")["share"]
        found.append([f"{n:,}", f"{q:g}", *(f"{share[t]:.1f}" for t in tests)])
    return [*lines, "", "## Power", "", text, "", *table(["n", "margin", *tests], found)]
