"""Checks of the arguments of public functions, which return the converted value or raise an error.

`argument` is the name of the argument in error messages, and `value` is the value that the user
passed.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

import numpy as np

from bbl.errors import BBLTypeError, OptionError

__all__ = [
    "any_real",
    "arguments",
    "choice",
    "flag",
    "generator",
    "integer",
    "near_match",
    "real",
    "reals",
    "share",
    "check_keywords",
]

# maps argument names of the R package to ours; both are in lower case without dots and underscores
R_NAMES = {
    "nstep": "nsteps",
    "progressbar": "verbose",
    "nprint": "verbose",
    "lzhalf": "logz",
    "storeopt": "refit",
}

P = ParamSpec("P")
T = TypeVar("T")


def near_match(name: object, known_names: Iterable[object]) -> str:
    """Return ``"Did you mean 'x'? "`` for the known name closest to `name`, or "" if none is close.

    This text is the beginning of a hint. Case, dots and underscores are ignored, so ``Lambda`` is
    closer to ``lambda_`` than to ``lambdah``. An argument name of the R package matches the
    argument with the same meaning.
    """
    # reversed: if several names have the same plain form, the dict keeps the last one, which is the
    # first in `known_names`
    name_by_plain_form = {
        _plain(known_name): known_name for known_name in reversed(list(known_names))
    }
    plain_form = _plain(name)
    # an argument name of the R package
    if plain_form not in name_by_plain_form and R_NAMES.get(plain_form) in name_by_plain_form:
        plain_form = R_NAMES[plain_form]
    close_forms = difflib.get_close_matches(plain_form, list(name_by_plain_form), n=1)
    return f"Did you mean {name_by_plain_form[close_forms[0]]!r}? " if close_forms else ""


def _plain(name: object) -> str:
    """Return a name in lower case, without dots and underscores."""
    return str(name).casefold().replace(".", "").replace("_", "")


@functools.cache
def arguments(function: Callable) -> tuple[str, ...]:
    """Return the argument names of a function, without self, ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        p.name
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"
    )


def check_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function or method so that it raises a BBLTypeError for unknown keywords.

    The error suggests the closest argument name and lists all argument names.
    """
    argument_names = arguments(function)
    signature = inspect.signature(function)
    var_positional = (p for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL)
    shown_arguments = ", ".join([*(f"*{p.name}" for p in var_positional), *argument_names])

    @functools.wraps(function)
    def call_checked(*args: P.args, **keywords: P.kwargs) -> T:
        """Check the names of the keywords, and call `function`."""
        for name in keywords:
            if name not in argument_names:
                raise BBLTypeError(
                    f"{function.__name__}() has no argument {name!r}.",
                    argument=name,
                    hint=(
                        f"{near_match(name, argument_names)}Its arguments are "
                        f"{shown_arguments or 'none'}."
                    ),
                )
        try:
            return function(*args, **keywords)
        except TypeError:
            problem = _binding_problem(signature, args, keywords)
            if problem is None:  # the error is not about the arguments of this call
                raise
        raise BBLTypeError(
            f"{function.__name__}() cannot be called in this way: {problem}.",
            hint=f"Its arguments are {shown_arguments or 'none'}.",
        )

    return call_checked


def _binding_problem(
    signature: inspect.Signature, args: tuple[object, ...], keywords: dict[str, object]
) -> str | None:
    """Return the reason why arguments do not match a signature, or None if they do."""
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        return str(error)
    return None


def choice(argument: str, value: object, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of the `allowed` strings; otherwise, raise an error."""
    if not isinstance(value, str):
        raise BBLTypeError(
            f"{argument} must be one of {', '.join(map(repr, allowed))}; got {value!r} of "
            f"type {type(value).__name__}.",
            argument=argument,
            value=value,
        )
    if value not in allowed:
        raise OptionError(
            f"{argument}={value!r} is unknown.",
            argument=argument,
            hint=f"{near_match(value, allowed)}Choose one of {', '.join(map(repr, allowed))}.",
            value=value,
        )
    return value


def flag(argument: str, value: object) -> bool:
    """Return `value`, which must be True or False, as a bool."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise BBLTypeError(
        f"{argument} must be True or False; got {value!r}.", argument=argument, value=value
    )


def any_real(argument: str, value: object) -> float:
    """Return a real number as a float; raise an error for anything else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise BBLTypeError(
            f"{argument} must be a number; got {value!r} of type {type(value).__name__}.",
            argument=argument,
            value=value,
        )
    return float(value)


def real(
    argument: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    finite: bool = True,
) -> float:
    """Return `value` as a float in [low, high].

    The interval is (low, high] if `open_low`. Infinite values are accepted only if `finite` is
    False.
    """
    number = any_real(argument, value)
    is_inside = low < number <= high if open_low else low <= number <= high
    if not is_inside or (finite and math.isinf(number)):
        # in the message, a round bracket stands for an excluded bound
        left_bracket = "(" if open_low or math.isinf(low) else "["
        right_bracket = ")" if finite and math.isinf(high) else "]"
        raise OptionError(
            f"{argument} must be in {left_bracket}{low:g}, {high:g}{right_bracket}; got {value!r}.",
            argument=argument,
            value=value,
        )
    return number


def share(argument: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1, such as the coverage of an interval."""
    number = any_real(argument, value)
    if not 0.0 < number < 1.0:
        raise OptionError(
            f"{argument} must be strictly between 0 and 1; got {value!r}.",
            argument=argument,
            value=value,
        )
    return number


def reals(argument: str, value: object, check: Callable[[str, object], float]) -> np.ndarray:
    """Return a number or a sequence of numbers as a 1-d array, and check each number.

    Each number is replaced by ``check(argument, number)``.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        return np.array([check(argument, value)])
    checked_numbers = [check(argument, v) for v in value]
    if not checked_numbers:
        raise OptionError(
            f"{argument} is empty.", argument=argument, hint="Pass at least one value."
        )
    return np.array(checked_numbers)


def integer(argument: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as an int with ``low <= value <= high``; None means no bound."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise BBLTypeError(
            f"{argument} must be an integer; got {value!r} of type {type(value).__name__}.",
            argument=argument,
            value=value,
        )
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        # in the message; callers that pass `high` also pass `low`
        allowed_range = f"at least {low}" if high is None else f"in {low}..{high}"
        raise OptionError(f"{argument} must be {allowed_range}; got {number}.", argument=argument)
    return number


def generator(seed: object) -> np.random.Generator:
    """Return a numpy Generator from ``seed``, which is an int, a Generator, or None for fresh
    entropy.
    """
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is None:
        return np.random.default_rng()
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool):
        return np.random.default_rng(integer("seed", seed, 0))
    raise BBLTypeError(
        "seed must be None, a non-negative integer or a numpy.random.Generator; got "
        f"{type(seed).__name__}.",
        argument="seed",
        hint="Create one with numpy.random.default_rng().",
    )
