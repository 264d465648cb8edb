"""Checks before a fit: its time, its memory, and predictors without known values.

K is the number of groups, m of predictors, D of non-reference levels. ``engine.memory(n, layout,
settings)`` returns the bytes of working memory of a fit to n rows in memory, and
``engine.stored_memory`` those for rows that are read in batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.engine_fit import NoProgress
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.model.ais import annealing_seconds
from bbl.model.layout import Layout
from bbl.model.logz import OF_ROWS
from bbl.model.moments import known_counts, level_counts, usable_weight
from bbl.rows.sample import Rows

__all__ = ["announce_terms", "check_annealing", "check_known", "guard_memory", "no_progress_error"]

NO_PAIRS = np.empty((0, 2), dtype=np.intp)  # terms of a layout whose pairs are not listed yet
MAX_ANNEALING_SECONDS = 4 * 3600.0  # estimated time from which on ``log_z="ais"`` is refused


def check_annealing(log_z: str, layout: Layout, n_models: int, workers: int) -> None:
    """Raise an OptionError if ``log_z="ais"`` would take over 4 hours for `n_models` models.

    The number of models is the product of the numbers of groups, settings and folds.
    """
    seconds = annealing_seconds(layout) * n_models / workers
    if log_z == "ais" and seconds > MAX_ANNEALING_SECONDS:
        raise OptionError(
            f"log_z='ais' would take about {seconds / 3600:.0f} hours for {n_models} models "
            f"of {layout.m} predictors.",
            argument="log_z",
            hint="Give log_z='auto' or 'half', or use fewer groups, folds or settings.",
        )


def guard_memory(
    sample: Rows,
    layout: Layout,
    K: int,
    engine: Engine,
    values: Sequence | np.ndarray | None,
    workers: int,
    extra: int = 0,
    folds: int = 1,
) -> None:
    """Raise a MemoryError if fits of K groups and `extra` pooled ones do not fit into memory,
    `workers` at a time.

    `values` are the settings that are fitted (None for the engine's own), `folds` is the number of
    folds whose results are kept.
    """
    n_settings = 1 if values is None else len(values)
    # 8 bytes a parameter; those of groups are stored twice: in the fit of each group, and in an
    # array of all groups
    result_bytes = 8.0 * layout.size * (2 * K + extra) * n_settings * folds
    working_memory = engine.memory if sample.in_memory else engine.stored_memory
    check_memory(
        result_bytes + workers * working_memory(sample.n, layout, n_settings),
        f"A fit of {K} groups with {layout.D} non-reference levels",
        _memory_tip(
            engine,
            (
                "Use fewer predictors, fewer levels, a formula with fewer interactions, or a "
                "smaller n_jobs."
            ),
        ),
    )


def announce_terms(
    n: int,
    K: int,
    n_levels: np.ndarray,
    engine: Engine,
    workers: int,
    extra: int = 0,
    models: int = 1,
    stored: bool = False,
) -> None:
    """Raise a MemoryError if a model of all pairs of predictors does not fit into memory, before
    pairs are listed.

    `models` is the number of settings times folds, whose results are kept; `stored` says whether
    rows are read in batches; the other arguments are those of `guard_memory`.
    """
    if engine.order == 1:
        return
    n_fields = n_levels - 1.0  # of each predictor
    D = float(n_fields.sum())
    m = len(n_levels)
    n_couplings = (D**2 - float((n_fields**2).sum())) / 2.0
    result_bytes = 8.0 * (D + n_couplings) * (2 * K + extra) * models  # as in `guard_memory`
    working_memory = engine.stored_memory if stored else engine.memory
    # working memory of a model without pairs, a lower bound, in which the number of settings makes
    # no difference
    needed_bytes = result_bytes + workers * working_memory(n, Layout(n_levels, NO_PAIRS), models)
    check_memory(
        needed_bytes,
        (
            f"A fit of {K} groups with {m * (m - 1) // 2:,} pairs of predictors and "
            f"{n_couplings:,.0f} couplings each"
        ),
        _memory_tip(
            engine, "Use fewer predictors or levels, or a formula with fewer interactions."
        ),
    )


def _memory_tip(engine: Engine, remedy: str) -> str:
    """Return advice on how to save memory: lower the options of the engine that memory grows with,
    or the `remedy`.
    """
    # `sized_by`: names of the options; "a, b or c" as text
    options = " or ".join(filter(None, (", ".join(engine.sized_by[:-1]), *engine.sized_by[-1:])))
    return f"Lower {options}, or {remedy[0].lower()}{remedy[1:]}" if options else remedy


def check_known(
    sample: Rows, layout: Layout, engine: Engine, log_z: str, group: str, names: Sequence
) -> None:
    """Raise a DataError if a predictor of a group, or a pair that is fitted, has no row in which it
    is known.

    `sample` holds the rows of the group, `group` is its name, and `names` are those of the
    predictors. `Engine.needs` says which values a fit needs together: those of a predictor and its
    neighbours, or of each pair.
    """
    if sample.complete:
        return
    remedy = (
        "Leave it out of the formula, or give missing values a level of their own "
        "(missing='level')."
    )
    # pooled: without the response, so that counts of levels are (L_i,) for each predictor
    never_known = np.flatnonzero(
        [not counts.any() for counts in level_counts(sample.pooled, layout.n_levels)]
    )
    if len(never_known):
        name = names[never_known[0]]
        raise DataError(
            f"In {group}, all values of {name!r} are missing.", column=name, hint=remedy
        )
    if engine.needs == "neighbours" or log_z in OF_ROWS:  # a ln Z that is a mean over rows
        # usable_weight (m,): weight of the rows in which a predictor and all that it interacts with
        # are known
        without_rows = np.flatnonzero(usable_weight(sample, layout) == 0.0)
        if len(without_rows):
            name = names[without_rows[0]]
            option = (
                f"method={engine.name!r}" if engine.needs == "neighbours" else f"log_z={log_z!r}"
            )
            raise DataError(
                f"In {group}, no row has known values of {name!r} and of all predictors that "
                f"it interacts with, which {option} needs.",
                column=name,
                hint=(
                    "Give a formula with fewer interactions, choose method='mf' with "
                    "log_z='ais', or give missing values a level of their own "
                    "(missing='level')."
                ),
            )
    if engine.needs == "pairs" and layout.order > 1:
        # known_counts()[0] (m, m): weight of the rows in which two predictors are known
        never_together = np.argwhere(np.triu(known_counts(sample, layout)[0] == 0.0))
        if len(never_together):
            i, j = (names[k] for k in never_together[0])
            raise DataError(
                f"In {group}, {i!r} and {j!r} are never both known in a row.", column=i, hint=remedy
            )


def no_progress_error(stall: NoProgress, labels: Labels | None) -> DataError:
    """Return the error for a fit to rows in a file that makes no progress, with the name of the
    predictor.

    `stall` has the number `predictor`, its gradient norm `norm`, the number `n` of rows in the
    file, and the number `rows` of those in the sample from which the fit started.
    """
    name = stall.predictor if labels is None else labels.names[stall.predictor]
    return DataError(
        f"The fit of {stall.n:,} rows makes no progress from a sample of {stall.rows:,}: the "
        f"gradient norm of {name!r} stays at {stall.norm:.2g}, and there is not enough memory "
        "for a larger sample. Its levels, or those of its neighbours, are too rare.",
        column=name,
        hint=(
            "Merge rare levels (bbl.lump), give a larger lambda_, or use a computer with "
            "more memory."
        ),
    )
