"""The verbs for correlated rows: effective_weights, effective_size."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import generator, integer, real, verb
from bbl.design.frames import to_frame
from bbl.design.table_types import TableLike
from bbl.design.weights import check_weights
from bbl.errors import DataError
from bbl.parallel import progress_bar
from bbl.stats.effective import matched_size, neighbour_weights

__all__ = ["effective_size", "effective_weights"]


def _coded(data: TableLike | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cells as codes (n, m) into the distinct values of their column, and the numbers of values (m,)."""
    if isinstance(data, np.ndarray) and data.ndim == 2:
        columns = [data[:, i] for i in range(data.shape[1])]
    else:
        frame = to_frame(data)
        columns = [frame.column(name).array for name in frame.columns]
    if not columns or not len(columns[0]):
        raise DataError("data have no rows or no columns.", argument="data")
    codes = [pd.factorize(np.asarray(column), use_na_sentinel=False)[0] for column in columns]
    return np.column_stack(codes), np.array([column_codes.max() + 1 for column_codes in codes])


@verb
def effective_weights(data: TableLike | np.ndarray, identity: float = 0.8) -> np.ndarray:
    """Weigh each row by one over the number of rows that are like it: related sequences do not count in full.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table, dict of lists or array, shape (n, m)
        The columns to compare: as `readFasta` gives them, say, less a response. A missing value is a value like others.
    identity : float, default 0.8
        Rows that agree in more than this share of the columns are alike; a row is always like itself and its copies.

    Returns
    -------
    ndarray, shape (n,)
        Real weights between 1/n and 1, which ``method="pvi"`` takes. Their sum is a first guess at the number of
        independent rows; `effective_size` has another.

    Raises
    ------
    OptionError, DataError
        If `identity` is outside [0, 1], or there are no data.

    References
    ----------
    Ekeberg M, Lovkvist C, Lan Y, Weigt M, Aurell E (2013). Improved contact prediction in proteins: using
    pseudolikelihoods to infer Potts models. Physical Review E 87:012707.

    Examples
    --------
    >>> rows = np.array([list("ACGT"), list("ACGT"), list("ACGA"), list("TTTT")])
    >>> effective_weights(rows, identity=0.7).round(2).tolist()
    [0.33, 0.33, 0.33, 1.0]
    """
    share = real("identity", identity, 0.0, 1.0)
    return neighbour_weights(_coded(data)[0], share)


@verb
def effective_size(
    data: TableLike | np.ndarray,
    weights: ArrayLike | None = None,
    *,
    n_steps: int = 1000,
    batch: int = 100,
    seed: int | np.random.Generator | None = 0,
    verbose: int = 1,
) -> float:
    """Return how many independent rows would show as much mutual information by chance as these.

    In few rows of many columns, most of the mutual information of two columns is coincidence. Its mean over all pairs
    then tells how many independent rows there are. Where couplings are strong or rows are many it does not, and the
    size comes out too small.

    Parameters
    ----------
    data : as in `effective_weights`
        Two columns or more.
    weights : array_like, shape (n,), optional
        Of the rows: those of `effective_weights`, say.
    n_steps : int, default 1000
        Steps of the stochastic approximation.
    batch : int, default 100
        Pairs of columns drawn in each.
    seed : int, numpy.random.Generator or None, default 0
    verbose : int, default 1
        0 for no progress bar.

    Returns
    -------
    float
        Scale the weights to this sum: ``weights * size / weights.sum()``.

    Raises
    ------
    DataError, OptionError, BBLTypeError
        If there are no two columns, or weights are negative, missing or all zero.

    References
    ----------
    Ingraham J, Marks D (2017). Variational inference for sparse and undirected models. ICML, supplement 8.3.1.

    Examples
    --------
    >>> rows = np.random.default_rng(0).integers(0, 4, (100, 30))
    >>> bool(75 < effective_size(rows, n_steps=100) < 130)
    True
    >>> bool(75 < effective_size(np.repeat(rows, 3, axis=0), n_steps=100) < 130)
    True
    """
    codes, n_levels = _coded(data)
    if codes.shape[1] < 2:
        raise DataError("effective_size compares pairs of columns; data have one.", argument="data")
    w = check_weights(weights, len(codes), whole=False)
    rng, steps, size = generator(seed), integer("n_steps", n_steps, 1), integer("batch", batch, 1)
    with progress_bar(1, "effective_size", verbose) as step:
        return matched_size(codes, n_levels, w, rng, steps, size, step)
