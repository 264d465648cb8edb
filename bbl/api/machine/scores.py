"""The public function `log_scores`: energies of rows in each response group."""

from __future__ import annotations

import pandas as pd

from bbl.checks import check_keywords, flag
from bbl.design.table_types import TableLike
from bbl.errors import BBLTypeError
from bbl.results.machine.fit import BBLResults

__all__ = ["log_scores"]


@check_keywords
def log_scores(
    fit: BBLResults,
    newdata: TableLike | None = None,
    normalised: bool = False,
    prior: bool = False,
    unseen: str = "raise",
) -> pd.DataFrame:
    """Return the energy of each row in each group, optionally minus ln Z and plus the log prior
    probability.

    Parameters
    ----------
    fit : BBLResults
        A fitted Boltzmann machine.
    newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
        Rows with the predictors' columns; the training rows by default.
    normalised : bool, default False
        Whether to subtract the group's ln Z, which results in ``ln P(x | y)``. If the method draws
        from a posterior, the result is averaged over the draws. Otherwise the score is ``sum h +
        sum J`` in the reference gauge, in which the parameters of each predictor's first level are
        0; scores in other gauges differ by a constant for each group.
    prior : bool, default False
        Whether to add the log of the group's prior probability, by default its proportion in the
        training rows.
    unseen : {"raise", "ignore"}, default "raise"
        As in ``predict``.

    Returns
    -------
    DataFrame
        One column per group, with the index of `newdata`.

    Raises
    ------
    BBLTypeError
        If `fit` is not a fitted Boltzmann machine.
    DataError, LevelError
        As in ``predict``.

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
        raise BBLTypeError(
            f"fit must be a result of bbl(); got {type(fit).__name__}.", argument="fit"
        )
    return fit._log_scores(newdata, flag("normalised", normalised), flag("prior", prior), unseen)
