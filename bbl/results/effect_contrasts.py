"""Contrasts of effects: scenarios that set predictors to levels, and contrasts of the average
probabilities in these scenarios. Predictors and levels are numbered by their positions in `Labels`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from bbl.checks import any_real, choice, near_match
from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, OptionError
from bbl.report.text import DIGITS, label_text

__all__ = [
    "CONTRASTS",
    "TRANSFORMS",
    "Contrasts",
    "Quantity",
    "Scenario",
    "Shift",
    "Transform",
    "contrast_values",
    "find_level_codes",
    "find_predictors",
    "level_pairs",
    "make_comparison_contrasts",
    "make_prediction_contrasts",
    "make_slope_contrasts",
]


CONTRASTS = ("reference", "pairwise", "sequential")


class Transform(NamedTuple):
    """A way of comparing averages.

    Attributes
    ----------
    text : str
        Name of the comparison, as a format string for the names of the high and the low level.
    null : float
        Value of the comparison if the averages are equal.
    """

    text: str
    null: float


TRANSFORMS = {
    "difference": Transform("{} - {}", 0.0),
    "ratio": Transform("{} / {}", 1.0),
    "lift": Transform("({0} - {1}) / {1}", 0.0),
    "lnoddsratio": Transform("ln(odds({}) / odds({}))", 0.0),
}


def level_pairs(contrast: str, n_levels: int) -> list[tuple[int, int]]:
    """Return the pairs (high, low) of levels that a contrast compares.

    Examples
    --------
    >>> level_pairs("reference", 3), level_pairs("sequential", 3), level_pairs("pairwise", 3)
    ([(1, 0), (2, 0)], [(1, 0), (2, 1)], [(1, 0), (2, 0), (2, 1)])
    """
    if contrast == "reference":
        return [(a, 0) for a in range(1, n_levels)]
    if contrast == "sequential":
        return [(a, a - 1) for a in range(1, n_levels)]
    return [(high, low) for low, high in itertools.combinations(range(n_levels), 2)]


def contrast_values(
    transform: str, averages: np.ndarray, signs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return contrasts of averages, and their derivatives with respect to the averages.

    Parameters
    ----------
    transform : {"difference", "ratio", "lift", "lnoddsratio"}
        "difference": the sum of signed averages. "ratio": the exponential of the sum of their
        signed logarithms. "lift": this ratio minus 1. "lnoddsratio": the sum of their signed
        log odds.
    averages : ndarray, shape (s, ...)
    signs : ndarray, shape (s,)
        1 or -1.

    Returns
    -------
    values : ndarray, shape (...)
    derivatives : ndarray, shape (s, ...)

    Examples
    --------
    >>> contrast_values("ratio", np.array([0.5, 0.25]), np.array([1.0, -1.0]))
    (np.float64(2.0), array([ 4., -8.]))
    """
    signs = signs.reshape(-1, *(1,) * (averages.ndim - 1))
    if transform == "difference":
        return (signs * averages).sum(axis=0), np.broadcast_to(signs, averages.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if transform in ("ratio", "lift"):
            value = np.exp((signs * np.log(averages)).sum(axis=0))
            return value - (transform == "lift"), signs * value / averages
        value = (signs * (np.log(averages) - np.log1p(-averages))).sum(axis=0)
        return value, signs / (averages * (1.0 - averages))


MAX_QUANTITIES = 100_000  # largest number of quantities in a call


class Shift(NamedTuple):
    """An increase of a numeric predictor by the same amount in every row."""

    amount: float


# pairs of a predictor and the level code, code of a number or `Shift` that it gets; () leaves the
# rows as they are
Scenario = tuple[tuple[int, "int | float | Shift"], ...]


class Quantity(NamedTuple):
    """A contrast of scenarios.

    Attributes
    ----------
    predictors : tuple of int
        The predictors that are set to levels.
    term, contrast : object
        Entries of the columns ``term`` and ``contrast`` of the table of effects.
    scenarios : list of int
        Positions in `Contrasts.scenarios` of the contrasted scenarios.
    signs : ndarray, shape (len(scenarios),)
        1 or -1 for each of these scenarios; divided by twice the step for slopes.
    levels : tuple of (int, int)
        Every (predictor, level) that some scenario sets; numeric predictors are not included.
    """

    predictors: tuple[int, ...]
    term: Hashable
    contrast: object
    scenarios: list[int]
    signs: np.ndarray
    levels: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Contrasts:
    """Scenarios, and the quantities that compare them.

    Attributes
    ----------
    scenarios : list of Scenario
        Distinct scenarios.
    quantities : list of Quantity
    transform : str
        Scale of the contrasts: ``"difference"``, ``"ratio"``, ``"lift"`` or ``"lnoddsratio"``.
    is_comparison : bool
        Whether quantities compare scenarios. Otherwise, each is the average in one scenario, with
        sign 1, and `transform` is ``"difference"``.
    """

    scenarios: list[Scenario]
    quantities: list[Quantity]
    transform: str
    is_comparison: bool


def find_predictors(labels: Labels, names: object, argument: str) -> list[int]:
    """Return the positions in ``labels.names`` of predictors, given a name or a sequence of names.

    `argument` is the name of the argument with these names, for error messages.
    """
    predictors = list(labels.names)
    is_name = isinstance(names, str) or not isinstance(names, Iterable)
    # a tuple may be a name; lists and arrays are not hashable and always are sequences of names
    is_name = is_name or (isinstance(names, Hashable) and names in predictors)
    chosen_names = [names] if is_name else list(cast(Iterable, names))
    for name in chosen_names:
        # `near_match` returns "; did you mean ...?", or "" if no name is close
        if name not in predictors:
            raise OptionError(
                f"{name!r} is not a predictor.",
                argument=argument,
                hint=(
                    f"{near_match(name, predictors)}Choose from the predictors {_join(predictors)}."
                ),
            )
    positions = [predictors.index(name) for name in chosen_names]
    if len(set(positions)) < len(positions):
        raise OptionError(
            f"{argument} contains a duplicate predictor: {chosen_names!r}.", argument=argument
        )
    if not positions:
        raise OptionError(
            f"{argument} is empty.", argument=argument, hint="Name at least one predictor."
        )
    return positions


def _join(names: Sequence) -> str:
    """Return the first 10 names as text, followed by the number of names if there are more."""
    return ", ".join(map(repr, names[:10])) + (
        f", ... {len(names)} in all" if len(names) > 10 else ""
    )


def find_level_codes(
    labels: Labels, predictor: int, levels: object, argument: str
) -> list[int] | list[float]:
    """Return the codes of one or several `levels` of the predictor at a position.

    The levels of a numeric predictor are values, and their codes are differences from its center.
    `argument` is the name of the argument with the levels, for error messages.
    """
    level_list = (
        list(levels)
        if isinstance(levels, Iterable) and not isinstance(levels, str | bytes)
        else [levels]
    )
    if not level_list:
        raise OptionError(
            f"{argument} lists no levels of {labels.names[predictor]!r}.",
            argument=argument,
            hint="List at least one level, or leave the predictor out.",
        )
    if predictor in labels.measured:
        center = labels.center(predictor)
        return [any_real(argument, value) - center for value in level_list]
    return [_find_level_code(labels, predictor, level, argument) for level in level_list]


def _find_level_code(labels: Labels, predictor: int, level: object, argument: str) -> int:
    """Return the code of a level.

    `level` is matched by value and type, then as a number, and then as printed text. Raises an
    OptionError if no level matches.

    `predictor` is a position, and `argument` is the name of the argument that contains `level`.
    """
    levels = list(labels.levels[predictor])
    for code, candidate in enumerate(levels):
        if candidate is level or (type(candidate) is type(level) and candidate == level):
            return code
    # numbers of different types: 1, 1.0 and numpy's 1 are the same level; True is different
    for code, candidate in enumerate(levels):
        if (
            not isinstance(level, str | bool)
            and not isinstance(candidate, str | bool)
            and candidate == level
        ):
            return code
    texts = [label_text(candidate) for candidate in levels]  # intervals and numbers as printed
    if isinstance(level, str) and texts.count(level) == 1:
        return texts.index(level)
    raise OptionError(
        f"{level!r} is not a level of {labels.names[predictor]!r}.",
        argument=argument,
        hint=f"{near_match(level, levels)}Choose from the levels {_join(levels)}.",
    )


def make_prediction_contrasts(labels: Labels, variables: object) -> Contrasts:
    """Return one quantity for each combination of levels of `variables`.

    If `variables` is None, the only quantity is the average over the unchanged rows.

    `variables` are names of predictors, or a mapping of names to levels.
    """
    if variables is None:
        # one scenario that changes nothing, and its average
        return Contrasts(
            [()],
            [Quantity((), term="", contrast="", scenarios=[0], signs=np.ones(1), levels=())],
            "difference",
            is_comparison=False,
        )
    predictors = find_predictors(labels, variables, "variables")
    # codes to which each predictor is set
    code_lists: list[list] = [list(range(len(labels.levels[i]))) for i in predictors]
    if isinstance(variables, Mapping):
        code_lists = [
            find_level_codes(labels, i, variables[labels.names[i]], "variables") for i in predictors
        ]
    elif numbers := [labels.names[i] for i in predictors if i in labels.measured]:
        raise OptionError(
            f"variables lists no values for the numeric predictor {numbers[0]!r}.",
            argument="variables",
            hint=f"Pass values, for example variables={{{numbers[0]!r}: [...]}}, or compare "
            f"values with avg_comparisons({numbers[0]!r}).",
        )
    _check_n_quantities(math.prod(len(code_list) for code_list in code_lists))
    scenarios: list[Scenario] = [
        tuple(zip(predictors, codes, strict=True)) for codes in itertools.product(*code_lists)
    ]
    quantities = [
        Quantity(
            tuple(predictors),
            _term_entry(labels, predictors),
            _scenario_text(labels, scenario),
            scenarios=[position],
            signs=np.ones(1),
            levels=_levels_in(labels, scenario),
        )
        for position, scenario in enumerate(scenarios)
    ]
    return Contrasts(scenarios, quantities, "difference", is_comparison=False)


def make_comparison_contrasts(
    labels: Labels,
    variables: object,
    contrast: object,
    transform: str,
    is_crossed: bool,
    steps: Mapping[int, float] | None = None,
) -> Contrasts:
    """Return the quantities that compare levels of predictors, or increases of numeric predictors.

    Parameters
    ----------
    labels : Labels
    variables : None, name, sequence of names, or mapping of names to (high, low) or contrasts
    contrast : {"reference", "pairwise", "sequential"} or (high, low)
    transform : {"difference", "ratio", "lift", "lnoddsratio"}
    is_crossed : bool
        Whether to compute cross-contrasts of several predictors.
    steps : mapping of int to float, optional
        Increase of the numeric predictor at each position.
    """
    choice("transform", transform, tuple(TRANSFORMS))
    predictors = (
        list(range(len(labels.names)))
        if variables is None
        else find_predictors(labels, variables, "variables")
    )
    contrast_by_name: Mapping[Any, Any] = variables if isinstance(variables, Mapping) else {}
    # pairs (high, low) of level codes for each predictor
    pair_lists: list[list] = [
        _number_pairs(labels, i, contrast_by_name.get(labels.names[i]), (steps or {}).get(i, 1.0))
        if i in labels.measured
        else _parse_pairs(
            labels, i, contrast_by_name.get(labels.names[i], contrast), bool(contrast_by_name)
        )
        for i in predictors
    ]
    if is_crossed and len(predictors) < 2:
        raise OptionError(
            "cross=True requires at least two predictors.",
            argument="cross",
            hint="Name them in variables.",
        )
    # each element gives one quantity: pairs (predictor, (high, low)), several if they are crossed
    if is_crossed:
        _check_n_quantities(math.prod(len(pair_list) for pair_list in pair_lists))
        pair_sets = [
            tuple(zip(predictors, crossed, strict=True))
            for crossed in itertools.product(*pair_lists)
        ]
    else:
        _check_n_quantities(sum(len(pair_list) for pair_list in pair_lists))
        pair_sets = [
            ((i, pair),)
            for i, pair_list in zip(predictors, pair_lists, strict=True)
            for pair in pair_list
        ]
    scenario_positions: dict[Scenario, int] = {}  # position of each scenario, in order of first use
    quantities = []
    for pair_set in pair_sets:
        pair_predictors = tuple(i for i, _ in pair_set)
        scenarios = []
        signs = []
        # one predictor: high - low; two: (high, high) - (high, low) - (low, high) + (low, low);
        # and so on. 0 is high; 1 is low and changes the sign
        for sides in itertools.product((0, 1), repeat=len(pair_set)):
            scenario = tuple(
                (i, pair[side]) for (i, pair), side in zip(pair_set, sides, strict=True)
            )
            scenarios.append(scenario_positions.setdefault(scenario, len(scenario_positions)))
            signs.append((-1.0) ** sum(sides))
        pair_texts = [  # `text` is a pattern such as "{} - {}"
            f"{pair[0].amount:+.{DIGITS}g}"
            if isinstance(pair[0], Shift)
            else TRANSFORMS[transform].text.format(*(_code_text(labels, i, code) for code in pair))
            for i, pair in pair_set
        ]
        contrast_text = ", ".join(pair_texts)
        levels = _levels_in(labels, ((i, code) for i, pair in pair_set for code in pair))
        quantities.append(
            Quantity(
                pair_predictors,
                _term_entry(labels, pair_predictors),
                contrast_text,
                scenarios,
                np.array(signs),
                levels,
            )
        )
    return Contrasts(list(scenario_positions), quantities, transform, is_comparison=True)


def make_slope_contrasts(labels: Labels, steps: Mapping[int, float]) -> Contrasts:
    """Return the slopes with respect to numeric predictors.

    Slopes are symmetric difference quotients; `steps` contains the step of each predictor by
    position.
    """
    scenarios: list[Scenario] = []
    quantities = []
    for i, step in steps.items():
        quantities.append(
            Quantity(
                (i,),
                labels.names[i],
                "per unit",
                scenarios=[len(scenarios), len(scenarios) + 1],
                signs=np.array([0.5, -0.5]) / step,
                levels=(),
            )
        )
        scenarios += [((i, Shift(step)),), ((i, Shift(-step)),)]
    return Contrasts(scenarios, quantities, "difference", is_comparison=True)


def _number_pairs(
    labels: Labels, predictor: int, contrast: object, step: float
) -> list[tuple[Shift, Shift]] | list[tuple[float, float]]:
    """Return the pairs (high, low) of values of a numeric predictor that are compared.

    `contrast` is a pair of values or a list of pairs; otherwise, the value increases by `step`.
    """
    if contrast is None:
        return [(Shift(step), Shift(0.0))]
    pairs = contrast if isinstance(contrast, list) and contrast else [contrast]
    center = labels.center(predictor)
    out = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BBLTypeError(
                f"variables must contain a pair (high, low) of values of "
                f"{labels.names[predictor]!r}, or a list of pairs; got {contrast!r}.",
                argument="variables",
                value=contrast,
            )
        out.append(
            (any_real("variables", pair[0]) - center, any_real("variables", pair[1]) - center)
        )
    return out


def _parse_pairs(
    labels: Labels, predictor: int, contrast: object, is_named: bool
) -> list[tuple[int, int]]:
    """Return the pairs (high, low) of level codes that a contrast compares.

    `contrast` is a name, a pair of levels or a list of pairs. `is_named` indicates whether it comes
    from the argument `variables`, for error messages.
    """
    argument = "variables" if is_named else "contrast"
    if isinstance(contrast, str):
        # (high, low) codes
        return level_pairs(choice(argument, contrast, CONTRASTS), len(labels.levels[predictor]))
    # an empty list is rejected below
    pairs = contrast if isinstance(contrast, list) and contrast else [contrast]
    code_pairs = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BBLTypeError(
                f"{argument} must be a pair (high, low) of levels, a list of pairs, or one of "
                f"{', '.join(map(repr, CONTRASTS))}; got {contrast!r}.",
                argument=argument,
                value=contrast,
            )
        high, low = (_find_level_code(labels, predictor, level, argument) for level in pair)
        if high == low:
            raise OptionError(
                f"{argument} compares level {pair[0]!r} with itself.", argument=argument
            )
        code_pairs.append((high, low))
    return code_pairs


def _check_n_quantities(n: int) -> None:
    """Raise an OptionError if the number of quantities `n` exceeds `MAX_QUANTITIES`."""
    if n > MAX_QUANTITIES:
        raise OptionError(
            f"{n:,} combinations of levels are too many to compare (at most {MAX_QUANTITIES:,}).",
            argument="variables",
            hint="Choose fewer predictors, or pairs of levels.",
        )


def _term_entry(labels: Labels, predictors: Sequence[int]) -> Hashable:
    """Return the entry of the column ``term``: the name of a predictor, or several names as
    text.
    """
    if len(predictors) == 1:
        return labels.names[predictors[0]]
    return ", ".join(label_text(labels.names[i]) for i in predictors)


def _scenario_text(labels: Labels, scenario: Scenario) -> str:
    """Return the levels set by a scenario as text, for the column ``contrast``."""
    return ", ".join(_code_text(labels, i, code) for i, code in scenario)


def _code_text(labels: Labels, predictor: int, code: Any) -> str:
    """Return a level, or the value of a numeric predictor, as text."""
    if predictor in labels.measured:
        return f"{code + labels.center(predictor):.{DIGITS}g}"
    return label_text(labels.levels[predictor][int(code)])


def _levels_in(labels: Labels, scenario: Iterable) -> tuple[tuple[int, int], ...]:
    """Return the pairs (predictor, level code) of a scenario, without numeric predictors."""
    return tuple((i, code) for i, code in scenario if i not in labels.measured)
