"""Readers and small helpers on data frames: FASTA files, frequency tables, constant columns."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.design import check_weights
from bbl.errors import BBLTypeError, DataError, DataWarning

__all__ = ["freq2raw", "readFasta", "removeConst"]


def _frame(data: Any) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return data
    if hasattr(data, "to_pandas"):
        return data.to_pandas()
    if isinstance(data, dict):
        return pd.DataFrame(data)
    raise BBLTypeError(
        f"data must be a data frame, a pyarrow Table or a dict of lists; got {type(data).__name__}.", argument="data"
    )


def readFasta(file: str | os.PathLike | io.TextIOBase, rownames: bool = False) -> pd.DataFrame:
    """Read nucleotide or protein sequences as one column per position.

    Parameters
    ----------
    file : path or text file object
        A record is a line that starts with ``>`` and the lines up to the next one, joined.
    rownames : bool, default False
        Whether the rows are labelled by the record names.

    Returns
    -------
    DataFrame
        Columns ``"1"`` .. ``"m"``, m the length of the first sequence.

    Raises
    ------
    DataError
        If there is no sequence in the file.

    Warns
    -----
    DataWarning
        If sequences were longer than the first (they are cut), or shorter or empty (they are skipped); says how many.

    Examples
    --------
    >>> import io
    >>> readFasta(io.StringIO(">a\\nacg\\n>b\\nat\\nt\\n"))
       1  2  3
    0  a  c  g
    1  a  t  t
    """
    if isinstance(file, str | os.PathLike):
        text = Path(file).read_text(encoding="utf-8")
    elif hasattr(file, "read"):
        text = file.read()
    else:
        raise BBLTypeError(f"file must be a path or a text file; got {type(file).__name__}.", argument="file")
    records = [part.split("\n", 1) for part in ("\n" + text.replace("\r", "")).split("\n>")[1:]]
    names = [r[0].strip() for r in records]
    sequences = ["".join(r[1].split()) if len(r) > 1 else "" for r in records]
    first = next((len(s) for s in sequences if s), 0)
    if not first:
        raise DataError(f"{file!r} has no FASTA records ('>' lines followed by sequences).", argument="file")
    kept = [k for k, s in enumerate(sequences) if len(s) >= first]
    longer = sum(len(s) > first for s in sequences)
    skipped = len(sequences) - len(kept)
    if longer or skipped:
        warnings.warn(
            f"of {len(sequences)} sequences, {longer} longer than the first ({first} letters) were cut and {skipped} "
            "shorter or empty ones skipped.",
            DataWarning,
            stacklevel=2,
        )
    letters = np.array([list(sequences[k][:first]) for k in kept], dtype=object)
    index = pd.Index([names[k] for k in kept]) if rownames else None
    return pd.DataFrame(letters, columns=[str(i + 1) for i in range(first)], index=index)


def freq2raw(data: Any, freq: Any) -> pd.DataFrame:
    """Repeat each row as often as its frequency says.

    Parameters
    ----------
    data : data frame
    freq : column name or array of length n
        Whole numbers; a column is left out of the result.

    Returns
    -------
    DataFrame
        One row per observation, numbered from 0.

    Raises
    ------
    DataError, BBLTypeError
        If frequencies are negative, missing or fractional.

    Examples
    --------
    >>> freq2raw({"a": ["x", "y"], "n": [1, 2]}, "n")
       a
    0  x
    1  y
    2  y
    """
    frame = _frame(data)
    if isinstance(freq, Hashable) and freq in frame.columns:
        counts, frame = check_weights(frame[freq], len(frame)), frame.drop(columns=freq)
    elif isinstance(freq, str):
        raise DataError(f"freq={freq!r} is no column of data.", argument="freq")
    else:
        counts = check_weights(freq, len(frame))
    return frame.iloc[np.repeat(np.arange(len(frame)), counts.astype(np.intp))].reset_index(drop=True)


def removeConst(data: Any, response: Hashable | None = None) -> pd.DataFrame:
    """Drop the columns that have a single value.

    Parameters
    ----------
    data : data frame
    response : column name, optional
        Kept in any case.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> removeConst({"a": [1, 1], "b": [1, 2]})
       b
    0  1
    1  2
    """
    frame = _frame(data)
    keep = [name == response or frame[name].nunique(dropna=False) > 1 for name in frame.columns]
    return frame.loc[:, keep]
