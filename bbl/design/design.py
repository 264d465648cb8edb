"""Design: what a fit knows about its columns; encodes training data and, later, new data the same way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, flag, near_match
from bbl.design.factors import Column, Factor, factorise
from bbl.design.formula import FormulaTerms, parse
from bbl.design.frames import Frame, to_frame
from bbl.design.labels import Labels
from bbl.design.stored import factor_from_dict, factor_to_dict, terms_from_dict, terms_to_dict
from bbl.design.weights import column_weights
from bbl.errors import BBLTypeError, DataError, DataWarning, LevelError
from bbl.memory import check_memory
from bbl.rows.sample import Sample, code_dtype

__all__ = ["MISSING", "Design", "missing_rows"]

MISSING = ("raise", "drop", "level", "marginal")
NO_RESPONSE = Factor(None, ("all",), ("string",), False)  # of a formula without one: all rows are one group
FEW, LARGE = 20, 100  # distinct values that always pass as levels; levels that are warned of where they are rare:
RARE = 6  # fewer observations per level than this
MANY = 1000  # predictors whose pairs are announced before they are listed


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
        data: Any,
        weights: Any = None,
        xlevels: Mapping | None = None,
        novarOk: bool = False,
        missing: str = "raise",
        announce: Callable[[int, int, np.ndarray], None] | None = None,
        declared: bool = False,
        order: int = 2,
        one_sided: bool = False,
    ) -> tuple[Design, Sample, pd.Index]:
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
        declared : bool, default False
            Whether the declared levels of categories count, in their order, whether they occur or not. Then a
            predictor may have one level, there need be no predictors, and with ``missing="marginal"`` the response
            may be unknown (-1).
        order : int, default 2
            The most predictors in a term that the engine takes (`Engine.order`).
        one_sided : bool, default False
            Whether the formula may be without a response; then all rows are of group 0.

        Returns
        -------
        design : Design
        sample : Sample
            The rows of positive weight that are not dropped, in the order of the data.
        index : pandas.Index
            Their row labels (positions in the data, for tables without an index).

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
        >>> design, sample, index = Design.from_data("y ~ .", data, weights="n")
        >>> sample.codes.tolist(), sample.weights.tolist(), index.tolist()
        ([[0], [1]], [3.0, 2.0], [0, 1])
        """
        frame = to_frame(data)
        flag("novarOk", novarOk)
        choice("missing", missing, MISSING)
        flag("declared", declared)
        named, counts = column_weights(weights, frame, data)
        exclude = () if named is None else (named,)
        terms = parse(formula, frame.columns, exclude, order, empty=declared, one_sided=one_sided)
        m = len(terms.predictors)
        if announce is not None and m > MANY and terms.interactions.count(2) == m * (m - 1) // 2:
            used = np.flatnonzero(counts > 0)
            sizes = _level_counts(frame, _columns(terms), used, xlevels)
            announce(len(used), sizes[0] if len(sizes) > m else 1, np.array(sizes[-m:]))
        keep, incomplete = _kept(frame, terms, counts, missing)
        index = frame.index
        if len(keep) < frame.n:
            counts, index = counts[keep], index[keep]
        given = _given(xlevels, terms)
        response, y = _groups(frame, terms, keep, given, declared, missing)
        read = (_read(frame, name, keep, given, missing, declared) for name in terms.predictors)
        codes = np.empty((len(keep), len(terms.predictors)), dtype=np.uint8)
        factors, is_missing = [], None
        for i, (factor, own, own_missing) in enumerate(read):
            if own.dtype.itemsize > codes.dtype.itemsize:
                codes = codes.astype(own.dtype)
            codes[:, i] = own
            factors.append(factor)
            is_missing = _marked(is_missing, codes.shape, i, own_missing)
        if not (novarOk or declared):
            _check_variable(factors)
        if not declared:
            _check_levels(frame, factors, given, float(counts.sum()))
        _check_size(terms, factors, len(response.levels))
        if is_missing is not None:
            incomplete = round(float(counts[is_missing.any(axis=1)].sum()))
        marked = is_missing if missing == "marginal" else None
        predictors = tuple(factors if declared else [f.padded() for f in factors])
        design = cls(terms, response, predictors, missing, incomplete, declared)
        return design, Sample(codes, counts, y, marked), index

    def kept(self, data: Any, weights: Any = None) -> np.ndarray:
        """Return which rows of the training data a fit uses: their positions in `data`; arguments as in `from_data`."""
        frame = to_frame(data)
        return _kept(frame, self.terms, column_weights(weights, frame, data)[1], self.missing)[0]

    def groups(self, data: Any) -> np.ndarray:
        """Return the group of every row of the training data as codes, shape (n,); 0 where it is missing or none."""
        if not self.classes:
            return np.zeros(to_frame(data).n, dtype=np.intp)
        column = factorise(self.response.name, to_frame(data).column(self.response.name), "keep")
        return self.response.encode(column, "ignore", skip_missing=True)[0].astype(np.intp)

    def encode(
        self, newdata: Any, unseen: str = "raise", missing: str | None = None
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
            column = factorise(factor.name, frame.column(factor.name), "keep")
            if policy == "raise":
                _refuse_missing(column)
            skip_missing = policy != "level"
            codes[:, i], strange = factor.encode(column, unseen, "newdata", skip_missing=skip_missing)
            blank = _marked(blank, codes.shape, i, strange)
            blank = _marked(blank, codes.shape, i, column.missing() if skip_missing else None)
        return codes, blank

    def dropped(self, newdata: Any) -> np.ndarray | None:
        """Return which rows of new data have a missing predictor, if such rows are to be dropped, shape (n,)."""
        if self.missing != "drop":
            return None
        return missing_rows(to_frame(newdata, "newdata"), [f.name for f in self.predictors])

    def encode_response(self, data: Any) -> np.ndarray:
        """Return the group of each row of new data as codes, shape (n,); an unknown group is a LevelError.

        With declared levels and ``missing="marginal"`` a missing group is -1, elsewhere it is an error.
        """
        frame = to_frame(data, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        column = factorise(self.response.name, frame.column(self.response.name), "keep")
        if not (self.declared and self.missing == "marginal"):
            _refuse_missing(column)
        y = self.response.encode(column, argument="newdata", skip_missing=True)[0].astype(np.intp)
        if (blank := column.missing()) is not None:
            y[blank] = -1
        return y

    def known_groups(self, newdata: Any) -> np.ndarray:
        """Return the group of each row of new data as codes, shape (n,); -1 where the response is not known."""
        frame = to_frame(newdata, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        if not frame.has(self.response.name):
            return np.full(frame.n, -1)
        column = factorise(self.response.name, frame.column(self.response.name), "keep")
        y = self.response.encode(column, argument="newdata", skip_missing=True)[0].astype(np.intp)
        blank = column.missing()
        return y if blank is None else np.where(blank, -1, y)

    def index(self, newdata: Any) -> pd.Index:
        """Return the row labels of new data: its index, or 0..n-1 for tables that have none."""
        return to_frame(newdata, "newdata").index

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain lists, strings and numbers, ready for JSON.

        Levels and names are stored as pairs of kind and value. Values of kind "other" (intervals, bytes) are
        stored, and come back, as text; they still match the same values in new data.
        """
        return {
            "formula": self.terms.text,
            "response": factor_to_dict(self.response) if self.classes else None,
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
            response = NO_RESPONSE if stored["response"] is None else factor_from_dict(stored["response"])
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


def _given(xlevels: Mapping | None, terms: FormulaTerms) -> dict[Hashable, Factor]:
    """Check the levels that the user gives."""
    if xlevels is None:
        return {}
    if not isinstance(xlevels, Mapping):
        raise BBLTypeError(
            f"xlevels must be a dict of column names to lists of levels; got {type(xlevels).__name__}.",
            argument="xlevels",
        )
    used = _columns(terms)
    for name in xlevels:
        if name not in used:
            hint = near_match(name, used) or "."
            raise DataError(
                f"xlevels names {name!r}, which the formula does not use{hint} Leave it out.",
                column=name,
                argument="xlevels",
            )
    return {name: Factor.given(name, levels) for name, levels in xlevels.items()}


def _columns(terms: FormulaTerms) -> list[Hashable]:
    """Return the columns that a formula uses: the response, if there is one, and the predictors."""
    return [*([] if terms.response is None else [terms.response]), *terms.predictors]


def missing_rows(frame: Frame, names: Iterable[Hashable]) -> np.ndarray:
    """Return which rows have a missing value in one of the columns `names`."""
    out = np.zeros(frame.n, dtype=bool)
    for name in names:
        is_missing = factorise(name, frame.column(name), "keep").missing()
        if is_missing is not None:
            out |= is_missing
    return out


def _refuse_missing(column: Column) -> None:
    """Raise a DataError if a column of new data has missing values: what the fit could do about them is past."""
    is_missing = column.missing()
    if is_missing is not None:
        count = int(is_missing.sum())
        raise DataError(
            f"column {column.name!r} of newdata has {count} missing value{'s' * (count > 1)}, and the model was fitted "
            "with missing='raise'. Predict the other rows alone, or fit with missing='marginal': predict then sums "
            "missing predictors out, and a fit to complete rows stays the same.",
            column=column.name,
            argument="newdata",
        )


def _kept(frame: Frame, terms: FormulaTerms, counts: np.ndarray, missing: str) -> tuple[np.ndarray, int]:
    """Return the rows that are used, and the weight of those dropped for missing values."""
    keep = np.flatnonzero(counts > 0)
    return _drop(frame, _columns(terms), keep, counts) if missing == "drop" else (keep, 0)


def _drop(frame: Frame, names: Iterable[Hashable], keep: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, int]:
    """Return which of the rows to `keep` have no missing value, and the weight of the others."""
    is_missing = missing_rows(frame, names)[keep]
    if is_missing.all():
        raise DataError(
            "every row has a missing value, so missing='drop' leaves none. Leave the predictors with most of them out "
            "of the formula, or use missing='level' or 'marginal'.",
            argument="missing",
        )
    return keep[~is_missing], round(float(counts[keep[is_missing]].sum()))


def _marked(mask: np.ndarray | None, shape: tuple[int, ...], i: int, rows: np.ndarray | None) -> np.ndarray | None:
    """Return the mask, made when first needed, with the `rows` of column `i` set too."""
    if rows is not None:
        mask = np.zeros(shape, dtype=bool) if mask is None else mask
        mask[:, i] |= rows
    return mask


def _read(
    frame: Frame,
    name: Hashable,
    keep: np.ndarray,
    given: dict,
    missing: str | None,
    declared: bool = False,
    policy: str | None = None,
) -> tuple[Factor, np.ndarray, np.ndarray | None]:
    """Return a column's factor, codes and missing values, from the rows to keep.

    For the response `missing` is None; it may be unknown where `declared` levels count and `policy` is "marginal".
    """
    series = frame.column(name)
    column = factorise(name, series if len(keep) == frame.n else series.iloc[keep], missing or "keep")
    is_missing = column.missing()
    known = missing is not None or (declared and policy == "marginal")
    if not known and is_missing is not None:
        count = int(is_missing.sum())
        raise DataError(
            f"column {name!r} has {count} missing value{'s' * (count > 1)}, and is the response, which has to be "
            f"known. Drop the rows: data.dropna(subset=[{name!r}]), or missing='drop'.",
            column=name,
        )
    factor = given[name] if name in given else Factor.collect(column, keep_order=missing is None, unused=declared)
    if not factor.levels:
        raise DataError(f"column {name!r} has no value that is not missing. Leave it out of the formula.", column=name)
    if is_missing is not None and missing == "level":
        factor = factor.with_missing()
    argument = "xlevels" if name in given else "data"
    return factor, factor.encode(column, argument=argument, skip_missing=missing in ("marginal", None))[0], is_missing


def _groups(
    frame: Frame, terms: FormulaTerms, keep: np.ndarray, given: dict, declared: bool, missing: str
) -> tuple[Factor, np.ndarray]:
    """Return the response's factor and codes; -1 where it may be, and is, unknown."""
    if terms.response is None:
        return NO_RESPONSE, np.zeros(len(keep), dtype=np.intp)
    response, codes, blank = _read(frame, terms.response, keep, given, None, declared, missing)
    _check_groups(response, codes, declared)
    y = codes.astype(np.intp)
    if blank is not None:
        y[blank] = -1
    return response, y


def _level_counts(frame: Frame, names: list[Hashable], keep: np.ndarray, xlevels: Mapping | None) -> list[int]:
    """Return how many levels columns have, at least 2, without judging them."""
    out = []
    for name in names:
        given = xlevels.get(name) if isinstance(xlevels, Mapping) else None
        series = frame.column(name)
        try:
            count = (
                len(given) if given is not None else (series.iloc[keep] if len(keep) < frame.n else series).nunique()
            )
        except (TypeError, NotImplementedError):  # what cannot be levels is refused later
            count = 2
        out.append(max(2, count))
    return out


def _check_groups(response: Factor, y: np.ndarray, declared: bool) -> None:
    if len(response.levels) < 2:
        raise DataError(
            f"the response {response.name!r} has the single level {response.levels[0]!r}, so there is nothing to "
            "tell apart. Give data of at least two groups.",
            column=response.name,
        )
    empty = np.flatnonzero(np.bincount(y, minlength=len(response.levels)) == 0)
    if len(empty) and not declared:
        raise LevelError(
            f"the response {response.name!r} has no rows of level {response.levels[empty[0]]!r}. Leave it out of "
            "xlevels.",
            column=response.name,
            argument="xlevels",
        )


def _check_size(terms: FormulaTerms, factors: list[Factor], K: int) -> None:
    """Refuse a model of higher terms that would not fit into memory, before its terms are listed."""
    if terms.order > 2:
        count = [terms.interactions.count(k) for k in range(2, terms.order + 1)]
        size = terms.interactions.n_couplings([len(f.levels) for f in factors])
        check_memory(
            16.0 * (K + 1) * size + sum(32.0 * k * n for k, n in enumerate(count, 2)),
            f"A model of {sum(count)} terms with {size} couplings in each of {K} groups",
            f"Ask for terms of a lower order than {terms.order}, or of fewer predictors.",
        )


def _check_variable(factors: list[Factor]) -> None:
    constant = [f.name for f in factors if len(f.levels) < 2]
    if constant:
        shown = ", ".join(map(repr, constant[:5])) + (f", and {len(constant) - 5} more" * (len(constant) > 5))
        raise LevelError(
            f"predictors with one level: {shown}. Drop them with removeConst(data), give their levels in xlevels, or "
            "pass novarOk=True.",
            column=constant[0],
        )


def _check_levels(frame: Frame, factors: list[Factor], given: Mapping, total: float) -> None:
    """Refuse columns that are identifiers, unless their levels are declared; warn of many rare levels."""
    rare = []
    for factor in factors:
        L, name = len(factor.levels), factor.name
        declared = name in given or isinstance(frame.column(name).dtype, pd.CategoricalDtype)
        if L > FEW and total < 2 * L and not declared:
            raise DataError(
                f"column {name!r} looks like an identifier: {L} distinct values in {total:.0f} observations. Leave it "
                f"out of the formula (- {name}), or group its values; if each of them is a level, make it a category.",
                column=name,
            )
        if L > LARGE and total < RARE * L:
            rare.append(f"{name!r} ({L} levels in {total:.0f} observations)")
    if rare:
        more = f" and {len(rare) - 3} more" if len(rare) > 3 else ""
        warnings.warn(
            f"Most levels are rare in {', '.join(rare[:3])}{more}: a fit takes long, and says little about them. Group "
            "the rare levels, or leave the predictor out.",
            DataWarning,
            stacklevel=4,
        )
