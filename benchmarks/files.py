"""Data that are not shipped: the folder with their files, and what more than one benchmark reads
from it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import bbl


def data_folder() -> Path | None:
    """Return the folder with the files: ``BBL_SHARED``, or ``shared`` beside the checkout, if it is
    there.
    """
    folder = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    return folder if folder.is_dir() else None


def shared_file(*path: str) -> Path | None:
    """Return a file of the folder, if it is there."""
    folder = data_folder()
    found = folder.joinpath(*path) if folder else None
    return found if found and found.is_file() else None


def fetched(fetch: Callable[..., pd.DataFrame], *arguments: str) -> pd.DataFrame:
    """Return what a fetcher of ``bbl.datasets`` reads, from the folder's ``data`` unless
    ``BBL_DATA`` is set.
    """
    os.environ.setdefault("BBL_DATA", str(data_folder() / "data"))
    return fetch(*arguments)


def mnist(part: str) -> pd.DataFrame | None:
    """Return all of MNIST's "train" or "test" images (y, X1, ..., pixels 1 above 127), if the files
    are there.
    """
    name = "train" if part == "train" else "t10k"
    there = shared_file("data", "mnist", f"{name}-images-idx3-ubyte.gz")
    return fetched(bbl.datasets.fetch_mnist, part) if there else None


def mnist_sample(part: str) -> pd.DataFrame | None:
    """Return the 1,000 "train" or 500 "test" images of the R package, if the file is there."""
    path = shared_file("data", "bbl-r", f"mnist_{part}.csv.gz")
    return pd.read_csv(path) if path else None
