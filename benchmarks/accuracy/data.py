"""Data sets of the accuracy benchmark as integer codes, and how each is split."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

import bbl
from benchmarks.files import data_folder, fetched, mnist, mnist_sample, shared_file

UCI = ("breast_cancer", "car", "lymph", "soybean", "splice", "tic-tac-toe", "vote", "zoo")
NAMES = ("titanic", "codon", *UCI, "ma0014", "mnist-1000", "mnist")
CODONS = 500
FOLDS, REPEATS = 5, 3
SPLITS = FOLDS * REPEATS


@dataclass(frozen=True)
class Data:
    """One data set: codes (n, m), numbers of levels (m,), classes (n,), and the splits (train,
    test).
    """

    name: str
    codes: np.ndarray
    n_levels: np.ndarray
    y: np.ndarray
    splits: list[tuple[np.ndarray, np.ndarray]]

    @property
    def K(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def _titanic() -> tuple:
    rows = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
    return rows[["Class", "Sex", "Age"]], rows["Survived"]


def _codons() -> tuple:
    """Random codons and their amino acids (Woo & Wang, section 3.4)."""
    code = bbl.datasets.load_genetic_code()
    drawn = code.iloc[np.random.default_rng(135).integers(0, len(code), CODONS)]
    keep = drawn["aa"].map(drawn["aa"].value_counts()) >= FOLDS
    return drawn.loc[keep, ["b1", "b2", "b3"]], drawn.loc[keep, "aa"]


def _binding_sites() -> tuple:
    """Sites of MA0014.3 against copies with three random letters replaced (Woo & Wang, section
    3.6).
    """
    sites = fetched(bbl.datasets.fetch_ma0014).to_numpy(dtype=object)
    rng = np.random.default_rng(561)
    control = sites.copy()
    for row in control:
        row[rng.choice(len(row), 3, replace=False)] = rng.choice(list("ACGT"), 3)
    y = pd.Series(np.repeat(["Binding", "Non-binding"], len(sites)))
    return pd.DataFrame(np.vstack([sites, control])), y


def _images(train: pd.DataFrame, test: pd.DataFrame) -> tuple:
    """Black and white images with a split of their own, less the pixels that are constant in its
    training rows.
    """
    pixels = train.columns[1:][(train.iloc[:, 1:].max() > train.iloc[:, 1:].min()).to_numpy()]
    both = pd.concat([train, test], ignore_index=True)
    split = (np.arange(len(train)), np.arange(len(train), len(both)))
    return (both[pixels] > 0).astype(np.uint8), both["y"], [split]


def _uci(name: str) -> tuple:
    """A missing value is a level of its own; the names of the animals are no predictor."""
    frame = pd.read_csv(
        shared_file("data", "uci", f"{name}.csv.gz"), dtype=str, keep_default_na=False
    )
    return frame.drop(columns=["class", "animal"], errors="ignore"), frame["class"]


def load(name: str) -> Data | None:
    """Return a data set of `NAMES`; None where its file is not there."""
    shipped = {"titanic": _titanic, "codon": _codons}
    if name in shipped:
        return _encode(name, *shipped[name]())
    if data_folder() is None:
        return None
    if name.startswith("mnist"):
        read = mnist if name == "mnist" else mnist_sample
        return _encode(name, *_images(read("train"), read("test")))
    return _encode(name, *(_binding_sites() if name == "ma0014" else _uci(name)))


def _encode(name: str, frame: pd.DataFrame, y: pd.Series, splits: list | None = None) -> Data:
    """Turn a frame into codes, all levels of the whole data set known in advance, and split it."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    codes = np.column_stack([pd.factorize(frame[c], sort=True)[0] for c in frame.columns]).astype(
        np.uint8
    )
    codes, classes = (
        np.ascontiguousarray(codes[:, codes.max(axis=0) > 0]),
        pd.factorize(y, sort=True)[0],
    )
    if splits is None:
        cutter = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=1)
        splits = list(cutter.split(codes, classes))
    return Data(name, codes, codes.max(axis=0).astype(np.int64) + 1, classes, splits)
