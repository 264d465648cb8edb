"""Which parameters add to the energies of the cells of cliques; the tables of large cliques are
sums of smaller ones.

A *clique* is a set of predictors with a table of all their joint levels, its *cells*; each axis of
the table is a predictor. It is made when a predictor is summed out: it holds this predictor and its
*separator*, the predictors that share a table with it then, all of which are in the *parent* clique
too (see `bbl.engines.likelihood.tree`).

A *scope* is the predictors of a table, or of a term of the model (here also the fields of one
predictor). The `size` parameters are those of all terms: `layout.scopes` lists the scopes of terms,
`layout.cuts` the position of each one's first parameter. The parameters of a term are a table (L_i
- 1, L_j - 1, ...) of its non-reference levels, raveled with the last predictor running fastest.
Every term belongs to one clique, and its parameters add to the energies of some of its cells. The
terms of a small clique make one table of its cells. Those of a large one are gathered in *parts*,
tables of some of its predictors: the table of the clique is the sum of its parts, broadcast along
the other axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.model.layout import Layout

__all__ = ["Clique", "CliqueDesign"]

MAX_PART_CELLS = 2**12  # cells of a part, unless one term has more


@dataclass(frozen=True)
class Clique:
    """A predictor, its separator, and the place of its table in the vector of all tables.

    Attributes
    ----------
    scope : tuple of int
        The predictor, then its separator in the order of elimination.
    shape : tuple of int
        Numbers of levels of the predictors of `scope`.
    cells : slice
        Place of its raveled table in the vector (n_cells,) of the tables of all cliques.
    parent : int
        Number of the parent clique; -1 for a root.
    aligned : tuple of int
        Shape of a table of the separator among the axes of the parent: 1 at predictors that are not
        in the separator.
    outside : tuple of int
        Axes of the parent that are not in the separator.
    """

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    cells: slice
    parent: int
    aligned: tuple[int, ...]
    outside: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A table of some predictors of a clique, in its order of axes, and its place in the vector of
    all parts.

    Attributes
    ----------
    terms : list of int
        Positions in `layout.scopes` of the terms that are gathered in it.
    scope : tuple of int
        Its predictors.
    shape : tuple of int
        Their numbers of levels.
    cells : slice
        Place of its table in the vector of the tables of all parts.
    aligned : tuple of int
        Its shape among the axes of the clique: 1 at predictors that are not in it.
    outside : tuple of int
        Axes of the clique that are not in it.
    """

    terms: list[int]
    scope: tuple[int, ...]
    shape: tuple[int, ...]
    cells: slice
    aligned: tuple[int, ...]
    outside: tuple[int, ...]


class CliqueDesign:
    """The parts of cliques, and the parameters that add to their cells.

    Parameters
    ----------
    layout : Layout
    cliques : list of Clique
    clique_of_term : ndarray of int, shape (n_scopes,)
        Number of the clique of each of `layout.scopes`, fields too; it holds all predictors of the
        scope.

    Attributes
    ----------
    parts : list of lists of Part
        The parts of each clique.
    has_whole_tables : bool
        Whether each clique is one part, so that the vector of all parts is that of all cliques.
    part_design : sparse matrix, shape (cells of all parts, size)
        1 where a parameter adds to the energy of a cell of a part.
    part_design_transposed : sparse matrix, shape (size, cells of all parts)
        Its transpose, stored by rows as well, so that products with it are fast.
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
            # [-1] exists: each clique holds the fields of its own predictor
            first_cell = self.parts[-1][-1].cells.stop
        self.has_whole_tables = all(
            len(parts) == 1 and not parts[0].outside for parts in self.parts
        )
        self.part_design = self._make_part_design(n_part_cells=first_cell)
        self.part_design_transposed = self.part_design.T.tocsr()

    def _make_part_design(self, n_part_cells: int):
        """Return `part_design`: a parameter adds to a cell if the cell has its level of each
        predictor of its term.
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
                # cells without a reference level, and the position of their parameter in the
                # raveled table of the term
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
        """Write the energies of all cells of cliques for parameters (size, ...) to `out` (n_cells,
        ...); return it.
        """
        # columns: () or (v,), for v vectors theta
        part_energies = self.part_design @ theta
        columns = theta.shape[1:]
        if self.has_whole_tables:
            out[...] = part_energies
            return out
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = out[clique.cells].reshape(*clique.shape, *columns)
            # the parts, with axes of length 1 at predictors that they lack
            first, *others = (
                part_energies[part.cells].reshape(*part.aligned, *columns) for part in parts
            )
            table[...] = first
            for other in others:
                table += other
        return out

    def parameter_sums(self, values: np.ndarray) -> np.ndarray:
        """Return, for each parameter, the sum (size, ...) of values (n_cells, ...) of the cells
        that it adds to.

        This is the transpose of `energies`, as a linear map.
        """
        if self.has_whole_tables:
            return self.part_design_transposed @ values
        columns = values.shape[1:]  # () or (v,)
        # sums over the axes of a clique outside a part
        margins = np.empty((self.part_design.shape[0], *columns))
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = values[clique.cells].reshape(*clique.shape, *columns)
            for part in parts:
                margins[part.cells] = table.sum(axis=part.outside).reshape(-1, *columns)
        return self.part_design_transposed @ margins


def _gather_terms(
    layout: Layout, clique: Clique, terms: list[int]
) -> list[tuple[set[int], list[int]]]:
    """Return the predictors and the terms of each part of a clique; `terms` are those that belong
    to the clique.

    A small clique is one part. Else each term joins the first part whose table stays small with its
    predictors, or begins a new part.
    """
    if clique.cells.stop - clique.cells.start <= MAX_PART_CELLS:
        return [(set(clique.scope), terms)]
    axis = {i: k for k, i in enumerate(clique.scope)}
    gathered: list[tuple[set[int], list[int]]] = []
    # sorted by their axes, so that terms with common predictors follow each other and join one part
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
    """Return the parts of a clique from their predictors and terms; their cells begin at
    `first_cell`.
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
