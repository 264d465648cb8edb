"""Pack and unpack the content that all model files share: call, design, log-loss, training rows and
their summaries.
"""
# Each family adds its own entries to the dict and its own arrays. Earlier versions of the package
# ignore unknown entries of the dict but refuse unknown arrays: additions must go into the dict.

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import real
from bbl.design.design import Design
from bbl.design.weights import check_weights
from bbl.results.array_table import (
    LARGEST_FLOAT,
    NON_NEGATIVE,
    ArraySpec,
    check_arrays,
    check_types,
)
from bbl.results.classifier import ClassifierResults
from bbl.results.model import ModelResults, Training
from bbl.rows.kept import KeptRows
from bbl.rows.sample import Sample, code_dtype
from bbl.stats.metrics import LossRecord

__all__ = ["PRIORS", "check_model", "pack_loss", "pack_model", "unpack_loss", "unpack_model"]

# shape, range and sum of the class proportions for predictions, if the user specified them
PRIORS = ArraySpec("f", ("K",), NON_NEGATIVE, required=False, sum_tolerance=1e-6)

# arrays of every model with K groups and m predictors: kind of dtype, shape, range of values (any
# if missing; below a length if named); the last four contain n training rows
MODEL_TABLE = {
    "log_likelihood": ArraySpec("f", (1,)),
    # levels of all predictors, one after another
    "counts": ArraySpec("f", ("K", "levels"), NON_NEGATIVE),
    "codes": ArraySpec("u", ("n", "m"), required=False),
    "weights": ArraySpec("f", ("n",), required="codes"),
    "y": ArraySpec("i", ("n",), (-1, "K"), required="codes"),  # group numbers, -1 if unknown
    "missing": ArraySpec("b", ("n", "m"), required=False),
    # of a random sample of rows that were read in batches, see `KeptRows`
    "expansion": ArraySpec("f", ("n",), (1.0, LARGEST_FLOAT), required=False),
}


def pack_model(
    fit: ModelResults,
    entries: dict,
    arrays: Mapping[str, np.ndarray | None],
    store_data: bool,
    tuned: bool = False,
) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the content of a model file, i.e. a dict of names and options, and a dict of arrays.

    `entries` (including ``nobs``) and `arrays` (including ``log_likelihood``) are specific to the
    model family. Arrays that are None are omitted. Training rows are only stored with `store_data`.
    `tuned` indicates whether the fit tuned an option by cross-validation.
    """
    meta = {"call": fit.call, "design": fit.design.to_dict(), **entries}
    if isinstance(fit, ClassifierResults):
        meta |= ({} if fit.priors is None else {"priors": fit.priors.tolist()}) | pack_loss(
            fit.log_loss, tuned
        )
    stored = {name: array for name, array in arrays.items() if array is not None}
    # `_counts`: weighted level counts (K, L_i) of each predictor; the first part is empty, in case
    # there are none
    stored["counts"] = np.concatenate(
        [np.zeros((len(fit.design.response.levels), 0)), *fit._counts], axis=1
    )
    kept = fit._kept
    sample = fit.training if kept is None else kept.sample
    if store_data and sample is not None:
        # codes of numbers are floats, stored bitwise in the array of unsigned integers
        codes = sample.codes.view(np.uint64) if sample.codes.dtype.kind == "f" else sample.codes
        stored |= {"codes": codes, "weights": sample.weights, "y": sample.response}
        if sample.missing is not None:
            stored["missing"] = sample.missing
        if kept is None:
            meta["index"] = _pack_index(fit._index())  # labels of the training rows
        else:
            meta["kept"] = {"rows": list(kept.n_rows), "whole": kept.whole}
            if kept.expansion is not None:
                stored["expansion"] = kept.expansion
    return meta, stored


def check_model(
    meta: dict,
    arrays: Mapping[str, np.ndarray],
    table: Mapping[str, ArraySpec],
    design: Design,
    **sizes: int,
) -> None:
    """Raise a ValueError unless the call is a string and `arrays` match `MODEL_TABLE` and the
    `table` of the model family.

    `sizes` contains known values of symbols in `table`; ``K``, ``m`` and ``levels`` are taken from
    the design.
    """
    check_types(meta, {"call": str})
    n_levels = design.n_levels
    sizes |= {"K": len(design.response.levels), "m": len(n_levels), "levels": int(n_levels.sum())}
    check_arrays(arrays, {**table, **MODEL_TABLE}, **sizes)


def unpack_model(
    meta: dict,
    arrays: Mapping[str, np.ndarray],
    design: Design,
    lowest_group: int = 0,
    whole: bool = True,
) -> dict[str, Any]:
    """Return the arguments that all result classes share, from content stored by `pack_model` and
    checked by `check_model`.

    The groups of training rows must be at least `lowest_group`, which is -1 for models that allow
    unknown groups. If `whole`, weights must be integers.
    """
    n_levels = design.n_levels
    # a table (K, L_i) for each predictor; without predictors, `np.split` would return one empty
    # table
    counts = np.split(arrays["counts"], np.cumsum(n_levels)[:-1], axis=1) if len(n_levels) else []
    real("nobs", meta["nobs"], 0.0)  # raises an error unless it is a non-negative number
    kept = meta.get("kept")
    is_sample = "expansion" in arrays  # whose weights are not counts
    # rows that were read in batches have no labels
    labels = meta.get("index") if kept is None else {"labels": None, "name": None}
    sample, row_labels = _unpack_rows(arrays, labels, design, lowest_group, whole and not is_sample)
    arguments = {
        "call": meta["call"],
        "design": design,
        "training": sample if kept is None else None,
        "index": row_labels if kept is None else None,
        "_kept": None if kept is None or sample is None else _unpack_kept(kept, sample, arrays),
        "_stored": Training(meta["nobs"], float(arrays["log_likelihood"][0]), counts),
    }
    if design.classes:  # whether the model has a response
        arguments |= {
            "priors": _unpack_priors(meta, len(design.response.levels)),
            "_stored_loss": unpack_loss(meta),
        }
    return arguments


def _unpack_kept(stored: Any, sample: Sample, arrays: Mapping[str, np.ndarray]) -> KeptRows:
    """Return the training rows that were kept when data were read in batches.

    Raises a ValueError if the numbers of rows are invalid.
    """
    check_types(stored, {"rows": list, "whole": bool})
    n_rows = stored["rows"]
    if not all(type(n) is int and n >= 0 for n in n_rows) or (
        sample.n and int(sample.response.max()) >= len(n_rows)
    ):
        raise ValueError("its row counts are malformed")
    return KeptRows(sample, arrays.get("expansion"), tuple(n_rows), stored["whole"])


def _unpack_rows(
    arrays: Mapping[str, np.ndarray],
    labels: Any,
    design: Design,
    lowest_group: int,
    whole: bool,
) -> tuple[Sample | None, pd.Index | None]:
    """Return the training rows and row labels, or (None, None) if they are not stored.

    `labels` is the dict returned by `_pack_index`.
    """
    if "codes" not in arrays:
        return None, None
    codes, weights, y = (arrays[name] for name in ("codes", "weights", "y"))
    # the type of codes for factors with this many levels; for numbers see `pack_model`
    has_numbers = bool(design.is_number.any())
    if codes.dtype != (np.uint64 if has_numbers else code_dtype(design.n_levels)):
        raise ValueError("its rows are malformed")
    if has_numbers:
        codes = codes.view(np.float64)
        levels = codes[:, ~design.is_number]
        if not np.isfinite(codes).all() or (levels < 0).any() or (levels % 1 > 0).any():
            raise ValueError("its rows contain invalid values")
    level_codes = design.level_codes(codes)
    if (y < lowest_group).any() or (
        len(codes) and (level_codes.max(axis=0) >= design.n_levels).any()
    ):
        raise ValueError("its rows contain invalid values")
    check_weights(weights, len(codes), whole=whole)  # raises an error
    return Sample(codes, weights, y, arrays.get("missing")), _unpack_index(labels, len(codes))


def _unpack_priors(meta: dict, K: int) -> np.ndarray | None:
    """Return the class proportions (K,) in a file, or None.

    Raises a ValueError unless they are non-negative and sum to 1.
    """
    if "priors" not in meta:
        return None
    shares = np.array(meta["priors"])
    if not PRIORS.admits(shares, {"K": K}):
        raise ValueError("its priors are malformed")
    return shares


def _pack_index(index: pd.Index) -> dict:
    """Return row labels as a dict for JSON. The entry ``labels`` is a list of strings or integers,
    or None, and ``name`` is a string or None.

    ``labels`` is None for the default labels 0, 1, ... and for labels of other types, which cannot
    be stored.
    """
    name = index.name if isinstance(index.name, str) else None
    if isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1):
        return {"labels": None, "name": name}
    labels = index.tolist()
    is_plain = index.nlevels == 1 and all(
        isinstance(v, str | int) and not isinstance(v, bool) for v in labels
    )
    return {"labels": labels if is_plain else None, "name": name}


def _unpack_index(stored: dict, n: int) -> pd.Index:
    """Return the labels of `n` rows that were stored by `_pack_index`."""
    labels = stored["labels"]
    name = stored["name"]
    is_plain = labels is None or (len(labels) == n and all(type(v) in (str, int) for v in labels))
    if not is_plain or not (name is None or isinstance(name, str)):
        raise ValueError("its row labels are malformed")
    return pd.Index(range(n) if labels is None else labels, name=name)


def pack_loss(record: LossRecord | None, tuned: bool = False) -> dict[str, dict | None]:
    """Return the entry ``log_loss`` of a model file's dict, which contains the fields of a
    `LossRecord`.

    Without a log-loss, the entry is omitted or, for a `tuned` model, None. This distinguishes the
    file of a tuned model from files of earlier versions, which lack the entry.
    """
    if record is None:
        return {"log_loss": None} if tuned else {}
    return {"log_loss": dataclasses.asdict(record)}


def unpack_loss(meta: dict) -> LossRecord | None:
    """Return the log-loss stored by `pack_loss`, or None.

    Raises a ValueError for wrong types or negative numbers.
    """
    if meta.get("log_loss") is None:
        return None
    record = LossRecord(**meta["log_loss"])
    losses = (record.loss, record.baseline)
    texts = (record.rows, record.remedy)
    if not all(type(loss) is float and loss >= 0.0 for loss in losses) or not all(
        type(text) is str for text in texts
    ):
        raise ValueError("its log-loss is malformed")
    return record
