"""Tables of fields and couplings by the names of groups, predictors and levels, made at each look-up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.labels import Labels
from bbl.model.layout import Layout, term_columns
from bbl.model.parameters import Parameters
from bbl.names import label_index
from bbl.stats.ties import first_largest

__all__ = [
    "Coefficients",
    "CouplingTables",
    "FieldTables",
    "Named",
    "category_frame",
    "filled_frame",
    "level_columns",
    "level_index",
    "parameter_names",
]

SHOWN = 10  # names or rows of a repr


def _position(kind: str, name: object, positions: Mapping[Any, int]) -> int:
    """Return the number of a group or a predictor (its `kind`); a KeyError with hints if the model has no such name."""
    try:
        return positions[name]
    except (KeyError, TypeError):  # TypeError: a name that cannot be a key
        names = ", ".join(map(repr, list(positions)[:SHOWN])) + (" and more" if len(positions) > SHOWN else "")
        hint = near_match(name, positions) or "."
        raise KeyError(f"{name!r} is no {kind} of this model{hint} It has {names}.") from None


class Named:
    """Attributes by name too, as R's lists have them: ``coef["h"]`` is ``coef.h``."""

    def __getitem__(self, name: object) -> Any:
        names = [attribute for attribute in vars(self) if not attribute.startswith("_")]
        if name not in names:
            raise KeyError(f"{name!r} is no part of this{near_match(name, names) or '.'} It has {', '.join(names)}.")
        return getattr(self, str(name))

    __iter__ = None  # else Python would count from 0


class _GroupTables(Mapping):
    """Tables of one group's parameter vector, by the names of predictors."""

    def __init__(self, labels: Labels, layout: Layout, theta: np.ndarray):
        self._labels, self._layout, self._theta = labels, layout, theta
        self._positions = {name: i for i, name in enumerate(labels.names)}


class FieldTables(_GroupTables):
    """Fields of one group by predictor: a Series over the non-reference levels, made at each look-up.

    Parameters
    ----------
    labels : Labels
    layout : Layout
    theta : ndarray, shape (layout.size,)
    """

    def __getitem__(self, name: object) -> pd.Series:
        i = _position("predictor", name, self._positions)
        values = self._layout.table(self._theta, i)
        return pd.Series(values.copy(), index=label_index(self._labels.levels[i][1:]), name=self._labels.names[i])

    def __iter__(self) -> Iterator:
        return iter(self._labels.names)

    def __len__(self) -> int:
        return len(self._labels.names)

    def __repr__(self) -> str:
        return _shortened("Fields of", [repr(name) for name in self._labels.names[:SHOWN]], len(self))


class CouplingTables(_GroupTables):
    """Couplings of one group by the predictors of a term: levels of the first by levels of the others.

    The predictors may be asked for in any order; iteration gives each term once, pairs first, in the order of the
    predictors. A pair gives a DataFrame; with three predictors and more the columns have a level of labels for each
    after the first. Tables are made at each look-up.

    Parameters
    ----------
    labels : Labels
    layout : Layout
    theta : ndarray, shape (layout.size,)
    """

    def __getitem__(self, term: object) -> pd.DataFrame:
        order = max(self._layout.order, 2)
        if not isinstance(term, tuple) or not 2 <= len(term) <= order:
            owners = "a pair of predictors, as in" if order == 2 else f"two to {order} predictors, as in"
            raise KeyError(f"Couplings belong to {owners} J[group]['a', 'b']; got {term!r}.")
        scope = [_position("predictor", name, self._positions) for name in term]
        if len(set(scope)) < len(scope) or self._layout.index(*scope) < 0:
            shown = ", ".join(map(repr, term[:-1])) + f" and {term[-1]!r}"
            raise KeyError(f"{shown} do not interact in this model.")
        levels = [label_index(self._labels.levels[i][1:], self._labels.names[i]) for i in scope]
        values = self._layout.table(self._theta, *scope)
        columns = levels[1] if len(scope) == 2 else _product(levels[1:])
        return pd.DataFrame(values.reshape(len(values), -1).copy(), index=levels[0], columns=columns)

    def __iter__(self) -> Iterator[tuple]:
        names = self._labels.names
        return (tuple(names[i] for i in term) for terms in self._layout.terms for term in terms)

    def __len__(self) -> int:
        return self._layout.n_terms

    def __repr__(self) -> str:
        terms = [f"({', '.join(map(repr, term))})" for term in islice(self, SHOWN)]
        return _shortened("Couplings of", terms, len(self))


def _product(levels: list[pd.Index]) -> pd.MultiIndex:
    """Return all combinations of levels, the last predictor running fastest."""
    return pd.MultiIndex.from_product(levels, names=[index.name for index in levels])


class _Groups(Mapping):
    """Tables of every group: maps its name to a `kind` (`FieldTables` or `CouplingTables`)."""

    def __init__(self, kind: type[_GroupTables], labels: Labels, parameters: Parameters):
        self._kind, self._labels, self._parameters = kind, labels, parameters
        self._positions = {group: g for g, group in enumerate(labels.groups)}

    def __getitem__(self, group: object):
        g = _position("group", group, self._positions)
        return self._kind(self._labels, self._parameters.layout, self._parameters.theta[g])

    def __iter__(self) -> Iterator:
        return iter(self._labels.groups)

    def __len__(self) -> int:
        return len(self._labels.groups)

    def __repr__(self) -> str:
        return _shortened("Tables of", [repr(g) for g in self._labels.groups[:SHOWN]], len(self))


def _shortened(title: str, names: list[str], n: int) -> str:
    if not n:
        return f"<{title} nothing>"
    return f"<{title} {', '.join(names)}{f', ... ({n} in all)' if n > len(names) else ''}>"


class Coefficients(Named):
    """Coefficients of a fit by label; what ``coef()`` returns. As in R, ``coef["h"]`` is ``coef.h``.

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
        ``J[group][a, b]``: DataFrame of couplings, levels of `a` by levels of `b`; ``J[group][b, a]`` is its
        transpose. ``J[group][a, b, c]`` has the levels of `a` by those of `b` and `c`.
    h0, J0 : Mapping or None
        The same of the pooled fit, without the group; None if it was not made.

    Raises
    ------
    KeyError
        On looking up a group, a predictor or a pair that the model does not have; the message names it.

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
        self._labels, self._parameters = labels, parameters
        self.h: Mapping[Any, FieldTables] = _Groups(FieldTables, labels, parameters)
        self.J: Mapping[Any, CouplingTables] = _Groups(CouplingTables, labels, parameters)
        pooled, layout = parameters.pooled, parameters.layout
        self.h0 = None if pooled is None else FieldTables(labels, layout, pooled)
        self.J0 = None if pooled is None else CouplingTables(labels, layout, pooled)

    def to_frame(self) -> pd.DataFrame:
        """Return all coefficients as a long frame, one row each.

        Returns
        -------
        DataFrame
            Columns ``term`` ('h' or 'J'), ``group``, ``predictor``, ``level``, ``predictor2``, ``level2`` (missing
            for fields), with terms of three predictors ``predictor3``, ``level3`` (missing for pairs) and so on,
            ``estimate``, ``pooled`` and ``difference`` (nan without a pooled fit). Groups follow each other; within
            a group the fields come first, then the couplings pair by pair, then those of terms of three, and so on.
            Labels are categorical, or objects where two different levels compare equal (1 and True).
        """
        labels, parameters = self._labels, self._parameters
        layout, K = parameters.layout, len(labels.groups)
        levels = [level for predictor_levels in labels.levels for level in predictor_levels[1:]]
        columns = np.tile(term_columns(layout), K)  # field numbers (order, K size), -1 for none
        predictor = np.append(np.repeat(np.arange(layout.m), np.diff(layout.start)), -1)  # of each field; last of -1
        pooled = np.full(layout.size, np.nan) if parameters.pooled is None else parameters.pooled
        labelled = {}
        for k, fields in enumerate(columns):
            number = str(k + 1) if k else ""
            labelled[f"predictor{number}"] = _labelled(labels.names, predictor[fields])
            labelled[f"level{number}"] = _labelled(levels, fields)
        return pd.DataFrame(
            {
                "term": _labelled(("h", "J"), (columns[1] >= 0).astype(np.intp)),
                "group": _labelled(labels.groups, np.repeat(np.arange(K), layout.size)),
                **labelled,
                "estimate": parameters.theta.ravel(),
                "pooled": np.tile(pooled, K),
                "difference": (parameters.theta - pooled).ravel(),
            }
        )

    def __repr__(self) -> str:
        labels, layout = self._labels, self._parameters.layout
        fields = self._parameters.theta[:, : layout.D]
        of = f"{len(labels.groups)} groups of {labels.response}" if labels.response is not None else "one group"
        columns = [str(g) for g in labels.groups[:SHOWN]]
        if self._parameters.pooled is not None:
            fields = np.vstack((self._parameters.pooled[: layout.D], fields))
            columns = ["pooled", *columns]
        names = [(n, x) for n, levels in zip(labels.names, labels.levels, strict=True) for x in levels[1:]][:SHOWN]
        table = pd.DataFrame(fields[: len(columns), :SHOWN].T, columns=columns, dtype=float)
        table.index = [f"{n}: {x}" for n, x in names]
        cut = [f"first {SHOWN} of {layout.D}"] if layout.D > SHOWN else []
        cut += [f"first {SHOWN} of {len(labels.groups)} groups"] if len(labels.groups) > SHOWN else []
        return (
            f"Coefficients of {of}: {layout.D} fields and "
            f"{layout.size - layout.D} couplings each.\n"
            "Look up .h[group][predictor], .J[group][a, b], .h0[predictor], .J0[a, b]; .to_frame() has all.\n\n"
            f"Fields h{' (' + ', '.join(cut) + ')' if cut else ''}:\n{table.to_string()}"
        )


def parameter_names(labels: Labels, layout: Layout) -> list[str]:
    """Return a name for each parameter, such as ``a[y]`` for a field and ``a[y]:b[1]`` for a coupling.

    Examples
    --------
    >>> labels = Labels("y", ("No", "Yes"), ("a", "b"), (("x", "y", "z"), (0, 1)))
    >>> parameter_names(labels, Layout([3, 2]))
    ['a[y]', 'a[z]', 'b[1]', 'a[y]:b[1]', 'a[z]:b[1]']
    """
    fields = [f"{name}[{x}]" for name, levels in zip(labels.names, labels.levels, strict=True) for x in levels[1:]]
    return [":".join(fields[k] for k in cell if k >= 0) for cell in term_columns(layout).T]


def _labelled(values: Iterable, codes: np.ndarray) -> pd.Categorical | np.ndarray:
    """Return the label of each code, -1 for a missing one."""
    numbers: dict[tuple, int] = {}  # by type too: 1, 1.0 and True are different levels
    number = np.array([numbers.setdefault((type(v), v), len(numbers)) for v in values], dtype=np.intp)
    distinct = label_index([v for _, v in numbers])
    codes = np.where(codes < 0, -1, number[codes])
    if distinct.is_unique:
        return pd.Categorical.from_codes(codes, distinct)
    return np.append(distinct.to_numpy(dtype=object), [None])[codes]


def category_frame(columns: Mapping[Any, tuple[np.ndarray, Iterable]], index: pd.Index) -> pd.DataFrame:
    """Return columns of codes and their levels as categories."""
    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(codes.astype(np.intp), label_index(levels))
            for name, (codes, levels) in columns.items()
        },
        index=index,
    )


def level_columns(p: np.ndarray, start: np.ndarray) -> list[np.ndarray]:
    """Return the probabilities (n, L_i) of all levels by predictor, from those (n, D) of non-reference levels."""
    tables = [p[:, a:b] for a, b in itertools.pairwise(start)]
    return [np.column_stack([np.maximum(1.0 - table.sum(axis=1), 0.0), table]) for table in tables]


def filled_frame(labels: Labels, table: Sequence[np.ndarray], index: pd.Index, best: bool) -> pd.DataFrame:
    """Return the probabilities of all levels by predictor and level, or the most likely level of each predictor."""
    if best:
        codes = [first_largest(probabilities) for probabilities in table]
        return category_frame(dict(zip(labels.names, zip(codes, labels.levels, strict=True), strict=True)), index)
    return pd.DataFrame(np.column_stack(table), index=index, columns=level_index(labels))


def level_index(labels: Labels, first: int = 0) -> pd.MultiIndex:
    """Return the levels of each predictor from number `first` on, as an index of ``predictor`` and ``level``."""
    pairs = [(name, x) for name, levels in zip(labels.names, labels.levels, strict=True) for x in levels[first:]]
    columns = [label_index(pair[k] for pair in pairs) for k in (0, 1)]
    return pd.MultiIndex.from_arrays(columns, names=["predictor", "level"])
