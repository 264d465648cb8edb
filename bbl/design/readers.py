"""Read FASTA files, expand frequency tables, and drop constant columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, flag
from bbl.design.frames import Frame, to_frame
from bbl.design.values import find_distinct
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError, DataWarning
from bbl.memory import check_memory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from bbl.design.table_types import TableLike

__all__ = ["freq2raw", "readFasta", "removeConst"]

# IUPAC's letters that stand for more than one base or amino acid
AMBIGUOUS_BASES = "NRYSWKMBDHV"
AMBIGUOUS_AMINO_ACIDS = "XBZJ"
SHARE_OF_BASES = 0.9  # minimum proportion of A, C, G, T, U and N in nucleotide sequences


@check_keywords  # unknown keywords raise an error
def readFasta(
    file: str | os.PathLike[str] | IO[str],
    rownames: bool = False,
    *,
    fold_case: bool = True,
    gaps: str = ".-",
    unknown: str | None = None,
) -> pd.DataFrame:
    """Read aligned sequences from a FASTA file into a table with one column per position.

    The lines of a record are joined. The first non-empty sequence determines the length m: longer
    sequences are truncated to m characters, and shorter or empty sequences are skipped. Letters are
    converted to upper case, all gap characters to ``"-"``, and unknown letters to missing values.
    These changes are reported in a warning.

    Parameters
    ----------
    file : str, path, or open file
        File in FASTA format, encoded in UTF-8. Each record is a line ``>name`` followed by the
        lines of its sequence.
    rownames : bool, default False
        Whether to use the record names as the index. If False, the index is 0, 1, ...
    fold_case : bool, default True
        Whether to convert letters to upper case. If False, ``a`` and ``A`` are different levels.
    gaps : str, default ".-"
        Gap characters, which are converted to ``"-"``, a separate level; ``""`` for no conversion.
    unknown : str, optional
        Characters for unknown letters, which become missing values (see `missing` in `bbl`); ``""``
        for none. By default, ``"?"`` and IUPAC's ambiguity codes: N, R, Y, S, W, K, M, B, D, H and
        V in nucleotide sequences (which have no other letters, and at least 90 % A, C, G, T, U or
        N), and X, B, Z and J in all other sequences, such as proteins.

    Returns
    -------
    DataFrame
        One row per sequence; columns ``"1"``, ``"2"``, ... contain single characters; unknown
        letters are missing.

    Raises
    ------
    DataError
        If the file is not a FASTA file, or contains no sequences.
    BBLTypeError
        If `file` is neither a path nor an open file.

    Warns
    -----
    DataWarning
        If sequences are truncated or skipped, or characters are replaced; the warning contains the
        counts.

    References
    ----------
    Woo & Wang (2022), section 3.6.

    Examples
    --------
    >>> import io
    >>> readFasta(io.StringIO(">s1\\nAC\\nGT\\n>s2\\nACGA\\n"))
       1  2  3  4
    0  A  C  G  T
    1  A  C  G  A
    """
    flag("rownames", rownames)
    flag("fold_case", fold_case)
    _check_characters("gaps", gaps)
    if unknown is not None:
        _check_characters("unknown", unknown)
    names, sequences = _parse_records(_read_lines(file))
    m = next((len(s) for s in sequences if s), 0)  # length of the first non-empty sequence
    if not m:
        raise DataError(
            f"{_name_file(file)} contains no sequences.",
            hint="Use a FASTA file: lines '>name', then the sequence.",
        )
    lengths = np.array([len(s) for s in sequences])
    count_by_problem = {
        f"longer than the first ({m}) and truncated": int((lengths > m).sum()),
        "shorter and skipped": int(((lengths < m) & (lengths > 0)).sum()),
        "empty and skipped": int((lengths == 0).sum()),
    }
    kept_records = np.flatnonzero(lengths >= m)
    # in memory, a string of m characters is equivalent to m strings of one character
    letters = (
        np.array([sequences[k][:m] for k in kept_records], dtype=f"U{m}").view("U1").reshape(-1, m)
    )
    problems = [f"{count} {problem}" for problem, count in count_by_problem.items() if count]
    capitals = np.char.upper(letters) if fold_case else letters
    n_folded = int((capitals != letters).any(axis=1).sum())
    if n_folded:
        problems.append(f"{n_folded} with lower-case letters, read as upper case (fold_case=True)")
    cleaned, replaced = _replace_characters(capitals, gaps, unknown)
    problems += replaced
    if problems:
        warnings.warn(
            DataWarning(
                f"{_name_file(file)}: of {len(sequences)} sequences, {', '.join(problems)}."
            ),
            stacklevel=3,
        )
    index = (
        pd.Index([names[k] for k in kept_records]) if rownames else pd.RangeIndex(len(kept_records))
    )
    return pd.DataFrame(cleaned, index=index, columns=[str(j + 1) for j in range(m)])


def _check_characters(argument: str, characters: object) -> None:
    """Raise an error if the value of `gaps` or `unknown` is not text, or contains spaces."""
    if not isinstance(characters, str):
        raise BBLTypeError(
            f"{argument} must be text; got {type(characters).__name__}.",
            hint=f'Pass the characters as one string, such as {argument}="-".',
            argument=argument,
            value=characters,
        )
    if any(character.isspace() for character in characters):
        raise DataError(
            f"{argument}={characters!r} contains a space, but sequences never contain spaces.",
            hint="Leave the spaces out.",
            argument=argument,
            value=characters,
        )


def _unknown_characters(count_by_character: dict[str, int]) -> str:
    """Return the characters that stand for unknown or ambiguous letters, given the count of each
    character.
    """
    counts: dict[str, int] = {}
    for character, count in count_by_character.items():
        if character.isalpha():
            counts[character.upper()] = counts.get(character.upper(), 0) + count
    n_bases = sum(counts.get(letter, 0) for letter in "ACGTUN")
    is_nucleotide = set(counts) <= set("ACGTU" + AMBIGUOUS_BASES)
    is_nucleotide = is_nucleotide and n_bases >= SHARE_OF_BASES * sum(counts.values())
    letters = AMBIGUOUS_BASES if is_nucleotide else AMBIGUOUS_AMINO_ACIDS
    return letters + letters.lower() + "?"


def _replace_characters(
    letters: np.ndarray, gaps: str, unknown: str | None
) -> tuple[np.ndarray, list[str]]:
    """In the letters (n, m), replace `gaps` by ``"-"`` and `unknown` letters by None.

    Return the letters, and descriptions of the replacements.
    """
    characters, counts = np.unique(letters, return_counts=True)
    count_by_character = dict(zip(characters.tolist(), counts.tolist(), strict=True))
    if unknown is None:
        unknown = _unknown_characters(count_by_character)
    replaced = []
    is_gap = np.isin(letters, list(gaps))
    other_gaps = [c for c in count_by_character if c in gaps and c != "-"]
    if other_gaps:
        shown = ", ".join(f"{count_by_character[c]:,} {c!r}" for c in other_gaps)
        replaced.append(f"{shown} read as '-' (gaps={gaps!r})")
    unknown_letters = [c for c in count_by_character if c in unknown]
    cleaned = np.where(is_gap, "-", letters)
    if unknown_letters:
        shown = ", ".join(f"{count_by_character[c]:,} {c!r}" for c in unknown_letters)
        replaced.append(f"{shown} read as missing (unknown={''.join(unknown_letters)!r})")
        cleaned = cleaned.astype(object)
        cleaned[np.isin(letters, unknown_letters)] = None
    return cleaned, replaced


def _name_file(file: str | os.PathLike[str] | IO) -> str:
    """Return the name of a file for messages."""
    return f"file {os.fspath(file)!r}" if isinstance(file, str | os.PathLike) else "file"


def _read_lines(file: str | os.PathLike[str] | IO) -> list[str]:
    """Return the lines of a path or an open file; raise an error for files that are not UTF-8
    text.
    """
    content: Any
    try:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as handle:
                content = handle.read()
        elif hasattr(file, "read"):
            content = file.read()
        else:
            raise BBLTypeError(
                f"file must be a path or an open file; got {type(file).__name__}.", argument="file"
            )
        content = content.decode("utf-8") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise DataError(
            f"{_name_file(file)} cannot be decoded as {error.encoding} ({error.reason}).",
            hint="Use a FASTA file.",
        ) from None
    if not isinstance(content, str) or "\0" in content:
        raise DataError(f"{_name_file(file)} is not text.", hint="Use an uncompressed FASTA file.")
    # files that are opened as text still contain a byte-order mark
    return content.removeprefix("\ufeff").splitlines()


def _parse_records(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names of all FASTA records, and their sequences without line breaks and spaces."""
    names: list[str] = []
    sequence_lines: list[list[str]] = []  # for each record
    for line in lines:
        text = line.strip()
        if text.startswith(">"):
            names.append(text[1:].strip())
            sequence_lines.append([])
        elif text and not sequence_lines:
            raise DataError(
                f"the file starts with {text[:40]!r} instead of a line '>name'.",
                hint="Use a FASTA file.",
            )
        elif text:
            sequence_lines[-1].append("".join(text.split()))
    return names, ["".join(record_lines) for record_lines in sequence_lines]


def _to_pandas(data: TableLike, frame: Frame) -> pd.DataFrame:
    """Return `data`, a table of any kind with the columns of `frame`, as a pandas DataFrame."""
    if isinstance(data, pd.DataFrame):
        return data
    columns = [frame.get(k) for k in range(len(frame.columns))]
    table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=frame.index)
    # a tuple is a single name
    return table.set_axis(pd.Index(frame.columns, tupleize_cols=False), axis=1)


@check_keywords  # unknown keywords raise an error
def freq2raw(data: TableLike, freq: Hashable | ArrayLike) -> pd.DataFrame:
    """Repeat each row according to its frequency.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of columns
    freq : column name or array_like of shape (n,)
        Non-negative integer frequencies; a column of frequencies is not included in the result. An
        array is matched by position; a pandas Series must have the same index as `data`.

    Returns
    -------
    DataFrame
        The expanded table, with index 0, 1, ...

    Raises
    ------
    DataError, BBLTypeError
        If the frequencies are not integers, or do not match the rows or the index of `data`.
    BBLError
        If the result would not fit into memory; this error is also a MemoryError.

    Examples
    --------
    >>> freq2raw({"a": ["x", "y"], "n": [2, 1]}, "n")["a"].tolist()
    ['x', 'x', 'y']
    """
    frame = to_frame(data)
    table = _to_pandas(data, frame)
    if isinstance(freq, str) or (freq is not None and frame.has(freq)):
        counts = check_weights(frame.column(freq), frame.n, "freq")
        table = table.loc[:, [name != freq for name in frame.columns]]
    elif freq is None:
        raise BBLTypeError(
            "freq must be a column name or an array of counts; got None.", argument="freq"
        )
    else:
        counts = check_weights(freq, frame.n, "freq", frame.index if frame.has_index else None)
    row_bytes = table.memory_usage(index=False).sum() / max(1, frame.n)  # mean over the rows
    check_memory(
        counts.sum() * (float(row_bytes) + 16.0),  # 16 bytes for the index and the positions
        f"A table of {counts.sum():.0f} rows",
        "Keep the counts: every function accepts them as weights.",
    )
    return table.iloc[np.repeat(np.arange(frame.n), counts.astype(np.intp))].reset_index(drop=True)


@check_keywords  # unknown keywords raise an error
def removeConst(data: TableLike, response: Hashable = None) -> pd.DataFrame:
    """Drop the columns that have the same value in every row.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of columns
    response : column name, optional
        Column that is kept even if it is constant.

    Returns
    -------
    DataFrame
        The remaining columns, as a DataFrame even if only one column or none remains.

    Raises
    ------
    DataError
        If `response` is not a column.

    Examples
    --------
    >>> removeConst({"a": [1, 1], "b": [1, 2]}).columns.tolist()
    ['b']
    """
    frame = to_frame(data)
    table = _to_pandas(data, frame)
    if response is not None:
        frame.column(response)  # raises the error if the column does not exist
    is_kept = [
        (response is not None and name == response) or not _is_constant(frame.get(k))
        for k, name in enumerate(frame.columns)
    ]
    return table.loc[:, is_kept].copy()


def _is_constant(series: pd.Series) -> bool:
    """Return whether all rows have the same value; missing values count as equal to each other."""
    try:
        codes = find_distinct(series)[0]  # (n,), the same for equal values; -1 for missing values
    # lists and other nested values are compared by their text
    except (TypeError, NotImplementedError):
        codes = pd.factorize(series.map(repr))[0]
    return len(codes) > 0 and bool((codes == codes[0]).all())
