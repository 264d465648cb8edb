"""Structural zeros of a call, the cells that cannot occur: arguments that they exclude, and the
resulting support.

A *support* says which combinations of levels can occur. `WITH_ZEROS` holds the reasons for what
structural zeros exclude, by its name; the `refusals` of a method are reasons by capability that it
lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from bbl.boltzmann.job import FitData
from bbl.boltzmann.structural_zeros import make_support, refuse_observed_rows
from bbl.capabilities import WITH_ZEROS
from bbl.design.frames import Frame
from bbl.design.streams.source import Source
from bbl.design.zeros import read_zeros
from bbl.errors import OptionError
from bbl.model.support import Support

__all__ = ["check_zeros_call", "refuse_zeros", "shown_zeros", "support_of"]


def refuse_zeros(zeros: object, refusals: Mapping[str, str]) -> None:
    """Raise an OptionError if structural zeros are given to a method whose `refusals` name them."""
    if zeros is not None and (reason := refusals.get("structural_zeros")) is not None:
        raise OptionError(
            f"{reason}.",
            argument="structural_zeros",
            hint="Choose method='ml' with structural_zeros, or leave them out.",
        )


def shown_zeros(zeros: object) -> str | None:
    """Return what stands for structural zeros in the text of a call: a column's name, "given" for a
    table, or None.
    """
    return zeros if zeros is None or isinstance(zeros, str) else "given"


def check_zeros_call(
    zeros: object, refusals: Mapping[str, str], log_z: str, source: Source | None
) -> None:
    """Raise an OptionError if structural zeros do not go with other arguments of a call.

    Parameters
    ----------
    zeros : object
        The argument; None for no structural zeros.
    refusals : mapping
        Reasons of the method by capability that it lacks; see `Engine.refusals`.
    log_z : str
        How ln Z is computed.
    source : Source or None
        Data that are read in batches.
    """
    refuse_zeros(zeros, refusals)
    if zeros is None:
        return
    if log_z not in ("auto", "exact"):
        raise OptionError(
            f"log_z={log_z!r}: {WITH_ZEROS['a choice of `log_z`']}.",
            argument="log_z",
            hint="Leave log_z out.",
            value=log_z,
        )
    if source is not None:
        raise OptionError(
            f"{WITH_ZEROS['data that are read in batches']}, and {source.text} is read in batches.",
            argument="structural_zeros",
            hint="Give a table: the distinct rows with their counts as weights.",
        )


def support_of(zeros: object, encoded: FitData) -> Support | None:
    """Return the support that the structural `zeros` of a call leave; None without zeros (no rows,
    or none marked).

    Raises
    ------
    DataError
        If a cell that cannot occur is observed.
    """
    if zeros is None:
        return None
    labels = encoded.design.labels
    # level codes (cells, k) of the k predictors that the zeros name, and the group of each cell, or
    # None for all
    cells = read_zeros(zeros, encoded.design, cast(Frame, encoded.frame))
    support = make_support(cells, labels)
    if support is not None:
        refuse_observed_rows(support, encoded.rows, labels)
    return support
