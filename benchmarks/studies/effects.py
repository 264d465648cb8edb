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
from benchmarks.report import rows_of, table

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


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown table."""
    rows = []
    pooled = frame.assign(effect="**all**")
    for n, method in itertools.product(ROWS, METHODS):
        for effect in ("**all**", *EFFECTS):
            every = pooled if effect == "**all**" else frame
            part = every[
                (every["n"] == n) & (every["method"] == method) & (every["effect"] == effect)
            ]
            by_sample = part.groupby("sample")[["effects", "with limits", "covered"]].sum()
            offered = by_sample["with limits"]
            rate = by_sample["covered"].sum() / offered.sum()
            spread = np.sqrt(((by_sample["covered"] - rate * offered) ** 2).sum()) / offered.sum()
            shown = 100.0 * offered.sum() / by_sample["effects"].sum()
            width = np.exp(part["log width"].sum() / offered.sum())
            cells = [
                f"{n:,}",
                method,
                effect,
                f"{len(by_sample):,}",
                f"{100 * rate:.2f} ± {100 * spread:.2f}%",
            ]
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
