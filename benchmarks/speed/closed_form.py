"""Mean field and naive Bayes: the package, numpy and scikit-learn."""

from collections.abc import Callable

import numpy as np

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines import MeanField, NaiveBayes
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.rows.sample import Sample
from benchmarks.speed.measure import Measurement, Options, measured, method
from benchmarks.speed.methods import evaluate, one_hot, starts
from benchmarks.speed.problems import Part, Problem

# -- mean field ------------------------------------------------------------------------------------


def _finish(problem: Problem, options: Options, work: Callable, matrices: Callable) -> Measurement:
    """Measure a mean-field fit; its objective is the unpenalised pseudo-likelihood of h and J on
    some sites.

    `matrices` turns what `work` returns for a part into fields (D,) and couplings (D, D).
    """

    def check(result):
        rng = np.random.default_rng(0)
        solution = {}
        for k, (part, found) in enumerate(zip(problem.parts, result, strict=True)):
            theta, start = np.column_stack(matrices(found)), starts(part)
            for i in rng.choice(len(part.n_levels), min(20, len(part.n_levels)), replace=False):
                solution[k, i] = theta[start[i] : start[i + 1]]
        some = Problem(
            [Part(part.codes[:1000], part.n_levels) for part in problem.parts], problem.source
        )
        return evaluate(some, 0.0, solution)[0], float("nan"), {}

    return measured(work, check, options)


@method("meanfield", "bbl")
def bbl_mean_field(problem: Problem, options: Options) -> Measurement:
    """Mean field of every part with the package."""
    engine = MeanField(eps=options.more["eps"])
    layouts = [Layout(part.n_levels) for part in problem.parts]
    engine.fit(Part(np.eye(3, dtype=np.uint8), np.full(3, 2)).sample, Layout([2, 2, 2]))

    def work():
        pairs = zip(problem.parts, layouts, strict=True)
        return [
            (layout, engine.fit(part.sample, layout, options.threads)) for part, layout in pairs
        ]

    return _finish(problem, options, work, lambda found: to_matrix(found[0], found[1].theta))


@method("meanfield", "numpy")
def numpy_mean_field(problem: Problem, options: Options) -> Measurement:
    """Mean field by numpy: one-hot matrix product and matrix inverse (eqs. 19 to 23)."""
    eps = options.more["eps"]

    def fit(part: Part):
        X, n, width = one_hot(part), len(part.codes), np.asarray(part.n_levels) - 1
        levels = np.repeat(part.n_levels, width)
        same = np.equal.outer(*[np.repeat(np.arange(len(width)), width)] * 2)
        f = (X.sum(axis=0) + 1.0 / levels) / (n + 1.0)
        C = (X.T @ X + 1.0 / np.outer(levels, levels)) / (n + 1.0)
        C[same] = 0.0
        C[np.diag_indices_from(C)] = f
        C -= np.outer(f, f)
        J = -np.linalg.inv((1 - eps) * np.trace(C) / len(C) * np.eye(len(C)) + eps * C)
        J[same] = 0.0
        first = starts(part)[:-1]
        reference = 1.0 - np.add.reduceat(f, first)
        return np.log(f) - np.log(np.repeat(reference, width)) - J @ f, J

    return _finish(
        problem, options, lambda: [fit(part) for part in problem.parts], lambda found: found
    )


# -- naive Bayes -----------------------------------------------------------------------------------


@method("naive", "bbl")
def bbl_naive(problem: Problem, options: Options) -> Measurement:
    """Naive Bayes of all groups with the package; objective: mean negative ln P(x | y) of the
    rows.
    """
    codes, y = problem.stacked()
    K, n_levels = len(problem.parts), problem.parts[0].n_levels
    sample, layout = Sample(codes, np.ones(len(y)), y), Layout(n_levels, np.empty((0, 2)))

    def check(result):
        scores = Energy(layout, result.parameters.theta)(codes) - result.log_z
        return -float(scores[np.arange(len(y)), y].mean()), float("nan"), {}

    return measured(
        lambda: estimate_path(
            FitData(sample, layout, K), FitSpec(NaiveBayes(prior_count=1.0), "exact")
        )[0],
        check,
        options,
    )


@method("naive", "sklearn-categoricalnb")
def sklearn_naive(problem: Problem, options: Options) -> Measurement:
    """scikit-learn's CategoricalNB; its count per level is the package's prior count over the
    number of levels.
    """
    from sklearn.naive_bayes import CategoricalNB

    codes, y = problem.stacked()
    n_levels = problem.parts[0].n_levels
    if len(set(n_levels)) > 1:
        raise ValueError(
            "CategoricalNB has one alpha for all predictors, so levels must be equally many"
        )

    def check(model):
        columns = zip(model.feature_log_prob_, codes.T, strict=True)
        return -float(sum(table[y, column].mean() for table, column in columns)), float("nan"), {}

    settings = {"alpha": 1.0 / n_levels[0], "min_categories": np.asarray(n_levels)}
    return measured(lambda: CategoricalNB(**settings).fit(codes, y), check, options)
