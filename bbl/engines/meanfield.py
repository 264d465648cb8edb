"""Mean field: couplings from the inverse of the regularised covariance of the predictors (section 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.checks import choice, real
from bbl.engines.base import Engine
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.naive import absent_levels
from bbl.engines.traits import Tuned
from bbl.memory import check_memory
from bbl.model.energy import known_energy
from bbl.model.gauge import GAUGES, change_coordinates, orthonormal_bases
from bbl.model.layout import Layout
from bbl.model.logz import zero_sum_log_z
from bbl.model.moments import TINY, frequencies, known_counts, log_ratio, pair_counts
from bbl.model.pairwise import from_matrix, to_matrix
from bbl.model.regressors import to_sites
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = ["MeanField"]

SINGULAR = 1e-12


@dataclass(frozen=True)
class MeanField(Engine):
    """Mean-field inference, eqs. (19)-(23).

    Parameters
    ----------
    eps : float, default 0.9
        Weight of the sample covariance against ``tr(C)/D`` times the identity (eq. 21); 0 is naive Bayes.
    prior_count : float, default 1.0
        Pseudocount of eqs. (20)-(23), spread evenly over levels and pairs of levels.
    gauge : {"reference", "zero-sum"}, default "reference"
        In which coordinates the covariance is shrunk towards a multiple of the identity: indicators of non-reference
        levels, as in eq. (21), or orthonormal contrasts of all levels. Then probabilities do not depend on which levels
        are the references, and eq. (31) is taken in the zero-sum gauge. Of predictors with two levels both are the
        same.

    Raises
    ------
    OptionError
        If `eps` is outside [0, 1], `prior_count` is negative or `gauge` is unknown.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method=bbl.MeanField(eps=0.9), verbose=0)
    >>> round(fit.score(), 3)
    0.791
    """

    eps: float = 0.9
    prior_count: float = 1.0
    gauge: str = "reference"
    name = "mf"
    order_reason = "method='mf' has its couplings from the covariance of pairs, which knows no more of the predictors"
    tuned = Tuned(
        "eps", "epsilon", r"$\epsilon$", r"Coupling weight $\epsilon$",
        (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), "smaller",
    )  # fmt: skip
    needs = "pairs"
    log_z = "half"
    weights = "real"
    streams = True

    def __post_init__(self):
        object.__setattr__(self, "eps", real("eps", self.eps, 0.0, 1.0))
        object.__setattr__(self, "prior_count", real("prior_count", self.prior_count, 0.0))
        choice("gauge", self.gauge, GAUGES)

    @property
    def zero_sum(self) -> bool:
        """Whether the covariance is shrunk in contrasts of all levels."""
        return self.gauge != GAUGES[0]

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes of the matrices (D, D) that are held at a time: more of them for an eigendecomposition."""
        return 8.0 * layout.D**2 * (4 if settings == 1 else 8) if layout.order > 1 else 0.0

    def path(self, sample: Rows, layout: Layout, values: Sequence[float] | None = None, workers: int = 1):
        """Fit one group at each `eps` of `values`; one eigendecomposition serves them all."""
        grid = [self.eps] if values is None else [float(v) for v in values]
        f = frequencies(sample, layout, self.prior_count)
        column = np.concatenate([fi[1:] for fi in f])
        effective = np.concatenate([log_ratio(fi) for fi in f])
        notes = absent_levels(f, "give prior_count > 0")
        log_f0 = float(sum(np.log(max(fi[0], TINY)) for fi in f))
        if layout.order < 2 or grid == [0.0]:
            theta = np.concatenate([effective, np.zeros(layout.size - layout.D)])
            return [_finish(theta, -log_f0, sample, layout, notes)] * len(grid)
        needed = self.memory(sample.n, layout, len(grid))
        check_memory(needed, f"Mean field with {layout.D} levels", "Use fewer predictors.")
        with serial_blas():
            fits = []
            C = covariance(sample, layout, column, self.prior_count)
            bases = orthonormal_bases(layout) if self.zero_sum else []
            if bases:
                change_coordinates(layout, C, bases)
            for J, singular in _inverses(C, grid, clip=not sample.complete):
                np.negative(J, out=J)  # no copies: (D, D) may fill the memory
                if bases:
                    change_coordinates(layout, J, [basis.T for basis in bases])
                theta = from_matrix(layout, effective, J)
                field = to_matrix(layout, theta)[1] @ column
                theta[: layout.D] -= field
                log_z = -log_f0 - 0.5 * float(column @ field)
                singular_note = (
                    Note(0, -1, "covariance is singular; take a smaller eps or a larger prior_count"),
                ) * singular
                fit = _finish(theta, log_z, sample, layout, notes + singular_note)
                fits.append(replace(fit, normaliser=_zero_sum_normaliser(sample, layout, theta)) if bases else fit)
        return fits


def _zero_sum_normaliser(sample: Rows, layout: Layout, theta: np.ndarray) -> Callable[[bool], float]:
    """Return the function of eq. (31) in the zero-sum gauge, with or without the factor 1/2."""
    return lambda half: zero_sum_log_z(sample, layout, theta, to_sites(layout, theta), half)


def _finish(theta, log_z, sample, layout, notes) -> EngineFit:
    """Assemble the fit; lkh is the mean log-likelihood of the complete rows with the mean-field ln Z."""
    total, energy = known_energy(sample, layout, theta)
    lkh = energy / total - log_z if total else np.nan
    return EngineFit(
        theta, lkh, mf_log_z=log_z, converged=np.full(layout.m, not any(n[1] < 0 for n in notes)), notes=notes
    )


def covariance(sample: Rows, layout: Layout, column: np.ndarray, prior_count: float) -> np.ndarray:
    """Return the covariance (D, D) of the non-reference levels with the prior count in it (eq. 20).

    With missing values that of two predictors, its means included, is over the rows in which both are known: means
    over all rows of each would add noise.
    """
    C = pair_counts(sample, layout)
    share = np.repeat(1.0 / layout.n_levels, layout.n_levels - 1)
    if prior_count:
        C += prior_count * np.multiply.outer(share, share)
    if sample.complete:
        C /= sample.total + prior_count
        C -= np.multiply.outer(column, column)
    else:
        known_weight, counts = known_counts(sample, layout)
        width = layout.n_levels - 1
        total = np.repeat(known_weight, width, axis=0) + prior_count
        means = np.repeat((counts + prior_count * share[:, None]) / total, width, axis=1)
        C /= np.repeat(total, width, axis=1)
        C -= means * means.T
    for i in range(layout.m):
        block = slice(layout.start[i], layout.start[i + 1])
        C[block, block] = np.diag(column[block]) - np.multiply.outer(column[block], column[block])
    return C


def _inverses(C: np.ndarray, grid: list[float], clip: bool) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield, for each eps, the inverse of ``eps C + (1 - eps) tr(C)/D I`` (eq. 21), and whether it was near-singular.

    A covariance C (D, D) of which different rows give different elements may have negative eigenvalues. With `clip`
    these are set to zero. That gives the nearest matrix without negative eigenvalues; since the true covariance has
    none either, C does not move away from it.
    """
    from scipy.linalg import LinAlgError, eigh, lapack

    mean = np.trace(C) / len(C)
    if len(grid) == 1 and not clip:
        M = grid[0] * C
        M.flat[:: len(C) + 1] += (1.0 - grid[0]) * mean
        factor, info = lapack.dpotrf(M.T, lower=1, overwrite_a=1)  # in place, M being symmetric
        pivots = np.abs(factor.diagonal())
        if info == 0 and pivots.min() ** 2 > SINGULAR * pivots.max() ** 2:
            inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
            for i in range(len(C) - 1):
                inverse[i, i + 1 :] = inverse[i + 1 :, i]
            yield inverse, False
            return
    try:
        values, vectors = eigh(C, driver="evd", check_finite=False)
    except LinAlgError:
        values, vectors = eigh(C, driver="ev", check_finite=False)
    if clip:
        values = np.maximum(values, 0.0)
    for eps in grid:
        shrunk = (1.0 - eps) * mean + eps * values
        floor = SINGULAR * shrunk.max() or 1.0  # 1 if no predictor varies, so that none is coupled
        yield (vectors / np.maximum(shrunk, floor)) @ vectors.T, bool((shrunk < floor).any())
