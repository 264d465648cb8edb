"""Arguments of `bbl.survey`: names of columns, and the refusal of what does not go together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.errors import BBLTypeError, OptionError
from bbl.stats.survey.replicates import KINDS

if TYPE_CHECKING:
    from bbl.design.survey import SurveyDesign

__all__ = ["check_together", "column_name", "column_names"]


def column_names(argument: str, value: object) -> tuple[Hashable, ...]:
    """Return a column name, or a list of them, as a tuple; None is the empty one."""
    if value is None:
        return ()
    if isinstance(value, str | tuple | int | np.integer):
        return (value,)
    if not isinstance(value, Sequence | pd.Index) or not all(isinstance(name, Hashable) for name in value):
        raise BBLTypeError(
            f"{argument} must be the name of a column, or a list of names; got {value.__class__.__name__}. Put the "
            "values into the table, and name their column.",
            argument=argument,
        )
    return tuple(value)


def column_name(argument: str, value: object) -> Hashable:
    """Return a column name, also from a list of one."""
    names = column_names(argument, value)
    if len(names) != 1:
        raise BBLTypeError(
            f"{argument} must be the name of one column; got {list(names) or 'none'}.", argument=argument
        )
    return names[0]


def check_together(design: SurveyDesign) -> None:
    """Raise an OptionError if arguments do not go together."""
    n_stages = max(1, len(design.cluster))
    if design.fpc and len(design.fpc) != n_stages:
        raise OptionError(
            f"fpc names {len(design.fpc)} columns, and the design has {n_stages} stages. Give one for each, or leave "
            "fpc out.",
            argument="fpc",
        )
    if design.fpc and design.type in ("BRR", "Fay") and not design.replicates:
        raise OptionError(
            f"type={design.type!r} has half of the clusters in each replicate, whatever share of the population they "
            "are. Leave fpc out, or take 'JKn' or 'bootstrap', which count it.",
            argument="fpc",
        )
    _check_replicates(design)


def _check_replicates(design: SurveyDesign) -> None:
    """Raise an OptionError if arguments of replicates do not go together."""
    n_given = len(design.replicates)
    if n_given and design.type is None:
        raise OptionError(f"replicates need their type: one of {', '.join(map(repr, KINDS))}.", argument="type")
    if n_given and (design.cluster or design.strata or design.fpc):
        raise OptionError(
            "replicate weights hold the clusters and strata already. Give replicates with weights, or strata, cluster "
            "and fpc.",
            argument="replicates",
        )
    if n_given and design.type == "JKn" and design.rscales is None:
        raise OptionError(
            "type='JKn' needs rscales, (n - 1)/n of the n clusters in the stratum of each replicate.",
            argument="rscales",
        )
    if design.rscales is not None and len(design.rscales) != n_given:
        raise OptionError(
            f"rscales has {len(design.rscales)} numbers, and replicates names {n_given} columns.", argument="rscales"
        )
    if design.rho and design.type != "Fay":
        raise OptionError("rho is of type='Fay'; leave it out, or give that type.", argument="rho")
    if n_given and design.type == "Fay" and not design.rho and design.scale is None:
        raise OptionError(
            "type='Fay' needs rho, by which the replicate weights were made; without it take 'BRR'.", argument="rho"
        )
    if design.mse and design.type is None:
        raise OptionError(
            "mse is of replicates, and this design has none: its covariances are linearised. Leave mse out, or give a "
            "type of replicates, such as 'JKn'.",
            argument="mse",
        )
    if design.scale is not None and not n_given:
        raise OptionError("scale is of replicates whose columns are given; leave it out.", argument="scale")
