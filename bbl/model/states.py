"""Simulation with plain arrays: samples from given models or groups, and random parameters.

Equation numbers refer to Woo & Wang (2022).
"""

from __future__ import annotations

import math

import numpy as np

from bbl.checks import choice, generator, integer, real
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.chains import gibbs
from bbl.model.higher import Tables, split
from bbl.model.layout import Layout
from bbl.model.listing import MAX_STATES, state_codes, state_energies
from bbl.model.regressors import check_levels
from bbl.model.support import Support
from bbl.rows.sample import code_dtype

__all__ = ["random_parameters", "sample_groups", "sample_states"]

CHAINS = 256  # maximum number of Gibbs chains
BURN_IN = 1000  # sweeps of a chain before its first draw
THIN = 10  # sweeps between the draws of a chain


def sample_states(
    h,
    J,
    n_levels,
    nsample: int = 1,
    rng=None,
    burn_in: int = BURN_IN,
    thin: int = THIN,
    more: Tables | None = None,
    support: Support | None = None,
) -> np.ndarray:
    """Draw states from ``P(x) ~ exp(sum h_i(x_i) + sum J_ij(x_i, x_j) + ...)`` (eq. 6; R's
    ``sample_xi``).

    If there are at most 2**20 states, all states are enumerated, and the draws are exact and
    independent. Otherwise, min(nsample, 256) Gibbs chains start from random states. The first
    `burn_in` sweeps are dropped, and every `thin`-th state is kept. Up to 256 draws are then
    independent, and larger samples are nearly independent. Draws are in random order.

    Parameters
    ----------
    h : array_like, shape (D,)
        Fields of the non-reference levels.
    J : array_like, shape (D, D)
        Symmetric couplings (see `bbl.model.regressors.to_matrix`).
    n_levels : array_like of int, shape (m,)
    nsample : int, default 1
        Number of draws; may be 0.
    rng : numpy.random.Generator, int or None
    burn_in : int, default 1000
        Number of sweeps before a chain's first draw. Increase it for strong couplings.
    thin : int, default 10
        Number of sweeps between the draws of a chain.
    more : Tables, optional
        Couplings of terms with three or more predictors (see `bbl.model.higher.split`).
    support : Support, optional
        The possible states of one group, if there are structural zeros. In this case, the number of
        states must be at most 2**20.

    Returns
    -------
    ndarray of uint8, uint16 or int32, shape (nsample, m)

    Examples
    --------
    >>> sample_states([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2], 3, rng=1).shape
    (3, 2)
    """
    nsample = integer("nsample", nsample, 0)
    burn_in = integer("burn_in", burn_in, 0)
    thin = integer("thin", thin, 1)
    rng = generator(rng)
    levels = check_levels(n_levels)
    check_memory(8.0 * nsample * levels.size, f"A sample of {nsample} rows", "Request fewer rows.")
    return _draw_states(h, J, levels, nsample, rng, burn_in, thin, more, support)


def _draw_states(
    h,
    J,
    levels: np.ndarray,
    nsample: int,
    rng: np.random.Generator,
    burn_in: int,
    thin: int,
    more: Tables | None,
    support: Support | None,
) -> np.ndarray:
    """Draw states (nsample, m).

    The other arguments have already been validated; the model is validated by the function that
    enumerates or samples its states.
    """
    n_states = math.prod(levels.tolist())
    if nsample == 0 or n_states <= MAX_STATES:
        return _sample_listed(h, J, levels, nsample, rng, more, support)
    if support is not None:
        raise OptionError(
            "Sampling from a model with structural zeros requires a list of all states, at most "
            f"{MAX_STATES:,}, but {len(levels)} predictors have {n_states:.3g}.",
            argument="structural_zeros",
            hint="Fit a model with fewer predictors.",
        )
    n_chains = min(nsample, CHAINS)
    draws_per_chain = -(-nsample // n_chains)  # rounded up
    n_sweeps = draws_per_chain * thin  # after the burn-in
    samples = gibbs(h, J, levels, n_sweeps, n_chains, rng, burn_in, thin, more=more)
    draws = np.asarray(samples.draws).reshape(-1, levels.size)  # from (chains, draws per chain, m)
    return draws[rng.permutation(len(draws))[:nsample]]


def _sample_listed(
    h,
    J,
    levels: np.ndarray,
    nsample: int,
    rng: np.random.Generator,
    more: Tables | None,
    support: Support | None,
) -> np.ndarray:
    """Draw independent states (nsample, m) by enumerating all states."""
    if nsample == 0:
        return np.empty((0, levels.size), dtype=code_dtype(levels))
    energies = state_energies(h, J, levels, more)
    if support is not None:
        # [0]: the support of the only group
        energies[~support.states(tuple(levels.tolist()))[0]] = -np.inf
    cumulative = np.cumsum(np.exp(energies - energies.max()))
    # Invert the cumulative distribution at uniform random numbers. With side="right", states of
    # probability 0, which do not change the cumulative sum, are never drawn. A product may be
    # rounded up to the last sum; the minimum then selects the first state with that sum, the last
    # one with positive probability.
    state_indices = np.searchsorted(cumulative, rng.random(nsample) * cumulative[-1], side="right")
    return state_codes(
        np.minimum(state_indices, np.searchsorted(cumulative, cumulative[-1])), levels
    )


def sample_groups(
    layout: Layout,
    theta: np.ndarray,
    nsample: int,
    prob=None,
    rng=None,
    burn_in: int = BURN_IN,
    thin: int = THIN,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw response groups and, given the group, predictors (R's ``randomsamp``).

    The group of each row is drawn independently, so the groups are in random order and a small
    group may not have any rows.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (K, layout.size)
        One parameter vector per group.
    nsample : int
        Number of rows.
    prob : array_like, shape (K,), optional
        Probabilities of the groups, up to a common factor; by default, all equal.
    rng : numpy.random.Generator, int or None
    burn_in, thin : int
        See `sample_states`.

    Returns
    -------
    codes : ndarray of uint8, uint16 or int32, shape (nsample, m)
    y : ndarray of intp, shape (nsample,)

    Examples
    --------
    >>> codes, y = sample_groups(Layout([2, 3]), np.zeros((2, 5)), 10, rng=1)
    >>> codes.shape, y.shape
    ((10, 2), (10,))
    """
    nsample = integer("nsample", nsample, 0)
    burn_in = integer("burn_in", burn_in, 0)
    thin = integer("thin", thin, 1)
    rng = generator(rng)
    K = len(theta)
    group_weights = np.ones(K) if prob is None else np.asarray(prob)
    if (
        group_weights.shape != (K,)
        or group_weights.dtype.kind not in "iuf"
        or not (np.isfinite(group_weights) & (group_weights >= 0)).all()
        or not group_weights.sum() > 0
    ):
        raise OptionError(
            f"prob must contain {K} non-negative numbers, one per group and not all 0; got "
            f"{prob!r}.",
            argument="prob",
            value=prob,
        )
    check_memory(
        8.0 * nsample * (layout.m + 2), f"A sample of {nsample} rows", "Request fewer rows."
    )
    y = rng.choice(K, size=nsample, p=group_weights / group_weights.sum())
    codes = np.empty((nsample, layout.m), dtype=code_dtype(layout.n_levels))
    for k in range(K):
        rows = np.flatnonzero(y == k)
        # fields (D,), couplings (D, D), terms of three or more predictors
        h, J, higher_terms = split(layout, theta[k])
        # the states that can occur in this group; None for all
        support = layout.of_group(k).support
        codes[rows] = _draw_states(
            h, J, layout.n_levels, len(rows), rng, burn_in, thin, higher_terms, support
        )
    return codes, y.astype(np.intp)


def random_parameters(
    layout: Layout,
    distr: str = "unif",
    h0: float = 0.0,
    dh: float = 1.0,
    J0: float = 0.0,
    dJ: float = 1.0,
    rng=None,
    n_groups: int = 1,
) -> np.ndarray:
    """Draw random fields and couplings (R's ``randompar``).

    Parameters
    ----------
    layout : Layout
    distr : {"unif", "norm"}, default "unif"
        ``"unif"``: fields uniform in [h0 - dh, h0 + dh], couplings in [J0 - dJ, J0 + dJ].
        ``"norm"``: normal with means h0, J0 and standard deviations dh, dJ.
    h0, J0 : float, default 0
    dh, dJ : float, default 1
        Half-widths or standard deviations; must not be negative.
    rng : numpy.random.Generator, int or None
    n_groups : int, default 1

    Returns
    -------
    ndarray of float64, shape (n_groups, layout.size)

    Examples
    --------
    >>> random_parameters(Layout([2, 3]), rng=1, n_groups=2).shape
    (2, 5)
    """
    distr = choice("distr", distr, ("unif", "norm"))
    h0 = real("h0", h0)
    J0 = real("J0", J0)
    dh = real("dh", dh, 0.0)
    dJ = real("dJ", dJ, 0.0)
    shape = (integer("n_groups", n_groups, 1), layout.size)
    rng = generator(rng)
    standardised = rng.uniform(-1.0, 1.0, shape) if distr == "unif" else rng.standard_normal(shape)
    is_field = np.arange(layout.size) < layout.D
    return np.where(is_field, h0, J0) + np.where(is_field, dh, dJ) * standardised
