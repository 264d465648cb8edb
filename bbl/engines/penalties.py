"""The option ``lambda_`` of methods with an L2 penalty on couplings: a number, or one for each
order of terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.checks import real
from bbl.engines.traits import Tuned
from bbl.errors import OptionError
from bbl.model.layout import Layout

__all__ = ["PENALTY", "check_orders", "check_two_levels", "penalty_option"]

PENALTY = Tuned(
    "lambda_",
    "lambda",
    r"$\lambda$",
    r"Penalty $\lambda$",
    tuple(10.0 ** np.arange(-4.0, 1.01, 0.5)),
    simpler="larger",
    logarithmic=True,
)


def penalty_option(lambda_: object) -> float | tuple[float, ...]:
    """Return the option as a number of at least 0, or as a tuple of such numbers.

    Raises
    ------
    OptionError, BBLTypeError
        If a number is negative or not finite, or a sequence is empty.
    """
    # a string is a sequence too: `real` refuses it
    if isinstance(lambda_, Sequence | np.ndarray) and not isinstance(lambda_, str):
        if not len(lambda_):
            raise OptionError(
                "lambda_ is empty.",
                argument="lambda_",
                hint="Give a number, or one for each order.",
            )
        return tuple(real("lambda_", value, 0.0) for value in lambda_)
    return real("lambda_", lambda_, 0.0)


def check_orders(lambda_: float | tuple[float, ...], layout: Layout) -> None:
    """Raise an OptionError unless a sequence of penalties has one for each order of the terms of
    `layout`.

    The message names `crossVal` for those who mean a grid of penalties to compare, of which one is
    chosen.
    """
    # orders 2, 3, ...; a model without terms has a penalty of pairs too
    n_orders = max(layout.order, 2) - 1
    if isinstance(lambda_, tuple) and len(lambda_) != n_orders:
        raise OptionError(
            f"lambda_ has {len(lambda_)} numbers, one for each order from 2 on, but the model "
            f"has terms of up to {n_orders + 1} predictors.",
            argument="lambda_",
            hint=(
                f"Give {n_orders if n_orders > 1 else 'one number'}; a grid of values is for "
                "crossVal."
            ),
        )


def check_two_levels(layout: Layout) -> None:
    """Raise an OptionError, for ``penalty="l1"``, if a predictor has three levels or more."""
    if (layout.n_levels > 2).any():
        raise OptionError(
            f"penalty='l1' is for predictors of two levels; some have "
            f"{int(layout.n_levels.max())}, and which couplings it would make zero would "
            "depend on the reference level.",
            hint="Give penalty='group', which makes whole tables zero.",
            argument="penalty",
            value="l1",
        )
