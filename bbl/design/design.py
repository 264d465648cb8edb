"""`Design`: the formula, response and predictors of a fit, and the encoding of data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import numpy as np
import pandas as pd

from bbl.checks import choice, flag
from bbl.choices import MissingPolicy
from bbl.design.columns import (
    NO_RESPONSE,
    check_levels,
    check_size,
    check_variable,
    count_levels,
    count_missing,
    describe_missing,
    mark_rows,
    missing_rows,
    read_column,
    read_response,
    read_xlevels,
    refuse_missing_newdata,
    select_rows,
)
from bbl.design.factor_storage import (
    factor_from_dict,
    factor_to_dict,
    name_from_list,
    name_to_list,
    terms_from_dict,
    terms_to_dict,
)
from bbl.design.factors import Factor
from bbl.design.formula import FormulaTerms, has_square, parse
from bbl.design.frames import Frame, to_frame
from bbl.design.interactions import Cube, Interactions
from bbl.design.intervals import interval_ends
from bbl.design.labels import Labels
from bbl.design.numbers import (
    NumberFactor,
    NumberMoments,
    choose_numbers,
    read_numbers,
    refuse_listed_levels,
)
from bbl.design.values import Column, ColumnProblems, frame_column
from bbl.design.weights import are_whole, as_rows, named_weights
from bbl.errors import BBLTypeError, DataError, DataWarning, Hint
from bbl.rows.sample import Sample, code_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["MISSING", "Design", "EncodedTable", "EncodingRules"]

# hint in the error message about an unknown group in new data
GROUP_REMEDY = "Refit with these levels, or leave these rows out."
MISSING = get_args(MissingPolicy)
# minimum number of rows at which a column with only unknown levels causes a warning
MIN_UNKNOWN_ROWS = 10
# with more predictors than this, `check_pairs` is called before all pairs are listed
MAX_UNCHECKED = 1000


@dataclass(frozen=True)
class EncodingRules:
    """Rules for the formulas and tables that an engine or learner accepts.

    Attributes
    ----------
    declared : bool
        Whether all declared levels of categories are kept in their order, even if they do not
        occur. If so, predictors may have a single level, there may be no predictors, and the
        response may be missing (code -1) if ``missing="marginal"``.
    order : int or None
        Highest order of a term that the engine supports (`Engine.order`); None for any order.
    order_reason : str
        Reason why the engine supports no higher order (`Engine.order_reason`).
    whole_weights : bool
        Whether weights must be integers (`Engine.weights`).
    one_sided : bool
        Whether the formula may omit the response; all rows then belong to group 0.
    sums_out : bool
        Whether the error about missing values may suggest ``missing="marginal"``
        (`Engine.refusals`).
    marks : object
        A value that may be the name of a column that marks rows; ``.`` excludes this column. None
        if such a column is not used.
    check_pairs : callable or None
        ``check_pairs(n, K, n_levels)`` is called before all pairs of over 1,000 predictors are
        listed; the arguments are the number of rows, the number of groups, and the number of levels
        of each predictor. It raises an error if there are too many pairs.
    aside : tuple of column names
        Columns of a sampling design: ``.`` excludes them, but they may be named in the formula.
    empty : bool
        Whether a formula with a response may have no predictors (``"y ~ 1"``).
    sampled : bool
        Whether the weights belong to a sampling design and are therefore not frequencies.
    numeric : bool or tuple of column names
        Which predictors are numeric rather than categorical: True for all, False for none, or their
        names.
    standardise : bool
        Whether numeric predictors are centred and divided by their standard deviation.
    measured : bool
        Whether numeric predictors belong to a Boltzmann machine; see `NumberFactor.of_moments`.
        With ``numeric=True``, they are then the float columns and the integer columns with over 20
        values.
    regressors : bool
        Whether these numeric predictors are regressors, for which the model has no distribution.
    numbers_advice : str
        An additional hint in the error about a numeric column that cannot be a factor.
    """

    declared: bool = False
    order: int | None = 2
    order_reason: str = ""
    whole_weights: bool = True
    one_sided: bool = False
    sums_out: bool = True
    marks: object = None
    check_pairs: Callable[[int, int, np.ndarray], None] | None = None
    aside: tuple[Hashable, ...] = ()
    empty: bool = False
    sampled: bool = False
    numeric: bool | tuple[Hashable, ...] = False
    standardise: bool = False
    measured: bool = False
    regressors: bool = False
    numbers_advice: str = ""


class EncodedTable(NamedTuple):
    """A table encoded by `Design.from_data`."""

    design: Design
    # the n rows that have positive weight and are not dropped, in the order of the table
    sample: Sample
    row_labels: pd.Index  # (n,); positions in the table if the table has no index
    row_positions: np.ndarray  # (n,) int; positions of the rows in the table


@dataclass(frozen=True, eq=False)
class Design:
    """The columns of a model: formula, response, and predictors with their levels.

    Attributes
    ----------
    terms : FormulaTerms
        The parsed formula.
    response : Factor
        The response and its groups; without a response, an unnamed factor with the single level
        ``"all"``.
    predictors : tuple of m Factors
        The predictors in the order of ``terms.predictors``.
    missing : {"raise", "drop", "level", "marginal"}
        How missing values in training data and new data are handled; see `from_data`.
    incomplete : int
        Sum of the counts of training rows with missing values: dropped rows with
        ``missing="drop"``, and used rows otherwise.
    declared : bool
        As in `EncodingRules`.
    weights : column name, optional
        Name of the column with the weights of the training rows; new data are weighted by the same
        column if present. None if the weights were an array or all equal.
    """

    terms: FormulaTerms
    response: Factor
    predictors: tuple[Factor, ...]
    missing: str = "raise"
    incomplete: int = 0
    declared: bool = False
    weights: Hashable | None = None

    @property
    def classes(self) -> bool:
        """Whether there is a response, and therefore classes to predict."""
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
    def n_ordered(self) -> np.ndarray:
        """Number of ordered levels of each predictor, excluding ``"(missing)"``, or 0 if the levels
        are not ordered.
        """
        return np.array(
            [len(f.levels) - f.kinds.count("missing") if f.ordered else 0 for f in self.predictors],
            np.intp,
        )

    @cached_property
    def is_number(self) -> np.ndarray:
        """Which predictors are numeric rather than categorical, shape (m,)."""
        return np.array([isinstance(f, NumberFactor) for f in self.predictors], dtype=bool)

    @property
    def n_counted_levels(self) -> np.ndarray:
        """Number of levels of each predictor by which rows can be counted, shape (m,); 1 for
        numeric predictors.
        """
        return np.where(self.is_number, 1, self.n_levels)

    @cached_property
    def regressors(self) -> np.ndarray | None:
        """Mean and standard deviation of each numeric regressor of a Boltzmann machine,
        shape (m, 2), with nan for other predictors; it is None if the model has no such regressors.
        """
        out = np.full((len(self.predictors), 2), np.nan)
        for i, factor in enumerate(self.predictors):
            if isinstance(factor, NumberFactor) and factor.is_regressor:
                out[i] = factor.mean, factor.sd
        return None if np.isnan(out).all() else out

    @property
    def coupling_terms(self) -> list[np.ndarray] | None:
        """Terms for which the model has parameters, excluding terms with numeric predictors that
        have a distribution: an array (T_k, k) for each order from 2 on, or None for all pairs of
        predictors.
        """
        if self.regressors is not None and len(self.squares):
            return [*self.terms.terms, np.column_stack([self.squares, self.squares])]
        if self.regressors is not None or not self.is_number.any():
            return None if self.terms.complete else list(self.terms.terms)
        return [terms[~self.is_number[terms].any(axis=1)] for terms in self.terms.terms]

    @property
    def squares(self) -> np.ndarray:
        """Positions of the numeric predictors that are squared in the formula, such as ``u:u``,
        which the parser treats like ``u``.
        """
        return np.array(
            [
                i
                for i in np.flatnonzero(self.is_number)
                if has_square(self.terms.text, self.predictors[i].name)
            ],
            dtype=np.intp,
        )

    @property
    def number_centers(self) -> np.ndarray:
        """Value that code 0 represents for each of the q numeric predictors in a Boltzmann machine,
        shape (q,).
        """
        return np.array(
            [f.center for f in self.predictors if isinstance(f, NumberFactor) and f.is_measured]
        )

    @cached_property
    def code_dtype(self) -> np.dtype:
        """Data type of the codes: an integer type, or float64 if any predictor is numeric."""
        return np.dtype(np.float64) if self.is_number.any() else code_dtype(self.n_levels)

    def level_codes(self, codes: np.ndarray) -> np.ndarray:
        """Return codes (n, m) as integers, with 0 for numeric predictors."""
        if not self.is_number.any():
            return codes
        return np.where(self.is_number, 0.0, codes).astype(code_dtype(self.n_levels))

    @cached_property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors, and their levels."""
        return Labels(
            self.response.name,
            self.response.levels,
            tuple(f.name for f in self.predictors),
            tuple(f.levels for f in self.predictors),
            tuple(np.flatnonzero(self.is_number).tolist()),
            tuple(i for i, f in enumerate(self.predictors) if f.is_measured),
            tuple(self.number_centers.tolist()),
        )

    def with_intervals(self, cuts: Sequence[np.ndarray]) -> Design:
        """Return the design with numeric predictors cut into intervals; `cuts` contains increasing
        codes for each numeric predictor.
        """
        predictors = list(self.predictors)
        for i, own in zip(np.flatnonzero(self.is_number), cuts, strict=True):
            factor = cast(NumberFactor, predictors[i])
            breaks = np.concatenate([[-np.inf], own * factor.scale + factor.center, [np.inf]])
            levels = tuple(pd.IntervalIndex.from_breaks(breaks))
            kinds = ("other",) * len(levels)
            predictors[i] = Factor(factor.name, levels, kinds, ordered=True, declared=True).padded()
        return replace(self, predictors=tuple(predictors))

    def with_regressors(self, units: np.ndarray) -> Design:
        """Return the design with numeric predictors as regressors with the same codes; `units` is
        the same as in `Layout`.
        """
        predictors = list(self.predictors)
        for i in np.flatnonzero(self.is_number):
            mean, sd = units[i].tolist()
            predictors[i] = replace(
                cast(NumberFactor, predictors[i]),
                levels=("mean", "slope"),
                kinds=("string",) * 2,
                mean=mean,
                sd=sd,
            )
        return replace(self, predictors=tuple(predictors))

    def from_numbers(self, codes: np.ndarray, design: Design) -> np.ndarray:
        """Convert the codes (n, m) of a `design` to codes of this design, where some of the numeric
        predictors are intervals.
        """
        if self.is_number.sum() == design.is_number.sum():
            return codes
        out = codes.copy()
        for i in np.flatnonzero(design.is_number & ~self.is_number):
            number = cast(NumberFactor, design.predictors[i])
            ends = [interval_ends(level) for level in self.predictors[i].levels]
            cuts = [own.high for own in ends[:-1] if own is not None and np.isfinite(own.high)]
            values = codes[:, i] * number.scale + number.center
            out[:, i] = np.searchsorted(cuts, values, side="left")
        return out.astype(self.code_dtype)

    def only(self, predictors: np.ndarray) -> Design:
        """Return the design with some of the predictors (increasing positions) and the terms among
        them.
        """
        new_position = np.full(len(self.predictors), -1)
        new_position[predictors] = np.arange(len(predictors))
        added = {}
        for k, terms_of_order in enumerate(self.terms.terms, 2):
            renumbered = new_position[terms_of_order]
            kept = renumbered[(renumbered >= 0).all(axis=1)]
            if len(kept):
                added[k] = kept
        terms = replace(
            self.terms,
            predictors=tuple(self.terms.predictors[i] for i in predictors),
            interactions=Interactions(Cube(), added),
        )
        return replace(self, terms=terms, predictors=tuple(self.predictors[i] for i in predictors))

    @classmethod
    def from_data(
        cls,
        formula: str,
        data: object,
        weights: Hashable | ArrayLike | None = None,
        xlevels: Mapping | None = None,
        novarOk: bool = False,
        missing: str = "raise",
        rules: EncodingRules | None = None,
    ) -> EncodedTable:
        """Parse a formula, collect the levels from the data, and encode the rows.

        Parameters
        ----------
        formula : str
            See `bbl.design.formula.parse`.
        data : DataFrame (pandas, polars), pyarrow Table or dict of columns
        weights : column name or array_like of shape (n,), optional
            Frequencies. The formula's ``.`` excludes the column of weights. An array is matched by
            position; a pandas Series must have the same index as `data`. Rows with weight 0 are
            dropped before levels are determined.
        xlevels : dict of column name to list of levels, optional
            All levels of a predictor, in order, including levels that do not occur. For the
            response, `xlevels` only defines the order of the levels.
        novarOk : bool, default False
            Whether predictors with one level are allowed. Such predictors receive a second level
            ``"(other)"``, which never occurs.
        missing : {"raise", "drop", "level", "marginal"}, default "raise"
            "raise" raises an error for missing values; "drop" drops rows with missing values before
            levels are determined; "level" treats missing values as a last level ``"(missing)"``;
            "marginal" marks them in ``sample.missing``. A missing response is allowed only with
            "drop".
        rules : EncodingRules, optional
            The requirements of the engine or learner.

        Returns
        -------
        EncodedTable

        Raises
        ------
        FormulaError, DataError, LevelError, BBLTypeError
            If the formula, a column or an argument is invalid.
        BBLError
            If terms of three or more predictors have more parameters than fit into memory.

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
        frame = data if isinstance(data, Frame) else to_frame(data)
        rules = rules or EncodingRules()
        declared = rules.declared
        flag("novarOk", novarOk)
        choice("missing", missing, MISSING)
        flag("declared", declared)
        weights_name, counts = named_weights(weights, frame, rules.whole_weights)  # counts: (n,)
        # columns that the formula's "." excludes, with a description of their contents
        exclude = {} if weights_name is None else {weights_name: "the weights"}
        if rules.marks is not None and frame.has(rules.marks):
            exclude |= {rules.marks: "the marks of structural zeros"}
        terms = parse(
            formula,
            frame.columns,
            exclude,
            order=rules.order,
            empty=declared or rules.empty,
            one_sided=rules.one_sided,
            reason=rules.order_reason,
            aside=rules.aside,
        )
        if not terms.predictors and terms.response is None and not declared:
            # raises the error, because no columns are left
            parse(formula, frame.columns, exclude, one_sided=True)
        m = len(terms.predictors)
        # interactions.count(2): number of pairs in the formula
        if (
            rules.check_pairs is not None
            and m > MAX_UNCHECKED
            and terms.interactions.count(2) == m * (m - 1) // 2
        ):
            used = np.flatnonzero(counts > 0)
            # the response, if there is one, comes first
            n_levels = count_levels(frame, terms.columns, used, xlevels)
            rules.check_pairs(
                len(used), n_levels[0] if len(n_levels) > m else 1, np.array(n_levels[-m:])
            )
        # positions of the used rows, and of the rows dropped by missing="drop"
        keep, dropped = select_rows(frame, terms, counts, missing)
        index = frame.index
        n_dropped = counts[dropped]
        if len(keep) < frame.n:
            counts = counts[keep]
            index = index[keep]
        # number of observations per row, for messages; real-valued weights are not counts
        n_observed = counts
        if rules.sampled or not are_whole(counts):
            n_observed = np.ones(len(counts))
            n_dropped = np.ones(len(dropped))
            counts = as_rows(counts)
        incomplete = round(float(n_dropped.sum()))
        levels_by_name = read_xlevels(xlevels, terms)
        problems = ColumnProblems()  # collected, so that one error can name all columns
        with problems.of_column():
            response, y = read_response(
                frame, terms, keep, levels_by_name, declared, missing, n_observed
            )

        described = False

        def tell_missing() -> str:
            """Return a sentence about missing values in all predictors; later calls return ""."""
            nonlocal described
            if described:
                return ""
            described = True
            try:
                n_incomplete = int(missing_rows(frame, terms.predictors)[keep].sum())
                n_missing = count_missing(frame, terms.predictors, keep)
            except (DataError, BBLTypeError):  # another column's problem, reported separately
                return ""
            return describe_missing(n_missing, len(keep) - n_incomplete, len(keep))

        numeric: tuple[Hashable, ...] = ()
        if rules.numeric:
            numeric = choose_numbers(
                rules.numeric, terms.predictors, frame if rules.measured else None
            )
        # converted to a wider type below if a column needs it; written column by column
        codes = np.empty((len(keep), len(terms.predictors)), dtype=np.uint8, order="F")
        # is_missing: mask (n, m), or None if no values are missing, which is always the case with
        # "raise" and "drop"
        factors = []
        is_missing = None
        for i, name in enumerate(terms.predictors):
            with problems.of_column():
                factor, factor_codes, column_missing = (
                    _read_number(frame, name, keep, counts, rules, levels_by_name, missing)
                    if name in numeric
                    else read_column(
                        frame,
                        name,
                        keep,
                        levels_by_name,
                        missing,
                        declared,
                        sums_out=rules.sums_out,
                        tell_missing=tell_missing,
                        n_observed=n_observed,
                        numbers_advice=rules.numbers_advice,
                    )
                )
                if factor_codes.dtype.itemsize > codes.dtype.itemsize:
                    codes = codes.astype(factor_codes.dtype)
                codes[:, i] = factor_codes
                factors.append(factor)
                is_missing = mark_rows(is_missing, codes.shape, i, column_missing)
        if not (novarOk or declared):
            with problems.of_column():
                check_variable([f for f in factors if not f.is_measured])
        if not declared:
            check_levels(factors, float(n_observed.sum()), problems)
        problems.refuse()
        check_size(terms, factors, len(response.levels))
        # with "level" or "marginal": the number of used rows with missing predictors
        if is_missing is not None:
            incomplete = round(float(n_observed[is_missing.any(axis=1)].sum()))
        # `padded` ensures at least two levels
        predictors = tuple(factors if declared else [f.padded() for f in factors])
        design = cls(terms, response, predictors, missing, incomplete, declared, weights_name)
        # with "level", the codes contain the missing values
        codes = np.ascontiguousarray(codes)
        sample = Sample(codes, counts, y, is_missing if missing == "marginal" else None)
        return EncodedTable(design, sample, index, keep)

    def groups(self, frame: Frame) -> np.ndarray:
        """Return the group code of each training row, shape (n,), or 0 if it is missing or
        unknown.
        """
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        column = frame_column(frame, self.response.name)
        return self.response.encode(column, "ignore", skip_missing=True)[0].astype(np.intp)

    def encode(
        self, newdata: object, unseen: str = "raise", missing: str | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Encode the predictors of new data, matched by column name; ignore other columns.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of columns
        unseen : {"raise", "ignore"}, default "raise"
            Whether an unknown level is an error or is treated as missing.
        missing : {"raise", "drop", "level", "marginal"}, optional
            As in `from_data`; by default, the value used in the fit.

        Returns
        -------
        codes : ndarray of uint8, uint16 or int32, shape (n, m), C-contiguous
            Level codes; 0 where `missing` is True. The type is float64 if there are numeric
            predictors (see `NumberFactor`).
        missing : ndarray of bool, shape (n, m), or None
            Mask of values that are unknown levels, or that are missing although the predictor has
            no level for missing values; None if all values are known.

        Raises
        ------
        DataError
            If a column is absent, or has missing values and ``missing="raise"``.
        LevelError
            If a level is unknown. With ``missing="level"``, missing values are unknown levels of
            predictors that have no missing values in the training data.
        BBLTypeError
            If `newdata` is not a table.
        """
        choice("unseen", unseen, ("raise", "ignore"))
        frame = to_frame(newdata, "newdata")
        codes = np.empty((frame.n, len(self.predictors)), dtype=self.code_dtype, order="F")
        policy = missing or self.missing
        is_missing = None
        problems = ColumnProblems()
        for i, factor in enumerate(self.predictors):
            with problems.of_column():
                if isinstance(factor, NumberFactor):
                    values = read_numbers(factor.name, frame.column(factor.name), "newdata")
                    is_nan = np.isnan(values)
                    if is_nan.any():
                        if policy == "raise":
                            column = frame_column(frame, factor.name)
                            refuse_missing_newdata(column, factor.is_regressor)
                        is_missing = mark_rows(is_missing, codes.shape, i, is_nan)
                    codes[:, i] = np.where(is_nan, 0.0, factor.to_codes(values))
                    continue
                column = frame_column(frame, factor.name)
                if policy == "raise":
                    refuse_missing_newdata(column)
                skip_missing = policy != "level"
                codes[:, i], is_unseen = factor.encode(
                    column, unseen, "newdata", skip_missing=skip_missing
                )
                if unseen == "ignore" and is_unseen is not None:
                    _warn_of_unknown(factor, column, is_unseen, frame.argument)
                # mark unknown levels, and missing values that are not a separate level
                is_missing = mark_rows(is_missing, codes.shape, i, is_unseen)
                is_missing = mark_rows(
                    is_missing, codes.shape, i, column.missing() if skip_missing else None
                )
        problems.refuse()
        return np.ascontiguousarray(codes), is_missing

    def weigh(
        self, frame: Frame, weights: Hashable | ArrayLike | None
    ) -> tuple[np.ndarray, Hashable | None]:
        """Return the weights (n,) of new rows, and the name of the fit's weights column if it is
        used.

        `weights` is an array or a column name. If it is None, the weights are in the column that
        contained the weights of the training data; if the new data do not have this column, all
        weights are 1.
        """
        fit_column = self.weights
        if weights is not None or fit_column is None or not frame.has(fit_column):
            # whole=False: weights can have fractions
            return named_weights(weights, frame, whole=False)[1], None
        try:
            return named_weights(fit_column, frame, whole=False)[1], fit_column
        except (DataError, BBLTypeError) as error:
            raise type(error)(
                f"newdata has the column {fit_column!r}, which contained the weights of the "
                f"training data. In newdata, {error.message}",
                hint=Hint(
                    "Correct it, or pass weights=numpy.ones(len(newdata)) to weight rows equally.",
                    command_line="Correct it, or leave the column out to weight rows equally.",
                ),
                column=fit_column,
                argument="weights",
            ) from None

    def dropped(self, newdata: object) -> np.ndarray | None:
        """Return a mask of the new rows that would be dropped, or None unless
        ``missing="drop"``.
        """
        if self.missing != "drop":
            return None
        return missing_rows(to_frame(newdata, "newdata"), [f.name for f in self.predictors])

    def encode_response(self, data: object) -> np.ndarray:
        """Return the group code of each new row, shape (n,); raise a LevelError for unknown groups.

        A missing group has code -1 with declared levels and ``missing="marginal"``; otherwise, it
        raises an error.
        """
        frame = to_frame(data, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        column = frame_column(frame, self.response.name)
        if not (self.declared and self.missing == "marginal"):
            refuse_missing_newdata(column)
        y = self.response.encode(
            column, "raise", "newdata", skip_missing=True, remedy=GROUP_REMEDY
        )[0].astype(np.intp)
        if (is_missing := column.missing()) is not None:
            y[is_missing] = -1
        return y

    def known_groups(self, newdata: object) -> np.ndarray:
        """Return the group code of each new row, shape (n,), which is -1 if the response is missing
        or absent.
        """
        frame = to_frame(newdata, "newdata")
        if not self.classes:
            return np.zeros(frame.n, dtype=np.intp)
        if not frame.has(self.response.name):
            return np.full(frame.n, -1)
        column = frame_column(frame, self.response.name)
        y = self.response.encode(
            column, "raise", "newdata", skip_missing=True, remedy=GROUP_REMEDY
        )[0].astype(np.intp)
        is_missing = column.missing()
        return y if is_missing is None else np.where(is_missing, -1, y)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain lists, strings and numbers, suitable for JSON.

        Levels and names are stored as pairs of kind and value. Values of kind "other" (intervals,
        bytes) are stored and restored as text; they still match equal values in new data.
        """
        return {
            "formula": self.terms.text,
            # "none": no response
            "response": factor_to_dict(self.response) if self.classes else "none",
            "predictors": [factor_to_dict(f) for f in self.predictors],
            **terms_to_dict(self.terms.interactions, len(self.predictors)),
            "missing": self.missing,
            "incomplete": self.incomplete,
            **({"declared": True} if self.declared else {}),
            **({} if self.weights is None else {"weights": name_to_list(self.weights)}),
        }

    @classmethod
    def from_dict(cls, stored: Mapping) -> Design:
        """Restore a design from the result of `to_dict`; raise a DataError if it is invalid.

        The formula is restored as text and not parsed.
        """
        try:
            declared = flag("declared", stored.get("declared", False))
            response = (
                NO_RESPONSE
                if stored["response"] == "none"
                else factor_from_dict(stored["response"])
            )
            # a predictor has at least two levels, or at least one if levels are declared (2 - True)
            predictors = tuple(factor_from_dict(f, 2 - declared) for f in stored["predictors"])
            names = tuple(f.name for f in predictors)
            terms = FormulaTerms(
                stored["formula"], response.name, names, terms_from_dict(stored, len(names))
            )
            # absent from files of early versions
            missing = stored.get("missing", "raise")
            incomplete = stored.get("incomplete", 0)
            weights = name_from_list(stored["weights"]) if "weights" in stored else None
            is_count = type(incomplete) is int and incomplete >= 0
            if missing not in MISSING or not is_count or (missing == "raise" and incomplete):
                raise ValueError("its treatment of missing values is invalid")
            # all names must differ, including the response's name (or None)
            if (
                not isinstance(terms.text, str)
                or not (names or declared or response.name is not None)
                or len({response.name, *names}) <= len(names)
            ):
                raise ValueError("formula and names do not match")
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise DataError(
                f"the stored design is corrupt ({error}). Store it again with to_dict()."
            ) from None
        return cls(terms, response, predictors, missing, incomplete, declared, weights)


def _read_number(
    frame: Frame,
    name: Hashable,
    keep: np.ndarray,
    counts: np.ndarray,
    rules: EncodingRules,
    levels_by_name: Mapping[Hashable, Factor],
    missing: str,
) -> tuple[NumberFactor, np.ndarray, None]:
    """Return the factor of a numeric column, and its codes in the rows `keep`.

    `counts` contains the weights of these rows; `levels_by_name` contains the levels listed by the
    user, which must not include this column; `missing` is the same as in `Design.from_data`.
    """
    refuse_listed_levels(name, levels_by_name)
    values = read_numbers(name, frame.column(name))[keep]
    moments = NumberMoments(name)
    moments.add(values, counts)
    moments.refuse_missing(missing)
    factor = (
        NumberFactor.of_moments(moments, rules.regressors)
        if rules.measured
        else NumberFactor.of_values(name, values, counts, rules.standardise)
    )
    if rules.measured and not rules.regressors:
        moments.warn_of_few_values(stacklevel=7)  # the caller of a public function
    return factor, factor.to_codes(values), None


def _warn_of_unknown(factor: Factor, column: Column, is_unseen: np.ndarray, argument: str) -> None:
    """Warn if all values of a column are unknown levels.

    `is_unseen` (n,) marks the unknown values; `argument` is the name of the table in the warning.
    """
    is_missing = column.missing()
    n_known = column.n - int(is_unseen.sum())
    if n_known > (0 if is_missing is None else int((is_missing & ~is_unseen).sum())):
        return
    used = np.flatnonzero(column.used())
    values = [column.values[k] for k in used]
    remedy = factor.type_remedy([column.kinds[k] for k in used], values, argument)
    # With a few rows, all values may be rare levels; values of another type are always a mistake.
    if not remedy and column.n < MIN_UNKNOWN_ROWS:
        return
    shown = ", ".join(repr(v) for v in values if v is not None)[:60]
    known = ", ".join(map(repr, factor.levels[:3]))
    warnings.warn(
        DataWarning(
            f"column {factor.name!r} of {argument} has only unknown levels: {shown}. The model "
            f"was fitted with {known}. Predictions ignore this column.",
            hint=remedy or "Check that it is the same column as in the training data.",
            column=factor.name,
        ),
        stacklevel=5,  # the caller of a method of a result
    )
