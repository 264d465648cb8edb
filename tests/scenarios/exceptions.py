"""Where laws do not hold: law, condition, and a sentence for users that says why. `docs` has it as
a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bbl.results.machine.machine import MachineResults
from scenarios.build import kept_rows
from scenarios.case import Case

__all__ = ["EXCEPTIONS", "ORDERS", "Exempt", "exception"]


@dataclass(frozen=True)
class Exempt:
    """One reason for which laws do not hold.

    Attributes
    ----------
    laws : tuple of str
    when : callable
        Of which cases.
    why : str
        A sentence for users.
    """

    laws: tuple[str, ...]
    when: Callable[[Case], bool]
    why: str


def option(case: Case, name: str, default: object = None) -> object:
    """Return an option of the call."""
    return case.s.options.get(name, default)


def by_reference(case: Case) -> bool:
    """Whether a penalty or a regularisation goes by parameters in the reference gauge."""
    s = case.s
    if s.family == "average":
        return any(method in s.method for method in ("mf", "pseudo", "conditional"))
    if option(case, "gauge") == "zero-sum":
        return False
    if s.family == "shooter":
        return option(case, "penalty") == "l1"
    if s.family == "network":
        return False
    if s.method == "ml":
        # eqs. (31) and (32) go by the reference level
        approximate = option(case, "log_z") in ("pseudo", "half", "mf")
        return (
            approximate
            or option(case, "lambda_") is not None
            or option(case, "lambdah") is not None
        )
    return s.method in ("mf", "pseudo", "bayes", "pcd", "pvi", "shbm", "auto")


def constant_within_a_group(case: Case) -> bool:
    """Whether a predictor has one level in a group."""
    table = case.table.take(kept_rows(case.s, case.table))
    codes = table.codes[:, table.nominal]
    parts = [codes[table.y == g] for g in np.unique(table.y)] if case.s.response else [codes]
    return any(len(np.unique(column[column >= 0])) < 2 for part in parts for column in part.T)


def lacks_inner_terms(case: Case) -> bool:
    """Whether there is an interaction without one of the terms inside it."""
    terms = set() if isinstance(case.s.terms, int) else set(case.s.terms)
    return any(
        inner not in terms for term in terms for inner in combinations(term, len(term) - 1) if inner
    )


def equal_terms_of_a_shooter(case: Case) -> bool:
    """Whether two columns of a sparse regression are equal in all rows, up to sign and constant."""
    if case.s.family != "shooter":
        return False
    codes = case.table.codes[kept_rows(case.s, case.table)]
    indicators = [[column == level for level in np.unique(column)] for column in codes.T]
    columns = [column for levels in indicators for column in levels]
    columns += [a & b for one, two in combinations(indicators, 2) for a in one for b in two]
    varying = [column ^ column[0] for column in columns if column.any() and not column.all()]
    binary = sum(len(levels) == 2 for levels in indicators)  # whose two levels are one column
    return len({column.tobytes() for column in varying}) < len(varying) - binary


def equal_tables_of_predictors(case: Case) -> bool:
    """Whether two predictors, or two pairs, have the same table with the groups, so that one of
    them is chosen.
    """
    if option(case, "relevance") is None and case.s.method != "blanket":
        return False
    table = case.table.take(kept_rows(case.s, case.table))
    weights = np.ones(table.n) if table.weights is None else np.asarray(table.weights, dtype=float)
    rows = [tuple(codes) for codes in table.codes.tolist()]
    tables = []
    for at in (*combinations(table.nominal, 1), *combinations(table.nominal, 2)):
        cells: Counter[tuple[tuple[int, ...], int]] = Counter()
        for row, group, weight in zip(rows, table.y.tolist(), weights.tolist(), strict=True):
            cells[tuple(row[i] for i in at), group] += weight
        groups = {
            levels: [cells[levels, g] for g in np.unique(table.y).tolist()] for levels, _ in cells
        }
        tables.append(
            (len(at), *sorted((min(levels) < 0, *counts) for levels, counts in groups.items()))
        )
    return len(set(map(repr, tables))) < len(tables)


ORDERS = tuple(
    f"the_order_of_{what}_does_not_matter" for what in ("rows", "columns", "groups", "levels")
)
EQUAL = (*ORDERS, "weights_are_equivalent_to_repeated_rows")

SCALES = (
    "the_scale_of_weights_does_not_matter",
    "the_scale_of_weights_does_not_matter_for_validation",
)
UNBOUNDED = 10.0  # coefficients beyond it have no finite optimum, or hardly one


def confounded_levels(case: Case) -> bool:
    """Whether some effects of levels on a number cannot be told apart in a group."""
    location = getattr(getattr(case.fit, "estimate", None), "location", None)
    if location is None:
        return False
    columns = [np.flatnonzero(has) for has in location.model.has_column]
    return any(
        location.ranks[g, j] < location.model._identified(location.T[g], own)[0].sum()
        for g in np.flatnonzero(location.n > 0.0)
        for j, own in enumerate(columns)
    )


def unbounded(case: Case) -> bool:
    """Whether a coefficient has no finite optimum, so that it is where iterations ended."""
    if not case.converged or not isinstance(case.fit, MachineResults):
        return True
    theta = case.fit.estimate.parameters.theta
    return bool(np.abs(np.asarray(theta)).max(initial=0.0) > UNBOUNDED)


EXCEPTIONS: list[Exempt] = [
    Exempt(
        (*SCALES, "a_sampling_design_does_not_change_estimates"),
        unbounded,
        "If a coefficient has no finite optimum, its value after the last iteration depends on how "
        "the weights are rounded.",
    ),
    Exempt(
        EQUAL,
        lambda case: case.is_tuned,
        "Rows and groups are assigned to folds in their order of appearance. A setting, a "
        "calibration or a structure that is selected by cross-validation therefore depends on this "
        "order, as well as on the seed.",
    ),
    Exempt(
        EQUAL,
        lambda case: (
            case.s.method in ("bayes", "pcd", "pvi", "shbm", "auto")
            or option(case, "log_z") == "ais"
            or option(case, "awnb_trees")
        ),
        "Methods that use random numbers draw them for rows, terms and groups in their order of "
        "appearance.",
    ),
    Exempt(
        (
            "the_order_of_columns_does_not_matter",
            "the_order_of_levels_does_not_matter",
        ),
        lambda case: "cv" in [option(case, n) for n in ("covariance", "shrink", "transform")],
        "The folds used to choose covariance=, shrink= and transform= are assigned after sorting "
        "the rows by columns and levels.",
    ),
    Exempt(
        ("the_order_of_groups_does_not_matter", "the_order_of_levels_does_not_matter"),
        lambda case: case.s.method == "boosting",
        "method='boosting' assigns rows to folds and draws cuts in the order of groups and levels.",
    ),
    Exempt(
        ("the_order_of_levels_does_not_matter",),
        by_reference,
        "Penalties and the regularisation of mean field depend on the reference level (the first "
        "one), unless gauge='zero-sum'.",
    ),
    Exempt(
        (*EQUAL, "the_kind_of_data_source_does_not_matter"),
        lambda case: not case.converged,
        "If there is no finite optimum, or it was not reached (a ConvergenceWarning is issued), "
        "the final estimate depends on the order of summation.",
    ),
    Exempt(
        ("the_order_of_columns_does_not_matter",),
        lambda case: option(case, "symmetrize") is False,
        "With symmetrize=False, the coupling of a pair is estimated by the regression of its first "
        "predictor on its second one.",
    ),
    Exempt(
        ("the_kind_of_data_source_does_not_matter", "the_order_of_groups_does_not_matter"),
        lambda case: (
            case.s.source == "dict" and {"category", "ordered"} & {*case.s.kinds, case.s.group_kind}
        ),
        "A dict of lists cannot declare categories or their order.",
    ),
    Exempt(
        ("the_kind_of_data_source_does_not_matter", "the_order_of_groups_does_not_matter"),
        lambda case: (
            case.s.source in ("polars", "lazyframe")
            and "category" in (*case.s.kinds, case.s.group_kind)
        ),
        "A polars Categorical does not declare levels, whereas an Enum does.",
    ),
    Exempt(
        ("the_kind_of_data_source_does_not_matter", "the_order_of_groups_does_not_matter"),
        lambda case: (
            case.s.source == "duckdb"
            and {"category", "ordered"} & {*case.s.kinds, case.s.group_kind}
        ),
        "DuckDB reads categories in Parquet files as text. Its own enumerations keep their order.",
    ),
    Exempt(
        ("the_order_of_levels_does_not_matter",),
        lambda case: "pseudo" in case.s.method and constant_within_a_group(case),
        "If a predictor is constant within a group, pseudo-likelihood adds an observation at the "
        "reference levels to this group (Woo & Wang, section 2.2).",
    ),
    Exempt(
        EQUAL,
        lambda case: case.s.family == "shooter" and case.s.weights == "huge",
        (
            "If the penalty is a billionth of the weights, the objective is so flat that the "
            "order of summation affects the result."
        ),
    ),
    Exempt(
        EQUAL,
        lambda case: "mf" in case.s.method and case.s.weights == "huge",
        "Mean field inverts the covariance of predictors that hardly vary within a group. With "
        "weights of 1e9, the prior count is negligible, couplings reach 1e9, and rounding affects "
        "predictions; a warning reports the log-loss.",
    ),
    Exempt(
        ("the_order_of_levels_does_not_matter",),
        lambda case: case.s.family == "bbl" and lacks_inner_terms(case),
        "If a formula has an interaction without its lower-order terms (a:b:c without a:b), the "
        "model depends on the reference levels, as in R.",
    ),
    Exempt(
        EQUAL,
        equal_terms_of_a_shooter,
        "If two terms are equal or opposite in all rows, the penalised optimum does not determine "
        "how the weight is divided between them. New rows where they differ are predicted from the "
        "first term only.",
    ),
    Exempt(
        ("explanations_add_up_to_the_prediction",),
        lambda case: case.s.family == "network" and not option(case, "smooth", 0.0),
        "Without prior counts, rows that are impossible in all groups of a network are predicted "
        "with equal probabilities, which are not the sum of its terms; rows that are impossible "
        "in one group have infinite terms.",
    ),
    Exempt(
        ("the_order_of_levels_does_not_matter",),
        confounded_levels,
        "If two levels occur in the same rows of a group, their effects on a numeric predictor "
        "cannot be told apart. They share the effect, in equal parts relative to the reference "
        "levels.",
    ),
    Exempt(
        ("the_order_of_levels_does_not_matter",),
        lambda case: option(case, "log_z") == "mf",
        "The approximation log_z='mf' (eq. 32) depends on the reference levels.",
    ),
    Exempt(
        EQUAL,
        lambda case: (
            case.s.method == "pseudo" and option(case, "lambda_") == 0.0 and case.s.order > 1
        ),
        "Without a penalty (lambda_=0), some couplings may not be identified; predictions for "
        "unseen combinations then depend on the starting values.",
    ),
    Exempt(
        ORDERS,
        lambda case: case.s.method in ("tan_cl", "kdb") or "tan_cl" in case.s.method,
        "Ties between arcs are broken by the order of the columns and levels.",
    ),
    Exempt(
        ("the_order_of_columns_does_not_matter",),
        equal_tables_of_predictors,
        "If several predictors are equally informative, relevance= and method='blanket' select "
        "the first in the formula.",
    ),
    Exempt(
        ("a_sampling_design_does_not_change_estimates",),
        lambda case: (
            case.s.weights != "none"
            and bool(option(case, "prior_count", 1.0 if case.s.method == "naive" else 0.0))
        ),
        "Prior counts are relative to the effective number of rows under a sampling design, and "
        "to the sum of the weights if these are counts.",
    ),
    Exempt(
        ("a_sampling_design_does_not_change_estimates",),
        lambda case: (
            case.s.weights != "none" and "pseudo" in case.s.method and constant_within_a_group(case)
        ),
        "If a predictor is constant within a group, pseudo-likelihood adds an observation. Its "
        "weight is relative to the effective number of rows under a sampling design, and to the "
        "sum of the weights if these are counts.",
    ),
    Exempt(
        EQUAL,
        lambda case: (
            case.s.weights == "huge"
            and case.s.method in ("ml", "pseudo")
            and bool(option(case, "prior_count"))
        ),
        "With weights of 1e9, a prior count is below the tolerance of the optimiser, but "
        "determines the probabilities of cells without rows.",
    ),
]


def exception(law: str, case: Case) -> str:
    """Return why a law does not hold for a case; empty if it does."""
    for each in EXCEPTIONS:
        if law in each.laws and each.when(case):
            return each.why
    return ""
