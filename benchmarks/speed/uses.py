"""Methods that use a model or measure the package alone: prediction, sampling, whole calls,
gradients, import.
"""

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

import bbl
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.engines import PseudoLikelihood
from bbl.model.chains import Chains
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.regressors import from_matrix, to_matrix
from bbl.model.states import random_parameters
from bbl.stats.metrics import class_scores
from benchmarks.speed.measure import Measurement, Options, measured, method
from benchmarks.speed.methods import one_hot, softmax, starts
from benchmarks.speed.problems import Model, Part, Problem, Table

NAN = float("nan")

# -- prediction: the problem is a Table of 50 predictors; objective: mean of the larger class probab


def _two_groups(m: int = 50, L: int = 4) -> tuple[Layout, np.ndarray]:
    layout = Layout(np.full(m, L))
    return layout, random_parameters(layout, dh=0.3, dJ=0.1, rng=5, n_groups=2)


def _codes(table: Table) -> np.ndarray:
    return np.column_stack([table.frame[name].cat.codes.to_numpy() for name in table.frame]).astype(
        np.uint8
    )


def _nothing(found: Any) -> tuple[float, float, dict]:
    return NAN, NAN, {}


def _certainty(scores: np.ndarray) -> tuple[float, float, dict]:
    return float(expit(np.abs(scores[:, 0] - scores[:, 1])).mean()), NAN, {}


@method("predict", "bbl")
def bbl_predict(table: Table, options: Options) -> Measurement:
    """Class scores from codes, with couplings."""
    layout, theta = _two_groups()
    codes, zeros = _codes(table), np.zeros(2)
    return measured(
        lambda: class_scores(Energy(layout, theta)(codes), zeros, zeros + 0.5), _certainty, options
    )


@method("predict", "numpy")
def numpy_predict(table: Table, options: Options) -> Measurement:
    """The same scores by matrix products of one-hot blocks of 10,000 rows."""
    layout, theta = _two_groups()
    codes = _codes(table)
    models = [to_matrix(layout, t) for t in theta]

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
    """CategoricalNB's joint log-likelihood: naive Bayes, without couplings, so a much smaller sum
    per row.
    """
    from sklearn.naive_bayes import CategoricalNB

    codes = _codes(table)
    model = CategoricalNB(min_categories=4).fit(codes[:2000], np.arange(len(codes[:2000])) % 2)
    return measured(lambda: model.predict_joint_log_proba(codes), _certainty, options)


@method("predict", "bbl-frame")
def bbl_predict_frame(table: Table, options: Options) -> Measurement:
    """Class labels from a data frame of categorical columns by ``predict(type="class")``."""
    train = table.frame.iloc[:2000].assign(
        y=np.resize(["case", "ctrl"], min(2000, len(table.frame)))
    )
    fit = bbl.bbl("y ~ .^2", train, method="mf", eps=0.5)
    return measured(lambda: fit.predict(table.frame, type="class"), _nothing, options)


# -- Gibbs sampling: the problem is a Model; objective: mean energy over chains --------------------


def _gibbs(model: Model, options: Options, set_up: Callable, prefix: str = "") -> Measurement:
    """Measure what `set_up(model, chains, sweeps, threads)` returns, which advances and returns
    states (chains, m).
    """
    chains, sweeps = (options.more[prefix + key] for key in ("chains", "sweeps"))
    layout = Layout(model.n_levels)
    energy_of = Energy(layout, from_matrix(layout, model.h, model.J)[None])

    def check(states):
        energy = energy_of(np.ascontiguousarray(states, dtype=np.uint8))[:, 0]
        return (
            float(energy.mean()),
            NAN,
            {"objective_se": float(energy.std(ddof=1) / math.sqrt(len(energy)))},
        )

    result = measured(set_up(model, chains, sweeps, options.threads), check, options)
    for rate, seconds in (("updates_per_s", result.cpu_s), ("updates_per_wall_s", result.wall_s)):
        result.more[rate] = layout.m * sweeps * chains / seconds
    return result


def bbl_gibbs(model: Model, chains: int, sweeps: int, threads: int) -> Callable:
    """Gibbs chains of the package."""
    run = Chains(model.h, model.J, model.n_levels, chains, 1, threads)

    def work():
        run.sweep(sweeps)
        return run.codes

    return work


def numpy_gibbs(model: Model, chains: int, sweeps: int, threads: int) -> Callable:
    """Gibbs chains side by side in numpy: a matrix product with the states of all chains for every
    predictor.
    """
    rng = np.random.default_rng(1)
    start = starts(Part(np.empty((0, 0)), model.n_levels))
    X = np.zeros((len(model.h), chains))

    def work():
        codes = np.zeros((len(model.n_levels), chains), dtype=np.intp)
        for _ in range(sweeps):
            for i, (a, b) in enumerate(itertools.pairwise(start)):
                weight = np.exp(model.J[a:b] @ X + model.h[a:b, None])
                upper = np.cumsum(np.vstack([np.ones(chains), weight]), axis=0)
                codes[i] = (rng.random(chains) * upper[-1] > upper[:-1]).sum(axis=0)
                X[a:b] = np.arange(1, b - a + 1)[:, None] == codes[i]
        return codes.T

    return work


def dwave_gibbs(model: Model, chains: int, sweeps: int, threads: int) -> Callable:
    """D-Wave's simulated annealing held at one temperature, with Gibbs acceptance (binary models
    only).
    """
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    if np.max(model.n_levels) > 2:
        raise ValueError("dwave-samplers takes binary models only")
    bqm = dimod.BinaryQuadraticModel(-np.triu(model.J), "BINARY")
    bqm.add_linear_from_array(-model.h)
    settings = {
        "beta_schedule_type": "custom",
        "beta_schedule": [1.0],
        "num_sweeps_per_beta": sweeps,
    }
    settings |= {"num_reads": chains, "proposal_acceptance_criteria": "Gibbs", "seed": 1}

    def work():
        found = SimulatedAnnealingSampler().sample(bqm, **settings)
        return found.record.sample[:, np.argsort(found.variables)]

    return work


method("gibbs", "bbl")(partial(_gibbs, set_up=bbl_gibbs))
method("gibbs", "numpy")(partial(_gibbs, set_up=numpy_gibbs, prefix="numpy_"))
method("gibbs", "dwave-samplers")(partial(_gibbs, set_up=dwave_gibbs, prefix="dwave_"))

# -- whole calls: the problem is a Table -----------------------------------------------------------


@method("call", "bbl")
def bbl_call(table: Table, options: Options) -> Measurement:
    """One call of the public API, named by ``op``, from the data frame to the result."""
    more = dict(options.more)
    op, formula, arguments = (
        more.pop("op"),
        more.pop("formula", "y ~ .^2"),
        dict(more.pop("arguments", {})),
    )
    given = {"n_jobs": options.threads} | (
        {"weights": more["weights"]} if "weights" in more else {}
    )
    if op == "bbl":
        return measured(lambda: bbl.bbl(formula, table.frame, **given, **arguments), _fit, options)
    if op == "crossVal":
        given = {"verbose": 0, **given, **arguments}
        return measured(lambda: bbl.crossVal(formula, table.frame, **given), _score, options)
    fit = bbl.bbl(formula, table.frame, **given, **more.pop("fit", {}))
    frame = (
        table.frame
        if "rows" not in more
        else table.frame.iloc[np.arange(more["rows"]) % len(table.frame)]
    )
    works: dict[str, Callable] = {
        "predict": lambda: fit.predict(frame, **arguments),
        "mcSample": lambda: bbl.mcSample(fit, verbose=0, seed=1, **arguments),
        "summary": lambda: str(fit.summary()),
        "logLik": fit.logLik,
    }
    return measured(works[op], _nothing, options)


def _fit(fit: Any) -> tuple[float, float, dict]:
    norms = [part.grad_norm.max() for part in fit.estimate.fits if len(part.grad_norm)]
    return -fit.lkh / fit.nobs(), max(norms, default=NAN), {"converged": bool(fit.converged)}


def _score(found: Any) -> tuple[float, float, dict]:
    return float(found.maxscore), NAN, {}


def _cross_validate(
    table: Table, options: Options, cut: Callable[[list], list[list]]
) -> Measurement:
    """crossVal over the whole grid at once, or for each setting by itself: what it would cost
    without warm starts.
    """
    grids = cut(options.more["grid"])
    settings = {"verbose": 0, "n_jobs": options.threads, "shuffle": True, "seed": 1, "refit": False}

    def work():
        found = [bbl.crossVal("y ~ .^2", table.frame, lambda_=grid, **settings) for grid in grids]
        return max(found, key=lambda f: f.maxscore)

    return measured(work, _score, options)


method("crossval", "bbl-grid")(partial(_cross_validate, cut=lambda grid: [grid]))
method("crossval", "bbl-one-by-one")(
    partial(_cross_validate, cut=lambda grid: [[value] for value in grid])
)


@method("import", "bbl")
def bbl_import(table: Table, options: Options) -> Measurement:
    """Import the package in a fresh interpreter; seconds of the import statement alone, median of
    several.
    """
    code = (
        "import time; w, c = time.perf_counter(), time.process_time(); import bbl; "
        "print(time.perf_counter() - w, time.process_time() - c)"
    )
    runs = []
    for _ in range(options.more.get("runs", 7)):
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
        )
        runs.append([float(v) for v in done.stdout.split()])
    wall, cpu = np.median(runs[1:], axis=0)  # the first may have read the files from disk
    return Measurement(NAN, NAN, cpu, cpu, wall, NAN, {"first_wall_s": runs[0][0]})


# -- gradients: the problem is a Problem of one part -----------------------------------------------

LOADS_PER_NS, EXPS_PER_NS, LANES, STATES = 7.75, 1.55, 8, 64


def floor_ms(part: Part) -> float:
    """Return the least milliseconds of one gradient of all sites, float64, on the processor of the
    quoted trials.

    Two passes (forward, backward) of one 64-byte load-add from L1 for each row, logit, block of 8
    sites and composite predictor (neighbours merged up to 64 joint states), at 7.75 per ns, and one
    exponential per row and logit at 1.55 per ns.
    """
    n_levels = [int(L) for L in part.n_levels]
    composites, states = 0, STATES + 1
    for L in n_levels:
        if states * L > STATES:
            composites, states = composites + 1, 1
        states *= L
    logits = len(part.codes) * math.ceil(len(n_levels) / LANES) * (max(n_levels) - 1)
    return logits * (2.0 * composites / LOADS_PER_NS + LANES / EXPS_PER_NS) / 1e6


def _gradient(problem: Problem, options: Options, set_up: Callable) -> Measurement:
    """Measure what `set_up(part, theta, penalty)` returns, at a point of low accuracy, as the
    optimiser meets it.
    """
    part, penalty = problem.parts[0], options.more["penalty"]
    rough = PseudoLikelihood(lambda_=penalty, tolerance=1e-3)

    def check(found):
        value, gradient = found
        norms = np.sqrt(np.add.reduceat((np.asarray(gradient) ** 2).sum(axis=1), starts(part)[:-1]))
        return float(np.mean(value)), float(norms.max()), {"floor_ms": floor_ms(part)}

    theta = rough.fit(part.sample, Layout(part.n_levels)).site_theta
    return measured(set_up(part, theta, penalty), check, options)


def bbl_gradient(part: Part, theta: np.ndarray, penalty: float) -> Callable:
    """Objective and gradient of all sites by the package's kernel, once it is set up."""
    layout = Layout(part.n_levels)
    kernel = PseudoProblem(part.codes, np.ones(len(part.codes)), layout.n_levels, layout.mask)
    return lambda: kernel.objective(theta, penalty, 0.0)


def numpy_gradient(part: Part, theta: np.ndarray, penalty: float) -> Callable:
    """The same by dense matrix products."""
    first, width = starts(part)[:-1], np.asarray(part.n_levels) - 1
    X = np.column_stack([np.ones(len(part.codes)), one_hot(part)])
    Y, own = X[:, 1:], np.equal.outer(*[np.repeat(np.arange(len(width)), width)] * 2)

    def work():
        logits = X @ theta.T
        inner = (logits * Y).sum(axis=0)
        P, total = softmax(logits, first, width)
        P -= Y
        gradient = P.T @ X
        gradient /= len(X)
        gradient[:, 1:] += penalty * theta[:, 1:]
        gradient[:, 1:][own] = 0.0
        value = (total.sum(axis=0) - np.add.reduceat(inner, first)) / len(X)
        return value + 0.5 * penalty * np.add.reduceat(
            (theta[:, 1:] ** 2).sum(axis=1), first
        ), gradient

    return work


method("gradient", "bbl")(partial(_gradient, set_up=bbl_gradient))
method("gradient", "numpy")(partial(_gradient, set_up=numpy_gradient))
