"""Coverage of intervals, level and power of tests on simulated data: ``python -m
benchmarks.coverage``.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

import bbl
from bbl.errors import BBLError, ConvergenceWarning, DataWarning
from bbl.model.layout import Layout
from bbl.model.states import random_parameters, sample_groups
from benchmarks.report import command, condensed, rows_of, share, store, table, write_page
from benchmarks.studies import effects, level, pooled, surveys

LEVELS = {"p05": 0.05, "p01": 0.01}
FEW, MORE = 1000, 5  # data of so few rows are drawn so many times as often
COLUMNS = ("setting", "replicate", "kind", "what", "of", "count", "seconds")


@dataclass(frozen=True)
class Setting:
    """A kind of data: levels of the predictors, rows of all groups together, groups, and spread of
    the couplings.
    """

    levels: tuple[int, ...]
    n: int
    groups: int = 2
    coupling: float = 0.4
    share_zero: float = 0.5

    @property
    def name(self) -> str:
        """How the tables call it."""
        m, kinds = len(self.levels), sorted(set(self.levels))
        levels = f"L = {kinds[0]}" if len(kinds) == 1 else f"L = {kinds[0]} to {kinds[-1]}"
        return (
            f"m = {m}, {levels}, n = {self.n:,}, K = {self.groups}, J ~ N(0, {self.coupling:g}^2)"
        )


SETTINGS = (
    Setting((2,) * 2, 100),
    Setting((2,) * 4, 100),
    Setting((2,) * 4, 400),
    Setting((2, 3, 4), 200),
    Setting((3,) * 4, 1000),
    Setting((2,) * 5, 4000),
    Setting((2,) * 10, 4000),
    Setting((2,) * 10, 15000, groups=3),
    Setting((3,) * 6, 6000),
    Setting((4,) * 5, 10000),
    Setting((2, 3, 4, 2, 3, 5), 8000),
    Setting((2,) * 8, 4000, coupling=1.0),
    Setting((3,) * 5, 20000, coupling=0.8),
)


def replicate(setting: Setting, at: int, number: int) -> list[tuple]:
    """Simulate a model and a sample, fit, and count what the intervals cover and the tests
    reject.
    """
    rng = np.random.default_rng([at, number, 7])
    layout = Layout(setting.levels)
    theta = random_parameters(
        layout, "norm", dh=0.5, dJ=setting.coupling, rng=rng, n_groups=setting.groups
    )
    zero = rng.random(len(layout.pairs)) < setting.share_zero
    for (i, j), none in zip(layout.pairs, zero, strict=True):
        if none:
            layout.table(theta, i, j)[...] = 0.0
    codes, y = sample_groups(layout, theta, setting.n, rng=rng)
    frame = pd.DataFrame(codes, columns=[f"x{i + 1}" for i in range(layout.m)]).assign(y=y)
    levels = {f"x{i + 1}": list(range(L)) for i, L in enumerate(setting.levels)}
    begin = time.process_time()
    fit = bbl.bbl(
        "y ~ .^2",
        frame,
        lambda_=0.0,
        lambdah=0.0,
        xlevels=levels,
        n_jobs=1,
        verbose=0,
        novarOk=True,
    )
    inference = fit.inference()
    out = []
    for kind, of, truth in (
        ("group", "group", theta),
        ("difference of groups", (0, 1), (theta[0] - theta[1])[None]),
    ):
        intervals, tests = inference.table(of), inference.tests(of)
        covered = (intervals["lower"] <= truth.ravel()) & (truth.ravel() <= intervals["upper"])
        p = tests.loc[tests["predictor2"].notna(), "p"].to_numpy()[np.tile(zero, len(truth))]
        used = time.process_time() - begin
        made = int(intervals["lower"].notna().sum())
        tested = int((~np.isnan(p)).sum())
        counts = [("covered", made, int(covered.sum()))]
        counts += [(what, tested, int((p < level).sum())) for what, level in LEVELS.items()]
        out += [(setting.name, number, kind, *count, used) for count in counts]
    return out


def run(replicates: int, jobs: int) -> pd.DataFrame:
    """Return what the intervals cover and the tests reject in samples of all settings."""
    times = [replicates * (MORE if s.n <= FEW else 1) for s in SETTINGS]
    return rows_of(
        _attempt,
        [(s, at, r) for at, s in enumerate(SETTINGS) for r in range(times[at])],
        jobs,
        COLUMNS,
    )


def _attempt(setting: Setting, at: int, number: int) -> list[tuple]:
    """Do not count a sample in which lambda 0 has no finite optimum; the error says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        try:
            return replicate(setting, at, number)
        except BBLError:
            return [(setting.name, number, "undetermined", "covered", 0, 0, np.nan)]


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown table of condensed rows."""
    rows = []
    fitted = frame[frame["kind"] != "undetermined"]
    names = list(dict.fromkeys(frame["setting"]))
    parts = [
        (name, kind)
        for name in names
        for kind in dict.fromkeys(fitted.loc[fitted["setting"] == name, "kind"])
    ]
    views = [
        (f"{n}: {k}", fitted[(fitted["setting"] == n) & (fitted["kind"] == k)]) for n, k in parts
    ]
    views = [
        (f"**all: {k}**", fitted[fitted["kind"] == k]) for k in dict.fromkeys(fitted["kind"])
    ] + views
    for name, part in views:
        counts = {what: part[part["what"] == what] for what in ("covered", *LEVELS)}
        total = {what: (own["of"] * own["samples"]).sum() for what, own in counts.items()}
        rate = {
            what: share(own["count"], own["of"], own["samples"]) for what, own in counts.items()
        }
        row = [name, str(counts["covered"]["samples"].sum()), f"{total['covered']:,}"]
        rows.append([*row, rate["covered"], f"{total['p05']:,}", rate["p05"], rate["p01"]])
    lost = frame.loc[frame["kind"] == "undetermined", "samples"].sum()
    head = [
        "",
        "samples",
        "parameters",
        "coverage of 95%",
        "true nulls",
        "rejected at 0.05",
        "rejected at 0.01",
    ]
    return [
        "# Coverage of intervals and level of tests",
        "",
        "Samples are drawn from random models, a new one for each sample, with fields N(0, 0.5^2) "
        "and interactions in half of the pairs, and fitted with lambda 0 (`python -m "
        "benchmarks.coverage`). The table shows the coverage of the 95% intervals from "
        "`fit.inference().table()`, and the rejection rate of `tests()` for pairs whose true "
        "couplings are zero; ± is the Monte-Carlo standard error over samples. Parameters and "
        "pairs without an interval or a test are not counted."
        + (f" {lost} samples could not be fitted." if lost else ""),
        "",
        *table(head, rows),
    ]


def main() -> None:
    """Run the studies and write their CSV files, and ``coverage.md`` of all of them."""
    args = command(
        __doc__,
        only=(
            ["models", "level", "pooled", "surveys", "effects"],
            "which studies to run; of the others the stored numbers are shown",
        ),
        replicates=(100, "samples of each model; five times that of small ones"),
        tests=(2000, "replicates of each cell of the study of levels"),
        pooled=(1000, "replicates of each cell of the study of differences from the pooled fit"),
        surveys=(1000, "samples of clusters from a population"),
        effects=(500, "samples of each size for effects on probabilities"),
    )
    studies = {
        "models": (
            "coverage.csv",
            lambda: condensed(run(args.replicates, args.jobs), "replicate", ["seconds"]),
            summarise,
        ),
        "level": ("level.csv", lambda: level.run(args.tests, args.jobs), level.summarise),
        "pooled": ("pooled.csv", lambda: pooled.run(args.pooled, args.jobs), pooled.summarise),
        "surveys": (
            "surveys.csv",
            lambda: condensed(surveys.run(args.surveys, args.jobs), "sample", ["log width"]),
            surveys.summarise,
        ),
        "effects": (
            "effects.csv",
            lambda: condensed(
                effects.with_totals(effects.run(args.effects, args.jobs)), "sample", ["log width"]
            ),
            effects.summarise,
        ),
    }
    lines: list[str] = []
    for name, (file, simulate, tables) in studies.items():
        if name in args.only:
            store(simulate(), args.out / file, "%.6g")
        if (args.out / file).is_file():
            lines += [*tables(pd.read_csv(args.out / file)), ""]
    print(write_page(args.out / "coverage.md", lines).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
