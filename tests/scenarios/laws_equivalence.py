"""Laws of equivalence: what a result must not depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from scenarios import build
from scenarios.case import Case, expect, expect_close
from scenarios.laws import law

LOOSE = 2e-4  # of optimisers that stop at a gradient


def same_predictions(
    case: Case, other: Any, what: str, rows: Any = None, exact: bool = False
) -> None:
    """Raise `LawBroken` unless another fit predicts new rows as the case's own."""
    fit = case.fit
    tolerance = 1e-12 if exact else LOOSE
    if case.classes:
        groups = list(fit.labels.groups)
        expect(
            set(other.labels.groups) == set(groups),
            f"{what}: groups {groups} and {list(other.labels.groups)}",
        )
        a, b = case.probabilities(fit), case.probabilities(other, rows)
        b = b.iloc[:, [list(other.labels.groups).index(g) for g in groups]]
        expect_close(a, b, f"{what}: probabilities", rtol=tolerance, atol=tolerance)
    if case.engine is not None and not case.engine.joint:
        a = fit.score_samples(case.new_frame)
        b = other.score_samples(case.new_frame if rows is None else rows)
        expect_close(a, b, f"{what}: ln P(row)", rtol=tolerance, atol=10 * tolerance)


def has_counts(case: Case) -> bool:
    has_counts = case.s.weights in ("counts", "zero") and not case.s.design
    return has_counts and 0 < case.table.weights.sum() <= 4000


@law(has_counts, cost=8)
def weights_are_equivalent_to_repeated_rows(case: Case) -> None:
    """Integer weights give the same fit as repeated rows."""
    table = case.table
    repeated = dataclasses.replace(
        table.take(np.repeat(np.arange(table.n), table.weights)), weights=None
    )
    other = case.refit(repeated)
    if case.in_memory or case.s.family != "average":
        expect(case.fit.nobs() == other.nobs(), f"nobs: {case.fit.nobs()!r} and {other.nobs()!r}")
    same_predictions(case, other, "weights and repeated rows")
    if case.s.family != "average" and case.s.method not in (
        "auto",
        "conditional",
        "blanket",
        "boosting",
    ):
        expect_close(case.fit.logLik(), other.logLik(), "log-likelihood", rtol=1e-5, atol=1e-4)


@law(lambda case: case.table.n > 1, cost=6)
def the_order_of_rows_does_not_matter(case: Case) -> None:
    """The order of the rows does not change the model."""
    same_predictions(
        case, case.refit(case.table.take(case.rng.permutation(case.table.n))), "order of rows"
    )


@law(lambda case: len(case.table.names) > 1, cost=6)
def the_order_of_columns_does_not_matter(case: Case) -> None:
    """The order of the columns does not change the model."""
    at = case.rng.permutation(len(case.table.names))
    t = case.table
    turned = dataclasses.replace(
        t,
        names=[t.names[i] for i in at],
        values=[t.values[i] for i in at],
        kinds=tuple(t.kinds[i] for i in at),
        orders=[t.orders[i] for i in at],
        codes=t.codes[:, at],
    )
    place = {-1: -1} | {int(i): k for k, i in enumerate(at)}
    turned = dataclasses.replace(turned, zeros={place[i]: codes for i, codes in t.zeros.items()})
    s = case.s
    if not isinstance(s.terms, int):
        left = {i: k for k, i in enumerate(s.used)}
        terms = [t for t in s.terms if all(i in left for i in t)]
        s = dataclasses.replace(
            s, terms=tuple(tuple(sorted(place[left[i]] for i in t)) for t in terms), columns=None
        )
        s = dataclasses.replace(s, levels=tuple(len(v) for v in turned.values))
    same_predictions(case, case.refit(turned, scenario=s), "order of columns")


@law(cost=6)
def names_do_not_matter(case: Case) -> None:
    """The names of the columns do not change the results."""
    t = case.table
    plain = dataclasses.replace(
        t, names=[f"x{i}" for i in range(len(t.names))], response="y", weight_name="w"
    )
    other = case.refit(plain)
    rows = dataclasses.replace(case.new, names=plain.names, response="y", weight_name="w").frame()
    same_predictions(case, other, "names", rows, exact=True)


def keeps_declared(case: Case) -> bool:
    """Whether predictors are the same where categories of the response can be declared."""
    return case.s.source not in ("dict", "polars", "lazyframe", "duckdb") or not {
        "category",
        "ordered",
    } & {*case.s.kinds}


@law(lambda case: case.classes and case.s.family != "average" and keeps_declared(case), cost=6)
def the_order_of_groups_does_not_matter(case: Case) -> None:
    """The order of the groups does not change the probabilities.

    Where a method knows their order, the other way round does not.
    """
    t, K = case.table, len(case.table.groups)
    # what is declared counts, so declare what occurs
    if t.group_kind not in ("category", "ordered"):
        present = np.unique(t.y[build.kept_rows(case.s, t)])
        t = dataclasses.replace(
            t.take(np.isin(t.y, present)), groups=[t.groups[g] for g in present]
        )
        zeros = {
            i: codes if i >= 0 else np.searchsorted(present, codes).tolist()
            for i, codes in t.zeros.items()
        }
        t = dataclasses.replace(
            t, y=np.searchsorted(present, t.y), zeros=zeros if len(present) == K else {}
        )
    turned = dataclasses.replace(
        t,
        group_kind="ordered" if t.group_kind in ("category", "ordered") else "declared",
        group_order=t.group_order[::-1]
        if case.s.options.get("logits", "nominal") != "nominal"
        else case.rng.permutation(len(t.groups)),
    )
    numbers = not isinstance(t.groups[0], str)  # as categories they keep no order in Parquet
    source = (
        "pandas" if numbers or case.s.source in ("dict", "polars", "lazyframe", "duckdb") else None
    )
    priors = build.arguments(case.s, case.table).get("priors")
    same_predictions(
        case,
        case.refit(turned, source, **({"priors": priors} if priors else {})),
        "order of groups",
    )


@law(lambda case: True, cost=6)
def the_order_of_levels_does_not_matter(case: Case) -> None:
    """The order of a predictor's levels, and thus its reference level, does not change the
    probabilities.

    Where a method knows the order of levels, that is the other way round.
    """
    blanks = (case.table.codes[build.kept_rows(case.s, case.table)] < 0).any(axis=0) & (
        case.s.missing == "level"
    )
    knows_order = case.s.method == "auto" or case.s.options.get("ordered", "nominal") != "nominal"
    levels = {}
    for name, own, blank in zip(case.fit.labels.names, case.fit.labels.levels, blanks, strict=True):
        if name in case.table.numbers:
            continue
        listed = np.array([*own[: len(own) - blank], None], dtype=object)[:-1]
        levels[name] = list(listed[::-1] if knows_order else case.rng.permutation(listed))
    changes: dict[str, Any] = {"xlevels": levels}
    if scores := build.arguments(case.s, case.table).get("level_scores"):
        changes["level_scores"] = {name: [-v for v in own[::-1]] for name, own in scores.items()}
    same_predictions(case, case.refit(**changes), "order of levels")


@law(lambda case: case.s.source != "pandas", cost=6)
def the_kind_of_data_source_does_not_matter(case: Case) -> None:
    """Every kind of data gives the same model as a pandas data frame with the same rows."""
    other = case.refit(source="pandas")
    labels = [dataclasses.replace(fit.labels, centers=()) for fit in (case.fit, other)]
    expect(labels[0] == labels[1], f"labels: {labels[0]} and {labels[1]}")
    # means of numeric predictors are sums in the order of the batches
    expect_close(case.fit.labels.centers, other.labels.centers, "centers", rtol=1e-12, atol=1e-12)
    same_predictions(case, other, case.s.source)
    if case.in_memory or case.s.family != "average":
        expect_close(case.fit.nobs(), other.nobs(), "nobs")


@law(lambda case: case.s.family in ("bbl", "shooter", "average"), cost=6)
def threads_do_not_matter(case: Case) -> None:
    """Results are bitwise identical for any n_jobs."""
    one, two = case.refit(n_jobs=1), case.refit(n_jobs=2)
    if case.classes:
        a, b = case.probabilities(one).to_numpy(), case.probabilities(two).to_numpy()
        expect(np.array_equal(a, b, equal_nan=True), "probabilities differ")
    if case.engine is not None:
        expect(
            np.array_equal(one.estimate.parameters.theta, two.estimate.parameters.theta),
            "coefficients differ",
        )


@law(lambda case: case.s.source in ("pandas", "polars", "arrow", "dict"), cost=6)
def columns_that_the_formula_leaves_out_do_not_matter(case: Case) -> None:
    """A column that is not in the formula does not change the model."""
    frame = case.frame.copy()
    names = iter(f"extra{k}" for k in range(100))
    extra = next(name for name in names if name not in frame)
    frame[extra] = "same"
    s = case.s
    text = build.formula(s, case.table)
    if isinstance(s.terms, int):
        text += f" - {extra}"
    with build.source(s.source, frame, s.seed) as data:
        other = build.fit(s, case.table, data, formula=text)
    same_predictions(case, other, "a column beside", exact=True)
