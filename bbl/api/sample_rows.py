"""Draw random rows from data of any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, generator, integer
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.source import arrow_batch
from bbl.parallel import progress_bar

if TYPE_CHECKING:
    from bbl.design.table_types import Batches, TableLike

__all__ = ["sample_rows"]


@check_keywords
def sample_rows(
    data: TableLike | Batches,
    n: int,
    *,
    seed: int | np.random.Generator | None = None,
    verbose: int = 1,
) -> pd.DataFrame:
    """Draw a random sample of rows, without replacement, in one pass over the data.

    All rows have the same probability. The sample depends on the seed and on the order of the rows,
    but not on the division of the rows into batches.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table, dict of lists, or data read in batches
        A Parquet path, list, glob or folder, Arrow Dataset or stream, DuckDB relation, polars
        LazyFrame, Dask DataFrame or callable, as in `bbl.bbl`.
    n : int
        Number of rows to draw. If there are fewer rows, all are returned.
    seed : int or numpy.random.Generator, optional
        The same seed always draws the same rows.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    DataFrame
        The sampled rows in their original order, with all columns, indexed by their positions in
        the data.

    Raises
    ------
    DataError, BBLTypeError
        If the data cannot be read, or if `data` has an unsupported type.

    Notes
    -----
    A random number is drawn for each row, and the n rows with the smallest numbers are kept (Fan,
    Muller & Rezucha 1962, Journal of the American Statistical Association 57).

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> bbl.sample_rows(titanic, 2, seed=1)
       Class     Sex    Age Survived  Freq
    9    2nd    Male  Adult       No   154
    31  Crew  Female  Adult      Yes    20
    """
    size = integer("n", n, 1)
    rng = generator(seed)
    kept = pd.DataFrame()
    keys = np.zeros(0)  # random number of each kept row
    threshold = 1.0  # rows with a larger number are not among the n smallest
    n_read = 0
    waiting: list[pd.DataFrame] = []
    waiting_keys: list[np.ndarray] = []
    n_waiting = 0

    def merge() -> None:
        """Merge the waiting rows into the kept rows, and keep at most `size` rows."""
        nonlocal kept, keys, threshold, n_waiting
        tables = [table for table in (kept, *waiting) if len(table.columns)]
        kept = pd.concat(tables) if tables else kept
        keys = np.concatenate([keys, *waiting_keys])
        if len(keys) > size:
            smallest = np.sort(np.argpartition(keys, size)[:size])
            kept = kept.iloc[smallest]
            keys = keys[smallest]
            threshold = float(keys.max())
        waiting.clear()
        waiting_keys.clear()
        n_waiting = 0

    with progress_bar(None, "sampling", verbose) as progress:
        for frame in _frames(data):
            batch_keys = rng.random(frame.n)
            chosen = np.flatnonzero(batch_keys <= threshold)
            waiting.append(_take(frame, chosen, n_read))
            waiting_keys.append(batch_keys[chosen])
            n_waiting += len(chosen)
            n_read += frame.n
            if n_waiting > size:
                merge()
            progress(1.0, f"{n_read:,} rows")
    merge()
    return kept


def _frames(data: TableLike | Batches) -> Iterator[Frame]:
    """Yield each batch of data read in batches, or a whole table."""
    source = None if isinstance(data, pd.DataFrame) else lazy_source(data)
    if source is None:
        yield to_frame(data)
        return
    for batch in source.batches(source.columns):
        yield batch.frame


def _take(frame: Frame, positions: np.ndarray, n_before: int) -> pd.DataFrame:
    """Return the rows at `positions` of a batch, indexed by their positions in the data; `n_before`
    is the number of rows before the batch.
    """
    if frame.arrow is not None and hasattr(frame.arrow, "to_struct_array"):  # a RecordBatch
        frame = arrow_batch(frame.arrow.take(positions), "", frame.declared).frame
        columns = [frame.get(k) for k in range(len(frame.columns))]
    else:
        columns = [frame.get(k).iloc[positions] for k in range(len(frame.columns))]
    index = pd.RangeIndex(len(positions)) if not len(positions) else n_before + positions
    table = pd.concat([column.reset_index(drop=True) for column in columns], axis=1)
    return table.set_axis(pd.Index(frame.columns, dtype=object), axis=1).set_axis(index, axis=0)
