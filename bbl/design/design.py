"""Design: what a fit knows about its columns; encodes training data and, later, new data the same way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bbl.checks import choice, flag
from bbl.design.columns import (
    NO_RESPONSE,
    check_levels,
    check_size,
    check_variable,
    given_levels,
    kept_rows,
    level_counts,
    mark_rows,
    missing_rows,
    read_column,
    read_response,
    refuse_missing,
)
from bbl.design.factor_storage import factor_from_dict, factor_to_dict, terms_from_dict, terms_to_dict
from bbl.design.factors import Factor
from bbl.design.formula import FormulaTerms, parse
from bbl.design.frames import Frame, to_frame
from bbl.design.labels import Labels
from bbl.design.values import frame_column
from bbl.design.weights import named_weights
from bbl.errors import DataError
from bbl.rows.sample import Sample, code_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["MISSING", "Design", "EncodedTable", "EncodingRules"]

UNKNOWN_GROUP = "Refit with them, or leave those rows out"
MISSING = ("raise", "drop", "level", "marginal")
MANY = 1000  # predictors whose pairs are announced before they are listed


@dataclass(frozen=True)
class EncodingRules:
    """Rules by which a formula and a table are accepted, set by the engine or learner that is to be fitted.

    Attributes
    ----------
    declared : bool
        Whether the declared levels of categories count, in their order, whether they occur or not. Then a predictor
        may have one level, there need be no predictors, and with ``missing="marginal"`` the response may be unknown
        (-1).
    order : int or None
        The most predictors in a term that the engine takes (`Engine.order`); None for any number.
    order_reason : str
        Why it takes no more (`Engine.order_reason`).
    whole_weights : bool
        Whether weights have to be whole numbers (`Engine.weights`).
    one_sided : bool
        Whether the formula may be without a response; then all rows are of group 0.
    sums_out : bool
        Whether the error of missing values may advise ``missing="marginal"`` (`Engine.refusals`).
    """

    declared: bool = False
    order: int | None = 2
    order_reason: str = ""
    whole_weights: bool = True
    one_sided: bool = False
    sums_out: bool = True


class EncodedTable(NamedTuple):
    """A table encoded by `Design.from_data`.

    Attributes
    ----------
    design : Design
    sample : Sample
        The n rows of positive weight that are not dropped, in the order of the table.
    row_labels : pandas.Index, length n
        Their labels (positions in the table, if it has no index).
    row_positions : ndarray of int, shape (n,)
        Their positions in the table.
    """

    design: Design
    sample: Sample
    row_labels: pd.Index
    row_positions: np.ndarray


@dataclass(frozen=True, eq=False)
class Design:
    """The columns of a model: formula, response and predictors with their levels.

    Attributes
    ----------
    terms : FormulaTerms
        The formula, read.
    response : Factor
        The response and its groups; without a response, the factor of no name whose one level is ``"all"``.
    predictors : tuple of m Factors
        In the order of ``terms.predictors``.
    missing : {"raise", "drop", "level", "marginal"}
        What is done with missing values, in the training data and in new data.
    incomplete : int
        Training observations (sum of weights) with missing values.
    declared : bool
        Whether the declared levels of categories count, in their order, whether they occur or not.
    """

    terms: FormulaTerms
    response: Factor
    predictors: tuple[Factor, ...]
    missing: str = "raise"
    incomplete: int = 0
    declared: bool = False

    @property
    def classes(self) -> bool:
        """Whether there is a response, and so classes to predict."""
        return self.response.name is not None

    @property
    def pairs(self) -> np.ndarray:
        """Interacting pairs of predictors, shape (P, 2)."""
        return self.terms.pairs

    @cached_property
    def n_levels(self) -> np.ndarray:
        """Number of levels of each predictor, shape (m,)."""
        return np.array([len(f.levels) for f in self.predictors], dtype=np.intp)

    @cached_property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""
        return Labels(
            self.response.name,
            self.response.levels,
            tuple(f.name for f in self.predictors),
            tuple(f.levels for f in self.predictors),
        )

    @classmethod
    def from_data(
        cls,
        formula: str,
        data: object,
        weights: Hashable | ArrayLike | None = None,
        xlevels: Mapping | None = None,
        novarOk: bool = False,
        missing: str = "raise",
        announce: Callable[[int, int, np.ndarray], None] | None = None,
        rules: EncodingRules | None = None,
    ) -> EncodedTable:
        """Read a formula against data, collect the levels, and encode the rows.

        Parameters
        ----------
        formula : str
            See `bbl.design.formula.parse`.
        data : DataFrame (pandas, polars), pyarrow Table or dict of columns
        weights : column name or array_like of shape (n,), optional
            Frequencies. A column of that name is then no predictor of ``.``. An array goes by position; a pandas
            Series must have the index of `data`. Rows of weight 0 are dropped before levels are collected.
        xlevels : dict of column name to list of levels, optional
            All levels of a predictor, in order, whether they occur or not. For the response only the order.
        novarOk : bool, default False
            Whether predictors with one level are allowed. They get a second level ``"(other)"`` that never occurs.
        missing : {"raise", "drop", "level", "marginal"}, default "raise"
            Whether missing values are an error, their rows are dropped before levels are collected, they are a last
            level ``"(missing)"`` of their predictor, or are marked in ``sample.missing``. The response must be known,
            unless rows are dropped.
        announce : callable, optional
            ``announce(n, K, n_levels)`` is called, with the numbers of rows, groups and levels, before all pairs of
            very many predictors are listed. It may raise.
        rules : EncodingRules, optional
            What the engine or learner that is to be fitted takes.

        Returns
        -------
        EncodedTable

        Raises
        ------
        FormulaError, DataError, LevelError, BBLTypeError
            Each names the column or argument, and what to do.
        BBLError
            If terms of three or more predictors have more parameters than there is memory for.

        Warns
        -----
        DataWarning
            If a predictor has over 100 levels, most of them rare.

        Examples
        --------
        >>> data = {"y": ["no", "yes", "no"], "a": [0, 1, 1], "n": [3, 2, 0]}
        >>> design, sample, index, row_positions = Design.from_data("y ~ .", data, weights="n")
        >>> sample.codes.tolist(), sample.weights.tolist(), index.tolist(), row_positions.tolist()
        ([[0], [1]], [3.0, 2.0], [0, 1], [0, 1])
        """
        frame, rules = to_frame(data), rules or EncodingRules()
        declared = rules.declared
        flag("novarOk", novarOk)
        choice("missing", missing, MISSING)
        flag("declared", declared)
        named, counts = named_weights(weights, frame, rules.whole_weights)
        exclude = () if named is None else (named,)
        terms = parse(formula, frame.columns, exclude, rules.order, declared, rules.one_sided, rules.order_reason)
        m = len(terms.predictors)
        if announce is not None and m > MANY and terms.interactions.count(2) == m * (m - 1) // 2:
            used = np.flatnonzero(counts > 0)
            sizes = level_counts(frame, terms.columns, used, xlevels)
            announce(len(used), sizes[0] if len(sizes) > m else 1, np.array(sizes[-m:]))
        keep, incomplete = kept_rows(frame, terms, counts, missing)
        index = frame.index
        if len(keep) < frame.n:
            counts, index = counts[keep], index[keep]
        levels_by_name = given_levels(xlevels, terms)
        response, y = read_response(frame, terms, keep, levels_by_name, declared, missing)
        read = (
            read_column(frame, name, keep, levels_by_name, missing, declared, sums_out=rules.sums_out)
            for name in terms.predictors
        )
        codes = np.empty((len(keep), len(terms.predictors)), dtype=np.uint8)
        factors, is_missing = [], None
        for i, (factor, factor_codes, own_missing) in enumerate(read):
            if factor_codes.dtype.itemsize > codes.dtype.itemsize:
                codes = codes.astype(factor_codes.dtype)
            codes[:, i] = factor_codes
            factors.append(factor)
            is_missing = mark_rows(is_missing, codes.shape, i, own_missing)
        if not (novarOk or declared):
            check_variable(factors)
        if not declared:
            check_levels(factors, float(counts.sum()))
        check_size(terms, factors, len(response.levels))
        if is_missing is not None:
            incomplete = round(float(counts[is_missing.any(axis=1)].sum()))
        marked = is_missing if missing == "marginal" else None
        predictors = tuple(factors if declared else [f.padded() for f in factors])
        design = cls(terms, response, predictors, missing, incomplete, declared)
        return EncodedTable(design, Sample(codes, counts, y, marked), index, keep)

    def groups(self, frame: Frame) -> np.ndarray:
        """Return the group of every row of the training data as codes, shape (n,); 0 where it is missing or none."""
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        column = frame_column(frame, self.response.name)
        return self.response.encode(column, "ignore", skip_missing=True)[0].astype(np.intp)

    def encode(
        self, newdata: object, unseen: str = "raise", missing: str | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Encode the predictors of new data by column name; other columns, and the response, are not looked at.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of columns
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or is as good as missing.
        missing : {"raise", "drop", "level", "marginal"}, optional
            What is done with missing values; as in the fit by default.

        Returns
        -------
        codes : ndarray of uint8, uint16 or int32, shape (n, m), C-contiguous
            Missing values are coded 0.
        missing : ndarray of bool, shape (n, m), or None
            Which values are missing, if that is no level of its own, or are at a level that the model does not know;
            None if there are none.

        Raises
        ------
        DataError
            If a column is absent, or has missing values (with ``missing="raise"``); names it.
        LevelError
            If a level is unknown; names column and level. With ``missing="level"``, a missing value is a level that a
            predictor without missing training values does not know.
        BBLTypeError
            If `newdata` is no table.
        """
        choice("unseen", unseen, ("raise", "ignore"))
        frame = to_frame(newdata, "newdata")
        codes = np.empty((frame.n, len(self.predictors)), dtype=code_dtype(self.n_levels))
        policy, blank = missing or self.missing, None
        for i, factor in enumerate(self.predictors):
            column = frame_column(frame, factor.name)
            if policy == "raise":
                refuse_missing(column)
            skip_missing = policy != "level"
            codes[:, i], strange = factor.encode(column, unseen, "newdata", skip_missing=skip_missing)
            blank = mark_rows(blank, codes.shape, i, strange)
            blank = mark_rows(blank, codes.shape, i, column.missing() if skip_missing else None)
        return codes, blank

    def dropped(self, newdata: object) -> np.ndarray | None:
        """Return which rows of new data have a missing predictor, if such rows are to be dropped, shape (n,)."""
        if self.missing != "drop":
            return None
        return missing_rows(to_frame(newdata, "newdata"), [f.name for f in self.predictors])

    def encode_response(self, data: object) -> np.ndarray:
        """Return the group of each row of new data as codes, shape (n,); an unknown group is a LevelError.

        With declared levels and ``missing="marginal"`` a missing group is -1, elsewhere it is an error.
        """
        frame = to_frame(data, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        column = frame_column(frame, self.response.name)
        if not (self.declared and self.missing == "marginal"):
            refuse_missing(column)
        y = self.response.encode(column, "raise", "newdata", True, UNKNOWN_GROUP)[0].astype(np.intp)
        if (blank := column.missing()) is not None:
            y[blank] = -1
        return y

    def known_groups(self, newdata: object) -> np.ndarray:
        """Return the group of each row of new data as codes, shape (n,); -1 where the response is not known."""
        frame = to_frame(newdata, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        if not frame.has(self.response.name):
            return np.full(frame.n, -1)
        column = frame_column(frame, self.response.name)
        y = self.response.encode(column, "raise", "newdata", True, UNKNOWN_GROUP)[0].astype(np.intp)
        blank = column.missing()
        return y if blank is None else np.where(blank, -1, y)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain lists, strings and numbers, ready for JSON.

        Levels and names are stored as pairs of kind and value. Values of kind "other" (intervals, bytes) are
        stored, and come back, as text; they still match the same values in new data.
        """
        return {
            "formula": self.terms.text,
            "response": factor_to_dict(self.response) if self.classes else "none",
            "predictors": [factor_to_dict(f) for f in self.predictors],
            **terms_to_dict(self.terms.interactions, len(self.predictors)),
            "missing": self.missing,
            "incomplete": self.incomplete,
            **({"declared": True} if self.declared else {}),
        }

    @classmethod
    def from_dict(cls, stored: Mapping) -> Design:
        """Return the design that `to_dict` stored; the formula is kept as text and is not read again.

        Raises
        ------
        DataError
            If `stored` is no design.
        """
        try:
            declared = flag("declared", stored.get("declared", False))
            response = NO_RESPONSE if stored["response"] == "none" else factor_from_dict(stored["response"])
            predictors = tuple(factor_from_dict(f, 2 - declared) for f in stored["predictors"])
            names = tuple(f.name for f in predictors)
            terms = FormulaTerms(stored["formula"], response.name, names, terms_from_dict(stored, len(names)))
            # files from before there was a choice
            missing, incomplete = stored.get("missing", "raise"), stored.get("incomplete", 0)
            counted = type(incomplete) is int and incomplete >= 0
            if missing not in MISSING or not counted or (missing == "raise" and incomplete):
                raise ValueError("it says nothing sensible of missing values")
            if not isinstance(terms.text, str) or not (names or declared) or len({response.name, *names}) <= len(names):
                raise ValueError("formula and names do not fit")
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise DataError(f"the stored design is corrupt ({error}). Store it again with to_dict().") from None
        return cls(terms, response, predictors, missing, incomplete, declared)
