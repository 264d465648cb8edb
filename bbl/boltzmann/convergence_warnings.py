"""One warning for all fits of groups and predictors that did not converge."""

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

__all__ = ["Problem", "group_text", "problems", "warn_problems"]

SHOWN = 5  # problems of a kind that a warning lists


def group_text(labels: Labels, g: int) -> str:
    """Return the name of fit `g`: of a group, or of the pooled fit, which comes after those of the groups."""
    return f"group {labels.groups[g]!r}" if g < len(labels.groups) else "the pooled fit"


class Problem(NamedTuple):
    """A fit that did not converge: names of group, predictor and level, the kind of problem, and its figures."""

    group: str
    predictor: str
    level: str
    what: str
    detail: str

    @property
    def where(self) -> str:
        """Group, predictor and level, without those that are empty."""
        return ", ".join(name for name in (self.group, self.predictor, self.level) if name)


def problems(fits: Sequence[EngineFit], labels: Labels) -> list[Problem]:
    """Return the notes and the unbounded parameters of fits as problems with names."""
    problem_list = []
    for g, fit in enumerate(fits):
        for note in fit.notes:
            i, a, text, detail = Note(*note)
            level = f"level {labels.levels[i][a]!r}" if a >= 0 else ""
            predictor = f"predictor {labels.names[i]!r}" if i >= 0 else ""
            problem_list.append(Problem(group_text(labels, g), predictor, level, text, detail))
        for i, a, *partners in fit.unbounded:
            where = f"level {labels.levels[i][a]!r}"
            if partners:
                partner_levels = [
                    f"level {labels.levels[j][b]!r} of {labels.names[j]!r}"
                    for j, b in zip(partners[::2], partners[1::2], strict=True)
                ]
                where += f" with {' and '.join(partner_levels)}"
            text = f"no finite optimum without a penalty; give {fit.remedy} or leave one of the predictors out"
            problem_list.append(Problem(group_text(labels, g), f"predictor {labels.names[i]!r}", "", text, where))
    return problem_list


def warn_problems(found: Sequence[Problem], stacklevel: int = 3) -> None:
    """Give one ConvergenceWarning with a line for each kind of problem: how many there are, and the first few."""
    kinds: dict[tuple[bool, str], list[Problem]] = {}
    for problem in dict.fromkeys(found):
        kinds.setdefault((bool(problem.level), problem.what), []).append(problem)
    if kinds:
        lines = [_kind_text(text, of_level, alike) for (of_level, text), alike in kinds.items()]
        warnings.warn("In " + "\n  in ".join(lines), ConvergenceWarning, stacklevel=stacklevel)


def _kind_text(what: str, of_level: bool, alike: list[Problem]) -> str:
    """Return a line about problems of one kind (`what`); those listed are of as many groups as possible."""
    if len(alike) == 1:
        (p,) = alike
        where = ", ".join(name for name in (p.group, p.predictor) if name)
        return f"{where}: {p.level + ' ' if of_level else ''}{what}{f' ({p.detail})' if p.detail else ''}"
    n_in_group: Counter[str] = Counter()
    rank_in_group = []
    for problem in alike:
        rank_in_group.append(n_in_group[problem.group])
        n_in_group[problem.group] += 1
    listed = [alike[k] for k in np.argsort(rank_in_group, kind="stable")[:SHOWN]]
    places = "; ".join(f"{p.where}{f' ({p.detail})' if p.detail else ''}" for p in listed)
    remainder = f"; and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
    return f"{len(alike)} places: {'a level ' if of_level else ''}{what}: {places}{remainder}"
