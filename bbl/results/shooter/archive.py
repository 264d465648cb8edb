"""Model file of a sparse regression: `pack` converts a result to a dict and arrays, and `unpack`
validates and restores it.

A *term* is a product of predictors, stored as the positions of its predictors in increasing order.
K is the number of groups, and m is the number of predictors. *Contrasts* are the K - 1 log odds
between groups.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import choice, flag, integer, real
from bbl.design.design import Design
from bbl.results.archive import check_model, pack_model, unpack_model
from bbl.results.array_table import FINITE, POSITIVE, ArraySpec

__all__ = ["PATH", "pack", "unpack"]

PATH = {  # columns of the path and their types; see `ShooterResults`
    "point": int,
    "order": int,
    "penalty": float,
    "loss": float,
    "objective": float,
    "terms": int,
    "violation": float,
    "ebic": float,
    "held_raw": float,
    "held_refit": float,
    "chosen": bool,
}

# arrays of a model file: kind of dtype, shape, range of values (any if missing; below a length if
# named)
TABLE = {
    "orders": ArraySpec("i", ("terms",), (1, "m+1")),  # number of predictors of each term
    "predictors": ArraySpec("i", ("predictors",), (0, "m")),  # positions, term after term
    "entered": ArraySpec("i", ("terms",)),  # row of the path at which each term entered the model
    "weights_of_terms": ArraySpec("f", ("weights", "contrasts"), FINITE),  # term after term
    "intercept": ArraySpec("f", ("contrasts",), FINITE),
    # class proportions in the training rows
    "shares": ArraySpec("f", ("K",), POSITIVE, sum_tolerance=1e-6),
    "path": ArraySpec("f", ("points", len(PATH))),
}


def pack(fit: Any, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the options of a `ShooterResults` as a dict, and its arrays.

    Training rows are only included with `store_data`.
    """
    terms = list(fit.chosen)
    entries = {
        "refitted": fit.refitted,
        "penalty": fit.penalty,
        "penalties": list(fit.penalties),
        # positions of the terms that separate groups
        "separating": [terms.index(term) for term in fit.separating],
        "nobs": fit.nobs(),
    }
    arrays = {
        "orders": np.array([len(term) for term in terms], dtype=np.int64),
        "predictors": np.array([i for term in terms for i in term], dtype=np.int64),
        "entered": np.asarray(fit.entered, dtype=np.int64),
        # the first part is empty, for models without terms
        "weights_of_terms": np.concatenate(
            [np.empty((0, len(fit.intercept))), *fit.chosen.values()]
        ),
        "intercept": fit.intercept,
        "shares": fit.shares,
        "log_likelihood": np.array([fit._log_likelihood]),
        "path": fit.path[list(PATH)].to_numpy(float),
    }
    return pack_model(fit, entries, arrays, store_data)


def unpack(meta: dict, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `ShooterResults` from content stored by `pack`.

    Raises a ValueError for impossible values.
    """
    design = Design.from_dict(meta["design"])
    if not design.classes:
        raise ValueError("its response is malformed")
    check_model(meta, arrays, TABLE, design, contrasts=len(design.response.levels) - 1)
    chosen = _unpack_terms(arrays, design.n_levels)
    terms = list(chosen)
    path = _unpack_path(arrays["path"])
    if not np.isin(arrays["entered"], path.index).all():
        raise ValueError("a term enters at a penalty that is not on its path")
    penalties = tuple(real("penalties", v, 0.0, open_low=True) for v in meta["penalties"])
    if len(penalties) < max(map(len, terms), default=1):  # each order of terms has a penalty
        raise ValueError("its penalties are malformed")
    return unpack_model(meta, arrays, design) | {
        "chosen": chosen,
        "intercept": arrays["intercept"],
        "refitted": flag("refitted", meta["refitted"]),
        "separating": tuple(
            terms[integer("separating", k, 0, len(terms) - 1)] for k in meta["separating"]
        ),
        "penalties": penalties,
        "penalty": choice("penalty", meta["penalty"], ("group", "l1")),
        "path": path,
        "entered": arrays["entered"],
        "shares": arrays["shares"],
    }


def _unpack_terms(
    arrays: dict[str, np.ndarray], n_levels: np.ndarray
) -> dict[tuple[int, ...], np.ndarray]:
    """Return the weights of each term, shape (d, K - 1) with ``d = prod(L_i - 1)`` over its
    predictors i.

    `n_levels` (m,) contains the numbers of levels L_i. Raises a ValueError if the arrays are
    inconsistent.
    """
    orders, predictors, weights = (
        arrays[name] for name in ("orders", "predictors", "weights_of_terms")
    )
    if orders.sum() != len(predictors):
        raise ValueError("its terms are malformed")
    # without terms, `np.split` returns one empty part, here and below
    term_predictors = np.split(predictors, np.cumsum(orders)[:-1]) if len(orders) else []
    terms = [tuple(map(int, positions)) for positions in term_predictors]
    # terms must be distinct, with their predictors in increasing order
    if len(set(terms)) < len(terms) or any(
        before >= after for term in terms for before, after in pairwise(term)
    ):
        raise ValueError("its terms are malformed")
    n_features = [math.prod(int(n_levels[i]) - 1 for i in term) for term in terms]
    if len(weights) != sum(n_features):
        raise ValueError("its weights are malformed")
    return (
        dict(zip(terms, np.split(weights, np.cumsum(n_features)[:-1]), strict=True))
        if terms
        else {}
    )


def _unpack_path(values: np.ndarray) -> pd.DataFrame:
    """Convert an array (rows, columns of `PATH`) to the path as a frame.

    Raises a ValueError for impossible values.
    """
    frame = pd.DataFrame(values, columns=list(PATH))
    # exactly one row is marked as the fit; nan could not be converted to the integers of three
    # columns
    if (
        frame["chosen"].sum() != 1
        or not np.isfinite(frame[["point", "order", "terms"]].to_numpy()).all()
    ):
        raise ValueError("its path is malformed")
    return frame.astype(PATH)
