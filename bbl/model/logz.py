"""The log partition function ln Z of each group: which value to use, and how it is computed (spec table LOG_Z)."""

from __future__ import annotations

import numpy as np

from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.errors import OptionError
from bbl.model.conditional import conditionals
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.gauge import level_shares
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import level_counts, one_hot, smoothed, usable_rows, usable_weight
from bbl.model.pairwise import pair_matrix
from bbl.model.regressors import regressors, to_sites
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = [
    "LOG_Z",
    "OF_ROWS",
    "approximate_log_z",
    "exact_log_z",
    "exact_order",
    "log_normaliser",
    "pseudo_log_z",
    "resolve_log_z",
    "zero_sum_log_z",
]

LOG_Z = ("auto", "exact", "pseudo", "half", "mf", "ais")
OF_ROWS = ("pseudo", "half")  # sums over rows of which a predictor and all that it interacts with are known

AUTO_CELLS = 2e5
EXACT_CELLS = 3e7
ROWS = 2048  # rows at a time, if some values are missing
BLOCK = 65536  # rows at a time, if no values are missing


def exact_order(layout: Layout) -> list:
    """Return the order in which variables are eliminated for the exact ln Z.

    Raises
    ------
    OptionError
        If the tables would hold more than 3e7 cells per group.
    """
    elimination = elimination_order(layout.n_levels, layout.mask, EXACT_CELLS)
    if elimination is None:
        raise OptionError(
            f"log_z='exact' would sum over more than {EXACT_CELLS:.0e} table cells for these {layout.m} predictors and "
            f"{layout.n_terms} interactions; use log_z='auto' or 'ais', or fewer interactions.",
            argument="log_z",
        )
    return elimination[0]


def exact_log_z(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the true ln Z (K,) of the parameter vectors `theta` (K, size), by variable elimination.

    Raises
    ------
    OptionError
        If the tables would hold more than 3e7 cells per group.
    """
    return log_sum(layout.factors(theta), exact_order(layout))


def resolve_log_z(log_z: str, layout: Layout, fallback: str) -> str:
    """Return the choice that ``"auto"`` stands for: exact where it is cheap, else `fallback`."""
    if log_z != "auto":
        return log_z
    return fallback if elimination_order(layout.n_levels, layout.mask, AUTO_CELLS) is None else "exact"


def approximate_log_z(
    kind: str, sample: Rows, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None = None
) -> float:
    """Return the ln Z of one group by eq. (31) (``"pseudo"``, ``"half"``) or eq. (32) (``"mf"``), whatever fitted it.

    Parameters
    ----------
    kind : {"pseudo", "half", "mf"}
    sample : Sample
        The rows that the group was fitted to.
    layout : Layout
    theta : ndarray, shape (layout.size,)
    site_theta : ndarray, shape (layout.D, 1 + D), optional
        The unsymmetrised solution where there is one; `theta` stands for it otherwise.
    """
    if kind == "mf":
        return _mean_field_log_z(sample, layout, theta)
    sites = to_sites(layout, theta) if site_theta is None else site_theta
    return pseudo_log_z(sample, layout, sites, half=kind == "half")


def _mean_field_log_z(sample: Rows, layout: Layout, theta: np.ndarray) -> float:
    """Eq. (32), for couplings that did not come from mean field.

    Shares of levels have a prior count of 1 where weights are counts. Of a predictor with a level that does not occur
    they have none, since nothing says what such a count weighs against fields that have another: in place of
    ``-ln f(0)`` stands the logarithm of the normaliser of its levels in the mean field of the others, which is the same
    where the fields are those of eq. (23). A term of k predictors is in the fields of all its members and in the energy
    once: it counts ``k - 1`` times.
    """
    counts = level_counts(sample, layout.n_levels)
    occur = [bool(n.all()) for n in counts]
    f = [smoothed([n], float(sample.whole and every))[0] for n, every in zip(counts, occur, strict=True)]
    column = np.concatenate([fi[1:] for fi in f])
    field, J = pair_matrix(layout, theta)
    field += J @ column
    total = -0.5 * float(column @ J @ column)
    for k, start in enumerate(layout.term_start[1:], 3):
        pair_columns = slice(start[0], start[-1])
        columns = term_columns(layout)[:k, pair_columns]
        total -= (k - 1) * float(theta[pair_columns] @ column[columns].prod(axis=0))
        for member in range(k):
            other_columns = np.delete(columns, member, axis=0)
            np.add.at(field, columns[member], theta[pair_columns] * column[other_columns].prod(axis=0))
    for i, every in enumerate(occur):
        levels = np.append(0.0, field[layout.start[i] : layout.start[i + 1]])
        total += float(-np.log(f[i][0]) if every else np.logaddexp.reduce(levels))
    return total


def zero_sum_log_z(sample: Rows, layout: Layout, theta: np.ndarray, site_theta: np.ndarray, half: bool) -> float:
    """Return ln Z by eq. (31) in the zero-sum gauge, where it does not depend on reference levels, of a model of pairs.

    The equation takes half of a coupling for another one than half of it in another gauge. The result is the ln Z that
    belongs to the energies of `theta`, which are zero at the reference levels.

    Parameters
    ----------
    sample, layout, site_theta, half
        As for `pseudo_log_z`.
    theta : ndarray, shape (layout.size,)
    """
    factor, share = 0.5 if half else 1.0, level_shares(layout)
    J = site_theta[:, 1:]
    mean = J @ share
    centred_theta = (
        site_theta.copy()
    )  # field of a level less that of the reference level, as couplings are in the zero-sum gauge
    centred_theta[:, 0] += (1.0 - factor) * mean
    total = pseudo_log_z(sample, layout, centred_theta, half=half)
    of_reference = site_theta[:, 0] + mean + factor * ((J * _observed(sample, layout)).sum(axis=1) - mean)
    energies = theta[: layout.D] + 0.5 * to_sites(layout, theta)[:, 1:] @ share
    return total + float((energies - of_reference) @ share)


def _observed(sample: Rows, layout: Layout) -> np.ndarray:
    """Return how often each level was observed in the rows that a predictor is fitted to, (D, D): a row for each of its
    levels.
    """
    counts = np.zeros((layout.m, layout.D))
    for chunk in sample.blocks(ROWS):
        counts += (usable_rows(chunk, layout) * chunk.weights[:, None]).T @ one_hot(chunk.codes, layout)
    return np.repeat(counts / usable_weight(sample, layout)[:, None], layout.n_levels - 1, axis=0)


def pseudo_log_z(sample: Rows, layout: Layout, site_theta: np.ndarray, *, half: bool) -> float:
    """Return eq. (31): the weighted mean over rows of the sum of the predictors' log-normalisers.

    With missing values each predictor's mean is over the rows in which it and its neighbours are known.

    Parameters
    ----------
    sample : Sample
        The rows that the group was fitted to.
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution (see EngineFit).
    half : bool
        With the factor 1/2 in front of the couplings, as eq. (31) is printed (one k-th for terms of k predictors, each
        of which is in k fields); R's default leaves it out.
    """
    wide = regressors(layout)
    if sample.complete:
        varying = np.flatnonzero(wide.n_levels > 1)
        n_levels, mask = wide.n_levels[varying], wide.mask[varying[varying < layout.m]].take(varying, axis=1)
        total = 0.0
        for chunk in sample.blocks(BLOCK) if len(mask) else ():
            codes = wide.codes(chunk.codes).take(varying, axis=1)
            problem = PseudoProblem(codes, chunk.weights, n_levels, mask, counted=False)
            total += chunk.total * log_normaliser(problem, layout, site_theta, half)
        return total / sample.total
    h, J = site_theta[:, 0], site_theta[:, 1:] * (1.0 / wide.order if half else 1.0)
    by_site, varies = np.zeros(layout.m), layout.n_levels > 1
    with serial_blas():
        for chunk in sample.blocks(ROWS):
            norm, _ = conditionals(one_hot(wide.codes(chunk.codes), wide), layout, h, J)
            by_site[varies] += chunk.weights @ (norm * usable_rows(chunk, layout)[:, varies])
    return float((by_site / usable_weight(sample, layout))[varies].sum())


def log_normaliser(problem: PseudoProblem, layout: Layout, site_theta: np.ndarray, half: bool) -> float:
    """Return eq. (31) of rows that the kernel has prepared; its factor is one k-th for the couplings of terms of k."""
    if not half or layout.order <= 2:
        return problem.log_normaliser(site_theta, half)
    return problem.log_normaliser(site_theta / np.append(1, regressors(layout).order), False)
