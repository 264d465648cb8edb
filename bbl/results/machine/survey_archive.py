"""Convert the sampling design of a fit to arrays of a model file, and back.

The N rows were drawn in S stages; each stage samples clusters or single rows. Of these rows, n are
training rows, with increasing positions. R is the number of replicates (sets of weights for all
rows). The squared deviations of the replicates' estimates are multiplied by ``scale`` and
``rscales`` (R,); with ``mse`` they are deviations from the estimate for all rows, otherwise from
the mean of the replicates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bbl.results.array_table import NON_NEGATIVE, POSITIVE, ArraySpec
from bbl.stats.survey.plan import LONELY, SamplingPlan
from bbl.stats.survey.replicates import Replicates
from bbl.stats.survey.sample import SurveySample

__all__ = ["SURVEY_TABLE", "pack_survey", "unpack_survey"]

# kind of dtype, shape, range, array that implies it. A number as the end of a range is inclusive; a
# name is a length, an exclusive end
SURVEY_TABLE = {
    "survey_weights": ArraySpec("f", ("N",), POSITIVE, required=False),
    "survey_rows": ArraySpec("i", ("n",), (0, "N"), required="survey_weights"),
    "survey_strata": ArraySpec("i", ("N",), (0, "N"), required="survey_weights"),
    "survey_clusters": ArraySpec("i", ("S", "N"), (0, "N"), required="survey_weights"),
    "survey_lonely": ArraySpec("i", (1,), (0, len(LONELY) - 1), required="survey_weights"),
    "survey_population": ArraySpec("f", ("S", "N"), POSITIVE, required=False),
    "survey_replicates": ArraySpec("f", ("N", "R"), NON_NEGATIVE, required=False),
    "survey_rscales": ArraySpec("f", ("R",), NON_NEGATIVE, required="survey_replicates"),
    # scale, and mse as 0 or 1
    "survey_scale": ArraySpec("f", (2,), NON_NEGATIVE, required="survey_replicates"),
}


def pack_survey(survey: SurveySample | None) -> dict[str, np.ndarray]:
    """Return the arrays of a sampling design by name, or an empty dict if the fit has none."""
    if survey is None:
        return {}
    # replicates: None if covariances are linearised
    plan = survey.plan
    replicates = survey.replicates
    arrays = {
        "survey_rows": survey.rows,
        "survey_weights": plan.weights,
        "survey_strata": plan.strata,
        "survey_clusters": np.array(plan.clusters),
        # rule for strata with a single cluster
        "survey_lonely": np.array([LONELY.index(plan.lonely)]),
    }
    if plan.population is not None:  # sizes of finite populations, (S, N)
        arrays["survey_population"] = np.array(plan.population)
    if replicates is not None:
        arrays["survey_replicates"] = replicates.weights
        arrays["survey_rscales"] = replicates.rscales
        arrays["survey_scale"] = np.array([replicates.scale, float(replicates.mse)])
    return arrays


def unpack_survey(arrays: Mapping[str, np.ndarray]) -> SurveySample | None:
    """Return the sampling design stored by `pack_survey`, or None if the fit has none.

    Raises a ValueError unless strata and clusters are numbered consecutively and rows are
    increasing.
    """
    if "survey_weights" not in arrays:
        return None
    strata = arrays["survey_strata"]
    clusters = tuple(arrays["survey_clusters"])
    # there is at least one stage, and codes are 0, 1, ... without gaps
    for codes in (strata, *clusters):
        if not len(clusters) or len(np.unique(codes)) != codes.max(initial=-1) + 1:
            raise ValueError("its sampling design is malformed")
    if (np.diff(arrays["survey_rows"]) <= 0).any():
        raise ValueError("the rows of its sampling design are malformed")
    population = tuple(arrays["survey_population"]) if "survey_population" in arrays else None
    plan = SamplingPlan(
        arrays["survey_weights"],
        strata,
        clusters,
        population,
        LONELY[int(arrays["survey_lonely"][0])],
    )
    replicates = None
    if "survey_replicates" in arrays:
        scale, mse = arrays["survey_scale"]
        replicates = Replicates(
            arrays["survey_replicates"], float(scale), arrays["survey_rscales"], bool(mse)
        )
    return SurveySample(plan, replicates, arrays["survey_rows"])
