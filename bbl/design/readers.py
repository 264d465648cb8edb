"""Readers: sequences from FASTA files, frequency tables to rows, and the removal of constant columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.checks import flag, verb
from bbl.design.frames import Frame, to_frame
from bbl.design.values import distinct
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError, DataWarning
from bbl.memory import check_memory

if TYPE_CHECKING:
    from bbl.design.table_types import TableLike

__all__ = ["freq2raw", "readFasta", "removeConst"]


@verb
def readFasta(file: str | os.PathLike | IO, rownames: bool = False) -> pd.DataFrame:
    """Read aligned sequences from a FASTA file, one column per position.

    Lines of a record are joined. The first sequence that is not empty sets the length: longer sequences are cut to
    it, shorter and empty ones are skipped.

    Parameters
    ----------
    file : str, path, or open file
        Text in UTF-8. Each record is a line ``>name`` and the lines of its sequence.
    rownames : bool, default False
        Whether the names are the index of the result; 0, 1, ... otherwise.

    Returns
    -------
    DataFrame
        One row per sequence; columns ``"1"``, ``"2"``, ... hold single characters, upper or lower case as in the
        file.

    Raises
    ------
    DataError
        If it is no FASTA file, or holds no sequence.
    BBLTypeError
        If `file` is neither a path nor an open file.

    Warns
    -----
    DataWarning
        If sequences were cut or skipped; says how many.

    References
    ----------
    Woo & Wang, section 3.6.

    Examples
    --------
    >>> import io
    >>> readFasta(io.StringIO(">s1\\nAC\\nGT\\n>s2\\nACGA\\n"))
       1  2  3  4
    0  A  C  G  T
    1  A  C  G  A
    """
    flag("rownames", rownames)
    names, sequences = _records(_lines(file))
    m = next((len(s) for s in sequences if s), 0)
    if not m:
        raise DataError(f"{_title(file)} holds no sequences. Give a FASTA file: lines '>name', then the sequence.")
    length = np.array([len(s) for s in sequences])
    counts = {
        f"longer than the first ({m}) and cut": int((length > m).sum()),
        "shorter and skipped": int(((length < m) & (length > 0)).sum()),
        "empty and skipped": int((length == 0).sum()),
    }
    if any(counts.values()):
        problems = ", ".join(f"{count} {problem}" for problem, count in counts.items() if count)
        warnings.warn(f"{_title(file)}: of {len(sequences)} sequences, {problems}.", DataWarning, stacklevel=3)
    long_enough = np.flatnonzero(length >= m)
    letters = np.array([sequences[k][:m] for k in long_enough], dtype=f"U{m}").view("U1").reshape(-1, m)
    index = pd.Index([names[k] for k in long_enough]) if rownames else pd.RangeIndex(len(long_enough))
    return pd.DataFrame(letters, index=index, columns=[str(j + 1) for j in range(m)])


def _title(file: str | os.PathLike | IO) -> str:
    return f"file {os.fspath(file)!r}" if isinstance(file, str | os.PathLike) else "file"


def _lines(file: str | os.PathLike | IO) -> list[str]:
    content: Any
    try:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as handle:
                content = handle.read()
        elif hasattr(file, "read"):
            content = file.read()
        else:
            raise BBLTypeError(f"file must be a path or an open file; got {type(file).__name__}.", argument="file")
        content = content.decode("utf-8") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise DataError(f"{_title(file)} is no text in {error.encoding} ({error.reason}). Give a FASTA file.") from None
    if not isinstance(content, str) or "\0" in content:
        raise DataError(f"{_title(file)} is no text. Give a FASTA file, unpacked.")
    return content.removeprefix("\ufeff").splitlines()  # a text handle hands on the byte-order mark


def _records(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names and the joined sequences of all records."""
    names: list[str] = []
    parts: list[list[str]] = []
    for line in lines:
        text = line.strip()
        if text.startswith(">"):
            names.append(text[1:].strip())
            parts.append([])
        elif text and not parts:
            raise DataError(f"the file starts with {text[:40]!r}, not with a line '>name'. Give a FASTA file.")
        elif text:
            parts[-1].append("".join(text.split()))
    return names, ["".join(p) for p in parts]


def _whole(frame: Frame) -> pd.DataFrame:
    """Return all columns of a table that is no pandas DataFrame."""
    columns = [frame.get(k) for k in range(len(frame.columns))]
    all_columns = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=frame.index)
    return all_columns.set_axis(pd.Index(frame.columns, tupleize_cols=False), axis=1)


@verb
def freq2raw(data: TableLike, freq: Any) -> pd.DataFrame:
    """Repeat each row as often as its frequency says.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of columns
    freq : column name or array_like of shape (n,)
        Whole numbers, 0 or more. A column of that name is left out of the result. An array goes by position; a pandas
        Series must have the index of `data`.

    Returns
    -------
    DataFrame
        With index 0, 1, ...

    Raises
    ------
    DataError, BBLTypeError
        If the frequencies are no counts, are not one for each row, or have another index.
    BBLError
        If the result would not fit into memory; it is a MemoryError too.

    Examples
    --------
    >>> freq2raw({"a": ["x", "y"], "n": [2, 1]}, "n")["a"].tolist()
    ['x', 'x', 'y']
    """
    frame = to_frame(data)
    all_columns = data if isinstance(data, pd.DataFrame) else _whole(frame)
    if isinstance(freq, str) or (freq is not None and frame.has(freq)):
        counts = check_weights(frame.column(freq), frame.n, "freq")
        all_columns = all_columns.loc[:, [name != freq for name in frame.columns]]
    elif freq is None:
        raise BBLTypeError("freq must be a column name or an array of counts; got None.", argument="freq")
    else:
        counts = check_weights(freq, frame.n, "freq", frame.index if frame.has_index else None)
    row = all_columns.memory_usage(index=False).sum() / max(1, frame.n)
    check_memory(
        counts.sum() * (float(row) + 16.0),
        f"A table of {counts.sum():.0f} rows",
        "Keep the counts: every verb takes them as weights.",
    )
    return all_columns.iloc[np.repeat(np.arange(frame.n), counts.astype(np.intp))].reset_index(drop=True)


@verb
def removeConst(data: TableLike, response: Hashable = None) -> pd.DataFrame:
    """Drop the columns that have the same value in every row.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of columns
    response : column name, optional
        A column to keep in any case.

    Returns
    -------
    DataFrame
        Always a frame, even of one column or none.

    Raises
    ------
    DataError
        If `response` is no column.

    Examples
    --------
    >>> removeConst({"a": [1, 1], "b": [1, 2]}).columns.tolist()
    ['b']
    """
    frame = to_frame(data)
    all_columns = data if isinstance(data, pd.DataFrame) else _whole(frame)
    if response is not None:
        frame.column(response)
    varying_columns = [
        (response is not None and name == response) or not _is_constant(frame.get(k))
        for k, name in enumerate(frame.columns)
    ]
    return all_columns.loc[:, varying_columns].copy()


def _is_constant(series: pd.Series) -> bool:
    """Whether a column has one distinct value; missing counts as a value."""
    try:
        codes = distinct(series)[0]
    except (TypeError, NotImplementedError):  # nested values: compare them by their text
        codes = pd.factorize(series.map(repr))[0]
    return len(codes) > 0 and bool((codes == codes[0]).all())
