"""Sandwich (Godambe) covariance of the pseudo-likelihood estimator, with the symmetrisation of the couplings in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bbl._ext.pseudo import newton
from bbl.memory import check_memory
from bbl.model.conditional import conditionals
from bbl.model.gauge import level_shares, penalty_metric
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import penalties, regressors
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["Influence", "inverse", "site_hessians", "solution", "term_covariances"]

ROWS = 1024
SPARSE = 0.35  # share of ones in the design below which they are counted one by one, in place of matrix products
NO_INFORMATION = 1e-100  # of a parameter per observation; squares of its inverse are finite
REGULAR = 1e-10  # smallest pivot of a Hessian of unit diagonal that is taken for regular
FLAT = 1e-13  # eigenvalue of a Hessian of unit diagonal, per parameter, that counts as zero


def site_hessians(
    sample: Rows, layout: Layout, site_theta: np.ndarray, only: Iterable[int]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the mean score (p,) and the mean Hessian (p, p) of minus the log conditional of each predictor of `only`.

    Parameters are in the order level by level, and within a level as in `Regressors.columns`. Each predictor counts in
    its usable rows.
    """
    columns, totals = regressors(layout).columns, usable_weight(sample, layout)
    sizes = {i: (int(layout.n_levels[i]) - 1) * len(columns[i]) for i in only}
    check_memory(
        8.0 * sum(float(p) ** 2 for p in sizes.values()) + 16.0 * ROWS * layout.size,
        f"Standard errors of {layout.size} parameters",
        "Fit fewer predictors or fewer interactions.",
    )
    out = {i: (np.zeros(p), np.zeros((p, p))) for i, p in sizes.items()}
    with serial_blas():
        for chunk in sample.blocks(ROWS):
            Z, probabilities = _design(chunk.codes, layout, site_theta)
            usable = usable_rows(chunk, layout)
            for i, (score, H) in out.items():
                site_levels = slice(layout.start[i], layout.start[i + 1])
                w, near = chunk.weights * usable[:, i], Z[:, columns[i]]
                p = probabilities[:, site_levels]
                score += ((Z[:, 1:][:, site_levels] - p) * w[:, None]).T.dot(near).ravel()
                if near.mean() < SPARSE:
                    newton.add_hessian(near, p, w, H)
                else:
                    _add_hessian(H, near, p, w)
    for i, (score, H) in out.items():
        score /= totals[i]
        H /= totals[i]
    return out


def _design(codes: np.ndarray, layout: Layout, site_theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the design with its constant (n, 1 + D) and all conditional probabilities (n, layout.D) of eq. (11)."""
    wide = regressors(layout)
    X = one_hot(wide.codes(codes), wide)
    _, P = conditionals(X, layout, site_theta[:, 0], site_theta[:, 1:])
    return np.column_stack([np.ones(len(codes)), X]), P


def _add_hessian(H: np.ndarray, Z: np.ndarray, P: np.ndarray, w: np.ndarray) -> None:
    q, c = P.shape[1], Z.shape[1]
    for a in range(q):
        for b in range(a + 1):
            weight = w * (P[:, a] * (a == b) - P[:, a] * P[:, b])
            block = Z.T @ (Z * weight[:, None])
            H[a * c : (a + 1) * c, b * c : (b + 1) * c] += block
            if a != b:
                H[b * c : (b + 1) * c, a * c : (a + 1) * c] += block


def inverse(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (pseudo-)inverse of a Hessian, and which parameters it determines.

    Parameters whose row of the Hessian is zero, or that take part in a combination of parameters on which the rows do
    not depend, are not determined; the others have the inverse that they have whatever the undetermined ones are.
    """
    from scipy.linalg import lapack

    factor, scale, is_informed = _cholesky(H)
    if factor is None:
        return _pseudo_inverse(H, scale, is_informed)
    solved = np.tril(lapack.dpotri(factor, lower=1)[0])
    solved += np.tril(solved, -1).T
    solved /= scale[:, None]
    solved /= scale
    return solved, is_informed


def solution(H: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``inverse(H)[0] @ score``, for a third of the work, and which parameters the Hessian determines."""
    from scipy.linalg import lapack

    factor, scale, is_informed = _cholesky(H)
    if factor is None:
        inverted, is_informed = _pseudo_inverse(H, scale, is_informed)
        return inverted @ score, is_informed
    return lapack.dpotrs(factor, score / scale, lower=1)[0] / scale, is_informed


def informed(H: np.ndarray, least: float) -> np.ndarray:
    """Return which parameters have no part in directions whose information is below `least`, of unit diagonal."""
    informative = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(informative, H.diagonal(), 1.0))
    values, vectors = np.linalg.eigh(H / np.outer(scale, scale))
    return informative & ((vectors[:, values < least] ** 2).sum(axis=1) < least)


def _cholesky(H: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Return the factor of a Hessian of unit diagonal, None if it is singular; its scales; which rows are not zero."""
    from scipy.linalg import lapack

    is_informed = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(is_informed, H.diagonal(), 1.0))
    scaled = H / scale[:, None]
    scaled /= scale
    factor, failed = lapack.dpotrf(scaled.T, lower=1, overwrite_a=1)  # symmetric: its transpose needs no copy
    regular = not failed and factor.diagonal().min() ** 2 > REGULAR
    return factor if regular else None, scale, is_informed


def _pseudo_inverse(H: np.ndarray, scale: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    outer = np.outer(scale, scale)
    values, vectors = np.linalg.eigh(H / outer)
    is_curved = values > FLAT * len(H)
    determined = known & ((vectors[:, ~is_curved] ** 2).sum(axis=1) < 1e-9)
    return (vectors[:, is_curved] / values[is_curved]) @ vectors[:, is_curved].T / outer, determined


class Influence:
    """Influence of a row on the estimate of one group.

    For predictor i with score ``u_i(x)`` and mean Hessian ``H_i`` (penalty included) of its own objective at its
    own solution, a row moves the solution by ``psi_i(x) / W``, ``psi_i(x) = H_i^-1 (u_i(x) - penalty_i)``. A coupling
    is the average of the solutions of its term's members (eq. 18), and so is its influence. The covariance of any set
    of estimates is the weighted sum of products of their influences over ``W^2``: the Godambe covariance
    ``H^-1 K H^-1`` with frequency weights as replications (Besag 1975; Nguyen & Wood 2016). With a penalty in force it
    is the covariance of the penalised estimator, which says nothing of its bias. With missing values a predictor has
    the rows in which it and its neighbours are known, of weight ``W_i`` in place of W; in all others its ``psi_i`` is
    zero.

    Parameters
    ----------
    sample : Sample
        The rows that the group was fitted to.
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution (see EngineFit).
    lambda_ : float or tuple of float
        Penalty of the couplings, or one for each order.
    lambdah : float
        Penalty of the fields. Without them, what the rows do not determine has no influence
        (see `inverse`).
    prior_count : float, default 0.0
        Pseudocount in the targets of the rows (see `bbl.engines.PseudoLikelihood`); its share counts as given.
    zero_sum : bool, default False
        Whether penalties are of fields and couplings in the zero-sum gauge, in which solutions are averaged, too.
    """

    def __init__(
        self,
        sample: Sample,
        layout: Layout,
        site_theta: np.ndarray,
        lambda_,
        lambdah: float,
        prior_count: float = 0.0,
        zero_sum: bool = False,
    ):
        self.layout, self.total = layout, sample.total
        self._totals = usable_weight(sample, layout)
        self._mix = prior_count / (self._totals + prior_count)
        self.site_theta = site_theta
        self._columns = regressors(layout).columns
        self._zero_sum = zero_sum
        each = np.append(lambdah, penalties(layout, lambda_))
        penalty = penalty_metric(layout, float(np.max(lambda_)), lambdah) if zero_sum else each
        self._target = [_targets(layout, i) for i in range(layout.m)]
        self._pull, self._inverse = [], []
        for i, (_, H) in site_hessians(sample, layout, site_theta, range(layout.m)).items():
            self._pull.append(self._penalise(H, penalty, i))
            self._inverse.append(inverse(H)[0])

    def _own(self, array: np.ndarray, i: int) -> np.ndarray:
        return array[:, self.layout.start[i] : self.layout.start[i + 1]]

    def _penalise(self, H: np.ndarray, penalty: np.ndarray, i: int) -> np.ndarray:
        """Add the Hessian of the penalties of predictor i to H, and return their gradient."""
        columns, L = self._columns[i], int(self.layout.n_levels[i])
        theta = self.site_theta[self.layout.start[i] : self.layout.start[i + 1]][:, columns]
        if self._zero_sum:
            M = np.eye(L - 1) - 1.0 / L
            Q = penalty[np.ix_(columns, columns)]
            H += np.kron(M, Q)
            return (M @ theta @ Q).ravel()
        each = np.tile(penalty[columns], L - 1)
        H.flat[:: len(H) + 1] += each
        return each * theta.ravel()

    def _sites(self, rows: Sample) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each predictor with the penalised scores of the rows and ``psi W/W_i``, both (n, parameters)."""
        layout, usable = self.layout, usable_rows(rows, self.layout)
        Z, probabilities = _design(rows.codes, layout, self.site_theta)
        for i in range(layout.m):
            target = Z[:, 1 + layout.start[i] : 1 + layout.start[i + 1]]
            residual = target + self._mix[i] * (1.0 / layout.n_levels[i] - target) - self._own(probabilities, i)
            score = (residual[:, :, None] * Z[:, None, self._columns[i]]).reshape(rows.n, -1) - self._pull[i]
            score *= usable[:, [i]]
            yield i, score, score @ self._inverse[i] * (self.total / self._totals[i])

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on fields and symmetrised couplings."""
        out = np.zeros((self.layout.size, rows.n))  # a parameter's influences side by side, as they are gathered
        for i, _, psi in self._sites(rows):
            at, share = self._target[i]
            out[at] += (psi * share).T
            if self._zero_sum:
                self._add_to_fields(out, i, psi)
        return out.T

    def _add_to_fields(self, out: np.ndarray, i: int, psi: np.ndarray) -> None:
        """Add to `out` what predictor i's couplings do to fields where they are averaged in the zero-sum gauge.

        See `reference_fields`.
        """
        layout, columns = self.layout, self._columns[i][1:] - 1
        L = int(layout.n_levels[i])
        J = psi.reshape(len(psi), L - 1, -1)[:, :, 1:]
        out[layout.start[i] : layout.start[i + 1]] += 0.5 * (J @ level_shares(layout)[columns]).T
        out[columns] -= 0.5 / L * J.sum(axis=1).T

    def joint(self, rows: Sample, which: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariance of couplings in their predictors' own solutions, before they are averaged.

        Parameters
        ----------
        rows : Sample
        which : dict of predictor to ndarray of bool, shape (D,)
            With which columns its couplings are asked for, at all of its levels.

        Returns
        -------
        covariance : ndarray, shape (q, q)
            Of the couplings of all predictors of `which`, predictor by predictor.
        alone : ndarray, shape (q, q)
            The same if each conditional likelihood were the likelihood of rows of its own: the blocks of ``H^-1``.
        """
        at = {}
        for i, site_psi in which.items():
            chosen = np.append(False, site_psi[self._columns[i][1:] - 1])  # fields come first
            at[i] = np.flatnonzero(np.tile(chosen, self.layout.n_levels[i] - 1))
        sizes = [len(v) for v in at.values()]
        covariance, alone = np.zeros((sum(sizes), sum(sizes))), np.zeros((sum(sizes), sum(sizes)))
        for chunk in rows.blocks(ROWS):
            psi = np.hstack([site_psi[:, at[i]] for i, _, site_psi in self._sites(chunk) if i in at]) / self.total
            covariance += (psi.T * chunk.weights) @ psi
        ends = np.cumsum([0, *sizes])
        for (i, site_psi), a, b in zip(at.items(), ends[:-1], ends[1:], strict=True):
            alone[a:b, a:b] = self._inverse[i][np.ix_(site_psi, site_psi)] / self._totals[i]
        return covariance, alone

    def composite(self, rows: Sample) -> tuple[float, float]:
        """Return the log pseudo-likelihood of `rows` and its effective number of parameters.

        The latter is ``tr(K H^-1)``, H the Hessian and K the covariance of the score (Varin, Reid & Firth 2011,
        section 2.3); H is block diagonal over predictors, so only K's blocks matter. `rows` may be some of those that
        were fitted to: what the log pseudo-likelihood of theirs gains by the fit is the covariance of their own score
        with the estimate. With missing values each predictor counts in the rows that it was fitted to.
        """
        layout, wide, varies = self.layout, regressors(self.layout), self.layout.n_levels > 1
        value = effective = 0.0
        for chunk in rows.blocks(ROWS):
            usable, w = usable_rows(chunk, layout), chunk.weights
            X = one_hot(wide.codes(chunk.codes), wide)
            log_norm, _ = conditionals(X, layout, self.site_theta[:, 0], self.site_theta[:, 1:])
            field = X[:, : layout.D] * (X @ self.site_theta[:, 1:].T + self.site_theta[:, 0])
            field *= np.repeat(usable, layout.n_levels - 1, axis=1)
            value += float(w @ (field.sum(axis=1) - (log_norm * usable[:, varies]).sum(axis=1)))
            effective += sum(float(w @ (score * psi).sum(axis=1)) for _, score, psi in self._sites(chunk))
        return value, effective / self.total


def _targets(layout: Layout, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each parameter of predictor i's solution goes among all, and its share: of a coupling of k one k-th.

    In the order of `Regressors.columns`.
    """
    wide = regressors(layout)
    where = np.arange(layout.size)
    parts, share = [layout.table(where, i)[:, None]], [np.ones(1)]
    for at in np.flatnonzero(wide.mask[i]):
        other_members = wide.scope(int(at))
        parts.append(layout.table(where, i, *other_members).reshape(len(parts[0]), -1))
        share.append(np.full(parts[-1].shape[1], 1.0 / (1 + len(other_members))))
    target = np.concatenate(parts, axis=1)
    return target.ravel(), np.tile(np.concatenate(share), len(target))


def term_covariances(layout: Layout, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the covariance matrix of each table of fields, then of each table of couplings (flattened), in order.

    Parameters
    ----------
    layout : Layout
    blocks : iterable of (influence, weights)
        Influences (n, layout.size) of blocks of rows, already divided by the sum of weights, and their weights (n,).
    """
    first, sizes = layout.cuts[:-1], np.diff(layout.cuts)
    # tables of one size go together: there can be a hundred thousand of them
    alike = {int(q): np.flatnonzero(sizes == q) for q in np.unique(sizes)}
    cells = {q: first[table_numbers][:, None] + np.arange(q) for q, table_numbers in alike.items()}
    total = {q: np.zeros((len(table_numbers), q, q)) for q, table_numbers in alike.items()}
    with np.errstate(over="ignore", invalid="ignore"):  # of what no row determines, which has no standard error
        for psi, w in blocks:
            for q, at in cells.items():
                if q == 1:
                    total[q][:, 0, 0] += w @ psi[:, at[:, 0]] ** 2
                elif q:
                    table_psi = psi.T[at]
                    total[q] += (table_psi * w) @ table_psi.transpose(0, 2, 1)
    out = [np.zeros((0, 0))] * len(sizes)
    for q, table_numbers in alike.items():
        for k, matrix in zip(table_numbers, total[q], strict=True):
            out[k] = matrix
    return out
