"""Grid searches for the setting with the smallest loss, with a stopping rule (`has_risen`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["NEIGHBOUR_RATIO", "descend", "has_risen", "walk", "walk_variants"]

# settings with a loss up to this multiple of the minimum are close to the best
NEIGHBOUR_RATIO = 1.03
FAR_RATIO = 1.08  # losses above this multiple of the minimum plus `FAR` are far above it
# a variant is behind if its loss is above this multiple of another variant's plus `FAR`
BEHIND_RATIO = 1.04
FAR = 0.005  # added to both limits, because ratios of losses near 0 are meaningless
CLEAR = 0.005  # difference in loss that makes a variant clearly better


def has_risen(losses: Sequence[float] | np.ndarray, patience: int, ratio: float = 1.0) -> bool:
    """Return whether losses have increased so much that further settings can be skipped.

    This is the case if the last `patience` losses all exceed `ratio` times the minimum, or if the
    last loss is far above the minimum.

    Examples
    --------
    >>> has_risen([0.5, 0.4, 0.41], patience=2), has_risen([0.5, 0.4, 0.41, 0.42], patience=2)
    (False, True)
    """
    least = float(np.fmin.reduce(losses))  # nan only if all are
    recent = np.asarray(losses[-patience:])
    return bool((recent > ratio * least).all() or recent[-1] > FAR_RATIO * least + FAR)


def walk(
    positions: Sequence[int],
    losses_of: Callable[[Sequence[int]], Sequence[float]],
    *,
    patience: int,
    ratio: float = 1.0,
    first: int = 1,
    at_once: int = 1,
) -> list[float]:
    """Return the losses at successive `positions` until they have increased (see `has_risen`).

    ``losses_of(positions)`` fits `first` settings in the first call and `at_once` settings in each
    further call.

    Examples
    --------
    >>> loss = [0.6, 0.5, 0.4, 0.41, 0.42, 0.3]
    >>> walk(range(6), lambda some: [loss[k] for k in some], patience=2)
    [0.6, 0.5, 0.4, 0.41, 0.42]
    """
    losses = list(losses_of(positions[:first]))
    while len(losses) < len(positions) and not has_risen(losses, patience, ratio):
        losses += losses_of(positions[len(losses) : len(losses) + at_once])
    return losses


def descend(
    sizes: tuple[int, ...], position: tuple[int, ...], loss: Callable[[tuple[int, ...]], float]
) -> tuple[int, ...]:
    """Find a local minimum of `loss` on a grid by moving from `position` to better neighbours.

    Examples
    --------
    >>> descend((9, 9), (4, 4), lambda position: (position[0] - 7) ** 2 + (position[1] - 2) ** 2)
    (7, 2)
    """
    loss_of = {position: loss(position)}  # all positions that were tried
    # number of axes in a row along which no step was better
    axis = len(sizes) - 1
    n_unmoved = 0
    while n_unmoved < len(sizes):
        previous = position
        for step in (-1, 1):
            while 0 <= (coordinate := position[axis] + step) < sizes[axis]:
                neighbour = (*position[:axis], coordinate, *position[axis + 1 :])
                if neighbour not in loss_of:
                    loss_of[neighbour] = loss(neighbour)
                if not loss_of[neighbour] < loss_of[position]:
                    break
                position = neighbour
        n_unmoved = n_unmoved + 1 if position == previous else 0
        axis = (axis - 1) % len(sizes)
    return position


def walk_variants(
    fit: Callable[..., float],
    n_variants: int,
    last: int,
    exhaustive: bool,
    report: Callable | None,
    on_a_line: bool = False,
) -> None:
    """Call ``fit(variant, k)``, which returns the loss, for each variant and k from `last` to 0.

    Setting `last` has the strongest penalty. Unless `exhaustive` is True, the search over the
    settings of a variant stops in three cases: if two consecutive losses exceed the variant's
    smallest loss so far, if one loss is far above it, or if two consecutive losses are worse than
    another variant's at the same settings. In the first case, one such loss is sufficient at or
    beyond the best setting of earlier variants. If `on_a_line` is True, the first variant is
    intermediate between the second and the third, and the third is skipped if the second is better
    than the first by more than `CLEAR`. ``report()`` is called after each variant.
    """
    least_by_setting = np.full(last + 1, np.inf)
    least_by_variant = np.full(n_variants, np.inf)
    for v in range(n_variants):
        losses: list[float] = []
        n_behind = 0
        is_left_out = (
            on_a_line
            and not exhaustive
            and v == 2
            and least_by_variant[1] + CLEAR < least_by_variant[0]
        )
        # the best setting of earlier variants
        best = int(least_by_setting.argmin()) if v else -1
        for k in () if is_left_out else range(last, -1, -1):
            loss = fit(v, k)
            losses.append(loss)
            n_behind = n_behind + 1 if loss > BEHIND_RATIO * least_by_setting[k] + FAR else 0
            least_by_setting[k] = min(least_by_setting[k], loss)
            is_past = has_risen(losses, patience=1 if k <= best else 2)
            if not exhaustive and (is_past or n_behind == 2):
                break
        least_by_variant[v] = min([np.inf, *losses])
        if report is not None:
            report()
