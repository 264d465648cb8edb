"""What effects compare: scenarios, in which predictors are set to levels, and signed contrasts of them.

A *scenario* sets some predictors of every row to a level each; its codes are (predictor, level) pairs. A *quantity* is
a contrast of the average probabilities of some scenarios.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from bbl.checks import choice, near_match
from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, OptionError
from bbl.report.format import label_text
from bbl.stats.contrasts import CONTRASTS, TRANSFORMS, level_pairs

__all__ = [
    "Quantity", "Questions", "Scenario", "comparison_questions", "level_codes", "prediction_questions",
    "predictor_numbers",
]  # fmt: skip

MAX_QUANTITIES = 100_000
Scenario = tuple[tuple[int, int], ...]


class Quantity(NamedTuple):
    """A contrast of scenarios.

    Attributes
    ----------
    predictors : tuple of int
        The predictors that are set.
    term, contrast : object
        Entries of these columns.
    scenarios : list of int
        Positions of the scenarios.
    signs : ndarray
        1 or -1 for each of them.
    levels : tuple of (int, int)
        Every (predictor, level) that is set in some scenario.
    """

    predictors: tuple[int, ...]
    term: Hashable
    contrast: object
    scenarios: list[int]
    signs: np.ndarray
    levels: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Questions:
    """Scenarios and the quantities that compare them.

    Attributes
    ----------
    scenarios : list of Scenario
    quantities : list of Quantity
    transform : str
        One of `TRANSFORMS`.
    is_comparison : bool
        Whether quantities compare scenarios, rather than being averages of one.
    """

    scenarios: list[Scenario]
    quantities: list[Quantity]
    transform: str
    is_comparison: bool


def predictor_numbers(labels: Labels, names: object, argument: str) -> list[int]:
    """Return the positions of predictors that are given as a name, or as a sequence of names."""
    predictors = list(labels.names)
    is_name = isinstance(names, str) or not isinstance(names, Iterable)
    is_name = is_name or (isinstance(names, Hashable) and names in predictors)  # a tuple may be a name
    several = [names] if is_name else list(cast(Iterable, names))
    for name in several:
        if name not in predictors:
            raise OptionError(
                f"{name!r} is no predictor{near_match(name, predictors) or '.'} Predictors are {_listed(predictors)}.",
                argument=argument,
            )
    numbers = [predictors.index(name) for name in several]
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"{argument} names a predictor twice: {several!r}.", argument=argument)
    if not numbers:
        raise OptionError(f"{argument} is empty; name at least one predictor.", argument=argument)
    return numbers


def _listed(names: Sequence) -> str:
    """Return the first names as text."""
    return ", ".join(map(repr, names[:10])) + (f", ... {len(names)} in all" if len(names) > 10 else "")


def level_codes(labels: Labels, predictor: int, levels: object, argument: str) -> list[int]:
    """Return the codes of levels of a predictor; one level may be given by itself."""
    several = list(levels) if isinstance(levels, Iterable) and not isinstance(levels, str | bytes) else [levels]
    if not several:
        raise OptionError(
            f"{argument} has no level of {labels.names[predictor]!r}; name at least one, or leave the predictor out.",
            argument=argument,
        )
    return [_level_code(labels, predictor, level, argument) for level in several]


def _level_code(labels: Labels, predictor: int, level: object, argument: str) -> int:
    """Return the code of a level of a predictor."""
    levels = list(labels.levels[predictor])
    for code, candidate in enumerate(levels):
        if candidate is level or (type(candidate) is type(level) and candidate == level):
            return code
    for code, candidate in enumerate(levels):  # 1 and numpy's 1 are one level
        if not isinstance(level, str | bool) and not isinstance(candidate, str | bool) and candidate == level:
            return code
    texts = [label_text(candidate) for candidate in levels]  # intervals and numbers by what is printed
    if isinstance(level, str) and texts.count(level) == 1:
        return texts.index(level)
    raise OptionError(
        f"{level!r} is no level of {labels.names[predictor]!r}{near_match(level, levels) or '.'} Its levels are "
        f"{_listed(levels)}.",
        argument=argument,
    )


def prediction_questions(labels: Labels, variables: object) -> Questions:
    """Return one quantity for each combination of levels of `variables`; the rows as they are if it is None.

    `variables` are names of predictors, or a mapping of names to levels.
    """
    if variables is None:
        return Questions([()], [Quantity((), "", "", [0], np.ones(1), ())], "difference", False)
    numbers = predictor_numbers(labels, variables, "variables")
    codes = [list(range(len(labels.levels[i]))) for i in numbers]
    if isinstance(variables, Mapping):
        codes = [level_codes(labels, i, variables[labels.names[i]], "variables") for i in numbers]
    _check_number(math.prod(len(c) for c in codes))
    scenarios: list[Scenario] = [tuple(zip(numbers, row, strict=True)) for row in itertools.product(*codes)]
    quantities = [
        Quantity(tuple(numbers), _term(labels, numbers), _level_texts(labels, scenario), [k], np.ones(1), scenario)
        for k, scenario in enumerate(scenarios)
    ]
    return Questions(scenarios, quantities, "difference", False)


def comparison_questions(
    labels: Labels, variables: object, contrast: object, transform: str, is_crossed: bool
) -> Questions:
    """Return the quantities that compare levels of predictors.

    Parameters
    ----------
    labels : Labels
    variables : None, name, sequence of names, or mapping of names to (high, low) pairs of levels or contrasts
    contrast : {"reference", "pairwise", "sequential"} or (high, low)
    transform : str
        One of `TRANSFORMS`.
    is_crossed : bool
        Whether contrasts of several predictors are contrasted with each other.
    """
    choice("transform", transform, tuple(TRANSFORMS))
    numbers = list(range(len(labels.names))) if variables is None else predictor_numbers(labels, variables, "variables")
    contrast_of: Mapping[Any, Any] = variables if isinstance(variables, Mapping) else {}
    pairs = [_pairs(labels, i, contrast_of.get(labels.names[i], contrast), bool(contrast_of)) for i in numbers]
    if is_crossed and len(numbers) < 2:
        raise OptionError("cross=True takes two predictors or more; name them in variables.", argument="cross")
    if is_crossed:
        _check_number(math.prod(len(p) for p in pairs))
        sets = [tuple(zip(numbers, row, strict=True)) for row in itertools.product(*pairs)]
    else:
        _check_number(sum(len(p) for p in pairs))
        sets = [((i, pair),) for i, level_pairs in zip(numbers, pairs, strict=True) for pair in level_pairs]
    position: dict[Scenario, int] = {}
    quantities = []
    for compared in sets:
        predictors = tuple(i for i, _ in compared)
        scenarios, signs = [], []
        for sides in itertools.product((0, 1), repeat=len(compared)):
            scenario = tuple((i, pair[side]) for (i, pair), side in zip(compared, sides, strict=True))
            scenarios.append(position.setdefault(scenario, len(position)))
            signs.append((-1.0) ** sum(sides))
        texts = [
            TRANSFORMS[transform].text.format(*(label_text(labels.levels[i][code]) for code in pair))
            for i, pair in compared
        ]
        text = texts[0] if len(texts) == 1 else ", ".join(texts)
        levels = tuple((i, code) for i, pair in compared for code in pair)
        quantities.append(Quantity(predictors, _term(labels, predictors), text, scenarios, np.array(signs), levels))
    return Questions(list(position), quantities, transform, True)


def _pairs(labels: Labels, predictor: int, contrast: object, is_named: bool) -> list[tuple[int, int]]:
    """Return the pairs (high, low) of codes that a contrast compares; `is_named` says whether `variables` gave it."""
    argument = "variables" if is_named else "contrast"
    if isinstance(contrast, str):
        return level_pairs(choice(argument, contrast, CONTRASTS), len(labels.levels[predictor]))
    pairs = contrast if isinstance(contrast, list) and contrast else [contrast]
    out = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BBLTypeError(
                f"{argument} takes a pair (high, low) of levels, a list of pairs, or one of "
                f"{', '.join(map(repr, CONTRASTS))}; got {contrast!r}.",
                argument=argument,
            )
        high, low = (_level_code(labels, predictor, level, argument) for level in pair)
        if high == low:
            raise OptionError(f"{argument} compares level {pair[0]!r} with itself.", argument=argument)
        out.append((high, low))
    return out


def _check_number(n: int) -> None:
    """Refuse more quantities than anybody reads."""
    if n > MAX_QUANTITIES:
        raise OptionError(
            f"{n:,} combinations of levels would be compared. Name fewer predictors, or pairs of levels.",
            argument="variables",
        )


def _term(labels: Labels, predictors: Sequence[int]) -> Hashable:
    """Return the entry of the column ``term``: the name of a predictor, or the names of several as a text."""
    if len(predictors) == 1:
        return labels.names[predictors[0]]
    return ", ".join(label_text(labels.names[i]) for i in predictors)


def _level_texts(labels: Labels, scenario: Scenario) -> str:
    """Return the levels of a scenario as text."""
    return ", ".join(label_text(labels.levels[i][code]) for i, code in scenario)
