"""Learners by name: from rows and options to structures; add a learner here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bbl.networks.averaged import super_parents
from bbl.networks.chowliu import chow_liu, ordered_kdb
from bbl.networks.dag import Dag, naive
from bbl.networks.moves import MOVES
from bbl.networks.search import climb
from bbl.rows.folds import stratified_folds
from bbl.rows.sample import Sample
from bbl.rows.stored import Rows

__all__ = ["COUNTED", "LEARNERS", "Learnt", "learn"]

SEARCH = {"k": 10, "epsilon": 0.01, "smooth": 0.0}

# options of each learner, with their defaults
LEARNERS: dict[str, dict[str, Any]] = {
    "nb": {},
    "tan_cl": {"score": "loglik", "root": None},
    "tan_hc": SEARCH,
    "tan_hcsp": SEARCH,
    "fssj": SEARCH,
    "bsej": SEARCH,
    "kdb": {**SEARCH, "kdbk": 2, "search": "accuracy"},
    "aode": {},
}

# those that counts are enough for; kdb too, by information
COUNTED = ("nb", "tan_cl", "aode")


@dataclass(frozen=True)
class Learnt:
    """What a learner found.

    Attributes
    ----------
    dags : tuple of Dag
        One, but for learners of averages.
    score_log : tuple of float
        Score of every structure that a search went through.
    """

    dags: tuple[Dag, ...]
    score_log: tuple[float, ...] = ()


def learn(
    learner: str,
    sample: Rows,
    n_levels: np.ndarray,
    K: int,
    options: Mapping[str, Any],
    rng: np.random.Generator,
    held: np.ndarray | None = None,
    progress: Callable | None = None,
) -> Learnt:
    """Learn a structure.

    Parameters
    ----------
    learner : str
        A name in `LEARNERS`.
    sample : Sample
    n_levels : ndarray, shape (m,)
        Declared levels.
    K : int
        Classes.
    options : mapping
        All options of the learner; a root is a position.
    rng : numpy.random.Generator
        For folds and ties.
    held : ndarray, shape (k, n), optional
        Folds of a search, as weights; drawn by default.
    progress : callable, optional
        Called for each structure that a search scores.

    Returns
    -------
    Learnt
    """
    if learner == "nb":
        return Learnt((naive(range(len(n_levels))),))
    if learner == "aode":
        return Learnt(super_parents(len(n_levels)))
    if learner == "tan_cl":
        return Learnt((chow_liu(sample, n_levels, K, options["score"], options["root"]),))
    if options.get("search") == "information":
        return Learnt((ordered_kdb(sample, n_levels, K, options["kdbk"]),))
    assert learner in MOVES  # noqa: S101  # the names were checked
    rows = cast(Sample, sample)  # no others come this far: `COUNTED`
    if held is None:
        held = stratified_folds(rows, options["k"], rng).held
    settings = {name: options[name] for name in ("epsilon", "smooth", "kdbk") if name in options}
    dag, log = climb(learner, rows, n_levels, K, held, rng=rng, progress=progress, **settings)
    return Learnt((dag,), tuple(log))
