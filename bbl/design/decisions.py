"""Decisions: checks of class shares (priors) and of costs of wrong decisions, by group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import near_match
from bbl.design.factors import Factor
from bbl.errors import BBLTypeError, OptionError

__all__ = ["Costs", "Priors", "check_costs", "check_priors", "check_shares"]

Priors = Mapping[Hashable, float] | pd.Series | ArrayLike | None  # as `check_priors` takes them; text is "equal"
Costs = pd.DataFrame | Mapping[Hashable, Mapping[Hashable, float]] | ArrayLike | None  # as `check_costs` takes them


def check_priors(priors: Priors | str, response: Factor) -> np.ndarray:
    """Return class shares as an array, in the order of the groups.

    Parameters
    ----------
    priors : mapping or Series by group, array_like of shape (K,) in the order of the groups, or ``"equal"``
        Shares that sum to one. An array only where users know the order of the groups (`Factor.has_known_order`).
    response : Factor
        The response, whose K levels are the groups.

    Returns
    -------
    ndarray, shape (K,)

    Raises
    ------
    OptionError, BBLTypeError
        If a group is unknown or lacks a share, or they are no shares, or have no names and need them.

    Examples
    --------
    >>> check_priors({"Yes": 0.1, "No": 0.9}, Factor("y", ("No", "Yes"), ("string", "string")))
    array([0.9, 0.1])
    """
    groups = response.levels
    if isinstance(priors, str):
        if priors != "equal":
            raise OptionError(f"priors={priors!r} is unknown; give 'equal', or a share by group.", argument="priors")
        return np.full(len(groups), 1.0 / len(groups))
    shares = check_shares("priors", priors, response)
    total = float(shares.sum())
    if abs(total - 1.0) > 1e-6:
        raise OptionError(f"priors sum to {total:.6g}, not 1; give shares of the groups.", argument="priors")
    return shares / total


def check_shares(argument: str, values: Priors, response: Factor) -> np.ndarray:
    """Return numbers of the groups (K,), in their order, to a common factor; `values` as in `check_priors`."""
    group_values, groups = values, response.levels
    if isinstance(values, Mapping | pd.Series):
        _check_names(argument, list(values.keys()), groups, whole=True)
        values = [values[g] for g in groups]
    else:
        _check_order(argument, values, response, "...")
    shares = _numbers(argument, values, (len(groups),), groups)
    if not shares.any():
        raise OptionError(f"{argument} must not all be zero; got {group_values!r}.", argument=argument)
    return shares


def check_costs(costs: Costs, response: Factor) -> np.ndarray:
    """Return costs as an array, observed groups by predicted ones.

    Parameters
    ----------
    costs : DataFrame, mapping of mappings, or array_like of shape (K, K)
        What it costs to predict a group (column) where another one (row) is true; with a mapping
        ``{true: {predicted: cost}}``, what is left out costs nothing. An array only where users know the order of the
        groups (`Factor.has_known_order`).
    response : Factor
        The response, whose K levels are the groups.

    Returns
    -------
    ndarray, shape (K, K)

    Raises
    ------
    OptionError, BBLTypeError
        If a group is unknown or lacks a cost, or they are negative or no numbers, or have no names and need them.

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
            _check_names("costs", list(names), groups, whole=True)
        costs = costs.reindex(index=list(groups), columns=list(groups)).to_numpy()
    elif isinstance(costs, Mapping):
        _check_names("costs", list(costs), groups)
        table = np.zeros((K, K))
        for true, row in costs.items():
            if not isinstance(row, Mapping):
                raise BBLTypeError(
                    f"costs[{true!r}] must be a dict of predicted groups to costs; got {row!r}.", argument="costs"
                )
            _check_names("costs", list(row), groups)
            for predicted, cost in row.items():
                table[groups.index(true), groups.index(predicted)] = _numbers("costs", cost, (), groups)
        costs = table
    else:
        _check_order("costs", costs, response, "{...: ...}")
    return _numbers("costs", costs, (K, K), groups)


def _check_order(argument: str, values: Any, response: Factor, placeholder: str) -> None:
    """Refuse numbers without names for groups whose order nobody declared: theirs is that of their sorted names."""
    if response.has_known_order or np.ndim(values) == 0:  # a single number is no array, and refused as such
        return
    named = ", ".join(f"{group!r}: {placeholder}" for group in response.levels)
    raise OptionError(
        f"{argument} has numbers without names, and the order of the groups of {response.name!r} was not declared. "
        f"Name them, as {argument}={{{named}}}, or declare the order, by categories or in xlevels.",
        argument=argument,
    )


def _check_names(argument: str, names: list, groups: tuple, whole: bool = False) -> None:
    group_names = ", ".join(map(repr, groups))
    for name in names:
        if name not in groups:
            raise OptionError(
                f"{argument} names {name!r}, which is no group{near_match(name, groups) or '.'} "
                f"Groups are {group_names}.",
                argument=argument,
            )
    absent = [g for g in groups if g not in names] if whole else []
    if absent or len(set(names)) < len(names):
        problem = f"has nothing for group {absent[0]!r}" if absent else "names a group twice"
        raise OptionError(f"{argument} {problem}; name each of {group_names} once.", argument=argument)


def _numbers(argument: str, values: Priors | Costs, shape: tuple, groups: tuple) -> np.ndarray:
    wanted = " x ".join(map(str, shape)) or "one"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        of = f" for the groups {', '.join(map(repr, groups))}"
        raise BBLTypeError(f"{argument} must be numbers{of}; got {values!r}.", argument=argument) from None
    if array.shape != shape:
        got = " x ".join(map(str, array.shape)) or "one"
        group_names = ", ".join(map(repr, groups))
        raise OptionError(
            f"{argument} must hold {wanted} numbers, in the order of the groups {group_names}; got {got}.",
            argument=argument,
        )
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise OptionError(f"{argument} must be finite and not negative; got {values!r}.", argument=argument)
    return array
