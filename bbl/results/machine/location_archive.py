"""Convert a location model to the arrays and dict entries of a model file, and back."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from bbl.checks import real
from bbl.choices import Covariance, Divisor, NumberTransform
from bbl.design.design import Design
from bbl.model.location import Location, LocationModel, NormalScores
from bbl.results.array_table import FINITE, NON_NEGATIVE, ArraySpec

__all__ = ["LOCATION_TABLE", "pack_location", "unpack_location"]

# m predictors, q numbers, p columns of the means
LOCATION_TABLE = {
    "location_partners": ArraySpec("b", ("q", "m"), required=False),
    "location_correlated": ArraySpec("b", ("q", "q"), required="location_partners"),
    "location_C": ArraySpec("f", ("K", "p", "q"), FINITE, required="location_partners"),
    "location_S": ArraySpec("f", ("K", "q", "q"), FINITE, required="location_partners"),
    "location_n": ArraySpec("f", ("K",), NON_NEGATIVE, required="location_partners"),
    "location_ranks": ArraySpec("i", ("K", "q"), NON_NEGATIVE, required="location_partners"),
    "location_T": ArraySpec("f", ("K", "t", "t"), FINITE, required="location_partners"),
    # normal scores: the number of values of each number, then values and scores
    "location_counts": ArraySpec("i", ("q",), NON_NEGATIVE, required=False),
    "location_values": ArraySpec("f", ("values",), FINITE, required="location_counts"),
    "location_scores": ArraySpec("f", ("values",), FINITE, required="location_counts"),
}


def pack_location(location: Location | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the dict entries and the arrays by name; both are empty without a location model."""
    if location is None:
        return {}, {}
    model = location.model
    entry = {
        name: getattr(model, name)
        for name in ("covariance", "divisor", "prior_count", "shrink", "transform")
    }
    arrays = {
        "location_partners": model.partners,
        "location_correlated": model.correlated,
        "location_C": location.C,
        "location_S": location.S,
        "location_n": location.n,
        "location_ranks": location.ranks,
        "location_T": location.T,
    }
    if location.scores is not None:
        arrays |= {
            "location_counts": np.array([len(v) for v in location.scores.values]),
            "location_values": np.concatenate(location.scores.values),
            "location_scores": np.concatenate(location.scores.scores),
        }
    if model.tuned:
        entry["tuned"] = list(model.tuned)
    if model.keeps_prior_count:
        entry["keeps_prior_count"] = True
    return {"location": entry}, arrays


def unpack_location(meta: dict, arrays: dict[str, np.ndarray], design: Design) -> Location | None:
    """Return the location model stored by `pack_location`.

    Raises a ValueError for invalid values.
    """
    if "location_partners" not in arrays:
        if design.is_number.any() and design.regressors is None:
            raise ValueError("its numeric predictors have no distribution")
        return None
    options = dict(meta["location"])
    options["tuned"] = tuple(options.get("tuned", ()))
    options["keeps_prior_count"] = bool(options.get("keeps_prior_count", False))
    is_known = (
        options["covariance"] in get_args(Covariance)
        and "cv" not in (options["covariance"], options["transform"])
        and set(options["tuned"]) <= {"covariance", "shrink", "transform"}
        and options["divisor"] in get_args(Divisor)
        and options["transform"] in get_args(NumberTransform)
    )
    real("prior_count", options["prior_count"], 0.0)
    real("shrink", options["shrink"], 0.0, 1.0)
    partners = arrays["location_partners"]
    correlated = arrays["location_correlated"]
    numbers = np.flatnonzero(design.is_number)
    if (
        not is_known
        or len(partners) != len(numbers)
        or partners[:, design.is_number].any()
        or not correlated.diagonal().all()
        or (correlated != correlated.T).any()
    ):
        raise ValueError("its numeric predictors are malformed")
    model = LocationModel(design.n_levels, numbers, partners, correlated, **options)
    S = arrays["location_S"]
    T = arrays["location_T"]
    if (
        arrays["location_C"].shape[1] != model.p
        or T.shape[1] != model.p + model.q
        or (arrays["location_ranks"] > model.p).any()
        or not np.array_equal(S, S.transpose(0, 2, 1))
    ):
        raise ValueError("its numeric predictors are malformed")
    try:
        np.linalg.cholesky(S)
    except np.linalg.LinAlgError:
        raise ValueError(
            "a covariance matrix of its numeric predictors is not positive definite"
        ) from None
    scores = None
    if (options["transform"] == "normal") != ("location_counts" in arrays):
        raise ValueError("its normal scores are malformed")
    if "location_counts" in arrays:
        counts = arrays["location_counts"]
        values = np.split(arrays["location_values"], np.cumsum(counts)[:-1])
        if (
            (counts < 1).any()
            or counts.sum() != len(arrays["location_values"])
            or any((np.diff(v) <= 0.0).any() for v in values)
        ):
            raise ValueError("its normal scores are malformed")
        scores = NormalScores(
            tuple(values), tuple(np.split(arrays["location_scores"], np.cumsum(counts)[:-1]))
        )
    return Location(
        model,
        arrays["location_C"],
        S,
        arrays["location_n"],
        arrays["location_ranks"],
        T,
        scores,
    )
