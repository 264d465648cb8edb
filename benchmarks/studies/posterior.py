"""Whether posteriors hold what they say, on models drawn from the prior: ``python -m benchmarks.studies.posterior``."""

import time

import numpy as np
import pandas as pd
from scipy.stats import chisquare

from bbl.engines import Posterior
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.model.posterior import Problem
from bbl.rows.sample import Sample
from benchmarks.report import command, number, rows_of, table, write_page

LEVELS, TAU = (2, 3, 2, 2), 0.5
SAMPLERS = {
    "exact": {"sampler": "exact"},
    "exchange": {"sampler": "exchange"},
    "pseudo": {"sampler": "pseudo"},
    "pseudo, not adjusted": {"sampler": "pseudo", "adjust": False},
}
COLUMNS = ("sampler", "n", "fit", "parameter", "coupling", "rank", "inside", "narrow", "seconds")
BINS, KEPT = 20, 100


def fits(sampler: str, n: int, first: int, last: int) -> list[tuple]:
    """Draw models from the prior and rows from each, fit them, and return where the truth lies among the draws."""
    layout, out = Layout(LEVELS), []
    states = np.array(np.unravel_index(np.arange(np.prod(LEVELS)), LEVELS)).T.astype(np.uint8)
    model = Problem(Sample(states, np.ones(len(states))), layout, TAU).target()
    engine = Posterior(tau=TAU, chains=1, warmup=200, draws=4 * (KEPT - 1), **SAMPLERS[sampler])
    for fit in range(first, last):
        rng = np.random.default_rng([fit, n])
        phi = TAU * rng.normal(size=layout.size)
        counts = rng.multinomial(n, model.probabilities(phi)[1]).astype(float)
        began = time.process_time()
        drawn, _ = engine._sample(Sample(states, counts).weighted(counts), layout, rng, 1, None)
        seconds = time.process_time() - began
        drawn, truth = to_reference(layout, drawn[0]), to_reference(layout, phi)
        rank = (drawn[::4] < truth).sum(axis=0)
        low, low80, high80, high = np.quantile(drawn, [0.025, 0.1, 0.9, 0.975], axis=0)
        for k in range(layout.size):
            inside, narrow = low[k] <= truth[k] <= high[k], low80[k] <= truth[k] <= high80[k]
            out.append((sampler, n, fit, k, k >= layout.D, int(rank[k]), inside, narrow, seconds))
    return out


def run(count: int, rows: list[int], jobs: int) -> pd.DataFrame:
    """Return a row for each parameter of each fit."""
    each = max(count // 10, 1)
    tasks = [(s, n, lo, min(lo + each, count)) for s in SAMPLERS for n in rows for lo in range(0, count, each)]
    return rows_of(fits, tasks, jobs, COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page."""
    rows = []
    for (sampler, n), own in frame.groupby(["sampler", "n"], sort=False):
        p = [
            chisquare(np.bincount(part["rank"] * BINS // KEPT, minlength=BINS)).pvalue
            for _, part in own.groupby("parameter")
        ]
        cells = [f"{100 * part[c].mean():.1f} %" for _, part in own.groupby("coupling") for c in ("inside", "narrow")]
        smallest = min(1.0, min(p) * len(p))
        rows.append([str(sampler), str(n), *cells, number(smallest), number(1e3 * own["seconds"].mean())])
    fits_each = frame["fit"].nunique()
    lines = [
        "# Coverage of posteriors",
        "",
        f"{fits_each} models of predictors with {', '.join(map(str, LEVELS))} levels and all pairs, drawn from the",
        f"normal prior of tau {TAU}; n rows drawn from each. Shares of parameters (reference gauge) in central 95 %",
        "and 80 % intervals, and the test of uniform ranks of the truth among the draws (simulation-based calibration:",
        f"the smallest of {frame['parameter'].nunique()} chi-squared p-values, times their number).",
        "",
    ]
    head = ["sampler", "rows", "fields 95 %", "fields 80 %", "couplings 95 %", "couplings 80 %", "ranks, p", "CPU ms"]
    return lines + table(head, rows)


def main() -> None:
    """Run and write ``results/posterior.csv`` and ``posterior.md``."""
    args = command(__doc__, fits=(1000, "fits of each kind"), rows=([100, 1000], "numbers of rows"))
    frame = run(args.fits, [int(n) for n in args.rows], args.jobs)
    lines = summarise(frame)
    shares = frame.groupby(["sampler", "n", "parameter"], sort=False)[["inside", "narrow", "seconds"]].mean()
    shares.reset_index().to_csv(args.out / "posterior.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "posterior.md", lines).read_text())


if __name__ == "__main__":
    main()
