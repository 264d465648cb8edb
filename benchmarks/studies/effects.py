"""Coverage of intervals of effects on probabilities, in samples from a population whose effects are
known.
"""

from __future__ import annotations

import itertools
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
ROWS = (200, 2000)
LEVELS = {"a": 3, "b": 2, "c": 2}
# of naive Bayes without the interaction, which the population has nonetheless
FORMULA = "y ~ a*b + c"
ALL = "**all**"
COLUMNS = ("method", "n", "effect", "sample", "effects", "with limits", "covered", "log width")
EFFECTS = {
    "share by a": lambda fit, **options: fit.avg_predictions(by="a", **options),
    "difference": lambda fit, **options: fit.avg_comparisons(**options),
    "ratio": lambda fit, **options: fit.avg_comparisons(transform="ratio", **options),
    "log odds ratio": lambda fit, **options: fit.avg_comparisons(
        transform="lnoddsratio", **options
    ),
    "difference of differences": lambda fit, **options: fit.avg_comparisons(
        ["a", "b"], cross=True, **options
    ),
}


@cache
def population() -> pd.DataFrame:
    """Return all states of a group and three predictors, with their probabilities."""
    states = pd.DataFrame(
        itertools.product(range(2), *map(range, LEVELS.values())), columns=["y", *LEVELS]
    )
    y, a, b, c = (states[name].to_numpy() for name in states)
    energy = (
        np.array([0.0, 0.3, -0.2])[a]
        - 0.3 * b
        - 0.1 * c
        + np.array([0.0, 0.4, 0.8])[a] * b
        + 0.3 * b * c
    )
    energy = energy + y * (
        -0.7 + np.array([0.0, 0.5, 0.9])[a] - 0.5 * b + 0.7 * c + np.array([0.0, 0.6, -0.5])[a] * b
    )
    p = np.exp(energy)
    return states.assign(p=p / p.sum())


def fit_rows(method: str, data: pd.DataFrame, weights: str | None) -> bbl.BBLResults:
    """Return a fit without a penalty."""
    levels = {name: list(range(n)) for name, n in LEVELS.items()}
    options = METHODS[method] | {
        "xlevels": levels,
        "novarOk": True,
        "testNull": False,
        "n_jobs": 1,
        "verbose": 0,
    }
    formula = FORMULA.replace("*", " + ") if method == "naive" else FORMULA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return bbl.bbl(formula, data, weights, method=method, **options)


@cache
def fit_population(method: str) -> bbl.BBLResults:
    """Return the fit to the whole population."""
    return fit_rows(method, population(), "p")


def replicate(number: int, n: int) -> list[tuple]:
    """Draw a sample, fit it by all methods, and count the effects of the population that intervals
    cover.

    The distribution of the predictors is taken as fixed: the true effects are averages over the
    rows of the sample.
    """
    states, out = population(), []
    counts = np.random.default_rng([number, n, 9]).multinomial(n, states["p"])
    data = states[["y", *LEVELS]].assign(n=counts)[counts > 0]
    for method in METHODS:
        fit, true_fit = fit_rows(method, data, "n"), fit_population(method)
        for effect, ask in EFFECTS.items():
            frame = ask(fit).frame
            truth = ask(true_fit, newdata=data, weights="n", se=False).frame["estimate"].to_numpy()
            # the other group has the same intervals, mirrored
            shown = (frame["group"] == 1).to_numpy()
            low, high = (frame.loc[shown, name].to_numpy() for name in ("conf_low", "conf_high"))
            known = np.isfinite(high - low)
            covered = (low <= truth[shown]) & (truth[shown] <= high)
            width = float(np.log(high[known] - low[known]).sum())
            out.append(
                (
                    method,
                    n,
                    effect,
                    number,
                    len(low),
                    int(known.sum()),
                    int(covered[known].sum()),
                    width,
                )
            )
    return out


def run(samples: int, jobs: int) -> pd.DataFrame:
    """Return what the intervals cover in each sample."""
    return rows_of(
        replicate, [(number, n) for n in ROWS for number in range(samples)], jobs, COLUMNS
    )


def with_totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Prepend rows that add up all effects of a sample.

    Effects of one sample are dependent, so they are added up before equal samples are merged.
    """
    by_sample = frame.drop(columns="effect").groupby(["method", "n", "sample"], sort=False)
    return pd.concat([by_sample.sum().reset_index().assign(effect=ALL), frame])[list(COLUMNS)]


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown table of condensed rows."""
    rows = []
    parts = dict(list(frame.groupby(["n", "method", "effect"])))
    for n, method, effect in itertools.product(ROWS, METHODS, (ALL, *EFFECTS)):
        part = parts[n, method, effect]
        samples = part["samples"]
        total = part[["effects", "with limits", "log width"]].mul(samples, axis=0).sum()
        shown = 100.0 * total["with limits"] / total["effects"]
        width = np.exp(total["log width"] / total["with limits"])
        cells = [f"{n:,}", method, effect, f"{samples.sum():,}"]
        cells.append(share(part["covered"], part["with limits"], samples))
        rows.append([*cells, f"{shown:.1f}%", f"{width:.3f}"])
    head = ["n", "method", "effect", "samples", "coverage of 95%", "with an interval", "mean width"]
    return [
        "## Effects on probabilities",
        "",
        f"Samples of {' and '.join(f'{n:,}' for n in ROWS)} rows from a population of two groups "
        "and three predictors, of three and two levels. Intervals of `avg_predictions()` and "
        f"`avg_comparisons()` of `{FORMULA}` (of naive Bayes without the interaction), without a "
        "penalty. The true effects are computed from a fit to the whole population, averaged over "
        "the rows of the sample; ± is the Monte-Carlo standard error over samples.",
        "",
        *table(head, rows),
    ]
