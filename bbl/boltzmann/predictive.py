"""Posterior predictive: energies of rows averaged over draws of the parameters, each with a ln Z of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bbl.engines import EngineFit
from bbl.model.ais import annealed_log_z
from bbl.model.elimination import log_sum
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy

__all__ = ["AVERAGED", "Predictive", "predictive", "thinned"]

AVERAGED = {"exact": 200, "ais": 50}  # draws that predictions average over, by how their ln Z is computed
CELLS = 2**22  # couplings of draws that are laid out at a time


@dataclass(frozen=True)
class Predictive:
    """Draws of the parameters of K groups, and what they say of rows together.

    Attributes
    ----------
    layout : Layout
    theta : ndarray, shape (K, T, layout.size)
    log_z : ndarray, shape (K, T)
    """

    layout: Layout
    theta: np.ndarray
    log_z: np.ndarray

    def energy(self, shift: np.ndarray) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """Return a function of codes and what is unknown of them, with the energies (n, K) that go with ln Z `shift`.

        Less the `shift` (K,) of its group, an energy is the logarithm of the mean over the draws of a row's probability.
        """

        def averaged(codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
            return np.column_stack([self._group(g, codes, unknown) + shift[g] for g in range(len(self.theta))])

        return averaged

    def _group(self, g: int, codes: np.ndarray, unknown: np.ndarray | None) -> np.ndarray:
        """Return ln of the mean probability (n,) of rows in a group."""
        step = max(1, CELLS // max(self.layout.D**2, 1))
        total = np.full(len(codes), -np.inf)
        for lo in range(0, self.theta.shape[1], step):
            energy = MarginalEnergy(self.layout, self.theta[g, lo : lo + step])(codes, unknown)
            total = np.logaddexp(total, np.logaddexp.reduce(energy - self.log_z[g, lo : lo + step], axis=1))
        return total - np.log(self.theta.shape[1])


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` draws (count, size) of draws (chains, draws, size), evenly spaced in each chain."""
    chains, n, size = draws.shape
    each = min(max(count // chains, 1), n)
    return draws[:, np.linspace(0, n - 1, each).round().astype(int)].reshape(-1, size)[:count]


def predictive(
    layout: Layout,
    fits: Sequence[EngineFit],
    kind: str,
    order: Sequence[int],
    starts: Sequence[np.ndarray],
    rngs: Sequence[np.random.Generator],
    workers: int,
) -> Predictive | None:
    """Return the draws of all groups with their ln Z; None where there are no draws, or no ln Z of a draw alone.

    Parameters
    ----------
    layout : Layout
    fits : sequence of EngineFit
        Of each group. One without rows has no draws; its parameters stand in for them.
    kind : str
        How ln Z is computed: only "exact" and "ais" can be of a draw.
    order : sequence of int
        Of the elimination, for "exact".
    starts : sequence of ndarray, shape (layout.D,)
        Where annealing starts from in each group, for "ais".
    rngs : sequence of Generator
    workers : int
    """
    given = [fit.draws for fit in fits if fit.draws is not None]
    if kind not in AVERAGED or not given:
        return None
    count = len(thinned(given[0], AVERAGED[kind]))
    theta = np.array([
        np.tile(fit.theta, (count, 1)) if fit.draws is None else thinned(fit.draws, count) for fit in fits
    ])
    flat = theta.reshape(-1, layout.size)
    if kind == "exact":
        log_z = log_sum(layout.factors(flat), order).reshape(theta.shape[:2])
    else:
        log_z = np.array([
            [annealed_log_z(layout, own, start, rng=rng, n_jobs=workers).log_z for own in group]
            for group, start, rng in zip(theta, starts, rngs, strict=True)
        ])
    return Predictive(layout, theta, log_z)
