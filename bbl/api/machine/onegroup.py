"""The public function `mlestimate`: fit a Boltzmann machine to integer codes, as one group.

There are n rows and m predictors; predictor i has L_i levels, and D is the number of non-reference
levels of all predictors. The *site solution* (D, 1 + D) contains the fields and couplings of the
regressions of all sites, with one row for each non-reference level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.boltzmann.estimate import check_known, fit_group
from bbl.boltzmann.fitted import Problem, warn_problems
from bbl.checks import arguments, choice, flag, generator
from bbl.design.design import MISSING
from bbl.design.values import missing_remedy
from bbl.design.weights import as_rows, check_weights
from bbl.engines import DEFAULT, Engine, make_engine
from bbl.engines.engine_fit import Note
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.memory import check_memory
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.logz import LOG_Z, exact_log_z, resolve_log_z
from bbl.model.regressors import to_matrix
from bbl.parallel import n_workers, progress_bar
from bbl.results.machine.draws import GroupParameters, MLEstimate, tables_memory
from bbl.rows.sample import Sample, code_dtype

__all__ = ["mlestimate"]

MAX_LEVELS = 2**31 - 1  # kernels take numbers of levels as int32


def mlestimate(
    xi: ArrayLike,
    weights: ArrayLike | None = None,
    qJ: ArrayLike | None = None,
    L: ArrayLike | None = None,
    method: str | Engine = DEFAULT,
    *,
    naive: bool = False,
    missing: str = "raise",
    log_z: str = "auto",
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    verbose: int = 1,
    **options: Any,
) -> MLEstimate:
    """Fit a Boltzmann machine to integer codes, as one group.

    Parameters
    ----------
    xi : array_like of int, shape (n, m)
        Codes ``0..L_i-1``.
    weights : array_like, shape (n,), optional
        Integer frequencies; any positive numbers for "pseudo", "mf", "naive", "pvi", "pcd" and
        "mpf". If `xi` is a DataFrame and `weights` a Series, both must have the same index.
    qJ : array_like of bool (or 0 and 1), shape (m, m), optional
        Symmetric matrix of the pairs of predictors that interact; all by default. The diagonal is
        ignored. If `qJ` has labels and `xi` is a DataFrame, they must be the columns of `xi`.
    L : array_like of int, shape (m,), optional
        Numbers of levels; by default the largest code of each column plus one, and at least two. If
        `L` has an index and `xi` is a DataFrame, it must be the columns of `xi`.
    method, log_z, seed, n_jobs, verbose, **options
        As in `bbl`.
    naive : bool, default False
        Whether to omit all interactions.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        Treatment of nan in `xi`, as in `bbl`; "level" codes nan as ``L_i``, an additional level of
        the column.

    Returns
    -------
    MLEstimate
        With ``symmetrize=False``, ``J[i, j]`` is the estimate from the regression of predictor i,
        and ``J[j, i]`` the estimate from the regression of predictor j.

    Raises
    ------
    DataError, OptionError, BBLTypeError
        If codes, weights, `qJ` and `L` are inconsistent or invalid.

    Examples
    --------
    >>> import numpy as np
    >>> fit = mlestimate(np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]]), lambda_=0.0)
    >>> float(fit.J[0, 1][0, 0].round(6))
    0.693147
    """
    choice("log_z", log_z, LOG_Z)
    engine = make_engine(method, options, arguments(mlestimate))
    if engine.chooses:
        raise OptionError(
            f"{engine.refusals()['mlestimate']}.",
            argument="method",
            hint=f"Use a formula without a response, bbl('~ .', data, method={engine.name!r}).",
        )
    _check_labels(xi, qJ, L)
    choice("missing", missing, MISSING)
    sample, n_levels = _coded_sample(xi, weights, L, missing, engine)
    m = len(n_levels)
    pairs = None
    if flag("naive", naive) or engine.order == 1:
        pairs = NO_PAIRS
    elif qJ is not None:
        pairs = np.argwhere(np.triu(_check_interactions(qJ, m), 1))
    # the terms that the engine fits
    layout = engine.layout(sample, Layout(n_levels, pairs))
    # engines that sample also return tables of standard deviations
    needed_bytes = tables_memory(layout) * (1 + engine.samples)
    check_memory(
        needed_bytes,
        f"Fitting {layout.D} non-reference levels",
        "Use fewer levels, or pass pairs in qJ.",
    )
    log_z_method = resolve_log_z(log_z, layout, engine.log_z)
    check_known(sample, layout, engine, log_z_method, "xi", range(m))
    rng = engine.generator(generator(seed))
    with progress_bar(1, "mlestimate", verbose) as progress:
        (group,) = fit_group(
            sample,
            layout,
            engine,
            log_z=log_z_method,
            workers=n_workers(n_jobs),
            rng=rng,
            progress=progress,
            keep_sites=True,
        )
    fit = group.fit
    log_z_value = group.log_z
    if log_z_method == "exact":
        log_z_value = float(exact_log_z(layout, fit.theta[None])[0])
    warn_problems([_make_problem(note) for note in fit.notes])
    # couplings (D, D): a block of rows for each site; J[i, j] and J[j, i] differ unless symmetrised
    coupling_matrix = (
        to_matrix(layout, fit.theta)[1] if fit.site_theta is None else fit.site_theta[:, 1:]
    )
    if fit.site_theta is not None and not engine.two_sided:
        coupling_matrix = 0.5 * (coupling_matrix + coupling_matrix.T)
    result_fields = {
        "lkh": fit.lkh,
        "lz": log_z_value,
        "converged": bool(fit.converged.all()),
        "n_iter": fit.n_iter,
    }
    if fit.sd is not None:
        # to_matrix: fields (D,) and couplings (D, D)
        sd_tables = GroupParameters._from_matrix(layout, *to_matrix(layout, fit.sd))
        result_fields |= {"sd_h": sd_tables.h, "sd_J": sd_tables.J}
    if fit.history:
        result_fields["history"] = pd.DataFrame(fit.history)
    return MLEstimate._from_matrix(layout, fit.theta[: layout.D], coupling_matrix, **result_fields)


def _make_problem(note: Note) -> Problem:
    """Convert a note about the fit to a `Problem` that contains the positions of the predictor and
    level.

    `Problem.group` is empty because there is a single group, or "the fit" if the note does not
    concern a single predictor.
    """
    if note.predictor < 0:
        return Problem("the fit", "", "", note.what, note.detail, note.hint)
    level = f"level {note.level}" if note.level >= 0 else ""
    return Problem("", f"predictor {note.predictor}", level, note.what, note.detail, note.hint)


def _check_labels(xi: ArrayLike, qJ: ArrayLike | None, L: ArrayLike | None) -> None:
    """Raise a DataError if `xi` is a DataFrame and `qJ` or `L` has pandas labels that differ from
    its columns or their order.
    """
    if not isinstance(xi, pd.DataFrame):
        return
    axes = {
        "qJ": qJ.axes if isinstance(qJ, pd.DataFrame) else [],
        "L": [L.index] if isinstance(L, pd.Series) else [],
    }
    for argument, labels in axes.items():
        if not all(axis.equals(xi.columns) for axis in labels):
            raise DataError(
                f"The labels of {argument} must match the columns of xi, in the same order.",
                argument=argument,
                hint=f"Reindex it, or pass {argument}.to_numpy() to match by position.",
            )


def _check_interactions(qJ: ArrayLike, m: int) -> np.ndarray:
    """Check `qJ` and return the pairs of predictors that interact as a symmetric bool matrix (m,
    m).
    """
    try:
        mask = np.asarray(qJ)
    except ValueError:  # ragged
        mask = np.empty(0, dtype=object)  # raises an error below because of its shape
    if mask.shape != (m, m):
        raise OptionError(
            f"qJ must be a {m} x {m} matrix with one row and one column for each predictor; "
            f"got {qJ!r}.",
            argument="qJ",
            value=qJ,
        )
    # entries that are not numbers are invalid
    invalid = mask[~np.isin(mask, (0, 1))] if mask.dtype.kind in "biuf" else mask.ravel()
    if len(invalid):
        raise OptionError(
            f"qJ must contain only True and False, or 1 and 0; got {invalid[0]!r}.",
            argument="qJ",
            value=invalid[0],
        )
    one_sided = np.argwhere((mask != mask.T) & (mask == 1))
    if len(one_sided):
        i, j = one_sided[0]
        raise OptionError(
            f"qJ is not symmetric: predictor {i} interacts with {j}, but {j} does not "
            f"interact with {i}.",
            argument="qJ",
            hint="Set both.",
        )
    return mask.astype(bool)


def _check_n_levels(L: ArrayLike, m: int) -> np.ndarray:
    """Check `L`, a number of levels for all predictors or one for each predictor, and return the
    numbers of levels as int64 (m,).
    """
    try:
        n_levels = np.asarray(L)
    except ValueError:  # ragged
        n_levels = np.empty((0, 0))  # raises an error below because of its shape
    is_whole = (
        n_levels.dtype.kind in "iuf"
        and n_levels.shape in ((), (1,), (m,))
        and (n_levels == np.floor(n_levels)).all()
    )
    if not is_whole or not (n_levels <= MAX_LEVELS).all():
        raise OptionError(
            f"L must be an integer up to {MAX_LEVELS}, or one for each of the {m} predictors; "
            f"got {L!r}.",
            argument="L",
            value=L,
        )
    return np.broadcast_to(n_levels, (m,)).astype(np.int64)


def _coded_sample(
    xi: ArrayLike, weights: ArrayLike | None, L: ArrayLike | None, missing: str, engine: Engine
) -> tuple[Sample, np.ndarray]:
    """Check the codes `xi` (n, m) and the weights, and return them as a sample, with the numbers of
    levels (m,), int64.

    Depending on `missing`, rows with nan are dropped, or nan is coded as an additional level or as
    a missing cell.
    """
    codes = np.asarray(xi)
    if codes.dtype == object or codes.dtype.kind not in "biuf" or codes.ndim != 2:
        raise BBLTypeError(
            f"xi must be a 2-d array of integer codes; got a {codes.ndim}-d array of type "
            f"{codes.dtype}.",
            argument="xi",
        )
    if not codes.size:
        raise DataError("xi has no rows or no columns.", argument="xi")
    row_weights = check_weights(
        weights,
        len(codes),
        index=xi.index if isinstance(xi, pd.DataFrame) else None,
        whole=engine.weights == "counts",
    )
    is_missing = np.isnan(codes)
    if is_missing.any() and missing == "raise":
        raise DataError(
            f"xi has {is_missing.sum()} missing entries.",
            argument="xi",
            hint=missing_remedy("missing_marginal" not in engine.refusals()),
        )
    if missing == "drop":
        is_complete = ~is_missing.any(axis=1)
        codes = codes[is_complete]
        row_weights = row_weights[is_complete]
        is_missing = is_missing[is_complete]
        if not row_weights.any():
            raise DataError(
                "No row of xi is complete, so missing='drop' leaves no rows.", argument="missing"
            )
    codes = np.where(is_missing, 0, codes)
    if codes.dtype.kind == "f" and not (
        np.isfinite(codes).all() and (codes == np.floor(codes)).all()
    ):
        raise DataError(
            "xi must contain integer codes from 0 to L-1, but some entries are infinite or "
            "fractional.",
            argument="xi",
        )
    if codes.min() < 0:
        raise DataError(f"xi must contain codes from 0 to L-1; got {codes.min()}.", argument="xi")
    if float(codes.max()) >= MAX_LEVELS:  # checked before the codes are converted to a smaller type
        raise DataError(
            f"xi must contain codes from 0 to L-1, where L is at most {MAX_LEVELS}; got "
            f"{codes.max()}.",
            argument="xi",
        )
    least_levels = np.maximum(codes.max(axis=0).astype(np.int64) + 1, 2)
    n_levels = least_levels if L is None else _check_n_levels(L, len(least_levels))
    if (n_levels < least_levels).any():
        i = int(np.argmax(n_levels < least_levels))
        raise OptionError(
            f"L[{i}]={n_levels[i]}, but the codes in column {i} of xi require at least "
            f"{least_levels[i]} levels.",
            argument="L",
        )
    if missing == "level":
        codes = np.where(is_missing, n_levels, codes)
        n_levels = n_levels + is_missing.any(axis=0)
    codes = np.ascontiguousarray(codes.astype(code_dtype(n_levels)))
    missing_cells = is_missing if missing == "marginal" and is_missing.any() else None
    # `weighted` drops rows of weight 0
    sample = Sample(codes, row_weights, missing=missing_cells).weighted(row_weights)
    if not sample.whole:
        sample = sample.weighted(as_rows(sample.weights))
    return sample, n_levels
