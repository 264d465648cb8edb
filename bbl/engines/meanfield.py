"""Mean field: couplings from the inverse of the regularised covariance of the predictors (section
2.3).

D counts the non-reference levels of all m predictors. The flat parameter vector `theta` (size,) of
a layout holds their D fields first, then the couplings; as a matrix, couplings are (D, D).
"""

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

# ratio of least to largest eigenvalue, or squared pivot, at which a covariance counts as singular
SINGULAR = 1e-12


@dataclass(frozen=True)
class MeanField(Engine):
    """Mean-field inference, eqs. (19)-(23).

    Parameters
    ----------
    eps : float, default 0.9
        Weight of the sample covariance against ``tr(C)/D`` times the identity (eq. 21); 0 is naive
        Bayes.
    prior_count : float, default 1.0
        Pseudocount of eqs. (20)-(23), spread evenly over levels and pairs of levels.
    gauge : {"reference", "zero-sum"}, default "reference"
        In which coordinates the covariance is shrunk towards a multiple of the identity: indicators
        of non-reference levels, as in eq. (21), or orthonormal contrasts of all levels. Then
        probabilities do not depend on which levels are the references, and eq. (31) is taken in the
        zero-sum gauge. Of predictors with two levels both are the same.

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
        """Whether the covariance is shrunk in contrasts of all levels."""
        return self.gauge != GAUGES[0]  # "reference"

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes of the matrices (D, D) that are held at a time."""
        # 4 with the Cholesky factor of a single setting, 8 with an eigendecomposition, none without
        # couplings
        return 8.0 * layout.D**2 * (4 if settings == 1 else 8) if layout.order > 1 else 0.0

    def path(
        self, sample: Rows, layout: Layout, values: Sequence[float] | None = None, workers: int = 1
    ):
        """Fit one group at each `eps` of `values`; one eigendecomposition serves them all.

        With C the shrunk covariance (D, D), f the shares (D,) of the non-reference levels and f_0
        that of the reference level of each predictor, couplings are ``J = -C^-1`` between
        predictors and 0 within one, fields are ``h = ln(f / f_0) - J f``, and ``ln Z = -sum ln f_0
        - f' J f / 2`` (eq. 32), with the sum over predictors.

        `workers` is in the signature of all engines, and unused here.
        """
        grid = [self.eps] if values is None else [float(v) for v in values]
        shares = frequencies(sample, layout, self.prior_count)
        # (D,): f in the formulas
        level_shares = np.concatenate([predictor_shares[1:] for predictor_shares in shares])
        # ln(f / f_0), (D,)
        effective_fields = np.concatenate(
            [log_ratio(predictor_shares) for predictor_shares in shares]
        )
        notes = absent_levels(shares, "give prior_count > 0")
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
            # complete: no value is missing
            counts = parameter_counts(pairs, layout) if sample.complete else None
            C = covariance(pairs, sample, layout, level_shares, self.prior_count)
            # a matrix (L - 1, L - 1) for each predictor
            bases = orthonormal_bases(layout) if self.zero_sum else []
            if bases:
                change_coordinates(layout, C, bases)
            for J, singular in _inverses(C, grid, clip=not sample.complete):
                # the inverse, as yet; in place: another matrix (D, D) may not fit into memory
                np.negative(J, out=J)
                if bases:
                    change_coordinates(layout, J, [basis.T for basis in bases])
                # reads the couplings of interacting pairs alone
                theta = from_matrix(layout, effective_fields, J)
                # J f; this J (D, D) is that of `theta`: symmetric, and 0 where two levels'
                # predictors do not interact
                mean_fields = to_matrix(layout, theta)[1] @ level_shares
                theta[: layout.D] -= mean_fields
                log_z = -log_reference_shares - 0.5 * float(level_shares @ mean_fields)
                singular_note = (
                    Note(
                        predictor=-1,  # the covariance is of all predictors
                        level=-1,
                        what="covariance is singular; use a smaller eps or a larger prior_count",
                    ),
                ) * singular  # an empty tuple if it is not
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
    """Return the function of eq. (31) in the zero-sum gauge, with or without the factor 1/2."""
    return lambda half: zero_sum_log_z(sample, layout, theta, to_sites(layout, theta), half)


def _finish(theta, log_z, sample, layout, notes, counts=None) -> EngineFit:
    """Return the fit of `theta` (size,); its `lkh` is the mean log-likelihood of complete rows with
    ln Z `log_z`.

    The fit has not converged if one of its `notes`, a tuple of `Note`, is on no level (-1): the
    covariance is singular. `counts` (size,) are those of `parameter_counts`, if all rows are
    complete and the counts are known.
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
    """Return the covariance (D, D) of the non-reference levels with the prior count in it (eq. 20).

    `counts` (D, D) holds the weights of the rows that have both of two levels; the covariance takes
    its memory. `level_shares` (D,) holds the frequencies of these levels. With missing values the
    covariance of two predictors and the means in it are those of the rows in which both are known;
    means over other rows would add noise.
    """
    C = counts
    even_shares = np.repeat(1.0 / layout.n_levels, layout.n_levels - 1)
    if prior_count:
        C += prior_count * np.multiply.outer(even_shares, even_shares)
    if sample.complete:
        C /= sample.total + prior_count
        C -= np.multiply.outer(level_shares, level_shares)
    else:
        # weight of the rows in which two predictors are known (m, m), and counts of levels in these
        # rows (D, m)
        known_weight, level_weights = known_counts(sample, layout)
        n_columns = layout.n_levels - 1
        # (D, m): weight of the rows in which a level's predictor and another one are known
        pair_weight = np.repeat(known_weight, n_columns, axis=0) + prior_count
        # (D, D): the share of the row's level among rows in which the column's predictor is known
        # too
        means = np.repeat(
            (level_weights + prior_count * even_shares[:, None]) / pair_weight, n_columns, axis=1
        )
        C /= np.repeat(pair_weight, n_columns, axis=1)
        C -= means * means.T
    # levels of one predictor exclude each other: multinomial covariance of one observation
    for i in range(layout.m):
        block = slice(layout.start[i], layout.start[i + 1])
        C[block, block] = np.diag(level_shares[block]) - np.multiply.outer(
            level_shares[block], level_shares[block]
        )
    return C


def _inverses(C: np.ndarray, grid: list[float], clip: bool) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield, for each eps, the inverse of ``eps C + (1 - eps) tr(C)/D I`` (eq. 21), and whether it
    was near-singular.

    With missing values the elements of C (D, D) come from different rows, so that C may have
    negative eigenvalues. With `clip` these are set to zero, which gives the nearest matrix without
    negative eigenvalues: in the Frobenius norm it is no farther from the true covariance, which has
    none either.

    A single eps without `clip` takes a Cholesky factor. An eigendecomposition serves several eps,
    and is also the way out if the Cholesky factorisation fails or finds the matrix near-singular.
    """
    from scipy.linalg import LinAlgError, eigh, lapack

    mean_variance = np.trace(C) / len(C)
    if len(grid) == 1 and not clip:
        M = grid[0] * C
        M.flat[:: len(C) + 1] += (1.0 - grid[0]) * mean_variance
        # M.T is M, but in LAPACK's order
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
    except LinAlgError:  # divide and conquer did not converge: QR iteration may
        eigenvalues, eigenvectors = eigh(C, driver="ev", check_finite=False)
    if clip:
        eigenvalues = np.maximum(eigenvalues, 0.0)
    for eps in grid:
        # eigenvalues of the shrunk covariance
        shrunk = (1.0 - eps) * mean_variance + eps * eigenvalues
        floor = SINGULAR * shrunk.max() or 1.0  # 1 if no predictor varies, so that none is coupled
        yield (
            (eigenvectors / np.maximum(shrunk, floor)) @ eigenvectors.T,
            bool((shrunk < floor).any()),
        )
