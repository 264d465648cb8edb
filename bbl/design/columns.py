"""Columns of the training data: which rows are used, their levels and codes, and what no model can be fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from bbl.checks import near_match
from bbl.design.factors import Factor
from bbl.design.formula import FormulaTerms
from bbl.design.frames import Frame
from bbl.design.values import Column, Counted, factorise, frame_column, refuse_blanks, with_order
from bbl.errors import BBLTypeError, DataError, DataWarning, LevelError
from bbl.memory import check_memory

__all__ = [
    "NO_RESPONSE",
    "check_groups",
    "check_levels",
    "check_size",
    "check_variable",
    "column_factor",
    "given_levels",
    "kept_rows",
    "level_counts",
    "mark_rows",
    "missing_rows",
    "read_column",
    "read_response",
    "refuse_identifier",
    "refuse_missing",
    "refuse_no_rows_left",
]

MAX_UNQUESTIONED_LEVELS = 20  # distinct values that are levels whatever the number of rows
MANY_LEVELS = 100  # levels from which on rare ones give a warning
RARE = 6  # observations: a level with fewer is rare
NO_RESPONSE = Factor(None, ("all",), ("string",), False)  # of a formula without one: all rows are one group


def given_levels(xlevels: Mapping | None, terms: FormulaTerms) -> dict[Hashable, Factor]:
    """Check the levels that the user gives."""
    if xlevels is None:
        return {}
    if not isinstance(xlevels, Mapping):
        raise BBLTypeError(
            f"xlevels must be a dict of column names to lists of levels; got {type(xlevels).__name__}.",
            argument="xlevels",
        )
    used = terms.columns
    for name in xlevels:
        if name not in used:
            hint = near_match(name, used) or "."
            raise DataError(
                f"xlevels names {name!r}, which the formula does not use{hint} Leave it out.",
                column=name,
                argument="xlevels",
            )
    return {name: Factor.given(name, levels) for name, levels in xlevels.items()}


def missing_rows(frame: Frame, names: Iterable[Hashable]) -> np.ndarray:
    """Return which rows have a missing value in one of the columns `names`."""
    out = np.zeros(frame.n, dtype=bool)
    for name in names:
        is_missing = frame_column(frame, name).missing()
        if is_missing is not None:
            out |= is_missing
    return out


def refuse_missing(column: Column) -> None:
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


def kept_rows(frame: Frame, terms: FormulaTerms, counts: np.ndarray, missing: str) -> tuple[np.ndarray, int]:
    """Return the rows that are used, and the weight of those dropped for missing values."""
    keep = np.flatnonzero(counts > 0)
    return _drop(frame, terms.columns, keep, counts) if missing == "drop" else (keep, 0)


def _drop(frame: Frame, names: Iterable[Hashable], keep: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, int]:
    """Return which of the rows to `keep` have no missing value, and the weight of the others."""
    is_missing = missing_rows(frame, names)[keep]
    if is_missing.all():
        refuse_no_rows_left()
    return keep[~is_missing], round(float(counts[keep[is_missing]].sum()))


def refuse_no_rows_left() -> None:
    """Raise the error of ``missing="drop"`` where it drops every row."""
    raise DataError(
        "every row has a missing value, so missing='drop' leaves none. Leave the predictors with most of them out "
        "of the formula, or give missing values a level of their own (missing='level').",
        argument="missing",
    )


def mark_rows(mask: np.ndarray | None, shape: tuple[int, ...], i: int, rows: np.ndarray | None) -> np.ndarray | None:
    """Return the mask, made when first needed, with the `rows` of column `i` set too."""
    if rows is not None:
        mask = np.zeros(shape, dtype=bool) if mask is None else mask
        mask[:, i] |= rows
    return mask


def read_column(
    frame: Frame,
    name: Hashable,
    keep: np.ndarray,
    given: dict,
    missing: str | None,
    declared: bool = False,
    policy: str | None = None,
    sums_out: bool = True,
) -> tuple[Factor, np.ndarray, np.ndarray | None]:
    """Return a column's factor, codes and missing values, from the rows to keep; see `column_factor`."""
    series = frame.column(name)
    column = factorise(name, series if len(keep) == frame.n else series.iloc[keep], "keep")
    column = with_order(frame, column)
    factor = column_factor(column, given, missing, declared, policy, sums_out)
    argument = "xlevels" if name in given else "data"
    codes = factor.encode(column, argument=argument, skip_missing=missing in ("marginal", None))[0]
    return factor, codes, column.missing()


def column_factor(
    column: Column | Counted,
    given: dict,
    missing: str | None,
    declared: bool = False,
    policy: str | None = None,
    sums_out: bool = True,
) -> Factor:
    """Return the factor of a column: the levels that are given for it, or those that occur in it.

    For the response `missing` is None; it may be unknown where `declared` levels count and `policy` is "marginal".
    `sums_out` says whether the error of missing values may advise that.
    """
    name, count = column.name, column.n_missing
    if missing == "raise" and count:
        refuse_blanks(name, count, sums_out)
    has_known_values = missing is not None or (declared and policy == "marginal")
    if not has_known_values and count:
        raise DataError(
            f"column {name!r} has {count} missing value{'s' * (count > 1)}, and is the response, which has to be "
            f"known. Drop these rows: data.dropna(subset=[{name!r}]); or missing='drop' drops all rows with missing "
            "values.",
            column=name,
        )
    if name in given:
        factor = given[name]
    else:
        if column.order_problem and (column.ordered or missing is None or declared):
            raise DataError(
                f"column {name!r} {column.order_problem}, or give its levels in order: xlevels={{{name!r}: [...]}}.",
                column=name,
            )
        factor = Factor.collect(column, keep_order=missing is None, unused=declared)
    if not factor.levels:
        raise DataError(f"column {name!r} has no value that is not missing. Leave it out of the formula.", column=name)
    return factor.with_missing() if count and missing == "level" else factor


def read_response(
    frame: Frame, terms: FormulaTerms, keep: np.ndarray, given: dict, declared: bool, missing: str
) -> tuple[Factor, np.ndarray]:
    """Return the response's factor and codes; -1 where it may be, and is, unknown."""
    if terms.response is None:
        return NO_RESPONSE, np.zeros(len(keep), dtype=np.intp)
    response, codes, blank = read_column(frame, terms.response, keep, given, None, declared, missing)
    check_groups(response, np.bincount(codes, minlength=len(response.levels)), declared)
    y = codes.astype(np.intp)
    if blank is not None:
        y[blank] = -1
    return response, y


def level_counts(frame: Frame, names: list[Hashable], keep: np.ndarray, xlevels: Mapping | None) -> list[int]:
    """Return how many levels columns have, at least 2, without judging them."""
    out = []
    for name in names:
        given_levels_of_name = xlevels.get(name) if isinstance(xlevels, Mapping) else None
        series = frame.column(name)
        try:
            count = (
                len(given_levels_of_name)
                if given_levels_of_name is not None
                else (series.iloc[keep] if len(keep) < frame.n else series).nunique()
            )
        except (TypeError, NotImplementedError):  # what cannot be levels is refused later
            count = 2
        out.append(max(2, count))
    return out


def check_groups(response: Factor, counts: np.ndarray, declared: bool) -> None:
    """Refuse a response of one group, or with groups of no rows; `counts` (K,) are those of the rows."""
    if len(response.levels) < 2:
        raise DataError(
            f"the response {response.name!r} has the single level {response.levels[0]!r}, so there is nothing to "
            "tell apart. Give data of at least two groups.",
            column=response.name,
        )
    empty = np.flatnonzero(counts == 0)
    if len(empty) and not declared:
        raise LevelError(
            f"the response {response.name!r} has no rows of level {response.levels[empty[0]]!r}. Leave it out of "
            "xlevels.",
            column=response.name,
            argument="xlevels",
        )


def check_size(terms: FormulaTerms, factors: list[Factor], K: int) -> None:
    """Refuse a model of higher terms that would not fit into memory, before its terms are listed."""
    if terms.order > 2:
        count = [terms.interactions.count(k) for k in range(2, terms.order + 1)]
        size = terms.interactions.n_couplings([len(f.levels) for f in factors])
        # lists of the terms, sorted, and of what their members are regressed on; where the couplings lie, and they
        lists = sum(8.0 * k * (3.0 * k + 5.0) * n for k, n in enumerate(count, 2))
        check_memory(
            lists + (16.0 * (K + 1) + 12.0 * terms.order) * size,
            f"A model of {sum(count):,} terms with {size:,} couplings in each of {K} groups",
            f"Ask for terms of a lower order than {terms.order}, or of fewer predictors.",
        )


def check_variable(factors: list[Factor]) -> None:
    constant = [f.name for f in factors if len(f.levels) < 2]
    if constant:
        shown = ", ".join(map(repr, constant[:5])) + (f", and {len(constant) - 5} more" * (len(constant) > 5))
        raise LevelError(
            f"predictors with one level: {shown}. Drop them with removeConst(data), give their levels in xlevels, or "
            "pass novarOk=True.",
            column=constant[0],
        )


def check_levels(factors: list[Factor], total: float) -> None:
    """Refuse columns that are identifiers, unless their levels are declared; warn of many rare levels."""
    rare = []
    for factor in factors:
        L, name = len(factor.levels), factor.name
        if L > MAX_UNQUESTIONED_LEVELS and total < 2 * L and not factor.declared:
            refuse_identifier(name, L, total)
        if L > MANY_LEVELS and total < RARE * L:
            rare.append(f"{name!r} ({L} levels in {total:.0f} observations)")
    if rare:
        how_many_more = f" and {len(rare) - 3} more" if len(rare) > 3 else ""
        warnings.warn(
            f"Most levels are rare in {', '.join(rare[:3])}{how_many_more}: a fit takes long, and says little about "
            "them. Group the rare levels, or leave the predictor out.",
            DataWarning,
            stacklevel=6,  # the caller of a verb
        )


def refuse_identifier(name: Hashable, L: int, total: float) -> None:
    """Raise the error of a column with about as many values as observations."""
    raise DataError(
        f"column {name!r} looks like an identifier: {L} distinct values in {total:.0f} observations. Leave it "
        f"out of the formula (- {name}), or group its values; if each of them is a level, make it a category.",
        column=name,
    )
