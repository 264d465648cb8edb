"""Fits where only the parameters of selected predictors differ between groups.

The selected predictors are fitted separately, and the fit is then extended to all predictors. The
other predictors have *shared* fields, which are the same in all groups, and no interactions. They
therefore cancel in class scores. The numbers of predictors, groups and non-reference levels are m,
K and D.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bbl.boltzmann.fitted import Estimate, Relevance
from bbl.boltzmann.job import FitData
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.moments import frequencies, level_counts, log_ratio, one_hot, smoothed
from bbl.model.parameters import Parameters
from bbl.rows.sample import Sample
from bbl.stats.relevance import select_predictors

__all__ = [
    "CHOSEN_BY_ROWS",
    "SELECTION_ROWS",
    "choose_once",
    "choose_relevant",
    "extend_to_all_predictors",
    "selection_rows",
]

CHOSEN_BY_ROWS = "Standard errors and tests are not valid for predictors selected on the same rows"
# minimum and maximum size of the systematic sample of rows from which predictors are selected
SELECTION_ROWS = (2_000, 20_000)
# maximum of rows x columns^2 x (K - 1) when more than the minimum number of rows is used
SELECTION_WORK = 5e9
# assumed number of parameters in a regression on selected predictors, to estimate its memory
PARAMETERS = 100.0
# prior count of the level proportions that replace missing values, in case none are known
NEGLIGIBLE_COUNT = 1e-9
SHARED_PRIOR_COUNT = 1.0  # prior count of the level proportions for shared fields


def selection_rows(n: int, layout: Layout, K: int) -> int:
    """Return the number of rows (out of n) that are used for selecting predictors."""
    min_rows, max_rows = SELECTION_ROWS
    return min(
        n,
        int(np.clip(SELECTION_WORK / max(1.0, float(layout.D) ** 2 * (K - 1)), min_rows, max_rows)),
    )


def choose_relevant(sample: Sample, layout: Layout, K: int, level: float) -> Relevance:
    """Select predictors by score tests at a significance `level` (see `select_predictors`).

    If a value is missing, its level indicators are replaced by the level proportions among known
    values.
    """
    n = selection_rows(sample.n, layout, K)
    check_memory(
        8.0 * layout.D * (3.0 * n + PARAMETERS * (K - 1.0) ** 2),
        f"Selecting predictors with {layout.D} non-reference levels for {K} groups",
        "Omit the relevance argument, or use fewer predictors.",
    )
    drawn = sample.systematic_sample(n)
    rows = drawn.by_state(layout.n_levels, K)
    columns = one_hot(rows.codes, layout)  # (n, D) indicators
    if rows.missing is not None:
        for i, shares in enumerate(frequencies(rows.pooled, layout, NEGLIGIBLE_COUNT)):
            columns[rows.missing[:, i], layout.start[i] : layout.start[i + 1]] = shares[1:]
    # weights that are not counts are scaled to sum to the number of rows; numbers of draws are
    # counts
    weights = rows.weights if drawn.whole else rows.weights * (drawn.n / drawn.total)
    groups, y = np.unique(rows.response, return_inverse=True)
    if len(groups) < 2:
        return Relevance(level, chosen=np.empty(0, dtype=np.intp), p_value=np.empty(0))
    selection = select_predictors(columns, layout.start, y, weights, level)
    # `selection` is in the order of choice
    by_position = np.argsort(selection.predictors).astype(np.intp)
    return Relevance(
        level,
        np.array(selection.predictors, dtype=np.intp)[by_position],
        np.array(selection.p_value)[by_position],
    )


def choose_once(data: FitData, level: float) -> Relevance:
    """Return `choose_relevant` for the rows, using the cache `data.selections` if there is one."""
    sample = data.rows
    if data.selections is None:
        return choose_relevant(sample, data.layout, data.K, level)
    arrays = (sample.codes, sample.response, sample.weights, sample.missing)
    digest = hashlib.blake2b(repr(level).encode())
    for array in arrays:
        digest.update(b"" if array is None else array.tobytes())
    key = digest.digest()
    if key not in data.selections:
        data.selections[key] = choose_relevant(sample, data.layout, data.K, level)
    return data.selections[key]


def extend_to_all_predictors(
    estimates: Sequence[Estimate], data: FitData, relevance: Relevance
) -> list[Estimate]:
    """Extend fits of the selected predictors, one for each setting, to all predictors.

    The other predictors have shared fields, which are computed from the level proportions in all
    groups together. The fields are zero for engines that do not model the predictors (`log_z_kind`
    "none").
    """
    chosen = relevance.chosen
    others = np.setdiff1d(np.arange(data.layout.m), chosen)
    shared_fields = np.zeros(data.layout.D)
    shared_log_z = 0.0
    shared_lkh = 0.0
    models_predictors = estimates[0].log_z_kind != "none"  # the same for all settings
    if models_predictors:
        # counts of known values
        counts = level_counts(data.sample.pooled, data.layout.n_levels)
        shares = smoothed(counts, SHARED_PRIOR_COUNT)
        for i in others:
            # the fields of i
            data.layout.table(shared_fields, int(i))[:] = log_ratio(shares[i])
            log_shares = np.log(shares[i])
            # Z = 1 / proportion of the reference level, which has weight 1
            shared_log_z -= float(log_shares[0])
            shared_lkh += float(counts[i] @ log_shares)
    n_shared_fields = len(data.layout.columns(others)) if models_predictors else 0

    def extend(small: Estimate, full_layout: Layout) -> Estimate:
        """Extend the fit of a setting; `full_layout` has all predictors and the fit's terms."""
        # positions of the parameters of `small` in the full vector
        positions = np.concatenate(
            [full_layout.columns(chosen), np.arange(full_layout.D, full_layout.size)]
        )

        def embed_theta(theta: np.ndarray) -> np.ndarray:
            """Extend parameters (..., size) of the selected predictors to (..., full size)."""
            out = np.zeros((*theta.shape[:-1], full_layout.size))
            out[..., : full_layout.D] = shared_fields
            out[..., positions] = theta
            return out

        fits = tuple(
            replace(
                fit.of_predictors(chosen, full_layout),
                theta=embed_theta(fit.theta),
                # shared fields are only counted once, in the first group
                rank=(len(fit.theta) if fit.rank is None else fit.rank)
                + n_shared_fields * (g == 0),
            )
            for g, fit in enumerate(small.fits)
        )
        pooled = small.parameters.pooled
        parameters = Parameters(
            full_layout,
            embed_theta(small.parameters.theta),
            None if pooled is None else embed_theta(pooled),
        )
        return replace(
            small,
            parameters=parameters,
            log_z=small.log_z + shared_log_z,
            lkh=small.lkh + shared_lkh,
            fits=fits,
            relevance=relevance,
        )

    extended: list[Estimate] = []
    for i, small in enumerate(estimates):
        layout = small.parameters.layout
        if i == 0 or layout is not estimates[i - 1].parameters.layout:
            # layout.terms has an array (terms, k) for each order k
            full_layout = data.layout.with_terms([chosen[terms] for terms in layout.terms])
        extended.append(extend(small, full_layout))
    return extended
