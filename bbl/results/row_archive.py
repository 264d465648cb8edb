"""Pack training rows, their labels and class priors into the content of a model file, and unpack them."""

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
    """Return the entry of the dict that holds the class shares for predictions; empty without such shares."""
    return {} if priors is None else {"priors": priors.tolist()}


def unpack_priors(meta: dict, K: int) -> np.ndarray | None:
    """Return the class shares (K,) that `pack_priors` stored, or None; a ValueError if they do not sum to 1."""
    if "priors" not in meta:
        return None
    shares = np.array(meta["priors"])
    if not ArraySpec("f", (K,), NON_NEGATIVE).admits(shares) or abs(shares.sum() - 1.0) > 1e-6:
        raise ValueError("its priors are not as saved")
    return shares


def pack_rows(sample: Sample, index: pd.Index) -> tuple[dict[str, np.ndarray], dict]:
    """Return (arrays of the training rows by name, dict of their labels)."""
    arrays = {"codes": sample.codes, "weights": sample.weights, "y": sample.response}
    if sample.missing is not None:
        arrays["missing"] = sample.missing
    return arrays, _pack_index(index)


def unpack_rows(
    arrays: dict[str, np.ndarray], stored: Any, n_levels: Sequence[int], K: int, lowest: int = 0, whole: bool = True
) -> tuple[Sample | None, pd.Index | None]:
    """Return (training rows, row labels) that `pack_rows` stored, or (None, None); `stored` is the dict of labels.

    Groups must lie in `lowest` to K - 1, and weights must be whole numbers if `whole`.
    """
    if "codes" not in arrays:
        return None, None
    codes, level_counts = arrays["codes"], np.asarray(n_levels)
    n = len(codes)
    if codes.shape != (n, len(level_counts)) or codes.dtype != code_dtype(level_counts):
        raise ValueError("its rows are not as saved")
    specs = {
        "y": ArraySpec("i", (n,), (lowest, K - 1)),
        "weights": ArraySpec("f", (n,)),
        "missing": ArraySpec("b", codes.shape, required=False),
    }
    check_arrays(arrays, specs)
    if n and (codes.max(axis=0, initial=0) >= level_counts).any():
        raise ValueError("its rows hold what cannot have been saved")
    y, weights, missing = arrays["y"], arrays["weights"], arrays.get("missing")
    check_weights(weights, n, whole=whole)
    return Sample(codes, weights, y, missing), _unpack_index(stored, n)


def _pack_index(index: pd.Index) -> dict:
    """Return row labels as a dict for JSON; ``labels`` is None, and rows are numbered, unless they are text or ints."""
    name = index.name if isinstance(index.name, str) else None
    if isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1):
        return {"labels": None, "name": name}
    labels = index.tolist()
    is_plain = index.nlevels == 1 and all(isinstance(v, str | int) and not isinstance(v, bool) for v in labels)
    return {"labels": labels if is_plain else None, "name": name}


def _unpack_index(stored: dict, n: int) -> pd.Index:
    """Return the labels of `n` rows that `_pack_index` stored."""
    labels, name = stored["labels"], stored["name"]
    is_plain = labels is None or (len(labels) == n and all(type(v) in (str, int) for v in labels))
    if not is_plain or not (name is None or isinstance(name, str)):
        raise ValueError("the labels of its rows are not as saved")
    return pd.Index(range(n) if labels is None else labels, name=name)
