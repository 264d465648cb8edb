"""Annealed importance sampling of ln Z, starting from the independent model (Neal 2001)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.checks import generator
from bbl.model.chains import Chains
from bbl.model.elimination import log_sum
from bbl.model.energy import Energy
from bbl.model.higher import split
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.moments import frequencies, log_ratio
from bbl.rows.on_disk import Rows

__all__ = [
    "N_CHAINS",
    "N_STEPS",
    "AnnealedLogZ",
    "annealed_log_z",
    "annealing_seconds",
    "annealing_start",
]

N_STEPS = 500  # temperatures
N_CHAINS = 512  # independent chains; each yields one importance weight
# measured by benchmarks.studies.annealing
UPDATE_SECONDS = 2e-8  # per update of one predictor in one chain
COUPLING_SECONDS = 1e-10  # added for each non-reference level of the model
TERM_SECONDS = 3e-9  # per lookup of a coupling between three or more predictors


@dataclass(frozen=True)
class AnnealedLogZ:
    """Estimate of ln Z with its standard error."""

    log_z: float
    standard_error: float  # of `log_z`, from the spread of the chains' weights w
    ess: float  # effective sample size, (sum w)^2 / sum w^2; if it is small, use more steps


def annealing_seconds(layout: Layout, n_steps: int = N_STEPS, n_chains: int = N_CHAINS) -> float:
    """Return the expected run time in seconds of `annealed_log_z` on one core.

    The result is accurate to within a factor of about three.

    Examples
    --------
    >>> annealing_seconds(Layout([2] * 100)) < 1.0
    True
    """
    lookups = TERM_SECONDS * sum(
        terms.size for terms in layout.terms[1:]
    )  # a sweep looks up each term once per member
    return (
        n_steps * n_chains * (layout.m * (UPDATE_SECONDS + COUPLING_SECONDS * layout.D) + lookups)
    )


def annealing_start(rows: Rows, layout: Layout) -> np.ndarray:
    """Return half the naive Bayes fields (D,). They define the independent model where annealing
    starts.

    The fields of naive Bayes are the log odds of each level against the reference level, here with
    a prior count of 1. Naive Bayes itself misses rare modes. Halving its fields flattens the
    distribution, which makes it more likely that some chains start near each mode.
    """
    return 0.5 * np.concatenate([log_ratio(f) for f in frequencies(rows, layout, 1.0)])


def annealed_log_z(
    layout: Layout,
    theta: np.ndarray,
    start: np.ndarray,
    n_steps: int = N_STEPS,
    n_chains: int = N_CHAINS,
    rng=None,
    n_jobs: int | None = 1,
) -> AnnealedLogZ:
    """Estimate ln Z by annealing Gibbs chains from an independent model to the given model.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
        Parameters of the model.
    start : ndarray, shape (D,)
        Fields of the independent model (see `annealing_start`).
    n_steps : int, default 500
        Number of temperatures, evenly spaced, with one Gibbs sweep at each.
    n_chains : int, default 512
        Number of independent chains; each yields one importance weight.
    rng : numpy.random.Generator, int or None
    n_jobs : int, default 1
        Number of threads; None or -1 uses all cores.

    Notes
    -----
    The path is ``E_b(x) = (1 - b) E_start(x) + b E(x)`` for b from 0 to 1. Each chain starts from
    an exact draw of the independent model and accumulates ``sum_t (b_{t+1} - b_t) (E -
    E_start)(x_t)``. The mean of the exponentials of these sums is an unbiased estimate of ``Z /
    Z_start`` (Neal 2001, eq. 8; Salakhutdinov & Murray 2008).

    Examples
    --------
    >>> layout = Layout([2, 2])
    >>> estimate = annealed_log_z(layout, np.array([0.5, -1.0, 3.0]), np.zeros(2), rng=1)
    >>> bool(
    ...     abs(estimate.log_z - np.log(1 + np.exp(0.5) + np.exp(-1.0) + np.exp(2.5)))
    ...     < 4 * estimate.standard_error
    ... )
    True
    """
    if (layout.n_levels < 2).any():  # chains do not accept predictors with one level
        layout = layout.only(np.flatnonzero(layout.n_levels > 1))
    # fields (D,), couplings (D, D), terms of three or more predictors
    h, J, higher_terms = split(layout, theta)
    chains = Chains(h, J, layout.n_levels, n_chains, generator(rng), n_jobs, higher_terms)
    independent_layout = Layout(layout.n_levels, NO_PAIRS)  # without pairs
    start_energy = Energy(independent_layout, np.asarray(start, dtype=float)[None])
    log_w = np.zeros(n_chains)  # logs of the chains' weights w
    b = np.linspace(0.0, 1.0, n_steps + 1)
    for t in range(n_steps):
        # one sweep at temperature b[t], with the fields and couplings of (1 - b) E_start + b E; at
        # b = 0 the predictors are independent, so one sweep is an exact draw
        chains.sweep(1, h=(1.0 - b[t]) * start + b[t] * h, beta=float(b[t]))
        codes = np.ascontiguousarray(chains.codes)
        E_start = start_energy(codes)[:, 0]
        # for b > 0 `current_energy` (n_chains,) is (1 - b) E_start + b E; at b = 0 it does not
        # contain E
        E = (chains.current_energy - (1.0 - b[t]) * E_start) / b[t] if t else chains.energy(codes)
        log_w += (b[t + 1] - b[t]) * (E - E_start)
    max_log_w = log_w.max()
    w = np.exp(log_w - max_log_w)
    # exact ln Z of the independent model; [0] selects the only model
    log_z_start = float(
        log_sum(independent_layout.factors(np.asarray(start)[None]), range(layout.m))[0]
    )
    return AnnealedLogZ(
        log_z=float(log_z_start + max_log_w + np.log(w.mean())),
        # of ln(mean w), by the delta method
        standard_error=float(w.std(ddof=1) / w.mean() / np.sqrt(n_chains)),
        ess=float(w.sum() ** 2 / (w**2).sum()),
    )
