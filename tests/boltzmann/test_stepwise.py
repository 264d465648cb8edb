"""Stepwise choice on arrays: which terms may go and come, and ends of paths."""

from itertools import combinations

import numpy as np
import pytest

from bbl.boltzmann.stepwise import Score, StepScorer, addable_terms, droppable_terms, stepwise
from bbl.engines import make_engine
from bbl.model.layout import Layout
from bbl.rows.sample import Sample


def terms(*text):
    """Return terms of numbered predictors: terms("01", "012")."""
    return frozenset(tuple(map(int, word)) for word in text)


def test_models_stay_hierarchical():
    model = terms("01", "02", "12", "012", "23")
    assert droppable_terms(model, frozenset()) == [(2, 3), (0, 1, 2)]
    assert droppable_terms(model, terms("23")) == [(0, 1, 2)]
    assert addable_terms(terms("01", "02"), terms("01", "02", "12", "012", "13")) == [
        (1, 2),
        (1, 3),
    ]
    assert addable_terms(terms("01", "02", "12"), terms("012")) == [(0, 1, 2)]


@pytest.mark.parametrize("directions", ["-", "+", "-+"])
def test_paths_end_at_a_model_that_no_step_betters(directions):
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 2, (300, 4)).astype(np.uint8)
    codes[:, 1] = np.where(rng.random(300) < 0.7, codes[:, 0], codes[:, 1])
    everything = frozenset(t for k in (2, 3) for t in combinations(range(4), k))
    scorer = StepScorer(
        Sample(codes, np.ones(300), np.zeros(300, dtype=np.intp)),
        1,
        Layout(np.full(4, 2)),
        make_engine("ml", {}, []),
    )
    start = everything if directions == "-" else frozenset()
    path = stepwise(scorer, start, frozenset(), everything, directions, 2.0, lambda *_: None)
    criteria = [visit.score.criterion(2.0) for visit in path]
    assert (np.diff(criteria) < 0).all()
    last = path[-1]
    assert all(one.score.criterion(2.0) > criteria[-1] for one in last.candidates)
    assert (0, 1) in last.model
    assert all(a.model ^ b.model == {b.step.term} for a, b in zip(path, path[1:], strict=False))


def test_criterion():
    assert Score(-10.0, 3).criterion(2.0) == 26.0
