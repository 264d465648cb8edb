"""Convergence diagnostics for Markov chains, and highest-density intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl.checks import flag
from bbl.errors import OptionError

__all__ = [
    "effective_sample_size",
    "highest_density",
    "monte_carlo_error",
    "split_rhat",
    "tail_sample_size",
]


def split_rhat(draws, rank: bool = True, folded: bool = False) -> np.ndarray:
    """Return split R-hat, by default rank-normalised (Vehtari et al. 2021, eqs. 1-4, section 4.1).

    Each chain is split into two halves to detect trends within chains. Values above 1.01 indicate
    that the chains have not mixed. The result is NaN if all draws are equal, and inf if each chain
    is constant but the chains differ.

    Parameters
    ----------
    draws : array_like, shape (n_chains, n_draws, ...)
        At least four draws per chain of one or more quantities, such as energies.
    rank : bool, default True
        Whether to replace values by the normal scores of their ranks.
    folded : bool, default False
        Whether to return the maximum of R-hat and the R-hat of distances from the median (section
        4.2), which also detects different spreads between chains.

    Returns
    -------
    ndarray of float64, shape (...)

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and
    localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16,
    667-718.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(4, 1000))
    >>> bool(split_rhat(draws) < 1.01)
    True
    """
    bulk = _apply_per_quantity(draws, rank, _compute_rhat)
    if not flag("folded", folded):
        return bulk
    return np.fmax(
        bulk, _apply_per_quantity(draws, rank, _compute_rhat, lambda x: np.abs(x - np.median(x)))
    )


def effective_sample_size(draws, rank: bool = True) -> np.ndarray:
    """Return the effective sample size of all chains combined, shape (...); with `rank`, this is
    the bulk-ESS.

    See `split_rhat` for `draws` (n_chains, n_draws, ...) and `rank`. Autocorrelations are summed
    over Geyer's initial monotone sequence of the split chains (Vehtari et al. 2021, eqs. 9-14). The
    estimate is at most ``S log10(S)`` for S draws, and NaN if all draws are equal.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(4, 1000))
    >>> bool(3000 < effective_sample_size(draws) < 5000)
    True
    """
    return _apply_per_quantity(draws, rank, _compute_ess)


def tail_sample_size(draws) -> np.ndarray:
    """Return the tail-ESS of draws (n_chains, n_draws, ...), with shape (...).

    The tail-ESS is the smaller of the effective sample sizes of the 5 % and 95 % quantiles.

    The ESS of a quantile is computed from indicators of draws at or below it.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(4, 1000))
    >>> bool(3000 < tail_sample_size(draws) < 5000)
    True
    """
    sizes = [
        _apply_per_quantity(
            draws,
            rank=False,
            function=_compute_ess,
            transform=lambda x, q=q: x <= np.quantile(x, q),
            before_split=True,
        )
        for q in (0.05, 0.95)
    ]
    return np.minimum(*sizes)


def monte_carlo_error(draws) -> np.ndarray:
    """Return the Monte Carlo standard error of the mean of draws (n_chains, n_draws, ...), with
    shape (...).

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(size=(4, 1000))
    >>> bool(0.014 < monte_carlo_error(draws) < 0.018)
    True
    """
    return np.asarray(draws, dtype=float).std(axis=(0, 1), ddof=1) / np.sqrt(
        effective_sample_size(draws, rank=False)
    )


def highest_density(draws, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the endpoints, each with shape (...), of the shortest interval that contains a
    proportion `level` of draws (n_chains, n_draws, ...).

    Examples
    --------
    >>> lower, upper = highest_density([[0.0, 1.0, 1.1, 1.2, 9.0]], 0.4)
    >>> float(lower), float(upper)
    (1.0, 1.2)
    """
    draws = np.sort(np.asarray(draws, dtype=float).reshape(-1, *np.shape(draws)[2:]), axis=0)
    # draws (S, ...), sorted; the interval from draw k to draw k + n_steps contains the required
    # proportion
    n_steps = min(int(np.floor(level * len(draws))), len(draws) - 1)
    width = draws[n_steps:] - draws[: len(draws) - n_steps]
    start = width.argmin(axis=0)[None]
    return np.take_along_axis(draws, start, axis=0)[0], np.take_along_axis(
        draws, start + n_steps, axis=0
    )[0]


def _apply_per_quantity(
    draws,
    rank: bool,
    function: Callable,
    transform: Callable | None = None,
    before_split: bool = False,
) -> np.ndarray:
    """Apply `function` to the split chains (2 n_chains, n_draws // 2) of each quantity.

    Parameters
    ----------
    draws : array_like, shape (n_chains, n_draws, ...)
        Draws of one or more quantities; with an odd number of draws, the middle one is dropped.
    rank : bool
        Whether to replace the split chains by their normal scores before `function` is applied.
    function : callable
        Function that maps split chains to a number.
    transform : callable, optional
        Function that is first applied to the draws, such as an indicator of a tail.
    before_split : bool
        Whether `transform` is applied to whole chains.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2 or draws.shape[0] < 1 or draws.shape[1] < 4 or not np.isfinite(draws).all():
        raise OptionError(
            "draws must be a finite array of shape (chains, draws, ...) with at least 4 draws; "
            f"got {draws.shape}.",
            argument="draws",
        )
    half = draws.shape[1] // 2
    rank = flag("rank", rank)
    values = []
    for x in np.moveaxis(draws.reshape(*draws.shape[:2], -1), 2, 0):
        x = transform(x).astype(float) if transform is not None and before_split else x
        split = np.concatenate((x[:, :half], x[:, -half:]))
        split = transform(split) if transform is not None and not before_split else split
        values.append(function(_normal_scores(split) if rank else split))
    return np.reshape(values, draws.shape[2:])


def _normal_scores(x: np.ndarray) -> np.ndarray:
    """Replace the values of x (any shape) by normal quantiles of their ranks."""
    from scipy.special import ndtri

    _, rank_of_value, count = np.unique(x, return_inverse=True, return_counts=True)
    ranks = np.cumsum(count) - 0.5 * (count - 1)  # ties get their mean rank
    # Blom's offsets
    return ndtri((ranks - 0.375) / (x.size + 0.25))[rank_of_value].reshape(x.shape)


def _variances(x: np.ndarray) -> tuple[float, float]:
    """Return the within-chain variance W and the pooled estimate var+ of chains x (chains, draws).

    Eqs. 1-3 of Vehtari et al. (2021), for n draws: ``var+ = W (n - 1)/n + variance of the chains'
    means``.
    """
    # exactly 0 if all chains are constant
    W = float(x.var(axis=1, ddof=1).mean()) if np.ptp(x, axis=1).any() else 0.0
    n = x.shape[1]
    return W, W * (n - 1) / n + float(x.mean(axis=1).var(ddof=1))


def _compute_rhat(x: np.ndarray) -> float:
    """Return R-hat, ``sqrt(var+ / W)``, of chains x (chains, draws)."""
    W, pooled = _variances(x)
    if x.min() == x.max():
        return np.nan
    return float(np.sqrt(pooled / W)) if W > 0.0 else np.inf


def _compute_ess(x: np.ndarray) -> float:
    """Return the effective sample size ``m n / tau`` of chains x (m chains, n draws).

    Here, tau is ``1 + 2 sum_t rho_t``, where ``rho_t = 1 - (W - covariance_t) / var+`` is the
    autocorrelation at lag t = 1, 2, ...
    """
    if x.min() == x.max():
        return np.nan
    m, n = x.shape
    W, pooled = _variances(x)
    # zero padding keeps the circular convolution from wrapping around
    fft_size = 2 ** int(np.ceil(np.log2(2 * n)))
    spectrum = np.fft.rfft(x - x.mean(axis=1, keepdims=True), fft_size, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, fft_size, axis=1)[:, :n].mean(axis=0) / n
    rho = 1.0 - (W - covariance) / pooled
    rho[0] = 1.0  # the autocorrelation at lag 0, which the estimate misses
    # lags 0 and 1, 2 and 3, ...; the last lag (odd n) or the last two (even n) are not used
    pair_sums = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)[: max((n - 1) // 2, 1)]
    # Geyer's sequence ends before the first pair of lags with a non-positive sum, but includes that
    # pair's first lag if positive
    n_pairs = np.append(np.flatnonzero(pair_sums <= 0.0), len(pair_sums) - 1)[0]
    # tau: number of draws equivalent to one independent draw; -1 because the pairs include lag 0,
    # and 2 rho_0 - 1 = 1
    tau = (
        -1.0
        + 2.0 * float(np.minimum.accumulate(pair_sums[:n_pairs]).sum())
        + max(float(rho[2 * n_pairs]), 0.0)
    )
    return m * n / max(tau, 1.0 / np.log10(m * n))  # at most S log10(S) for S = m n draws
