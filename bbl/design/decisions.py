"""Validate priors and misclassification costs, and arrange them in the order of the groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import near_match
from bbl.design.factors import Factor
from bbl.errors import BBLTypeError, OptionError

__all__ = [
    "Costs",
    "Decisions",
    "DrawnDecisions",
    "Priors",
    "check_costs",
    "check_priors",
    "check_shares",
]

Priors = Mapping[Any, float] | pd.Series | ArrayLike | None  # argument of `check_priors`
# argument of `check_costs`
Costs = pd.DataFrame | Mapping[Any, Mapping[Any, float]] | ArrayLike | None
SUM_TOLERANCE = 1e-6  # tolerance for the sum of the priors, which must be 1


class Decisions(TypedDict, total=False):
    """Keyword arguments of predictions: priors and misclassification costs."""

    priors: Priors
    costs: Costs


class DrawnDecisions(Decisions, total=False):
    """Keyword arguments of predictions for models that may have posterior draws."""

    draws: Literal["all", "mean"]


def check_priors(priors: Priors | str, response: Factor) -> np.ndarray:
    """Return prior class proportions as an array in the order of the groups.

    Parameters
    ----------
    priors : mapping or Series by group, array_like of shape (K,), or ``"equal"``
        Proportions that sum to one. An array must be in the order of the groups, and is accepted
        only if that order is declared or evident (`Factor.has_known_order`).
    response : Factor
        The response with K groups as levels.

    Returns
    -------
    ndarray, shape (K,)

    Raises
    ------
    OptionError, BBLTypeError
        If a group is unknown or has no proportion, proportions do not sum to one, or group names
        are required.

    Examples
    --------
    >>> check_priors({"Yes": 0.1, "No": 0.9}, Factor("y", ("No", "Yes"), ("string", "string")))
    array([0.9, 0.1])
    """
    groups = response.levels
    if isinstance(priors, str):
        if priors != "equal":
            raise OptionError(
                f"priors={priors!r} is unknown.",
                argument="priors",
                hint="Pass 'equal', or a dict of class proportions.",
                value=priors,
            )
        return np.full(len(groups), 1.0 / len(groups))
    shares = check_shares("priors", priors, response)
    total = float(shares.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise OptionError(
            f"priors sum to {total:.6g}, not 1.",
            argument="priors",
            hint="Use class proportions that sum to 1.",
        )
    return shares / total


def check_shares(argument: str, values: Priors, response: Factor) -> np.ndarray:
    """Return one number for each group (K,); at least one is not zero.

    `values` has the same form as `priors` in `check_priors`, but any sum is allowed.
    """
    # `values_of_user` is shown in messages
    values_of_user = values
    groups = response.levels
    if isinstance(values, Mapping | pd.Series):
        _check_names(argument, list(values.keys()), groups, complete=True)
        values = [values[group] for group in groups]
    else:
        _check_order(argument, values, response, placeholder="...")
    shares = _check_numbers(argument, values, (len(groups),), groups)
    if not shares.any():
        raise OptionError(
            f"{argument} must not all be zero; got {values_of_user!r}.",
            argument=argument,
            value=values_of_user,
        )
    return shares


def check_costs(costs: Costs, response: Factor) -> np.ndarray:
    """Return costs as an array, with observed groups in rows and predicted groups in columns.

    Parameters
    ----------
    costs : DataFrame, mapping of mappings, or array_like of shape (K, K)
        Each entry is the cost of predicting the group of its column if the true group is that of
        its row. In a mapping ``{true: {predicted: cost}}``, omitted costs are 0. An array is
        accepted only if the order of the groups is declared or evident (`Factor.has_known_order`).
    response : Factor
        The response with K groups as levels.

    Returns
    -------
    ndarray, shape (K, K)

    Raises
    ------
    OptionError, BBLTypeError
        If a group is unknown or has no cost, costs are negative or not numeric, or group names are
        required.

    Examples
    --------
    >>> response = Factor("y", ("No", "Yes"), ("string", "string"))
    >>> check_costs({"Yes": {"No": 5}, "No": {"Yes": 1}}, response)
    array([[0., 1.],
           [5., 0.]])
    """
    groups = response.levels
    K = len(groups)
    if isinstance(costs, pd.DataFrame):
        for names in (costs.index, costs.columns):
            _check_names("costs", list(names), groups, complete=True)
        costs = costs.reindex(index=list(groups), columns=list(groups)).to_numpy()
    elif isinstance(costs, Mapping):
        _check_names("costs", list(costs), groups)
        table = np.zeros((K, K))
        for true, row in costs.items():
            if not isinstance(row, Mapping):
                raise BBLTypeError(
                    f"costs[{true!r}] must be a dict that maps groups to costs; got {row!r}.",
                    argument="costs",
                    value=row,
                )
            _check_names("costs", list(row), groups)
            for predicted, cost in row.items():
                table[groups.index(true), groups.index(predicted)] = _check_numbers(
                    "costs", cost, (), groups
                )
        costs = table
    else:
        _check_order("costs", costs, response, placeholder="{...: ...}")
    return _check_numbers("costs", costs, (K, K), groups)


def _check_order(argument: str, values: Any, response: Factor, placeholder: str) -> None:
    """Raise an error for numbers without group names if the order of the groups was not declared.

    `placeholder` stands for the value of a group in the hint.
    """
    # `_check_numbers` raises an error for a single number
    if response.has_known_order or np.ndim(values) == 0:
        return
    example = ", ".join(f"{group!r}: {placeholder}" for group in response.levels)
    raise OptionError(
        f"{argument} has values without group names, but the order of the groups of "
        f"{response.name!r} was not declared.",
        argument=argument,
        hint=(
            f"Pass a dict such as {argument}={{{example}}}, or declare the order with categories "
            "or xlevels."
        ),
    )


def _check_names(argument: str, given_names: list, groups: tuple, complete: bool = False) -> None:
    """Raise an error for unknown and repeated group names and, if `complete`, for missing
    groups.
    """
    group_names = ", ".join(map(repr, groups))
    for name in given_names:
        if name not in groups:
            raise OptionError(
                f"{argument} contains {name!r}, which is not a group.",
                argument=argument,
                hint=f"{near_match(name, groups)}Choose from {group_names}.",
            )
    absent_groups = [g for g in groups if g not in given_names] if complete else []
    if absent_groups or len(set(given_names)) < len(given_names):
        problem = (
            f"has no entry for group {absent_groups[0]!r}"
            if absent_groups
            else "contains a duplicate group"
        )
        raise OptionError(
            f"{argument} {problem}.",
            argument=argument,
            hint=f"Include each of {group_names} exactly once.",
        )


def _check_numbers(
    argument: str, values: Priors | Costs, shape: tuple, groups: tuple
) -> np.ndarray:
    """Return `values` as a float array of the given shape; the shape () is for a single number.

    Raise an error for other shapes, and for negative, infinite or missing values. `groups` are
    named in messages.
    """
    wanted = " x ".join(map(str, shape)) or "one"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise BBLTypeError(
            f"{argument} must contain numbers for the groups {', '.join(map(repr, groups))}; got "
            f"{values!r}.",
            argument=argument,
            value=values,
        ) from None
    if array.shape != shape:
        shown = " x ".join(map(str, array.shape)) or "one"
        group_names = ", ".join(map(repr, groups))
        raise OptionError(
            f"{argument} must contain {wanted} numbers, in the order of the groups "
            f"{group_names}; got {shown}.",
            argument=argument,
        )
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise OptionError(
            f"{argument} must be finite and not negative; got {values!r}.",
            argument=argument,
            value=values,
        )
    return array
