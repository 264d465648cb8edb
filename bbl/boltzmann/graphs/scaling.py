"""Iterative proportional fitting of many graphical models to the same table.

Each axis of the table is a predictor. A *clique* is a maximal term of a model: a set of axes with a
margin that the model fits exactly. B is the number of models that are fitted together. A *sweep*
scales the probabilities to match the margin of each clique c: ``p(x) <- p(x) observed(x_c) /
p(x_c)``.
"""

from __future__ import annotations

import numpy as np

__all__ = ["fit_cliques"]

# maximum difference between fitted and observed proportions; the error of the likelihood is its
# square
TOLERANCE = 1e-9
MAX_SWEEPS = 400  # a sweep scales every clique once
SWEEPS_AT_ONCE = 8  # number of sweeps before converged models are removed
CELLS_AT_ONCE = 2**21  # maximum number of cells of models that are fitted together


def fit_cliques(counts: np.ndarray, models: list[list[tuple[int, ...]]]) -> np.ndarray:
    """Return the maximised log-likelihoods of log-linear models, or nan if a fit did not converge.

    Parameters
    ----------
    counts : ndarray, shape (L_1, .., L_m)
    models : list of lists of tuples of int
        Maximal terms of each model, i.e. the sets of axes with a margin that is fitted.

    Returns
    -------
    ndarray, shape (len(models),)
        ``sum n ln p`` with the fitted probabilities p.
    """
    chunk_size = max(1, CELLS_AT_ONCE // counts.size)
    chunks = [
        _fit_chunk(counts, models[offset : offset + chunk_size])
        for offset in range(0, len(models), chunk_size)
    ]
    return np.concatenate([*chunks, np.empty(0)])  # an empty array in case chunks is empty


def _fit_chunk(counts: np.ndarray, models: list[list[tuple[int, ...]]]) -> np.ndarray:
    """Return the log-likelihoods (models,) of models that are fitted together; see `fit_cliques`.

    The iteration starts at the independence model.
    """
    total = counts.sum()
    out = np.full(len(models), np.nan)
    observed = counts / total
    independent = np.ones(counts.shape)
    for axis in range(counts.ndim):
        margin = observed.sum(axis=tuple(i for i in range(counts.ndim) if i != axis), keepdims=True)
        independent = independent * margin
    is_filled = counts > 0.0  # other cells contribute nothing to sum n ln p
    # the models are the last axis, because loops along it are fast
    p = np.repeat(independent[..., None], len(models), axis=-1)
    unconverged = np.arange(len(models))
    for _ in range(0, MAX_SWEEPS, SWEEPS_AT_ONCE):
        by_clique = _models_by_clique([models[model] for model in unconverged])
        for _ in range(SWEEPS_AT_ONCE):
            error = _sweep(p, observed, by_clique)  # only the error of the last sweep is used
        converged = error < TOLERANCE
        # (converged models, cells with rows); contiguous, so that numpy adds the cells of a model
        # in the same order in any chunk
        log_p = np.log(np.ascontiguousarray(p[is_filled][:, converged].T))
        out[unconverged[converged]] = (log_p * counts[is_filled]).sum(axis=1)
        unconverged = unconverged[~converged]
        p = np.ascontiguousarray(p[..., ~converged])
        if not len(unconverged):
            break
    return out


def _models_by_clique(
    models: list[list[tuple[int, ...]]],
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return the distinct cliques of all models, with the positions of the models that contain
    them.
    """
    models_with: dict[tuple[int, ...], list[int]] = {}
    for model, cliques in enumerate(models):
        for clique in cliques:
            models_with.setdefault(clique, []).append(model)
    # A single model is listed twice, because numpy would add the cells of a single column in a
    # different order, with different rounding.
    return [
        (clique, np.array(numbers * 2 if len(numbers) == 1 else numbers))
        for clique, numbers in models_with.items()
    ]


def _sweep(
    p: np.ndarray, observed: np.ndarray, by_clique: list[tuple[tuple[int, ...], np.ndarray]]
) -> np.ndarray:
    """Scale the probabilities `p` (.., B) of the models to match one margin after the other.

    `p` is changed in place. Returns the largest differences (B,) between fitted and observed
    margins before scaling. `observed` (..) contains the proportions of rows in the cells of the
    table.
    """
    error = np.zeros(p.shape[-1])
    for clique, model_numbers in by_clique:
        other_axes = tuple(axis for axis in range(observed.ndim) if axis not in clique)
        target = observed.sum(axis=other_axes, keepdims=True)[..., None]
        scaled = np.take(p, model_numbers, axis=-1)  # contiguous, unlike p[..., model_numbers]
        margin = scaled.sum(axis=other_axes, keepdims=True)
        difference = np.abs(margin - target).max(axis=tuple(range(observed.ndim)))
        error[model_numbers] = np.maximum(error[model_numbers], difference)
        scaled *= np.divide(target, margin, out=np.zeros_like(margin), where=margin > 0.0)
        p[..., model_numbers] = scaled
    return error
