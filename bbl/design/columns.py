"""Read table columns as factors and level codes, and raise errors for columns that cannot be
modelled.

Shared arguments: `levels_by_name` maps column names to the factors given in `xlevels`; `keep`
contains the positions of the used rows; `missing` is "raise", "drop", "level" or "marginal";
`declared` indicates whether declared levels are kept even if they do not occur.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.factors import MAX_FRACTIONS, Factor, check_discrete, refuse_identifier
from bbl.design.formula import FormulaTerms
from bbl.design.frames import Frame
from bbl.design.values import (
    Column,
    ColumnProblems,
    Counted,
    factorise,
    frame_column,
    refuse_missing_training,
    with_order,
)
from bbl.errors import BBLTypeError, DataError, DataWarning, Hint, LevelError
from bbl.memory import check_memory

__all__ = [
    "NO_RESPONSE",
    "check_groups",
    "check_levels",
    "check_size",
    "check_variable",
    "column_factor",
    "count_levels",
    "count_missing",
    "describe_missing",
    "mark_rows",
    "missing_rows",
    "read_column",
    "read_response",
    "read_xlevels",
    "refuse_missing_newdata",
    "refuse_no_rows_left",
    "select_rows",
]

# columns with at most this many distinct values are never treated as identifiers
MAX_UNQUESTIONED_LEVELS = 20
MANY_LEVELS = 100  # columns with more levels than this cause a warning if the levels are rare
RARE_BELOW = 6  # levels are rare if their average number of observations is below this
# response of a formula without a response: all rows belong to one group
NO_RESPONSE = Factor(None, ("all",), ("string",), ordered=False)


def read_xlevels(xlevels: Mapping | None, terms: FormulaTerms) -> dict[Hashable, Factor]:
    """Return the factors of the columns listed in `xlevels`; raise an error for columns that are
    not in the formula.
    """
    if xlevels is None:
        return {}
    if not isinstance(xlevels, Mapping):
        raise BBLTypeError(
            "xlevels must be a dict that maps column names to lists of levels; got "
            f"{type(xlevels).__name__}.",
            argument="xlevels",
        )
    formula_columns = terms.columns
    for name in xlevels:
        if name not in formula_columns:
            near = near_match(name, formula_columns)
            raise DataError(
                f"xlevels contains {name!r}, which is not in the formula.",
                column=name,
                argument="xlevels",
                hint=f"{near}Leave it out.",
            )
    return {name: Factor.from_list(name, levels) for name, levels in xlevels.items()}


def missing_rows(frame: Frame, names: Iterable[Hashable]) -> np.ndarray:
    """Return a mask (n,) of the rows with a missing value in any of the columns `names`."""
    has_missing = np.zeros(frame.n, dtype=bool)
    for name in names:
        is_missing = frame_column(frame, name).missing()
        if is_missing is not None:
            has_missing |= is_missing
    return has_missing


def refuse_missing_newdata(column: Column, is_regressor: bool = False) -> None:
    """Raise a DataError if a column of new data has missing values (for ``missing="raise"``).

    `is_regressor` indicates whether the model treats the column as given and has no distribution
    for it.
    """
    is_missing = column.missing()
    if is_missing is not None:
        count = int(is_missing.sum())
        raise DataError(
            f"column {column.name!r} of newdata has {count} missing value{'s' * (count > 1)}, but "
            f"the model was fitted with missing='raise'.",
            column=column.name,
            argument="newdata",
            hint=(
                "Predict only the other rows, fill in the value, or fit with method='pseudo' and "
                "missing='marginal', which averages over missing numbers."
                if is_regressor
                else "Predict only the other rows, or fit with missing='marginal', which averages "
                "over missing predictors in predict and does not change a fit to complete "
                "rows."
            ),
        )


def select_rows(
    frame: Frame, terms: FormulaTerms, counts: np.ndarray, missing: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the used rows, and of the rows that are dropped because of missing
    values.

    Used rows have positive `counts` (n,) and, with ``missing="drop"``, no missing values.
    """
    keep = np.flatnonzero(counts > 0)
    if missing != "drop":
        return keep, keep[:0]
    is_missing = missing_rows(frame, terms.columns)[keep]
    if is_missing.all():
        refuse_no_rows_left(count_missing(frame, terms.columns, keep), len(keep))
    return keep[~is_missing], keep[is_missing]


def count_missing(frame: Frame, names: Iterable[Hashable], keep: np.ndarray) -> dict:
    """Return the number of missing values in the rows `keep`, by column name."""
    return {
        name: factorise(name, frame.column(name).iloc[keep], missing="keep").n_missing
        for name in names
    }


def describe_missing(counts: dict[Hashable, int], n_complete: int, n: int) -> str:
    """Return a sentence about missing values in several columns, which is appended to an error
    message.

    `counts` contains the number of missing values in each column; `n_complete` of the `n` rows are
    complete. The sentence is empty unless at least two columns have missing values.
    """
    if sum(count > 0 for count in counts.values()) < 2:
        return ""
    most = max(counts, key=lambda name: counts[name])
    return (
        f" {n_complete:,} of {n:,} rows are complete. Column {most!r} has the most missing values "
        f"({counts[most]:,})."
    )


def refuse_no_rows_left(counts: dict[Hashable, int], n: int) -> None:
    """Raise an error because ``missing="drop"`` would drop all `n` rows.

    `counts` contains the number of missing values in each column.
    """
    most = max(counts, key=lambda name: counts[name])
    raise DataError(
        "every row has a missing value, so missing='drop' leaves no rows. Column "
        f"{most!r} is missing in {counts[most]:,} of {n:,} rows.",
        argument="missing",
        column=most,
        hint=(
            f"Leave columns with many missing values, such as {most!r}, out of the formula, or "
            f"make missing values a separate level (missing='level')."
        ),
    )


def mark_rows(
    mask: np.ndarray | None, shape: tuple[int, ...], i: int, rows: np.ndarray | None
) -> np.ndarray | None:
    """Mark the rows selected by `rows` (n,) in column `i` of `mask`, in place, and return `mask`.

    If `mask` is None, create a mask of the given shape (n, m). If `rows` is None, return `mask`
    unchanged.
    """
    if rows is not None:
        mask = np.zeros(shape, dtype=bool) if mask is None else mask
        mask[:, i] |= rows
    return mask


def read_column(
    frame: Frame,
    name: Hashable,
    keep: np.ndarray,
    levels_by_name: dict[Hashable, Factor],
    missing: str,
    declared: bool = False,
    is_response: bool = False,
    sums_out: bool = True,
    tell_missing: Callable[[], str] | None = None,
    n_observed: np.ndarray | None = None,
    numbers_advice: str = "",
) -> tuple[Factor, np.ndarray, np.ndarray | None]:
    """Return a column's factor, and its codes and missing-value mask (or None) in the rows `keep`.

    `n_observed` is the number of observations represented by each of the rows `keep` (default: 1).
    The other arguments after `keep` are the same as in `column_factor`.
    """
    series = frame.column(name)
    if len(keep) < frame.n:
        # without the row labels, which are not needed; this takes half the time of `iloc`
        series = pd.Series(series.array.take(keep), copy=False)
    column = factorise(name, series, missing="keep")
    # sets `order_problem` if the declared order of the values is unknown
    column = with_order(frame, column)
    factor = column_factor(
        column,
        levels_by_name,
        missing,
        declared,
        is_response,
        sums_out,
        tell_missing,
        # `check_discrete` needs them only for columns of many values
        column.value_rows(n_observed)
        if n_observed is not None and len(column.values) > MAX_FRACTIONS
        else None,
        numbers_advice,
    )
    argument = "xlevels" if name in levels_by_name else "data"  # named in error messages
    codes = factor.encode(
        column, argument=argument, skip_missing=is_response or missing == "marginal"
    )[0]
    return factor, codes, column.missing()


def column_factor(
    column: Column | Counted,
    levels_by_name: dict[Hashable, Factor],
    missing: str,
    declared: bool = False,
    is_response: bool = False,
    sums_out: bool = True,
    tell_missing: Callable[[], str] | None = None,
    rows: np.ndarray | None = None,
    numbers_advice: str = "",
) -> Factor:
    """Return a column's factor; its levels are those listed in `xlevels`, or else those that occur.

    Numeric columns that contain quantities rather than levels raise an error; `rows` and
    `numbers_advice` are the same as in `check_discrete`.

    With `declared`, declared levels are kept even if they do not occur, and the response may have
    missing values if ``missing="marginal"``. `sums_out` indicates whether the error message about
    missing values may suggest ``missing="marginal"``. `tell_missing` returns a sentence about
    missing values in all columns (see `describe_missing`).
    """
    name = column.name
    count = column.n_missing
    if missing == "raise" and count and not is_response:
        also = "" if tell_missing is None else tell_missing()
        refuse_missing_training(name, count, sums_out, also)
    if is_response and count and not (declared and missing == "marginal"):
        raise DataError(
            f"column {column.name!r} has {count} missing value{'s' * (count > 1)}, but the "
            f"response must not contain missing values.",
            column=name,
            hint=Hint(
                f"Drop these rows: data.dropna(subset=[{column.name!r}]), or pass "
                "missing='drop' to drop all rows with missing values.",
                command_line="Leave these rows out of the table, or pass --missing drop to drop "
                "all rows with missing values.",
            ),
        )
    if name in levels_by_name:
        # ordered if the column is ordered, as in R
        factor = replace(levels_by_name[name], ordered=column.ordered)
    else:
        check_discrete(column, rows, numbers_advice)
        # The declared order matters for ordered columns, the response and declared levels.
        if column.order_problem and (column.ordered or is_response or declared):
            problem, _, remedy = column.order_problem.partition(". ")
            raise DataError(
                f"column {name!r} {problem}.",
                column=name,
                hint=Hint(
                    f"{remedy}, or pass its levels in order: xlevels={{{name!r}: [...]}}.",
                    command_line=f"{remedy}.",
                ),
            )
        # unused: whether declared levels that do not occur are kept
        factor = Factor.collect(column, unused=declared)
    if not factor.levels:
        raise DataError(
            f"all values of column {name!r} are missing.",
            column=name,
            hint="Leave it out of the formula.",
        )
    # with_missing adds a last level "(missing)"
    return factor.with_missing() if count and missing == "level" else factor


def read_response(
    frame: Frame,
    terms: FormulaTerms,
    keep: np.ndarray,
    levels_by_name: dict[Hashable, Factor],
    declared: bool,
    missing: str,
    n_observed: np.ndarray | None = None,
) -> tuple[Factor, np.ndarray]:
    """Return the factor of the response, and its codes (intp) in the rows `keep`, which are -1 for
    missing values.

    `n_observed` is the same as in `read_column`.
    """
    if terms.response is None:
        return NO_RESPONSE, np.zeros(len(keep), dtype=np.intp)
    response, codes, is_missing = read_column(
        frame,
        terms.response,
        keep,
        levels_by_name,
        missing,
        declared,
        is_response=True,
        n_observed=n_observed,
    )
    # Missing responses have code 0 here. They are allowed only with `declared`, which also allows
    # groups without rows.
    check_groups(response, np.bincount(codes, minlength=len(response.levels)), declared)
    y = codes.astype(np.intp)
    if is_missing is not None:
        y[is_missing] = -1
    return response, y


def count_levels(
    frame: Frame, names: list[Hashable], keep: np.ndarray, xlevels: Mapping | None
) -> list[int]:
    """Return the number of levels (at least 2) of each column in `names`, without checking them."""
    counts = []
    for name in names:
        listed_levels = xlevels.get(name) if isinstance(xlevels, Mapping) else None
        series = frame.column(name)
        try:
            if listed_levels is not None:
                n_levels = len(listed_levels)
            else:
                n_levels = (series.iloc[keep] if len(keep) < frame.n else series).nunique()
        except (TypeError, NotImplementedError):  # invalid levels raise an error later
            n_levels = 2
        counts.append(max(2, n_levels))  # a constant predictor receives a second level
    return counts


def check_groups(response: Factor, counts: np.ndarray, declared: bool) -> None:
    """Raise an error if the response has a single group or, unless `declared`, an empty group.

    `counts` (K,) contains the number of rows in each group.
    """
    if len(response.levels) < 2:
        raise DataError(
            f"the response {response.name!r} has only one level, {response.levels[0]!r}, but at "
            "least two groups are required.",
            column=response.name,
            hint="Use data with at least two groups.",
        )
    empty = np.flatnonzero(counts == 0)
    if len(empty) and not declared:
        raise LevelError(
            f"the response {response.name!r} has no rows of level {response.levels[empty[0]]!r}.",
            column=response.name,
            argument="xlevels",
            hint="Leave it out of xlevels.",
        )


def check_size(terms: FormulaTerms, factors: list[Factor], K: int) -> None:
    """Raise an error if terms of order three or higher would not fit into memory; they are counted
    without listing them.

    `factors` are the predictors' factors, and K is the number of groups.
    """
    if terms.order > 2:
        # for the orders 2, 3, ...
        term_counts = [terms.interactions.count(k) for k in range(2, terms.order + 1)]
        n_couplings = terms.interactions.n_couplings([len(f.levels) for f in factors])
        # 8 bytes for each number: five lists of the terms of order k, with k numbers each, and
        # three lists that contain each term once for each of its k predictors
        term_bytes = sum(8.0 * k * (3.0 * k + 5.0) * n for k, n in enumerate(term_counts, 2))
        # For each coupling, rounded up: 16 bytes for each of the K groups and once more, and 12
        # bytes for its position at each of its predictors.
        check_memory(
            term_bytes + (16.0 * (K + 1) + 12.0 * terms.order) * n_couplings,
            (
                f"A model of {sum(term_counts):,} terms with {n_couplings:,} couplings in each of "
                f"{K} groups"
            ),
            f"Use terms of a lower order than {terms.order}, or fewer predictors.",
        )


def check_variable(factors: list[Factor]) -> None:
    """Raise an error for predictors with a single level."""
    constant = [f.name for f in factors if len(f.levels) < 2]
    if constant:
        shown = ", ".join(map(repr, constant[:5])) + (
            f", and {len(constant) - 5} more" * (len(constant) > 5)
        )
        raise LevelError(
            f"predictors with one level: {shown}.",
            column=constant[0],
            hint=Hint(
                "Drop them with removeConst(data), give their levels in xlevels, or pass "
                "novarOk=True.",
                command_line="Leave them out of the formula, or pass --novar-ok.",
                estimators="Leave these columns out of X.",
            ),
        )


def check_levels(factors: list[Factor], n_rows: float, problems: ColumnProblems) -> None:
    """Add an error to `problems` for each column of undeclared levels that looks like an
    identifier, and warn about predictors with many rare levels.

    `n_rows` is the number of rows, where a row with frequency k counts as k rows.
    """
    rare = []  # texts for the warning, one for each predictor with many rare levels
    numeric = []  # names of those predictors that have numeric levels
    for factor in factors:
        L = len(factor.levels)
        name = factor.name
        # an identifier has fewer than two observations per level on average
        if L > MAX_UNQUESTIONED_LEVELS and n_rows < 2 * L and not factor.declared:
            with problems.of_column():
                refuse_identifier(name, L, n_rows, set(factor.kinds) == {"number"})
        if L > MANY_LEVELS and n_rows < RARE_BELOW * L:
            rare.append(f"{name!r} ({L} levels in {n_rows:.0f} observations)")
            if set(factor.kinds) <= {"number", "missing"}:
                numeric.append(name)
    if rare and not problems.errors:
        how_many_more = f" and {len(rare) - 3} more" if len(rare) > 3 else ""
        hint = "Merge the rare levels, or leave the column out."
        if numeric:
            hint = (
                f"Merge the rare levels, cut {numeric[0]!r} into intervals (bbl.bin), or leave the "
                "column out."
            )
        warnings.warn(
            DataWarning(
                f"Most levels are rare in {', '.join(rare[:3])}{how_many_more}: the fit is slow, "
                "and the estimates of these levels are imprecise.",
                hint=hint,
            ),
            stacklevel=6,  # the caller of a public function
        )
