"""Data sets of the accuracy benchmark as integer codes, and how each is split."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from benchmarks.problems import data_folder

__all__ = ["NAMES", "Data", "load"]

UCI = ("breast_cancer", "car", "lymph", "soybean", "splice", "tic-tac-toe", "vote", "zoo")
NAMES = ("titanic", "codon", *UCI, "ma0014", "mnist-1000", "mnist")
CODONS = 500
FOLDS, REPEATS = 5, 3


@dataclass(frozen=True)
class Data:
    """One data set: codes (n, m), numbers of levels (m,), classes (n,), and the splits (train, test)."""

    name: str
    codes: np.ndarray
    n_levels: np.ndarray
    y: np.ndarray
    splits: list[tuple[np.ndarray, np.ndarray]]

    @property
    def K(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def _encode(name: str, frame: pd.DataFrame, y: pd.Series, splits: list | None = None) -> Data:
    """Turn a frame into codes, all levels of the whole data set known in advance, and split it."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    codes = np.column_stack([pd.factorize(frame[c], sort=True)[0] for c in frame.columns]).astype(np.uint8)
    varies = codes.max(axis=0) > 0
    codes, classes = np.ascontiguousarray(codes[:, varies]), pd.factorize(y, sort=True)[0]
    if splits is None:
        cutter = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=1)
        splits = list(cutter.split(codes, classes))
    return Data(name, codes, codes.max(axis=0).astype(np.int64) + 1, classes, splits)


def _uci(name: str, folder: Path) -> Data:
    """A missing value is a level of its own; the names of the animals are no predictor."""
    frame = pd.read_csv(folder / "uci" / f"{name}.csv.gz", dtype=str, keep_default_na=False)
    return _encode(name, frame.drop(columns=["class", "animal"], errors="ignore"), frame["class"])


def _binding_sites() -> Data:
    """Sites of MA0014.3 against copies with three random letters replaced (Woo & Wang, section 3.6)."""
    sites = bbl.datasets.fetch_ma0014().to_numpy(dtype=object)
    rng = np.random.default_rng(561)
    control = sites.copy()
    for row in control:
        row[rng.choice(len(row), 3, replace=False)] = rng.choice(list("ACGT"), 3)
    y = pd.Series(np.repeat(["Binding", "Non-binding"], len(sites)))
    return _encode("ma0014", pd.DataFrame(np.vstack([sites, control])), y)


def _codons() -> Data:
    """Random codons and their amino acids (Woo & Wang, section 3.4)."""
    code = bbl.datasets.load_genetic_code()
    drawn = code.iloc[np.random.default_rng(135).integers(0, len(code), CODONS)]
    keep = drawn["aa"].map(drawn["aa"].value_counts()) >= FOLDS
    return _encode("codon", drawn.loc[keep, ["b1", "b2", "b3"]], drawn.loc[keep, "aa"])


def _digits() -> Data:
    """All of MNIST, pixels above 127, with its own split."""
    parts = [bbl.datasets.fetch_mnist(p) for p in ("train", "test")]
    codes = [np.ascontiguousarray(p.iloc[:, 1:].to_numpy(), dtype=np.uint8) for p in parts]
    varies = codes[0].max(axis=0) > 0
    stacked = np.ascontiguousarray(np.vstack(codes)[:, varies])
    y = np.concatenate([p["y"].to_numpy().astype(np.intp) for p in parts])
    cut = len(codes[0])
    split = [(np.arange(cut), np.arange(cut, len(y)))]
    return Data("mnist", stacked, np.full(int(varies.sum()), 2), y, split)


def load(name: str) -> Data | None:
    """Return a data set of `NAMES`; None where its file is not there."""
    folder = data_folder()
    if name == "titanic":
        table = bbl.datasets.load_titanic()
        rows = table.loc[table.index.repeat(table["Freq"])].reset_index(drop=True)
        return _encode(name, rows[["Class", "Sex", "Age"]], rows["Survived"])
    if name == "codon":
        return _codons()
    if folder is None:
        return None
    os.environ.setdefault("BBL_DATA", str(folder / "data"))
    if name == "ma0014":
        return _binding_sites()
    if name == "mnist":
        return _digits()
    if name == "mnist-1000":
        parts = [pd.read_csv(folder / "data" / "bbl-r" / f"mnist_{p}.csv.gz") for p in ("train", "test")]
        both = pd.concat(parts, ignore_index=True)
        varies = both.columns[1:][(parts[0].iloc[:, 1:].nunique() > 1).to_numpy()]
        cut = len(parts[0])
        split = [(np.arange(cut), np.arange(cut, len(both)))]
        return _encode(name, (both[varies] > 0).astype(int), both["y"], split)
    return _uci(name, folder / "data")
