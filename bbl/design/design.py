"""Design: from a formula and a data frame to encoded rows, and the same encoding for new rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, near_match
from bbl.design.factors import Factor, Table
from bbl.design.formula import FormulaTerms, parse
from bbl.design.labels import Labels
from bbl.design.sample import Sample, code_dtype
from bbl.errors import BBLTypeError, DataError

__all__ = ["Design", "check_weights"]


def check_weights(weights: Any, n: int, index: pd.Index | None = None) -> np.ndarray:
    """Return frequency weights as float64, or say what is wrong with them.

    Parameters
    ----------
    weights : array_like, shape (n,), or None
        Whole numbers of at least 0; None for ones.
    n : int
        Number of rows.
    index : pandas.Index, optional
        Row labels of the data; a Series of weights must have the same.

    Raises
    ------
    DataError, BBLTypeError
        Naming ``weights``.
    """
    if weights is None:
        return np.ones(n)
    if isinstance(weights, pd.Series) and index is not None and not weights.index.equals(index):
        raise DataError(
            "weights is a Series with another index than data; align it, or give weights.to_numpy().", argument="weights"
        )
    array = np.asarray(weights.to_numpy() if hasattr(weights, "to_numpy") else weights)
    if array.ndim != 1:
        raise DataError(f"weights must be one-dimensional; got {array.ndim} dimensions.", argument="weights")
    if len(array) != n:
        raise DataError(f"weights has {len(array)} entries, but data has {n} rows.", argument="weights")
    if array.dtype == object:
        try:
            array = pd.to_numeric(pd.Series(array)).to_numpy()
        except (TypeError, ValueError):
            pass
    if array.dtype.kind not in "buif":
        raise BBLTypeError(f"weights must be numbers; got type {array.dtype}.", argument="weights")
    values = array.astype(np.float64)
    for wrong, what in (
        (~np.isfinite(values), "missing or infinite"),
        (values < 0, "negative"),
        (values != np.floor(values), "not a whole number (weights are frequencies)"),
    ):
        if wrong.any():
            k = int(np.argmax(wrong))
            raise DataError(f"weights[{k}] = {array[k]} is {what}.", argument="weights")
    if n and not values.any():
        raise DataError("weights are all 0; no observations are left.", argument="weights")
    return values


@dataclass(frozen=True)
class Design:
    """How rows of data become codes: the formula's terms and the levels of every factor.

    Attributes
    ----------
    terms : FormulaTerms
    response : Factor
    predictors : tuple of m Factor
    """

    terms: FormulaTerms
    response: Factor
    predictors: tuple[Factor, ...]

    @cached_property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""
        return Labels(
            self.response.name,
            self.response.levels,
            tuple(p.name for p in self.predictors),
            tuple(p.levels for p in self.predictors),
        )

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Number of levels of each predictor."""
        return tuple(len(p.levels) for p in self.predictors)

    @property
    def pairs(self) -> np.ndarray:
        """Interacting pairs of predictors (P, 2)."""
        return self.terms.pairs

    @classmethod
    def from_data(
        cls, formula: str, data: Any, weights: Any = None, xlevels: dict | None = None, novarOk: bool = False
    ) -> tuple[Design, Sample, pd.Index]:
        """Read a formula over data: levels, codes, weights.

        Parameters
        ----------
        formula : str
        data : data frame, pyarrow Table or dict of lists
        weights : column name or array, optional
            Rows of weight 0 are dropped before levels are collected.
        xlevels : dict of predictor name to levels, optional
        novarOk : bool, default False
            Whether a predictor may have a single level; it gets a second one, ``"(other)"``, that never occurs.

        Returns
        -------
        (Design, Sample, Index)
            The design, the encoded rows of positive weight, and their labels.

        Raises
        ------
        FormulaError, DataError, LevelError, BBLTypeError
        """
        table = Table(data)
        if not table.n:
            raise DataError("data has no rows.", argument="data")
        w, exclude = _weights(weights, table)
        terms = parse(formula, table.columns, exclude)
        known = _known_levels(xlevels, terms)
        rows = None if (w > 0).all() else np.flatnonzero(w > 0)
        response = table.column(terms.response, rows)
        y = Factor.collect(terms.response, response, response=True)
        columns = [table.column(name, rows) for name in terms.predictors]
        factors = tuple(
            Factor.collect(name, column, known=known.get(name), novarOk=novarOk)
            for name, column in zip(terms.predictors, columns, strict=True)
        )
        design = cls(terms, y, factors)
        kept = np.arange(table.n) if rows is None else rows
        codes, _ = design._stack([f.encode(c) for f, c in zip(factors, columns, strict=True)], len(kept))
        index = (pd.RangeIndex(table.n) if table.index is None else table.index)[kept]
        return design, Sample(codes, w[kept], y.encode(response)[0].astype(np.intp)), index

    def _stack(self, encoded: list, n: int) -> tuple[np.ndarray, np.ndarray | None]:
        codes = np.empty((n, len(encoded)), dtype=code_dtype(self.n_levels))
        unknown = None
        for i, (column, where) in enumerate(encoded):
            codes[:, i] = column
            if where is not None:
                unknown = np.zeros(codes.shape, dtype=bool) if unknown is None else unknown
                unknown[:, i] = where
        return codes, unknown

    def encode(self, newdata: Any, unseen: str = "raise") -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes (n, m) of new rows, and which of them are unknown levels (None for none).

        Columns are found by name; others are ignored, and so is their order.

        Parameters
        ----------
        newdata : data frame, pyarrow Table or dict of lists
        unseen : {"raise", "ignore"}
            Whether an unknown level is an error, or is marked.

        Raises
        ------
        DataError, LevelError, BBLTypeError
        """
        choice("unseen", unseen, ("raise", "ignore"))
        table = Table(newdata, "newdata")
        for factor in self.predictors:
            table.check(factor.name, "predictor")
        return self._stack([f.encode(table.column(f.name), unseen) for f in self.predictors], table.n)

    def index(self, newdata: Any) -> pd.Index:
        """Return the row labels of new data: a pandas index, or 0, 1, ..."""
        return newdata.index if isinstance(newdata, pd.DataFrame) else pd.RangeIndex(Table(newdata, "newdata").n)

    def to_dict(self) -> dict:
        """Return the design as lists, strings and numbers, for a model file."""
        for name in (self.response.name, *self.labels.names):
            if not isinstance(name, str | int):
                raise BBLTypeError(f"column name {name!r} cannot be saved; rename columns to strings.", column=name)
        factors = [self.response, *self.predictors]
        return {
            "formula": self.terms.text,
            "names": [f.name for f in factors],
            "levels": [[_packed(f.name, v) for v in f.levels] for f in factors],
            "pairs": self.terms.pairs.tolist() if len(self.terms.pairs) < self._all_pairs else None,
        }

    @property
    def _all_pairs(self) -> int:
        m = len(self.predictors)
        return m * (m - 1) // 2

    @classmethod
    def from_dict(cls, saved: dict) -> Design:
        """Return the design of `to_dict`."""
        factors = [
            Factor(name, tuple(_unpacked(v) for v in levels))
            for name, levels in zip(saved["names"], saved["levels"], strict=True)
        ]
        m = len(factors) - 1
        pairs = np.column_stack(np.triu_indices(m, 1)) if saved["pairs"] is None else np.array(saved["pairs"])
        pairs = pairs.reshape(-1, 2).astype(np.intp)
        terms = FormulaTerms(saved["formula"], factors[0].name, tuple(f.name for f in factors[1:]), pairs)
        return cls(terms, factors[0], tuple(factors[1:]))


def _packed(name: Hashable, level: Any) -> Any:
    """Return a level as JSON holds it: a non-integral float as its exact hexadecimal form."""
    if isinstance(level, float):
        return {"float": level.hex()}
    if isinstance(level, str | int):
        return level
    raise BBLTypeError(
        f"level {level!r} of column {name!r} is of type {type(level).__name__}, which cannot be saved; make strings of "
        "the levels before fitting.",
        column=name,
    )


def _unpacked(level: Any) -> Any:
    return float.fromhex(level["float"]) if isinstance(level, dict) else level


def _weights(weights: Any, table: Table) -> tuple[np.ndarray, Sequence]:
    """Return the weights and the columns that thereby are no predictors."""
    if weights is None or hasattr(weights, "__array__") or isinstance(weights, list | range):
        return check_weights(weights, table.n, table.index), ()
    try:
        found = weights in table.columns
    except TypeError:
        found = False
    if found:
        return check_weights(table.values(weights), table.n), (weights,)
    if isinstance(weights, str):
        raise DataError(
            f"weights={weights!r} is no column of data{near_match(weights, table.columns)}. Give a column name or an array.",
            argument="weights",
        )
    if isinstance(weights, tuple) or hasattr(weights, "to_numpy"):
        return check_weights(weights, table.n), ()
    raise BBLTypeError(
        f"weights must be a column name or an array of length {table.n}; got {type(weights).__name__}.", argument="weights"
    )


def _known_levels(xlevels: Any, terms: FormulaTerms) -> dict:
    if xlevels is None:
        return {}
    if not isinstance(xlevels, dict):
        raise BBLTypeError(
            f"xlevels must be a dict of predictor name to list of levels; got {type(xlevels).__name__}.", argument="xlevels"
        )
    for name in xlevels:
        if name not in terms.predictors:
            raise DataError(
                f"xlevels names {name!r}, which is no predictor{near_match(name, terms.predictors)}.",
                argument="xlevels",
                column=name,
            )
    return xlevels
