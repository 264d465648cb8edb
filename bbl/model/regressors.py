"""Regressors of each site, and conversion between parameter vectors and site solutions."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout, term_columns

__all__ = [
    "Regressors",
    "check_levels",
    "check_model",
    "check_shapes",
    "from_matrix",
    "from_sites",
    "pair_cells",
    "pair_matrix",
    "penalties",
    "regressors",
    "to_floats",
    "to_matrix",
    "to_sites",
]


LARGEST = 1e30  # largest parameter (absolute) for which energies are finite in single precision


def pair_cells(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns of the pair couplings in the coupling matrix, in storage order.

    Both are int32 arrays (couplings,) that are cached in the layout. The table of a pair is stored
    row by row. To save memory, positions in tables are converted to positions in the matrix in
    place.
    """
    attributes = vars(layout)  # cached like the cached properties of the layout
    if "_pair_cells" in attributes:
        return attributes["_pair_cells"]
    i, j = layout.pairs.T
    # start of each table among the couplings, then the number of couplings
    table_start = layout.pair_start - layout.D
    sizes = table_start[1:] - table_start[:-1]
    # int32 saves half of the memory, which matters for thousands of levels
    start = layout.start.astype(np.int32)
    col = np.arange(table_start[-1], dtype=np.int32)
    col -= table_start[:-1].astype(np.int32).repeat(sizes)  # so far the position in the flat table
    row_length = (layout.n_levels[j] - 1).repeat(sizes)
    row = col // row_length  # row in the table
    row += start[i].repeat(sizes)  # row in the matrix
    np.remainder(col, row_length, out=col)  # column in the table
    col += start[j].repeat(sizes)  # column in the matrix
    attributes["_pair_cells"] = row, col
    return row, col


def to_matrix(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(h, J)`` of a model with pairs: fields (D,) and symmetric couplings (D, D).

    Raises a ValueError if the model has terms of more than two predictors.

    Examples
    --------
    >>> h, J = to_matrix(Layout([2, 3]), np.arange(5.0))
    >>> J
    array([[0., 3., 4.],
           [3., 0., 0.],
           [4., 0., 0.]])
    """
    if layout.order > 2:
        raise ValueError("terms of three or more predictors cannot be stored in a matrix")
    return pair_matrix(layout, theta)


def pair_matrix(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(h, J)`` for the fields and pairs of a model, ignoring its other terms."""
    row, col = pair_cells(layout)
    # fields are followed by the couplings of pairs, which end at `pair_start[-1]`
    J = np.zeros((layout.D, layout.D))
    pair_couplings = theta[layout.D : layout.pair_start[-1]]
    J[row, col] = pair_couplings
    J[col, row] = pair_couplings
    return theta[: layout.D].copy(), J


def from_matrix(layout: Layout, h: np.ndarray, J: np.ndarray) -> np.ndarray:
    """Return the flat vector of fields `h` (D,) and pair couplings `J` (D, D). J is averaged with
    its transpose (eq. 18).
    """
    row, col = pair_cells(layout)
    theta = np.empty(layout.size)
    theta[: layout.D] = h
    theta[layout.D :] = J[row, col]
    theta[layout.D :] += J[col, row]
    theta[layout.D :] *= 0.5
    return theta


def check_levels(n_levels) -> np.ndarray:
    """Validate `n_levels` and return it as an int32 array (m,)."""
    levels = np.asarray(n_levels)
    is_usable = levels.ndim == 1 and levels.size and levels.dtype.kind in "iu"
    if not is_usable or levels.min() < 2 or levels.max() >= 2**31:
        raise OptionError(
            "n_levels must contain one integer of at least 2 (and below 2**31) per predictor.",
            argument="n_levels",
        )
    return np.ascontiguousarray(levels, dtype=np.int32)


def check_model(h, J, n_levels) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the validated `h` (D,), `J` (D, D) and `n_levels` (m,), and the first column of each
    predictor (m + 1,).
    """
    levels = check_levels(n_levels)
    start = np.concatenate(([0], np.cumsum(levels.astype(np.intp) - 1)))
    D = int(start[-1])
    h = to_floats("h", h)
    J = to_floats("J", J)
    check_shapes(h, J, D)
    for name, array in (("h", h), ("J", J)):
        if not (np.abs(array) < LARGEST).all():
            raise DataError(
                f"{name} contains values that are not finite or exceed {LARGEST:g}.",
                argument=name,
                hint="Refit with a penalty.",
            )
    if not np.array_equal(J, J.T):
        raise DataError(
            "J is not symmetric.",
            argument="J",
            hint="Make it symmetric: fill both triangles with the same values.",
        )
    for lo, hi in zip(start[:-1], start[1:], strict=True):
        if J[lo:hi, lo:hi].any():
            raise DataError(
                "J couples two levels of the same predictor.",
                argument="J",
                hint="Set those blocks to 0.",
            )
    return h, J, levels, start


def check_shapes(h: np.ndarray, J: np.ndarray, D: int) -> None:
    """Raise an error unless the shape of `h` is (D,) and the shape of `J` is (D, D)."""
    for name, array, shape in (("h", h, (D,)), ("J", J, (D, D))):
        if array.shape != shape:
            raise DataError(
                f"{name} has shape {array.shape}, but n_levels requires {shape}.", argument=name
            )


def to_floats(argument: str, value) -> np.ndarray:
    """Convert `value` to a contiguous float64 array.

    Raises an error that names the argument if the value is not numeric.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise BBLTypeError(
            f"{argument} must be an array of numbers; got dtype {array.dtype}.", argument=argument
        )
    return np.ascontiguousarray(array, dtype=np.float64)


class Regressors:
    """The predictors and sets of predictors that are regressors of each site.

    A *set* consists of the members of a term (i, j, k, ...) of three or more predictors except one:
    given all other predictors, site i has a coupling with each joint level of j, k, ... (Woo & Wang
    2022, eq. 13). The S sets are therefore additional regressors that follow the m predictors. The
    code of a set is 0 if a member is at its reference level, and otherwise the number of the joint
    level, with the last member varying fastest. A model with only pairs does not have any sets. The
    D columns are the non-reference levels of predictors and sets.

    Attributes
    ----------
    m : int
        Number of predictors.
    sets : list of ndarrays of intp, shapes (S_k, k)
        Sets of k = 2, 3, ... predictors.
    set_of_member : list of ndarrays of int, shapes (T_k, k)
        For the terms of order k = 3, 4, ...: the set that omits the first, second, ... member of
        the term. Sets are numbered m, m + 1, ...
    n_levels : ndarray of int32, shape (m + S,)
        Numbers of levels of the predictors, followed by those of the sets.
    start : ndarray of intp, shape (m + S + 1,)
        First column of each predictor and set, followed by D.
    mask : ndarray of bool, shape (m, m + S)
        Whether each predictor or set is a regressor of each site.
    D : int
        Number of columns.

    Examples
    --------
    >>> regs = regressors(Layout([2, 3, 2], [(0, 1), (0, 1, 2)]))
    >>> [sets.tolist() for sets in regs.sets], regs.n_levels.tolist()
    ([[[0, 1], [0, 2], [1, 2]]], [2, 3, 2, 3, 2, 3])
    >>> regs.codes(np.array([[1, 2, 0]], dtype=np.uint8))
    array([[1, 2, 0, 2, 0, 0]], dtype=uint8)
    """

    def __init__(self, layout: Layout):
        # does not store the layout, which refers to its regressors: a cycle would delay its release
        self.m = layout.m
        self.sets: list[np.ndarray] = []
        self.set_of_member: list[np.ndarray] = []
        self.n_levels = layout.n_levels
        self.start = layout.start
        self.mask = layout.mask
        self.D = layout.D
        if layout.order > 2:
            self._add_sets(layout)

    def _add_sets(self, layout: Layout) -> None:
        """Add the sets of all terms of order 3, 4, ..."""
        n_regressors = layout.m
        n_nonreference = np.diff(layout.start)
        n_levels = [layout.n_levels]
        # unlike the layout's mask, this one does not join two members of a higher term that are not
        # a pair
        self.mask = np.zeros((n_regressors, n_regressors), dtype=bool)
        i, j = layout.pairs.T
        self.mask[i, j] = self.mask[j, i] = True
        for k, terms in enumerate(layout.terms[1:], 3):
            # (T, k, k - 1): each term without each of its members
            member_sets = np.stack([np.delete(terms, a, axis=1) for a in range(k)], axis=1)
            distinct_sets, set_of_member = np.unique(
                member_sets.reshape(-1, k - 1), axis=0, return_inverse=True
            )
            set_of_member = set_of_member.reshape(-1, k)
            n_joint_levels = n_nonreference[distinct_sets].prod(axis=1)
            self.sets.append(distinct_sets.astype(np.intp))
            self.set_of_member.append(n_regressors + set_of_member)
            n_levels.append((n_joint_levels + 1).astype(np.int32))
            is_regressor = np.zeros((layout.m, len(distinct_sets)), dtype=bool)
            # each member is regressed on the set of the other members
            is_regressor[terms, set_of_member] = True
            self.mask = np.concatenate([self.mask, is_regressor], axis=1)
            n_regressors += len(distinct_sets)
        self.n_levels = np.concatenate(n_levels)
        self.start = np.concatenate(([0], np.cumsum(self.n_levels.astype(np.intp) - 1)))
        self.D = int(self.start[-1])

    @cached_property
    def order(self) -> np.ndarray:
        """Order of the term that contains each column, shape (D,)."""
        # 2 for the m predictors, 3 for sets of two, ...
        orders = np.repeat(np.arange(2, 3 + len(self.sets)), [self.m, *map(len, self.sets)])
        return np.repeat(orders, self.n_levels - 1)

    def codes(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes (n, m + S) of predictors and sets, given the codes of predictors."""
        if not self.sets:
            return codes
        m = self.m
        max_levels = int(self.n_levels.max())
        # the smallest type for the joint levels, but at least as wide as the type of `codes`
        dtype = np.dtype(
            np.uint8 if max_levels <= 256 else np.uint16 if max_levels <= 65536 else np.int32
        )
        out = np.empty(
            (len(codes), len(self.n_levels)),
            dtype=max(dtype, codes.dtype, key=lambda d: d.itemsize),
        )
        out[:, :m] = codes
        # number of non-reference levels of each predictor; column of the next set
        width = np.diff(self.start)
        column = m
        for sets in self.sets:
            for members in sets:
                member_codes = codes[:, members].astype(np.intp)
                joint_level = member_codes[:, 0] - 1
                for a in range(1, len(members)):
                    joint_level = joint_level * width[members[a]] + member_codes[:, a] - 1
                out[:, column] = np.where((member_codes > 0).all(axis=1), joint_level + 1, 0)
                column += 1
        return out

    @cached_property
    def columns(self) -> list[np.ndarray]:
        """Columns of each site in the site solution: 0 (constant), followed by 1 + regressor
        columns.
        """
        return [self.columns_of(i) for i in range(self.m)]

    def columns_of(self, i: int) -> np.ndarray:
        """Return the `columns` of site i."""
        return np.flatnonzero(np.append(True, np.repeat(self.mask[i], np.diff(self.start))))

    def positions(self, sub_layout: Layout, predictors: np.ndarray) -> np.ndarray:
        """Return the columns that correspond to the columns of a layout with a subset of the
        predictors and terms.

        Predictor i of `sub_layout` is ``predictors[i]`` of this layout.
        """
        sub_regressors = regressors(sub_layout)
        number_of_set = {self.scope(number): number for number in range(self.m, len(self.n_levels))}
        sub_sets = [
            tuple(predictors[members].tolist()) for sets in sub_regressors.sets for members in sets
        ]
        numbers = [*predictors, *(number_of_set[members] for members in sub_sets)]
        ranges = [np.arange(self.start[number], self.start[number + 1]) for number in numbers]
        return np.concatenate([np.empty(0, dtype=np.intp), *ranges])

    def scope(self, number: int) -> tuple[int, ...]:
        """Return the predictors of regressor `number`: a single predictor or the members of a
        set.
        """
        if number < self.m:
            return (number,)
        number -= self.m
        for sets in self.sets:
            if number < len(sets):
                return tuple(sets[number].tolist())
            number -= len(sets)
        raise IndexError(number)

    def members(self, column: int) -> list[tuple[int, int]]:
        """Return the level or joint level of a column as a pair (predictor, code) for each
        member.
        """
        number = int(np.searchsorted(self.start, column, side="right")) - 1
        scope = self.scope(number)
        levels = np.unravel_index(
            column - self.start[number], tuple(self.n_levels[list(scope)] - 1)
        )
        return [(i, int(a) + 1) for i, a in zip(scope, levels, strict=True)]


def regressors(layout: Layout) -> Regressors:
    """Return the regressors of a layout, cached in the layout."""
    attributes = vars(layout)  # cached like the cached properties of the layout
    if "_regressors" not in attributes:
        attributes["_regressors"] = Regressors(layout)
    return attributes["_regressors"]


def _site_cells(layout: Layout) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the positions of couplings in a site solution (layout.D, D) without fields.

    A coupling of k predictors appears k times, once with each member of its term as the site. The
    list has an entry for each order k = 2, 3, ..., which consists of k pairs (rows, columns) of
    arrays. Pair a contains the position of each coupling of this order with member a as the site,
    i.e. the row of this member's level and the column of the levels of the other members. The list
    is cached in the layout.
    """
    attributes = vars(layout)
    if "_site_cells" not in attributes:
        # for each pair coupling: columns of its first and second member's level
        row, col = pair_cells(layout)
        attributes["_site_cells"] = [[(row, col), (col, row)], *_site_cells_of_sets(layout)]
    return attributes["_site_cells"]


def _site_cells_of_sets(layout: Layout) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the entries of `_site_cells` for terms of order 3, 4, ...

    The members of a term other than the site form a single regressor, a set. The last member varies
    fastest in its joint levels.
    """
    out: list[list[tuple[np.ndarray, np.ndarray]]] = []
    regs = regressors(layout)
    if not regs.sets:
        return out
    # number of non-reference levels of each predictor; (order, size): column of the level of each
    # member of a parameter's term
    width = np.diff(layout.start)
    member_columns = term_columns(layout)
    by_order = zip(layout.terms[1:], layout.term_start[1:], regs.set_of_member, strict=True)
    for k, (terms, start, set_of_member) in enumerate(by_order, 3):
        # n_couplings (T,) per term; columns (k, couplings of this order) of the members' levels
        n_couplings = np.diff(start)
        columns = member_columns[:k, start[0] : start[-1]]
        # for each coupling: the k members of its term, and their levels, where 0 is the first
        # non-reference level
        members = [np.repeat(terms[:, a], n_couplings) for a in range(k)]
        level = [columns[a] - layout.start[members[a]] for a in range(k)]
        cells = []
        for a in range(k):
            # of the other members, counted from 0
            joint_level = np.zeros(columns.shape[1], dtype=np.intp)
            for b in (b for b in range(k) if b != a):
                joint_level = joint_level * width[members[b]] + level[b]
            cells.append(
                (columns[a], joint_level + np.repeat(regs.start[set_of_member[:, a]], n_couplings))
            )
        out.append(cells)
    return out


def to_sites(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Convert parameters (size,) to a site solution (layout.D, 1 + D).

    All sites of a term have the same coupling.

    Examples
    --------
    >>> to_sites(Layout([2, 2, 2], [(0, 1), (0, 1, 2)]), np.arange(5.0))
    array([[0., 0., 3., 0., 0., 0., 4.],
           [1., 3., 0., 0., 0., 4., 0.],
           [2., 0., 0., 0., 4., 0., 0.]])
    """
    regs = regressors(layout)
    out = np.zeros((layout.D, 1 + regs.D))
    out[:, 0] = theta[: layout.D]
    for cells, start in zip(_site_cells(layout), layout.term_start, strict=True):
        for row, col in cells:
            out[row, 1 + col] = theta[start[0] : start[-1]]
    return out


def from_sites(layout: Layout, site_theta: np.ndarray, symmetrize: bool = True) -> np.ndarray:
    """Convert a site solution (layout.D, 1 + D) into the flat vector (size,) of fields and
    couplings.

    A coupling is the mean over the sites of its term (Woo & Wang 2022, eq. 18), or the value at the
    first site if `symmetrize` is False.
    """
    # coupling (row, col) is at row (1 + D) + 1 + col
    theta = np.empty(layout.size)
    flat_solution = site_theta.ravel()
    theta[: layout.D] = site_theta[:, 0]
    for cells, start in zip(_site_cells(layout), layout.term_start, strict=True):
        couplings = theta[start[0] : start[-1]]
        for member, (row, col) in enumerate(cells if symmetrize else cells[:1]):
            flat_index = np.multiply(row, site_theta.shape[1], dtype=np.intp)
            flat_index += col
            flat_index += 1
            if member:  # write the first member's couplings, add the others'
                couplings += flat_solution.take(flat_index)
            else:
                # any mode except "raise", which would buffer `out`
                flat_solution.take(flat_index, out=couplings, mode="clip")
        if symmetrize:
            couplings /= len(cells)
    return theta


def penalties(layout: Layout, lambda_: float | tuple[float, ...]) -> np.ndarray:
    """Return the penalty (D,) on couplings in each column, given one penalty or one per order."""
    regs = regressors(layout)
    if isinstance(lambda_, tuple):
        return np.asarray(lambda_)[regs.order - 2]
    out = np.empty(regs.D)
    out.fill(lambda_)
    return out
