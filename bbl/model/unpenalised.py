"""The optimum without a penalty, and which parameters have one: what the data alone determine."""

from __future__ import annotations

import numpy as np

from bbl.model.godambe import inverse, site_hessians
from bbl.model.layout import Layout
from bbl.model.moments import known_counts, level_counts, pair_counts
from bbl.model.pairwise import cells
from bbl.model.regressors import regressors
from bbl.rows.sample import Sample

__all__ = ["cell_counts", "unpenalised"]

STEPS, LONGEST = 16, 2.0
AT_REST, ADRIFT = 1e-6, 1e-3


def unpenalised(
    sample: Sample, layout: Layout, site_theta: np.ndarray, only: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Go on from a penalised solution to the optimum without a penalty.

    Newton's method. Where rows are separated there is no finite optimum: the objective rises along a direction without
    end, the Hessian falls as fast as the gradient, and every step in that direction has the same length (Albert &
    Anderson 1984 name the condition). So a parameter that still moves when the others have come to rest is not
    determined; nor is one on which the rows do not depend, as of a copied column.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution to start from.
    only : ndarray of int, optional
        Predictors; all with more than one level by default.

    Returns
    -------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution without a penalty; what is not determined stands where the last step left it.
    determined : ndarray of bool, shape (layout.D, 1 + D)
        Which of its parameters the rows determine; False for predictors that were not asked for.
    """
    site_theta, columns = site_theta.copy(), regressors(layout).columns
    determined = np.zeros(site_theta.shape, dtype=bool)
    active = np.flatnonzero(layout.n_levels > 1) if only is None else np.asarray(only)
    for _ in range(STEPS):
        moving = []
        for i, (score, H) in site_hessians(sample, layout, site_theta, active).items():
            own = np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i])
            solved, known = inverse(H)
            step = solved @ score
            largest = float(np.abs(step).max())
            determined[own] = (known & (np.abs(step) < ADRIFT)).reshape(-1, len(columns[i]))
            site_theta[own] += (step * min(1.0, LONGEST / largest if largest else 1.0)).reshape(-1, len(columns[i]))
            if largest > AT_REST:
                moving.append(i)
        active = np.array(moving, dtype=np.intp)
        if not len(active):
            break
    return site_theta, determined


def cell_counts(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the weights (2, 2, layout.size - layout.D) of the rows that a coupling compares.

    For ``J_ij(a, b)``: rows with i at its reference level or at a (first axis), j at its reference level or at b
    (second axis), both known. If one of the four is zero, the coupling has no finite value without a penalty.
    """
    predictor = np.repeat(np.arange(layout.m), np.diff(layout.start))
    row, col = cells(layout)
    i, j = predictor[row], predictor[col]
    both = pair_counts(sample, layout)
    member = (predictor[:, None] == np.arange(layout.m)).astype(float)
    of_level = both @ member  # of a level, with the other predictor at any level but its reference
    if sample.missing is None:
        known = np.full((layout.m, layout.m), sample.total)
        counts = np.concatenate([n[1:] for n in level_counts(sample, layout.n_levels)])[:, None].repeat(layout.m, 1)
    else:
        known, counts = known_counts(sample, layout)
    total = member.T @ of_level
    margin = member.T @ counts  # of a predictor away from its reference, with the other known
    out = np.empty((2, 2, len(row)))
    out[1, 1] = both[row, col]
    out[1, 0] = counts[row, j] - of_level[row, j]
    out[0, 1] = counts[col, i] - of_level[col, i]
    out[0, 0] = known[i, j] - margin[i, j] - margin[j, i] + total[i, j]
    return out
