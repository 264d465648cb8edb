"""Options `ordered` and `level_scores`, for couplings that are linear in level scores."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bbl.capabilities import WITH_ZEROS
from bbl.checks import choice, near_match, real
from bbl.errors import BBLTypeError, OptionError
from bbl.model.layout import Layout

if TYPE_CHECKING:
    from bbl.design.design import Design

__all__ = [
    "LINEAR",
    "NOMINAL",
    "LevelScores",
    "check_linear",
    "layout_scores",
    "linear_options",
    "score_ranges",
]

NOMINAL = "nominal"
LINEAR = "linear"
# scores of the levels of each named predictor, in the order of its levels
LevelScores = tuple[tuple[Hashable, tuple[float, ...]], ...]


def linear_options(ordered: str, level_scores: object) -> tuple[str, LevelScores | None]:
    """Validate and return the options `ordered` and `level_scores` of an engine.

    `level_scores` is a mapping from predictors to the scores of their levels, or the hashable pairs
    that this function returned earlier, which may have been read from a model file.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.
    """
    if ordered in ("cumulative", "cv"):
        raise OptionError(
            f"ordered={ordered!r} is only available with method='conditional'.",
            argument="ordered",
            hint="Use ordered='linear', or method='conditional'.",
            value=ordered,
        )
    choice("ordered", ordered, (NOMINAL, LINEAR))
    if level_scores is None:
        return ordered, None
    if ordered != LINEAR:
        raise OptionError(
            f"level_scores has no effect with ordered={ordered!r}.",
            argument="level_scores",
            hint="Use ordered='linear', or omit the level_scores argument.",
        )
    pairs = level_scores.items() if isinstance(level_scores, Mapping) else level_scores
    if isinstance(level_scores, str) or not isinstance(pairs, Iterable):
        raise BBLTypeError(
            "level_scores must be a dict with a list for each predictor; got "
            f"{type(level_scores).__name__}.",
            argument="level_scores",
            hint="Map each predictor to the scores of its levels, such as {'edu': [8, 12]}.",
        )
    return ordered, tuple(_checked_scores(*pair) for pair in pairs)


def _checked_scores(name: Hashable, scores: object) -> tuple[Hashable, tuple[float, ...]]:
    """Check that the scores of a predictor increase, and return the predictor and its scores."""
    if isinstance(scores, str) or not isinstance(scores, Sequence | np.ndarray):
        raise BBLTypeError(
            f"level_scores[{name!r}] must be a list of numbers; got {type(scores).__name__}.",
            argument="level_scores",
            hint="List one score for each level, such as [8, 12, 16].",
        )
    numbers = tuple(real(f"level_scores[{name!r}]", score) for score in scores)
    if len(numbers) < 2 or not (np.diff(numbers) > 0.0).all():
        raise OptionError(
            f"level_scores[{name!r}] must increase from level to level; got {list(numbers)}.",
            argument="level_scores",
            hint="List the scores in increasing order, and merge levels with equal scores.",
        )
    return (tuple(name) if isinstance(name, list) else name), numbers


def layout_scores(
    design: Design, ordered: str, level_scores: LevelScores | None
) -> list[np.ndarray | None] | None:
    """Return the scores of all predictors in the form used by `Layout`, or None.

    None means that all couplings are nominal.

    Predictors in `level_scores` have the given scores. Other ordered predictors with three or more
    levels have equally spaced scores. Missing values have their own level, which has no score.

    Raises
    ------
    OptionError
        If `level_scores` does not match the predictors, or if no predictor has scores.
    """
    if ordered != LINEAR:
        return None
    given = dict(level_scores or ())
    names = [factor.name for factor in design.predictors]
    out: list[np.ndarray | None] = []
    for factor, n_ordered in zip(design.predictors, design.n_ordered.tolist(), strict=True):
        scores = given.pop(factor.name, None)
        L = len(factor.levels)
        k = L - factor.kinds.count("missing")
        if scores is not None:
            _check_number(factor.name, len(scores), k, [str(level) for level in factor.levels[:k]])
        elif n_ordered > 2:
            scores = tuple(range(k))
        if scores is None or k < 3:
            out.append(None)
            continue
        relative = (np.array(scores[1:]) - scores[0]) / (scores[-1] - scores[0])
        out.append(np.concatenate([relative, np.full(L - k, np.nan)]))
    if given:
        name = next(iter(given))
        raise OptionError(
            f"level_scores contains {name!r}, which is not a predictor of the formula.",
            argument="level_scores",
            hint=f"{near_match(name, names)}List only predictors of the formula.",
            value=name,
        )
    if out and all(scores is None for scores in out):  # the null model has no predictors
        raise OptionError(
            "ordered='linear' requires ordered predictors with three or more levels, but there "
            "are none.",
            argument="ordered",
            hint=(
                "Declare them as an ordered pd.Categorical, pass their level_scores, or use "
                "ordered='nominal'."
            ),
            value=LINEAR,
        )
    return out


def _check_number(name: Hashable, n_scores: int, n_levels: int, levels: list[str]) -> None:
    """Raise an OptionError unless a predictor has one score per level and at least three levels."""
    if n_scores != n_levels:
        raise OptionError(
            f"level_scores[{name!r}] has {n_scores} scores, but the predictor has {n_levels} "
            f"levels.",
            argument="level_scores",
            hint=(
                "List one score for each of the levels "
                f"{', '.join(levels[:6])}{', ...' * (n_levels > 6)}."
            ),
            value=name,
        )
    if n_levels < 3:
        raise OptionError(
            f"level_scores[{name!r}] has no effect, because {name!r} has two levels.",
            argument="level_scores",
            hint=f"Leave {name!r} out of level_scores.",
            value=name,
        )


def score_ranges(engine: object, names: Sequence[Hashable], layout: Layout) -> np.ndarray:
    """Return the difference (m,) between the last and the first score of each predictor in a fit.

    The difference is 1 for predictors without scores. `names` contains the names of the predictors.
    """
    given = dict(getattr(engine, "level_scores", None) or ())
    out = np.ones(layout.m)
    for i, scores in enumerate(layout.scores or ()):
        if scores is not None:
            own = given.get(names[i])
            # by default: 0, 1, 2, ...
            n_steps = float(np.count_nonzero(~np.isnan(scores)))
            out[i] = n_steps if own is None else own[-1] - own[0]
    return out


def check_linear(ordered: str, layout: Layout) -> None:
    """Raise an OptionError if ``ordered="linear"`` is used but the order of levels is unknown."""
    if ordered == LINEAR and layout.scores is None:
        raise OptionError(
            "ordered='linear' requires a formula and a table, because arrays of codes do not "
            "declare the order of levels.",
            argument="ordered",
            hint="Call bbl.bbl('~ .', data, ...), or use ordered='nominal'.",
            value=LINEAR,
        )
    if layout.scores is not None and layout.support is not None:
        reason = WITH_ZEROS['`ordered="linear"`']
        raise OptionError(
            f"ordered='linear': {reason}.",
            argument="ordered",
            hint="Use ordered='nominal', or omit the structural_zeros argument.",
            value=LINEAR,
        )
