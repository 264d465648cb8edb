"""One warning for all fits of groups and predictors that did not converge.

An `EngineFit` lists its problems as `notes`, and in `unbounded` parameters that grow without end:
tuples of a predictor and a level code, then a predictor and a level code for each further predictor
of a coupling. `remedy` is the text of the option that makes these finite.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bbl.design.labels import Labels
from bbl.engines import EngineFit
from bbl.engines.engine_fit import Note
from bbl.errors import ConvergenceWarning

__all__ = ["Problem", "group_text", "list_problems", "warn_problems"]

SHOWN = 5  # problems of a kind that a warning lists


def group_text(labels: Labels, g: int) -> str:
    """Return the name of fit number `g`: that of a group, or of the pooled fit, which comes after
    the groups.
    """
    return f"group {labels.groups[g]!r}" if g < len(labels.groups) else "the pooled fit"


class Problem(NamedTuple):
    """A fit that did not converge.

    Attributes
    ----------
    group, predictor, level : str
        Where, in words; empty for a problem of all predictors, or of all levels.
    what : str
        The kind of problem and its remedy.
    detail : str
        Figures of this problem.
    """

    group: str
    predictor: str
    level: str
    what: str
    detail: str

    @property
    def where(self) -> str:
        """Group, predictor and level, without those that are empty."""
        return ", ".join(name for name in (self.group, self.predictor, self.level) if name)


def list_problems(fits: Sequence[EngineFit], labels: Labels) -> list[Problem]:
    """Return the notes and the unbounded parameters of fits as problems with names."""
    problems = []
    for g, fit in enumerate(fits):
        for note in fit.notes:
            # -1: no single predictor, or level; text and detail are `Problem.what` and
            # `Problem.detail` Note(*note): a plain tuple without the detail, "" by default, serves
            # too
            predictor, level_code, text, detail = Note(*note)
            level_text = (
                f"level {labels.levels[predictor][level_code]!r}" if level_code >= 0 else ""
            )
            predictor_text = f"predictor {labels.names[predictor]!r}" if predictor >= 0 else ""
            problems.append(
                Problem(group_text(labels, g), predictor_text, level_text, text, detail)
            )
        for predictor, level_code, *partners in fit.unbounded:
            level_text = f"level {labels.levels[predictor][level_code]!r}"
            if partners:
                partner_levels = [
                    f"level {labels.levels[partner][partner_code]!r} of {labels.names[partner]!r}"
                    for partner, partner_code in zip(partners[::2], partners[1::2], strict=True)
                ]
                level_text += f" with {' and '.join(partner_levels)}"
            text = (
                f"no finite optimum without a penalty; give {fit.remedy} or leave one of the "
                "predictors out"
            )
            problems.append(
                Problem(
                    group_text(labels, g),
                    f"predictor {labels.names[predictor]!r}",
                    "",
                    text,
                    level_text,
                )
            )
    return problems


def warn_problems(problems: Sequence[Problem], stacklevel: int = 3) -> None:
    """Give one ConvergenceWarning with a line for each kind of problem: how many there are, and the
    first few.
    """
    kinds: dict[tuple[bool, str], list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        kinds.setdefault((bool(problem.level), problem.what), []).append(problem)
    if kinds:
        lines = [
            _kind_text(text, is_of_level, same_kind)
            for (is_of_level, text), same_kind in kinds.items()
        ]
        warnings.warn(ConvergenceWarning("In " + "\n  in ".join(lines)), stacklevel=stacklevel)


def _kind_text(what: str, is_of_level: bool, same_kind: list[Problem]) -> str:
    """Return a line about the problems `same_kind`, which have the same text `what`.

    Of more than `SHOWN` problems, those of as many groups as possible are listed. `is_of_level`
    says whether the problems are of single levels.
    """
    if len(same_kind) == 1:
        (problem,) = same_kind
        place = ", ".join(name for name in (problem.group, problem.predictor) if name)
        level = problem.level + " " if is_of_level else ""
        detail = f" ({problem.detail})" if problem.detail else ""
        return f"{place}: {level}{what}{detail}"
    n_in_group: Counter[str] = Counter()
    # of each problem among those of its group: the first ones of all groups are listed first
    rank_in_group = []
    for problem in same_kind:
        rank_in_group.append(n_in_group[problem.group])
        n_in_group[problem.group] += 1
    listed = [same_kind[k] for k in np.argsort(rank_in_group, kind="stable")[:SHOWN]]
    places = "; ".join(
        f"{problem.where}{f' ({problem.detail})' if problem.detail else ''}" for problem in listed
    )
    remainder = f"; and {len(same_kind) - SHOWN} more" if len(same_kind) > SHOWN else ""
    return (
        f"{len(same_kind)} places: {'a level ' if is_of_level else ''}{what}: {places}{remainder}"
    )
