"""The model of some predictors given the levels of all others, and the probabilities of its levels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.errors import OptionError
from bbl.model.chains import gibbs
from bbl.model.conditional import normalised
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.fields import Fields
from bbl.model.higher import split
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot

__all__ = ["MARGINS", "Clamped", "exact_margins", "gibbs_margins", "margins", "mean_field_margins"]

MARGINS = ("auto", "exact", "gibbs", "mf")
CELLS = 2**19  # table cells of all margins up to which "auto" is exact
LARGEST = 3e7  # and up to which they can be
BLOCK = 2**20  # table cells of rows that go together
CHAINS = 32
BURN_IN = 50  # sweeps before the first draw
SWEEPS = 200  # after the burn-in
THIN = 5  # sweeps between draws
DAMPING = 0.8  # share of the new margins in a mean-field step
MEAN_FIELD_TOLERANCE = 1e-10  # largest change of a margin at which mean field has converged
MEAN_FIELD_ITERATIONS = 2000


class Part(NamedTuple):
    """Predictors that hang together, the order in which they are eliminated, and the table cells that takes."""

    own: np.ndarray
    order: list[int]
    cost: float


class Clamped:
    """The model of the predictors `unknown`, given the others: a smaller Boltzmann machine.

    A parameter between known and unknown predictors becomes one of the unknown predictors alone, where the known ones
    are at its levels.

    Parameters
    ----------
    layout : Layout
    unknown : ndarray of int, shape (u,)
        In rising order.

    Attributes
    ----------
    layout : Layout
        Of the smaller model.

    Examples
    --------
    >>> given = Clamped(Layout([2, 2]), np.array([0]))
    >>> given.theta(np.array([1.0, 2.0, 4.0]), np.array([[0, 1], [0, 0]], dtype=np.uint8))
    array([[5.],
           [1.]])
    """

    def __init__(self, layout: Layout, unknown: np.ndarray):
        self._whole = layout
        columns = term_columns(layout)
        number = np.full(layout.D + 1, layout.D)  # columns of what is unknown, numbered anew; D for the others
        columns_of_unknown = layout.columns(unknown)
        number[columns_of_unknown] = np.arange(len(columns_of_unknown))
        inside = np.sort(number[columns], axis=0)
        self._source = np.flatnonzero(inside[0] < layout.D)
        inside = inside[:, self._source]
        source_columns = columns[:, self._source]
        self._given = np.where(
            number[source_columns] < layout.D, layout.D, source_columns
        )  # D, and -1, stand for what always holds
        site = np.append(np.repeat(np.arange(len(unknown)), layout.n_levels[unknown] - 1), -1)
        order = (inside < layout.D).sum(axis=0)
        terms = [
            np.unique(site[inside[:k, order == k]].T, axis=0) for k in range(2, layout.order + 1) if (order == k).any()
        ]
        self.layout = Layout(layout.n_levels[unknown], terms)
        base = len(columns_of_unknown) + 1
        keys = _keys(np.where(inside < layout.D, inside, len(columns_of_unknown)), base)
        level_columns = term_columns(self.layout)
        pad = (
            np.full((len(inside) - len(level_columns), level_columns.shape[1]), -1)
            if len(inside) > len(level_columns)
            else level_columns[:0]
        )
        level_columns = np.concatenate([level_columns, pad])[: len(inside)]
        own_keys = _keys(np.where(level_columns < 0, len(columns_of_unknown), level_columns), base)
        rank = np.argsort(own_keys)
        self._to = rank[np.searchsorted(own_keys[rank], keys)]

    def theta(self, theta: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the parameters (n, size) of the smaller model in each of the rows `codes` (n, m)."""
        X = np.column_stack([one_hot(codes, self._whole), np.ones(len(codes))])
        value = theta[self._source]
        out = np.empty((len(codes), self.layout.size))
        for row, x in zip(out, X, strict=True):
            row[:] = np.bincount(self._to, value * x[self._given].prod(axis=0), self.layout.size)
        return out


def _keys(columns: np.ndarray, base: int) -> np.ndarray:
    """Return one number for each set of columns (order, T)."""
    key = np.zeros(columns.shape[1], dtype=object if base ** len(columns) > 2**62 else np.int64)
    for column in columns:
        key = key * base + column
    return key


def margins(layout: Layout, theta: np.ndarray, method: str, rng: np.random.Generator) -> np.ndarray:
    """Return the probability of every non-reference level in several models of one layout.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (n, layout.size)
    method : {"auto", "exact", "gibbs", "mf"}
        By elimination, Gibbs sampling or mean field; "auto" is exact where that is cheap, else samples.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (n, layout.D)

    Raises
    ------
    OptionError
        If the exact ones are asked for, and would take over 3e7 table cells for a row.
    """
    if method in ("auto", "exact"):
        parts = _parts(layout, CELLS if method == "auto" else LARGEST)
        if parts is not None:
            rows = max(1, int(BLOCK / max(layout.D, *(cost for *_, cost in parts))))
            return np.concatenate(
                [exact_margins(layout, theta[k : k + rows], parts) for k in range(0, len(theta), rows)]
            )
        if method == "exact":
            raise OptionError(
                f"method='exact' would sum over more than {LARGEST:.0e} table cells for {layout.m} unknown predictors "
                f"in one row; use method='gibbs' or 'mf'.",
                argument="method",
            )
    if method == "mf":
        return np.array([mean_field_margins(layout, parameters) for parameters in theta])
    return np.array([gibbs_margins(layout, parameters, rng) for parameters in theta])


def _parts(layout: Layout, limit: float) -> list[Part] | None:
    """Return what hangs together; None if the margins of all of it take over `limit` table cells."""
    from scipy.sparse.csgraph import connected_components

    n, of = connected_components(layout.mask, directed=False)
    out: list[Part] = []
    cost = 0.0
    for component in range(n):
        members = np.flatnonzero(of == component)
        elimination = elimination_order(layout.n_levels[members], layout.mask[np.ix_(members, members)], limit)
        if elimination is None:
            return None
        cost += elimination[1] * (len(members) if len(members) > 1 else 0)
        if cost > limit:
            return None
        out.append(Part(members, members[elimination[0]].tolist(), elimination[1]))
    return out


def exact_margins(layout: Layout, theta: np.ndarray, parts: list[Part]) -> np.ndarray:
    """Return `margins` by eliminating all other predictors of each part."""
    out, factors = np.empty((len(theta), layout.D)), layout.factors(theta)
    for component, order, _ in parts:
        members = set(component.tolist())
        inside = [(scope, table) for scope, table in factors if scope[0] in members]
        for i in component:
            log_p = log_sum(inside, [k for k in order if k != i])
            p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
            out[:, layout.start[i] : layout.start[i + 1]] = (p / p.sum(axis=1, keepdims=True))[:, 1:]
    return out


def gibbs_margins(layout: Layout, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return `margins` (D,) of one model: means of conditional probabilities over Gibbs draws."""
    h, J, higher_terms = split(layout, theta)
    samples = gibbs(h, J, layout.n_levels, SWEEPS, CHAINS, rng, BURN_IN, THIN, keep_draws=True, more=higher_terms)
    draws = np.asarray(samples.draws).reshape(-1, layout.m)
    return normalised(Fields(layout, theta)(one_hot(draws, layout)), layout)[1].mean(axis=0)


def mean_field_margins(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the damped mean field ``r <- .2 r + .8 P(x | r)`` (D,) of one model, a fixed point of it."""
    fields = Fields(layout, theta)
    r = normalised(theta[None, : layout.D], layout)[1]
    for _ in range(MEAN_FIELD_ITERATIONS):
        step = normalised(fields(r), layout)[1] - r
        r = r + DAMPING * step
        if np.abs(step).max(initial=0.0) < MEAN_FIELD_TOLERANCE:
            break
    return r[0]
