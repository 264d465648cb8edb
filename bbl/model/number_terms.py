"""Conversion of slopes of numeric regressors to a different origin or unit of measurement."""

from __future__ import annotations

import copy

import numpy as np

from bbl.model.layout import Layout, term_columns

__all__ = ["centred_factors", "in_unit", "to_raw"]


def to_raw(layout: Layout) -> np.ndarray | None:
    """Return the matrix that converts coefficients from standardised regressors,
    shape (1 + size, 1 + size).

    It maps the intercept and parameters for standardised numeric regressors to the intercept and
    parameters for the original regressors. The result is None for a layout without numeric
    regressors.

    The conversion is possible because a product of standardised regressors and indicators is a
    linear combination of products of the original variables.

    Examples
    --------
    >>> numbers = np.array([[10.0, 2.0]])  # mean and standard deviation
    >>> to_raw(Layout([2], numbers=numbers)).tolist()
    [[1.0, -5.0], [0.0, 0.5]]
    """
    if layout.numbers is None:
        return None
    number_of_column = {
        int(layout.start[i]): tuple(layout.numbers[i]) for i in np.flatnonzero(layout.is_number)
    }
    members = [
        tuple(column for column in columns if column >= 0)
        for columns in term_columns(layout).T.tolist()
    ]
    position: dict[tuple[int, ...], int] = {(): 0}
    position |= {tuple(sorted(columns)): 1 + k for k, columns in enumerate(members)}
    out = np.zeros((1 + layout.size, 1 + layout.size))
    out[0, 0] = 1.0
    for k, columns in enumerate(members):
        # the sum so far: factors of products, by their columns
        expansion: dict[tuple[int, ...], float] = {(): 1.0}
        for column in columns:
            mean, sd = number_of_column.get(column, (0.0, 1.0))
            longer: dict[tuple[int, ...], float] = {}
            for product, factor in expansion.items():
                for key, part in (((*product, column), 1.0), (product, -mean)):
                    longer[key] = longer.get(key, 0.0) + factor * part / sd
            expansion = longer
        for product, factor in expansion.items():
            if factor:
                out[position[tuple(sorted(product))], 1 + k] += factor
    return out


def in_unit(layout: Layout, centred: bool, scaled: bool) -> Layout:
    """Return the layout for numeric regressors that are only centred or only scaled."""
    assert layout.numbers is not None  # noqa: S101  # checked by its callers
    origin = np.where(layout.is_number, 0.0, np.nan)
    means, spreads = layout.numbers.T
    moved = copy.copy(layout)
    moved.numbers = np.column_stack(
        [means if centred else origin, spreads if scaled else origin + 1.0]
    )
    return moved


def centred_factors(
    layout: Layout, theta: np.ndarray
) -> tuple[list[tuple[tuple[int, ...], np.ndarray]], np.ndarray]:
    """Return the tables for centred numeric regressors and the remaining constants (K,).

    The tables have the form of `Layout.factors`, except that the axis of a numeric regressor has
    length one: the table is multiplied by the deviation of the regressor from its mean.
    """
    to_numbers = to_raw(in_unit(layout, centred=True, scaled=False))
    assert to_numbers is not None  # noqa: S101  # there are numbers
    raw = np.column_stack([np.zeros(len(theta)), theta])
    centred = np.linalg.solve(to_numbers, raw.T).T
    factors = []
    for scope, table in layout.factors(centred[:, 1:])[: len(layout.scopes)]:
        slopes = tuple(slice(1, 2) if layout.is_number[i] else slice(None) for i in scope)
        factors.append((scope, table[(slice(None), *slopes)]))
    return factors, centred[:, 0]
