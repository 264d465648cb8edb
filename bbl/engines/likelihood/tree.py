"""Compute ln Z, moments and covariances of sparse models by sums over a junction tree."""

# Predictors are eliminated one after the other by summing over their levels. The *clique* of a
# predictor consists of itself and of its *separator*: all predictors that share a table with it
# when it is eliminated. The parent of a clique is the clique of the predictor in its separator that
# is eliminated first. Axes of tables are in the order of elimination, so a separator's axes occur
# in its parent in the same order (Lauritzen & Spiegelhalter 1988, JRSS B 50; Koller & Friedman
# 2009, chapter 10). The tables of all cliques are stored in vectors of length n_cells.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bbl.engines.likelihood.contrasts import add_parameters
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = [
    "Clique",
    "CliqueDesign",
    "Component",
    "JunctionTree",
    "Margins",
    "TreeLikelihood",
    "clique_scopes",
    "components",
    "perfect_order",
    "tree_memory",
]


class Component(NamedTuple):
    """A connected component of the interaction graph.

    Its predictors interact with each other, directly or indirectly, but not with any other
    predictor. Predictors with joint structural zeros are treated as interacting.

    Attributes
    ----------
    predictors : ndarray of intp, shape (c,)
        Positions of the c predictors in the whole model, in increasing order.
    layout : Layout
        Layout of these c predictors.
    positions : ndarray of intp, shape (layout.size,)
        Positions of its parameters in the parameter vector of the whole model.
    """

    predictors: np.ndarray
    layout: Layout
    positions: np.ndarray

    def columns(self, rows: Sample) -> Sample:
        """Return the rows with only the codes of the component's predictors, without a response."""
        missing = None if rows.missing is None else rows.missing[:, self.predictors]
        if missing is not None and not missing.any():
            missing = None
        return Sample(
            np.ascontiguousarray(rows.codes[:, self.predictors]), rows.weights, None, missing
        )


def components(layout: Layout) -> list[Component]:
    """Return the connected components of the interaction graph, ordered by first predictor."""
    whole = [Component(np.arange(layout.m), layout, np.arange(layout.size))]
    # all pairs interact (m = 0, without components, is handled below)
    if layout.complete and layout.m > 1:
        return whole
    n_components, label = layout.connected
    if n_components == 1:
        return whole
    found_components = []
    for k in range(n_components):
        predictors = np.flatnonzero(label == k)
        sublayout = layout.only(predictors)
        # structural zeros; their predictors are all in one component
        if layout.support is not None and label[layout.support.scope[0]] == k:
            number = {int(i): new for new, i in enumerate(predictors)}
            sublayout = sublayout.with_support(layout.support.renumbered(number))
        # the new layout keeps the order of the tables
        has_table = [label[scope[0]] == k for scope in layout.scopes]
        positions = np.flatnonzero(np.repeat(has_table, np.diff(layout.cuts)))
        found_components.append(Component(predictors, sublayout, positions))
    return found_components


MAX_COLUMNS = 64  # maximum number of parameters whose covariances are computed at once
# maximum number of cells, times parameters, that are used at once
CELLS_AT_ONCE = 2**22
SMALLEST = np.nextafter(0.0, 1.0)  # smallest positive number, to avoid division by zero


def perfect_order(layout: Layout) -> list[int] | None:
    """Return an elimination order that does not add edges to the interaction graph, or None.

    Such an order exists if and only if the graph is decomposable (triangulated). The next predictor
    in the order is always one with remaining partners that all interact with each other. If there
    are several such predictors, it is one with the fewest partners.
    """
    neighbours = [set(np.flatnonzero(row).tolist()) for row in layout.mask]
    order = []
    remaining = set(range(layout.m))
    while remaining:
        i = next(
            (
                i
                for i in sorted(remaining, key=lambda j: len(neighbours[j]))
                if _is_clique(neighbours, i)
            ),
            None,
        )
        if i is None:
            return None
        order.append(i)
        remaining.remove(i)
        for j in neighbours[i]:
            neighbours[j].discard(i)
    return order


def _is_clique(neighbours: list[set[int]], i: int) -> bool:
    """Return whether all neighbours of predictor `i` are neighbours of each other."""
    return all(neighbours[i] <= neighbours[j] | {j} for j in neighbours[i])


class Margins:
    """Clique probabilities for given parameters.

    Attributes
    ----------
    log_z : float
        ln Z, the logarithm of the normalising constant.
    joint : ndarray, shape (n_cells,)
        Probabilities of the cells of each clique.
    conditional : ndarray, shape (n_cells,)
        Conditional probabilities of the predictor of each clique given its separator.
    """

    def __init__(self, log_z: float, joint: np.ndarray, conditional: np.ndarray):
        self.log_z = log_z
        self.joint = joint
        self.conditional = conditional


class JunctionTree:
    """The cliques of a layout, and the design of their tables.

    Parameters
    ----------
    layout : Layout
    order : list of int
        Order in which predictors are eliminated (see `bbl.model.elimination.elimination_order`).

    Attributes
    ----------
    step : ndarray of intp, shape (m,)
        Position of each predictor in `order`, which is also the number of its clique.
    cliques : list of m Clique
        The cliques in the order of elimination. A parent comes after its children.
    n_cells : int
        Total number of cells of all cliques.
    starts : ndarray of intp, shape (m,)
        First cell of each clique.
    sizes : ndarray of intp, shape (m,)
        Number of cells of each clique.
    clique_of_term : ndarray of intp, shape (n_scopes,)
        Index of the clique for each of `layout.scopes`. This is the clique of the predictor in the
        scope that is eliminated first.
    """

    def __init__(self, layout: Layout, order: list[int]):
        self.layout = layout
        self.step = np.empty(layout.m, dtype=np.intp)
        self.step[order] = np.arange(layout.m)
        self.cliques = _cliques(layout, order, self.step)
        self.n_cells = self.cliques[-1].cells.stop if self.cliques else 0
        self.starts = np.array([c.cells.start for c in self.cliques], dtype=np.intp)
        self.sizes = np.array([c.cells.stop - c.cells.start for c in self.cliques], dtype=np.intp)
        self.clique_of_term = np.array(
            [int(self.step[list(scope)].min()) for scope in layout.scopes], dtype=np.intp
        )

    @cached_property
    def design(self) -> CliqueDesign:
        """The parts of the cliques, and the parameters that contribute to their cells."""
        return CliqueDesign(self.layout, self.cliques, self.clique_of_term)

    def spread(self, total: float) -> np.ndarray:
        """Return the weight (n_cells,) of each cell if `total` is spread evenly over states."""
        return np.repeat(total / self.sizes, self.sizes)

    def counts(self, rows: Sample) -> np.ndarray:
        """Return the weight (n_cells,) of complete rows in each cell of each clique."""
        out = np.empty(self.n_cells)
        for clique in self.cliques:
            cell = np.zeros(rows.n, dtype=np.intp)
            for i, L in zip(clique.scope, clique.shape, strict=True):
                cell = cell * L + rows.codes[:, i]
            out[clique.cells] = np.bincount(
                cell, rows.weights, clique.cells.stop - clique.cells.start
            )
        return out

    def closed_form(self, counts: np.ndarray) -> tuple[np.ndarray, float] | None:
        """Return the maximum likelihood parameters (size,) and the log-likelihood of all rows.

        `counts` (n_cells,) contains the observed counts. The result is None if a count is zero, or
        if the model lacks a term for some subset of the predictors in a clique. Otherwise, the
        probability of a row is a product of conditional frequencies, with one factor for each
        clique: the frequency of the clique's predictor given its separator.
        """
        theta = np.zeros(self.layout.size)
        log_likelihood = 0.0
        for clique in self.cliques:
            table = counts[clique.cells].reshape(clique.shape)
            if not table.all():
                return None
            energy = np.log(table / table.sum(axis=0))  # axis 0 is the clique's predictor
            log_likelihood += float(table.ravel() @ energy.ravel())
            if not add_parameters(self.layout, theta, clique.scope, energy):
                return None
        return theta, log_likelihood

    def unfilled(self) -> Margins:
        """Return `Margins` with uninitialised arrays."""
        return Margins(np.nan, np.empty(self.n_cells), np.empty(self.n_cells))

    def margins(
        self, theta: np.ndarray, log_support: np.ndarray | None = None, spent: Margins | None = None
    ) -> Margins:
        """Return ln Z and the probabilities of all cliques.

        Parameters
        ----------
        theta : ndarray, shape (size,)
        log_support : ndarray, shape (n_cells,), optional
            -inf in impossible cells, 0 elsewhere.
        spent : Margins, optional
            Margins that are no longer needed. Their arrays are overwritten, because allocating
            large arrays would take as long as computing the sums.
        """
        spent = spent or self.unfilled()
        # long steps of an optimiser may give values that are not finite
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            energies = self.design.energies(theta, spent.conditional)
            if log_support is not None:
                energies += log_support
            return self._margins(energies, spent.joint)

    def _margins(self, energies: np.ndarray, joint: np.ndarray) -> Margins:
        """Return the margins, overwriting both arrays (n_cells,).

        `joint` is overwritten with the joint probabilities, and `energies` with the conditional
        probabilities.
        """
        # largest energy of each clique, subtracted to prevent overflow in exp
        largest = np.maximum.reduceat(energies, self.starts)
        log_z = float(largest.sum())
        # views on the energies, which finally contain the conditional probabilities
        tables = [energies[c.cells].reshape(c.shape) for c in self.cliques]
        for table, clique_largest in zip(tables, largest.tolist(), strict=True):
            table -= clique_largest
        np.exp(energies, out=energies)
        # from the leaves to the roots: sum over the clique's predictor, and multiply the parent by
        # the sums
        for clique, table in zip(self.cliques, tables, strict=True):
            total = table.sum(axis=0)
            table /= np.maximum(total, SMALLEST)  # zero where a separator cannot occur
            # factor out a scale, included in ln Z, to prevent overflow in products of many sums
            scale = total.max()
            log_z += float(np.log(scale))
            if clique.parent >= 0:
                tables[clique.parent] *= (total / scale).reshape(clique.aligned)
        # from the roots to the leaves: conditional probabilities times probabilities of the
        # separator
        joints = [joint[c.cells].reshape(c.shape) for c in self.cliques]
        for clique, conditional, out in zip(
            self.cliques[::-1], tables[::-1], joints[::-1], strict=True
        ):
            separator = (
                joints[clique.parent].sum(axis=clique.outside) if clique.parent >= 0 else 1.0
            )
            np.multiply(conditional, separator, out=out)
        return Margins(log_z, joint, conditional=energies)

    def moments_of(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (size,) of `values` (n_cells,) over the cells of each parameter.

        Only cells of the clique that contains the parameter are summed.
        """
        return self.design.parameter_sums(values)

    def moments(self, margins: Margins) -> np.ndarray:
        """Return the moments (size,) of all parameters."""
        return self.moments_of(margins.joint)

    def information(self, margins: Margins) -> np.ndarray:
        """Return the Fisher information (size, size) per observation (covariance of indicators).

        For each parameter v with indicator T_v, ``E[T_v | x_C]`` is computed in two passes over the
        tree, for the cells x_C of every clique C. The means of the products of T_v with each
        indicator of the clique follow from these conditional means.
        """
        size = self.layout.size
        # not `moments`, which a tree of other parameters overrides
        mu = self.design.parameter_sums(margins.joint)
        out = np.empty((size, size))
        n_columns = _columns_at_once(self.n_cells)
        for first in range(0, size, n_columns):
            columns = slice(first, min(first + n_columns, size))
            means = self._conditional_means(margins, mu, columns)
            means *= margins.joint[:, None]
            out[:, columns] = self.design.parameter_sums(means)
        out -= np.multiply.outer(mu, mu)
        return 0.5 * (out + out.T)  # remove asymmetry due to rounding

    def _conditional_means(self, margins: Margins, mu: np.ndarray, columns: slice) -> np.ndarray:
        """Return the conditional means (n_cells, v) of v indicators, given the cells of cliques.

        The indicators belong to the parameters in `columns`. `mu` (size,) contains the moments of
        all parameters.
        """
        indicators = np.eye(self.layout.size)[:, columns]
        means = self.design.energies(indicators, np.empty((self.n_cells, indicators.shape[1])))
        tables = [means[c.cells].reshape(*c.shape, -1) for c in self.cliques]
        # conditional mean given each clique's separator of an indicator's contributions from the
        # clique and its descendants
        messages = []
        for clique, table in zip(self.cliques, tables, strict=True):
            conditional = margins.conditional[clique.cells].reshape(clique.shape)
            # a: level of the clique's predictor
            message = np.einsum("a...,a...v->...v", conditional, table)
            messages.append(message)
            if clique.parent >= 0:
                tables[clique.parent] += message.reshape(*clique.aligned, -1)
        # add the contributions from the rest of the tree: the parent's mean given the separator,
        # minus the message
        for k in range(len(self.cliques) - 1, -1, -1):
            clique = self.cliques[k]
            # contributions from other trees are constant: mu minus the mean of this tree
            if clique.parent < 0:
                joint = margins.joint[clique.cells].reshape(clique.shape)
                axes = tuple(range(joint.ndim))
                tables[k] += mu[columns] - (joint[..., None] * tables[k]).sum(axis=axes)
                continue
            parent = self.cliques[clique.parent]
            joint = margins.joint[parent.cells].reshape(parent.shape)
            separator = joint.sum(axis=clique.outside)
            total = (joint[..., None] * tables[clique.parent]).sum(axis=clique.outside)
            np.divide(total, separator[..., None], out=total, where=separator[..., None] > 0.0)
            tables[k] += total - messages[k]
        return means


def tree_memory(n_cells: float) -> float:
    """Return the peak memory, in bytes, of fits and covariances on a tree with `n_cells` cells."""
    # 8 vectors of cells, and 4 arrays of cells by parameters, with 8 bytes per number
    return 64.0 * n_cells + 32.0 * n_cells * _columns_at_once(n_cells)


def _columns_at_once(n_cells: float) -> int:
    """Return the number of parameters for which covariances are computed at the same time."""
    return max(1, min(MAX_COLUMNS, int(CELLS_AT_ONCE // n_cells)))


def clique_scopes(layout: Layout, order: list[int]) -> list[tuple[int, ...]]:
    """Return the predictors of each clique: the eliminated predictor, followed by its separator.

    Separators are sorted by elimination order, which is given by `order`.
    """
    neighbours = [set(np.flatnonzero(row).tolist()) for row in layout.mask]
    step = {i: k for k, i in enumerate(order)}
    scopes = []
    for i in order:
        separator = neighbours[i]
        scopes.append((i, *sorted(separator, key=step.__getitem__)))
        # the sum over i is a table over its separator, whose predictors thereby become neighbours
        for j in separator:
            neighbours[j] = (neighbours[j] | separator) - {i, j}
    return scopes


def _cliques(layout: Layout, order: list[int], step: np.ndarray) -> list[Clique]:
    """Return the cliques in the order of elimination.

    `step` (m,) contains the positions of the predictors in `order`.
    """
    scopes = clique_scopes(layout, order)
    cliques = []
    first = 0
    for scope in scopes:
        shape = tuple(int(layout.n_levels[i]) for i in scope)
        n_clique_cells = int(np.prod(shape))
        # the clique of scope[1], the first of the separator to be eliminated, is the parent and
        # contains the separator
        parent = int(step[scope[1]]) if len(scope) > 1 else -1
        parent_scope = scopes[parent] if parent >= 0 else ()
        # `aligned` has the length of the parent's axes in the separator, and 1 for all others, the
        # axes `outside`
        aligned = tuple(int(layout.n_levels[i]) if i in scope else 1 for i in parent_scope)
        outside = tuple(axis for axis, i in enumerate(parent_scope) if i not in scope)
        cliques.append(
            Clique(scope, shape, slice(first, first + n_clique_cells), parent, aligned, outside)
        )
        first += n_clique_cells
    return cliques


class TreeLikelihood:
    """The objective ``target . theta - ln Z(theta) - sum(ridge theta^2) / 2``, per complete row.

    Parameters
    ----------
    tree : JunctionTree
    target : ndarray, shape (size,)
        Observed moments.
    ridge : ndarray, shape (size,)
        L2 penalty of each parameter.
    log_support : ndarray, shape (n_cells,), or None
        See `JunctionTree.margins`.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The most recent argument of `value`.
    margins : Margins
        Margins at `theta`; uninitialised before the first call to `value`.
    """

    def __init__(
        self,
        tree: JunctionTree,
        target: np.ndarray,
        ridge: np.ndarray,
        log_support: np.ndarray | None,
    ):
        self.tree = tree
        self.target = target
        self.ridge = ridge
        self.log_support = log_support
        self.margins = tree.unfilled()

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`."""
        self.theta, self.margins = (
            theta,
            self.tree.margins(theta, self.log_support, spent=self.margins),
        )
        return float(self.target @ theta) - self.margins.log_z - 0.5 * float(self.ridge @ theta**2)

    def gradient(self) -> np.ndarray:
        """Return the gradient (size,) at the most recent argument of `value`."""
        return self.target - self.tree.moments(self.margins) - self.ridge * self.theta


MAX_PART_CELLS = 2**12  # maximum number of cells of a part, unless a single term has more


@dataclass(frozen=True)
class Clique:
    """A predictor and its separator, with the position of their table in the vector of all tables.

    Attributes
    ----------
    scope : tuple of int
        The predictor, followed by its separator in the order of elimination.
    shape : tuple of int
        Number of levels of each predictor in `scope`.
    cells : slice
        Position of the clique's raveled table in the vector (n_cells,) of the tables of all
        cliques.
    parent : int
        Index of the parent clique; -1 for a root.
    aligned : tuple of int
        Shape of a separator table that is aligned with the axes of the parent. The length is 1 for
        predictors that are not in the separator.
    outside : tuple of int
        Axes of the parent that belong to predictors outside the separator.
    """

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    cells: slice
    parent: int
    aligned: tuple[int, ...]
    outside: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A table of some of the predictors in a clique, with axes in the same order.

    Attributes
    ----------
    terms : list of int
        Positions in `layout.scopes` of the terms that the part contains.
    scope : tuple of int
        Predictors of the part.
    shape : tuple of int
        Number of levels of each of these predictors.
    cells : slice
        Position of the part's table in the vector of the tables of all parts.
    aligned : tuple of int
        Shape of the part when it is aligned with the axes of the clique. The length is 1 for
        predictors that are not in the part.
    outside : tuple of int
        Axes of the clique that belong to predictors outside the part.
    """

    terms: list[int]
    scope: tuple[int, ...]
    shape: tuple[int, ...]
    cells: slice
    aligned: tuple[int, ...]
    outside: tuple[int, ...]


class CliqueDesign:
    """The parts of the cliques, and the parameters that contribute to their cells.

    Parameters
    ----------
    layout : Layout
    cliques : list of Clique
    clique_of_term : ndarray of int, shape (n_scopes,)
        Index of the clique that is assigned to each of `layout.scopes`, including fields. The
        clique contains all predictors in the scope.

    Attributes
    ----------
    parts : list of lists of Part
        The parts of each clique.
    has_whole_tables : bool
        Whether each clique has a single part. The vectors of all parts and of all cliques are then
        the same.
    part_design : sparse matrix, shape (cells of all parts, size)
        1 where a parameter contributes to the energy of a cell of a part.
    part_design_transposed : sparse matrix, shape (size, cells of all parts)
        Transpose of `part_design`, also stored by rows for fast products.
    """

    def __init__(self, layout: Layout, cliques: list[Clique], clique_of_term: np.ndarray):
        self.layout = layout
        self.cliques = cliques
        self.parts: list[list[Part]] = []
        first_cell = 0
        for k, clique in enumerate(cliques):
            terms = np.flatnonzero(clique_of_term == k).tolist()
            self.parts.append(
                _make_parts(layout, clique, _gather_terms(layout, clique, terms), first_cell)
            )
            # [-1] exists: each clique contains the fields of its own predictor
            first_cell = self.parts[-1][-1].cells.stop
        self.has_whole_tables = all(
            len(parts) == 1 and not parts[0].outside for parts in self.parts
        )
        self.part_design = self._make_part_design(n_part_cells=first_cell)
        self.part_design_transposed = self.part_design.T.tocsr()

    def _make_part_design(self, n_part_cells: int):
        """Return `part_design`, which marks the parameters that contribute to each cell.

        A parameter contributes if the cell has the parameter's level of each predictor in the term.
        """
        from scipy import sparse

        layout = self.layout
        rows = []
        columns = []
        for part in (part for parts in self.parts for part in parts):
            # level of each predictor in each cell
            cell_codes = np.indices(part.shape).reshape(len(part.shape), -1)
            for term in part.terms:
                scope = layout.scopes[term]
                codes = [cell_codes[part.scope.index(i)] for i in scope]
                # cells without a reference level, and their parameters' positions in the raveled
                # table of the term
                cells = np.flatnonzero(np.logical_and.reduce([code > 0 for code in codes]))
                position = np.zeros(len(cells), dtype=np.intp)
                for i, code in zip(scope, codes, strict=True):
                    position = position * (int(layout.n_levels[i]) - 1) + code[cells] - 1
                rows.append(part.cells.start + cells)
                columns.append(layout.cuts[term] + position)
        row = np.concatenate(rows)
        column = np.concatenate(columns)
        return sparse.csr_matrix(
            (np.ones(len(row)), (row, column)), shape=(n_part_cells, layout.size)
        )

    def energies(self, theta: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write the energies of all cliques' cells to `out` (n_cells, ...) and return it.

        `theta` (size, ...) contains the parameters.
        """
        # columns: () or (v,), for v parameter vectors
        part_energies = self.part_design @ theta
        columns = theta.shape[1:]
        if self.has_whole_tables:
            out[...] = part_energies
            return out
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = out[clique.cells].reshape(*clique.shape, *columns)
            # the parts, with axes of length 1 for predictors that are not in them
            first, *others = (
                part_energies[part.cells].reshape(*part.aligned, *columns) for part in parts
            )
            table[...] = first
            for other in others:
                table += other
        return out

    def parameter_sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (size, ...) of `values` (n_cells, ...) over each parameter's cells.

        This linear map is the transpose of `energies`.
        """
        if self.has_whole_tables:
            return self.part_design_transposed @ values
        columns = values.shape[1:]  # () or (v,)
        # sums over the axes of a clique that are not in a part
        margins = np.empty((self.part_design.shape[0], *columns))
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = values[clique.cells].reshape(*clique.shape, *columns)
            for part in parts:
                margins[part.cells] = table.sum(axis=part.outside).reshape(-1, *columns)
        return self.part_design_transposed @ margins


def _gather_terms(
    layout: Layout, clique: Clique, terms: list[int]
) -> list[tuple[set[int], list[int]]]:
    """Return the predictors and the terms of each part of a clique.

    `terms` contains the terms assigned to the clique. A small clique has a single part. Otherwise,
    each term is added to the first part with a table that remains small, or to a new part if all
    tables would become too large.
    """
    if clique.cells.stop - clique.cells.start <= MAX_PART_CELLS:
        return [(set(clique.scope), terms)]
    axis = {i: k for k, i in enumerate(clique.scope)}
    gathered: list[tuple[set[int], list[int]]] = []
    # sorted by axes, so that terms with common predictors are adjacent and share a part
    for term in sorted(terms, key=lambda term: sorted(axis[i] for i in layout.scopes[term])):
        scope = set(layout.scopes[term])
        for k, (predictors, part_terms) in enumerate(gathered):
            if np.prod([float(layout.n_levels[i]) for i in predictors | scope]) <= MAX_PART_CELLS:
                gathered[k] = (predictors | scope, [*part_terms, term])
                break
        else:
            gathered.append((scope, [term]))
    return gathered


def _make_parts(
    layout: Layout, clique: Clique, gathered: list[tuple[set[int], list[int]]], first_cell: int
) -> list[Part]:
    """Return the parts of a clique, given their predictors and terms.

    The cells of the parts start at `first_cell`.
    """
    parts = []
    for predictors, terms in gathered:
        scope = tuple(i for i in clique.scope if i in predictors)
        shape = tuple(int(layout.n_levels[i]) for i in scope)
        cells = slice(first_cell, first_cell + int(np.prod(shape)))
        aligned = tuple(
            L if i in predictors else 1 for i, L in zip(clique.scope, clique.shape, strict=True)
        )
        outside = tuple(k for k, i in enumerate(clique.scope) if i not in predictors)
        parts.append(Part(terms, scope, shape, cells, aligned, outside))
        first_cell = cells.stop
    return parts
