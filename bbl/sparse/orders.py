"""Stagewise selection of terms (Min, Ning, Cheng & Gerstein 2014, section 3.2).

Candidates of order k are products of a selected term of order k - 1 and one more predictor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.sparse.products import Problem, Term, candidate_ratios
from bbl.sparse.workingset import Penalty, Stage, Weights, minimise, null_slope

__all__ = ["SCREENS", "grow", "largest_penalty"]

SCREENS = ("heredity", "all")


def grow(
    problem: Problem,
    penalty: Penalty,
    screen: str = "heredity",
    start: Sequence[Stage] | None = None,
) -> list[Stage]:
    """Return one stage per order.

    Each stage finds the minimum over the terms selected in the previous stage and their products.
    Terms of lower orders may be dropped at later stages. The stages end when no term is left that
    can be multiplied.

    Parameters
    ----------
    problem : Problem
    penalty : Penalty
        Penalty with one factor for each order.
    screen : {"heredity", "all"}
        Candidate pairs; with "all", each pair of predictors is a candidate, even if neither was
        selected.
    start : stages of a similar problem, optional
        Warm starts, one for each order: `weights` (d, q) by term and `intercept` (q,). Warm starts
        do not change the minimum.
    """
    stages: list[Stage] = []
    for k in range(1, len(penalty.lambdas) + 1):
        previous = stages[-1] if stages else None
        # weights of the terms of lower orders
        base_weights: Weights = previous.weights if previous else {}
        all_pairs = k == 2 and screen == "all"
        # the empty term for single predictors, and otherwise the selected terms of the previous
        # order
        parents: list[Term] = [()] if k == 1 else [t for t in base_weights if len(t) == k - 1]
        if all_pairs:
            parents = [(i,) for i, L in enumerate(problem.n_levels) if L > 1]
        if not parents:
            break
        # the stage of the same order
        warm_stage = start[k - 1] if start and len(start) >= k else None
        # starting weights: `base` for the selected terms of lower orders, and `warm_products` for
        # the products of order k in the first working set
        base = dict(base_weights)
        warm_products = {}
        intercept = np.zeros(problem.K - 1)
        if warm_stage is not None:
            parent_set = set(parents)
            # weights of the warm start replace those of the previous stage
            base |= {t: w for t, w in warm_stage.weights.items() if t in base}
            warm_products = {
                t: w
                for t, w in warm_stage.weights.items()
                if len(t) == k and (all_pairs or _has_parent(t, parent_set))
            }
            intercept = warm_stage.intercept
        elif previous is not None:
            intercept = previous.intercept
        stages.append(
            minimise(problem, penalty, base, parents, warm_products, intercept, all_pairs)
        )
    return stages


def _has_parent(term: Term, parents: set[Term]) -> bool:
    """Return whether a term is a product of one of `parents` and one more predictor."""
    return any(term[:i] + term[i + 1 :] in parents for i in range(len(term)))


def largest_penalty(problem: Problem, group: bool, screen: str = "heredity") -> float:
    """Return the smallest penalty, common to all orders, at which no term is selected."""
    # (q, n): derivative of the loss with respect to the link of the empty model
    _, slope, _ = null_slope(problem)
    # the first term that enters is a single predictor (a product of the empty term) or, with "all",
    # possibly a pair
    singles: list[Term] = (
        [(i,) for i, L in enumerate(problem.n_levels) if L > 1] if screen == "all" else []
    )
    parent_sets = [parents for parents in ([()], singles) if parents]
    # ratios (m, parents): the penalty at which the product of each predictor and parent enters
    ratio_blocks = [
        ratios
        for parents in parent_sets
        for _, ratios in candidate_ratios(problem, slope, parents, group)
    ]
    return max((float(ratios.max(initial=0.0)) for ratios in ratio_blocks), default=0.0)
