"""Terms that the prediction of an average uses: those of its members. A method of the result class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from bbl.checks import verb
from bbl.errors import OptionError

if TYPE_CHECKING:
    from bbl.results.together.average import AverageResults

__all__ = ["relevant"]


@verb
def relevant(self: AverageResults) -> pd.DataFrame:
    """Return the terms that the members' predictions use: those whose parameters are not the same in all groups.

    Returns
    -------
    DataFrame
        By the index ``term`` (a predictor, or several joined by colons), the largest weight first: ``order`` (number of
        predictors) and ``weight`` (sum of the weights of the members that use the term).

    Raises
    ------
    OptionError
        If a member is no Boltzmann machine, whose terms are not told.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method="auto", verbose=0)
    >>> fit.relevant().round(3).head(3)["order"].tolist()
    [1, 1, 1]
    """
    told = [member.relevant for member in self.members if hasattr(member, "relevant")]
    if len(told) < len(self.members):
        raise OptionError("relevant() is told by Boltzmann machines, and a member of this average is none.")
    frames = [
        tell()["order"].to_frame().assign(weight=weight) for tell, weight in zip(told, self.member_weights, strict=True)
    ]
    used = pd.concat(frames).groupby("term", sort=False).agg({"order": "first", "weight": "sum"})
    return used.sort_values("weight", ascending=False, kind="stable")
