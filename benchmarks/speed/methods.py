"""Pseudo-likelihood: the package, what pip installs for the same job, and a plain numpy + SciPy
baseline.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from bbl.engines import PseudoLikelihood
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from benchmarks.speed.measure import Measurement, Options, measured, method
from benchmarks.speed.problems import Part, Problem

# A solution: for each (part, predictor) fitted, the rows [h_i(a), J_i(a; j, b)], shape (A, 1 + D).
# A is L_i - 1 in the reference gauge, L_i for tools that give every level a row of its own (full
# gauge).
Solution = dict[tuple[int, int], np.ndarray]

BLOCK = 2000


def one_hot(part: Part, order: str = "C") -> np.ndarray:
    """Return the non-reference levels as 0/1 columns, float64 (n, D)."""
    layout = Layout(part.n_levels, np.empty((0, 2)))
    X = np.zeros((len(part.codes), layout.D), order=order)
    rows, columns = np.nonzero(part.codes)
    X[rows, layout.start[columns] + part.codes[rows, columns] - 1] = 1.0
    return X


def starts(part: Part) -> np.ndarray:
    """Return the first column of each predictor among the D columns, and D."""
    return np.concatenate(([0], np.cumsum(np.asarray(part.n_levels, dtype=int) - 1)))


# -- the check: one objective for all --------------------------------------------------------------


def evaluate(problem: Problem, penalty: float, solution: Solution) -> tuple[float, float]:
    """Return the mean over sites of the objective, and the largest gradient norm of a site.

    The objective of a site is its mean negative log-likelihood given all others + penalty/2 |J|^2;
    fields are free.
    """
    values, norm = [], 0.0
    for k, part, sites in by_part(problem, list(solution)):
        X, start = np.column_stack([np.ones(len(part.codes)), one_hot(part)]), 1 + starts(part)
        for i in sites:
            y, L = part.codes[:, i].astype(np.intp), int(part.n_levels[i])
            value, gradient = _site(X, y, L, solution[k, i], penalty)
            gradient[:, start[i] : start[i + 1]] = 0.0
            values.append(value)
            norm = max(norm, float(np.linalg.norm(gradient)))
    return float(np.mean(values)), norm


def _site(
    X: np.ndarray, y: np.ndarray, L: int, theta: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    value, gradient, J = 0.0, np.zeros_like(theta), theta[:, 1:]
    for lo in range(0, len(X), BLOCK):
        rows = X[lo : lo + BLOCK]
        reference = np.zeros((len(rows), L - len(theta)))  # no column in the full gauge
        log_p = log_softmax(np.column_stack([reference, rows @ theta.T]), axis=1)
        at = np.arange(len(rows)), y[lo : lo + BLOCK]
        value -= float(log_p[at].sum())
        P = np.exp(log_p)
        P[at] -= 1.0
        gradient += P[:, L - len(theta) :].T @ rows
    gradient /= len(X)
    gradient[:, 1:] += penalty * J
    return value / len(X) + 0.5 * penalty * float((J**2).sum()), gradient


def by_part(
    problem: Problem, sites: list[tuple[int, int]] | None
) -> list[tuple[int, Part, list[int]]]:
    """Return the parts that have sites to fit (None: all), each with its number and these sites."""
    if sites is None:
        return [(k, part, list(range(len(part.n_levels)))) for k, part in enumerate(problem.parts)]
    grouped = itertools.groupby(sorted(sites), key=lambda s: s[0])
    return [(k, problem.parts[k], [i for _, i in group]) for k, group in grouped]


def finish(
    problem: Problem,
    options: Options,
    fit_part: Callable,
    seconds: list | None = None,
    at_once: int = 1,
) -> Measurement:
    """Measure a fit; the objective is the mean over the case's sites, the gradient norm over all
    sites fitted.

    `fit_part(part, sites)` returns what a solution has for each of these sites; `seconds` gets what
    each took. `at_once` parts are fitted at the same time.
    """
    penalty = options.more["penalty"]
    every = sum(len(part.n_levels) for part in problem.parts)

    def work() -> Solution:
        parts = by_part(problem, options.sites)
        arguments = [part for _, part, _ in parts], [sites for _, _, sites in parts]
        if at_once == 1:
            fits = list(map(fit_part, *arguments))
        else:
            with ThreadPoolExecutor(at_once) as pool:
                fits = list(pool.map(fit_part, *arguments))
        return {
            (k, i): rows
            for (k, _, sites), fit in zip(parts, fits, strict=True)
            for i, rows in zip(sites, fit, strict=True)
        }

    def check(solution: Solution):
        fitted = len(solution)
        objective, norm = evaluate(problem, penalty, solution)
        if options.compare and fitted == every:
            objective, _ = evaluate(problem, penalty, {s: solution[s] for s in options.compare})
        more = {"sites": fitted, "all_sites": every}
        if seconds and fitted < every:
            # sampling error of the total that is scaled up from the sites fitted
            t = np.array(seconds[-fitted:])
            more["scaled_relative_error"] = float(
                t.std(ddof=1) / t.mean() * np.sqrt((1 - fitted / every) / fitted)
            )
        return objective, norm, more

    return measured(work, check, options)


# -- pseudo-likelihood -----------------------------------------------------------------------------


@method("pseudo", "bbl")
def bbl_pseudo(problem: Problem, options: Options, precision: str = "double") -> Measurement:
    """Fit all sites with the package, from codes to couplings; parts at the same time, as in
    ``bbl()``.
    """
    at_once = min(options.threads, len(problem.parts))
    penalty = options.more["penalty"]
    engine = PseudoLikelihood(lambda_=penalty, tolerance=options.tolerance, precision=precision)
    # load what is loaded lazily
    engine.fit(Part(np.eye(3, dtype=np.uint8), np.full(3, 2)).sample, Layout([2, 2, 2]))

    def fit_part(part: Part, sites: list[int]) -> list[np.ndarray]:
        layout = Layout(part.n_levels)
        rows = part.sample.collapsed(layout.n_levels)
        fit = engine.fit(rows, layout, options.threads // at_once)
        return np.split(fit.site_theta, layout.start[1:-1])

    with serial_blas():  # as in ``bbl()``: threads of BLAS would wait for work on the cores of fits
        measurement = finish(problem, replace(options, sites=None), fit_part, at_once=at_once)
    measurement.more["expected_mb"] = _expected_bytes(problem, options.threads) / 1e6
    return measurement


# which stops at a gradient of 1e-5
method("pseudo", "bbl-single")(partial(bbl_pseudo, precision="single"))


def _expected_bytes(problem: Problem, threads: int) -> float:
    """Return codes + parameters + optimiser state in bytes, of the largest part.

    The optimiser holds, for each thread, 2 x 6 + 8 vectors of (D + 1) x A doubles for each of 8
    sites, where A is the number of non-reference levels of a site.
    """
    most, kept = 0.0, 0.0
    for part in problem.parts:
        layout = Layout(part.n_levels)
        state = threads * (2 * 6 + 8) * (layout.D + 1) * (int(layout.n_levels.max()) - 1) * 64.0
        most = max(most, part.codes.nbytes + 8.0 * layout.size + state)
        kept += 8.0 * layout.D * (layout.D + 1)  # the solutions of all parts are kept for the check
    return most + kept


@method("pseudo", "numpy")
def numpy_pseudo(problem: Problem, options: Options) -> Measurement:
    """Fit all sites of a part at once: dense one-hot matrix products and SciPy's L-BFGS-B.

    What a careful numpy user would write: predictors centred (which takes the intercept out),
    variables scaled by the diagonal of the Hessian at the independent model, that model as the
    start, stopped on the largest gradient norm.
    """
    given = {"penalty": options.more["penalty"], "tolerance": options.tolerance}
    return finish(problem, options, partial(_numpy_part, **given))


def _numpy_part(part: Part, sites: list[int], penalty: float, tolerance: float) -> list[np.ndarray]:
    start, X = starts(part), one_hot(part)
    n, D = X.shape
    width = np.array([start[i + 1] - start[i] for i in sites])
    first = np.concatenate(([0], np.cumsum(width)))[:-1]
    columns = np.concatenate([np.arange(start[i], start[i + 1]) for i in sites])
    Y = X[:, columns]
    mean = X.mean(axis=0)
    X = X - mean
    p = mean[columns].clip(1e-12, 1 - 1e-12)
    scale = np.sqrt(np.multiply.outer((X**2).mean(axis=0), p * (1 - p)) + penalty + 1e-12)
    free = np.repeat(np.arange(len(part.n_levels)), np.diff(start))[:, None] != np.repeat(
        sites, width
    )
    C, last = len(columns), {}

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        b, J = x[:C], x[C:].reshape(D, C) / scale
        logits = X @ J
        logits += b
        value = -float((logits * Y).sum())
        P, total = softmax(logits, first, width)
        value += float(total.sum())
        P -= Y
        P /= n
        b_gradient, gradient = P.sum(axis=0), X.T @ P
        gradient += penalty * J
        gradient *= free
        square = ((gradient + free * np.outer(mean, b_gradient)) ** 2).sum(axis=0) + b_gradient**2
        last["norm"] = float(np.sqrt(np.add.reduceat(square, first).max()))
        gradient /= scale
        return value / n + 0.5 * penalty * float((J**2).sum()), np.concatenate(
            [b_gradient, gradient.ravel()]
        )

    def stop(intermediate_result):
        if last["norm"] <= tolerance:
            raise StopIteration

    reference = np.array([1.0 - mean[start[i] : start[i + 1]].sum() for i in sites]).clip(1e-12)
    x = np.concatenate([np.log(p) - np.log(np.repeat(reference, width)), np.zeros(D * C)])
    limits = {"maxcor": 20, "maxiter": 20000, "maxfun": 40000, "ftol": 0.0, "gtol": 0.0}
    x = minimize(function, x, jac=True, method="L-BFGS-B", callback=stop, options=limits).x
    J = x[C:].reshape(D, C) / scale
    return np.split(np.column_stack([x[:C] - mean @ J, J.T]), first[1:])


def softmax(
    logits: np.ndarray, first: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of all columns (in place of `logits`), and ln of the normalisers by
    site.
    """
    if width.max() == 1:
        total = np.logaddexp(0.0, logits)
        np.subtract(logits, total, out=logits)
        return np.exp(logits, out=logits), total
    top = np.maximum(np.maximum.reduceat(logits, first, axis=1), 0.0)
    logits -= np.repeat(top, width, axis=1)
    P = np.exp(logits, out=logits)
    total = np.exp(-top) + np.add.reduceat(P, first, axis=1)
    P /= np.repeat(total, width, axis=1)
    return P, np.log(total) + top


# -- site by site, by what pip installs ------------------------------------------------------------


def node_wise(
    problem: Problem, options: Options, fit_site: Callable, order: str = "C", drop: bool = False
) -> Measurement:
    """Fit site by site with `fit_site(X, y, L, penalty, tolerance)`, which returns rows [h, J] (A,
    1 + D).

    The dummies are made once for a part; a site's own columns are set to zero while it is the
    response (or left out, with `drop`), which costs the tool less than a copy of the matrix.
    """
    penalty, seconds = options.more["penalty"], []

    def fit_part(part: Part, sites: list[int]) -> Iterator[np.ndarray]:
        X, start = one_hot(part, order), starts(part)
        for i in sites:
            began = time.process_time()
            own = slice(start[i], start[i + 1])
            given = part.codes[:, i], int(part.n_levels[i]), penalty, options.tolerance
            if drop:
                others = np.delete(np.arange(X.shape[1]), own)
                rows = fit_site(np.ascontiguousarray(X[:, others]), *given)
                theta = np.zeros((len(rows), 1 + X.shape[1]))
                theta[:, np.concatenate(([0], 1 + others))] = rows
            else:
                kept = X[:, own].copy()
                X[:, own] = 0.0
                theta = fit_site(X, *given)
                X[:, own] = kept
            seconds.append(time.process_time() - began)
            yield theta

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the gradient norm reached says whether it converged
        # once on next to nothing: what a tool loads at its first call is not counted
        rng = np.random.default_rng(0)
        fit_site(
            np.asarray(rng.normal(size=(40, 2)), order=order),
            rng.integers(0, 2, 40),
            2,
            penalty,
            1e-4,
        )
        return finish(problem, options, fit_part, seconds)


def _sklearn(solver: str, X, y, L, penalty, tolerance) -> np.ndarray:
    """LogisticRegression; beyond two levels in its full gauge (own objective)."""
    from sklearn.linear_model import LogisticRegression

    C = 1.0 / (len(X) * penalty) if penalty else np.inf
    model = LogisticRegression(C=C, solver=solver, tol=tolerance, max_iter=100000).fit(X, y)
    rows = np.column_stack([model.intercept_, model.coef_])
    if L == 2 or len(model.classes_) == L:
        return rows
    full = np.zeros((L, rows.shape[1]))
    full[:, 0] = -50.0  # a level that never occurs
    full[model.classes_] = rows
    return full


def _glum(solver: str, X, y, L, penalty, tolerance) -> np.ndarray:
    """glum's binomial regression (two levels only)."""
    from glum import GeneralizedLinearRegressor

    options = {"alpha": penalty, "l1_ratio": 0.0, "solver": solver, "gradient_tol": tolerance}
    model = GeneralizedLinearRegressor(family="binomial", max_iter=10000, **options).fit(
        X, y.astype(float)
    )
    return np.concatenate([[model.intercept_], model.coef_])[None]


def _statsmodels(X, y, L, penalty, tolerance) -> np.ndarray:
    """statsmodels' MNLogit by Newton's method; it has no ridge penalty, so lambda must be 0."""
    import statsmodels.api as sm

    if penalty:
        raise ValueError("statsmodels has no ridge penalty")
    result = sm.MNLogit(y.astype(int), sm.add_constant(X)).fit(
        method="newton", disp=0, maxiter=200, tol=tolerance
    )
    return np.asarray(result.params).T


for _name, _fit_site, _how in (
    ("sklearn-lbfgs", partial(_sklearn, "lbfgs"), {}),
    ("sklearn-newton-cholesky", partial(_sklearn, "newton-cholesky"), {}),
    ("glum-lbfgs", partial(_glum, "lbfgs"), {"order": "F"}),
    ("glum-irls", partial(_glum, "irls-ls"), {"order": "F"}),
    ("statsmodels-newton", _statsmodels, {"drop": True}),
):
    method("pseudo", _name)(partial(node_wise, fit_site=_fit_site, **_how))
