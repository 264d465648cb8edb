"""The verb of class scores as features: log_scores."""

from __future__ import annotations

import pandas as pd

from bbl.checks import flag, verb
from bbl.design.table_types import TableLike
from bbl.errors import BBLTypeError
from bbl.results.machine.fit import BBLResults

__all__ = ["log_scores"]


@verb
def log_scores(
    fit: BBLResults,
    newdata: TableLike | None = None,
    normalised: bool = False,
    prior: bool = False,
    unseen: str = "raise",
) -> pd.DataFrame:
    """Return the score of each row in each group: its energy, less ln Z and with the group's share if asked for.

    Parameters
    ----------
    fit : BBLResults
        A fitted Boltzmann machine.
    newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
        Rows with the predictors' columns; the training rows by default.
    normalised : bool, default False
        Whether to subtract the group's ln Z: ``ln P(x | y)``, averaged over draws where the method has draws. Without
        it the score is ``sum h + sum J`` in the reference gauge, which differs by a constant from that in others.
    prior : bool, default False
        Whether to add the logarithm of the group's share: the model's `priors`, or that in the training rows.
    unseen : {"raise", "ignore"}, default "raise"
        As in ``predict``.

    Returns
    -------
    DataFrame
        A column for each group, on the index of `newdata`.

    Raises
    ------
    BBLTypeError
        If `fit` is no fitted Boltzmann machine.
    DataError, LevelError
        As ``predict``.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .", titanic, weights="Freq", method="naive")
    >>> log_scores(fit, titanic.head(2), normalised=True, prior=True).round(3)
          No    Yes
    0 -6.326 -5.561
    1 -6.013 -6.103
    """
    if not isinstance(fit, BBLResults):
        raise BBLTypeError(f"fit must be what bbl() returned; got {type(fit).__name__}.", argument="fit")
    return fit.log_scores(newdata, flag("normalised", normalised), flag("prior", prior), unseen)
