"""Pseudo-likelihood: each predictor's conditional distribution fitted by itself, then symmetrised (section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbl._ext import newton
from bbl.checks import flag, integer, real
from bbl.config import check_memory
from bbl.design.sample import Sample
from bbl.engines.base import Engine, EngineFit
from bbl.engines.naive import absent_levels, frequencies, log_ratio
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.moments import level_counts

__all__ = ["PseudoLikelihood"]

CONVERGED = 0


@dataclass(frozen=True)
class PseudoLikelihood(Engine):
    """Penalised pseudo-likelihood, eqs. (10)-(18).

    Parameters
    ----------
    lambda_ : float, default 1e-5
        L2 penalty on couplings; the objective is per observation, so it does not depend on the number of rows.
    lambdah : float or None, default 0.0
        L2 penalty on fields; None for the same as `lambda_`.
    tolerance : float, default 1e-8
        Largest gradient norm of a predictor's objective at which it counts as converged.
    itmax : int, default 1000
        Most iterations for a predictor.
    prior_count : float, default 0.0
        Only 0: the pseudo-likelihood has no pseudocount (`lambdah` is what keeps fields finite).
    symmetrize : bool, default True
        Whether to average ``J_ij`` and ``J_ji`` (eq. 18); without, ``J_ij`` of ``i < j`` is that of predictor i.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is outside its range, naming it.
    """

    lambda_: float = 1e-5
    lambdah: float | None = 0.0
    tolerance: float = 1e-8
    itmax: int = 1000
    symmetrize: bool = True
    prior_count: float = 0.0
    name = "pseudo"
    tuned = "lambda_"
    log_z = "half"

    def __post_init__(self):
        if isinstance(self.lambda_, Sequence | np.ndarray) and not isinstance(self.lambda_, str):
            real("lambda_ (one number here; crossVal takes a grid)", self.lambda_)
        object.__setattr__(self, "lambda_", real("lambda_", self.lambda_, 0.0))
        if self.lambdah is not None:
            object.__setattr__(self, "lambdah", real("lambdah", self.lambdah, 0.0))
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0, open_low=True))
        object.__setattr__(self, "itmax", integer("itmax", self.itmax, 1))
        if real("prior_count", self.prior_count, 0.0):
            raise OptionError(
                f"prior_count={self.prior_count!r} has no meaning for method='pseudo', which has no pseudocount; "
                "give lambdah > 0 to shrink fields, or take method='mf' or 'naive'.",
                argument="prior_count",
            )
        object.__setattr__(self, "symmetrize", flag("symmetrize", self.symmetrize))

    def prepare(self, sample: Sample, layout: Layout) -> Sample:
        """Add the extra instance of section 2.2 where a predictor is constant in the group.

        In it constant predictors take another level (the first that is not theirs), all others their reference.
        """
        if not sample.n:
            return sample
        first = sample.codes[0]
        constant = (sample.codes == first).all(axis=0) & (layout.n_levels > 1)
        if not constant.any():
            return sample
        extra = np.where(constant & (first == 0), 1, 0).astype(sample.codes.dtype)
        return Sample(np.vstack([sample.codes, extra]), np.append(sample.weights, 1.0))

    def path(self, sample: Sample, layout: Layout, values: Sequence[float] | None = None, workers: int = 1):
        """Fit one group at each penalty of `values`, from the strongest to the weakest with warm starts."""
        grid = np.array([self.lambda_] if values is None else values, dtype=float)
        fits: list[EngineFit | None] = [None] * len(grid)
        site_theta = self._start(sample, layout)
        check_memory(16.0 * layout.D**2, f"A fit with {layout.D} levels", "Use fewer predictors.")
        for at in np.argsort(-grid, kind="stable"):
            site_theta = site_theta.copy()
            fits[at] = self._solve(sample, layout, float(grid[at]), site_theta, workers)
        return fits

    def _start(self, sample: Sample, layout: Layout) -> np.ndarray:
        """Return the site matrix of the independent model."""
        site_theta = np.zeros((layout.D, 1 + layout.D))
        site_theta[:, 0] = np.concatenate([log_ratio(f) for f in frequencies(sample, layout, 1.0)])
        return site_theta

    def _solve(self, sample: Sample, layout: Layout, lambda_: float, site_theta: np.ndarray, workers: int) -> EngineFit:
        m = layout.m
        value, norm = np.zeros(m), np.zeros(m)
        n_iter, status = np.zeros(m, dtype=np.int32), np.zeros(m, dtype=np.int32)
        lambdah = lambda_ if self.lambdah is None else self.lambdah
        newton.solve_sites(
            sample.codes,
            sample.weights,
            sample.total,
            layout.start,
            layout.mask.view(np.uint8),
            np.arange(m, dtype=np.int32),
            lambda_,
            lambdah,
            self.tolerance,
            self.itmax,
            site_theta,
            value,
            norm,
            n_iter,
            status,
        )
        J = site_theta[:, 1:]
        theta = layout.from_matrix(site_theta[:, 0], J if self.symmetrize else np.triu(J) + np.triu(J).T)
        notes: tuple[tuple[int, int, str], ...] = ()
        if lambdah == 0:
            notes = absent_levels(level_counts(sample, layout.n_levels), "give lambdah > 0")
        for i in np.flatnonzero(status != CONVERGED):
            why = f"did not converge: gradient norm {norm[i]:.2g} after {n_iter[i]} iterations"
            notes += ((int(i), -1, f"{why}; raise itmax, tolerance or lambda_"),)
        return EngineFit(theta, -float(value.sum()), site_theta, None, norm, n_iter, status == CONVERGED, notes)
