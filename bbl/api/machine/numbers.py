"""The arguments of numeric predictors, `numeric=` and its options, and the location model that the
formula describes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np

from bbl.api.training_data import refuse_batches
from bbl.capabilities import WITH_NUMBERS
from bbl.checks import choice, real
from bbl.choices import Covariance, Divisor, NumberTransform
from bbl.design.design import Design
from bbl.engines import Engine
from bbl.errors import BBLTypeError, OptionError
from bbl.model.location import LocationModel

__all__ = ["NO_NUMBERS", "NumberOptions", "check_numbers", "location_model", "refuse_numbers"]


@dataclass(frozen=True)
class NumberOptions:
    """The arguments of `bbl.bbl` for numeric predictors, as the user passed them.

    Attributes
    ----------
    numeric : None, True, column name or sequence of column names
    covariance, divisor, transform : str
    shrink : float
    """

    numeric: Any = None
    covariance: str = "group"
    divisor: str = "moment"
    shrink: float = 0.0
    transform: str = "none"

    @property
    def columns(self) -> bool | tuple[Hashable, ...]:
        """The columns: False for none, True for all that look like numbers, or their names."""
        if self.numeric is None or isinstance(self.numeric, bool):
            return bool(self.numeric)
        if isinstance(self.numeric, str) or not isinstance(self.numeric, Iterable):
            return (self.numeric,)
        return tuple(self.numeric)

    def shown(self) -> dict[str, tuple[object, object]]:
        """Return (value, default) by argument, for the printed call."""
        numeric = self.numeric
        if not isinstance(numeric, str | bool | None):
            numeric = list(self.columns) if self.columns else None  # type: ignore[arg-type]
        default = NumberOptions()
        return {"numeric": (numeric, None)} | {
            name: (getattr(self, name), getattr(default, name))
            for name in ("covariance", "divisor", "shrink", "transform")
        }


NO_NUMBERS = NumberOptions()


def refuse_numbers(options: NumberOptions, refusals: Mapping[str, str]) -> None:
    """Raise an OptionError if numeric predictors are given to a method whose `refusals` name
    them.
    """
    if options.columns and (reason := refusals.get("numeric")) is not None:
        raise OptionError(
            f"{reason}.",
            argument="numeric",
            hint="Choose method='pseudo', or cut the numbers with bbl.bin.",
        )


def check_numbers(
    options: NumberOptions, engine: Engine, data: object, others: Mapping[str, object]
) -> None:
    """Raise an error if the arguments of numeric predictors are invalid, or cannot be combined with
    the method or with other arguments.

    `others` are the values of arguments in `WITH_NUMBERS`, None if they are not used.
    """
    choice("covariance", options.covariance, get_args(Covariance))
    choice("divisor", options.divisor, get_args(Divisor))
    choice("transform", options.transform, get_args(NumberTransform))
    real("shrink", options.shrink, 0.0, 1.0)
    if not options.columns:
        given = [name for name, (value, default) in options.shown().items() if value != default]
        if given:
            raise OptionError(
                f"{given[0]} applies to numeric predictors, but there are none.",
                argument=given[0],
                hint="Name them, for example numeric='age', or leave it out.",
            )
        return
    if not isinstance(options.columns, bool):
        for name in options.columns:
            if not isinstance(name, Hashable):
                raise BBLTypeError(
                    f"numeric must be a column name, a list of names or True; got {name!r}.",
                    argument="numeric",
                    value=name,
                )
    refuse_numbers(options, engine.refusals())
    for name, value in others.items():
        if value is not None:
            raise OptionError(
                f"numeric= and {name} cannot be combined: {WITH_NUMBERS[name]}.",
                argument="numeric",
                hint="Leave out one of them, or cut the numbers with bbl.bin.",
            )
    refuse_batches(data, "numeric", "numeric")


def location_model(options: NumberOptions, design: Design, engine: Engine) -> LocationModel | None:
    """Return the location model of the formula's numeric predictors; None if there are none."""
    numbers = np.flatnonzero(design.is_number)
    if not len(numbers):
        return None
    q = len(numbers)
    m = len(design.predictors)
    position = np.full(m, -1)
    position[numbers] = np.arange(q)
    partners = np.zeros((q, m), dtype=bool)
    correlated = np.eye(q, dtype=bool)
    if design.terms.order > 2:
        for terms in design.terms.terms[1:]:
            of_number = terms[design.is_number[terms].any(axis=1)]
            if len(of_number):
                names = [str(design.predictors[i].name) for i in of_number[0]]
                raise OptionError(
                    f"The term {':'.join(names)} contains a number, but means of numbers are sums "
                    "over predictors.",
                    argument="formula",
                    hint="Remove the term, or make one column of the combinations of its other "
                    "predictors.",
                )
    # naive Bayes has no interactions
    for i, j in design.pairs if engine.order > 1 else ():
        a, b = position[i], position[j]
        if a >= 0 and b >= 0:
            correlated[a, b] = correlated[b, a] = True
        elif a >= 0:
            partners[a, j] = True
        elif b >= 0:
            partners[b, i] = True
    return LocationModel(
        design.n_levels,
        numbers,
        partners,
        correlated,
        options.covariance,
        options.divisor,
        float(cast(float, getattr(engine, "prior_count", 0.0) or 0.0)),
        float(options.shrink),
        options.transform,
    )
