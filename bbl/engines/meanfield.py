"""Mean field: couplings from the inverse of the regularised predictor covariance (section 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbl.checks import choice, real
from bbl.engines.base import Engine, absent_levels
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.traits import Tuned
from bbl.memory import check_memory
from bbl.model.energy import known_energy, parameter_counts
from bbl.model.gauge import GAUGES, change_coordinates, orthonormal_bases
from bbl.model.layout import Layout
from bbl.model.logz import zero_sum_log_z
from bbl.model.moments import TINY, frequencies, known_counts, log_ratio, pair_counts
from bbl.model.regressors import from_matrix, to_matrix, to_sites
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows

__all__ = ["MeanField"]

# ratio of smallest to largest eigenvalue, or squared pivot, below which a covariance is singular
SINGULAR = 1e-12


@dataclass(frozen=True)
class MeanField(Engine):
    """Mean-field inference, eqs. (19)-(23).

    Parameters
    ----------
    eps : float, default 0.9
        Weight of the sample covariance; ``tr(C)/D`` times the identity matrix has weight 1 - eps
        (eq. 21). With 0, the fit is naive Bayes.
    prior_count : float, default 1.0
        Pseudocount in eqs. (20)-(23), which is spread evenly over levels and pairs of levels.
    gauge : {"reference", "zero-sum"}, default "reference"
        Coordinates in which the covariance is shrunk towards a multiple of the identity: indicators
        of non-reference levels ("reference"), as in eq. (21), or orthonormal contrasts of all
        levels ("zero-sum"). With "zero-sum", probabilities do not depend on the choice of reference
        levels, and eq. (31) uses the zero-sum gauge. The two are equivalent if all predictors have
        two levels.

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
    order_reason = (
        "method='mf' estimates couplings from pairwise covariances, which do not identify "
        "higher-order terms"
    )
    tuned = Tuned(
        "eps",
        "epsilon",
        r"$\epsilon$",
        r"Coupling weight $\epsilon$",
        (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        simpler="smaller",
    )
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
        """Whether the covariance is shrunk in the coordinates of contrasts of all levels."""
        return self.gauge != GAUGES[0]  # "reference"

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, of the matrices (D, D) that are stored simultaneously."""
        # 4 with the Cholesky factor of a single setting, 8 with an eigendecomposition, 0 without
        # couplings
        return 8.0 * layout.D**2 * (4 if settings == 1 else 8) if layout.order > 1 else 0.0

    def path(
        self, sample: Rows, layout: Layout, values: Sequence[float] | None = None, workers: int = 1
    ):
        """Fit one group at each `eps` in `values`, with a single eigendecomposition.

        Let C (D, D) be the shrunk covariance, f (D,) the frequencies of the non-reference levels,
        and f_0 the frequency of each predictor's reference level. Couplings are ``J = -C^-1``
        between predictors and 0 within predictors, fields are ``h = ln(f / f_0) - J f``, and ``ln Z
        = -sum ln f_0 - f' J f / 2`` (eq. 32), summed over predictors.

        `workers` is not used here, but is part of the signature of all engines.
        """
        grid = [self.eps] if values is None else [float(v) for v in values]
        shares = frequencies(sample, layout, self.prior_count)
        # (D,): f in the formulas
        level_shares = np.concatenate([predictor_shares[1:] for predictor_shares in shares])
        # ln(f / f_0), (D,)
        effective_fields = np.concatenate(
            [log_ratio(predictor_shares) for predictor_shares in shares]
        )
        notes = absent_levels(shares, hint="Set prior_count > 0.")
        log_reference_shares = float(
            sum(np.log(max(predictor_shares[0], TINY)) for predictor_shares in shares)
        )
        if layout.order < 2 or grid == [0.0]:  # no couplings: naive Bayes
            theta = np.concatenate([effective_fields, np.zeros(layout.size - layout.D)])
            return [_finish(theta, -log_reference_shares, sample, layout, notes)] * len(grid)
        needed = self.memory(sample.n, layout, len(grid))
        check_memory(needed, f"Mean field with {layout.D} levels", "Use fewer predictors.")
        with serial_blas():
            fits = []
            pairs = pair_counts(sample, layout)
            # complete: no values are missing
            counts = parameter_counts(pairs, layout) if sample.complete else None
            C = covariance(pairs, sample, layout, level_shares, self.prior_count)
            # a matrix (L - 1, L - 1) for each predictor
            bases = orthonormal_bases(layout) if self.zero_sum else []
            if bases:
                change_coordinates(layout, C, bases)
            for J, singular in _inverses(C, grid, clip=not sample.complete):
                # J is still the inverse here; negate in place, as another matrix (D, D) may not fit
                # into memory
                np.negative(J, out=J)
                if bases:
                    change_coordinates(layout, J, [basis.T for basis in bases])
                # reads only the couplings of interacting pairs
                theta = from_matrix(layout, effective_fields, J)
                # J f, with the couplings J (D, D) in `theta`: symmetric, and 0 for pairs that do
                # not interact
                mean_fields = to_matrix(layout, theta)[1] @ level_shares
                theta[: layout.D] -= mean_fields
                log_z = -log_reference_shares - 0.5 * float(level_shares @ mean_fields)
                singular_note = (
                    Note(
                        predictor=-1,  # the covariance involves all predictors
                        level=-1,
                        what="the covariance is singular",
                        hint="Use a smaller eps or a larger prior_count.",
                    ),
                ) * singular  # an empty tuple unless singular
                fit = _finish(theta, log_z, sample, layout, notes + singular_note, counts)
                fits.append(
                    replace(fit, normaliser=_zero_sum_normaliser(sample, layout, theta))
                    if bases
                    else fit
                )
        return fits


def _zero_sum_normaliser(
    sample: Rows, layout: Layout, theta: np.ndarray
) -> Callable[[bool], float]:
    """Return a function that computes eq. (31) in the zero-sum gauge."""
    return lambda half: zero_sum_log_z(sample, layout, theta, to_sites(layout, theta), half)


def _finish(theta, log_z, sample, layout, notes, counts=None) -> EngineFit:
    """Return the fit with parameters `theta` (size,).

    The fit's `lkh` is the mean log-likelihood of the complete rows, computed with ln Z = `log_z`. A
    note without a level (-1) means that the covariance is singular. In this case, the fit has not
    converged. `counts` (size,) is the result of `parameter_counts` if all rows are complete.
    """
    # weight of the complete rows, and sum of their energies
    total, energy = (
        known_energy(sample, layout, theta)
        if counts is None
        else (sample.total, float(counts @ theta))
    )
    lkh = energy / total - log_z if total else np.nan
    is_singular = any(note.level < 0 for note in notes)
    return EngineFit(
        theta, lkh, mf_log_z=log_z, converged=np.full(layout.m, not is_singular), notes=notes
    )


def covariance(
    counts: np.ndarray, sample: Rows, layout: Layout, level_shares: np.ndarray, prior_count: float
) -> np.ndarray:
    """Return the covariance (D, D) of the non-reference levels, including the prior count (eq. 20).

    `counts` (D, D) contains the weight of the rows that have both levels of a pair. This array is
    overwritten with the covariance. `level_shares` (D,) contains the frequencies of the levels.
    With missing values, the covariance of two predictors, including the means in its formula, is
    computed from the rows where both are observed, because means over other rows would add noise.
    """
    C = counts
    even_shares = np.repeat(1.0 / layout.n_levels, layout.n_levels - 1)
    if prior_count:
        C += prior_count * np.multiply.outer(even_shares, even_shares)
    if sample.complete:
        C /= sample.total + prior_count
        C -= np.multiply.outer(level_shares, level_shares)
    else:
        # weight of the rows where two predictors are observed (m, m), and level counts in these
        # rows (D, m)
        known_weight, level_weights = known_counts(sample, layout)
        n_columns = layout.n_levels - 1
        # (D, m): weight of the rows where both the level's predictor and another one are
        # observed
        pair_weight = np.repeat(known_weight, n_columns, axis=0) + prior_count
        # (D, D): the frequency of the row's level where the column's predictor is observed too
        means = np.repeat(
            (level_weights + prior_count * even_shares[:, None]) / pair_weight, n_columns, axis=1
        )
        C /= np.repeat(pair_weight, n_columns, axis=1)
        C -= means * means.T
    # levels of one predictor exclude each other: the multinomial covariance of one observation
    for i in range(layout.m):
        block = slice(layout.start[i], layout.start[i + 1])
        C[block, block] = np.diag(level_shares[block]) - np.multiply.outer(
            level_shares[block], level_shares[block]
        )
    return C


def _inverses(C: np.ndarray, grid: list[float], clip: bool) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield ``(eps C + (1 - eps) tr(C)/D I)^-1`` (eq. 21) for each eps, and whether it is singular.

    With missing values, the elements of C (D, D) are based on different rows, so C may have
    negative eigenvalues. If `clip` is True, these are set to zero. The result is the nearest
    positive semidefinite matrix in the Frobenius norm, which is at least as close to the true
    covariance as C.

    A Cholesky factorisation is used for a single eps without `clip`, and a single
    eigendecomposition for several values of eps. An eigendecomposition is also used if the Cholesky
    factorisation fails or the matrix is nearly singular.
    """
    from scipy.linalg import LinAlgError, eigh, lapack

    mean_variance = np.trace(C) / len(C)
    if len(grid) == 1 and not clip:
        M = grid[0] * C
        M.flat[:: len(C) + 1] += (1.0 - grid[0]) * mean_variance
        # M is symmetric, and M.T has LAPACK's memory order
        factor, failed = lapack.dpotrf(M.T, lower=1, overwrite_a=1)
        pivots = np.abs(factor.diagonal())
        if failed == 0 and pivots.min() ** 2 > SINGULAR * pivots.max() ** 2:
            inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
            for i in range(len(C) - 1):  # dpotri fills the lower triangle only
                inverse[i, i + 1 :] = inverse[i + 1 :, i]
            yield inverse, False
            return
    try:
        eigenvalues, eigenvectors = eigh(C, driver="evd", check_finite=False)
    except LinAlgError:  # divide and conquer did not converge, but QR iteration may
        eigenvalues, eigenvectors = eigh(C, driver="ev", check_finite=False)
    if clip:
        eigenvalues = np.maximum(eigenvalues, 0.0)
    for eps in grid:
        # eigenvalues of the shrunk covariance
        shrunk = (1.0 - eps) * mean_variance + eps * eigenvalues
        floor = SINGULAR * shrunk.max() or 1.0  # 1 if no predictor varies and none is coupled
        scaled = eigenvectors / np.sqrt(np.maximum(shrunk, floor))
        # a matrix times its own transpose takes half of the work
        yield scaled @ scaled.T, bool((shrunk < floor).any())
