"""Which parameters add to the energies of the cells of cliques; the tables of large cliques are sums of smaller ones.

Every term belongs to one clique. The terms of a small clique make one table of its cells. Those of a large one are
gathered in *parts*, tables of some of its predictors: the energies of its cells are the sum of its parts, and sums over
its cells are sums over the margins that its parts are of.
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
    cells : slice
    parent : int
        Number of the parent clique; -1 for a root.
    aligned : tuple of int
        Shape of a table of the separator among the axes of the parent.
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
    """A table of some predictors of a clique, in its order of axes, and its place in the vector of all parts.

    Attributes
    ----------
    terms : list of int
        Numbers of the layout's terms that are gathered in it.
    scope : tuple of int
    shape : tuple of int
    cells : slice
    aligned : tuple of int
        Its shape among the axes of the clique.
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
    clique_of_term : ndarray of int, shape (n_terms,)
        The clique of each scope of the layout; it holds all predictors of the scope.
    """

    def __init__(self, layout: Layout, cliques: list[Clique], clique_of_term: np.ndarray):
        self.layout, self.cliques = layout, cliques
        self.n_cells = cliques[-1].cells.stop if cliques else 0
        self.parts: list[list[Part]] = []
        first = 0
        for k, clique in enumerate(cliques):
            self.parts.append(_parts(layout, clique, np.flatnonzero(clique_of_term == k).tolist(), first))
            first = self.parts[-1][-1].cells.stop
        self.has_whole_tables = all(len(parts) == 1 and not parts[0].outside for parts in self.parts)
        self.by_part = self._by_part(first)
        self.transposed = self.by_part.T.tocsr()

    def _by_part(self, n_part_cells: int):
        """Return the parameters that add to the energy of each cell of each part: a sparse matrix (cells, size)."""
        from scipy import sparse

        layout, rows, columns = self.layout, [], []
        for part in (part for parts in self.parts for part in parts):
            grids = np.indices(part.shape).reshape(len(part.shape), -1)
            for term in part.terms:
                scope = layout.scopes[term]
                codes = [grids[part.scope.index(i)] for i in scope]
                has_all = np.flatnonzero(np.logical_and.reduce([code > 0 for code in codes]))
                position = np.zeros(len(has_all), dtype=np.intp)
                for i, code in zip(scope, codes, strict=True):
                    position = position * (int(layout.n_levels[i]) - 1) + code[has_all] - 1
                rows.append(part.cells.start + has_all)
                columns.append(layout.cuts[term] + position)
        row, column = np.concatenate(rows), np.concatenate(columns)
        return sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=(n_part_cells, layout.size))

    def energies(self, theta: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write the energies of all cells of cliques for parameters (size, ...) to `out` (n_cells, ...); return it."""
        by_part, columns = self.by_part @ theta, theta.shape[1:]
        if self.has_whole_tables:
            out[...] = by_part
            return out
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = out[clique.cells].reshape(*clique.shape, *columns)
            first, *others = (by_part[part.cells].reshape(*part.aligned, *columns) for part in parts)
            table[...] = first
            for other in others:
                table += other
        return out

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (size, ...) of each parameter's indicator times values (n_cells, ...) over its clique."""
        if self.has_whole_tables:
            return self.transposed @ values
        columns = values.shape[1:]
        margins = np.empty((self.by_part.shape[0], *columns))
        for clique, parts in zip(self.cliques, self.parts, strict=True):
            table = values[clique.cells].reshape(*clique.shape, *columns)
            for part in parts:
                margins[part.cells] = table.sum(axis=part.outside).reshape(-1, *columns)
        return self.transposed @ margins


def _parts(layout: Layout, clique: Clique, terms: list[int], first: int) -> list[Part]:
    """Gather the terms of a clique in parts, whose cells begin at `first`."""
    gathered: list[tuple[set[int], list[int]]] = []
    if clique.cells.stop - clique.cells.start <= MAX_PART_CELLS:
        gathered, terms_left = [(set(clique.scope), terms)], []
    else:
        axis = {i: k for k, i in enumerate(clique.scope)}
        terms_left = sorted(terms, key=lambda term: [axis[i] for i in layout.scopes[term]])
    for term in terms_left:
        scope = set(layout.scopes[term])
        for k, (members, held) in enumerate(gathered):
            if np.prod([float(layout.n_levels[i]) for i in members | scope]) <= MAX_PART_CELLS:
                gathered[k] = (members | scope, [*held, term])
                break
        else:
            gathered.append((scope, [term]))
    parts = []
    for members, held in gathered:
        scope_of_part = tuple(i for i in clique.scope if i in members)
        shape = tuple(int(layout.n_levels[i]) for i in scope_of_part)
        cells = slice(first, first + int(np.prod(shape)))
        aligned = tuple(L if i in members else 1 for i, L in zip(clique.scope, clique.shape, strict=True))
        outside = tuple(k for k, i in enumerate(clique.scope) if i not in members)
        parts.append(Part(held, scope_of_part, shape, cells, aligned, outside))
        first = cells.stop
    return parts
