"""Checks before a fit: its time, its memory, and predictors without known values."""

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

__all__ = ["announce_terms", "check_annealing", "check_known", "guard_memory", "stalled"]

NO_PAIRS = np.empty((0, 2), dtype=np.intp)
MAX_ANNEALING_SECONDS = 4 * 3600.0


def check_annealing(log_z: str, layout: Layout, runs: int, workers: int) -> None:
    """Raise an OptionError if ``log_z="ais"`` would take over 4 hours for `runs` models (groups x settings x folds)."""
    seconds = annealing_seconds(layout) * runs / workers
    if log_z == "ais" and seconds > MAX_ANNEALING_SECONDS:
        raise OptionError(
            f"log_z='ais' would take about {seconds / 3600:.0f} hours for {runs} models of {layout.m} predictors; "
            "use log_z='auto' or 'half', or fewer groups, folds or settings.",
            argument="log_z",
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
    """Raise a MemoryError if fits of K groups and `extra` pooled ones do not fit into memory, `workers` at a time.

    `values` are the settings that are fitted, `folds` the number of folds whose results are kept.
    """
    settings = 1 if values is None else len(values)
    results = 8.0 * layout.size * (2 * K + extra) * settings * folds  # parameters by group, and stacked
    working_memory = engine.memory if sample.in_memory else engine.stored_memory
    check_memory(
        results + workers * working_memory(sample.n, layout, settings),
        f"A fit of {K} groups with {layout.D} non-reference levels",
        _smaller(engine, "Use fewer predictors, fewer levels, a formula with fewer interactions, or a smaller n_jobs."),
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
    """Raise a MemoryError if a model of all pairs of predictors does not fit into memory, before pairs are listed.

    `models` is the number of settings times folds, `stored` says whether rows are read in batches; the other arguments
    are those of `guard_memory`.
    """
    if engine.order == 1:
        return
    width = n_levels - 1.0
    D, m = float(width.sum()), len(n_levels)
    couplings = (D**2 - float((width**2).sum())) / 2.0
    results = 8.0 * (D + couplings) * (2 * K + extra) * models
    working_memory = engine.stored_memory if stored else engine.memory
    needed = results + workers * working_memory(n, Layout(n_levels, NO_PAIRS), models)
    check_memory(
        needed,
        f"A fit of {K} groups with {m * (m - 1) // 2:,} pairs of predictors and {couplings:,.0f} couplings each",
        _smaller(engine, "Use fewer predictors or levels, or a formula with fewer interactions."),
    )


def _smaller(engine: Engine, remedy: str) -> str:
    """Return advice on how to save memory: lower the options of the engine that memory grows with, or `remedy`."""
    options = " or ".join(filter(None, (", ".join(engine.sized_by[:-1]), *engine.sized_by[-1:])))
    return f"Lower {options}, or {remedy[0].lower()}{remedy[1:]}" if options else remedy


def check_known(sample: Rows, layout: Layout, engine: Engine, log_z: str, group: str, names: Sequence) -> None:
    """Raise a DataError if a predictor of a group, or a pair of predictors, has no row in which it is known."""
    if sample.complete:
        return
    remedy = "Leave it out of the formula, or give missing values a level of their own (missing='level')."
    never_known = np.flatnonzero([not counts.any() for counts in level_counts(sample.pooled, layout.n_levels)])
    if len(never_known):
        name = names[never_known[0]]
        raise DataError(f"in {group}, all values of {name!r} are missing. {remedy}", column=name)
    if engine.needs == "neighbours" or log_z in OF_ROWS:
        without_rows = np.flatnonzero(usable_weight(sample, layout) == 0.0)
        if len(without_rows):
            name = names[without_rows[0]]
            option = f"method={engine.name!r}" if engine.needs == "neighbours" else f"log_z={log_z!r}"
            raise DataError(
                f"in {group}, no row has {name!r} and all predictors that it interacts with known, which {option} "
                "needs. Give a formula with fewer interactions, take method='mf' with log_z='ais', or give "
                "missing values a level of their own (missing='level').",
                column=name,
            )
    if engine.needs == "pairs" and layout.order > 1:
        never_together = np.argwhere(np.triu(known_counts(sample, layout)[0] == 0.0))
        if len(never_together):
            i, j = (names[k] for k in never_together[0])
            raise DataError(f"in {group}, {i!r} and {j!r} are never known in one row. {remedy}", column=i)


def stalled(stall: NoProgress, labels: Labels | None) -> DataError:
    """Return the error of a fit of rows in a file that makes no progress."""
    name = stall.predictor if labels is None else labels.names[stall.predictor]
    return DataError(
        f"the fit of {stall.n:,} rows makes no progress from a sample of {stall.rows:,}: the gradient norm of {name!r} "
        f"stays at {stall.norm:.2g}, and there is no memory for a larger sample. Its levels, or those near it, "
        "are too rare: put them together (bbl.lump), give a larger lambda_, or take a computer with more memory.",
        column=name,
    )
