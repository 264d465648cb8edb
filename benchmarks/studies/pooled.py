"""Level, coverage and power of differences from the pooled fit, for groups of very different
sizes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bbl.boltzmann.inference.comparisons import compare_pooled
from bbl.boltzmann.inference.significance import Evidence, evidence
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.listing import state_energies
from bbl.rows.sample import Sample
from benchmarks.report import rows_of, table

SPARSE, SIX = (0.45, 0.42, 0.09, 0.04), (0.40, 0.25, 0.15, 0.10, 0.07, 0.03)
RANDOM_CELLS = 8
COUPLING, NEGATIVE = 0.5, -1.5
SHORT = 6  # coupled cells that are simulated with differences too: the others take longest
LARGE = 1e7  # rows whose fit is that of the distribution itself
KINDS = ("fields", "couplings", "predictors")
COLUMNS = (
    *(
        "cell",
        "what",
        "kind",
        "group",
        "size",
        "replicates",
        "made",
        "rejected_5",
        "rejected_01",
        "limits",
        "held",
    ),
    *("disagree", "wald_of_shift"),
)


@dataclass(frozen=True)
class Cell:
    """Groups of these sizes, in which levels have these shares.

    With `second`, shares of the levels of a second predictor, the two interact by this `coupling`
    of all levels; the shares are then those of rows where the other predictor has its reference
    level. `spread` is the standard deviation of the parameters between groups; 0 for groups without
    differences. With `ratio` the first group's odds of each level are so many times those of the
    others, for power.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    spread: float = 0.0
    second: tuple[float, ...] = ()
    coupling: float = COUPLING
    ratio: float = 1.0

    @property
    def name(self) -> str:
        """What the tables call it."""
        sizes = "/".join(f"{n:,}" for n in self.sizes)
        shares = [
            "/".join(f"{q:.2g}" for q in shares) for shares in (self.shares, self.second) if shares
        ]
        coupling = f", {self.coupling:g}" if self.coupling != COUPLING else ""
        return f"{sizes}; {' * '.join(shares)}{coupling}"

    @property
    def what(self) -> str:
        """Whether there are differences: ``"alike"``, ``"differences"``, or ``"power"``."""
        return "power" if self.ratio != 1.0 else "differences" if self.spread else "alike"


def _random_cells(spread: float, seed: int) -> list[Cell]:
    """Return cells of 2 to 6 groups of 25 to 3,000 rows, and 2 to 6 levels of at least 3 %."""
    rng, cells = np.random.default_rng(seed), []
    for _ in range(RANDOM_CELLS):
        K, L = rng.integers(2, 7, 2)
        sizes = np.exp(rng.uniform(np.log(25), np.log(3000), K)).astype(int)
        shares = 0.03 + (1.0 - 0.03 * L) * rng.dirichlet(np.full(L, 1.5))
        cells.append(Cell(tuple(sizes.tolist()), tuple(shares.round(3).tolist()), spread))
    return cells


COUPLED = (
    ((60, 130), (0.7, 0.3), (0.8, 0.2)),
    ((100, 3000), (0.7, 0.3), (0.8, 0.2)),
    ((300, 3000), (0.95, 0.05), (0.95, 0.05)),
    ((300, 2000), (0.6, 0.3, 0.1), (0.5, 0.5)),
    ((1000, 200, 100), (0.7, 0.3), (0.8, 0.2)),
    ((600, 600, 600), (0.95, 0.05), (0.7, 0.3)),
    ((1500, 400, 200), (0.4, 0.3, 0.2, 0.1), (0.5, 0.3, 0.2)),
    ((150, 150, 150, 150, 150, 150), (0.5, 0.3, 0.2), (0.6, 0.4)),
    ((25, 60, 150, 400, 1000, 3000), (0.7, 0.3), (0.8, 0.2)),
)
FEW_TOGETHER = (
    ((600, 600, 600), (0.75, 0.25), (0.75, 0.25)),
    ((2500, 2500, 2500), (0.9, 0.1), (0.9, 0.1)),
    ((500, 3000), (0.7, 0.3), (0.7, 0.3)),
)
CELLS = (
    Cell((25, 2000), SPARSE),
    Cell((30, 100, 400), SPARSE),
    Cell((300, 300), (0.50, 0.42, 0.05, 0.03)),
    Cell((25, 3000), (0.5, 0.5)),
    Cell((25, 3000), (0.8, 0.2)),
    Cell((100, 3000), (0.97, 0.03)),
    Cell((3000, 3000), (0.97, 0.03)),
    Cell((60, 60), (0.7, 0.3)),
    Cell((25,) * 6, (0.4, 0.3, 0.3)),
    Cell((25, 60, 150, 400, 1000, 3000), SIX),
    Cell((3000, 25, 25, 25), (0.6, 0.3, 0.1)),
    Cell((1000, 1000, 1000), SIX),
    *_random_cells(0.0, 1),
    *_random_cells(0.5, 2),
    *(Cell(sizes, first, 0.0, second) for sizes, first, second in COUPLED),
    *(Cell(sizes, first, 0.5, second) for sizes, first, second in COUPLED[:SHORT]),
    *(Cell(sizes, first, 0.0, second, NEGATIVE) for sizes, first, second in FEW_TOGETHER),
    *(
        Cell((n,) * K, (0.5, 0.3, 0.2), ratio=ratio)
        for n, K, ratio in ((100, 2, 2.2), (300, 2, 1.6), (300, 4, 1.5))
    ),
    *(Cell((n, n), (0.5, 0.5), ratio=ratio) for n, ratio in ((100, 2.2), (400, 1.5), (3000, 1.16))),
)


def _distributions(
    cell: Cell, rng: np.random.Generator
) -> tuple[Layout, np.ndarray, np.ndarray, np.ndarray]:
    """Return the layout, its states, their probabilities (K, S) in each group, and the true shifts
    (K, layout.size).
    """
    K = len(cell.sizes)
    shares = [np.array(shares) for shares in (cell.shares, cell.second) if shares]
    layout = Layout([len(q) for q in shares])
    fields = np.concatenate([np.log(q[1:] / q[0]) for q in shares])
    middle = np.append(fields, np.full(layout.size - layout.D, cell.coupling))
    theta = middle + cell.spread * rng.normal(size=(K, layout.size))
    theta[0] += np.log(cell.ratio)
    states = np.array(list(np.ndindex(*layout.n_levels)), dtype=np.uint8)
    models = [split(layout, own) for own in theta]
    p = np.exp([state_energies(h, J, layout.n_levels) for h, J, _ in models])
    p /= p.sum(axis=1, keepdims=True)
    mixed = np.asarray(cell.sizes) @ p
    pooled = evidence(Sample(states, mixed / mixed.sum() * LARGE), layout, middle).theta
    return layout, states, p, theta - pooled


def _evidence(layout: Layout, states: np.ndarray, counts: np.ndarray) -> Evidence:
    """Return what the rows say; without interactions only their counts matter, and nothing has to
    be fitted.
    """
    seen = counts > 0
    rows = Sample(states[seen], counts[seen].astype(float))
    if layout.size > layout.D:
        return evidence(rows, layout, np.zeros(layout.size))
    return Evidence(
        layout, rows, np.zeros(layout.size), None, [], np.zeros(layout.size, dtype=np.int8)
    )


def _wald_of_shift(counts: np.ndarray, g: int) -> np.ndarray:
    """Return p-values of the shifts themselves over their standard errors, of one predictor's
    counts (K, L).
    """
    total = counts.sum(axis=0)
    rest = total - counts[g]
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.log(counts[g] / total)
        parts = counts[g] * (1.0 / counts[g] - 1.0 / total) ** 2 + rest / total**2
        return 2.0 * ndtr(-np.abs(shift[1:] - shift[0]) / np.sqrt(parts[1:] + parts[0]))


def run_cell(cell: Cell, at: int, replicates: int) -> list[tuple]:
    """Simulate a cell, and count for each group what is tested, rejected, and held by limits of 95
    %.
    """
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([at, 11])
    layout, states, p, truth = _distributions(cell, rng)
    total = np.zeros((len(KINDS), len(cell.sizes), 7), dtype=int)
    fields = np.arange(layout.size) < layout.D
    for _ in range(replicates):
        counts = np.array([rng.multinomial(n, own) for n, own in zip(cell.sizes, p, strict=True)])
        groups = [_evidence(layout, states, n) for n in counts]
        for g, found in enumerate(
            compare_pooled(groups, _evidence(layout, states, counts.sum(axis=0)))
        ):
            lower, upper = found.limits(0.95)
            held = (lower <= truth[g]) & (truth[g] <= upper)
            apart = ~np.isnan(lower) & ((found.p < 0.05) != ((lower > 0) | (upper < 0)))
            old = np.full(layout.size, np.nan) if cell.second else _wald_of_shift(counts, g)
            for kind, which in enumerate((fields, ~fields)):
                values = found.p[which]
                made = (~np.isnan(values)).sum(), (values < 0.05).sum(), (values < 0.001).sum()
                limits = (~np.isnan(lower[which])).sum(), held[which].sum(), apart[which].sum()
                total[kind, g] += (*made, *limits, (old[which] < 0.05).sum())
            joint = found.tables()[2][: layout.m]
            total[2, g, :3] += (~np.isnan(joint)).sum(), (joint < 0.05).sum(), (joint < 0.001).sum()
    return [
        (cell.name, cell.what, kind, g, cell.sizes[g], replicates, *total[k, g].tolist())
        for k, kind in enumerate(KINDS)
        for g in range(len(cell.sizes))
        if total[k, g, 0]
    ]


def run(replicates: int, jobs: int) -> pd.DataFrame:
    """Return the counts of all cells."""
    return rows_of(
        run_cell, [(cell, at, replicates) for at, cell in enumerate(CELLS)], jobs, COLUMNS
    )


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown tables."""
    lines = [
        "## Differences from the pooled fit",
        "",
        "Comparisons with the pooled fit (`of=\"pooled\"`) for groups of fixed sizes. 'alike': all "
        "groups have the same distribution; 'differences': every parameter of every group is "
        "shifted by N(0, 0.5^2). The true difference is computed for groups in these proportions. "
        "Rejection rates are relative to the available p-values, over all groups and levels of a "
        "case; coverage is relative to the available intervals. Exact tests with few rows are "
        "conservative. Samples in which p is below .05 but the interval contains 0, or the "
        f"reverse: {int(frame['disagree'].sum())} samples.",
        "",
    ]
    shares = frame[frame["what"] != "power"].groupby(["what", "cell", "kind"], sort=False)
    sums = shares[["made", "rejected_5", "rejected_01", "limits", "held"]].sum().reset_index()
    sums["replicates"] = shares["replicates"].first().to_numpy()
    rows = []
    for what, kind in (
        ("alike", "fields"),
        ("alike", "couplings"),
        ("alike", "predictors"),
        ("differences", "fields"),
        ("differences", "couplings"),
    ):
        part = sums[(sums["what"] == what) & (sums["kind"] == kind)]
        if len(part):
            rows.append(
                [
                    f"**{what}: {kind}**, {len(part)} cells, the worst",
                    *_worst(part, what == "alike"),
                ]
            )
    for entry in sums[(sums["what"] == "alike") | (sums["kind"] != "predictors")].itertuples():
        rows.append(
            [f"{entry.what}, {entry.kind}: {entry.cell}", *_row(entry, entry.what == "alike")]
        )
    head = ["", "samples", "p-values", "rejected at .05 (%)", "at .001 (%)", "coverage of 95 % (%)"]
    lines += table(head, rows)
    power = frame[(frame["what"] == "power") & (frame["kind"] == "fields")]
    sums = power.groupby("cell", sort=False)[["made", "rejected_5", "wald_of_shift"]].sum()
    lines += [
        "Power for large groups of equal size, the first of which has different odds: rejected at "
        ".05 (%), compared with a test that divides the shift by its standard error and does not "
        "use the other groups:",
        "",
    ]
    found = [
        [str(cell), f"{100 * r.rejected_5 / r.made:.1f}", f"{100 * r.wald_of_shift / r.made:.1f}"]
        for cell, r in zip(sums.index, sums.itertuples(), strict=True)
    ]
    return [*lines, *table(["", "bbl", "shift over its error"], found)]


def _row(entry, null: bool) -> list[str]:
    rejected = [
        f"{100 * n / entry.made:.2f}" if null else "" for n in (entry.rejected_5, entry.rejected_01)
    ]
    held = f"{100 * entry.held / entry.limits:.2f}" if entry.limits else ""
    return [f"{entry.replicates:,}", f"{entry.made:,}", *rejected, held]


def _worst(part: pd.DataFrame, null: bool) -> list[str]:
    rejected = [
        f"{(100 * part[column] / part['made']).max():.2f}" if null else ""
        for column in ("rejected_5", "rejected_01")
    ]
    coverage = (100 * part["held"] / part["limits"]).where(part["limits"] > 0).dropna()
    held = f"{coverage.min():.2f} to {coverage.max():.2f}" if len(coverage) else ""
    return [f"{part['replicates'].min():,}", f"{part['made'].sum():,}", *rejected, held]
