"""Convert a fitted Boltzmann machine to the content of a model file, i.e. a JSON-compatible dict
and arrays, and back.
"""
# Dimensions: K response groups, m predictors, `size` parameters per group, `n_runs` engine runs
# (one per group, and one for all rows pooled if there is a pooled fit). Each ``_unpack_x`` takes
# the output of ``_pack_x``, and raises a ValueError for values that it cannot have returned.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count, takewhile
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate, Problem, Relevance
from bbl.boltzmann.prediction_checks import remedy
from bbl.boltzmann.tuning_record import Tuning
from bbl.design.design import Design
from bbl.engines import ENGINES, Engine, EngineFit
from bbl.errors import BBLTypeError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.regressors import regressors
from bbl.model.support import Support
from bbl.report.machine.summary import Section
from bbl.report.text import label_text
from bbl.results.archive import check_model, pack_model, unpack_loss, unpack_model
from bbl.results.array_table import (
    FINITE,
    NON_NEGATIVE,
    PROBABILITY,
    ArraySpec,
    check_arrays,
    check_types,
)
from bbl.results.machine.draw_archive import pack_draws, unpack_draws, unpack_predictive
from bbl.results.machine.location_archive import (
    LOCATION_TABLE,
    pack_location,
    unpack_location,
)
from bbl.results.machine.survey_archive import SURVEY_TABLE, pack_survey, unpack_survey
from bbl.results.model import ModelResults
from bbl.stats.calibration import Calibration
from bbl.stats.metrics import HELD_OUT, LossRecord, shares_loss
from bbl.stats.survey.sample import SurveySample

__all__ = ["pack", "unpack"]

STATE_PREFIX = "state_"  # for the names of arrays from `EngineFit.state`
# Arrays of `EngineFit.state` of engines that select the terms: whether the group has each
# parameter; the number of single-predictor regressions that contain it; its weight in each of these
TERM_CHOICE_ARRAYS = ("free", "votes", "nodes")

# arrays of a file, except terms and states: kind, shape, range (below a named length), array that
# implies it
TABLE = {
    "theta": ArraySpec("f", ("K", "size"), FINITE),
    "pooled": ArraySpec("f", ("size",), FINITE, required=False),
    "zeros_scope": ArraySpec("i", ("n_zeros_scope",), (0, "m"), required=False),
    "zeros_possible": ArraySpec("b", ("n_zeros_groups", "n_zeros_cells"), required="zeros_scope"),
    "log_z": ArraySpec("f", ("K",), FINITE),
    "log_z_error": ArraySpec("f", ("K",)),
    "prior": ArraySpec("f", ("K",), NON_NEGATIVE),
    "lkh": ArraySpec("f", ("n_runs+1",)),  # for all rows, then for each run
    "converged": ArraySpec("b", ("n_runs", "m")),
    "grad_norm": ArraySpec("f", ("n_runs", "n_recorded")),
    "n_iter": ArraySpec("i", ("n_runs", "n_recorded")),
    "rank": ArraySpec("i", ("n_runs",), (0, "coefficients+1"), required=False),
    # offsets, then the temperature
    "calibration": ArraySpec("f", ("K+1",), FINITE, required=False),
    "relevance_level": ArraySpec("f", (1,), PROBABILITY, required=False),
    "relevant": ArraySpec("i", ("n_relevant",), (0, "m"), required="relevance_level"),
    "relevant_p": ArraySpec("f", ("n_relevant",), PROBABILITY, required="relevance_level"),
    "sd": ArraySpec("f", ("n_runs", "size"), required=False),
    "free": ArraySpec("b", ("K", "size"), required=False),
    "votes": ArraySpec("f", ("K", "size"), required=False),
    "nodes": ArraySpec("f", ("K", "order", "size"), required=False),
    "draws": ArraySpec("f", ("n_runs", "chains", "n_draws", "size"), required=False),
    "draws_log_z": ArraySpec("f", ("K", "T"), FINITE, required="draws_hidden"),
    # solutions of each predictor's equations, with the sample of rows that were read in batches
    "sites": ArraySpec("f", ("n_runs", "D", "n_site_columns"), FINITE, required=False),
    "draws_hidden": ArraySpec("f", ("K", "T", "hidden_size"), FINITE, required=False),
}
# kind of stored cells by dtype.kind; others are stored as text
CELL_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool"}


def pack(
    fit: ModelResults,
    engine: Engine,
    estimate: Estimate,
    tuning: Tuning | None,
    sections: list[Section],
    store_rows: bool,
    survey: SurveySample | None,
    sampling_design: str | None,
) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the content of a model file, i.e. a dict of names and options, and a dict of arrays.

    `engine`, `estimate`, `tuning` and `survey` are attributes of the result `fit`, `sections`
    contains the tables of tests in its summary, and `sampling_design` is its text on the sampling
    design. `store_rows` indicates whether training rows are stored.
    """
    if type(engine) is not ENGINES.get(engine.name):
        raise BBLTypeError(
            f"Models fitted with engine {type(engine).__name__} cannot be saved. Only the "
            "package's own engines support saving."
        )
    parameters = estimate.parameters
    location_entry, location_arrays = pack_location(estimate.location)
    meta = {
        **location_entry,
        "engine": {"name": engine.name, **_pack_options(engine)},
        "log_z_kind": estimate.log_z_kind,
        "nobs": fit.nobs(),
        "sections": [_pack_section(section) for section in sections],
        "tuning": _pack_tuning(tuning),
        **({} if sampling_design is None else {"sampling_design": sampling_design}),
        **({"cumulative": True} if estimate.cumulative else {}),
    }
    calibration = estimate.calibration
    arrays = {
        "theta": parameters.theta,
        "pooled": parameters.pooled,
        **{_terms_name(k): terms for k, terms in enumerate(parameters.layout.terms, 2)},
        **_pack_support(parameters.layout.support),
        "log_z": estimate.log_z,
        "log_z_error": estimate.log_z_error,
        "prior": estimate.class_prior,
        "lkh": np.array([estimate.lkh, *(run.lkh for run in estimate.fits)]),
        "grad_norm": _stack_runs([run.grad_norm for run in estimate.fits]),
        "n_iter": _stack_runs([run.n_iter for run in estimate.fits]),
        "converged": np.array([run.converged for run in estimate.fits]),
        "rank": _pack_ranks(estimate.fits, parameters.layout.size),
        "calibration": None
        if calibration is None
        else np.append(calibration.offset, calibration.temperature),
        # penalised joint fits have no log-likelihood
        "log_likelihood": np.array(
            [np.nan if engine.joint and engine.penalised else fit._log_likelihood]
        ),
        **location_arrays,
        **_pack_relevance(estimate.relevance),
        **_pack_posterior(estimate.fits, parameters.layout.size),
        **pack_draws(estimate.fits, estimate.predictive),
        **(_pack_sites(estimate.fits) if store_rows and _is_sample(fit) else {}),
        **(pack_survey(survey) if store_rows and fit.training is not None else {}),
    }
    if engine.chooses:  # terms by group
        arrays |= {
            name: np.array([run.state[name] for run in estimate.fits])
            for name in TERM_CHOICE_ARRAYS
        }
    return pack_model(fit, meta, arrays, store_rows, tuned=tuning is not None)


def _is_sample(fit: ModelResults) -> bool:
    """Return whether a fit keeps a random sample of its rows."""
    return fit._kept is not None and not fit._kept.is_complete


def _pack_sites(runs: Sequence[EngineFit]) -> dict[str, np.ndarray]:
    """Return the site solutions of all runs, or an empty dict if any run does not have one."""
    solutions = [run.site_theta for run in runs if run.site_theta is not None]
    return {"sites": np.array(solutions)} if len(solutions) == len(runs) else {}


def _pack_relevance(relevance: Relevance | None) -> dict[str, np.ndarray]:
    """Return arrays with the positions and p-values of the selected predictors, or an empty dict if
    all predictors are used.
    """
    if relevance is None:
        return {}
    return {
        "relevance_level": np.array([relevance.level]),
        "relevant": relevance.chosen,
        "relevant_p": relevance.p_value,
    }


def _unpack_relevance(arrays: dict[str, np.ndarray]) -> Relevance | None:
    """Return the selected predictors stored by `_pack_relevance`.

    Raises a ValueError if their positions are not increasing.
    """
    if "relevance_level" not in arrays:
        return None
    chosen = arrays["relevant"]
    if (np.diff(chosen) <= 0).any():
        raise ValueError("'relevant' contains invalid values")
    return Relevance(float(arrays["relevance_level"][0]), chosen, arrays["relevant_p"])


def _pack_ranks(runs: Sequence[EngineFit], size: int) -> np.ndarray | None:
    """Return the number of estimable parameters in each run, (n_runs,), or None if all are
    estimable in all runs.
    """
    if all(run.rank is None for run in runs):
        return None
    return np.array([size if run.rank is None else run.rank for run in runs])


def _pack_posterior(runs: Sequence[EngineFit], size: int) -> dict[str, np.ndarray]:
    """Return ``sd`` (n_runs, size) of the posteriors, and ``state_x`` (n_runs, ...) for each vector
    x of the states.

    ``sd`` is nan for a group without rows. If draws are stored, it is omitted, because it can be
    computed from them. The result is empty for methods without a posterior.
    """
    if all(run.sd is None for run in runs):
        return {}
    # only vectors: draws of hidden units have more axes and are stored by `pack_draws`
    state_names = {name for run in runs for name, values in run.state.items() if values.ndim == 1}
    arrays = {}
    if all(run.draws is None for run in runs):
        arrays["sd"] = np.array(
            [np.full(size, np.nan) if run.sd is None else run.sd for run in runs]
        )
    for name in sorted(state_names):  # a group without rows has no state
        arrays[STATE_PREFIX + name] = _stack_runs(
            [run.state.get(name, np.zeros(0)) for run in runs]
        )
    return arrays


def _unpack_posterior(
    arrays: dict[str, np.ndarray], run: int, draws: np.ndarray | None
) -> dict[str, Any]:
    """Return ``sd``, ``state`` and any `draws` (chains, draws, size) of run number `run` as a dict,
    which is empty for methods without a posterior.
    """
    state = {
        k.removeprefix(STATE_PREFIX): array[run]
        for k, array in arrays.items()
        if k.startswith(STATE_PREFIX)
    }
    if draws is not None:
        return {"sd": draws.std(axis=(0, 1), ddof=1), "draws": draws, "state": state}
    # no posterior, or a group without rows
    if "sd" not in arrays or np.isnan(arrays["sd"][run]).any():
        return {}
    return {"sd": arrays["sd"][run], "state": state}


def _stack_runs(vectors: list[np.ndarray]) -> np.ndarray:
    """Stack the vectors of all engine runs into a matrix.

    The empty vector of a group without rows is replaced by zeros.
    """
    length = max(map(len, vectors))
    return np.array(
        [vector if len(vector) else np.zeros(length, vector.dtype) for vector in vectors]
    )


def _pack_section(section: Section) -> dict:
    """Return a table of the summary for JSON.

    Columns are stored as text unless they are float, int or bool.
    """
    stored_columns = []
    for k, name in enumerate(section.table.columns):
        column = section.table.iloc[:, k]
        kind = CELL_KINDS.get(column.dtype.kind, "text")
        # JSON has no missing integers or bools
        if kind == "text" or column.hasnans and kind != "float":
            stored_columns.append(
                {"name": str(name), "kind": "text", "cells": [str(v) for v in column]}
            )
        else:
            cells = _pack_numbers(column.to_numpy(float)) if kind == "float" else column.tolist()
            stored_columns.append({"name": str(name), "kind": kind, "cells": cells})
    row_names = [str(label) for label in section.table.index]
    return {
        "heading": section.heading,
        "note": section.note,
        "rows": row_names,
        "columns": stored_columns,
    }


def _unpack_section(stored: dict) -> Section:
    """Return the section stored by `_pack_section`.

    Raises a ValueError if cells do not have the type of their column.
    """
    texts = [
        stored["heading"],
        stored["note"],
        *stored["rows"],
        *(column["name"] for column in stored["columns"]),
    ]
    if not all(type(text) is str for text in texts):
        raise ValueError("a heading of its summary is malformed")
    # escapes control characters; names: of rows, then of columns
    heading, note, *names = map(label_text, texts)
    n_rows = len(stored["rows"])
    columns = []
    for column in stored["columns"]:
        kind = column["kind"]
        cells = column["cells"]
        cell_types = {"float": (float, str), "int": (int,), "bool": (bool,), "text": (str,)}[kind]
        is_valid = (
            type(cells) is list
            and len(cells) == n_rows
            and all(type(cell) in cell_types for cell in cells)
        )
        # outside int64
        if not is_valid or (kind == "int" and any(abs(cell) >= 2**63 for cell in cells)):
            raise ValueError("a table of its summary is malformed")
        # None: pandas' own dtype for text
        dtype = {"float": float, "int": np.int64, "bool": bool, "text": None}[kind]
        columns.append(
            pd.Series([float(cell) for cell in cells] if kind == "float" else cells, dtype=dtype)
        )
    table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n_rows))
    table = table.set_axis(pd.Index(names[:n_rows], dtype=object), axis=0)
    return Section(heading, table.set_axis(pd.Index(names[n_rows:], dtype=object), axis=1), note)


def _pack_numbers(values: np.ndarray) -> list:
    """Return a vector as a list for JSON: finite numbers as floats, infinities and nan as text."""
    return [v if np.isfinite(v) else str(v) for v in values.tolist()]


def _unpack_numbers(stored: list) -> np.ndarray:
    """Return the vector stored by `_pack_numbers`."""
    if not all(type(v) in (float, str) for v in stored):
        raise ValueError("a list of numbers is malformed")
    return np.array([float(v) for v in stored])


def _pack_tuning(tuning: Tuning | None) -> dict | None:
    """Return the tuning of a fit as a dict for JSON, or None if no option was tuned."""
    if tuning is None:
        return None
    vectors = {"values": tuning.values, "loss": tuning.loss, "offset": tuning.calibration.offset}
    return {
        "option": tuning.option,
        "chosen": int(tuning.chosen),
        "temperature": float(tuning.calibration.temperature),
        **({} if tuning.rows is None else {"rows": int(tuning.rows)}),
        # fits without convergence, tuples of texts
        "found": [list(problem) for problem in tuning.found],
        **{
            name: _pack_numbers(np.asarray(vector, dtype=float)) for name, vector in vectors.items()
        },
    }


def _unpack_tuning(stored: dict | None, engine: Engine) -> Tuning | None:
    """Return the tuning stored by `_pack_tuning`.

    Raises a ValueError if its option is not the tuned option of `engine`.
    """
    if stored is None:
        return None
    values, loss, offset = (_unpack_numbers(stored[name]) for name in ("values", "loss", "offset"))
    chosen = stored["chosen"]
    temperature = stored["temperature"]
    rows = stored.get("rows")
    problems = stored["found"]
    is_valid = (
        type(chosen) is int
        and 0 <= chosen < len(values) == len(loss)
        and type(temperature) is float
        and (rows is None or (type(rows) is int and rows > 0))
    )
    problem_texts = [text for problem in problems for text in problem]
    # None: only a calibration was tuned
    options = (None, None if engine.tuned is None else engine.tuned.option)
    if (
        not is_valid
        or stored["option"] not in options
        or not all(type(text) is str for text in problem_texts)
    ):
        raise ValueError("its tuning is malformed")
    calibration = Calibration(temperature, offset)
    return Tuning(
        stored["option"],
        values,
        loss,
        chosen,
        calibration,
        [Problem(*problem) for problem in problems],
        rows=rows,
    )


def _pack_support(support: Support | None) -> dict[str, np.ndarray]:
    """Return the arrays of structural zeros: their predictors, and a mask (1 or K, cells) of the
    cells that can occur.
    """
    if support is None:
        return {}
    return {
        "zeros_scope": np.array(support.scope),
        "zeros_possible": support.possible.reshape(support.n_groups, -1),
    }


def _unpack_support(
    arrays: dict[str, np.ndarray], design: Design, engine: Engine
) -> Support | None:
    """Return the structural zeros stored by `_pack_support`, or None.

    Raises a ValueError for impossible values, or if `engine.zeros` is False.
    """
    specs = {name: TABLE[name] for name in ("zeros_scope", "zeros_possible")}
    stored_arrays = {name: arrays[name] for name in specs if name in arrays}
    check_arrays(stored_arrays, specs, m=len(design.n_levels))
    if not stored_arrays:
        return None
    scope = stored_arrays["zeros_scope"]
    possible = stored_arrays["zeros_possible"]
    scope_shape = design.n_levels[scope].tolist()
    K = len(design.response.levels)
    has_valid_shape = len(possible) in (1, K) and possible.shape[1] == math.prod(scope_shape)
    # the scope is nonempty and increasing; every group has a possible cell; some cell is impossible
    if (
        not engine.zeros
        or not has_valid_shape
        or not len(scope)
        or (np.diff(scope) <= 0).any()
        or not possible.any(axis=1).all()
        or possible.all()
    ):
        raise ValueError("its structural zeros are malformed")
    return Support(tuple(scope.tolist()), possible.reshape(len(possible), *scope_shape))


def _check_values(engine: Engine, layout: Layout, arrays: dict[str, np.ndarray]) -> None:
    """Raise a ValueError unless terms are sorted, standard deviations are finite and non-negative,
    and the temperature is positive.

    If the engine selects the terms, the arrays of its selection must exist. Standard deviations of
    a group without rows are nan.
    """
    if engine.chooses and not all(name in arrays for name in TERM_CHOICE_ARRAYS):
        raise ValueError("the terms of its groups are missing")
    # `Layout` has sorted `terms`: the array equals them if it is sorted
    for k, terms in enumerate(layout.terms, 2):
        if (
            not np.array_equal(arrays[_terms_name(k)], terms)
            or not (terms[:, 1:] >= terms[:, :-1]).all()
        ):
            raise ValueError(f"{_terms_name(k)!r} contains invalid values")
    if "sd" in arrays and ((arrays["sd"] < 0.0).any() or np.isinf(arrays["sd"]).any()):
        raise ValueError("'sd' contains invalid values")
    if "calibration" in arrays and arrays["calibration"][-1] <= 0:  # the temperature
        raise ValueError("'calibration' contains invalid values")


def _terms_name(order: int) -> str:
    """Return the name of the array of terms with `order` predictors (two or more)."""
    return "pairs" if order == 2 else f"terms{order}"


def _terms_table(arrays: dict[str, np.ndarray]) -> dict[str, ArraySpec]:
    """Return the specifications of the arrays of terms by name: pairs, and each higher order that
    is in `arrays`.
    """
    # up to the first order without an array
    orders = [2, *takewhile(lambda k: _terms_name(k) in arrays, count(3))]
    return {_terms_name(k): ArraySpec("i", (f"n_{_terms_name(k)}", k), (0, "m")) for k in orders}


def _pack_options(engine: Engine) -> dict[str, Any]:
    """Return an engine's options for JSON: tuples as lists, infinity as ``"inf"``."""
    return {
        name: "inf" if isinstance(value, float) and np.isinf(value) else _tuples_to_lists(value)
        for name, value in asdict(engine).items()
    }


def _tuples_to_lists(value: Any) -> Any:
    """Return a value with all nested tuples replaced by lists."""
    return [_tuples_to_lists(item) for item in value] if isinstance(value, tuple) else value


def _unpack_runs(arrays: dict[str, np.ndarray]) -> tuple[EngineFit, ...]:
    """Return the engine runs of all groups, followed by the run on the pooled rows if there
    is one.
    """
    run_theta = [*arrays["theta"], *([arrays["pooled"]] if "pooled" in arrays else [])]
    run_draws = unpack_draws(arrays, len(arrays["converged"]))
    runs = []
    for k, (theta, draws) in enumerate(zip(run_theta, run_draws, strict=True)):
        # engines that select terms have no posterior, so that a posterior's state only replaces an
        # empty one
        state = {name: arrays[name][k] for name in TERM_CHOICE_ARRAYS if name in arrays}
        posterior = {"state": state, **_unpack_posterior(arrays, k, draws)}
        convergence = {name: arrays[name][k] for name in ("grad_norm", "n_iter", "converged")}
        rank = int(arrays["rank"][k]) if "rank" in arrays else None
        # the first entry of lkh is for all rows
        runs.append(
            EngineFit(
                theta,
                float(arrays["lkh"][1 + k]),
                site_theta=arrays["sites"][k] if "sites" in arrays else None,
                rank=rank,
                **convergence,
                **posterior,
            )
        )
    return tuple(runs)


def _unpack_loss(meta: dict, tuning: Tuning | None, estimate: Estimate) -> LossRecord | None:
    """Return the log-loss in a file, or from the tuning if the file was written by an earlier
    version without a log-loss.
    """
    if "log_loss" in meta or tuning is None:
        return unpack_loss(meta)
    loss = float(tuning.loss[tuning.chosen])
    calibrate = "none" if estimate.calibration is None else "temperature"
    # loss, loss of the class proportions, kind of rows, advice; auto=False: without
    # ``method="auto"``
    return LossRecord(
        loss, shares_loss(estimate.class_prior), HELD_OUT, remedy(calibrate, auto=False)
    )


def _unpack_cumulative(meta: dict, engine: Engine) -> bool:
    """Return whether energies are cumulative logits.

    The entry is missing in files of fits without cumulative logits. Raises a ValueError if this
    engine does not support cumulative logits.
    """
    cumulative = meta.get("cumulative", False)
    if not (cumulative is False or (cumulative is True and engine.cumulative)):
        raise ValueError("'cumulative' is malformed")
    return cumulative


def unpack(meta: dict, arrays: dict[str, np.ndarray], classes: bool = True) -> dict[str, Any]:
    """Return the arguments of a result class from content stored by `pack`. `classes` indicates
    whether the model has a response.
    """
    design = Design.from_dict(meta["design"])
    if design.classes != classes:
        raise ValueError("its response is malformed")
    options = dict(meta["engine"])
    engine = ENGINES[options.pop("name")](
        **{k: np.inf if v == "inf" else v for k, v in options.items()}
    )
    terms_table = _terms_table(arrays)
    terms = {name: arrays[name] for name in terms_table}
    check_arrays(terms, terms_table, m=len(design.n_levels))
    support = _unpack_support(arrays, design, engine)
    layout = engine.layout_of(design, list(terms.values()), support)
    # the layout with any hidden units after the predictors. The second argument limits its size, so
    # that a forged file cannot request more parameters than it has numbers
    hidden_layout = engine.widened(
        layout, arrays["draws_hidden"].size if "draws_hidden" in arrays else layout.size
    )
    # rows of such an array may have any length: its symbol is the array's name
    state_table = {
        name: ArraySpec("f", ("n_runs", name), FINITE)
        for name in arrays
        if name.startswith(STATE_PREFIX)
    }
    check_types(meta, {"log_z_kind": str})
    check_model(  # the last arguments are the lengths named in `TABLE`
        meta,
        arrays,
        TABLE | terms_table | state_table | SURVEY_TABLE | LOCATION_TABLE,
        design,
        # joint fits have an intercept
        size=layout.size,
        D=layout.D,
        n_site_columns=1 + regressors(layout).D,
        coefficients=layout.size + bool(engine.joint),
        hidden_size=hidden_layout.size,
        order=max(layout.order, 2),
        n_runs=len(design.response.levels) + ("pooled" in arrays),
        # closed-form estimates record no iterations of predictors
        n_recorded=layout.m if arrays["grad_norm"].size else 0,
    )
    _check_values(engine, layout, arrays)
    estimate = Estimate(
        Parameters(layout, arrays["theta"], arrays.get("pooled")),
        log_z=arrays["log_z"],
        log_z_kind=meta["log_z_kind"],
        class_prior=arrays["prior"],
        lkh=float(arrays["lkh"][0]),
        fits=_unpack_runs(arrays),
        log_z_error=arrays["log_z_error"],
        calibration=Calibration(float(arrays["calibration"][-1]), arrays["calibration"][:-1])
        if "calibration" in arrays
        else None,
        predictive=unpack_predictive(layout, hidden_layout, arrays),
        relevance=_unpack_relevance(arrays),
        cumulative=_unpack_cumulative(meta, engine),
        location=unpack_location(meta, arrays, design),
    )
    # such files have complete rows: the counts of the first predictor's levels sum to nobs
    if "nobs" not in meta:
        meta = meta | {"nobs": round(float(arrays["counts"][:, : design.n_levels[0]].sum()))}
    # otherwise "real": any weights
    arguments = unpack_model(meta, arrays, design, whole=engine.weights == "counts")
    if not arguments["_stored"].nobs > 0:
        raise ValueError("it has no observations")
    if "sections" in meta:
        sections = [_unpack_section(section) for section in meta["sections"]]
        arguments["_stored"] = replace(arguments["_stored"], sections=sections)
    if "sampling_design" in meta:
        check_types(meta, {"sampling_design": str})
        arguments["_stored"] = replace(
            arguments["_stored"], sampling_design=meta["sampling_design"]
        )
    tuning = _unpack_tuning(meta.get("tuning"), engine)
    if classes:
        arguments["_stored_loss"] = _unpack_loss(meta, tuning, estimate)
    return arguments | {
        "engine": engine,
        "estimate": estimate,
        "tuning": tuning,
        "survey": unpack_survey(arrays),
    }
