"""Sampling from machines with hidden units, averaged over posterior draws.

The model for a group is a mixture of T machines, the posterior draws in a `Predictive`: P(x) is the
mean over draws of P(x | draw), marginalised over the hidden units, which are the last predictors of
each machine. A *sweep* draws every unit and predictor once. C and m are the numbers of chains and
predictors, and D is the number of non-reference levels of predictors and units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.fitted import Predictive
from bbl.memory import check_memory
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.listing import MAX_STATES, state_codes, state_energies
from bbl.model.moments import one_hot
from bbl.model.regressors import to_matrix
from bbl.model.states import BURN_IN, CHAINS, THIN
from bbl.parallel import serial_blas
from bbl.rows.sample import code_dtype

__all__ = ["MixtureChains", "MixtureDraws", "draw_chains", "sample_mixture"]

# Rows are drawn from lists of all states if the number of states times draws is at most this.
MAX_LISTED = 2**24
SWITCH = 10  # number of sweeps after which a chain chooses a new posterior draw


@dataclass(frozen=True)
class MixtureDraws:
    """Draws from `MixtureChains`, and the most probable state that was visited.

    Attributes
    ----------
    best : ndarray of int, shape (m,)
        Most probable state of the predictors that the chains visited.
    best_energy : float
        Log-probability of this state plus the `shift`.
    draws : ndarray of int, shape (C, n_draws, m)
    energy : ndarray, shape (C, n_draws)
        Log-probabilities of `draws` plus the `shift`.
    """

    best: np.ndarray
    best_energy: float
    draws: np.ndarray
    energy: np.ndarray


class MixtureChains:
    """Gibbs chains for the mixture of group g, over posterior draws, predictors and units.

    Each chain regularly resamples its posterior draw given the predictors, which makes the chains
    converge to the mixture. The units, which still belong to the previous draw, are then sampled
    given the predictors and the new draw. Units that are coupled to each other cannot be sampled
    simultaneously. In this case, the posterior draw is sampled given both units and predictors.
    """

    def __init__(self, predictive: Predictive, g: int, n_chains: int, rng: np.random.Generator):
        layout = predictive.layout
        T = predictive.theta.shape[1]
        self.m = layout.m - predictive.hidden
        D = layout.D
        # couplings of all draws and of each chain's draw, in single precision
        check_memory(
            4.0 * D**2 * (T + n_chains),
            f"Gibbs sampling of {T} draws with {D} levels",
            "Use fewer chains, predictors or hidden units.",
        )
        self.layout = layout
        self.rng = rng
        self.predictive = predictive
        self.g = g
        self.h = predictive.theta[g, :, :D].astype(np.float32)
        self.J = np.empty((T, D, D), dtype=np.float32)
        for t, theta in enumerate(predictive.theta[g]):
            self.J[t] = to_matrix(layout, theta)[1]
        self.log_z = predictive.log_z[g]
        is_coupled = layout.mask[self.m :, self.m :].any()
        self.complete = Energy(layout, predictive.theta[g]) if is_coupled else None
        self.blocks = [_Block(layout, sites) for sites in _independent_sets(layout, self.m)]
        self.codes = np.empty((n_chains, layout.m), dtype=code_dtype(layout.n_levels))
        for i, L in enumerate(layout.n_levels):
            self.codes[:, i] = rng.integers(0, L, n_chains)
        self.X = one_hot(self.codes, layout, dtype=np.float32)
        # draws are equally probable: the numbers of chains starting at each differ by at most one
        self._take(rng.permutation(np.arange(n_chains) * T // n_chains))

    @property
    def visible(self) -> np.ndarray:
        """Current states (C, m) of the predictors."""
        return self.codes[:, : self.m]

    def _take(self, draw: np.ndarray) -> None:
        """Set the parameters of each chain to those of its posterior draw in `draw` (C,)."""
        for block in self.blocks:
            block.take(self.h, self.J, draw)

    def _switch(self, log_p: np.ndarray) -> None:
        """Sample a posterior draw for each chain, with log-probabilities `log_p` (C, T)."""
        if self.complete is not None:
            log_p = self.complete(self.codes) - self.log_z
        # Gumbel trick: the argmax of log-probabilities plus Gumbel noise is a random draw
        self._take((log_p + self.rng.gumbel(size=log_p.shape)).argmax(axis=1))

    def _sweep(self) -> None:
        """Draw all units and predictors, one independent set at a time."""
        for block in self.blocks:
            block.draw(self.codes, self.X, self.rng)

    def run(self, burn_in: int, n_sweeps: int, thin: int, shift: float) -> MixtureDraws:
        """Run the chains, keeping every `thin`-th state after `burn_in` sweeps."""
        n_draws = n_sweeps // thin
        draws = np.empty((len(self.codes), n_draws, self.m), dtype=self.codes.dtype)
        energy = np.empty(draws.shape[:2])
        best = self.visible[0].copy()
        best_energy = -np.inf
        log_T = np.log(len(self.log_z))
        with serial_blas():
            for sweep in range(1, burn_in + n_sweeps + 1):
                self._sweep()
                kept = (sweep - burn_in) // thin
                is_kept = sweep == burn_in + kept * thin and 0 < kept <= n_draws
                if not is_kept and sweep % SWITCH:
                    continue
                energies = self.predictive.energies(self.g, self.visible, None)
                log_p = np.concatenate(list(energies), axis=1) - self.log_z
                row_energy = np.logaddexp.reduce(log_p, axis=1) - log_T + shift
                highest = int(row_energy.argmax())
                if row_energy[highest] > best_energy:
                    best = self.visible[highest].copy()
                    best_energy = float(row_energy[highest])
                if is_kept:
                    draws[:, kept - 1] = self.visible
                    energy[:, kept - 1] = row_energy
                if sweep % SWITCH == 0:
                    self._switch(log_p)
        return MixtureDraws(best, best_energy, draws, energy)


class _Block:
    """Predictors or units that do not interact and can therefore be drawn simultaneously.

    Attributes
    ----------
    sites : ndarray of int, shape (s,)
    columns : ndarray of int, shape (B,)
        Columns of these sites among the D columns.
    places : ndarray of int, shape (B,)
        Position (C order) of each column in a table (s, L) of all levels.
    """

    def __init__(self, layout: Layout, sites: np.ndarray):
        widths = layout.n_levels[sites] - 1
        self.sites = sites
        self.columns = layout.columns(sites)
        self.L = int(widths.max(initial=0)) + 1
        level = np.concatenate([np.arange(1, width + 1) for width in widths])
        self.places = np.repeat(np.arange(len(sites)), widths) * self.L + level

    def take(self, h: np.ndarray, J: np.ndarray, draw: np.ndarray) -> None:
        """Copy the fields (C, B) and couplings (C, B, D) of each chain's posterior draw."""
        self.h = h[draw][:, self.columns]
        self.J = J[draw[:, None], self.columns]

    def draw(self, codes: np.ndarray, X: np.ndarray, rng: np.random.Generator) -> None:
        """Draw the levels of all sites, given the other predictors and units.

        `codes` (C, m) and the indicators `X` (C, D) are updated in place.
        """
        n_chains = len(codes)
        field = self.h + np.matmul(self.J, X[:, :, None])[:, :, 0]
        # the field of the reference level is 0; positions without a level are never the largest
        table = np.full((n_chains, len(self.sites) * self.L), -np.inf, dtype=np.float32)
        table[:, :: self.L] = 0.0
        table[:, self.places] = field
        table += rng.gumbel(size=table.shape)
        levels = table.reshape(n_chains, len(self.sites), self.L).argmax(axis=2)
        codes[:, self.sites] = levels
        X[:, self.columns] = np.eye(self.L, dtype=np.float32)[levels].reshape(n_chains, -1)[
            :, self.places
        ]


def _independent_sets(layout: Layout, m: int) -> list[np.ndarray]:
    """Partition the units, and then the predictors, into sets of sites that do not interact.

    The first `m` predictors in the layout are visible; the others are units. Sets of units are
    listed first because they are drawn before the predictors.
    """
    sets: list[list[int]] = []
    for sites in (range(m, layout.m), range(m)):
        first = len(sets)
        for site in sites:
            for members in sets[first:]:
                if not layout.mask[site, members].any():
                    members.append(site)
                    break
            else:
                sets.append([site])
    return [np.array(members) for members in sets]


def draw_chains(
    predictive: Predictive,
    g: int,
    counts: tuple[int, int, int],
    thin: int,
    shift: float,
    rng: np.random.Generator,
) -> MixtureDraws:
    """Draw rows of group g, exactly or from Gibbs chains.

    `counts` contains the numbers of chains, burn-in sweeps and sweeps after burn-in. Draws are
    exact and independent if all states of predictors and units can be listed for every posterior
    draw; otherwise, they come from Gibbs chains. `shift` is added to log-probabilities to convert
    them to energies.
    """
    n_chains, burn_in, n_sweeps = counts
    if not _can_list(predictive):
        return MixtureChains(predictive, g, n_chains, rng).run(burn_in, n_sweeps, thin, shift)
    levels = _visible_levels(predictive)
    log_p = _listed(predictive, g)
    p = np.exp(log_p)
    states = rng.choice(len(p), size=(n_chains, burn_in + n_sweeps), p=p / p.sum())
    best = int(states.ravel()[log_p[states].argmax()])
    kept = states[:, burn_in + thin - 1 :: thin]
    draws = state_codes(kept.ravel(), levels).reshape(*kept.shape, len(levels))
    return MixtureDraws(
        state_codes([best], levels)[0], float(log_p[best]) + shift, draws, log_p[kept] + shift
    )


def _visible_levels(predictive: Predictive) -> np.ndarray:
    """Return the number of levels (m,) of each predictor, excluding units."""
    return predictive.layout.n_levels[: predictive.layout.m - predictive.hidden]


def _can_list(predictive: Predictive) -> bool:
    """Return whether all states of predictors and units can be listed for every posterior draw."""
    n_states = math.prod(predictive.layout.n_levels.tolist())
    return n_states <= MAX_STATES and n_states * predictive.theta.shape[1] <= MAX_LISTED


def _listed(predictive: Predictive, g: int) -> np.ndarray:
    """Return the log-probabilities of all states of the predictors in group g.

    States have the same order as in `bbl.model.listing.state_codes`.
    """
    layout = predictive.layout.without_constants()
    n_units = 2**predictive.hidden
    log_p = np.full(math.prod(_visible_levels(predictive).tolist()), -np.inf)
    for theta, log_z in zip(predictive.theta[g], predictive.log_z[g], strict=True):
        energies = state_energies(*to_matrix(layout, theta), layout.n_levels)
        # the units are the last predictors, which vary fastest
        summed_out = np.logaddexp.reduce(energies.reshape(-1, n_units), axis=1)
        log_p = np.logaddexp(log_p, summed_out - log_z)
    return log_p - np.log(predictive.theta.shape[1])


def sample_mixture(
    predictive: Predictive, shares: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw groups (n,) with probabilities `shares` (K,), and rows (n, m) from their mixtures.

    Rows are exact and independent draws if all states of predictors and units can be listed for
    every posterior draw; otherwise, they are states of Gibbs chains, as in
    `bbl.model.states.sample_states`.
    """
    levels = _visible_levels(predictive)
    check_memory(8.0 * n * (len(levels) + 2), f"A sample of {n} rows", "Request fewer rows.")
    y = rng.choice(len(shares), size=n, p=shares / shares.sum())
    codes = np.empty((n, len(levels)), dtype=code_dtype(levels))
    for g in range(len(shares)):
        rows = np.flatnonzero(y == g)
        if len(rows):
            codes[rows] = _sample_group(predictive, g, len(rows), rng)
    return codes, y


def _sample_group(predictive: Predictive, g: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows (n, m) of group g."""
    levels = _visible_levels(predictive)
    if _can_list(predictive):
        p = np.exp(_listed(predictive, g))
        return state_codes(rng.choice(len(p), size=n, p=p / p.sum()), levels)
    n_chains = min(n, CHAINS)
    n_draws = -(-n // n_chains)  # draws per chain, rounded up
    chains = MixtureChains(predictive, g, n_chains, rng)
    rows = chains.run(BURN_IN, n_draws * THIN, THIN, 0.0).draws.reshape(-1, len(levels))
    return rows[rng.permutation(len(rows))[:n]]
