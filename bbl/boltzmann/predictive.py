"""Posterior predictive: energies of rows averaged over T posterior draws of the parameters, each
with its own ln Z.

An *energy* is the exponent of P(row | group), ln P(row | group) + ln Z. n is the number of rows, m
of predictors, K of groups, D of non-reference levels. A chain is a run of the sampler;
``fit.draws`` (chains, draws, size) are the draws of a group, None without rows.
``fit.state["hidden"]`` holds such draws of models with hidden units, which are unobserved two-level
predictors, behind the observed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bbl.engines import EngineFit
from bbl.model.ais import annealed_log_z
from bbl.model.layout import Layout
from bbl.model.logz import exact_log_z
from bbl.model.marginal import MarginalEnergy

__all__ = ["AVERAGED", "Predictive", "build_predictive", "thinned"]

# draws that predictions average over, by how their ln Z is computed
AVERAGED = {"exact": 200, "ais": 50}
ANNEALING_STEPS = 100  # for each draw: errors of ln Z of 0.01 to 0.05, which average out over draws
ANNEALING_CHAINS = 256  # for each draw
# entries of the coupling matrices (D, D) of all draws whose energies are computed together
MAX_COUPLINGS = 2**22


@dataclass(frozen=True)
class Predictive:
    """Draws of the parameters of K groups, and the energies of rows averaged over them.

    Attributes
    ----------
    layout : Layout
        Of the predictors and the hidden units behind them.
    theta : ndarray, shape (K, T, layout.size)
        Draws of the parameters.
    log_z : ndarray, shape (K, T)
        ln Z of each draw.
    hidden : int
        Number of hidden units, the last predictors of `layout`, which are summed out.
    """

    layout: Layout
    theta: np.ndarray
    log_z: np.ndarray
    hidden: int = 0

    def free_energy(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return the mean over draws of the energies of rows, shape (n, K), hidden units summed
        out.

        It stands for the energy at the mean of the draws, which models with hidden units do not
        have. Predictions average probabilities, not energies; see `energy`.
        """
        return np.column_stack(
            [
                np.concatenate(list(self.energies(g, codes, unknown)), axis=1).mean(axis=1)
                for g in range(len(self.theta))
            ]
        )

    def with_units(
        self, codes: np.ndarray, unknown: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return codes and unknown cells (n, m + hidden): hidden units are further predictors,
        unknown in every row.
        """
        if not self.hidden:
            return codes, unknown
        unknown = np.zeros(codes.shape, dtype=bool) if unknown is None else unknown
        unknown = np.pad(unknown, ((0, 0), (0, self.hidden)), constant_values=True)
        return np.pad(codes, ((0, 0), (0, self.hidden))), unknown

    def draw_probabilities(
        self, groups: np.ndarray, codes: np.ndarray, unknown: np.ndarray
    ) -> np.ndarray:
        """Return the probabilities (n, K T) of group and draw, given the known cells of rows.

        `groups` (n, K) are those of the groups; draws of one group are neighbours.
        """
        probabilities = []
        for g, p in enumerate(groups.T):
            log_p = np.concatenate(list(self.energies(g, codes, unknown)), axis=1) - self.log_z[g]
            log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
            probabilities.append(p[:, None] * np.exp(log_p))
        return np.column_stack(probabilities)

    def energies(
        self, g: int, codes: np.ndarray, unknown: np.ndarray | None
    ) -> Iterator[np.ndarray]:
        """Yield energies of rows under successive draws of group g, shape (n, number of draws in
        this chunk).
        """
        codes, unknown = self.with_units(codes, unknown)
        chunk_size = max(1, MAX_COUPLINGS // max(self.layout.D**2, 1))
        for first_draw in range(0, self.theta.shape[1], chunk_size):
            yield MarginalEnergy(self.layout, self.theta[g, first_draw : first_draw + chunk_size])(
                codes, unknown
            )

    def energy(self, shift: np.ndarray) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """Return a function of codes (n, m) and unknown cells (n, m), or None, to energies (n, K).

        The energy is here the logarithm of the row's mean probability over the draws plus the
        `shift` (K,) of the group, which callers subtract as if it were ln Z.
        """

        def averaged_energies(codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
            """Return the shifted logarithms (n, K) of mean probabilities over the draws."""
            return np.column_stack(
                [
                    self._log_mean_probability(g, codes, unknown) + shift[g]
                    for g in range(len(self.theta))
                ]
            )

        return averaged_energies

    def _log_mean_probability(
        self, g: int, codes: np.ndarray, unknown: np.ndarray | None
    ) -> np.ndarray:
        """Return ``ln((1/T) sum_t exp(energy_t - ln Z_t))`` of rows (n,), over the T draws of group
        g.
        """
        log_sum_p = np.full(len(codes), -np.inf)
        first_draw = 0
        for energies in self.energies(g, codes, unknown):
            log_z = self.log_z[g, first_draw : first_draw + energies.shape[1]]
            log_sum_p = np.logaddexp(log_sum_p, np.logaddexp.reduce(energies - log_z, axis=1))
            first_draw += energies.shape[1]
        return log_sum_p - np.log(self.theta.shape[1])

    def pseudo_log_likelihood(
        self, g: int, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``sum_i ln P(x_i | the other predictors)`` of rows under group g, shape (n,).

        Missing predictors are summed out, and have no term of their own in the sum.
        """
        out = np.zeros(len(codes))
        log_p = self._log_mean_probability(g, codes, missing)
        for i in range(codes.shape[1]):
            known = np.flatnonzero(~missing[:, i]) if missing is not None else np.arange(len(codes))
            unknown = np.zeros(codes.shape, dtype=bool) if missing is None else missing.copy()
            unknown[:, i] = True
            of_others = self._log_mean_probability(g, codes[known], unknown[known])
            out[known] += log_p[known] - of_others
        return out


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` of the draws (chains, draws, size), evenly spaced in each chain, shape
    (count, size).
    """
    n_chains, n_draws, size = draws.shape
    n_kept = min(max(count // n_chains, 1), n_draws)
    # [:count]: there may be more chains than `count`
    return draws[:, np.linspace(0, n_draws - 1, n_kept).round().astype(int)].reshape(-1, size)[
        :count
    ]


def build_predictive(
    layout: Layout,
    fits: Sequence[EngineFit],
    kind: str,
    starts: Sequence,
    rngs: Sequence[np.random.Generator],
    workers: int,
    hidden: int = 0,
) -> Predictive | None:
    """Return the draws of all groups with their ln Z; None if there are no draws or ln Z needs the
    rows.

    Parameters
    ----------
    layout : Layout
        Of the predictors, then of the hidden units.
    fits : sequence of EngineFit
        The fit of each group. A group without rows has no draws; it gets draws of zeros.
    kind : str
        How ln Z is computed. Only "exact" and "ais" need no rows.
    starts : sequence of ndarray, shape (D,)
        Fields of the predictors from which annealing starts in each group, for "ais".
    rngs : sequence of Generator
        Generator of each group, for "ais".
    workers : int
    hidden : int, default 0
        Number of hidden units.
    """
    draws_by_group = [
        fit.state["hidden"] if hidden and fit.draws is not None else fit.draws for fit in fits
    ]
    available_draws = [draws for draws in draws_by_group if draws is not None]
    if kind not in AVERAGED or not available_draws:
        return None
    # equal in all groups that have draws
    n_draws = len(thinned(available_draws[0], AVERAGED[kind]))
    no_draws = np.zeros((n_draws, layout.size))
    theta = np.array(
        [no_draws if draws is None else thinned(draws, n_draws) for draws in draws_by_group]
    )
    if kind == "exact":
        log_z = exact_log_z(layout, theta.reshape(-1, layout.size)).reshape(theta.shape[:2])
    else:
        annealing = (ANNEALING_STEPS, ANNEALING_CHAINS)  # hidden units start from fields of zero
        log_z = np.array(
            [
                [
                    annealed_log_z(
                        layout, draw, np.append(start, np.zeros(hidden)), *annealing, rng, workers
                    ).log_z
                    for draw in group_theta
                ]
                for group_theta, start, rng in zip(theta, starts, rngs, strict=True)
            ]
        )
    return Predictive(layout, theta, log_z, hidden)
