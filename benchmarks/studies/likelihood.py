"""Exact likelihood: coverage of intervals, level of tests: ``python -m
benchmarks.studies.likelihood``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2

import bbl
from bbl.boltzmann.inference.exact_ratio import ExactRatio, exact_ratio_test
from bbl.engines import EXACT
from bbl.engines.likelihood.states import StateTable
from bbl.errors import ConvergenceWarning, DataWarning
from bbl.model.layout import Layout
from bbl.model.states import random_parameters
from bbl.rows.sample import Sample
from benchmarks.report import command, condensed, rows_of, share, store, table, write_page

COLUMNS = (
    *(
        "setting",
        "replicate",
        "least",
        "parameters",
        "wald",
        "wald_covered",
        "exact",
        "exact_covered",
    ),
    *("test", "rejected", "chi2_rejected"),
)
LEVEL_COLUMNS = ("setting", "tables", "tested", "rejected")
LEVEL = 0.05
# its level is measured again, by more tables: 2,000 of them do not tell whether it is near 5 %
LEVEL_SETTING = 1
TABLES_AT_ONCE = 500
TESTS = {  # kinds of tests, by how the texts of `anova` begin
    "likelihood ratio": ("likelihood ratio",),
    "terms, one by one": ("smallest p", "test of one term"),
    "none": ("no test",),
}


@dataclass(frozen=True)
class Setting:
    """A kind of table: levels of the predictors, rows, and spread of fields and couplings."""

    levels: tuple[int, ...]
    n: int
    spread: float = 0.3

    @property
    def name(self) -> str:
        """How the tables call it."""
        return f"{' x '.join(map(str, self.levels))}, n = {self.n:,}"


SETTINGS = (
    Setting((2, 2), 200),
    Setting((2, 2, 2), 200),
    Setting((2, 2, 2, 2), 2000),
    Setting((2, 3, 4), 2000),
    Setting((2, 3, 4), 200),
    Setting((3, 3, 3), 200, 0.6),
    Setting((2, 2, 2, 2), 50, 0.6),
)


def draw(
    setting: Setting, at: int, number: int
) -> tuple[StateTable, np.ndarray, np.ndarray, np.ndarray]:
    """Draw a model without an interaction of the first two predictors, and a table of it.

    Returns
    -------
    states : StateTable
    theta : ndarray
        Parameters of the model.
    p, counts : ndarray, shape (number of states,)
        Probabilities and rows of all states.
    """
    rng = np.random.default_rng([at, number, 17])
    layout = Layout(setting.levels)
    theta = random_parameters(layout, "norm", dh=setting.spread, dJ=setting.spread, rng=rng)[0]
    layout.table(theta, 0, 1)[...] = 0.0
    states = StateTable(layout)
    _, p = states.log_partition(theta)
    return states, theta, p, rng.multinomial(setting.n, p)


def replicate(setting: Setting, at: int, number: int) -> list[tuple]:
    """Fit a drawn table with and without the interaction of the first two predictors."""
    states, theta, p, counts = draw(setting, at, number)
    names = [f"x{i + 1}" for i in range(len(setting.levels))]
    frame = pd.DataFrame(states.codes(np.arange(states.n)), columns=names).assign(count=counts)
    levels = {name: list(range(L)) for name, L in zip(names, setting.levels, strict=True)}
    small, large = (
        bbl.bbl(
            formula, frame, weights="count", method="ml", xlevels=levels, verbose=0, novarOk=True
        )
        for formula in ("~ .^2 - x1:x2", "~ .^2")
    )
    rows = large.inference().table()
    covered = (rows["lower"] <= theta) & (theta <= rows["upper"])
    has_limits = rows["lower"].notna() & rows["upper"].notna()
    by_kind = [
        value
        for kind in ("Wald", "exact")
        # an exact test also says whether its p is a mid-p
        for value in _counts(covered, has_limits & rows["test"].str.startswith(kind))
    ]
    test = bbl.anova(small, large).iloc[1]
    kind = next(words for words, starts in TESTS.items() if test["test"].startswith(starts))
    df = large.n_parameters - small.n_parameters
    plain = chi2.sf(2.0 * (float(large.logLik()) - float(small.logLik())), df) if df > 0 else np.nan
    least = setting.n * p.min()
    return [
        (
            setting.name,
            number,
            least,
            len(rows),
            *by_kind,
            kind,
            int(test["p"] < LEVEL),
            int(plain < LEVEL),
        )
    ]


def _counts(covered: pd.Series, chosen: pd.Series) -> tuple[int, int]:
    return int(chosen.sum()), int(covered[chosen].sum())


def _quiet(setting: Setting, at: int, number: int) -> list[tuple]:
    """Do not warn of tables in which the likelihood has no finite maximum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return replicate(setting, at, number)


def run(replicates: int, jobs: int) -> pd.DataFrame:
    """Return what the intervals cover and the tests reject in tables of all settings."""
    return rows_of(
        _quiet,
        [(s, at, r) for at, s in enumerate(SETTINGS) for r in range(replicates)],
        jobs,
        COLUMNS,
    )


def level_of(setting: Setting, at: int, first: int, n_tables: int) -> list[tuple]:
    """Count the drawn tables whose likelihood ratio `bbl.anova` would show, and those that it
    rejects at 5 %.
    """
    tested = rejected = 0
    for number in range(first, first + n_tables):
        states, _, _, counts = draw(setting, at, number)
        occurs = np.flatnonzero(counts)
        codes = np.ascontiguousarray(states.codes(occurs), dtype=np.uint8)
        kept = np.arange(states.layout.n_terms) > 0
        test = exact_ratio_test(
            [Sample(codes, counts[occurs].astype(float))], states.layout, kept, EXACT
        )
        if isinstance(test, ExactRatio):
            tested, rejected = tested + 1, rejected + int(test.p < LEVEL)
    return [(setting.name, n_tables, tested, rejected)]


def run_level(tables: int, jobs: int) -> pd.DataFrame:
    """Return the level of the likelihood ratio in one setting, from more tables than `run`
    draws.
    """
    setting = SETTINGS[LEVEL_SETTING]
    firsts = range(0, tables, TABLES_AT_ONCE)
    tasks = [
        (setting, LEVEL_SETTING, first, min(TABLES_AT_ONCE, tables - first)) for first in firsts
    ]
    counts = rows_of(level_of, tasks, jobs, LEVEL_COLUMNS)
    return counts.groupby("setting", as_index=False).sum()


def summarise(frame: pd.DataFrame, level: pd.DataFrame) -> list[str]:
    """Return the Markdown tables; `frame` has condensed rows."""
    intervals, tests = [], []
    for name, part in frame.groupby("setting", sort=False):
        samples = part["samples"]
        total = part[["parameters", "wald", "exact", "least"]].mul(samples, axis=0).sum()
        none = 1.0 - (total["wald"] + total["exact"]) / total["parameters"]
        covered = [
            share(part[f"{kind}_covered"], part[kind], samples) for kind in ("wald", "exact")
        ]
        intervals.append([name, f"{total['parameters']:,.0f}", *covered, f"{100 * none:.1f}%"])
        by_test = {words: part[part["test"] == words] for words in TESTS}
        other = part[part["test"] != "likelihood ratio"]
        tests.append(
            [
                name,
                f"{total['least'] / samples.sum():.1f}",
                *(str(own["samples"].sum()) for own in by_test.values()),
                *(_rejected(own, "rejected") for own in list(by_test.values())[:2]),
                _rejected(other, "chi2_rejected"),
            ]
        )
    return [
        "# Exact likelihood: intervals and tests",
        "",
        "Each table is drawn from a new random model with interactions of all pairs except the "
        "first two predictors (`python -m benchmarks.studies.likelihood`). ± is the Monte-Carlo "
        "standard error.",
        "",
        "Coverage of the 95% intervals from `fit.inference().table()`, by type of interval; the "
        "last column is the proportion of parameters without an interval, because there are too "
        "few rows.",
        "",
        *table(["", "parameters", "Wald", "exact", "none"], intervals),
        "Level of `bbl.anova` at 0.05, for models with and without the interaction: the average "
        "of the smallest expected count, the number of tables with each type of test, and "
        "rejection rates. The last column is the rejection rate of the chi-square distribution of "
        "the likelihood ratio for the tables in which `anova` does not use it.",
        "",
        *table(
            [
                "",
                "least cell",
                *TESTS,
                "likelihood ratio",
                "one by one",
                "chi-square elsewhere",
            ],
            tests,
        ),
        *(_level_text(row) for row in level.itertuples()),
    ]


def _rejected(part: pd.DataFrame, which: str) -> str:
    """Return the share of tables that a test rejects."""
    return share(part[which], pd.Series(1, index=part.index), part["samples"])


def _level_text(row) -> str:
    rate = row.rejected / row.tested
    spread = np.sqrt(rate * (1.0 - rate) / row.tested)
    return (
        f"The likelihood ratio test for {row.setting}, repeated with {row.tables:,} tables: it is "
        f"available for {row.tested:,}, and rejects {100 * rate:.2f} ± {100 * spread:.2f}% of "
        "them."
    )


def main() -> None:
    """Run the study; write its CSV file and ``likelihood.md``."""
    args = command(
        __doc__,
        replicates=(2000, "tables of each setting; 0 for those that were stored"),
        tables=(
            20_000,
            "tables of the setting whose level is measured again; 0 for those that were stored",
        ),
    )
    paths = [args.out / "likelihood.csv", args.out / "likelihood_level.csv"]
    if args.replicates:
        tables = run(args.replicates, args.jobs)
        store(condensed(tables, "replicate", ["least"]), paths[0], "%.6g")
    if args.tables:
        store(run_level(args.tables, args.jobs), paths[1])
    page = write_page(args.out / "likelihood.md", summarise(*map(pd.read_csv, paths)))
    print(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
