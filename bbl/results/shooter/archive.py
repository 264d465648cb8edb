"""Model file of a sparse regression: `pack` to a dict and arrays, `unpack` with every value checked.

A *term* is a product of predictors, stored as the rising positions of its predictors; its *order* is their number. K is
the number of groups. The *path* is the table of the penalties that were tried.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, flag, integer, real
from bbl.design.design import Design
from bbl.results.array_table import FINITE, NON_NEGATIVE, ArraySpec, check_arrays, refuse_unknown
from bbl.results.loss_archive import pack_loss, unpack_loss
from bbl.results.model import Training
from bbl.results.row_archive import ROWS, pack_priors, pack_rows, unpack_priors, unpack_rows

__all__ = ["PATH", "pack", "unpack"]

PATH = {  # columns of the path and their types
    "point": int, "order": int, "penalty": float, "loss": float, "objective": float, "terms": int,
    "violation": float, "ebic": float, "held_raw": float, "held_refit": float, "chosen": bool,
}  # fmt: skip


def pack(fit: Any, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the options of a `ShooterResults` as a dict, and its arrays; training rows only with `store_data`."""
    terms = list(fit.chosen)
    meta: dict[str, Any] = {
        "call": fit.call,
        "design": fit.design.to_dict(),
        "refitted": fit.refitted,
        "penalty": fit.penalty,
        "penalties": list(fit.penalties),
        "separating": [terms.index(t) for t in fit.separating],
        "nobs": fit.nobs(),
        **pack_priors(fit.priors),
        **pack_loss(fit.log_loss),
    }
    arrays = {
        "orders": np.array([len(t) for t in terms], dtype=np.int64),
        "predictors": np.array([i for t in terms for i in t], dtype=np.int64),
        "entered": np.asarray(fit.entered, dtype=np.int64),
        "weights_of_terms": np.concatenate([np.empty((0, len(fit.intercept))), *fit.chosen.values()]),
        "intercept": fit.intercept,
        "shares": fit.shares,
        "log_likelihood": np.array([fit._log_likelihood]),
        "path": fit.path[list(PATH)].to_numpy(float),
        "counts": np.concatenate(fit._counts, axis=1),
    }
    if store_data and fit.training is not None:
        rows, meta["index"] = pack_rows(fit.training, fit.index)
        arrays |= rows
    return meta, arrays


def unpack(meta: dict, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `ShooterResults` from what `pack` stored; raise a ValueError at an impossible value."""
    design = Design.from_dict(meta["design"])
    K, n_levels = len(design.response.levels), design.n_levels
    if not design.classes or not isinstance(meta["call"], str):
        raise ValueError("its call is not as saved")
    specs = _array_specs(arrays, n_levels, K)
    refuse_unknown(arrays, {*specs, *ROWS})
    check_arrays(arrays, specs)
    chosen = _unpack_terms(arrays, n_levels)
    terms = list(chosen)
    path = _unpack_path(arrays["path"])
    entered, intercept, shares = arrays["entered"], arrays["intercept"], arrays["shares"]
    if not np.isin(entered, path.index).all():
        raise ValueError("its terms entered at points that its path does not have")
    if not (shares > 0).all() or abs(shares.sum() - 1.0) > 1e-6:
        raise ValueError("'shares' is not as saved")
    separating = tuple(terms[integer("separating", k, 0, len(terms) - 1)] for k in meta["separating"])
    penalties = tuple(real("penalties", v, 0.0, open_low=True) for v in meta["penalties"])
    if len(penalties) < max(map(len, terms), default=1):
        raise ValueError("its penalties are not as saved")
    nobs = meta["nobs"]
    real("nobs", nobs, 0.0)
    sample, index = unpack_rows(arrays, meta.get("index"), n_levels.tolist(), K)
    return {
        "call": meta["call"],
        "design": design,
        "training": sample,
        "index": index,
        "chosen": chosen,
        "intercept": intercept,
        "refitted": flag("refitted", meta["refitted"]),
        "separating": separating,
        "penalties": penalties,
        "penalty": choice("penalty", meta["penalty"], ("group", "l1")),
        "path": path,
        "entered": entered,
        "shares": shares,
        "priors": unpack_priors(meta, K),
        "stored_loss": unpack_loss(meta),
        "stored": Training(
            nobs, float(arrays["log_likelihood"][0]), np.split(arrays["counts"], np.cumsum(n_levels)[:-1], axis=1)
        ),
    }


def _array_specs(arrays: dict[str, np.ndarray], n_levels: np.ndarray, K: int) -> dict[str, ArraySpec]:
    """Return kind, shape and range of each array but the training rows; `n_levels` (m,) are those of the predictors."""
    n_terms = len(arrays["orders"])
    return {
        "orders": ArraySpec("i", (None,), (1, len(n_levels))),
        "predictors": ArraySpec("i", (None,), (0, len(n_levels) - 1)),  # term after term
        "entered": ArraySpec("i", (n_terms,)),
        "weights_of_terms": ArraySpec("f", (None, K - 1), FINITE),  # term after term
        "intercept": ArraySpec("f", (K - 1,), FINITE),
        "shares": ArraySpec("f", (K,), NON_NEGATIVE),
        "log_likelihood": ArraySpec("f", (1,)),
        "path": ArraySpec("f", (None, len(PATH))),
        "counts": ArraySpec("f", (K, int(n_levels.sum())), NON_NEGATIVE),
    }


def _unpack_terms(arrays: dict[str, np.ndarray], n_levels: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """Return the weights of each term, shape (d, K - 1) with ``d = prod(L_i - 1)`` over its predictors i."""
    orders, predictors, weights = (arrays[name] for name in ("orders", "predictors", "weights_of_terms"))
    if orders.sum() != len(predictors):
        raise ValueError("its terms are not as saved")
    term_predictors = np.split(predictors, np.cumsum(orders)[:-1]) if len(orders) else []
    terms = [tuple(map(int, positions)) for positions in term_predictors]
    if len(set(terms)) < len(terms) or any(a >= b for t in terms for a, b in pairwise(t)):
        raise ValueError("its terms are not as saved")
    sizes = [math.prod(int(n_levels[i]) - 1 for i in t) for t in terms]
    if len(weights) != sum(sizes):
        raise ValueError("its weights are not as saved")
    return dict(zip(terms, np.split(weights, np.cumsum(sizes)[:-1]), strict=True)) if terms else {}


def _unpack_path(values: np.ndarray) -> pd.DataFrame:
    """Return the path as a frame, from an array (points, columns of `PATH`)."""
    frame = pd.DataFrame(values, columns=list(PATH))
    if frame["chosen"].sum() != 1 or not np.isfinite(frame[["point", "order", "terms"]].to_numpy()).all():
        raise ValueError("its path is not as saved")
    return frame.astype(PATH)
