"""Read two-way tables: the observed cells, and the names of rows and columns.

A *long table* has one row for each observed cell, with its row name, column name and value; a
*matrix* contains all cells.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bbl.design.factor_storage import factor_from_dict, factor_to_dict, name_from_list, name_to_list
from bbl.design.factors import Factor, check_discrete
from bbl.design.formula import check_formula, parse
from bbl.design.frames import Frame, to_frame
from bbl.design.values import Column, factorise
from bbl.design.weights import check_weights, named_weights
from bbl.errors import BBLTypeError, DataError, FormulaError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


__all__ = ["Entries", "TwoWay"]

PRESENT = "(present)"  # name of the response if the formula has no response
# numeric values; ordered values; codes of categories; rated or not rated
CELL_KINDS = ("numeric", "ordinal", "levels", "rated")


class Entries(NamedTuple):
    """Observed cells as arrays of shape (n,)."""

    row: np.ndarray  # int, 0..I-1
    column: np.ndarray  # int, 0..J-1
    value: np.ndarray  # float; codes of categorical cells
    weight: np.ndarray  # float; number of times that the value was observed in the cell


@dataclass(frozen=True)
class TwoWay:
    """The names of the I rows, J columns and values of a two-way table, with methods that read
    training and new data.

    Attributes
    ----------
    rows, columns : Factor
        The row names (I levels) and the column names (J levels).
    holds : {"numeric", "ordinal", "levels", "rated"}
        How the cell values are interpreted.
    """

    formula: str | None  # None if the data are a matrix
    rows: Factor
    columns: Factor
    response: Hashable  # name of the values in the cells
    holds: str
    levels: Factor | None = None  # levels of categorical cells, or of an ordered response
    repeats: int = 0  # number of repeated observations of cells

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns, (I, J)."""
        return len(self.rows.levels), len(self.columns.levels)

    @classmethod
    def from_data(
        cls, formula: str | None, data: object, weights: Hashable | ArrayLike | None, holds: str
    ) -> tuple[TwoWay, Entries]:
        """Read a long table, described by a formula, or a matrix (no formula).

        Parameters
        ----------
        formula : str or None
            ``"rating ~ user*movie"``, or ``"~ user*movie"`` if the data contain the rated pairs.
        data : DataFrame (pandas, polars), pyarrow Table, dict of columns; or a matrix (no formula)
        weights : column name or array_like, or None
            Weight of each row of `data`.
        holds : {"numeric", "ordinal", "levels", "rated"}
            How the cell values are interpreted.

        Returns
        -------
        table : TwoWay
        entries : Entries
            The observed cells; with "rated", only the rated pairs, with value 1.

        Raises
        ------
        FormulaError, DataError, BBLTypeError
            If the formula, a column or an argument is invalid.
        """
        if formula is None:
            return _read_matrix(data, weights, holds)
        check_formula(formula)
        frame = to_frame(data)
        weights_name, row_weights = named_weights(weights, frame)
        response, rows, columns = _parse_names(formula, frame, weights_name)
        keep = np.flatnonzero(row_weights > 0)  # positions of the used rows
        factors = []
        codes = []
        for name in (rows, columns):
            column = factorise(name, frame.column(name).iloc[keep], missing="keep")
            factor = Factor.collect(_refuse_missing(column))
            factors.append(factor)
            codes.append(factor.encode(column)[0].astype(np.int64))
        levels = None
        if response != PRESENT:
            value, levels = _read_values(response, frame.column(response).iloc[keep], holds)
        elif holds != "rated":
            raise FormulaError(
                f"formula {formula!r} has no response.",
                argument="formula",
                hint=(
                    "Write it like 'rating ~ user*movie', or use method='mcmc' for pairs that are "
                    "either present or absent."
                ),
            )
        else:
            value = np.ones(len(keep))
        entries = Entries(codes[0], codes[1], value, row_weights[keep])
        return _check_table(formula, factors[0], factors[1], response, holds, levels, entries)

    def read(self, newdata: object) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, Factor]:
        """Return row codes, column codes and values (n,) of a new long table, and the new row
        names.

        Rows that are not in this table have the codes I, I + 1, ...; unknown columns raise a
        LevelError. Missing values are nan. The values are None if the table has no new rows or no
        response column.
        """
        frame = to_frame(newdata, "newdata")
        column_of_cell = _refuse_missing(
            factorise(self.columns.name, frame.column(self.columns.name), missing="keep")
        )
        column_codes = self.columns.encode(column_of_cell, argument="newdata")[0].astype(np.int64)
        row_of_cell = _refuse_missing(
            factorise(self.rows.name, frame.column(self.rows.name), missing="keep")
        )
        row_codes, is_new = self.rows.encode(row_of_cell, unseen="ignore", argument="newdata")
        newdata_factor = Factor.collect(row_of_cell)
        row_codes = row_codes.astype(np.int64)
        new_rows = Factor(self.rows.name, (), ())
        if is_new is not None and is_new.any():
            # distinct new names receive numbers after the rows of the table, in the order of the
            # levels
            new_row_of_cell = newdata_factor.encode(row_of_cell)[0][is_new]
            new_levels, row_codes[is_new] = np.unique(new_row_of_cell, return_inverse=True)
            row_codes[is_new] += self.shape[0]
            names = newdata_factor.levels
            kinds = newdata_factor.kinds
            new_rows = Factor(
                self.rows.name,
                tuple(names[k] for k in new_levels),
                tuple(kinds[k] for k in new_levels),
            )
        value = None
        if len(new_rows.levels) and self.response != PRESENT and frame.has(self.response):
            value = _read_values(
                self.response, frame.column(self.response), self.holds, self.levels
            )[0]
        return row_codes, column_codes, value, new_rows

    def read_matrix(self, newdata: object) -> tuple[Entries, pd.Index]:
        """Return the observed cells of a matrix of new rows, and the row labels.

        The columns may be in a different order than in the training data.
        """
        values, index, columns, _ = _read_cells(newdata, self.holds, "newdata", self.levels)
        if list(columns) != list(self.columns.levels):
            if sorted(map(str, columns)) != sorted(map(str, self.columns.levels)):
                raise DataError(
                    f"newdata does not have the {self.shape[1]} columns of the table.",
                    argument="newdata",
                    hint="Include all of them, with nan for missing cells.",
                )
            # matched by text, as above: 1 and "1" are the same column
            order = pd.Index(list(map(str, columns))).get_indexer(
                pd.Index(list(map(str, self.columns.levels)))
            )
            values = np.asarray(values)[:, order]
        return _list_cells(values, np.ones(len(values))), index

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain lists, strings and numbers."""
        return {
            "formula": self.formula,
            "rows": factor_to_dict(self.rows),
            "columns": factor_to_dict(self.columns),
            "response": self.response
            if isinstance(self.response, str)
            else name_to_list(self.response),
            "holds": self.holds,
            "levels": None if self.levels is None else factor_to_dict(self.levels),
            "repeats": self.repeats,
        }

    @classmethod
    def from_dict(cls, stored: Mapping) -> TwoWay:
        """Restore a table from the result of `to_dict`; raise a ValueError if `stored` is
        invalid.
        """
        if type(stored["holds"]) is not str or type(stored["repeats"]) is not int:
            raise ValueError("the table is malformed")
        if stored["holds"] not in CELL_KINDS or not (
            stored["formula"] is None or type(stored["formula"]) is str
        ):
            raise ValueError("the table is malformed")
        levels = None if stored["levels"] is None else factor_from_dict(stored["levels"])
        rows, columns = (factor_from_dict(stored[name]) for name in ("rows", "columns"))
        response = (
            stored["response"]
            if type(stored["response"]) is str
            else name_from_list(stored["response"])
        )
        return cls(
            stored["formula"], rows, columns, response, stored["holds"], levels, stored["repeats"]
        )


def _parse_names(
    formula: str, frame: Frame, weights_name: Hashable | None
) -> tuple[Hashable, Hashable, Hashable]:
    """Return the names of the response (or `PRESENT`), the rows and the columns in a formula."""
    names = frame.columns
    exclude = {} if weights_name is None else {weights_name: "the weights"}
    # `PRESENT` replaces the missing response
    if isinstance(formula, str) and formula.lstrip().startswith("~"):
        terms = parse(f"`{PRESENT}` {formula.lstrip()}", (*names, PRESENT), exclude, order=None)
    else:
        terms = parse(formula, names, exclude, order=None)
    if len(terms.predictors) != 2:
        raise FormulaError(
            f"formula {formula!r} has {len(terms.predictors)} factors, but a two-way table "
            "requires two.",
            argument="formula",
            hint="Write it like 'rating ~ user*movie'.",
        )
    return terms.response, *terms.predictors


def _refuse_missing(column: Column) -> Column:
    """Return a column of row or column names; raise an error for missing values."""
    is_missing = column.missing()
    if is_missing is not None:
        count = int(is_missing.sum())
        raise DataError(
            f"column {column.name!r} has {count} missing value{'s' * (count > 1)}, so these rows "
            "do not belong to any cell.",
            column=column.name,
            hint=f"Drop them: data.dropna(subset=[{column.name!r}]).",
        )
    return column


def _read_values(
    name: Hashable, series: pd.Series, holds: str, levels: Factor | None = None
) -> tuple[np.ndarray, Factor | None]:
    """Return a column of cells as floats (n,), and the levels if the cells are categorical or
    ordered.

    Missing cells are nan. With ``holds="levels"``, the floats are codes. Ordered levels that are
    not numbers receive the numbers 1, 2, ... `levels` is None for training data; for new data, it
    is `TwoWay.levels`, which is None for plain numbers.
    """
    ordered = isinstance(series.dtype, pd.CategoricalDtype) and series.cat.ordered
    if holds == "levels" or ordered or levels is not None:
        column = factorise(name, series, missing="keep")
        if levels is None:
            check_discrete(column)
        factor = Factor.collect(column) if levels is None else levels
        argument = "data" if levels is None else "newdata"
        codes = factor.encode(column, argument=argument, skip_missing=True)[0].astype(float)
        if column.missing() is not None:
            codes[column.missing()] = np.nan
        if holds == "levels":
            return codes, factor
        levels_are_numbers = all(kind == "number" for kind in factor.kinds)
        scores = np.array(
            factor.levels if levels_are_numbers else range(1, len(factor.levels) + 1), dtype=float
        )
        return np.where(np.isnan(codes), np.nan, scores[np.nan_to_num(codes).astype(int)]), factor
    return _to_floats(name, series), None


def _to_floats(name: Hashable, series: pd.Series) -> np.ndarray:
    """Return a numeric column as floats (n,), with nan for missing values.

    Other types and infinite numbers raise an error.
    """
    is_numeric = pd.api.types.is_bool_dtype(series.dtype) or pd.api.types.is_numeric_dtype(
        series.dtype
    )
    values = None
    if is_numeric and getattr(series.dtype, "kind", "f") != "c":  # "c": complex numbers
        values = series.to_numpy(dtype=float, na_value=np.nan)
    elif series.dtype == object:
        cells = series.to_numpy()
        is_missing = pd.isna(cells)
        numeric_types = int | float | Decimal | np.number
        if all(isinstance(cell, numeric_types) for cell in cells[~is_missing]):
            values = np.where(is_missing, np.nan, cells).astype(float)
    if values is None:
        raise BBLTypeError(
            f"column {name!r} has type {series.dtype}, which is not numeric.",
            column=name,
            hint=(
                "Convert it to numbers or an ordered category (the same for all columns of a "
                "matrix), or use metric='levels'."
            ),
        )
    if np.isinf(values).any():
        raise DataError(
            f"column {name!r} has the value {values[np.isinf(values)][0]}.",
            column=name,
            hint="Replace it with a missing value (nan), or drop the row.",
        )
    return values


def _read_cells(
    data: object, holds: str, argument: str, levels: Factor | None = None
) -> tuple[np.ndarray, pd.Index, Sequence[Any], Factor | None]:
    """Return the values (I, J), row labels, column labels and levels of a matrix or wide frame.

    Missing values are nan. `holds` is one of `CELL_KINDS`. `levels` is None for training data, and
    `TwoWay.levels` for new data. In `TwoWay.levels` and in the result, None means plain numbers.
    """
    if isinstance(data, np.ndarray | list | tuple):
        array = np.asarray(data)
        if array.ndim != 2:
            raise DataError(
                f"{argument} has {array.ndim} dimension{'s' * (array.ndim != 1)}. Without a "
                "formula, it must be a matrix or a wide frame.",
                argument=argument,
            )
        # "biuf": booleans, integers and floats
        if array.dtype.kind in "biuf" and holds != "levels" and levels is None:
            values = array.astype(float)
            if np.isinf(values).any():
                i, j = np.argwhere(np.isinf(values))[0]
                raise DataError(
                    f"{argument} is {values[i, j]} at row {i}, column {j}.",
                    hint="Make it missing (nan).",
                )
            return values, pd.RangeIndex(len(array)), range(array.shape[1]), None
        data = pd.DataFrame(array)
    frame = to_frame(data, argument)
    if not frame.n or not frame.columns:
        raise DataError(
            f"{argument} is empty.",
            argument=argument,
            hint="Pass at least two rows and two columns.",
        )
    columns = [frame.column(name).reset_index(drop=True) for name in frame.columns]
    share_categories = len({column.dtype for column in columns}) == 1 and isinstance(
        columns[0].dtype, pd.CategoricalDtype
    )
    are_ordered = (
        share_categories and columns[0].cat.ordered
    )  # one dtype, because all columns have the same categories
    are_numbers = holds != "levels" and levels is None and not are_ordered
    if are_numbers:
        values = np.column_stack(
            [_to_floats(name, column) for name, column in zip(frame.columns, columns, strict=True)]
        )
        return values, frame.index, frame.columns, None
    # all cells, one column after another
    all_cells = pd.concat(
        columns if share_categories else [column.astype(object) for column in columns],
        ignore_index=True,
    )
    flat_values, levels = _read_values("value", all_cells, holds, levels)
    return flat_values.reshape(len(frame.columns), frame.n).T, frame.index, frame.columns, levels


def _make_label_factor(name: str, labels: Iterable[Hashable]) -> Factor:
    """Return the factor for row or column labels.

    The levels are 0, 1, ... if labels are repeated or cannot be stored.
    """
    plain = [label.item() if isinstance(label, np.generic) else label for label in labels]
    if len(set(map(str, plain))) < len(plain) or not all(
        type(label) in (str, int) for label in plain
    ):
        plain = list(range(len(plain)))
    return Factor(
        name,
        tuple(plain),
        tuple("string" if isinstance(label, str) else "number" for label in plain),
    )


def _list_cells(values: np.ndarray, counts: np.ndarray) -> Entries:
    """Return the observed cells of a matrix (I, J) with nan for missing cells.

    `counts` (I,) contains the row weights.
    """
    row, column = np.nonzero(~np.isnan(values))
    return Entries(row, column, values[row, column], counts[row])


def _read_matrix(
    data: object, weights: Hashable | ArrayLike | None, holds: str
) -> tuple[TwoWay, Entries]:
    """Return the table and the observed cells of a matrix or wide frame; see `TwoWay.from_data`."""
    values, index, columns, levels = _read_cells(data, holds, "data")
    if isinstance(weights, str):
        raise DataError(
            f"weights={weights!r} is a column name, but a matrix has no weights column.",
            argument="weights",
            hint="Pass an array with one weight for each row.",
            value=weights,
        )
    row_weights = check_weights(weights, len(values))
    is_kept = row_weights > 0
    row_title = index.name if isinstance(index.name, str) else "row"
    # the name must differ from that of the rows
    column_title = "column" if row_title != "column" else "columns"
    factors = (
        _make_label_factor(row_title, index[is_kept]),
        _make_label_factor(column_title, columns),
    )
    return _check_table(
        None, *factors, "value", holds, levels, _list_cells(values[is_kept], row_weights[is_kept])
    )


def _check_table(
    formula: str | None,
    rows: Factor,
    columns: Factor,
    response: Hashable,
    holds: str,
    levels: Factor | None,
    entries: Entries,
) -> tuple[TwoWay, Entries]:
    """Return the table and its observed cells; raise an error for tables that cannot be clustered.

    The arguments are the same as in `TwoWay`.
    """
    shape = len(rows.levels), len(columns.levels)
    if min(shape) < 2:
        raise DataError(
            f"the table is {shape[0]} x {shape[1]}.",
            hint="Pass at least two rows and two columns.",
        )
    is_observed = ~np.isnan(entries.value)
    entries = Entries(*(array[is_observed] for array in entries))
    if holds == "rated":
        entries = _rated_pairs(response, entries, shape)
    for factor, codes in ((rows, entries.row), (columns, entries.column)):
        unobserved = np.flatnonzero(np.bincount(codes, minlength=len(factor.levels)) == 0)
        # a column without ratings is allowed
        if len(unobserved) and (holds != "rated" or factor is rows):
            how_many_more = f" (and {len(unobserved) - 1} more)" * (len(unobserved) > 1)
            what = "rated items" if holds == "rated" else "observed cells"
            raise DataError(
                f"{factor.name!r} {factor.levels[unobserved[0]]!r}{how_many_more} has no {what}, "
                "so its group cannot be estimated.",
                column=factor.name,
                hint="Drop it.",
            )
    # rated pairs all have the value 1
    if holds != "rated" and (entries.value == entries.value[0]).all():
        raise DataError(
            f"the response {response!r} has only one value, {entries.value[0]:g}, so there are no "
            f"groups to find."
            if levels is None
            else f"the response {response!r} has only one level, so there are no groups to find.",
            column=response,
        )
    # number of observations minus number of distinct cells. The weights of a matrix repeat its
    # rows, which are not repeated observations of cells
    repeats = 0
    if formula is not None:
        cells = np.unique(entries.row * np.int64(shape[1]) + entries.column)
        repeats = round(float(entries.weight.sum() - len(cells)))
    return TwoWay(formula, rows, columns, response, holds, levels, repeats), entries


def _rated_pairs(response: Hashable, entries: Entries, shape: tuple[int, int]) -> Entries:
    """Return the distinct cells with value 1, each with weight 1.

    Values other than 0 and 1, and cells with both values, raise an error.
    """
    is_valid = np.isin(entries.value, (0.0, 1.0))
    if not is_valid.all():
        raise DataError(
            f"the response {response!r} has the value {entries.value[~is_valid][0]:g}, but "
            "method='mcmc' requires 0 (unrated) or 1 (rated).",
            column=response,
            hint="Leave the response out ('~ user*movie') if all pairs in the data are rated.",
        )
    # number of each pair in the table, row by row
    cell = entries.row * np.int64(shape[1]) + entries.column
    rated = np.unique(cell[entries.value == 1.0])
    unrated = np.unique(cell[entries.value == 0.0])
    if len(np.intersect1d(rated, unrated)):
        raise DataError(
            f"the response {response!r} is both 0 and 1 for the same pair.",
            column=response,
            hint="Keep only one of the rows of this pair.",
        )
    if len(rated) in (0, shape[0] * shape[1]):
        problem = "no pair is rated" if not len(rated) else "all pairs are rated"
        raise DataError(f"{problem}, so there are no groups to find.", column=response)
    row, column = np.divmod(rated, shape[1])
    return Entries(row, column, np.ones(len(rated)), np.ones(len(rated)))
