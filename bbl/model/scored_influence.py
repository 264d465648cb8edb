"""Influence of rows on a pseudo-likelihood estimate with couplings linear in scores."""

# With the map ``theta = A beta`` of a site's free parameters beta, its Hessian is ``A' H A``, and
# the influence on theta is ``A (A' H A)^-1 A' u``, with the score u of a row.

from __future__ import annotations

import numpy as np

from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.scored_sites import ScoredPenalty, scored_hessians
from bbl.model.scores import site_scores_of
from bbl.model.site_hessians import inverse
from bbl.rows.sample import Sample

__all__ = ["ScoredInfluence", "influence_of"]


class ScoredInfluence(Influence):
    """`Influence` for models with couplings that are linear in scores.

    `_inverse` (r, r) and `_penalty_shift` (r,) refer to the r free parameters of a site.
    """

    def __init__(
        self,
        sample: Sample,
        layout: Layout,
        site_theta: np.ndarray,
        lambda_: float | tuple[float, ...],
        lambdah: float,
        prior_count: float = 0.0,
        zero_sum: bool = False,
    ):
        self._penalty = ScoredPenalty(lambda_, lambdah, prior_count, zero_sum)
        super().__init__(sample, layout, site_theta, lambda_, lambdah, prior_count, zero_sum)

    def _invert_hessians(self, sample: Sample, penalty: np.ndarray) -> None:
        layout = self.layout
        scores = site_scores_of(layout)
        sites = np.flatnonzero(layout.n_levels > 1).tolist()
        hessians = scored_hessians(sample, layout, self.site_theta, sites)
        matrices = dict(zip(sites, self._penalty.matrices(layout, sites), strict=True))
        self._penalty_shift = []
        for i in range(layout.m):
            site_map = scores.maps[i]
            positions = self._flat_positions[i][0]
            if not len(positions):  # a predictor with one level has no parameters
                self._penalty_gradient.append(np.zeros(0))
                self._inverse.append(np.zeros((0, 0)))
                self._penalty_shift.append(np.zeros(0))
                continue
            inverted, is_determined = inverse(hessians[i] + matrices[i])
            theta = self.site_theta[layout.start[i] : layout.start[i + 1]][:, self._columns[i]]
            free_gradient = matrices[i] @ site_map.restrict(theta.ravel())
            # the gradient in free parameters is enough: it is only used in products with influences
            gradient = np.zeros(len(positions))
            gradient[site_map.first] = free_gradient / site_map.factor[site_map.first]
            self._penalty_gradient.append(gradient)
            self._inverse.append(inverted)
            self._penalty_shift.append(free_gradient @ inverted)
            self.determined[positions[~is_determined[site_map.index]]] = False

    def _add_site(
        self, i: int, row_arrays: tuple, out_rows: np.ndarray, shares: np.ndarray, out: np.ndarray
    ) -> None:
        Z, residuals, weights = row_arrays
        scores = site_scores_of(self.layout)
        site_map = scores.maps[i]
        if not site_map.n:
            return
        residual = residuals[:, self.layout.start[i] : self.layout.start[i + 1]]
        features = (Z[:, 1:] @ scores.column_map)[:, scores.features[i]]
        own = residual @ scores.contrasts[i]
        products = (own[:, :, None] * features[:, None, :]).reshape(len(Z), -1)
        # of the fields and of the free couplings
        psi = np.hstack([residual, products]) @ self._inverse[i] - self._penalty_shift[i]
        psi *= weights[i][:, None]
        # transposed: rows of an array are copied much faster than columns
        expanded = np.ascontiguousarray(psi.T)[site_map.index]
        expanded *= (site_map.factor * shares)[:, None]
        out[out_rows] += expanded  # the rows are distinct

    def _inverse_block(self, i: int, positions: np.ndarray) -> np.ndarray:
        site_map = site_scores_of(self.layout).maps[i]
        index = site_map.index[positions]
        factor = site_map.factor[positions]
        return factor[:, None] * self._inverse[i][np.ix_(index, index)] * factor


def influence_of(
    sample: Sample,
    layout: Layout,
    site_theta: np.ndarray,
    lambda_: float | tuple[float, ...],
    lambdah: float,
    prior_count: float = 0.0,
    zero_sum: bool = False,
) -> Influence:
    """Return the `Influence` on a site solution, using the class that matches the layout."""
    kind = Influence if layout.scores is None else ScoredInfluence
    return kind(sample, layout, site_theta, lambda_, lambdah, prior_count, zero_sum)
