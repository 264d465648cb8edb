"""Learners of network structures by name (`LEARNERS`), with their options."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from bbl.bayesnet.averaged import super_parents
from bbl.bayesnet.chowliu import SCORES, chow_liu, ordered_kdb
from bbl.bayesnet.dag import Dag, naive
from bbl.bayesnet.search import climb
from bbl.checks import choice, integer, near_match, real
from bbl.errors import OptionError
from bbl.rows.folds import stratified_folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["LEARNERS", "Learner", "Learnt", "Option", "Task"]


@dataclass(frozen=True)
class Task:
    """The training rows, the folds and the random generator that are used to learn a structure.

    Attributes
    ----------
    sample : Sample
        Training rows; in memory for learners that validate on folds, otherwise possibly in a file.
    n_levels : ndarray, shape (m,)
        Number of declared levels of each feature.
    K : int
        Number of classes.
    rng : numpy.random.Generator
        Generator for drawing folds and resolving ties.
    fold_weights : ndarray, shape (k, n), or None
        Row weights in the validation part of each of k folds; None if the learner draws the folds.
    progress : callable or None
        Function called for each structure scored in a search.
    """

    sample: Rows
    n_levels: np.ndarray
    K: int
    rng: np.random.Generator
    fold_weights: np.ndarray | None = None
    progress: Callable | None = None


@dataclass(frozen=True)
class Learnt:
    """Result of a learner.

    Attributes
    ----------
    dags : tuple of Dag
        A single structure, or the structures that are averaged.
    score_log : tuple of float
        Scores of the successive structures of a search; empty if there was no search.
    """

    dags: tuple[Dag, ...]
    score_log: tuple[float, ...] = ()


@dataclass(frozen=True)
class Option:
    """An option of a learner.

    Attributes
    ----------
    default
        Default value of the option.
    check : callable or None
        Function that returns the validated value or raises an error from `bbl.errors`. None for an
        option that is the name of a feature; the learner receives the feature's position, or None.
    """

    default: Any
    check: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Learner:
    """A structure learner with its options.

    Attributes
    ----------
    name : str
        Public name.
    learn : callable
        Function that takes a `Task` and the values of all options and returns a `Learnt`.
    options : mapping of name to Option
        Public options with their defaults.
    uses_folds : callable
        Function that takes the options and returns whether structures are validated on folds. If
        they are, all rows must be in memory, and the option ``k`` is the number of folds.
    averages : bool
        Whether the structures are averaged with equal weights.
    """

    name: str
    learn: Callable[[Task, Mapping[str, Any]], Learnt]
    options: Mapping[str, Option] = field(default_factory=dict)
    uses_folds: Callable[[Mapping[str, Any]], bool] = lambda options: False
    averages: bool = False

    def check_options(
        self, values: Mapping[str, Any], features: Sequence[Hashable]
    ) -> dict[str, Any]:
        """Return the validated values of all options, with feature names replaced by positions.

        Raises
        ------
        OptionError, BBLTypeError
            If an option is unknown or its value is invalid.
        """
        for name in values:  # unknown names can only come from `dag_args` of `bnc`
            choice("dag_args", name, tuple(self.options))
        checked = {}
        for name, option in self.options.items():
            value = values.get(name, option.default)
            checked[name] = (
                _position(name, value, features) if option.check is None else option.check(value)
            )
        return checked

    def rows_reason(self, values: Mapping[str, Any]) -> str:
        """Return a description of the setting that requires all rows in memory, or "" if counts are
        sufficient.
        """
        defaults = {name: option.default for name, option in self.options.items()}
        return f"learner={self.name!r}" if self.uses_folds({**defaults, **values}) else ""


def _position(option: str, feature: Hashable, features: Sequence[Hashable]) -> int | None:
    """Return the position in `features` of the feature named by an option, or None if the option is
    None.
    """
    if feature is None:
        return None
    if feature not in features:
        # suggest a similar name, if there is one
        near = near_match(feature, features)
        shown = ", ".join(map(str, features[:10]))
        raise OptionError(
            f"{option}={feature!r} is not a feature.",
            argument=option,
            hint=f"{near}Choose one of {shown}.",
        )
    return features.index(feature)


def _naive(task: Task, options: Mapping[str, Any]) -> Learnt:
    """Return naive Bayes."""
    return Learnt((naive(range(len(task.n_levels))),))


def _chow_liu(task: Task, options: Mapping[str, Any]) -> Learnt:
    """Return the tree-augmented naive Bayes with the largest `score`.

    `root` is a feature's position or None.
    """
    return Learnt(
        (chow_liu(task.sample, task.n_levels, task.K, options["score"], options["root"]),)
    )


def _super_parents(task: Task, options: Mapping[str, Any]) -> Learnt:
    """Return the structures of AODE."""
    return Learnt(super_parents(len(task.n_levels)))


def _climb(learner: str, task: Task, options: Mapping[str, Any]) -> Learnt:
    """Return the result of a greedy search by cross-validated accuracy, with the moves of a
    learner.
    """
    rows = cast(Sample, task.sample)  # the rows are in memory, because `uses_folds` is True
    fold_weights = task.fold_weights
    if fold_weights is None:
        fold_weights = stratified_folds(
            rows, options["k"], task.rng
        ).validation_weights  # (k, n), as in `Task`
    # options of `climb`; only "kdb" has the option `kdbk`
    settings = {name: options[name] for name in ("epsilon", "smooth", "kdbk") if name in options}
    dag, score_log = climb(
        learner,
        rows,
        task.n_levels,
        task.K,
        fold_weights,
        rng=task.rng,
        progress=task.progress,
        **settings,
    )
    return Learnt((dag,), tuple(score_log))


def _kdb(task: Task, options: Mapping[str, Any]) -> Learnt:
    """Return a k-dependence classifier, by mutual information or by search."""
    if options["search"] == "information":
        return Learnt((ordered_kdb(task.sample, task.n_levels, task.K, options["kdbk"]),))
    return _climb("kdb", task, options)


SEARCH_OPTIONS = {
    "k": Option(10, lambda value: integer("k", value, 2)),
    "epsilon": Option(0.01, lambda value: real("epsilon", value, 0.0)),
    "smooth": Option(0.0, lambda value: real("smooth", value, 0.0)),
}
KDB_OPTIONS = {
    "kdbk": Option(2, lambda value: integer("kdbk", value, 0)),
    "search": Option(
        "accuracy", lambda value: choice("search", value, ("accuracy", "information"))
    ),
}


def _make_search_learner(learner: str) -> Learner:
    """Return a learner that searches greedily with the `MOVES` of this name."""
    return Learner(
        learner, partial(_climb, learner), SEARCH_OPTIONS, uses_folds=lambda options: True
    )


LEARNERS: dict[str, Learner] = {
    learner.name: learner
    for learner in (
        Learner("nb", _naive),
        Learner(
            "tan_cl",
            _chow_liu,
            {
                "score": Option("loglik", lambda value: choice("score", value, SCORES)),
                "root": Option(None),
            },
        ),
        _make_search_learner("tan_hc"),
        _make_search_learner("tan_hcsp"),
        _make_search_learner("fssj"),
        _make_search_learner("bsej"),
        Learner(
            "kdb",
            _kdb,
            SEARCH_OPTIONS | KDB_OPTIONS,
            lambda options: options["search"] == "accuracy",
        ),
        Learner("aode", _super_parents, averages=True),
    )
}
