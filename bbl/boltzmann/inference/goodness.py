"""Fitted counts, leverages, degrees of freedom and the bootstrap for fitted contingency tables.

A *cell* is a state of all predictors. Cells are in lexicographic order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.engines import Engine
from bbl.engines.engine_fit import EngineFit
from bbl.engines.likelihood.existence import rank
from bbl.engines.likelihood.states import StateTable
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.listing import state_codes
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample
from bbl.stats.goodness import goodness_statistics

__all__ = [
    "MAX_CELLS",
    "GroupCells",
    "check_cells",
    "group_cells",
    "leverages",
    "simulated_statistics",
]

MAX_CELLS = 2**20  # maximum number of cells in all groups
# smaller probabilities are treated as zero, because fits at the boundary leave small probabilities
# in cells that should be empty
NO_PROBABILITY = 1e-16


@dataclass(frozen=True)
class GroupCells:
    """The contingency table of one group, with n cells.

    Attributes
    ----------
    observed : ndarray, shape (n,)
        Weight of the rows in each cell.
    fitted : ndarray, shape (n,)
        Expected counts, which are 0 in impossible cells and in cells with a fitted probability of
        zero.
    rank : int
        Number of estimable parameters.
    """

    observed: np.ndarray
    fitted: np.ndarray
    rank: int

    @property
    def df(self) -> int:
        """Degrees of freedom: the number of cells with positive fitted counts, minus rank and 1."""
        return int((self.fitted > 0.0).sum()) - 1 - self.rank if self.fitted.any() else 0


def check_cells(layout: Layout, K: int) -> None:
    """Raise an OptionError if the tables of `K` groups have more than `MAX_CELLS` cells."""
    n_cells = K * float(np.prod(layout.n_levels.astype(float)))
    if n_cells > MAX_CELLS:
        raise OptionError(
            f"The table of {layout.m} predictors has {n_cells:.3g} cells, but at most "
            f"{MAX_CELLS:,} are supported.",
            argument="formula",
            hint="Use fewer predictors, or compare models of any size with aic and bic.",
        )


def group_cells(rows: Sample, estimate: Estimate) -> list[GroupCells]:
    """Return the observed and fitted counts of each group; `rows` must be complete."""
    layout = estimate.parameters.layout
    K = len(estimate.parameters.theta)
    check_cells(layout, K)
    tables = [StateTable(layout.of_group(g)) for g in range(K)]
    return [
        _make_cells(table, table.counts(rows.group(g)), estimate.fits[g])
        for g, table in enumerate(tables)
    ]


def _make_cells(table: StateTable, observed: np.ndarray, fit: EngineFit) -> GroupCells:
    """Return the cells of a group, given its observed counts (n,) and its fit.

    All parameters are assumed to be estimable if the fit does not contain a rank.
    """
    _, probabilities = table.log_partition(fit.theta)
    if fit.rank is not None:  # some parameters are not estimable: the fit may be at the boundary
        probabilities[probabilities < NO_PROBABILITY] = 0.0
    return GroupCells(
        observed,
        observed.sum() * probabilities,
        table.layout.size if fit.rank is None else fit.rank,
    )


def leverages(layout: Layout, fitted: np.ndarray) -> np.ndarray:
    """Return the leverage (n,) of each cell in an unpenalised fit.

    The leverage is the derivative of a cell's fitted count with respect to its observed count.
    `fitted` (n,) contains the expected counts. Let p(x) be the probability of cell x, T(x) (size,)
    its parameter indicators, and mu and V the mean and covariance of T over the cells. The leverage
    is ``p(x) (1 + (T(x) - mu)' V^-1 (T(x) - mu))``, where V is restricted to estimable parameters.
    """
    # four matrices (size, size) with 8 bytes per entry: V, its inverse, scales and correlations
    check_memory(
        32.0 * float(layout.size) ** 2,
        f"The information matrix of {layout.size} parameters",
        "Use fewer predictors or fewer interactions.",
    )
    total = fitted.sum()
    if not total:
        return np.zeros(len(fitted))
    table = StateTable(layout)
    p = fitted / total
    mu = table.moments(p)
    with serial_blas():
        information = table.covariances(p, mu)  # V
        # (size,): a maximal set of jointly estimable parameters; individually estimable parameters
        is_in_basis, _ = rank(information)
        basis_positions = np.flatnonzero(is_in_basis)
        scale = np.sqrt(information.diagonal()[basis_positions])
        inverse = np.zeros_like(information)
        scales = np.outer(scale, scale)
        # invert the correlation matrix, then restore the scale
        inverse[np.ix_(basis_positions, basis_positions)] = (
            np.linalg.inv(information[np.ix_(basis_positions, basis_positions)] / scales) / scales
        )
        inverse_mu = inverse @ mu
    # (T - mu)' V^-1 (T - mu) = T'V^-1 T - 2 T'V^-1 mu + mu'V^-1 mu for each cell; energies(v)
    # returns T'v
    distance = table.quadratic_forms(inverse) - 2.0 * table.energies(inverse_mu) + mu @ inverse_mu
    return p * (1.0 + distance)


def simulated_statistics(
    cells: list[GroupCells], layout: Layout, engine: Engine, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw `n` tables from the fits, refit them, and return their `goodness_statistics` (n, 3).

    Columns are the likelihood ratio G2, Pearson's X2 and the Freeman-Tukey statistic, each summed
    over groups. `cells` contains the cells of each group; groups without fitted counts are ignored.
    This is the parametric bootstrap (Efron & Tibshirani 1993, section 6.5). Each replicate has its
    own random generator.
    """
    groups = [
        (StateTable(layout.of_group(g)), group)
        for g, group in enumerate(cells)
        if group.fitted.any()
    ]
    codes = state_codes(np.arange(len(cells[0].observed)), layout.n_levels)
    statistics = np.zeros((n, 3))
    for replicate, stream in enumerate(rng.spawn(n)):  # stream: the generator of the replicate
        for table, group in groups:
            counts = stream.multinomial(
                round(group.observed.sum()), group.fitted / group.fitted.sum()
            )
            filled_cells = np.flatnonzero(counts)
            rows = engine.prepare(
                Sample(codes[filled_cells], counts[filled_cells].astype(float)), table.layout
            )
            refit = _make_cells(table, counts.astype(float), engine.fit(rows, table.layout))
            statistics[replicate] += goodness_statistics(refit.observed, refit.fitted)
    return statistics
