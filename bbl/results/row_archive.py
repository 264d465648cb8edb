"""Training rows, their labels and class priors as what the model file holds, and back; for every kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.weights import check_weights
from bbl.results.array_table import NON_NEGATIVE, ArraySpec, check_arrays
from bbl.rows.sample import Sample, code_dtype

__all__ = ["ROWS", "pack_priors", "pack_rows", "unpack_priors", "unpack_rows"]

ROWS = ("codes", "weights", "y", "missing")  # arrays of training rows


def pack_priors(priors: np.ndarray | None) -> dict[str, list[float]]:
    """Return the class shares that a model was given, if it was, as an entry of its dict."""
    return {} if priors is None else {"priors": priors.tolist()}


def unpack_priors(meta: dict, K: int) -> np.ndarray | None:
    """Return the class shares of `pack_priors`, after checking them."""
    if "priors" not in meta:
        return None
    shares = np.array(meta["priors"])
    if not ArraySpec("f", (K,), NON_NEGATIVE).admits(shares) or abs(shares.sum() - 1.0) > 1e-6:
        raise ValueError("its priors are not as saved")
    return shares


def pack_rows(sample: Sample, index: pd.Index) -> tuple[dict[str, np.ndarray], dict]:
    """Return training rows as arrays, and their labels as a dict."""
    arrays = {"codes": sample.codes, "weights": sample.weights, "y": sample.response}
    if sample.missing is not None:
        arrays["missing"] = sample.missing
    return arrays, _pack_index(index)


def unpack_rows(
    arrays: dict[str, np.ndarray], stored: Any, n_levels: Sequence[int], K: int, lowest: int = 0, whole: bool = True
) -> tuple[Sample | None, pd.Index | None]:
    """Return the training rows of `pack_rows`, if there are any, after checking them; `lowest` is the least group."""
    if "codes" not in arrays:
        return None, None
    codes, levels = arrays["codes"], np.asarray(n_levels)
    n = len(codes)
    if codes.shape != (n, len(levels)) or codes.dtype != code_dtype(levels):
        raise ValueError("its rows are not as saved")
    table = {
        "y": ArraySpec("i", (n,), (lowest, K - 1)),
        "weights": ArraySpec("f", (n,)),
        "missing": ArraySpec("b", codes.shape, required=False),
    }
    check_arrays(arrays, table)
    if n and (codes.max(axis=0, initial=0) >= levels).any():
        raise ValueError("its rows hold what cannot have been saved")
    y, weights, missing = arrays["y"], arrays["weights"], arrays.get("missing")
    check_weights(weights, n, whole=whole)
    return Sample(codes, weights, y, missing), _unpack_index(stored, n)


def _pack_index(index: pd.Index) -> dict:
    """Return row labels that JSON can hold, None for 0, 1, ...; others are numbered anew."""
    name = index.name if isinstance(index.name, str) else None
    if isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1):
        return {"labels": None, "name": name}
    labels = index.tolist()
    plain = index.nlevels == 1 and all(isinstance(v, str | int) and not isinstance(v, bool) for v in labels)
    return {"labels": labels if plain else None, "name": name}


def _unpack_index(stored: dict, n: int) -> pd.Index:
    labels, name = stored["labels"], stored["name"]
    plain = labels is None or (len(labels) == n and all(type(v) in (str, int) for v in labels))
    if not plain or not (name is None or isinstance(name, str)):
        raise ValueError("the labels of its rows are not as saved")
    return pd.Index(range(n) if labels is None else labels, name=name)
