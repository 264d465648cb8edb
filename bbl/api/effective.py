"""The public functions for related rows, such as sequences: `effective_weights` and
`effective_size`.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import check_keywords, generator, integer, real
from bbl.design.frames import to_frame
from bbl.design.table_types import TableLike
from bbl.design.weights import check_weights
from bbl.errors import ConvergenceWarning, DataError
from bbl.parallel import progress_bar
from bbl.stats.effective import MatchedSize, matched_size, neighbour_weights

__all__ = ["effective_size", "effective_weights"]

FEWEST_ROWS = 3.0  # below this size, the mutual information cannot be explained by chance
LARGEST_SIZE = 1e9  # above this size, the columns have no mutual information


def _column_codes(data: TableLike | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode the distinct values of each column as integers; return the codes (n, m) and the number
    of distinct values in each column (m,).
    """
    if isinstance(data, np.ndarray) and data.ndim == 2:
        columns = [data[:, i] for i in range(data.shape[1])]
    else:
        frame = to_frame(data)
        columns = [frame.column(name).array for name in frame.columns]
    if not columns or not len(columns[0]):
        raise DataError("data has no rows or no columns.", argument="data")
    # `factorize` returns (codes, distinct values); use_na_sentinel=False counts missing as a value
    codes_by_column = [
        pd.factorize(np.asarray(column), use_na_sentinel=False)[0] for column in columns
    ]
    return np.column_stack(codes_by_column), np.array(
        [column_codes.max() + 1 for column_codes in codes_by_column]
    )


@check_keywords
def effective_weights(
    data: TableLike | np.ndarray, identity: float = 0.8, *, verbose: int = 1
) -> np.ndarray:
    """Return weights 1 / (number of similar rows), which downweight related sequences.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table, dict of lists or array, shape (n, m)
        The columns to compare, without the response; for example the result of `readFasta`. Missing
        values are treated as a separate value.
    identity : float, default 0.8
        Rows are similar if they agree in more than this proportion of the columns; every row is
        similar to itself and its copies.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    ndarray, shape (n,)
        Real weights between 1/n and 1, which are accepted by ``method="pvi"``, for example. Their
        sum is a first estimate of the number of independent rows; `effective_size` computes another
        estimate.

    Raises
    ------
    OptionError, DataError
        If `identity` is outside [0, 1], or if the data are empty.

    References
    ----------
    Ekeberg M, Lovkvist C, Lan Y, Weigt M, Aurell E (2013). Improved contact prediction in proteins:
    using pseudolikelihoods to infer Potts models. Physical Review E 87:012707.

    Examples
    --------
    >>> rows = np.array([list("ACGT"), list("ACGT"), list("ACGA"), list("TTTT")])
    >>> effective_weights(rows, identity=0.7).round(2).tolist()
    [0.33, 0.33, 0.33, 1.0]
    """
    identity_threshold = real("identity", identity, 0.0, 1.0)
    codes, _ = _column_codes(data)
    with progress_bar(1, "effective_weights", verbose) as progress:
        return neighbour_weights(codes, identity_threshold, progress)


@check_keywords
def effective_size(
    data: TableLike | np.ndarray,
    weights: ArrayLike | None = None,
    *,
    n_steps: int = 1000,
    batch: int = 100,
    seed: int | np.random.Generator | None = 0,
    verbose: int = 1,
) -> float:
    """Estimate the number of independent rows from the mutual information between columns.

    The result is the number of independent rows for which the mean mutual information over all
    pairs of unrelated columns would, by chance alone, equal the observed value. With few rows and
    many columns, most of the mutual information is due to chance. With strong couplings or many
    rows, the proportion due to chance is smaller, and the estimate is too small.

    Parameters
    ----------
    data : as in `effective_weights`
        Two or more columns.
    weights : array_like, shape (n,), optional
        Row weights, such as those from `effective_weights`.
    n_steps : int, default 1000
        Number of steps of the stochastic approximation; the size is averaged over the second half.
    batch : int, default 100
        Number of column pairs drawn in each step.
    seed : int, numpy.random.Generator or None, default 0
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    float
        The estimated size. A model fitted with real-valued weights assumes the effective number of
        rows ``weights.sum() ** 2 / (weights ** 2).sum()``, which does not account for related rows.
        If the estimated size is much smaller, the model's priors and information criteria overstate
        the information in the rows.

    Raises
    ------
    DataError, OptionError, BBLTypeError
        If there are fewer than two columns, or weights are negative, missing or all zero.

    Warns
    -----
    ConvergenceWarning
        If the steps did not converge, or no size explains the mutual information.

    Notes
    -----
    The size does not depend on the scale of the weights or on the starting value. The mutual
    information that is expected by chance between independent columns is nearly inversely
    proportional to the size. Each step changes the logarithm of the size in proportion to the
    relative excess of the expected over the observed information.

    References
    ----------
    Ingraham J, Marks D (2017). Variational inference for sparse and undirected models. ICML,
    supplement 8.3.1.

    Examples
    --------
    >>> rows = np.random.default_rng(0).integers(0, 4, (100, 30))
    >>> bool(75 < effective_size(rows, n_steps=100) < 130)
    True
    >>> bool(75 < effective_size(np.repeat(rows, 3, axis=0), n_steps=100) < 130)
    True
    """
    codes, n_levels = _column_codes(data)
    if codes.shape[1] < 2:
        raise DataError(
            "effective_size compares pairs of columns, but data has only one column.",
            argument="data",
        )
    row_weights = check_weights(weights, len(codes), whole=False)
    rng = generator(seed)
    n_steps = integer("n_steps", n_steps, 1)
    batch = integer("batch", batch, 1)
    with progress_bar(1, "effective_size", verbose) as progress:
        matched = matched_size(codes, n_levels, row_weights, rng, n_steps, batch, progress)
    if not matched.converged:
        _warn_unmatched(matched)
    return matched.size


def _warn_unmatched(matched: MatchedSize) -> None:
    """Warn if the steps ended before convergence, or if no size explains the mutual information."""
    if matched.size < FEWEST_ROWS:
        cause = (
            "The columns are strongly coupled: at any number of rows, they share more mutual "
            "information than independent columns would by chance."
        )
        hint = "Instead, scale the weights so that they sum to the total of effective_weights()."
    elif matched.size > LARGEST_SIZE:
        cause = (
            "The columns share no mutual information, so any large number of rows is "
            "equally plausible."
        )
        hint = "Leave the weights as they are."
    else:
        cause = f"effective_size did not converge. The current estimate is {matched.size:.4g}."
        hint = "Increase n_steps or batch."
    warnings.warn(ConvergenceWarning(cause, hint=hint), stacklevel=4)
