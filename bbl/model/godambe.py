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

from bbl._ext.pseudo import influence as kernel
from bbl.model.conditional import conditionals
from bbl.model.gauge import level_shares, penalty_metric
from bbl.model.hessian_inverse import inverse
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import penalties, regressors
from bbl.model.site_hessians import ROWS, site_design, site_hessians
from bbl.rows.sample import Sample

__all__ = ["Influence", "RowInfluence", "TermCovariances", "term_covariances"]


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
            psi = self(chunk)
            psi /= self.total
            yield psi, chunk.weights


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
            self._inverse.append(np.ascontiguousarray(inverted))
            self.determined[self._flat_index[i][0][~is_determined]] = False
        self._offset = [g @ inverted for g, inverted in zip(self._penalty_gradient, self._inverse, strict=True)]

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

    def _residuals(self, rows: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the design (n, 1 + D) of rows, residuals (n, layout.D), and weights ``W/W_i`` if usable (m, n)."""
        layout, usable = self.layout, usable_rows(rows, self.layout)
        Z, probabilities = site_design(rows.codes, layout, self.site_theta)
        residuals, prior_share = (
            Z[:, 1 : 1 + layout.D] - probabilities,
            np.repeat(self._prior_share, layout.n_levels - 1),
        )
        if prior_share.any():
            residuals += prior_share * (1.0 / np.repeat(layout.n_levels, layout.n_levels - 1) - Z[:, 1 : 1 + layout.D])
        return Z, residuals, np.ascontiguousarray((usable * (self.total / self._totals)).T)

    def _add_site(self, i: int, of_rows: tuple, index: np.ndarray, share: np.ndarray, out: np.ndarray) -> None:
        """Add `share` (p,) times ``psi_i W/W_i`` to the rows `index` (p,) of `out` (., n); see `_residuals`."""
        Z, residuals, weights = of_rows
        of_levels = np.ascontiguousarray(residuals[:, self.layout.start[i] : self.layout.start[i + 1]])
        kernel.add_influences(
            Z, self._columns[i], of_levels, weights[i], self._inverse[i], self._offset[i], index, share, out
        )

    def _site(self, i: int, of_rows: tuple) -> np.ndarray:
        """Return ``psi_i W/W_i`` (p, n)."""
        p = len(self._inverse[i])
        psi = np.zeros((p, len(of_rows[0])))
        self._add_site(i, of_rows, np.arange(p), np.ones(p), psi)
        return psi

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on fields and averaged couplings."""
        influence = np.zeros((self.layout.size, rows.n))  # transposed, for contiguous sums
        of_rows = self._residuals(rows)
        for i, (flat_index, share) in enumerate(self._flat_index):
            if self._zero_sum:
                psi = self._site(i, of_rows)
                influence[flat_index] += psi * share[:, None]
                self._add_to_fields(influence, i, psi.T)
            else:
                self._add_site(i, of_rows, flat_index, share, influence)
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
            Of the q couplings, site by site in the order of `coupled`.
        independent : ndarray, shape (q, q)
            The same if the sites were independent regressions with a correct likelihood: the blocks of ``H^-1 / W_i``.
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
        """Return the influences (n, q) over the total weight of rows on parameters of sites, at `position` in each."""
        of_rows = self._residuals(rows)
        psi = np.vstack([self._site(i, of_rows)[at] for i, at in position.items()]).T
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
            n_effective += self._effective_number(chunk)
        return value, n_effective / self.total

    def _effective_number(self, rows: Sample) -> float:
        """Return the sum of the products of the penalised scores of rows with ``psi_i W/W_i``, over all sites."""
        of_rows, usable, number = self._residuals(rows), usable_rows(rows, self.layout), 0.0
        Z, residuals, _ = of_rows
        for i, columns in enumerate(self._columns):
            residual = residuals[:, self.layout.start[i] : self.layout.start[i + 1]]
            score = (residual[:, :, None] * Z[:, None, columns]).reshape(rows.n, -1) - self._penalty_gradient[i]
            weights = rows.weights * usable[:, i]
            number += float(weights @ np.einsum("kp,pk->k", score, self._site(i, of_rows)))
        return number


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


class TermCovariances:
    """The covariance matrix of each table of fields, then of each table of couplings (flattened), summed over rows.

    Parameters
    ----------
    layout : Layout
    """

    def __init__(self, layout: Layout):
        self._table_start, sizes = layout.cuts[:-1], np.diff(layout.cuts)
        # tables of equal size are stacked: there can be a hundred thousand tables
        self._of_size = {int(q): np.flatnonzero(sizes == q) for q in np.unique(sizes)}
        self._sums = {q: np.zeros((len(tables), q, q)) for q, tables in self._of_size.items()}

    def add(self, psi: np.ndarray, weights: np.ndarray) -> None:
        """Add rows with influences (n, layout.size), divided by the sum of all weights, and weights (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):  # undetermined parameters have no standard error
            for q, tables in self._of_size.items():
                first = self._table_start[tables]
                if q == 1:
                    self._sums[q][:, 0, 0] += weights @ psi[:, first] ** 2
                elif q:
                    of_tables = _tables(psi.T, first, q)
                    self._sums[q] += (of_tables * weights) @ of_tables.transpose(0, 2, 1)

    def by_table(self) -> list[np.ndarray]:
        """Return the matrices."""
        out = [np.zeros((0, 0))] * len(self._table_start)
        for q, tables in self._of_size.items():
            for k, matrix in zip(tables, self._sums[q], strict=True):
                out[k] = matrix
        return out


def _tables(columns: np.ndarray, first: np.ndarray, q: int) -> np.ndarray:
    """Return rows ``first[k]`` to ``first[k] + q - 1`` of `columns` (., n) as an array (tables, q, n)."""
    if (np.diff(first) == q).all():  # without a copy
        return columns[first[0] : first[-1] + q].reshape(len(first), q, -1)
    return columns[first[:, None] + np.arange(q)]


def term_covariances(layout: Layout, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the covariance matrix of each table, `TermCovariances`, from influences and weights of chunks of rows."""
    covariances = TermCovariances(layout)
    for psi, weights in blocks:
        covariances.add(psi, weights)
    return covariances.by_table()
