"""Whether posteriors hold what they say, on models drawn from the prior: ``python -m
benchmarks.studies.posterior``.
"""

import time

import numpy as np
import pandas as pd
from scipy.stats import chisquare, norm

from bbl.engines import Engine, PersistentVI, Posterior
from bbl.engines.bayes.posterior import Problem
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from benchmarks.report import command, number, rows_of, table, update, write_page

LEVELS, TAU = (2, 3, 2, 2), 0.5
BINS, KEPT = 20, 100
DRAWN = {"tau": TAU, "chains": 1, "warmup": 200, "draws": 4 * (KEPT - 1)}
METHODS: dict[str, Engine] = {
    "exact": Posterior(sampler="exact", **DRAWN),
    "exchange": Posterior(sampler="exchange", **DRAWN),
    "pseudo": Posterior(sampler="pseudo", **DRAWN),
    "pseudo, not adjusted": Posterior(sampler="pseudo", adjust=False, **DRAWN),
    "pvi, the normal prior": PersistentVI("gaussian", scale=TAU, n_iter=2000, average=0.3),
    "pvi, the normal prior, sd='lrvb'": PersistentVI(
        "gaussian", scale=TAU, n_iter=2000, average=0.3, sd="lrvb"
    ),
    "pvi, horseshoe": PersistentVI(n_iter=2000, average=0.3),
}
COLUMNS = ("method", "n", "fit", "parameter", "coupling", "rank", "inside", "narrow", "seconds")
SHARES = ("fields_inside", "fields_narrow", "couplings_inside", "couplings_narrow")


def fits(method: str, n: int, first: int, last: int) -> list[tuple]:
    """Draw models from the prior and rows from each, fit them, and return where the truth lies in
    the posterior.

    The rank of the truth among the draws is nan where there are none; then intervals are those of a
    normal posterior.
    """
    layout, out, engine = Layout(LEVELS), [], METHODS[method]
    states = np.array(np.unravel_index(np.arange(np.prod(LEVELS)), LEVELS)).T.astype(np.uint8)
    model = Problem(Sample(states, np.ones(len(states))), layout, TAU).target()
    for fit in range(first, last):
        rng = np.random.default_rng([fit, n])
        phi = TAU * rng.normal(size=layout.size)
        counts = rng.multinomial(n, model.probabilities(phi)[1]).astype(float)
        rows, truth = Sample(states, counts).weighted(counts), to_reference(layout, phi)
        began = time.process_time()
        if isinstance(engine, Posterior):
            drawn = to_reference(layout, engine._sample(rows, layout, rng, 1, None)[0][0])
            rank = (drawn[::4] < truth).sum(axis=0).astype(float)
            low, low80, high80, high = np.quantile(drawn, [0.025, 0.1, 0.9, 0.975], axis=0)
        else:
            found = engine.fit(rows, layout, rng=rng)
            rank = np.full(layout.size, np.nan)
            low, low80, high80, high = (
                found.theta + norm.ppf([0.025, 0.1, 0.9, 0.975])[:, None] * found.sd
            )
        seconds = time.process_time() - began
        for k in range(layout.size):
            inside, narrow = low[k] <= truth[k] <= high[k], low80[k] <= truth[k] <= high80[k]
            out.append((method, n, fit, k, k >= layout.D, rank[k], inside, narrow, seconds))
    return out


def shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of intervals with the truth in them, and their standard errors, of one
    method and n.

    Parameters of one model are not independent, so errors are those of means over models.
    """
    row: dict[str, object] = {
        "method": frame["method"].iloc[0],
        "n": frame["n"].iloc[0],
        "models": frame["fit"].nunique(),
    }
    for kind, own in frame.groupby("coupling"):
        for column in ("inside", "narrow"):
            each = own.groupby("fit")[column].mean()
            name = f"{'couplings' if kind else 'fields'}_{column}"
            row |= {name: each.mean(), f"{name}_se": each.std() / np.sqrt(len(each))}
    row["p"] = np.nan
    if frame["rank"].notna().all():
        ranks = [part["rank"].astype(int) * BINS // KEPT for _, part in frame.groupby("parameter")]
        row["p"] = min(
            1.0,
            min(chisquare(np.bincount(own, minlength=BINS)).pvalue for own in ranks) * len(ranks),
        )
    return pd.DataFrame([row | {"seconds": frame["seconds"].mean()}])


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page, from cells as text."""
    rows = []
    for row in frame.to_dict("records"):
        cells = [f"{100 * float(row[c]):.1f} ± {100 * float(row[f'{c}_se']):.1f}" for c in SHARES]
        more = [number(float(row["p"] or "nan")), number(1e3 * float(row["seconds"]))]
        rows.append([row["method"], row["n"], row["models"], *cells, *more])
    size = Layout(LEVELS).size
    lines = [
        "# Coverage of posteriors",
        "",
        f"Models of predictors with {', '.join(map(str, LEVELS))} levels and all pairs are drawn "
        f"from the normal prior with tau {TAU}, and n rows from each model. The table shows the "
        "proportion of parameters (reference gauge) in central 95 % and 80 % intervals, in %, "
        "with standard errors over models, and a test that the ranks of the true values among the "
        f"draws are uniform (simulation-based calibration: the smallest of {size} chi-squared "
        "p-values, multiplied by their number). *exact* to *pseudo, not adjusted* are samplers of "
        '`method="bayes"`. `method="pvi"` assumes independent parameters; it uses either the '
        "prior from which models are drawn, or its default prior, whose intervals are centred at "
        "values that are shrunk to zero.",
        "",
    ]
    head = [
        "method",
        "rows",
        "models",
        "fields 95 %",
        "fields 80 %",
        "couplings 95 %",
        "couplings 80 %",
        "ranks, p",
    ]
    return lines + table([*head, "CPU ms"], rows)


def main() -> None:
    """Run and write ``results/posterior.csv`` and ``posterior.md``, one method and number of rows
    after the other.
    """
    args = command(
        __doc__,
        fits=(2000, "models for each method and number of rows"),
        rows=([100, 1000], "numbers of rows"),
        only=("", "methods with this in their name"),
    )
    sizes = [int(n) for n in args.rows]
    each = max(args.fits // 10, 1)
    for method in METHODS:
        for n in sizes if args.only in method else ():
            tasks = [(method, n, lo, min(lo + each, args.fits)) for lo in range(0, args.fits, each)]
            found = shares(rows_of(fits, tasks, args.jobs, COLUMNS))
            frame = update(
                args.out / "posterior.csv", found, ["method", "n"], [(name,) for name in METHODS]
            )
            page = write_page(args.out / "posterior.md", summarise(frame))
    print(page.read_text())


if __name__ == "__main__":
    main()
