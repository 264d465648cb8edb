"""Archive: a fitted model as a JSON-ready dict and plain arrays, and back.

What earlier versions of the package do not know goes into the dict, whose other entries they still read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.convergence_warnings import Problem
from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.tuning import Tuning
from bbl.design.design import Design
from bbl.engines import ENGINES, Engine, EngineFit
from bbl.errors import BBLTypeError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.format import label_text
from bbl.report.machine.summary import Section
from bbl.results.array_table import FINITE, NON_NEGATIVE, ArraySpec, check_arrays, refuse_unknown
from bbl.results.loss_archive import pack_loss, unpack_tuned_loss
from bbl.results.machine.draw_archive import draw_table, pack_draws, unpack_draws, unpack_predictive
from bbl.results.model import Training
from bbl.results.row_archive import ROWS, pack_priors, pack_rows, unpack_priors, unpack_rows
from bbl.stats.calibration import Calibration

__all__ = ["pack", "unpack"]

STATE = "state_"  # before the names of what an engine wants to have again

CHOSEN = ("free", "votes", "nodes")  # what engines that choose terms keep of each group

KIND_OF = {"f": "float", "i": "int", "u": "int", "b": "bool"}


def pack(fit: Any, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Return what a fit is made of: names and options as a dict, numbers as arrays."""
    engine, estimate = fit.engine, fit.estimate
    if type(engine) is not ENGINES.get(engine.name):
        raise BBLTypeError(f"Models of the engine {type(engine).__name__} cannot be saved; only the package's own can.")
    parameters = estimate.parameters
    meta = {
        "call": fit.call,
        "design": fit.design.to_dict(),
        "engine": {"name": engine.name, **_options(engine)},
        "log_z_kind": estimate.log_z_kind,
        "nobs": fit.nobs(),
        "sections": [_pack_section(section) for section in fit._sections],
        "tuning": _pack_tuning(fit.tuning),
        **(pack_priors(fit.priors) | pack_loss(fit.log_loss, fit.tuning is not None) if fit.design.classes else {}),
    }
    arrays = {
        "theta": parameters.theta,
        "pairs": parameters.layout.pairs,
        **{_terms_name(k): terms for k, terms in enumerate(parameters.layout.terms[1:], 3)},
        "log_z": estimate.log_z,
        "log_z_error": estimate.log_z_error,
        "prior": estimate.class_prior,
        "lkh": np.array([estimate.lkh, *(f.lkh for f in estimate.fits)]),
        "grad_norm": _stacked([f.grad_norm for f in estimate.fits]),
        "n_iter": _stacked([f.n_iter for f in estimate.fits]),
        "converged": np.array([f.converged for f in estimate.fits]),
        "log_likelihood": np.array([np.nan if engine.joint else fit._log_likelihood]),
        "counts": np.concatenate(fit._counts, axis=1),
        **_pack_posterior(estimate.fits, parameters.layout.size),
    }
    if parameters.pooled is not None:
        arrays["pooled"] = parameters.pooled
    if engine.chooses:
        arrays |= {name: np.array([f.state[name] for f in estimate.fits]) for name in CHOSEN}
    if estimate.calibration is not None:
        arrays["calibration"] = np.append(estimate.calibration.offset, estimate.calibration.temperature)
    arrays |= pack_draws(estimate.fits, estimate.predictive)
    if store_data and fit.training is not None:
        rows, meta["index"] = pack_rows(fit.training, fit.index)
        arrays |= rows
    return meta, arrays


def _pack_posterior(fits: Sequence[EngineFit], size: int) -> dict[str, np.ndarray]:
    """Return posterior sds, nan for a group without rows, and what the engine wants to have again; draws have both."""
    if all(fit.sd is None or fit.draws is not None for fit in fits):
        return {}
    names = {name for fit in fits for name in fit.state}
    state = {STATE + name: _stacked([fit.state.get(name, np.zeros(0)) for fit in fits]) for name in sorted(names)}
    return {"sd": np.array([np.full(size, np.nan) if fit.sd is None else fit.sd for fit in fits]), **state}


def _unpack_posterior(arrays: dict[str, np.ndarray], k: int, drawn: np.ndarray | None) -> dict[str, Any]:
    """Return the draws of fit number `k` with their sds, or what `_pack_posterior` stored of it."""
    if drawn is not None:
        return {"sd": drawn.std(axis=(0, 1), ddof=1), "draws": drawn}
    if "sd" not in arrays or np.isnan(arrays["sd"][k]).any():
        return {}
    state = {name.removeprefix(STATE): array[k] for name, array in arrays.items() if name.startswith(STATE)}
    return {"sd": arrays["sd"][k], "state": state}


def _stacked(rows: list[np.ndarray]) -> np.ndarray:
    """Return rows as a matrix; a group without rows took no iterations, so its own is empty."""
    width = max(map(len, rows))
    return np.array([row if len(row) else np.zeros(width, row.dtype) for row in rows])


def _pack_section(section: Section) -> dict:
    """Return a finished table of the summary, whatever its columns: its cells in kinds that print alike."""
    columns = []
    for k, name in enumerate(section.table.columns):
        column = section.table.iloc[:, k]
        kind = KIND_OF.get(column.dtype.kind, "text")
        if kind == "text" or column.hasnans and kind != "float":
            columns.append({"name": str(name), "kind": "text", "cells": [str(v) for v in column]})
        else:
            cells = _pack_numbers(column.to_numpy(float)) if kind == "float" else column.tolist()
            columns.append({"name": str(name), "kind": kind, "cells": cells})
    rows = [str(label) for label in section.table.index]
    return {"heading": section.heading, "note": section.note, "rows": rows, "columns": columns}


def _unpack_section(stored: dict) -> Section:
    words = [stored["heading"], stored["note"], *stored["rows"], *(column["name"] for column in stored["columns"])]
    if not all(type(word) is str for word in words):
        raise ValueError("a heading of its summary is not as saved")
    heading, note, *names = map(label_text, words)
    n, cells = len(stored["rows"]), []
    for column in stored["columns"]:
        kind, values = column["kind"], column["cells"]
        allowed = {"float": (float, str), "int": (int,), "bool": (bool,), "text": (str,)}[kind]
        right = type(values) is list and len(values) == n and all(type(v) in allowed for v in values)
        if not right or (kind == "int" and any(abs(v) >= 2**63 for v in values)):
            raise ValueError("a table of its summary is not as saved")
        dtype = {"float": float, "int": np.int64, "bool": bool, "text": None}[kind]
        cells.append(pd.Series([float(v) for v in values] if kind == "float" else values, dtype=dtype))
    table = pd.concat(cells, axis=1) if cells else pd.DataFrame(index=range(n))
    table = table.set_axis(pd.Index(names[:n], dtype=object), axis=0)
    return Section(heading, table.set_axis(pd.Index(names[n:], dtype=object), axis=1), note)


def _pack_numbers(values: np.ndarray) -> list:
    """Return numbers for JSON, to the last bit; infinities and nan as text."""
    return [v if np.isfinite(v) else str(v) for v in values.tolist()]


def _unpack_numbers(stored: list) -> np.ndarray:
    if not all(type(v) in (float, str) for v in stored):
        raise ValueError("a list of numbers is not as saved")
    return np.array([float(v) for v in stored])


def _pack_tuning(tuning: Tuning | None) -> dict | None:
    if tuning is None:
        return None
    numbers = {"values": tuning.values, "loss": tuning.loss, "offset": tuning.calibration.offset}
    return {
        "option": tuning.option,
        "chosen": int(tuning.chosen),
        "temperature": float(tuning.calibration.temperature),
        "found": [list(problem) for problem in tuning.found],
        **{name: _pack_numbers(np.asarray(values, dtype=float)) for name, values in numbers.items()},
    }


def _unpack_tuning(stored: dict | None, engine: Engine) -> Tuning | None:
    if stored is None:
        return None
    values, loss, offset = (_unpack_numbers(stored[name]) for name in ("values", "loss", "offset"))
    chosen, temperature, problems = stored["chosen"], stored["temperature"], stored["found"]
    sound = type(chosen) is int and 0 <= chosen < len(values) == len(loss) and type(temperature) is float
    words = [word for problem in problems for word in problem]
    tuned_options = (None, None if engine.tuned is None else engine.tuned.option)
    if not sound or stored["option"] not in tuned_options or not all(type(word) is str for word in words):
        raise ValueError("its tuning is not as saved")
    calibration = Calibration(temperature, offset)
    return Tuning(stored["option"], values, loss, chosen, calibration, [Problem(*problem) for problem in problems])


def _check_meta(meta: dict) -> None:
    kinds = {"call": str, "design": dict, "engine": dict, "log_z_kind": str}
    for name, kind in (kinds | {"nobs": int | float} if "nobs" in meta else kinds).items():
        if not isinstance(meta[name], kind):
            raise ValueError(f"{name!r} is not as saved")
    if not meta.get("nobs", 1) > 0:
        raise ValueError("it has no observations")


def _array_table(layout: Layout, wide: Layout, K: int, arrays: dict[str, np.ndarray]) -> dict[str, ArraySpec]:
    """Return the table of all arrays but rows; `wide` is the layout with hidden variables, of which draws may be."""
    m, size, runs = layout.m, layout.size, K + ("pooled" in arrays)
    iterates = m if arrays["grad_norm"].size else 0  # closed forms have no iterations
    return {
        "theta": ArraySpec("f", (K, size), FINITE),
        "pooled": ArraySpec("f", (size,), FINITE, required=False),
        **{_terms_name(k): ArraySpec("i", (len(terms), k), (0, m - 1)) for k, terms in enumerate(layout.terms, 2)},
        "log_z": ArraySpec("f", (K,), FINITE),
        "log_z_error": ArraySpec("f", (K,)),
        "prior": ArraySpec("f", (K,), NON_NEGATIVE),
        "lkh": ArraySpec("f", (runs + 1,)),
        "grad_norm": ArraySpec("f", (runs, iterates)),
        "n_iter": ArraySpec("i", (runs, iterates)),
        "converged": ArraySpec("b", (runs, m)),
        "log_likelihood": ArraySpec("f", (1,)),
        "counts": ArraySpec("f", (K, int(layout.n_levels.sum())), NON_NEGATIVE),
        "calibration": ArraySpec("f", (K + 1,), FINITE, required=False),
        "sd": ArraySpec("f", (runs, size), required=False),
        "free": ArraySpec("b", (K, size), required=False),
        "votes": ArraySpec("f", (K, size), required=False),
        "nodes": ArraySpec("f", (K, max(layout.order, 2), size), required=False),
        **{name: ArraySpec("f", (runs, None), FINITE) for name in arrays if name.startswith(STATE)},
        **draw_table(layout, wide, K, runs, arrays),
    }


def _check_values(layout: Layout, arrays: dict[str, np.ndarray]) -> None:
    """Refuse terms out of order, standard deviations below 0 or infinite, and temperatures that are not above 0."""
    for k, terms in enumerate(layout.terms, 2):
        if not np.array_equal(arrays[_terms_name(k)], terms) or not (terms[:, 1:] > terms[:, :-1]).all():
            raise ValueError(f"{_terms_name(k)!r} holds what cannot have been saved")
    if "sd" in arrays and ((arrays["sd"] < 0.0).any() or np.isinf(arrays["sd"]).any()):
        raise ValueError("'sd' holds what cannot have been saved")
    if "calibration" in arrays and arrays["calibration"][-1] <= 0:
        raise ValueError("'calibration' holds what cannot have been saved")


def _terms_name(order: int) -> str:
    """Return the name of the array of terms of an order from 2 on."""
    return "pairs" if order == 2 else f"terms{order}"


def _layout(design: Design, arrays: dict[str, np.ndarray]) -> Layout:
    """Return the layout of the terms that were saved, having refused numbers that are no predictors."""
    terms, order = [arrays["pairs"]], 3
    while (name := _terms_name(order)) in arrays:
        terms.append(arrays[name])
        order += 1
    predictor_range = (0, len(design.n_levels) - 1)
    check_arrays(arrays, {_terms_name(k): ArraySpec("i", (None, k), predictor_range) for k in range(2, order)})
    return Layout(design.n_levels, terms)


def _options(engine: Engine) -> dict[str, Any]:
    """Return the options of a method as a file holds them: one number for each order is a list, infinity a word."""
    options = dataclasses.asdict(engine)
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return {name: "inf" if isinstance(value, float) and np.isinf(value) else value for name, value in listed.items()}


def _unpack_fits(arrays: dict[str, np.ndarray]) -> tuple[EngineFit, ...]:
    """Return the engine runs of all groups, and of the pooled rows if there is one."""
    theta = [*arrays["theta"], *([arrays["pooled"]] if "pooled" in arrays else [])]
    drawn = unpack_draws(arrays, len(arrays["converged"]))
    runs = zip(theta, arrays["lkh"][1:], arrays["grad_norm"], arrays["n_iter"], arrays["converged"], drawn, strict=True)
    fits = []
    for k, (t, lkh, norm, n, ok, draws) in enumerate(runs):
        state = {name: arrays[name][k] for name in CHOSEN if name in arrays}
        posterior = {"state": state, **_unpack_posterior(arrays, k, draws)}
        fits.append(EngineFit(t, float(lkh), grad_norm=norm, n_iter=n, converged=ok, **posterior))
    return tuple(fits)


def unpack(meta: dict, arrays: dict[str, np.ndarray], classes: bool = True) -> dict[str, Any]:
    """Return what `pack` stored as the arguments that the class of results takes, which has `classes` or has not."""
    design = Design.from_dict(meta["design"])
    if design.classes != classes:
        raise ValueError("its response is not as saved")
    options = dict(meta["engine"])
    engine = ENGINES[options.pop("name")](**{k: np.inf if v == "inf" else v for k, v in options.items()})
    layout = _layout(design, arrays)
    _check_meta(meta)
    table = _array_table(layout, engine.widened(layout), len(design.response.levels), arrays)
    refuse_unknown(arrays, {*table, *ROWS})
    check_arrays(arrays, table)
    _check_values(layout, arrays)
    if engine.chooses and not all(name in arrays for name in CHOSEN):
        raise ValueError("it does not say which terms its groups have")
    theta, fits = arrays["theta"], _unpack_fits(arrays)
    estimate = Estimate(
        Parameters(layout, theta, arrays.get("pooled")),
        arrays["log_z"],
        meta["log_z_kind"],
        arrays["prior"],
        float(arrays["lkh"][0]),
        fits,
        arrays["log_z_error"],
        Calibration(float(arrays["calibration"][-1]), arrays["calibration"][:-1]) if "calibration" in arrays else None,
        unpack_predictive(layout, engine.widened(layout), theta, arrays),
    )
    K = len(design.response.levels)
    sample, index = unpack_rows(arrays, meta.get("index"), layout.n_levels, K, whole=engine.weights == "counts")
    counts = np.split(arrays["counts"], np.cumsum(design.n_levels)[:-1], axis=1)
    nobs = meta.get("nobs", round(float(counts[0].sum())))  # files that do not say have nothing missing
    sections = [_unpack_section(section) for section in meta["sections"]] if "sections" in meta else None
    tuning = _unpack_tuning(meta.get("tuning"), engine)
    training = Training(nobs, float(arrays["log_likelihood"][0]), counts, sections)
    return {
        "call": meta["call"],
        "design": design,
        "training": sample,
        "index": index,
        "engine": engine,
        "estimate": estimate,
        "tuning": tuning,
        "stored": training,
        **(
            {"priors": unpack_priors(meta, K), "stored_loss": unpack_tuned_loss(meta, tuning, estimate)}
            if classes
            else {}
        ),
    }
