"""Model file of a two-way clustering: `pack` converts a result to a dict and arrays, and `unpack`
validates and restores it.

The table has I rows in a groups and J columns in b groups; a *block* contains the cells of one row
group and one column group. L is the number of levels of categorical cells, or 2 (count and sum) for
numeric cells.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from bbl.biclustering.cells import Cells
from bbl.biclustering.methods import make_method
from bbl.design.twoway import TwoWay
from bbl.report.text import distinct_names
from bbl.results.array_table import FINITE, POSITIVE, ArraySpec, check_arrays, check_types
from bbl.results.bicluster.posterior import pack_posterior, unpack_posterior

__all__ = ["pack", "population_frame", "selection_frame", "unpack"]

# columns of the frame
SELECTION = {"row_groups": int, "column_groups": int, "objective": float, "criterion": float}
CELLS = ("start", "column", "value", "weight")  # arrays of `Cells`

# arrays of a model file: kind of dtype, shape, range of values (any if missing)
TABLE = {
    # number of observations of each level in each block, or (count, sum)
    "sums": ArraySpec("f", ("a", "b", "L"), FINITE),
    "rows": ArraySpec("i", ("I",), (0, "a")),  # group of each row
    "columns": ArraySpec("i", ("J",), (0, "b")),  # group of each column
    "values": ArraySpec("f", (2,)),  # criterion and within-block sum of squares
    "history": ArraySpec("f", ("n_iter",)),
    # tried numbers of groups
    "selection": ArraySpec("f", ("tried", len(SELECTION)), required=False),
    # groups of the I + J rows and columns
    "population": ArraySpec("i", ("members", "items"), required=False),
    "fitness": ArraySpec("f", ("members",), required="population"),
    "draws_rows": ArraySpec("i", ("chains", "draws", "I"), (0, "I"), required=False),
    "draws_columns": ArraySpec("i", ("chains", "draws", "J"), (0, "J"), required="draws_rows"),
    "draws_log_posterior": ArraySpec("f", ("chains", "draws"), required="draws_rows"),
    "draws_loyalty": ArraySpec("f", ("chains", "I"), required="draws_rows"),
    "draws_popularity": ArraySpec("f", ("chains", "J"), required="draws_rows"),
    # start of each row in the arrays of cells
    "cells_start": ArraySpec("i", ("I+1",), required=False),
    "cells_column": ArraySpec("i", ("cells",), (0, "J"), required="cells_start"),
    "cells_value": ArraySpec("f", ("cells",), FINITE, required="cells_start"),
    "cells_weight": ArraySpec("f", ("cells",), POSITIVE, required="cells_start"),
}


def selection_frame(values: np.ndarray) -> pd.DataFrame:
    """Return `values` (n, 4) as a frame with the columns `SELECTION` and a row for each combination
    of numbers of groups.
    """
    return pd.DataFrame(values, columns=list(SELECTION)).astype(SELECTION)


def population_frame(table: TwoWay, labels: np.ndarray, fitness: np.ndarray) -> pd.DataFrame:
    """Return the population of a genetic algorithm as a frame with a row for each of the n members.

    The columns are `fitness` (n,), followed by `labels` (n, I + J), the groups of all rows and
    columns of the table.
    """
    names = distinct_names(
        f"{side.name}:{level}" for side in (table.rows, table.columns) for level in side.levels
    )
    frame = pd.DataFrame(labels, columns=names)
    frame.insert(0, "fitness", fitness)
    return frame


def pack(fit: Any, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the options of a `BiclusterResults` as a dict, and its arrays.

    Observed cells are only included with `store_data`.
    """
    options = {  # tuples and arrays become lists, for JSON
        name: np.asarray(value).tolist() if isinstance(value, tuple | list | np.ndarray) else value
        for name, value in dataclasses.asdict(fit.method).items()
    }
    meta = {
        "call": fit.call,
        "table": fit.table.to_dict(),
        "method": {"name": fit.method.name, **options},
        "n_iter": fit.n_iter,
        "converged": fit.converged,
    }
    arrays = {
        "rows": fit.rows,
        "columns": fit.columns,
        "sums": fit.sums,
        "values": np.array([fit.criterion, fit.wcss]),
        "history": fit.history,
    }
    if fit.selection is not None:
        arrays["selection"] = fit.selection.to_numpy(dtype=float)
    if fit.population is not None:
        arrays["population"] = fit.population.iloc[:, 1:].to_numpy(dtype=np.int32)
        arrays["fitness"] = fit.population.iloc[:, 0].to_numpy(dtype=float)
    if fit.posterior is not None:
        arrays |= pack_posterior(fit.posterior)
    if store_data and fit.cells is not None:
        arrays |= {
            f"cells_{name}": cell_array
            for name, cell_array in zip(CELLS, fit.cells.arrays, strict=True)
        }
    return meta, arrays


def unpack(meta: dict, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `BiclusterResults` from content stored by `pack`.

    Raises a ValueError for invalid values.
    """
    table = TwoWay.from_dict(meta["table"])
    options = dict(meta["method"])
    method = make_method(options.pop("name"), options)
    # kind of cells required by the method, and kind in the table ("levels", ...)
    if method.response != table.holds:
        raise ValueError("method and table do not match")
    check_types(meta, {"call": str, "n_iter": int, "converged": bool})
    n_rows, n_columns = table.shape
    # an ordered response also has `table.levels`, but its cells are numeric
    L = 2 if table.levels is None or table.holds != "levels" else len(table.levels.levels)
    check_arrays(arrays, TABLE, I=n_rows, J=n_columns, L=L, items=n_rows + n_columns)
    if not arrays["sums"].any():  # no block has observations
        raise ValueError("its blocks are empty")
    arguments: dict[str, Any] = {name: meta[name] for name in ("call", "n_iter", "converged")}
    arguments |= {
        name: np.ascontiguousarray(arrays[name], dtype=np.int32) for name in ("rows", "columns")
    }
    arguments |= {
        "table": table,
        "method": method,
        "sums": arrays["sums"],
        "history": arrays["history"],
    }
    arguments["criterion"], arguments["wcss"] = (float(v) for v in arrays["values"])
    if "selection" in arrays:
        arguments["selection"] = selection_frame(arrays["selection"])
    if "population" in arrays:
        arguments["population"] = population_frame(table, arrays["population"], arrays["fitness"])
    if "draws_rows" in arrays:
        arguments["posterior"] = unpack_posterior(table, arrays)
    if "cells_start" in arrays:
        start, column, value, weight = (arrays[f"cells_{name}"] for name in CELLS)
        arguments["cells"] = Cells.stored(start, column, value, weight, table.shape)
    return arguments
