"""The log partition function ln Z of each group: exact, or approximated from the training rows.

Equation numbers refer to Woo & Wang (2022).
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.choices import LogZ
from bbl.errors import OptionError
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.energy import conditionals
from bbl.model.gauge import level_shares
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import level_counts, one_hot, smoothed, usable_rows, usable_weight
from bbl.model.regressors import pair_matrix, regressors, to_sites
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = [
    "APPROXIMATE",
    "LOG_Z",
    "OF_ROWS",
    "approximate_log_z",
    "exact_elimination",
    "exact_log_z",
    "log_normaliser",
    "pseudo_log_z",
    "resolve_log_z",
    "zero_sum_log_z",
]

LOG_Z = get_args(LogZ)
OF_ROWS = ("pseudo", "half")  # approximations that are averages over the usable rows of a site
APPROXIMATE = (*OF_ROWS, "mf")  # methods whose error cannot be estimated, unlike that of "ais"

# largest number of table cells per group for which "auto" is exact: 22 binary predictors, 0.3 s
AUTO_CELLS = 2.0**23
AUTO_CELLS_OF_DRAWS = 2e5  # the same if ln Z is computed for each posterior draw
EXACT_CELLS = 3e7  # largest number of table cells per group allowed for "exact"
CELLS_AT_ONCE = 2e6  # table cells of the models whose exact ln Z are computed at once
ROWS = 2048  # rows of a chunk, if some values are missing
BLOCK = 65536  # rows of a chunk, if no values are missing


def exact_elimination(layout: Layout) -> tuple[list[int], float]:
    """Return the elimination order for the exact ln Z, and the number of table cells per model.

    Raises an OptionError if the tables would have more than 3e7 cells per group.
    """
    # `joined` (m, m): whether two predictors share a term or structural zeros
    elimination = elimination_order(layout.n_levels, layout.joined, EXACT_CELLS)
    if elimination is None:
        raise OptionError(
            f"log_z='exact' would sum over more than {EXACT_CELLS:.0e} table cells for these "
            f"{layout.m} predictors and {layout.n_terms} interactions.",
            argument="log_z",
            hint="Use log_z='auto' or 'ais', or fewer interactions.",
        )
    return elimination


def exact_log_z(
    layout: Layout, theta: np.ndarray, elimination: tuple[list[int], float] | None = None
) -> np.ndarray:
    """Return the exact ln Z (M,) of M parameter vectors `theta` (M, size).

    If structural zeros differ between groups, M must be the number of groups. `elimination`
    defaults to the result of `exact_elimination`, which may raise an OptionError.
    """
    if not layout.m:  # one state, with weight 1
        return np.zeros(len(theta))
    order, cells = elimination or exact_elimination(layout)
    # number of models
    at_once = max(1, int(CELLS_AT_ONCE / cells)) if layout.support is None else len(theta)
    batches = [theta[first : first + at_once] for first in range(0, len(theta), at_once)]
    return np.concatenate([log_sum(layout.factors(batch), order) for batch in batches])


def resolve_log_z(log_z: str, layout: Layout, fallback: str, max_cells: float = AUTO_CELLS) -> str:
    """Return the method that is used for ``"auto"``, which is "exact" if this is fast, otherwise
    `fallback`.

    A sum over at most `max_cells` table cells is considered fast. With structural zeros, "auto" is
    always exact. Other methods are returned unchanged.
    """
    if log_z != "auto" or layout.support is not None:  # `support` contains structural zeros
        return "exact" if log_z == "auto" else log_z
    # predictors are sorted by their numbers of levels and neighbours, so that the choice does not
    # depend on their order in the data
    by_size = np.lexsort((layout.mask.sum(axis=1), layout.n_levels))[::-1]
    is_costly = (
        elimination_order(
            layout.n_levels[by_size], layout.mask[np.ix_(by_size, by_size)], max_cells
        )
        is None
    )
    return fallback if is_costly else "exact"


def approximate_log_z(
    kind: str, sample: Rows, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None = None
) -> float:
    """Return ln Z of one group by eq. 31 (``"pseudo"``, ``"half"``) or eq. 32 (``"mf"``).

    Parameters
    ----------
    kind : {"pseudo", "half", "mf"}
    sample : Sample
        The group's training rows.
    layout : Layout
    theta : ndarray, shape (layout.size,)
    site_theta : ndarray, shape (layout.D, 1 + D), optional
        The site solution; by default, derived from `theta`.
    """
    if kind == "mf":
        return _mean_field_log_z(sample, layout, theta)
    sites = to_sites(layout, theta) if site_theta is None else site_theta
    return pseudo_log_z(sample, layout, sites, half=kind == "half")


def _mean_field_log_z(sample: Rows, layout: Layout, theta: np.ndarray) -> float:
    """Return ln Z by eq. 32, ``-sum_i ln f_i(0) - f' J f / 2``, for any couplings.

    The couplings need not be mean-field estimates. The level proportions f include a prior count of
    1 if the weights are counts. For a predictor with an unobserved level, the prior count is
    omitted, and ``-ln f(0)`` is replaced by the log normaliser of its levels in the mean field of
    the other predictors. Both are equal if the fields satisfy eq. 23. A term of k predictors
    contributes to the fields of all k members but only once to the energy, so its mean energy is
    subtracted ``k - 1`` times.
    """
    counts = level_counts(sample, layout.n_levels)
    # `sample.whole`: the weights are integers, that is, counts
    has_all_levels = [bool(n.all()) for n in counts]
    # float: a prior count of 1, or 0
    f = [
        smoothed([n], float(sample.whole and has_all))[0]
        for n, has_all in zip(counts, has_all_levels, strict=True)
    ]
    # (D,): proportions of the non-reference levels
    mean_indicator = np.concatenate([fi[1:] for fi in f])
    # field (D,): log odds of each level in the mean field of the other predictors
    field, J = pair_matrix(layout, theta)
    field += J @ mean_indicator
    log_z = -0.5 * float(mean_indicator @ J @ mean_indicator)  # J contains each pair twice
    for k, start in enumerate(layout.term_start[1:], 3):
        parameters = slice(start[0], start[-1])
        # for each coupling, the columns of its members' levels
        columns = term_columns(layout)[:k, parameters]
        log_z -= (k - 1) * float(theta[parameters] @ mean_indicator[columns].prod(axis=0))
        for member in range(k):
            other_columns = np.delete(columns, member, axis=0)
            np.add.at(
                field,
                columns[member],
                theta[parameters] * mean_indicator[other_columns].prod(axis=0),
            )
    for i, has_all in enumerate(has_all_levels):
        level_fields = np.append(0.0, field[layout.start[i] : layout.start[i + 1]])
        log_z += float(-np.log(f[i][0]) if has_all else np.logaddexp.reduce(level_fields))
    return log_z


def zero_sum_log_z(
    sample: Rows, layout: Layout, theta: np.ndarray, site_theta: np.ndarray, half: bool
) -> float:
    """Return ln Z of a model with pairs by eq. 31 in the zero-sum gauge.

    The result does not depend on the choice of reference levels. Eq. 31 with the factor 1/2 depends
    on the gauge because it halves the couplings. With a factor c of 1/2 or 1, the exponent of level
    a of site i in a row x is ``e(a) = h_i(a) + sum_j (mean_b J_ij(a, b) + c (J_ij(a, x_j) - mean_b
    J_ij(a, b)))``. In the zero-sum gauge, it is e(a) minus its mean over a. ln Z is eq. 31 with
    these e, minus the mean of e over levels and rows for each site, plus the mean energy of `theta`
    over all states, because energies in the zero-sum gauge exclude this mean. The result applies to
    energies in the gauge of `theta`, which are zero at the reference levels.

    Parameters
    ----------
    sample, layout, site_theta, half
        See `pseudo_log_z`.
    theta : ndarray, shape (layout.size,)
    """
    # factor of the couplings; weight of each level in the mean over levels
    factor = 0.5 if half else 1.0
    share = level_shares(layout)
    J = site_theta[:, 1:]
    mean_coupling = J @ share  # sum over the other predictors of the mean over their levels
    shifted_theta = site_theta.copy()
    # applies the factor to the couplings of the zero-sum gauge
    shifted_theta[:, 0] += (1.0 - factor) * mean_coupling
    log_z = pseudo_log_z(sample, layout, shifted_theta, half=half)
    # `mean_fields` (D,): mean of e over rows; its mean over levels is subtracted from ln Z_i in the
    # zero-sum gauge
    observed_coupling = (J * _observed_shares(sample, layout)).sum(axis=1)
    mean_fields = site_theta[:, 0] + mean_coupling + factor * (observed_coupling - mean_coupling)
    # their means over the levels of each predictor sum to the mean energy over all states
    level_energies = theta[: layout.D] + 0.5 * to_sites(layout, theta)[:, 1:] @ share
    return log_z + float((level_energies - mean_fields) @ share)


def _observed_shares(sample: Rows, layout: Layout) -> np.ndarray:
    """Return the proportions (D, D) of levels (columns) among the usable rows of each site."""
    counts = np.zeros((layout.m, layout.D))
    for chunk in sample.blocks(ROWS):
        counts += (usable_rows(chunk, layout) * chunk.weights[:, None]).T @ one_hot(
            chunk.codes, layout
        )
    return np.repeat(counts / usable_weight(sample, layout)[:, None], layout.n_levels - 1, axis=0)


def pseudo_log_z(sample: Rows, layout: Layout, site_theta: np.ndarray, *, half: bool) -> float:
    """Return the value of eq. 31: the weighted mean over rows of the log normaliser, summed over
    all sites.

    ``sum_i (sum_k w_k ln Z_i(x_k) / sum_k w_k)``, where the sums over k are over the usable rows of
    site i.

    Parameters
    ----------
    sample : Sample
        The group's training rows.
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
    half : bool
        Whether couplings are multiplied by 1/2, as printed in eq. 31, or by 1/k for terms of k
        predictors, which contribute to k fields. The default in R is False.
    """
    regs = regressors(layout)
    if sample.complete:
        # the kernel does not accept predictors with one level
        varying = np.flatnonzero(regs.n_levels > 1)
        # (sites, regressors): the predictors and sets on which each site is regressed
        n_levels = regs.n_levels[varying]
        mask = regs.mask[varying[varying < layout.m]].take(varying, axis=1)
        log_z = 0.0
        for chunk in sample.blocks(BLOCK) if len(mask) else ():  # without sites ln Z is 0
            # codes of the predictors and of the sets in terms of three or more
            codes = regs.codes(chunk.codes).take(varying, axis=1)
            # `counted=False`: only log-normalisers are needed, not the moments of the rows
            problem = PseudoProblem(codes, chunk.weights, n_levels, mask, counted=False)
            log_z += chunk.total * log_normaliser(problem, layout, site_theta, half)
        return log_z / sample.total
    # `regs.order` (D,): order of the terms in each column
    h = site_theta[:, 0]
    J = site_theta[:, 1:] * (1.0 / regs.order if half else 1.0)
    site_sums = np.zeros(layout.m)
    varies = layout.n_levels > 1
    with serial_blas():  # one thread, so that sums do not depend on the number of threads
        for chunk in sample.blocks(ROWS):
            log_norm, _ = conditionals(one_hot(regs.codes(chunk.codes), regs) @ J.T + h, layout)
            site_sums[varies] += chunk.weights @ (log_norm * usable_rows(chunk, layout)[:, varies])
    return float((site_sums / usable_weight(sample, layout))[varies].sum())


def log_normaliser(
    problem: PseudoProblem, layout: Layout, site_theta: np.ndarray, half: bool
) -> float:
    """Return the value of eq. 31 for the rows of `problem`. With `half`, the couplings of terms
    with k predictors are multiplied by 1/k.
    """
    if not half or layout.order <= 2:  # the kernel's factor is 1/2, correct for pairs
        return problem.log_normaliser(site_theta, half)
    # couplings are scaled here, not in the kernel
    return problem.log_normaliser(site_theta / np.append(1, regressors(layout).order), False)
