"""Efficiency of pseudo-likelihood relative to exact likelihood: ``python -m
benchmarks.studies.efficiency``.
"""

import warnings
from itertools import combinations

import numpy as np
import pandas as pd

from bbl.engines import MaximumLikelihood, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from benchmarks.report import command, rows_of, table, write_page

STRENGTHS = {"weak": 0.5, "medium": 1.0, "strong": 2.0, "very strong": 3.0}
SIZES = (200, 1000, 5000)
COLUMNS = (
    "graph",
    "strength",
    "n",
    "replicates",
    "fitted",
    "ml",
    "pseudo",
    "efficiency",
    "se",
    "least",
)


def graphs() -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """Return the number of binary predictors and the pairs of each graph."""
    chain = [(i, i + 1) for i in range(8)]
    lattice = [(i, i + 1) for i in range(9) if i % 3 < 2] + [(i, i + 3) for i in range(6)]
    return {
        "chain of 9": (9, chain),
        "star of 9": (9, [(0, i) for i in range(1, 9)]),
        "ring of 9": (9, [*chain, (0, 8)]),
        "lattice 3 x 3": (9, lattice),
        "all pairs of 6": (6, list(combinations(range(6), 2))),
    }


class Truth:
    """A model of binary predictors with couplings of one size and random signs, centred, and all of
    its states.
    """

    def __init__(self, graph: str, strength: float):
        m, pairs = graphs()[graph]
        self.layout = Layout(np.full(m, 2), pairs)
        rng = np.random.default_rng([len(pairs), m])
        couplings = strength * rng.choice([-1.0, 1.0], len(pairs))
        # as many couplings meet at each predictor as on the lattice, in the mean
        if graph == "all pairs of 6":
            couplings *= 0.5
        # with these fields both levels of each predictor are equally probable
        fields = np.zeros(m)
        for (i, j), J in zip(self.layout.pairs, couplings, strict=True):
            fields[[i, j]] -= J / 2
        self.states = np.ascontiguousarray(
            np.indices(np.full(m, 2)).reshape(m, -1).T.astype(np.uint8)
        )
        i, j = self.layout.pairs.T
        self.statistics = np.hstack([self.states, self.states[:, i] * self.states[:, j]]).astype(
            float
        )
        energies = self.statistics @ np.concatenate([fields, couplings])
        self.p = np.exp(energies - energies.max())
        self.p /= self.p.sum()
        self.couplings = couplings

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the variances of the couplings, times n, for many rows: of the exact maximum, of
        pseudo-likelihood.
        """
        m, pairs = self.layout.m, self.layout.pairs
        centred = self.statistics - self.p @ self.statistics
        exact = np.diag(np.linalg.inv(centred.T @ (centred * self.p[:, None])))[m:]
        influence = np.zeros((len(self.states), len(pairs)))
        for i in range(m):
            rows, side = np.nonzero(pairs == i)
            X = np.column_stack([np.ones(len(self.states)), self.states[:, pairs[rows, 1 - side]]])
            flipped = self.p[np.arange(len(self.p)) ^ (1 << (m - 1 - i))]
            conditional = self.p / (self.p + flipped)
            on = np.where(self.states[:, i] == 1, conditional, 1 - conditional)
            hessian = X.T @ (X * (self.p * on * (1 - on))[:, None])
            scores = X * (self.states[:, i] - on)[:, None]
            influence[:, rows] += 0.5 * np.linalg.solve(hessian, scores.T).T[:, 1:]
        return exact, self.p @ influence**2


def simulate(graph: str, strength: str, n: int, replicates: int) -> list[tuple]:
    """Return one row: mean variances of the couplings over samples of n rows that both methods can
    fit.
    """
    truth = Truth(graph, STRENGTHS[strength])
    rng = np.random.default_rng([list(graphs()).index(graph), list(STRENGTHS).index(strength), n])
    engines, errors = (MaximumLikelihood(), PseudoLikelihood(lambda_=0.0)), []
    for _ in range(replicates):
        counts = rng.multinomial(n, truth.p)
        rows = Sample(truth.states[counts > 0], counts[counts > 0].astype(float))
        fits = [engine.fit(rows, truth.layout) for engine in engines]
        if not any(fit.unbounded or fit.notes for fit in fits):
            errors.append([fit.theta[truth.layout.m :] - truth.couplings for fit in fits])
    squares = np.square(errors).reshape(-1, 2, len(truth.couplings))
    if len(squares) < replicates / 2:  # what is left would be a selection
        return [(graph, strength, n, replicates, len(squares), *[np.nan] * 5)]
    ml, pseudo = squares.mean(axis=(0, 2))
    totals = squares.sum(axis=2)
    draws = rng.integers(0, len(totals), (1000, len(totals)))
    ratios = totals[draws, 0].sum(axis=1) / totals[draws, 1].sum(axis=1)
    single = squares.mean(axis=0)
    return [
        (
            graph,
            strength,
            n,
            replicates,
            len(squares),
            ml * n,
            pseudo * n,
            ml / pseudo,
            ratios.std(),
            (single[0] / single[1]).min(),
        )
    ]


def limit(graph: str, strength: str) -> tuple:
    """Return the row of the limit of many rows, which is computed from all states."""
    ml, pseudo = Truth(graph, STRENGTHS[strength]).limits()
    return (
        graph,
        strength,
        0,
        0,
        0,
        ml.mean(),
        pseudo.mean(),
        ml.sum() / pseudo.sum(),
        0.0,
        (ml / pseudo).min(),
    )


def study(graph: str, strength: str, replicates: int) -> list[tuple]:
    """Return the rows of one model: the limit, and each number of rows."""
    warnings.simplefilter("ignore")
    return [limit(graph, strength)] + [
        row for n in SIZES for row in simulate(graph, strength, n, replicates)
    ]


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the page."""
    head = [
        "graph",
        "couplings",
        *[f"{n:,} rows" for n in SIZES],
        "infinitely many",
        "worst coupling",
    ]
    lines = []
    for (graph, strength), part in frame.groupby(["graph", "strength"], sort=False):
        by_n = part.set_index("n")
        cells = []
        for n in SIZES:
            row = by_n.loc[n]
            share = f" ({row.fitted:.0f} samples)" if row.fitted < row.replicates else ""
            cells.append(
                "" if np.isnan(row.efficiency) else f"{row.efficiency:.3f} ± {row.se:.3f}{share}"
            )
        lines.append(
            [graph, strength, *cells, f"{by_n.loc[0].efficiency:.3f}", f"{by_n.loc[0].least:.3f}"]
        )
    limits = frame[frame["n"] == 0]
    usual = limits[limits["strength"].isin(["weak", "medium"])]["efficiency"].min()
    worst = limits.loc[limits["efficiency"].idxmin()]
    sizes = ", ".join(f"{v:g} {k}" for k, v in STRENGTHS.items())
    return [
        "# Efficiency of pseudo-likelihood relative to exact likelihood",
        "",
        "With many rows and weak or medium couplings, the efficiency of pseudo-likelihood is at "
        f"least {usual:.0%}: its couplings have the same variance as with exact likelihood "
        f'(`method="ml"`) and {usual:.0%} of the rows. Efficiency decreases with the strength of '
        f"the couplings, and is lowest for {worst.strength} ones on the {worst.graph} "
        f"({worst.efficiency:.0%}).",
        "",
        "The table shows the mean squared error of the couplings with exact likelihood divided by "
        f"the mean squared error with pseudo-likelihood, from {int(frame['replicates'].max())} "
        "samples each, ± a bootstrap standard error. Predictors are binary with equally probable "
        f"levels; couplings have the same size ({sizes}; half of that for all pairs of 6) and "
        "random signs, in the reference gauge, where a coupling is the logarithm of an odds "
        "ratio. There is no penalty. Samples without a finite optimum for either method are "
        "omitted; the number of remaining samples is in brackets, and the cell is empty if fewer "
        "than half remain. The last two columns are computed from all states, by the Fisher "
        "information and the sandwich formula, for all couplings together and for the coupling "
        "with the lowest efficiency. `python -m benchmarks.studies.efficiency`",
        "",
        *table(head, lines),
    ]


def main() -> None:
    """Run and write ``results/efficiency.csv`` and ``efficiency.md``."""
    args = command(__doc__, replicates=(400, "how many samples of each size"))
    tasks = [(graph, strength, args.replicates) for graph in graphs() for strength in STRENGTHS]
    frame = rows_of(study, tasks, args.jobs, COLUMNS)
    frame.to_csv(args.out / "efficiency.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "efficiency.md", summarise(frame)).read_text())


if __name__ == "__main__":
    main()
