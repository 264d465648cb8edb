"""Example data sets: ``load_*`` functions read files that are included in bbl.data, and ``fetch_*``
functions download files.

Examples
--------
>>> import bbl
>>> bbl.datasets.load_titanic().shape
(32, 5)
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import warnings
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, integer
from bbl.design.readers import readFasta
from bbl.errors import DataError, DataWarning

__all__ = [
    "fetch_ma0014",
    "fetch_mnist",
    "load_crp_sites",
    "load_genetic_code",
    "load_mnist",
    "load_splice_sites",
    "load_titanic",
    "load_titanic_passengers",
]

# sorted because R's bbl sorts the levels of predictors; these are the reference levels in the paper
_TITANIC_LEVELS = {
    "Class": ["1st", "2nd", "3rd", "Crew"],
    "Sex": ["Female", "Male"],
    "Age": ["Adult", "Child"],
    "Survived": ["No", "Yes"],
}


def _read(name: str) -> pd.DataFrame:
    """Return the included CSV file `name` as a frame; text such as "NA" is not read as a missing
    value.
    """
    content = files("bbl.data").joinpath(name).read_bytes()
    return pd.read_csv(
        io.BytesIO(gzip.decompress(content) if name.endswith(".gz") else content),
        keep_default_na=False,
    )


def _letter_frame(sequences: pd.Series) -> pd.DataFrame:
    """Return n sequences of m letters as a frame (n, m) with columns ``"1"``, ``"2"``, ..."""
    m = len(sequences.iloc[0])
    # in memory, a string of m letters is equivalent to m strings of one letter
    letters = np.array(sequences, dtype=f"U{m}").view("U1").reshape(-1, m)
    return pd.DataFrame(letters, index=sequences.index, columns=[str(j + 1) for j in range(m)])


def _image_frame(
    labels: np.ndarray, pixels: np.ndarray, index: pd.Index | None = None
) -> pd.DataFrame:
    """Return labels (n,) and pixels (n, 784) as a frame with columns y, X1, X2, ... as in R."""
    frame = pd.DataFrame(pixels, index=index, columns=[f"X{j + 1}" for j in range(pixels.shape[1])])
    frame.insert(0, "y", labels.astype(np.int64))  # as the first column
    return frame


def load_titanic() -> pd.DataFrame:
    """Return the people on board the Titanic, counted by class, sex, age and survival.

    Returns
    -------
    DataFrame, shape (32, 5)
        Unordered categorical columns ``Class``, ``Sex``, ``Age``, ``Survived`` with their levels in
        alphabetical order, as in R's bbl, and ``Freq``, the number of people (use
        ``weights="Freq"``). Eight cells are empty (``Freq`` is 0).

    Notes
    -----
    Source: base R's ``Titanic``; Dawson (1995), doi:10.1080/10691898.1995.11910499. These data are
    the example in section 3.1 of Woo & Wang (2022).

    Examples
    --------
    >>> titanic = load_titanic()
    >>> titanic.head(3)
      Class   Sex    Age Survived  Freq
    0   1st  Male  Child       No     0
    1   2nd  Male  Child       No     0
    2   3rd  Male  Child       No    35
    >>> int(titanic["Freq"].sum())
    2201
    """
    table = _read("titanic.csv")
    return table.astype(
        {name: pd.CategoricalDtype(levels) for name, levels in _TITANIC_LEVELS.items()}
    )


def load_titanic_passengers() -> pd.DataFrame:
    """Return the passengers of the Titanic individually, with their age in years.

    Returns
    -------
    DataFrame, shape (1309, 4)
        Unordered categorical columns ``Class``, ``Sex`` and ``Survived`` with their levels in
        alphabetical order, and ``Age`` as float, which is missing for 263 passengers.

    Notes
    -----
    Source: F. E. Harrell Jr. and T. Cason, from the Encyclopedia Titanica; OpenML data set 40945.
    The crew is not included, and the numbers of passengers differ slightly from those in
    `load_titanic`.

    Examples
    --------
    >>> passengers = load_titanic_passengers()
    >>> passengers.head(3)
      Class     Sex      Age Survived
    0   1st  Female  29.0000      Yes
    1   1st    Male   0.9167      Yes
    2   1st  Female   2.0000       No
    """
    table = _read("titanic_passengers.csv")
    levels = _TITANIC_LEVELS | {"Class": _TITANIC_LEVELS["Class"][:3]}
    columns: dict[str, Any] = {
        name: pd.CategoricalDtype(levels[name]) for name in ("Class", "Sex", "Survived")
    }
    # an unknown age is an empty string
    return table.assign(Age=pd.to_numeric(table["Age"])).astype(columns)


def load_genetic_code() -> pd.DataFrame:
    """Return the standard genetic code, with one row for each codon.

    Returns
    -------
    DataFrame, shape (64, 4)
        Text columns ``b1``, ``b2``, ``b3``, the bases (``a``, ``c``, ``g``, ``t``), and ``aa``, the
        amino acid in the one-letter code, or ``*`` for a stop codon.

    Notes
    -----
    The columns are the response and predictors of the codon example of Woo & Wang (2022), section
    3.4.

    Examples
    --------
    >>> code = load_genetic_code()
    >>> code.query("b1 == 'a' and b2 == 't'")
       b1 b2 b3 aa
    12  a  t  a  I
    13  a  t  c  I
    14  a  t  g  M
    15  a  t  t  I
    """
    return _read("genetic_code.csv")


def load_crp_sites() -> pd.DataFrame:
    """Return 358 binding sites of the transcription factor CRP in *Escherichia coli*.

    Returns
    -------
    DataFrame, shape (358, 26)
        Columns ``"1"`` to ``"26"``, one for each position, with letters A, C, G, T; the index
        contains the promoter names.

    Notes
    -----
    Source: RegulonDB 8.0 (Salgado et al. 2013, doi:10.1093/nar/gks1201), as included in logomaker
    0.8.7.

    Examples
    --------
    >>> sites = load_crp_sites()
    >>> "".join(sites.loc["caiFp"])
    'ATAAGCAGGATTTAGCTCACACTTAT'
    """
    return _letter_frame(_read("crp_sites.csv").set_index("promoter")["sequence"])


def load_splice_sites() -> pd.DataFrame:
    """Return the distinct 5' splice sites of the human genome with their counts.

    Returns
    -------
    DataFrame, shape (10227, 10)
        Columns ``"1"`` to ``"9"``, one for each position, with letters: the last three bases of the
        exon and the first six bases of the intron, which begins with GT or GC; and ``count``, the
        number of occurrences of the site (use ``weights="count"``).

    Notes
    -----
    Source: GENCODE (Frankish et al. 2019, doi:10.1093/nar/gky955), as included in logomaker 0.8.7.

    Examples
    --------
    >>> sites = load_splice_sites()
    >>> sites.nlargest(1, "count")
          1  2  3  4  5  6  7  8  9  count
    3333  C  A  G  G  T  G  A  G  T   3729
    """
    table = _read("splice_sites.csv.gz")
    return _letter_frame(table["sequence"]).assign(count=table["count"])


def load_mnist(part: str = "train") -> pd.DataFrame:
    """Return 1,000 training or 500 test images drawn at random from MNIST, in black and white.

    Parameters
    ----------
    part : {"train", "test"}, default "train"

    Returns
    -------
    DataFrame, shape (1000, 785) or (500, 785)
        ``y``, the digit, and ``X1`` to ``X784``, the 28 x 28 pixels row by row: 1 if the grey level
        (0 to 255) exceeds 127, otherwise 0. The index contains the row numbers in the original
        file.

    Notes
    -----
    Source: LeCun et al. (1998), doi:10.1109/5.726791. The subsample of Woo & Wang (2022), section
    3.5, has the same sizes but different images.

    Examples
    --------
    >>> test = load_mnist("test")
    >>> test.shape
    (500, 785)
    """
    choice("part", part, ("train", "test"))
    table = _read("mnist.csv.gz").query("part == @part")
    # the column "pixels" contains hexadecimal text, with one bit for each pixel
    packed = np.frombuffer(bytes.fromhex("".join(table["pixels"])), dtype=np.uint8).reshape(
        len(table), -1
    )
    return _image_frame(
        table["y"].to_numpy(), np.unpackbits(packed, axis=1), pd.Index(table["row"])
    )


@dataclass(frozen=True)
class _Remote:
    """A file to download: its URL, its SHA-256, and the SHA-256 of its unpacked content."""

    url: str
    sha256: str
    content_sha256: str


# directory of all MNIST files
_MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_REMOTE = {
    "MA0014.3.fasta": _Remote(
        "https://raw.githubusercontent.com/cran/bbl/1.0.0/inst/extdata/MA0014.3.fasta",
        "622d1263ae4389642134790cb866b5b92246a1b239b9eef0719e63f9ed162319",
        "622d1263ae4389642134790cb866b5b92246a1b239b9eef0719e63f9ed162319",
    ),
    "train-images-idx3-ubyte.gz": _Remote(
        _MNIST_URL + "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train-labels-idx1-ubyte.gz": _Remote(
        _MNIST_URL + "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "t10k-images-idx3-ubyte.gz": _Remote(
        _MNIST_URL + "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "t10k-labels-idx1-ubyte.gz": _Remote(
        _MNIST_URL + "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


def _fetch(name: str) -> bytes:
    """Return the unpacked content of a file in `_REMOTE`, which is read from BBL_DATA, the cache or
    its URL.
    """
    path = _local_file(name) or _download(name)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if name.endswith(".gz") else content
    except (OSError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read ({error}).", hint="Replace it with the original."
        ) from error
    if hashlib.sha256(content).hexdigest() != _REMOTE[name].content_sha256:
        raise DataError(
            f"{path} is not the original file (its SHA-256 differs).",
            hint="Replace it or delete it.",
        )
    return content


def _local_file(name: str) -> Path | None:
    """Return the path of the file in the directory BBL_DATA or its subdirectories, or None."""
    folder = os.environ.get("BBL_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise DataError(
            f"BBL_DATA={folder!r} is not a directory.",
            hint="Set it to the directory that contains the downloaded files, or unset it.",
            value=folder,
        )
    return next(
        (p for p in [Path(folder, name), *sorted(Path(folder).glob(f"*/{name}"))] if p.is_file()),
        None,
    )


def _download(name: str) -> Path:
    """Return the path of the file in the user's cache; download the file with pooch if
    necessary.
    """
    remote = _REMOTE[name]
    remedy = (
        f"Put {name} into a directory and set the environment variable BBL_DATA to the path of "
        "that directory"
    )
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            f"{name} is not included, and downloading it requires pooch.",
            hint=(f"Run pip install 'boltzmann-bayes[data]', or {remedy[0].lower()}{remedy[1:]}."),
        ) from error
    log_level = pooch.get_logger().level
    pooch.get_logger().setLevel("ERROR")  # suppress messages about downloads
    try:
        path = pooch.retrieve(
            remote.url, f"sha256:{remote.sha256}", fname=name, path=pooch.os_cache("bbl")
        )
    except (OSError, ValueError) as error:  # no network, no such page, or an unexpected file
        raise DataError(
            f"{name} could not be downloaded from {remote.url} ({error}).", hint=f"{remedy}."
        ) from error
    finally:
        pooch.get_logger().setLevel(log_level)
    return Path(path)


def fetch_ma0014() -> pd.DataFrame:
    """Return the binding sites MA0014.3 (PAX5) from JASPAR 2018, which are downloaded once.

    Returns
    -------
    DataFrame, shape (948, 12)
        Columns ``"1"`` to ``"12"``, one for each position, with letters A, C, G, T. Of the 1412
        records, 425 empty records and 39 shorter records are skipped.

    Raises
    ------
    DataError
        If the file cannot be found or downloaded, or differs from the original.

    Notes
    -----
    These are the data of Woo & Wang (2022), section 3.6, from the R package bbl. That package is
    under the GPL, so its data are not included here. The file is searched for in the directory
    given by the environment variable ``BBL_DATA``, in its immediate subdirectories, and in the
    cache of pooch, which downloads it if necessary. Its SHA-256 is always checked.

    Examples
    --------
    With ``BBL_DATA`` set, or with a network::

        sites = bbl.datasets.fetch_ma0014()
    """
    text = _fetch("MA0014.3.fasta").decode("utf-8")
    # the warnings concern skipped records, which are known
    with warnings.catch_warnings(action="ignore", category=DataWarning):
        return readFasta(io.StringIO(text))


def _read_idx(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the uint8 array in a file in MNIST's IDX format, without the header."""
    content = np.frombuffer(_fetch(name), dtype=np.uint8)
    return content[content.size - int(np.prod(shape)) :].reshape(shape)


def fetch_mnist(part: str = "train", threshold: int | None = 127) -> pd.DataFrame:
    """Return all 60,000 training or all 10,000 test images of MNIST.

    The files (11 MB) are downloaded once.

    Parameters
    ----------
    part : {"train", "test"}, default "train"
    threshold : int or None, default 127
        Pixels are 1 if the grey level (0 to 255) exceeds the threshold, otherwise 0; None returns
        the grey levels.

    Returns
    -------
    DataFrame, shape (60000, 785) or (10000, 785)
        ``y``, the digit, and ``X1`` to ``X784``, the 28 x 28 pixels row by row.

    Raises
    ------
    DataError
        If the files cannot be found or downloaded, or differ from the originals.

    Notes
    -----
    Source: LeCun et al. (1998), doi:10.1109/5.726791. The files are searched for as described in
    `fetch_ma0014`. Recompressed files are accepted, because only the SHA-256 of their content is
    checked.

    Examples
    --------
    With ``BBL_DATA`` set, or with a network::

        digits = bbl.datasets.fetch_mnist("test")
    """
    choice("part", part, ("train", "test"))
    grey_threshold = None if threshold is None else integer("threshold", threshold, 0, 254)
    prefix, n = ("train", 60_000) if part == "train" else ("t10k", 10_000)
    labels = _read_idx(f"{prefix}-labels-idx1-ubyte.gz", (n,))
    pixels = _read_idx(f"{prefix}-images-idx3-ubyte.gz", (n, 784))
    return _image_frame(
        labels, pixels if grey_threshold is None else (pixels > grey_threshold).view(np.uint8)
    )
