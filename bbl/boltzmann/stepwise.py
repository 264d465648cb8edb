"""Stepwise choice of the terms of log-linear models: one term is added or dropped at a time, on arrays.

A *term* is a rising tuple of two or more predictors, a *model* a frozenset of terms; all predictors have their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from bbl.engines import Engine
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["Candidate", "Score", "StepScorer", "Visit", "addable", "droppable", "stepwise"]

Term = tuple[int, ...]
Model = frozenset[Term]
LEAST_GAIN = 1e-7  # of the criterion, for which a step is taken: less is rounding


@dataclass(frozen=True)
class Score:
    """The largest log-likelihood of a model, summed over groups, and its number of parameters."""

    log_likelihood: float
    n_parameters: int

    def criterion(self, k: float) -> float:
        """Return ``-2 log-likelihood + k parameters``."""
        return -2.0 * self.log_likelihood + k * self.n_parameters


@dataclass(frozen=True)
class Candidate:
    """A model one term away from another: the sign "+" or "-", the term, and the score of the model with this step."""

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
        The step that led to the model; None for the first model.
    candidates : list of Candidate
        All steps from here that were compared.
    """

    model: Model
    score: Score
    step: Candidate | None
    candidates: list[Candidate]


class StepScorer:
    """Scores of models by the exact likelihood of encoded rows; each model is fitted once.

    Parameters
    ----------
    rows : Sample
    K : int
        Number of groups.
    layout : Layout
        Of the first model: its numbers of levels and structural zeros are those of all models.
    engine : Engine
        One that `has_likelihood`.

    Attributes
    ----------
    n_refused : int
        Number of models that had no score, because their tables would be too large.
    """

    def __init__(self, rows: Sample, K: int, layout: Layout, engine: Engine):
        self.groups = [rows.group(y).collapsed(layout.n_levels) for y in range(K)]
        self.layout, self.engine = layout, engine
        self.n_refused = 0
        self._scores: dict[Model, Score | None] = {}

    def score(self, model: Model) -> Score | None:
        """Return the score of a model; None if the engine refuses its tables as too large."""
        if model not in self._scores:
            try:
                self._scores[model] = self._fit(model)
            except OptionError as error:
                if error.argument not in ("method", "missing", "structural_zeros"):
                    raise
                self._scores[model] = None
                self.n_refused += 1
        return self._scores[model]

    def _fit(self, model: Model) -> Score:
        layout = Layout(self.layout.n_levels, sorted(model), self.layout.support)
        total, n_parameters = 0.0, 0
        for y, rows in enumerate(self.groups):
            if not rows.n:  # as in fits of one fold: the parameters of a group without rows are zero
                n_parameters += layout.size
                continue
            self.engine.layout(rows, layout)
            value, rank = self.engine.maximum_likelihood(rows, layout.of_group(y))
            total += value
            n_parameters += rank
        return Score(total, n_parameters)


def droppable(model: Model, lower: Model) -> list[Term]:
    """Return the terms of a model that are in no larger term of it, nor in the model `lower`."""
    inner = {part for term in model for part in _parts(term)}
    return sorted(model - inner - lower, key=_order)


def addable(model: Model, upper: Model) -> list[Term]:
    """Return the terms of the model `upper` that a model lacks, and of which it has all parts of one predictor less."""
    return sorted((term for term in upper - model if model.issuperset(_parts(term))), key=_order)


def _parts(term: Term) -> list[Term]:
    """Return the terms of one predictor less that a term holds."""
    return list(combinations(term, len(term) - 1)) if len(term) > 2 else []


def _order(term: Term) -> tuple[int, Term]:
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
    """Take the step that lowers ``-2 log-likelihood + k parameters`` the most, until none does.

    Steps that change no number of parameters are left out, as in R's ``stepAIC``.

    Parameters
    ----------
    scorer : StepScorer
    start, lower, upper : frozenset of terms
        The first model; terms that are not dropped; terms that may be added.
    directions : sequence of "-" and "+"
        Whether terms are dropped, added, or both.
    k : float
        Penalty of a parameter.
    progress : callable
        ``progress(share, note)`` is called for each candidate.

    Returns
    -------
    list of Visit
        At least one, the first model.
    """
    score = scorer.score(start)
    assert score is not None  # noqa: S101  # the first model was fitted before
    model, step = start, None
    path: list[Visit] = []
    while True:
        candidates: list[Candidate] = []
        changes = [("-", term) for term in droppable(model, lower)] if "-" in directions else []
        changes += [("+", term) for term in addable(model, upper)] if "+" in directions else []
        for sign, term in changes:
            candidate = scorer.score(model ^ {term})
            progress(1.0, f"step {len(path) + 1}, {score.criterion(k):.6g}")
            if candidate is not None and candidate.n_parameters != score.n_parameters:
                candidates.append(Candidate(sign, term, candidate))
        path.append(Visit(model, score, step, candidates))
        step = min(candidates, key=lambda one: one.score.criterion(k), default=None)
        if step is None or step.score.criterion(k) >= score.criterion(k) - LEAST_GAIN:
            return path
        model, score = model ^ {step.term}, step.score
