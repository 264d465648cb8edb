"""Tables of fields and couplings, indexed by the names of groups, predictors and levels. Each table
is created when it is accessed. There are D fields, K groups and m predictors; predictor i has L_i
levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.labels import Labels
from bbl.model.layout import Layout, term_columns
from bbl.model.parameters import Parameters
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import label_index, label_text
from bbl.stats.metrics import first_largest

__all__ = [
    "Coefficients",
    "CouplingTables",
    "FieldTables",
    "Named",
    "category_frame",
    "filled_frame",
    "level_columns",
    "level_index",
    "parameter_columns",
    "parameter_names",
]

Tables = TypeVar("Tables")  # type of a mapping's values: a table, or the tables of a group
SHOWN = 10  # names or rows in a repr
SHOWN_TABLES = 3  # tables of a mapping shown in notebooks


def _position(kind: str, name: object, positions: Mapping[Any, int]) -> int:
    """Return ``positions[name]``; raise a KeyError with hints if it does not exist.

    `kind`, ``"group"`` or ``"predictor"``, is the expected kind of `name`.
    """
    try:
        return positions[name]
    except (KeyError, TypeError):  # TypeError: a name that cannot be a key
        names = ", ".join(map(repr, list(positions)[:SHOWN])) + (
            " and more" if len(positions) > SHOWN else ""
        )
        near = near_match(name, positions)
        raise KeyError(
            f"{name!r} is not a {kind} of this model. {near}Choose from {names}."
        ) from None


class Named:
    """Mixin for access to attributes by name, as in R's lists, where ``coef["h"]`` is
    ``coef.h``.
    """

    def __getitem__(self, name: object) -> Any:
        """Return the public attribute `name`; raise a KeyError if it does not exist."""
        names = [attribute for attribute in vars(self) if not attribute.startswith("_")]
        if name not in names:
            raise KeyError(
                f"{name!r} does not exist in this model. {near_match(name, names)}Choose from "
                f"{', '.join(names)}."
            )
        return getattr(self, str(name))

    __iter__ = None  # not iterable: otherwise Python would iterate over self[0], self[1], ...


class _GroupTables(Mapping[Any, Tables], Notebook):
    """Base class of `FieldTables` and `CouplingTables`, which contains names, the layout and the
    parameter vector `theta` (size,) of one group.

    ``_positions`` maps the name of each predictor to its number 0..m-1.
    """

    def __init__(self, labels: Labels, layout: Layout, theta: np.ndarray):
        self._labels = labels
        self._layout = layout
        self._theta = theta
        self._positions = {name: i for i, name in enumerate(labels.names)}

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: one or more lines of text, and tables."""
        return repr(self), [_level_section(key, self[key]) for key in islice(self, SHOWN_TABLES)]


class FieldTables(_GroupTables[pd.Series]):
    """Fields of one group: maps a predictor to a Series over its non-reference levels."""

    def __getitem__(self, name: object) -> pd.Series:
        """Return a predictor's fields; raise a KeyError if the model has no such predictor."""
        i = _position("predictor", name, self._positions)
        values = self._layout.table(self._theta, i)
        return pd.Series(
            values.copy(), index=label_index(self._labels.levels[i][1:]), name=self._labels.names[i]
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._labels.names)

    def __len__(self) -> int:
        return len(self._labels.names)

    def __repr__(self) -> str:
        return _mapping_repr(
            "Fields of", [repr(name) for name in self._labels.names[:SHOWN]], len(self)
        )


class CouplingTables(_GroupTables[pd.DataFrame]):
    """Couplings of one group: maps a tuple of predictors to a DataFrame, with levels of the first
    as rows and levels of the others as columns.

    The predictors of a key may be in any order; iteration yields each term once, pairs first, in
    the order of the predictors. With three or more predictors the columns are a MultiIndex.
    """

    def __getitem__(self, term: object) -> pd.DataFrame:
        """Return the couplings of a term, a tuple of names; raise a KeyError if these predictors do
        not interact.
        """
        order = max(self._layout.order, 2)  # largest number of predictors of a term
        if not isinstance(term, tuple) or not 2 <= len(term) <= order:
            allowed = (
                "a pair of predictors, as in" if order == 2 else f"two to {order} predictors, as in"
            )
            raise KeyError(f"Couplings are indexed by {allowed} J[group]['a', 'b']; got {term!r}.")
        predictors = [_position("predictor", name, self._positions) for name in term]
        # -1: no such term
        if len(set(predictors)) < len(predictors) or self._layout.index(*predictors) < 0:
            names = ", ".join(map(repr, term[:-1])) + f" and {term[-1]!r}"
            raise KeyError(f"{names} do not interact in this model.")
        # non-reference levels of each predictor
        levels = [
            label_index(self._labels.levels[i][1:], self._labels.names[i]) for i in predictors
        ]
        values = self._layout.table(self._theta, *predictors)
        columns = levels[1] if len(predictors) == 2 else _joint_level_index(levels[1:])
        return pd.DataFrame(
            values.reshape(len(values), -1).copy(), index=levels[0], columns=columns
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        names = self._labels.names
        return (tuple(names[i] for i in term) for terms in self._layout.terms for term in terms)

    def __len__(self) -> int:
        return self._layout.n_terms

    def __repr__(self) -> str:
        terms = [f"({', '.join(map(repr, term))})" for term in islice(self, SHOWN)]
        return _mapping_repr("Couplings of", terms, len(self))


def _joint_level_index(levels: list[pd.Index]) -> pd.MultiIndex:
    """Return all combinations of the levels of several predictors, with the last predictor varying
    fastest.
    """
    return pd.MultiIndex.from_product(levels, names=[index.name for index in levels])


class _TablesByGroup(Mapping[Any, Tables], Notebook):
    """Maps a group to its tables; `kind` is their class, `FieldTables` or `CouplingTables`.

    ``_positions`` maps the name of each group to its number 0..K-1.
    """

    def __init__(
        self,
        kind: Callable[[Labels, Layout, np.ndarray], Tables],
        labels: Labels,
        parameters: Parameters,
    ):
        self._kind = kind
        self._labels = labels
        self._parameters = parameters
        self._positions = {group: g for g, group in enumerate(labels.groups)}

    def __getitem__(self, group: object) -> Tables:
        """Return a group's tables; raise a KeyError if the model has no such group."""
        g = _position("group", group, self._positions)
        return self._kind(self._labels, self._parameters.layout, self._parameters.theta[g])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._labels.groups)

    def __len__(self) -> int:
        return len(self._labels.groups)

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: one or more lines of text, and tables."""
        sections = []
        for group in islice(self, SHOWN_TABLES):
            tables: Any = self[group]
            sections += [
                _level_section((group, *_as_tuple(key)), tables[key])
                for key in islice(tables, SHOWN_TABLES)
            ]
        return repr(self), sections

    def __repr__(self) -> str:
        return _mapping_repr("Tables of", [repr(g) for g in self._labels.groups[:SHOWN]], len(self))


def _as_tuple(name: object) -> tuple[Any, ...]:
    """Return a predictor's name, or the names of a term, as a tuple."""
    return name if isinstance(name, tuple) else (name,)


def _level_section(key: object, table: Any) -> Section:
    """Return a table of fields or couplings for a notebook. Its heading contains the names in
    `key`.
    """
    frame = table.to_frame("field") if isinstance(table, pd.Series) else table
    # source: for the note, where all rows can be found
    return first_rows(
        frame.iloc[:, :SHOWN],
        ", ".join(map(label_text, _as_tuple(key))),
        source="the full table",
    )


def _mapping_repr(title: str, names: list[str], n: int) -> str:
    """Return the repr of a mapping with `n` keys, starting with `names`, such as ``<Fields of 'a',
    'b'>``.
    """
    if not n:
        return f"<{title} nothing>"
    return f"<{title} {', '.join(names)}{f', ... ({n} in all)' if n > len(names) else ''}>"


class Coefficients(Named, Notebook):
    """Coefficients of a fitted model, accessible by label, as returned by ``coef()``. As in R,
    ``coef["h"]`` is ``coef.h``.

    Parameters
    ----------
    labels : Labels
        Names of the groups, predictors and levels.
    parameters : Parameters
        Fields and couplings as plain arrays.

    Attributes
    ----------
    h : Mapping
        ``h[group][predictor]``: Series of fields by non-reference level.
    J : Mapping
        ``J[group][a, b]``: DataFrame of couplings, levels of `a` by levels of `b`;
        ``J[group][b, a]`` is the transpose. ``J[group][a, b, c]`` has the levels of `a` as rows
        and the joint levels of `b` and `c` as columns.
    h0, J0 : Mapping or None
        Tables of the pooled fit, ``h0[predictor]`` and ``J0[a, b]``; None if the model has no
        pooled fit.

    Raises
    ------
    KeyError
        If a group, predictor or term does not exist in the model.

    Examples
    --------
    >>> labels = Labels("y", ("No", "Yes"), ("a", "b"), (("x", "y", "z"), (0, 1)))
    >>> parameters = Parameters(Layout([3, 2]), np.arange(10.0).reshape(2, 5))
    >>> coef = Coefficients(labels, parameters)
    >>> coef.h["Yes"]["a"]
    y    5.0
    z    6.0
    Name: a, dtype: float64
    >>> float(coef.J["No"]["b", "a"].loc[1, "z"])
    4.0
    """

    def __init__(self, labels: Labels, parameters: Parameters):
        self._labels = labels
        self._parameters = parameters
        self.h: Mapping[Any, FieldTables] = _TablesByGroup(FieldTables, labels, parameters)
        self.J: Mapping[Any, CouplingTables] = _TablesByGroup(CouplingTables, labels, parameters)
        pooled = parameters.pooled
        layout = parameters.layout
        self.h0 = None if pooled is None else FieldTables(labels, layout, pooled)
        self.J0 = None if pooled is None else CouplingTables(labels, layout, pooled)

    def to_frame(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each.

        Returns
        -------
        DataFrame
            Columns ``term`` ('h' or 'J'), ``group``, ``predictor``, ``level``, ``predictor2``,
            ``level2`` (missing for fields), with terms of three predictors ``predictor3``,
            ``level3`` (missing for pairs) and so on, ``estimate``, ``pooled`` and ``difference``
            (nan if the model has no pooled fit). Rows are ordered by group, then by number of
            predictors, then by term. Labels are categorical, or objects if different levels compare
            equal (1 and True).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.coef().to_frame().shape
        (18, 9)
        """
        parameters = self._parameters
        size = parameters.layout.size
        pooled = np.full(size, np.nan) if parameters.pooled is None else parameters.pooled
        return pd.DataFrame(
            {
                **parameter_columns(self._labels, parameters.layout),
                "estimate": parameters.theta.ravel(),
                "pooled": np.tile(pooled, len(parameters.theta)),
                "difference": (parameters.theta - pooled).ravel(),
            }
        )

    def _first_fields_section(self) -> Section:
        """Return the fields of the first `SHOWN` groups, with a row for each of the first `SHOWN`
        levels.
        """
        labels = self._labels
        layout = self._parameters.layout
        fields = self._parameters.theta[:, : layout.D]
        columns = [str(g) for g in labels.groups[:SHOWN]]
        if self._parameters.pooled is not None:
            fields = np.vstack((self._parameters.pooled[: layout.D], fields))
            columns = ["pooled", *columns]
        names = [
            f"{n}: {x}"
            for n, levels in zip(labels.names, labels.levels, strict=True)
            for x in levels[1:]
        ]
        table = pd.DataFrame(
            fields[: len(columns), :SHOWN].T, index=names[:SHOWN], columns=columns, dtype=float
        )
        notes = [f"first {SHOWN} of {layout.D}"] if layout.D > SHOWN else []
        notes += (
            [f"first {SHOWN} of {len(labels.groups)} groups"] if len(labels.groups) > SHOWN else []
        )
        return Section(f"Fields h{' (' + ', '.join(notes) + ')' if notes else ''}", table)

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: one or more lines of text, and tables."""
        return self._head_text(), [self._first_fields_section()]

    def _head_text(self) -> str:
        """Return a sentence with the number of coefficients and how to access them."""
        labels = self._labels
        layout = self._parameters.layout
        groups = (
            f"{len(labels.groups)} groups of {labels.response}"
            if labels.response is not None
            else "one group"
        )
        return (
            f"Coefficients of {groups}: {layout.D} fields and {layout.size - layout.D} couplings "
            "each.\n"
            "Single tables: .h[group][predictor], .J[group][a, b], .h0[predictor], .J0[a, b]. "
            "All coefficients: .to_frame()."
        )

    def __repr__(self) -> str:
        fields = self._first_fields_section()
        return f"{self._head_text()}\n\n{fields.heading}:\n{fields.table.to_string()}"


def parameter_names(labels: Labels, layout: Layout) -> list[str]:
    """Return a name for each of the ``size`` parameters: ``a[y]`` for a field, ``a[y]:b[1]`` for a
    coupling.

    Examples
    --------
    >>> labels = Labels("y", ("No", "Yes"), ("a", "b"), (("x", "y", "z"), (0, 1)))
    >>> parameter_names(labels, Layout([3, 2]))
    ['a[y]', 'a[z]', 'b[1]', 'a[y]:b[1]', 'a[z]:b[1]']
    """
    fields = [
        f"{name}[{x}]"
        for name, levels in zip(labels.names, labels.levels, strict=True)
        for x in levels[1:]
    ]
    return [":".join(fields[k] for k in cell if k >= 0) for cell in term_columns(layout).T]


def parameter_columns(labels: Labels, layout: Layout) -> dict[str, pd.Categorical | np.ndarray]:
    """Return the columns of `Coefficients.to_frame` that identify each parameter of each group."""
    K = len(labels.groups)
    # (max(order, 2), K size): for each parameter, the fields (0..D-1) of its levels; -1 if it has
    # fewer predictors
    fields = np.tile(term_columns(layout), K)
    # predictor of each field, (D + 1,); the last entry is for field -1
    predictor = np.append(np.repeat(np.arange(layout.m), np.diff(layout.start)), -1)
    names = _LabelColumn(labels.names)
    levels = _LabelColumn([level for own_levels in labels.levels for level in own_levels[1:]])
    columns = {
        # a coupling has a second predictor
        "term": _LabelColumn(("h", "J")).of_codes((fields[1] >= 0).astype(np.intp)),
        "group": _LabelColumn(labels.groups).of_codes(np.repeat(np.arange(K), layout.size)),
    }
    for k, field in enumerate(fields):  # the k-th predictor of each parameter
        number = str(k + 1) if k else ""
        columns[f"predictor{number}"] = names.of_codes(predictor[field])
        # slopes of numbers have no level
        is_slope = np.isin(predictor[field], labels.numbers)
        columns[f"level{number}"] = levels.of_codes(np.where(is_slope, -1, field))
    return columns


class _LabelColumn:
    """Labels of any type, from which columns are made."""

    def __init__(self, labels: Iterable):
        # position of each distinct label in `_distinct`; types are included, as 1, 1.0 and True are
        # different levels
        positions: dict[tuple, int] = {}
        # the same for each of `labels`
        self._distinct_codes = np.array(
            [positions.setdefault((type(v), v), len(positions)) for v in labels], dtype=np.intp
        )
        self._distinct = label_index([v for _, v in positions])

    def of_codes(self, codes: np.ndarray) -> pd.Categorical | np.ndarray:
        """Return ``labels[code]`` for each code, or a missing value for -1.

        The result is categorical, or an array of objects if distinct labels, such as 1 and True,
        compare equal.
        """
        codes = np.where(codes < 0, -1, self._distinct_codes[codes])
        if self._distinct.is_unique:
            return pd.Categorical.from_codes(codes, self._distinct)
        # code -1 takes the last, None
        return np.append(self._distinct.to_numpy(dtype=object), [None])[codes]


def category_frame(
    columns: Mapping[Any, tuple[np.ndarray, Iterable]], index: pd.Index
) -> pd.DataFrame:
    """Return a frame of categorical columns; `columns` maps each name to a pair (codes, levels),
    where code -1 is a missing value.
    """
    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(codes.astype(np.intp), label_index(levels))
            for name, (codes, levels) in columns.items()
        },
        index=index,
    )


def level_columns(p: np.ndarray, start: np.ndarray) -> list[np.ndarray]:
    """Return the probabilities (n, L_i) of all levels of each predictor, given `p` (n, D)
    for the non-reference levels.

    `start` (m + 1,) contains the bounds of the predictors' columns in `p`.
    """
    tables = [p[:, first:end] for first, end in itertools.pairwise(start)]
    # the reference level has the remaining probability, possibly negative by rounding
    return [np.column_stack([np.maximum(1.0 - table.sum(axis=1), 0.0), table]) for table in tables]


def filled_frame(
    labels: Labels, table: Sequence[np.ndarray], index: pd.Index, best: bool
) -> pd.DataFrame:
    """Return the rows with missing cells filled in: probabilities of levels, or the most probable
    levels if `best`.

    `table` contains the probabilities (n, L_i) of each predictor's levels, 0 or 1 for known cells.
    """
    if best:
        codes = [first_largest(probabilities) for probabilities in table]
        return category_frame(
            dict(zip(labels.names, zip(codes, labels.levels, strict=True), strict=True)), index
        )
    return pd.DataFrame(np.column_stack(table), index=index, columns=level_index(labels))


def level_index(labels: Labels, first: int = 0) -> pd.MultiIndex:
    """Return the levels of all predictors, excluding the first `first` levels of each, as an index
    (predictor, level).
    """
    pairs = [
        (name, x)
        for name, levels in zip(labels.names, labels.levels, strict=True)
        for x in levels[first:]
    ]
    columns = [label_index(pair[k] for pair in pairs) for k in (0, 1)]  # predictors, levels
    return pd.MultiIndex.from_arrays(columns, names=["predictor", "level"])
