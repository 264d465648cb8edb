"""Sandwich (Godambe) covariance of the pseudo-likelihood estimator with averaged couplings.

*Site*: the predictor i whose conditional distribution given the others is modelled; the sites are fitted separately.
*Site solution* ``site_theta``, shape (layout.D, 1 + D): row (i, a) holds the field of level a >= 1 of site i, then its
couplings with the D indicators of the levels of other predictors (see `Regressors`). A site has p parameters: its rows
of ``site_theta`` in the columns of the constant and of its regressors, flattened. *Usable* rows of a site: the site and
all predictors that it interacts with are known. A parameter is *determined* if the rows have information on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np

from bbl._ext.pseudo import newton
from bbl.memory import check_memory
from bbl.model.conditional import conditionals
from bbl.model.gauge import level_shares, penalty_metric
from bbl.model.hessian_inverse import inverse
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import penalties, regressors
from bbl.parallel import serial_blas
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["Influence", "RowInfluence", "site_hessians", "term_covariances"]

ROWS = 1024  # of a chunk
SPARSE_SHARE = 0.35  # share of nonzeros in the design below which summing them singly is faster than matrix products


def site_hessians(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Iterable[int]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return, for each site, the mean score (p,) and the mean Hessian (p, p) of its minus log conditional likelihood.

    Means are over the weight of the site's usable rows. The p parameters run level by level, and within a level as in
    `Regressors.columns`.
    """
    columns, totals = regressors(layout).columns, usable_weight(sample, layout)
    n_parameters = {i: (int(layout.n_levels[i]) - 1) * len(columns[i]) for i in sites}
    check_memory(
        8.0 * sum(float(p) ** 2 for p in n_parameters.values()) + 16.0 * ROWS * layout.size,
        f"Standard errors of {layout.size} parameters",
        "Fit fewer predictors or fewer interactions.",
    )
    scores_and_hessians = {i: (np.zeros(p), np.zeros((p, p))) for i, p in n_parameters.items()}
    with serial_blas():
        for chunk in sample.blocks(ROWS):
            Z, probabilities = _design(chunk.codes, layout, site_theta)
            usable = usable_rows(chunk, layout)
            for i, (score, H) in scores_and_hessians.items():
                site_levels = slice(layout.start[i], layout.start[i + 1])
                weights, site_design = chunk.weights * usable[:, i], Z[:, columns[i]]
                P = probabilities[:, site_levels]
                score += ((Z[:, 1:][:, site_levels] - P) * weights[:, None]).T.dot(site_design).ravel()
                if site_design.mean() < SPARSE_SHARE:
                    newton.add_hessian(site_design, P, weights, H)
                else:
                    _add_hessian(H, site_design, P, weights)
    for i, (score, H) in scores_and_hessians.items():
        score /= totals[i]
        H /= totals[i]
    return scores_and_hessians


def _design(codes: np.ndarray, layout: Layout, site_theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the design matrix (n, 1 + D), the constant first, and ``P_i(a | others)`` of eq. (11), (n, layout.D)."""
    regs = regressors(layout)
    X = one_hot(regs.codes(codes), regs)
    _, P = conditionals(X, layout, site_theta[:, 0], site_theta[:, 1:])
    return np.column_stack([np.ones(len(codes)), X]), P


def _add_hessian(H: np.ndarray, design: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> None:
    """Add a multinomial-logit Hessian to H (q c, q c) in place: design (n, c), probabilities (n, q), weights (n,)."""
    c = design.shape[1]
    for a in range(probabilities.shape[1]):
        for b in range(a + 1):
            curvature = weights * (probabilities[:, a] * (a == b) - probabilities[:, a] * probabilities[:, b])
            block = design.T @ (design * curvature[:, None])
            H[a * c : (a + 1) * c, b * c : (b + 1) * c] += block
            if a != b:
                H[b * c : (b + 1) * c, a * c : (a + 1) * c] += block


class RowInfluence(ABC):
    """Influence of rows on the estimate of one group, and the covariances of the estimate.

    Attributes
    ----------
    layout : Layout
    total : float
        Total weight of the rows that the group was fitted to.
    determined : ndarray of bool, shape (layout.size,)
        Whether the rows, or a penalty, determine each parameter; others have no influences.
    """

    layout: Layout
    total: float
    determined: np.ndarray

    @abstractmethod
    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on the parameters, times `total`."""

    @abstractmethod
    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the covariance of each table of fields, then of couplings; `rows` are those that were fitted."""

    @abstractmethod
    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the covariance (layout.size, layout.size) of all parameters; `rows` are those that were fitted."""

    def of_combinations(self) -> tuple[RowInfluence, np.ndarray]:
        """Return influences that also serve functions of undetermined parameters, where these are determined.

        Functions that do not change in some directions (size, d), the second item, have the errors that follow from
        these influences. Without directions the influences are what they were.
        """
        return self, np.zeros((self.layout.size, 0))

    def blocks(self, rows: Sample) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the influences of chunks of rows, divided by `total`, and their weights."""
        for chunk in rows.blocks(ROWS):
            yield self(chunk) / self.total, chunk.weights


class Influence(RowInfluence):
    """Influence of rows on the pseudo-likelihood estimate of one group, and the covariances that follow from it.

    Let site i have score ``u_i(x)`` and mean Hessian ``H_i`` (penalty included) at its solution. A row moves the
    solution by ``psi_i(x) / W``, ``psi_i(x) = H_i^-1 (u_i(x) - gradient of the penalty)``, W being the total weight. A
    coupling is the mean over the sites of its term (eq. 18), and so is its influence. The weighted sum of products of
    influences over ``W^2`` is the Godambe covariance ``H^-1 K H^-1``, with frequency weights as replications (Besag
    1975; Nguyen & Wood 2016). With a penalty it is the covariance of the penalised estimator, without its bias. With
    missing values only the usable rows of a site have an influence, and their weight ``W_i`` replaces W.

    Parameters
    ----------
    sample : Sample
        The rows that the group was fitted to.
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Site solution, before couplings are averaged.
    lambda_, lambdah : float, or tuple of float for orders 2, 3, ..., and float
        Penalties of couplings and of fields. If both are 0, undetermined parameters have no influence (see `inverse`).
    prior_count : float, default 0.0
        Pseudocount in the targets of the rows (see `bbl.engines.PseudoLikelihood`), treated as fixed.
    zero_sum : bool, default False
        Whether penalties apply to, and solutions are averaged in, the zero-sum gauge (tables whose rows and columns sum
        to zero) in place of the reference gauge (zero at level 0).
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
        self.layout, self.total = layout, sample.total
        self._totals = usable_weight(sample, layout)
        self._prior_share = prior_count / (self._totals + prior_count)
        self.site_theta = site_theta
        self._columns = regressors(layout).columns
        self._zero_sum = zero_sum
        column_penalties = np.append(lambdah, penalties(layout, lambda_))
        penalty = penalty_metric(layout, float(np.max(lambda_)), lambdah) if zero_sum else column_penalties
        self._flat_index = [_flat_indices(layout, i) for i in range(layout.m)]
        self._penalty_gradient, self._inverse = [], []
        self.determined = np.ones(layout.size, dtype=bool)
        for i, (_, H) in site_hessians(sample, layout, site_theta, range(layout.m)).items():
            self._penalty_gradient.append(self._penalise(H, penalty, i))
            inverted, is_determined = inverse(H)
            self._inverse.append(inverted)
            self.determined[self._flat_index[i][0][~is_determined]] = False

    def _penalise(self, H: np.ndarray, penalty: np.ndarray, i: int) -> np.ndarray:
        """Add the penalty's Hessian to H (p, p) of site i in place, and return the penalty's gradient (p,).

        `penalty` holds the penalty of each column (1 + D,), or in the zero-sum gauge the matrix of `penalty_metric`.
        """
        columns, L = self._columns[i], int(self.layout.n_levels[i])
        theta = self.site_theta[self.layout.start[i] : self.layout.start[i + 1]][:, columns]
        if self._zero_sum:
            M = np.eye(L - 1) - 1.0 / L
            Q = penalty[np.ix_(columns, columns)]
            H += np.kron(M, Q)
            return (M @ theta @ Q).ravel()
        factors = np.tile(penalty[columns], L - 1)
        H.flat[:: len(H) + 1] += factors
        return factors * theta.ravel()

    def _influences(self, rows: Sample) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each site i with the penalised scores of the rows (n, p) and ``psi_i W/W_i`` (n, p)."""
        layout, usable = self.layout, usable_rows(rows, self.layout)
        Z, probabilities = _design(rows.codes, layout, self.site_theta)
        for i in range(layout.m):
            first, stop = layout.start[i : i + 2]
            target = Z[:, 1 + first : 1 + stop]
            smoothed = target + self._prior_share[i] * (1.0 / layout.n_levels[i] - target)
            residual = smoothed - probabilities[:, first:stop]
            score = (residual[:, :, None] * Z[:, None, self._columns[i]]).reshape(rows.n, -1)
            score = (score - self._penalty_gradient[i]) * usable[:, [i]]
            yield i, score, score @ self._inverse[i] * (self.total / self._totals[i])

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on fields and averaged couplings."""
        influence = np.zeros((self.layout.size, rows.n))  # transposed, for contiguous sums
        for i, _, psi in self._influences(rows):
            flat_index, share = self._flat_index[i]
            influence[flat_index] += (psi * share).T
            if self._zero_sum:
                self._add_to_fields(influence, i, psi)
        return influence.T

    def _add_to_fields(self, influence: np.ndarray, i: int, psi: np.ndarray) -> None:
        """Add to `influence` (size, n) what averaging in the zero-sum gauge makes of psi_i (n, p) in the fields.

        Each of the two sites of a pair has half of its coupling. The half of site i that the average gives away goes
        into the fields as its mean over the levels of the other predictor (see `bbl.model.gauge.reference_fields`):
        ``h_i(a) += 1/2 sum_jb J_ij(a, b) / L_j`` and ``h_j(b) -= 1/2 sum_a J_ij(a, b) / L_i``.
        """
        layout, columns = self.layout, self._columns[i][1:] - 1
        L = int(layout.n_levels[i])
        J = psi.reshape(len(psi), L - 1, -1)[:, :, 1:]
        influence[layout.start[i] : layout.start[i + 1]] += 0.5 * (J @ level_shares(layout)[columns]).T
        influence[columns] -= 0.5 / L * J.sum(axis=1).T

    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the Godambe covariance of each table."""
        return term_covariances(self.layout, self.blocks(rows))

    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the Godambe covariance of all parameters."""
        out = np.zeros((self.layout.size, self.layout.size))
        for psi, w in self.blocks(rows):
            out += (psi.T * w) @ psi
        return out

    def joint(self, rows: Sample, coupled: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariance of some couplings in the site solutions, before they are averaged.

        Parameters
        ----------
        rows : Sample
        coupled : dict of predictor to ndarray of bool, shape (D,)
            For each site, the regressor columns whose couplings are wanted, with all levels of the site.

        Returns
        -------
        covariance : ndarray, shape (q, q)
            Of the q couplings, site by site.
        independent : ndarray, shape (q, q)
            The same if the sites were independent regressions with a correct likelihood: the blocks of ``H^-1``.
        """
        position = self.site_positions(coupled)
        sizes = [len(index) for index in position.values()]
        covariance, independent = np.zeros((sum(sizes), sum(sizes))), np.zeros((sum(sizes), sum(sizes)))
        for chunk in rows.blocks(ROWS):
            psi = self.of_sites(chunk, position)
            covariance += (psi.T * chunk.weights) @ psi
        bounds = np.cumsum([0, *sizes])
        for (i, chosen), a, b in zip(position.items(), bounds[:-1], bounds[1:], strict=True):
            independent[a:b, a:b] = self._inverse[i][np.ix_(chosen, chosen)] / self._totals[i]
        return covariance, independent

    def site_positions(self, coupled: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the positions of couplings among the parameters of their sites; `coupled` as in `joint`."""
        position = {}
        for i, is_coupled in coupled.items():
            chosen = np.append(False, is_coupled[self._columns[i][1:] - 1])  # the fields come first
            position[i] = np.flatnonzero(np.tile(chosen, self.layout.n_levels[i] - 1))
        return position

    def of_sites(self, rows: Sample, position: dict[int, np.ndarray]) -> np.ndarray:
        """Return the influences (n, q) of rows on parameters of some site solutions, at `position` in each."""
        psi = np.hstack([psi_i[:, position[i]] for i, _, psi_i in self._influences(rows) if i in position])
        psi /= self.total
        return psi

    def composite(self, rows: Sample) -> tuple[float, float]:
        """Return the log pseudo-likelihood of `rows` and its effective number of parameters.

        The latter is ``tr(K H^-1)``, H being the Hessian and K the covariance of the score (Varin, Reid & Firth 2011,
        section 2.3); H is block diagonal over sites, so only the blocks of K matter. `rows` may be a part of the fitted
        rows: the effective number is then the covariance of their score with the estimate, by which the fit raises
        their log pseudo-likelihood. With missing values each site counts in its usable rows.
        """
        layout, site_regressors, varies = self.layout, regressors(self.layout), self.layout.n_levels > 1
        value = n_effective = 0.0
        for chunk in rows.blocks(ROWS):
            usable, weights = usable_rows(chunk, layout), chunk.weights
            X = one_hot(site_regressors.codes(chunk.codes), site_regressors)
            log_norm, _ = conditionals(X, layout, self.site_theta[:, 0], self.site_theta[:, 1:])
            field = X[:, : layout.D] * (X @ self.site_theta[:, 1:].T + self.site_theta[:, 0])
            field *= np.repeat(usable, layout.n_levels - 1, axis=1)
            value += float(weights @ (field.sum(axis=1) - (log_norm * usable[:, varies]).sum(axis=1)))
            n_effective += sum(float(weights @ (score * psi).sum(axis=1)) for _, score, psi in self._influences(chunk))
        return value, n_effective / self.total


def _flat_indices(layout: Layout, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each parameter of site i is in the flat vector (p,), and its weight in the mean over sites (p,)."""
    site_regressors = regressors(layout)
    positions = np.arange(layout.size)
    tables, share = [layout.table(positions, i)[:, None]], [np.ones(1)]
    for regressor in np.flatnonzero(site_regressors.mask[i]):
        other_members = site_regressors.scope(int(regressor))
        tables.append(layout.table(positions, i, *other_members).reshape(len(tables[0]), -1))
        share.append(np.full(tables[-1].shape[1], 1.0 / (1 + len(other_members))))
    index = np.concatenate(tables, axis=1)
    return index.ravel(), np.tile(np.concatenate(share), len(index))


def term_covariances(layout: Layout, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the covariance matrix of each table of fields, then of each table of couplings (flattened), in order.

    Parameters
    ----------
    layout : Layout
    blocks : iterable of (psi, weights)
        For chunks of rows, influences (n, layout.size) divided by the sum of all weights, and weights (n,).
    """
    table_start, sizes = layout.cuts[:-1], np.diff(layout.cuts)
    # tables of equal size are stacked: there can be a hundred thousand tables
    of_size = {int(q): np.flatnonzero(sizes == q) for q in np.unique(sizes)}
    cells = {q: table_start[tables][:, None] + np.arange(q) for q, tables in of_size.items()}
    covariances = {q: np.zeros((len(tables), q, q)) for q, tables in of_size.items()}
    with np.errstate(over="ignore", invalid="ignore"):  # undetermined parameters have no standard error
        for psi, w in blocks:
            for q, index in cells.items():
                if q == 1:
                    covariances[q][:, 0, 0] += w @ psi[:, index[:, 0]] ** 2
                elif q:
                    table_psi = psi.T[index]
                    covariances[q] += (table_psi * w) @ table_psi.transpose(0, 2, 1)
    by_table = [np.zeros((0, 0))] * len(sizes)
    for q, tables in of_size.items():
        for k, matrix in zip(tables, covariances[q], strict=True):
            by_table[k] = matrix
    return by_table
