"""Methods that use a model or measure the package alone: prediction, sampling, whole calls, gradients, import."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bbl.engines import PseudoLikelihood
from bbl.model.chains import Chains
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.states import random_parameters
from bbl.stats.scores import class_scores
from benchmarks.measure import Measurement, Options, measured, method
from benchmarks.methods import one_hot, softmax, starts
from benchmarks.problems import Model, Part, Problem, Table

__all__ = ["floor_ms"]

NAN = float("nan")

# -- prediction: the problem is a Table of 50 predictors; objective: mean of the larger class probability -------------


def _two_groups(m: int = 50, L: int = 4) -> tuple[Layout, np.ndarray]:
    layout = Layout(np.full(m, L))
    return layout, random_parameters(layout, dh=0.3, dJ=0.1, rng=5, n_groups=2)


def _codes(table: Table) -> np.ndarray:
    return np.column_stack([table.frame[name].cat.codes.to_numpy() for name in table.frame]).astype(np.uint8)


def _certainty(scores: np.ndarray) -> tuple[float, float, dict]:
    difference = np.abs(scores[:, 0] - scores[:, 1])
    return float((1.0 / (1.0 + np.exp(-difference))).mean()), NAN, {}


@method("predict", "bbl")
def bbl_predict(table: Table, options: Options) -> Measurement:
    """Class scores from codes, with couplings."""
    layout, theta = _two_groups()
    codes, zeros = _codes(table), np.zeros(2)
    return measured(lambda: class_scores(Energy(layout, theta)(codes), zeros, zeros + 0.5), _certainty, options)


@method("predict", "numpy")
def numpy_predict(table: Table, options: Options) -> Measurement:
    """The same scores by matrix products of one-hot blocks of 10,000 rows."""
    layout, theta = _two_groups()
    codes = _codes(table)
    models = [layout.to_matrix(t) for t in theta]

    def work():
        out = np.empty((len(codes), 2))
        for lo in range(0, len(codes), 10000):
            X = one_hot(Part(codes[lo : lo + 10000], layout.n_levels))
            for k, (h, J) in enumerate(models):
                out[lo : lo + 10000, k] = ((X @ (0.5 * J) + h) * X).sum(axis=1)
        return out

    return measured(work, _certainty, options)


@method("predict", "sklearn-categoricalnb")
def sklearn_predict(table: Table, options: Options) -> Measurement:
    """CategoricalNB's joint log-likelihood: naive Bayes, without couplings, so a much smaller sum per row."""
    from sklearn.naive_bayes import CategoricalNB

    codes = _codes(table)
    model = CategoricalNB(min_categories=4).fit(codes[:2000], np.arange(len(codes[:2000])) % 2)
    return measured(lambda: model.predict_joint_log_proba(codes), _certainty, options)


@method("predict", "bbl-frame")
def bbl_predict_frame(table: Table, options: Options) -> Measurement:
    """Class labels from a data frame of categorical columns by ``predict(type="class")``."""
    import bbl

    train = table.frame.iloc[:2000].assign(y=np.resize(["case", "ctrl"], min(2000, len(table.frame))))
    fit = bbl.bbl("y ~ .^2", train, method="mf", eps=0.5)
    return measured(lambda: fit.predict(table.frame, type="class"), lambda found: (NAN, NAN, {}), options)


# -- Gibbs sampling: the problem is a Model; objective: mean energy over chains ---------------------------------------


def _finish_gibbs(model: Model, options: Options, work: Callable, sweeps: int, chains: int) -> Measurement:
    """Measure `work`, which advances and returns states (chains, m), and add the rate of updates."""
    m = len(model.n_levels)
    layout = Layout(model.n_levels)
    theta = layout.from_matrix(model.h, model.J)

    def check(states):
        energy = Energy(layout, theta[None])(np.ascontiguousarray(states, dtype=np.uint8))[:, 0]
        return float(energy.mean()), NAN, {"objective_se": float(energy.std(ddof=1) / math.sqrt(len(energy)))}

    result = measured(work, check, options)
    result.more["updates_per_s"] = m * sweeps * chains / result.cpu_s
    result.more["updates_per_wall_s"] = m * sweeps * chains / result.wall_s
    return result


@method("gibbs", "bbl")
def bbl_gibbs(model: Model, options: Options) -> Measurement:
    """Gibbs chains of the package."""
    chains, sweeps = options.more["chains"], options.more["sweeps"]
    run = Chains(model.h, model.J, model.n_levels, chains, 1, options.threads)

    def work():
        run.sweep(sweeps)
        return run.codes

    return _finish_gibbs(model, options, work, sweeps, chains)


@method("gibbs", "numpy")
def numpy_gibbs(model: Model, options: Options) -> Measurement:
    """Gibbs chains side by side in numpy: a matrix product with the states of all chains for every predictor."""
    chains, sweeps = options.more["numpy_chains"], options.more["numpy_sweeps"]
    rng = np.random.default_rng(1)
    start = starts(Part(np.empty((0, 0)), model.n_levels))
    X = np.zeros((len(model.h), chains))

    def work():
        codes = np.zeros((len(model.n_levels), chains), dtype=np.intp)
        for _ in range(sweeps):
            for i, (a, b) in enumerate(zip(start[:-1], start[1:], strict=True)):
                weight = np.exp(model.J[a:b] @ X + model.h[a:b, None])
                upper = np.cumsum(np.vstack([np.ones(chains), weight]), axis=0)
                codes[i] = (rng.random(chains) * upper[-1] > upper[:-1]).sum(axis=0)
                X[a:b] = np.arange(1, b - a + 1)[:, None] == codes[i]
        return codes.T

    return _finish_gibbs(model, options, work, sweeps, chains)


@method("gibbs", "dwave-samplers")
def dwave_gibbs(model: Model, options: Options) -> Measurement:
    """D-Wave's simulated annealing held at one temperature, with Gibbs acceptance (binary models only)."""
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    if np.max(model.n_levels) > 2:
        raise ValueError("dwave-samplers takes binary models only")
    chains, sweeps = options.more["dwave_chains"], options.more["dwave_sweeps"]
    bqm = dimod.BinaryQuadraticModel(-np.triu(model.J), "BINARY")
    bqm.add_linear_from_array(-model.h)
    settings = {"beta_schedule_type": "custom", "beta_schedule": [1.0], "num_sweeps_per_beta": sweeps}
    sampler = SimulatedAnnealingSampler()

    def work():
        found = sampler.sample(bqm, num_reads=chains, proposal_acceptance_criteria="Gibbs", seed=1, **settings)
        return found.record.sample[:, np.argsort(found.variables)]

    return _finish_gibbs(model, options, work, sweeps, chains)


# -- whole calls: the problem is a Table ------------------------------------------------------------------------------


@method("call", "bbl")
def bbl_call(table: Table, options: Options) -> Measurement:
    """One call of the public API, named by ``op``, from the data frame to the result."""
    import bbl

    more = dict(options.more)
    op, formula, arguments = more.pop("op"), more.pop("formula", "y ~ .^2"), dict(more.pop("arguments", {}))
    weights = {"weights": more["weights"]} if "weights" in more else {}
    if op == "bbl":
        return measured(
            lambda: bbl.bbl(formula, table.frame, n_jobs=options.threads, **weights, **arguments), _fit, options
        )
    if op == "crossVal":
        settings = {"verbose": 0, "n_jobs": options.threads, **arguments}
        return measured(lambda: bbl.crossVal(formula, table.frame, **weights, **settings), _score, options)
    fit = bbl.bbl(formula, table.frame, n_jobs=options.threads, **weights, **more.pop("fit", {}))
    frame = table.frame if "rows" not in more else table.frame.iloc[np.arange(more["rows"]) % len(table.frame)]
    works: dict[str, Callable] = {
        "predict": lambda: fit.predict(frame, **arguments),
        "mcSample": lambda: bbl.mcSample(fit, verbose=0, seed=1, **arguments),
        "summary": lambda: str(fit.summary()),
        "logLik": fit.logLik,
    }
    return measured(works[op], lambda found: (NAN, NAN, {}), options)


def _fit(fit: Any) -> tuple[float, float, dict]:
    norms = [part.grad_norm.max() for part in fit.estimate.fits if len(part.grad_norm)]
    return -fit.lkh / fit.nobs(), max(norms, default=NAN), {"converged": bool(fit.converged)}


def _score(found: Any) -> tuple[float, float, dict]:
    return float(found.maxscore), NAN, {}


@method("crossval", "bbl-grid")
def bbl_grid(table: Table, options: Options) -> Measurement:
    """crossVal over the whole grid at once, warm starts included."""
    import bbl

    settings = {"verbose": 0, "n_jobs": options.threads, "shuffle": True, "seed": 1, "refit": False}
    grid = options.more["grid"]
    return measured(lambda: bbl.crossVal("y ~ .^2", table.frame, lambda_=grid, **settings), _score, options)


@method("crossval", "bbl-one-by-one")
def bbl_one_by_one(table: Table, options: Options) -> Measurement:
    """crossVal for each setting by itself: what the grid would cost without warm starts."""
    import bbl

    settings = {"verbose": 0, "n_jobs": options.threads, "shuffle": True, "seed": 1, "refit": False}
    grid = options.more["grid"]

    def work():
        return max(
            (bbl.crossVal("y ~ .^2", table.frame, lambda_=[v], **settings) for v in grid), key=lambda f: f.maxscore
        )

    return measured(work, _score, options)


@method("import", "bbl")
def bbl_import(table: Table, options: Options) -> Measurement:
    """Import the package in a fresh interpreter; seconds of the import statement alone, median of several."""
    code = (
        "import time; w, c = time.perf_counter(), time.process_time(); import bbl; "
        "print(time.perf_counter() - w, time.process_time() - c)"
    )
    runs = []
    for _ in range(options.more.get("runs", 7)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)  # noqa: S603
        runs.append([float(v) for v in done.stdout.split()])
    wall, cpu = np.median(runs[1:], axis=0)  # the first may have read the files from disk
    return Measurement(NAN, NAN, cpu, cpu, wall, NAN, {"first_wall_s": runs[0][0]})


# -- gradients: the problem is a Problem of one part ------------------------------------------------------------------

LOADS_PER_NS, EXPS_PER_NS, LANES, STATES = 7.75, 1.55, 8, 64


def floor_ms(part: Part) -> float:
    """Return the least milliseconds of one gradient of all sites, float64, on the processor of the quoted trials.

    Two passes (forward, backward) of one 64-byte load-add from L1 for each row, logit, block of 8 sites and composite
    predictor (neighbours merged up to 64 joint states), at 7.75 per ns, and one exponential per row and logit at
    1.55 per ns.
    """
    n_levels = [int(L) for L in part.n_levels]
    composites, states = 0, STATES + 1
    for L in n_levels:
        if states * L > STATES:
            composites, states = composites + 1, 1
        states *= L
    blocks = math.ceil(len(n_levels) / LANES)
    logits = max(n_levels) - 1
    rows = len(part.codes)
    loads = 2.0 * rows * blocks * logits * composites
    return (loads / LOADS_PER_NS + rows * blocks * LANES * logits / EXPS_PER_NS) / 1e6


def _point(part: Part, penalty: float) -> np.ndarray:
    """Return site matrix of a fit to low accuracy: a point as the optimiser meets it."""
    layout = Layout(part.n_levels)
    return PseudoLikelihood(lambda_=penalty, tolerance=1e-3).fit(part.sample, layout).site_theta


@method("gradient", "bbl")
def bbl_gradient(problem: Problem, options: Options) -> Measurement:
    """Objective and gradient of all sites by the package's kernel, once it is set up."""
    from bbl._ext.pseudo import PseudoProblem

    part, penalty = problem.parts[0], options.more["penalty"]
    layout = Layout(part.n_levels)
    theta = _point(part, penalty)
    kernel = PseudoProblem(part.codes, np.ones(len(part.codes)), layout.n_levels, layout.mask)

    def check(found):
        value, gradient = found
        norms = np.sqrt(np.add.reduceat((np.asarray(gradient) ** 2).sum(axis=1), layout.start[:-1]))
        return float(np.mean(value)), float(norms.max()), {"floor_ms": floor_ms(part)}

    return measured(lambda: kernel.objective(theta, penalty, 0.0), check, options)


@method("gradient", "numpy")
def numpy_gradient(problem: Problem, options: Options) -> Measurement:
    """The same by dense matrix products."""
    part, penalty = problem.parts[0], options.more["penalty"]
    start, X = starts(part), np.column_stack([np.ones(len(part.codes)), one_hot(part)])
    theta, width = _point(part, penalty), np.diff(start)
    Y, own = X[:, 1:], np.equal.outer(*[np.repeat(np.arange(len(width)), width)] * 2)

    def work():
        logits = X @ theta.T
        inner = (logits * Y).sum(axis=0)
        P, total = softmax(logits, start[:-1], width)
        P -= Y
        gradient = P.T @ X
        gradient /= len(X)
        gradient[:, 1:] += penalty * theta[:, 1:]
        gradient[:, 1:][own] = 0.0
        squares = np.add.reduceat(inner, start[:-1]) - total.sum(axis=0)
        return -squares / len(X) + 0.5 * penalty * np.add.reduceat(
            (theta[:, 1:] ** 2).sum(axis=1), start[:-1]
        ), gradient

    def check(found):
        norms = np.sqrt(np.add.reduceat((found[1] ** 2).sum(axis=1), start[:-1]))
        return float(found[0].mean()), float(norms.max()), {"floor_ms": floor_ms(part)}

    return measured(work, check, options)
