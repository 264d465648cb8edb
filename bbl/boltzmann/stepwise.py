"""Stepwise selection of terms in log-linear models, on arrays.

A *term* is an increasing tuple of two or more predictors, and a *model* is a frozenset of terms.
Fields of all predictors are always included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from bbl.engines import Engine
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.scores import n_free
from bbl.rows.sample import Sample

__all__ = [
    "Candidate",
    "Score",
    "StepScorer",
    "Visit",
    "addable_terms",
    "droppable_terms",
    "stepwise",
]

Term = tuple[int, ...]
Model = frozenset[Term]
LEAST_GAIN = 1e-7  # smallest decrease of the criterion for a step; smaller ones are rounding errors


@dataclass(frozen=True)
class Score:
    """Maximised log-likelihood and number of estimable parameters, summed over groups."""

    log_likelihood: float
    n_parameters: int

    def criterion(self, k: float) -> float:
        """Return ``-2 log-likelihood + k parameters``, where k is the penalty per parameter."""
        return -2.0 * self.log_likelihood + k * self.n_parameters


@dataclass(frozen=True)
class Candidate:
    """A possible step: the sign "+" or "-", the term, and the score of the resulting model."""

    sign: str
    term: Term
    score: Score


@dataclass(frozen=True)
class Visit:
    """A model on the path.

    Attributes
    ----------
    model : frozenset of tuples of int
    score : Score
    step : Candidate or None
        The step that led to this model; None for the first model.
    candidates : list of Candidate
        All steps from this model that were considered.
    """

    model: Model
    score: Score
    step: Candidate | None
    candidates: list[Candidate]


class StepScorer:
    """Scores models by the exact likelihood of encoded rows.

    Each model is fitted only once.

    Parameters
    ----------
    rows : Sample
    K : int
        Number of groups.
    layout : Layout
        Layout of the first model. Its numbers of levels and structural zeros apply to all models.
    engine : Engine
        An engine with `has_likelihood`.

    Attributes
    ----------
    groups : list of K Samples
        The rows of each group, one row for each distinct state.
    layout : Layout
    engine : Engine
    n_refused : int
        Number of models without a score because their tables would be too large.
    """

    def __init__(self, rows: Sample, K: int, layout: Layout, engine: Engine):
        self.groups = [rows.group(g).collapsed(layout.n_levels) for g in range(K)]
        self.layout = layout
        self.engine = engine
        self.n_refused = 0
        self._scores: dict[Model, Score | None] = {}  # cache of `score`

    def score(self, model: Model) -> Score | None:
        """Return the score of a model; None if its tables are too large for the engine."""
        if model not in self._scores:
            try:
                self._scores[model] = self._fit(model)
            except OptionError as error:  # `argument`: the option of `bbl` in the error
                # not about the size of the tables
                if error.argument not in ("method", "missing", "structural_zeros"):
                    raise
                self._scores[model] = None
                self.n_refused += 1
        return self._scores[model]

    def _fit(self, model: Model) -> Score:
        """Fit a model and return its score.

        An OptionError is raised if the engine does not support the model.
        """
        layout = self.layout.with_terms(sorted(model))
        total = 0.0
        n_parameters = 0
        for g, rows in enumerate(self.groups):
            # all parameters of groups without rows are counted, as in `Estimate.n_parameters`
            if not rows.n:
                n_parameters += n_free(layout)
                continue
            self.engine.layout(rows, layout)  # raises an error if the engine refuses the tables
            maximum = self.engine.maximum_likelihood(rows, layout.of_group(g))
            total += maximum.log_likelihood
            n_parameters += maximum.rank
        return Score(total, n_parameters)


def droppable_terms(model: Model, lower: Model) -> list[Term]:
    """Return the terms of a model that can be dropped, starting with the smallest.

    These are the terms that are contained neither in larger terms nor in `lower`.
    """
    inner_terms = {part for term in model for part in _subterms(term)}
    return sorted(model - inner_terms - lower, key=_order_key)


def addable_terms(model: Model, upper: Model) -> list[Term]:
    """Return the terms of `upper` that can be added because the model has all of their subterms.

    Terms with fewer predictors come first.
    """
    return sorted(
        (term for term in upper - model if model.issuperset(_subterms(term))), key=_order_key
    )


def _subterms(term: Term) -> list[Term]:
    """Return the subterms of a term that have one fewer predictor; a pair has none."""
    return list(combinations(term, len(term) - 1)) if len(term) > 2 else []


def _order_key(term: Term) -> tuple[int, Term]:
    """Return the sort key of a term: fewer predictors first, then lexicographic order."""
    return len(term), term


def stepwise(
    scorer: StepScorer,
    start: Model,
    lower: Model,
    upper: Model,
    directions: Sequence[str],
    k: float,
    progress: Callable,
) -> list[Visit]:
    """Repeatedly take the step that decreases ``-2 log-likelihood + k parameters`` most.

    The search stops if no step decreases this criterion. Steps that do not change the number of
    parameters are skipped, as in R's ``stepAIC``.

    Parameters
    ----------
    scorer : StepScorer
    start, lower, upper : frozenset of terms
        The first model, the terms that may not be dropped, and the terms that may be added.
    directions : sequence of "-" and "+"
        Whether terms are dropped, added, or both.
    k : float
        Penalty per parameter.
    progress : callable
        ``progress(share, note)`` is called for each candidate.

    Returns
    -------
    list of Visit
        The path, beginning with the first model.
    """
    score = scorer.score(start)
    assert score is not None  # noqa: S101  # the first model was fitted before
    model = start
    step = None
    path: list[Visit] = []
    while True:
        candidates: list[Candidate] = []
        changes = (
            [("-", term) for term in droppable_terms(model, lower)] if "-" in directions else []
        )
        changes += (
            [("+", term) for term in addable_terms(model, upper)] if "+" in directions else []
        )
        for sign, term in changes:
            # drop the term if the model has it, else add it
            changed_score = scorer.score(model ^ {term})
            progress(1.0, f"step {len(path) + 1}, {score.criterion(k):.6g}")
            if changed_score is not None and changed_score.n_parameters != score.n_parameters:
                candidates.append(Candidate(sign, term, changed_score))
        path.append(Visit(model, score, step, candidates))
        step = min(candidates, key=lambda candidate: candidate.score.criterion(k), default=None)
        if step is None or step.score.criterion(k) >= score.criterion(k) - LEAST_GAIN:
            return path
        model = model ^ {step.term}
        score = step.score
