"""Validate the arguments of `bbl.survey`: column names and combinations of options."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from bbl.errors import BBLTypeError, OptionError
from bbl.stats.survey.replicates import KINDS

__all__ = ["check_replicates", "column_name", "column_names"]


def column_names(argument: str, value: object) -> tuple[Hashable, ...]:
    """Return `value`, a column name or a list of names, as a tuple, which is empty for None."""
    if value is None:
        return ()
    if isinstance(value, str | tuple | int | np.integer):  # a tuple is a single name
        return (value,)
    if not isinstance(value, Sequence | pd.Index) or not all(
        isinstance(name, Hashable) for name in value
    ):
        raise BBLTypeError(
            f"{argument} must be the name of a column, or a list of column names; got "
            f"{value.__class__.__name__}.",
            argument=argument,
            hint="Add the values to the table as a column, and pass its name.",
        )
    return tuple(value)


def column_name(argument: str, value: object) -> Hashable:
    """Return `value`, a column name or a list with one name, as a column name."""
    names = column_names(argument, value)
    if len(names) != 1:
        raise BBLTypeError(
            f"{argument} must be the name of one column; got {list(names) or 'none'}.",
            argument=argument,
        )
    return names[0]


def check_replicates(
    n_given: int,
    kind: str | None,
    scale: float | None,
    rscales: Sequence[float] | None,
    mse: bool,
    rho: float,
) -> None:
    """Raise an OptionError if the arguments for replicate weights are incompatible.

    `n_given` is the number of columns with replicate weights, and `kind` the argument `type` of
    `bbl.survey`. The variance is ``scale * sum_r rscales[r] (theta_r - centre)^2``. With `mse`, the
    centre is the full-sample estimate; otherwise, it is the mean of the replicates. In Fay's
    replicates, the weights of one half-sample are multiplied by `rho`.
    """
    if n_given and kind is None:
        raise OptionError(
            "replicates requires type.",
            argument="type",
            hint=f"Set type to one of {', '.join(map(repr, KINDS))}.",
        )
    if n_given and kind == "JKn" and rscales is None:
        raise OptionError(
            "type='JKn' requires rscales.",
            argument="rscales",
            hint="Set rscales to (n - 1)/n for each replicate, where n is the number of clusters "
            "in its stratum.",
        )
    if rscales is not None and len(rscales) != n_given:
        raise OptionError(
            f"rscales has {len(rscales)} numbers, but there are {n_given} columns of replicate "
            "weights.",
            argument="rscales",
        )
    if rho and kind != "Fay":
        raise OptionError(
            "rho is only for type='Fay'.",
            argument="rho",
            hint="Omit the rho argument, or use type='Fay'.",
        )
    if n_given and kind == "Fay" and not rho and scale is None:
        raise OptionError(
            "type='Fay' requires rho, the value that was used to create the replicate weights.",
            argument="rho",
            hint="Pass rho, or use type='BRR' if no rho was used.",
        )
    if mse and kind is None:
        raise OptionError(
            "mse applies to replicates, but this design uses linearised covariances.",
            argument="mse",
            hint="Omit the mse argument, or choose a type of replicates, such as type='JKn'.",
        )
    if scale is not None and not n_given:
        raise OptionError(
            "scale can only be given with replicate weights in columns.",
            argument="scale",
            hint="Omit the scale argument.",
        )
