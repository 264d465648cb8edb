"""Coverage of intervals in samples of clusters from a finite population, with the sampling design
and without.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd

import bbl
from bbl.errors import ConvergenceWarning, DataWarning
from benchmarks.report import rows_of, share, table

METHODS = {
    "naive": {"prior_count": 0.0},
    "pseudo": {"lambda_": 0.0},
    "ml": {},
    "conditional": {"ridge": 0.0},
}
# of the population: strata, clusters of each, and people of a cluster
STRATA, CLUSTERS, PEOPLE = 6, 400, 50
DRAWN, ASKED = (8, 16, 8, 16, 8, 16), 30  # clusters of each stratum, and people of each
FORMULA = "y ~ a*b + c"
COLUMNS = ("method", "errors", "sample", "parameters", "with limits", "covered", "log width")


@cache
def population() -> pd.DataFrame:
    """Return all people: answers that depend on what a cluster shares, and on each other."""
    rng = np.random.default_rng(11)
    cluster = np.repeat(np.arange(STRATA * CLUSTERS), PEOPLE)
    shared, stratum = rng.normal(size=(STRATA * CLUSTERS, 5))[cluster], cluster // CLUSTERS

    def answer(log_odds: np.ndarray) -> np.ndarray:
        return (rng.random(len(cluster)) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)

    a = answer(1.2 * shared[:, 0] - 0.4 + 0.1 * stratum)
    b = answer(1.2 * shared[:, 1] + 0.5 * a)
    c = answer(1.2 * shared[:, 2] - 0.5 * shared[:, 0] + 0.3)
    y = answer(
        1.2 * shared[:, 3]
        + (0.6 + 1.0 * shared[:, 4]) * a
        - 0.5 * b
        + 0.4 * a * b
        - 0.4
        + 0.15 * stratum
    )
    return pd.DataFrame({"y": y, "a": a, "b": b, "c": c, "stratum": stratum, "cluster": cluster})


@cache
def truth(method: str) -> np.ndarray:
    """Return the parameters that a fit to the whole population has."""
    return _limits(method, population().drop(columns=["stratum", "cluster"]), None)[0]


def draw(rng: np.random.Generator) -> pd.DataFrame:
    """Return a sample: some clusters of each stratum, more of some strata, and as many people of
    each cluster.
    """
    people, rows, weights = population(), [], []
    for stratum, n_drawn in enumerate(DRAWN):
        for cluster in rng.choice(CLUSTERS, n_drawn, replace=False) + CLUSTERS * stratum:
            rows.append(cluster * PEOPLE + rng.choice(PEOPLE, ASKED, replace=False))
            weights.append(np.full(ASKED, CLUSTERS / n_drawn * PEOPLE / ASKED))
    return (
        people.iloc[np.concatenate(rows)].assign(w=np.concatenate(weights)).reset_index(drop=True)
    )


def _limits(
    method: str, data: pd.DataFrame, design: object
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return estimates and limits of all parameters (conditional fits: of the second group)."""
    levels = {name: [0, 1] for name in "abc"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        options = METHODS[method] | {"xlevels": levels, "novarOk": True, "n_jobs": 1, "verbose": 0}
        fit = bbl.bbl(FORMULA, data, design=design, method=method, testNull=False, **options)
    frame = fit.inference().table()
    if method == "conditional":
        frame = frame[frame["group"] == 1]
    return tuple(frame[name].to_numpy(float) for name in ("estimate", "lower", "upper"))


def replicate(number: int) -> list[tuple]:
    """Draw a sample, fit it by all methods, and count the parameters whose intervals cover those of
    the population.
    """
    data, out = draw(np.random.default_rng([number, 5])), []
    design = bbl.survey("w", strata="stratum", cluster="cluster")
    for method in METHODS:
        for errors in ("design", "single rows"):
            if errors == "design":
                _, lower, upper = _limits(method, data, design)
            else:
                _, lower, upper = _limits(method, data[["y", "a", "b", "c"]], None)
            known = ~np.isnan(lower) & np.isfinite(upper - lower)
            covered = (lower <= truth(method)) & (truth(method) <= upper)
            width = float(np.log(upper[known] - lower[known]).sum())
            out.append(
                (
                    method,
                    errors,
                    number,
                    len(lower),
                    int(known.sum()),
                    int(covered[known].sum()),
                    width,
                )
            )
    return out


def run(samples: int, jobs: int) -> pd.DataFrame:
    """Return what the intervals cover in each sample."""
    return rows_of(replicate, [(number,) for number in range(samples)], jobs, COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown table of condensed rows."""
    rows = []
    for (method, errors), part in frame.groupby(["method", "errors"], sort=False):
        samples = part["samples"]
        total = part[["parameters", "with limits", "log width"]].mul(samples, axis=0).sum()
        width = np.exp(total["log width"] / total["with limits"])
        rows.append(
            [
                method,
                errors,
                f"{samples.sum():,}",
                share(part["covered"], part["with limits"], samples),
                f"{100.0 * total['with limits'] / total['parameters']:.1f}%",
                f"{width:.3f}",
            ]
        )
    head = ["method", "errors of", "samples", "coverage of 95%", "with an interval", "mean width"]
    return [
        "## Samples of clusters",
        "",
        f"A population of {STRATA} strata, {CLUSTERS} clusters in each, and {PEOPLE} people in a "
        f"cluster, who are similar; {' or '.join(map(str, sorted(set(DRAWN))))} clusters are drawn "
        f"from each stratum, and {ASKED} people from each cluster. The true parameters are those "
        f"of `{FORMULA}` fitted to the whole population. Intervals are computed with "
        '`design=bbl.survey("w", strata="stratum", cluster="cluster")`, and as if rows had been '
        "drawn independently.",
        "",
        *table(head, rows),
    ]
