"""Sandwich (Godambe) covariance of the pseudo-likelihood estimator with averaged couplings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np

from bbl._ext.pseudo import influence as kernel
from bbl.model.energy import conditionals
from bbl.model.gauge import level_shares, penalty_metric
from bbl.model.layout import Layout
from bbl.model.moments import one_hot, usable_rows, usable_weight
from bbl.model.regressors import penalties, regressors
from bbl.model.site_hessians import ROWS, inverse, site_design, site_hessians
from bbl.rows.sample import Sample

__all__ = ["Influence", "RowInfluence", "TermCovariances", "term_covariances"]

# bytes of the weighted influences that are multiplied at once, so that they stay in the L2 cache
# (30,000 rows of 20 predictors with 4 levels: 2.4 ms a chunk instead of 3.7 ms)
PRODUCT_BYTES = 2**20


class RowInfluence(ABC):
    """Influence of rows on the parameter estimates of one group, and their covariance matrix.

    Attributes
    ----------
    layout : Layout
    total : float
        Total weight of the group's training rows.
    determined : ndarray of bool, shape (layout.size,)
        Whether each parameter is identified by the rows or a penalty; rows do not influence the
        other parameters.
    """

    layout: Layout
    total: float
    determined: np.ndarray

    @abstractmethod
    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, layout.size) of rows on the parameters, times `total`."""

    @abstractmethod
    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the covariance of each table, fields before couplings; `rows` must be the training
        rows.
        """

    @abstractmethod
    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the covariance (layout.size, layout.size); `rows` must be the training rows."""

    def of_combinations(self) -> tuple[RowInfluence, np.ndarray]:
        """Return influences and directions for standard errors of functions of the parameters.

        A function of the parameters can be estimable although the individual parameters are not.
        Moving the parameters along `directions` (size, d) does not change the fit. The standard
        error of a function that is constant along these directions can be computed from
        `influences`. The base class returns itself and an empty array of directions (d = 0).
        """
        return self, np.zeros((self.layout.size, 0))

    def blocks(self, rows: Sample) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the influences of each chunk of rows, divided by `total`, and the weights of the
        rows.
        """
        for chunk in rows.blocks(ROWS):
            psi = self(chunk)
            psi /= self.total
            yield psi, chunk.weights


class Influence(RowInfluence):
    """Influence of rows on the pseudo-likelihood estimates of one group, and their covariance.

    Let ``u_i(x)`` be the score of site i and ``H_i`` its mean Hessian (including the penalty) at
    the site solution. A row changes the site's parameters by ``psi_i(x) / W``, where ``psi_i(x) =
    H_i^-1 (u_i(x) - gradient of the penalty)`` and W is the total weight. A coupling, and therefore
    the influence on it, is the mean over the sites of its term (Woo & Wang 2022, eq. 18). The
    weighted sum of products of influences, divided by ``W^2``, is the Godambe covariance ``H^-1 K
    H^-1``; frequency weights are treated as replications (Besag 1975; Nguyen & Wood 2016). With a
    penalty, this is the covariance of the penalised estimator; its bias is not included. With
    missing values, only the usable rows of a site influence its parameters, and W is replaced by
    their total weight ``W_i``.

    Parameters
    ----------
    sample : Sample
        The group's training rows.
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Site solution, before couplings are averaged.
    lambda_, lambdah : float, or tuple of float for orders 2, 3, ..., and float
        Penalties on couplings and on fields; the zero-sum gauge supports only pairs, so the tuple
        has one element. If both are 0, rows have no influence on undetermined parameters (see
        `inverse`).
    prior_count : float, default 0.0
        Pseudocount in the targets of the rows (see `bbl.engines.PseudoLikelihood`), treated as
        fixed.
    zero_sum : bool, default False
        Whether penalties and the averaging of couplings use the zero-sum gauge (tables whose rows
        and columns sum to zero) instead of the reference gauge (zero at level 0).

    Attributes
    ----------
    _totals, _prior_share : ndarrays, shape (m,)
        The weights ``W_i``, and the weights ``prior_count / (W_i + prior_count)`` of the prior in
        the targets.
    _columns : list of ndarrays of intp
        Columns of each site in ``site_theta``: the constant, followed by its regressors.
    _inverse, _penalty_gradient, _penalty_shift : lists of ndarrays, shapes (p, p), (p,) and (p,)
        For each site: ``H_i^-1``, the gradient of the penalty, and the product of the two.
    _flat_positions : list of pairs of ndarrays, shapes (p,)
        Positions and weights of each site's parameters (see `_locate_site_parameters`).
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
        self.layout = layout
        self.total = sample.total
        self._totals = usable_weight(sample, layout)
        self._prior_share = prior_count / (self._totals + prior_count)  # (m,)
        self.site_theta = site_theta
        self._columns = regressors(layout).columns
        self._zero_sum = zero_sum
        column_penalties = np.append(lambdah, penalties(layout, lambda_))
        penalty = (
            penalty_metric(layout, float(np.max(lambda_)), lambdah)
            if zero_sum
            else column_penalties
        )
        self._flat_positions = _locate_site_parameters(layout)
        self._penalty_gradient: list[np.ndarray] = []
        self._inverse: list[np.ndarray] = []
        self.determined = np.ones(layout.size, dtype=bool)
        self._invert_hessians(sample, penalty)

    def _invert_hessians(self, sample: Sample, penalty: np.ndarray) -> None:
        """Set `_penalty_gradient`, `_inverse`, `_penalty_shift` and `determined`.

        `penalty` is described in `_penalise`.
        """
        layout = self.layout
        # _: mean score
        for i, (_, H) in site_hessians(sample, layout, self.site_theta, range(layout.m)).items():
            self._penalty_gradient.append(self._penalise(H, penalty, i))
            inverted, is_determined = inverse(H)
            self._inverse.append(np.ascontiguousarray(inverted))
            self.determined[self._flat_positions[i][0][~is_determined]] = False
        # psi_i is H_i^-1 u_i minus this product of H_i^-1 and the gradient of the penalty
        self._penalty_shift = [
            g @ inverted for g, inverted in zip(self._penalty_gradient, self._inverse, strict=True)
        ]

    def _penalise(self, H: np.ndarray, penalty: np.ndarray, i: int) -> np.ndarray:
        """Add the penalty's Hessian to H (p, p) of site i in place and return its gradient (p,).

        `penalty` contains the penalty of each column (1 + D,), or in the zero-sum gauge the matrix
        returned by `penalty_metric`.
        """
        columns = self._columns[i]
        L = int(self.layout.n_levels[i])
        # theta (L - 1, columns): the site solution. The zero-sum penalty is tr(theta' M theta Q) /
        # 2, where M (L - 1, L - 1) centres over the site's levels and Q (columns, columns) is from
        # `penalty_metric`.
        theta = self.site_theta[self.layout.start[i] : self.layout.start[i + 1]][:, columns]
        if self._zero_sum:
            M = np.eye(L - 1) - 1.0 / L
            Q = penalty[np.ix_(columns, columns)]
            H += np.kron(M, Q)
            return (M @ theta @ Q).ravel()
        factors = np.tile(penalty[columns], L - 1)
        H.flat[:: len(H) + 1] += factors  # the diagonal
        return factors * theta.ravel()

    def _row_arrays(self, rows: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the design (n, 1 + D), residuals (n, layout.D), and weights (m, n) for each site.

        A residual is the target of a level (1 or 0 if the prior count is 0) minus its conditional
        probability. A weight is ``W/W_i`` if the row is usable for site i, and 0 otherwise.
        """
        layout = self.layout
        usable = usable_rows(rows, self.layout)
        Z, probabilities = site_design(rows.codes, layout, self.site_theta)
        residuals = Z[:, 1 : 1 + layout.D] - probabilities
        prior_share = np.repeat(self._prior_share, layout.n_levels - 1)
        # the targets are the indicators shrunk towards 1 / L by the prior's weight
        if prior_share.any():
            residuals += prior_share * (
                1.0 / np.repeat(layout.n_levels, layout.n_levels - 1) - Z[:, 1 : 1 + layout.D]
            )
        return Z, residuals, np.ascontiguousarray((usable * (self.total / self._totals)).T)

    def _add_site(
        self, i: int, row_arrays: tuple, out_rows: np.ndarray, shares: np.ndarray, out: np.ndarray
    ) -> None:
        """Add ``psi_i W/W_i`` (p, n), multiplied by `shares` (p,), to the rows `out_rows` (p,) of
        `out`.

        `row_arrays` is the result of `_row_arrays` for n rows. The kernel computes
        ``weight (H_i^-1 (residual x design) - penalty shift)`` for each row, where ``x`` is the
        Kronecker product.
        """
        Z, residuals, weights = row_arrays
        site_residuals = np.ascontiguousarray(
            residuals[:, self.layout.start[i] : self.layout.start[i + 1]]
        )
        kernel.add_influences(
            Z,
            self._columns[i],
            site_residuals,
            weights[i],
            self._inverse[i],
            self._penalty_shift[i],
            out_rows,
            shares,
            out,
        )

    def _site_influence(self, i: int, row_arrays: tuple) -> np.ndarray:
        """Return ``psi_i W/W_i`` (p, n) from the results of `_row_arrays` for n rows."""
        p = len(self._flat_positions[i][0])
        psi = np.zeros((p, len(row_arrays[0])))
        self._add_site(i, row_arrays, np.arange(p), np.ones(p), psi)
        return psi

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences of rows on fields and averaged couplings,
        shape (n, layout.size).
        """
        influence = np.zeros((self.layout.size, rows.n))  # transposed, for contiguous sums
        row_arrays = self._row_arrays(rows)
        for i, (positions, shares) in enumerate(self._flat_positions):
            if self._zero_sum:
                psi = self._site_influence(i, row_arrays)
                influence[positions] += psi * shares[:, None]
                self._add_to_fields(influence, i, psi.T)
            else:
                self._add_site(i, row_arrays, positions, shares, influence)
        return influence.T

    def variance_changes(self, rows: Sample) -> np.ndarray:
        """Return the derivatives (n, layout.size) of the parameters' variances with respect to the
        weights of rows, times the squared total weight.

        With more weight, a row contributes its squared influence, and changes the Hessians of the
        sites. If C is the weighted mean of the products of the influences on a site and on a
        parameter, the second part is ``-2 h' H_i(x) C``, where h is the parameter's column of
        ``H_i^-1``, and ``H_i(x)`` the Hessian of one row. The rows must be complete, and the gauge
        the reference gauge.
        """
        influence = self(rows)
        out = influence**2
        row_arrays = self._row_arrays(rows)
        Z, probabilities = site_design(rows.codes, self.layout, self.site_theta)
        shares_of_rows = rows.weights / rows.total
        for i, (positions, shares) in enumerate(self._flat_positions):
            psi = self._site_influence(i, row_arrays)
            products = (psi * shares_of_rows) @ influence[:, positions]
            z = Z[:, self._columns[i]]
            p = probabilities[:, self.layout.start[i] : self.layout.start[i + 1]]
            # (levels, n, p): products of a row's design and the columns of each level
            shape = (p.shape[1], z.shape[1], len(positions))
            site_inverse = self._inverse_block(i, np.arange(len(positions)))
            left, right = (z @ columns.reshape(shape) for columns in (site_inverse, products))
            means = [np.einsum("na,anp->np", p, own) for own in (left, right)]
            change = np.einsum("na,anp,anp->np", p, left, right) - means[0] * means[1]
            out[:, positions] -= 2.0 * shares * change
        return out

    @property
    def has_variance_changes(self) -> bool:
        """Whether `variance_changes` is available, for complete rows."""
        return not self._zero_sum

    def _add_to_fields(self, influence: np.ndarray, i: int, psi: np.ndarray) -> None:
        """Adjust the influences on fields in `influence` (size, n) for the averaging of couplings.

        The averaged coupling of a pair is half the sum of the couplings at its sites, which leaves
        the fields unchanged in the zero-sum gauge. In the reference gauge, the fields change by
        half the mean of site i's coupling over the levels of the other predictor (see
        `bbl.model.gauge.reference_fields`): ``h_i(a) += 1/2 sum_jb J_ij(a, b) / L_j`` and
        ``h_j(b) -= 1/2 sum_a J_ij(a, b) / L_i``.
        """
        # the site's columns without the constant, as columns of the layout
        layout = self.layout
        columns = self._columns[i][1:] - 1
        L = int(layout.n_levels[i])
        # (n, L - 1, columns): influences on couplings
        J = psi.reshape(len(psi), L - 1, -1)[:, :, 1:]
        influence[layout.start[i] : layout.start[i + 1]] += (
            0.5 * (J @ level_shares(layout)[columns]).T
        )
        influence[columns] -= 0.5 / L * J.sum(axis=1).T

    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the Godambe covariance of each table: first the fields, then the couplings."""
        chunks = rows.blocks(ROWS)
        # dividing the weights is faster than dividing the influences
        return term_covariances(
            self.layout, ((self(chunk), chunk.weights / self.total**2) for chunk in chunks)
        )

    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the Godambe covariance (layout.size, layout.size) of all parameters."""
        out = np.zeros((self.layout.size, self.layout.size))
        for chunk in rows.blocks(ROWS):
            psi = self(chunk) / self.total
            out += (psi.T * chunk.weights) @ psi
        return out

    def site_coupling_covariance(
        self, rows: Sample, selected_columns: dict[int, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariance of selected couplings in the site solution, before averaging.

        Parameters
        ----------
        rows : Sample
        selected_columns : dict of int to ndarray of bool, shape (D,)
            For each site, a mask of the regressor columns whose couplings to all levels of the site
            are selected.

        Returns
        -------
        covariance : ndarray, shape (q, q)
            Covariance of the q couplings, site by site in the order of `selected_columns`.
        independent : ndarray, shape (q, q)
            The covariance under the assumption that the sites are independent, correctly specified
            regressions: the blocks of ``H^-1 / W_i``.
        """
        positions_by_site = self.site_coupling_positions(selected_columns)
        sizes = [len(positions) for positions in positions_by_site.values()]
        covariance = np.zeros((sum(sizes), sum(sizes)))
        independent = np.zeros((sum(sizes), sum(sizes)))
        for chunk in rows.blocks(ROWS):
            psi = self.site_influences(chunk, positions_by_site)
            covariance += (psi.T * chunk.weights) @ psi
        bounds = np.cumsum([0, *sizes])
        for (i, positions), a, b in zip(
            positions_by_site.items(), bounds[:-1], bounds[1:], strict=True
        ):
            independent[a:b, a:b] = self._inverse_block(i, positions) / self._totals[i]
        return covariance, independent

    def flat_positions(self, i: int) -> np.ndarray:
        """Return the positions of the parameters of site i in the flat vector, shape (p,)."""
        return self._flat_positions[i][0]

    def _inverse_block(self, i: int, positions: np.ndarray) -> np.ndarray:
        """Return the block of ``H_i^-1`` for the parameters of site i at positions (q,)."""
        return self._inverse[i][np.ix_(positions, positions)]

    def site_coupling_positions(
        self, selected_columns: dict[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Return the positions (q_i,) of the selected couplings among the p parameters of each
        site.

        `selected_columns` is described in `site_coupling_covariance`.
        """
        positions_by_site = {}
        for i, is_selected in selected_columns.items():
            # the fields come first
            is_selected_column = np.append(False, is_selected[self._columns[i][1:] - 1])
            positions_by_site[i] = np.flatnonzero(
                np.tile(is_selected_column, self.layout.n_levels[i] - 1)
            )
        return positions_by_site

    def site_influences(self, rows: Sample, positions_by_site: dict[int, np.ndarray]) -> np.ndarray:
        """Return the influences (n, q) of rows on q site parameters, divided by the total weight.

        `positions_by_site` contains the positions of the selected parameters among the p parameters
        of each site.
        """
        row_arrays = self._row_arrays(rows)
        psi = np.vstack(
            [
                self._site_influence(i, row_arrays)[positions]
                for i, positions in positions_by_site.items()
            ]
        ).T
        psi /= self.total
        return psi

    def composite(self, rows: Sample) -> tuple[float, float]:
        """Return the log pseudo-likelihood of `rows` and the effective number of parameters.

        The log pseudo-likelihood is ``sum_i ln P_i``. The effective number is ``tr(K H^-1)``, where
        H is the Hessian and K the covariance of the score (Varin, Reid & Firth 2011, section 2.3).
        Since H is block diagonal over sites, only the diagonal blocks of K are needed. `rows` may
        be a subset of the training rows. The effective number is then the expected optimism of
        their log pseudo-likelihood, computed as the covariance of their score and the estimate.
        With missing values, each site is evaluated on its usable rows.
        """
        # `varies`: the predictors with more than one level, for which `conditionals` returns
        # log-normalisers
        layout = self.layout
        site_regressors = regressors(self.layout)
        varies = self.layout.n_levels > 1
        value = n_effective = 0.0
        for chunk in rows.blocks(ROWS):
            usable = usable_rows(chunk, layout)
            weights = chunk.weights
            # `codes` adds codes of joint levels for terms of three or more predictors; X (n, D)
            X = one_hot(site_regressors.codes(chunk.codes), site_regressors)
            log_norm, _ = conditionals(X @ self.site_theta[:, 1:].T + self.site_theta[:, 0], layout)
            # (n, layout.D): the field of the observed level, 0 for other levels
            field = X[:, : layout.D] * (X @ self.site_theta[:, 1:].T + self.site_theta[:, 0])
            field *= np.repeat(usable, layout.n_levels - 1, axis=1)
            value += float(
                weights @ (field.sum(axis=1) - (log_norm * usable[:, varies]).sum(axis=1))
            )
            n_effective += self._effective_number(chunk)
        return value, n_effective / self.total  # influences are multiplied by the total weight

    def _effective_number(self, rows: Sample) -> float:
        """Return the sum over sites of products of penalised scores and ``psi_i W/W_i``."""
        row_arrays = self._row_arrays(rows)
        usable = usable_rows(rows, self.layout)
        number = 0.0
        Z, residuals, _ = row_arrays
        for i, columns in enumerate(self._columns):
            residual = residuals[:, self.layout.start[i] : self.layout.start[i + 1]]
            score = (residual[:, :, None] * Z[:, None, columns]).reshape(
                rows.n, -1
            ) - self._penalty_gradient[i]
            weights = rows.weights * usable[:, i]
            number += float(
                weights @ np.einsum("kp,pk->k", score, self._site_influence(i, row_arrays))
            )
        return number


def _locate_site_parameters(layout: Layout) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the result of `_locate_parameters_of` for each site; it is cached in the layout."""
    attributes = vars(layout)
    if "_site_parameters" not in attributes:
        attributes["_site_parameters"] = [_locate_parameters_of(i, layout) for i in range(layout.m)]
    return attributes["_site_parameters"]


def _locate_parameters_of(i: int, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (p,) of site i's parameters and their weights (p,) in the averaged
    couplings.
    """
    site_regressors = regressors(layout)
    all_positions = np.arange(layout.size)
    # the fields of a site are not averaged
    tables = [layout.table(all_positions, i)[:, None]]
    shares = [np.ones(1)]
    # the predictors and sets on which site i is regressed
    for regressor in np.flatnonzero(site_regressors.mask[i]):
        other_members = site_regressors.scope(int(regressor))
        tables.append(layout.table(all_positions, i, *other_members).reshape(len(tables[0]), -1))
        shares.append(np.full(tables[-1].shape[1], 1.0 / (1 + len(other_members))))
    positions = np.concatenate(tables, axis=1)
    return positions.ravel(), np.tile(np.concatenate(shares), len(positions))


class TermCovariances:
    """Accumulates the covariance matrix of each table of fields or couplings over rows.

    Parameters
    ----------
    layout : Layout

    Attributes
    ----------
    _table_start : ndarray of intp, shape (tables,)
        Position of the first parameter of each table.
    _tables_of_size : dict of int to ndarray of intp
        Indices of the tables with q parameters, for each q.
    _sums : dict of int to ndarray, shape (tables of that size, q, q)
        The covariances of these tables, summed over the rows added so far.
    """

    def __init__(self, layout: Layout):
        # `cuts`: start of each table in the parameter vector, then the vector's end
        self._table_start = layout.cuts[:-1]
        sizes = np.diff(layout.cuts)
        # tables of equal size are stacked, as there can be a hundred thousand tables
        self._tables_of_size = {int(q): np.flatnonzero(sizes == q) for q in np.unique(sizes)}
        self._sums = {
            q: np.zeros((len(tables), q, q)) for q, tables in self._tables_of_size.items()
        }

    def add(self, psi: np.ndarray, weights: np.ndarray) -> None:
        """Add rows, given their weights (n,) and their influences (n, layout.size) divided by the
        total weight.

        There are no rows if no cluster contributes to the variance, for example in a census.
        """
        # undetermined parameters have huge influences; do not warn
        with np.errstate(over="ignore", invalid="ignore"):
            for q, tables in self._tables_of_size.items():
                starts = self._table_start[tables]
                if q == 1:
                    self._sums[q][:, 0, 0] += weights @ psi[:, starts] ** 2
                elif q:  # tables are empty if a predictor has one level
                    # a few tables at a time, whose products with the weights stay in the cache
                    n_tables = max(1, PRODUCT_BYTES // (psi.itemsize * q * max(1, len(psi))))
                    for first in range(0, len(tables), n_tables):
                        batch = slice(first, first + n_tables)
                        psi_of_tables = _gather_tables(psi.T, starts[batch], q)
                        self._sums[q][batch] += (psi_of_tables * weights) @ psi_of_tables.transpose(
                            0, 2, 1
                        )

    def by_table(self) -> list[np.ndarray]:
        """Return the covariance matrices (q, q) in the order of the tables."""
        out = [np.zeros((0, 0))] * len(self._table_start)
        for q, tables in self._tables_of_size.items():
            for k, matrix in zip(tables, self._sums[q], strict=True):
                out[k] = matrix
        return out


def _gather_tables(rows: np.ndarray, starts: np.ndarray, q: int) -> np.ndarray:
    """Return the rows ``starts[k]`` to ``starts[k] + q - 1`` of each table k, with shape
    (tables, q, n).
    """
    if (np.diff(starts) == q).all():  # contiguous: no copy needed
        return rows[starts[0] : starts[-1] + q].reshape(len(starts), q, -1)
    return rows[starts[:, None] + np.arange(q)]


def term_covariances(
    layout: Layout, blocks: Iterable[tuple[np.ndarray, np.ndarray]]
) -> list[np.ndarray]:
    """Sum chunks of influences and return the covariance matrix of each table."""
    covariances = TermCovariances(layout)
    for psi, weights in blocks:
        covariances.add(psi, weights)
    return covariances.by_table()
