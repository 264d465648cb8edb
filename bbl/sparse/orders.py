"""Terms of growing order: those of order k are products of chosen terms of order k - 1 and one more predictor.

Min, Ning, Cheng, Gerstein (2014), Interpretable Sparse High-Order Boltzmann Machines, AISTATS, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.sparse.products import Problem, Term, candidate_ratios
from bbl.sparse.workingset import Penalty, Stage, Weights, minimise, null_slope

__all__ = ["SCREENS", "grow", "largest_penalty"]

SCREENS = ("heredity", "all")


def grow(
    problem: Problem, penalty: Penalty, screen: str = "heredity", start: Sequence[Stage] | None = None
) -> list[Stage]:
    """Return the minimum of each order: over the terms that the one before chose, and all their products.

    Terms of lower order may drop out at a later stage. It ends at the order of the penalties, or where there is nothing
    to multiply.

    Parameters
    ----------
    problem : Problem
    penalty : Penalty
        One for each order.
    screen : {"heredity", "all"}
        "all" takes every pair of predictors as a candidate, whether one of them was chosen or not.
    start : stages of a similar problem, optional
        Where to look first; the minimum is the same.
    """
    stages: list[Stage] = []
    for k in range(1, len(penalty.lambdas) + 1):
        before = stages[-1] if stages else None
        start_weights: Weights = before.weights if before else {}
        once = k == 2 and screen == "all"
        parents: list[Term] = [()] if k == 1 else [t for t in start_weights if len(t) == k - 1]
        if once:
            parents = [(i,) for i, L in enumerate(problem.n_levels) if L > 1]
        if not parents:
            break
        hint = start[k - 1] if start and len(start) >= k else None
        base, warm, intercept = dict(start_weights), {}, np.zeros(problem.K - 1)
        if hint is not None:
            chosen = set(parents)
            base |= {t: w for t, w in hint.weights.items() if t in base}
            warm = {t: w for t, w in hint.weights.items() if len(t) == k and (once or _made(t, chosen))}
            intercept = hint.intercept
        elif before is not None:
            intercept = before.intercept
        stages.append(minimise(problem, penalty, base, parents, warm, intercept, once))
    return stages


def _made(term: Term, parents: set[Term]) -> bool:
    """Return whether a term is the product of a parent and one more predictor."""
    return any(term[:i] + term[i + 1 :] in parents for i in range(len(term)))


def largest_penalty(problem: Problem, group: bool, screen: str = "heredity") -> float:
    """Return the penalty from which on no term is chosen, with one penalty for all orders."""
    _, slope, _ = null_slope(problem)
    pairs: list[Term] = [(i,) for i, L in enumerate(problem.n_levels) if L > 1] if screen == "all" else []
    ratios = [
        r
        for parent_terms in ([()], pairs)
        if parent_terms
        for _, r in candidate_ratios(problem, slope, parent_terms, group)
    ]
    return max((float(r.max(initial=0.0)) for r in ratios), default=0.0)
