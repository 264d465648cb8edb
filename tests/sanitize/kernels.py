"""Small jobs that together run every kernel at every vector width of this processor; each returns
what it computed.
"""

from dataclasses import replace
from functools import partial
from itertools import product
from pkgutil import walk_packages

import numpy as np

import bbl._ext
from bbl._ext.conditional.multinomial import Panels
from bbl._ext.gibbs import gibbs
from bbl._ext.model.eigen import eigenvectors
from bbl._ext.model.joint_levels import joint_sums
from bbl._ext.pseudo.dual import DualProblem
from bbl._ext.pseudo.plan import widths
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.bayesnet.chowliu import chow_liu
from bbl.bayesnet.predict import estimate
from bbl.bayesnet.search import climb
from bbl.bayesnet.weighting import ConditionalLikelihood
from bbl.biclustering.cells import Cells
from bbl.biclustering.methods import Genetic, Mcmc, Prototype
from bbl.engines import MeanField, PersistentVI, PseudoLikelihood
from bbl.engines.bayes.posterior import Problem as Posterior
from bbl.engines.bayes.posterior import adjustment, draw_chains, mode
from bbl.engines.blanket.families import Families
from bbl.engines.boosting.rounds import Rows, boost
from bbl.engines.conditional.discriminative import fit_minibatches, solve
from bbl.engines.conditional.full_batch import FullBatch
from bbl.engines.conditional.kernel import make_basis
from bbl.model.chains import Chains
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.moments import pair_counts
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample
from bbl.sparse.products import Problem
from bbl.sparse.workingset import Descent, Penalty
from bbl.stats.calibration import fit_calibration
from bbl.stats.effective import neighbour_weights

LEVELS = np.array([2, 3, 5, 2, 4, 3, 2, 2, 3])


def sample(rows, dtype, weighted: bool, m: int = len(LEVELS)) -> tuple[Sample, Layout]:
    rng = np.random.default_rng(m)
    codes = np.ascontiguousarray(rng.integers(0, LEVELS[:m], (rows, m)).astype(dtype))
    weights = rng.integers(1, 4, rows).astype(float) if weighted else np.ones(rows)
    return Sample(codes, weights), Layout(LEVELS[:m])


def counts(rows, dtype):
    data, layout = sample(rows, dtype, False)
    return [pair_counts(data, layout)]


def scores(rows, dtype):
    data, layout = sample(rows, dtype, False)
    theta = np.random.default_rng(1).normal(size=(3, layout.size))
    return [energies(data.codes, layout, theta)]


def fit(engine, rows, dtype, m):
    found = engine.fit(*sample(rows, dtype, True, m))
    return [found.theta, found.grad_norm]


def influences(engine, rows, dtype):
    """Sum the Hessians of all sites, and the influences of the rows."""
    found, data = engine.influence(*sample(rows, dtype, True))
    return [np.concatenate([table.ravel() for table in found.terms(data)])]


def problem(rows, dtype, width, precision="double"):
    data, layout = sample(rows, dtype, True)
    return PseudoProblem(data.codes, data.weights, layout.n_levels, layout.mask, width, precision)


def lbfgs(shared, tasks=None, theta=None):
    """Solve tasks of a problem that threads may share, each in rows of its own."""
    theta = shared.start() if theta is None else theta
    for task in range(shared.n_tasks) if tasks is None else tasks:
        shared.solve(task, 0.01, 0.001, 1e-6, 30, theta)
    return [theta]


def objective(shared):
    theta = lbfgs(shared)[0]
    corrected = shared.objective(theta, 0.01, 0.0, linear=0.01 * theta, tasks=[0])
    return [
        *shared.objective(theta, 0.01, 0.0),
        *corrected,
        np.array([shared.log_normaliser(theta)]),
    ]


def block(rows, dtype, width):
    """The sums of a block of rows without moments."""
    data, layout = sample(rows, dtype, True)
    own = PseudoProblem(
        data.codes, data.weights, layout.n_levels, layout.mask, width, counted=False
    )
    theta = np.random.default_rng(1).normal(size=(layout.D, 1 + layout.D))
    return [*own.objective(theta, 0.0, 0.0), np.array([own.log_normaliser(theta, True)])]


def eigen(size):
    """Decompose a matrix as large as those that LAPACK itself gets."""
    matrix = np.random.default_rng(7).normal(size=(size, size))
    with serial_blas():
        return list(eigenvectors(matrix + matrix.T))


def chains(sweeps, lanes, levels, n_chains=40):
    start = np.cumsum([0, *(levels - 1)])
    rng = np.random.default_rng(2)
    J = np.triu(rng.normal(size=(start[-1], start[-1])) / 4)
    for lo, hi in zip(start[:-1], start[1:], strict=True):
        J[lo:hi, lo:hi] = 0
    run = Chains(rng.normal(size=start[-1]), J + J.T, levels, n_chains, 3)
    run.lanes = lanes
    run._table = gibbs.pack_couplings(run.J, run.n_levels, run.start, run.by_levels, lanes)
    draws = np.empty((n_chains, 4, len(levels)), dtype=np.uint8)
    run.sweep(sweeps, sweeps // 4, draws, np.empty((n_chains, 4), dtype=np.float32))
    return [draws, run.best_codes, run.energy(run.best_codes)]


def networks(rows, dtype):
    """Fit and use networks of a forest and of several parents, on rows with missing values, and
    search for one.
    """
    data, _ = sample(rows, dtype, True)
    rng = np.random.default_rng(4)
    data = replace(data, y=rng.integers(0, 3, rows), missing=rng.random(data.codes.shape) < 0.2)
    forest = chow_liu(data, LEVELS, 3)
    found = []
    for dag in (forest, forest.with_parents({forest.features[-1]: [forest.features[0]]})):
        found.append(estimate(dag, data, LEVELS, 3, 0.5).log_joint(data.codes, data.missing))
    found.append(ConditionalLikelihood(data, LEVELS, 3)(np.full(len(LEVELS), 0.5))[1])
    found.append(Families(data.codes, data.weights, LEVELS).scores_with_parents(0, 1, 1.0))
    held = np.eye(3)[np.arange(rows) % 3].T * data.weights
    found.append(
        np.array(climb("fssj", data, LEVELS, 3, held, epsilon=0.0, smooth=1.0, rng=rng)[1])
    )
    return found


def boosted(rows, dtype, K):
    """Boost fields and pairs of K groups."""
    data, _ = sample(rows, dtype, True)
    y = np.random.default_rng(7).integers(0, K, rows)
    held = (np.arange(rows) % 5 == 0).astype(float)
    codes = np.ascontiguousarray(data.codes.T, dtype=np.int32)
    to_boost = Rows(codes, np.asarray(LEVELS, dtype=np.intp), y, (1 - held) * data.weights, held)
    pairs = np.array(np.triu_indices(len(codes), 1), dtype=np.intp).T
    model = boost(
        to_boost,
        np.full(K, -np.log(K)),
        np.ascontiguousarray(pairs),
        4,
        0.3,
        np.random.default_rng(1),
    )
    return [table for _, table in model.tables]


def sparse_terms(rows, terms, K, group):
    """Descend over terms, from their Hessian and row by row."""
    data, _ = sample(rows, np.uint8, True)
    y = np.random.default_rng(7).integers(0, K, rows)
    problem = Problem.make(data.codes, LEVELS, y, K, data.weights)
    weights = {t: np.zeros((problem.size(t), K - 1)) for t in terms}
    one = Descent(problem, Penalty((2.0,) * 6, group), weights, np.zeros(K - 1))
    two = Descent(problem, Penalty((2.0,) * 6, group), weights, np.zeros(K - 1))
    two.few = 0
    return [np.array([descent.minimise(), *descent.theta.ravel()]) for descent in (one, two)]


def climbs(rows, dtype, K):
    """Fit all groups by minibatches and over all rows at once, with scores that are added to and
    without.
    """
    data, layout = sample(rows, dtype, True)
    rng = np.random.default_rng(8)
    y, given = rng.integers(0, K, rows), rng.normal(size=(rows, K))
    found = []
    for own, scores in ((layout, None), (layout, given), (Layout(layout.n_levels, []), None)):
        near = fit_minibatches(
            data.codes, y, data.weights, own, K, 0.5, 1e-3, 2, np.random.default_rng(9), scores
        )
        full = FullBatch(data.codes, y, data.weights, own, K, 0.5, 1e-3, 1e-8, scores)
        found += [near.theta, full.minimise(full.to_vector(near.theta, near.constant), 1e-4, 3)]
    return found


def regressions(rows, K):
    """Fit all groups over the functions of a kernel in both precisions, with scores that are added
    to and without.
    """
    data, layout = sample(rows, np.uint8, True)
    rng = np.random.default_rng(8)
    basis, hits = make_basis(data.codes, data.weights, layout, 0.5, 20), rng.random((rows, K))
    given, panels = (
        [None, rng.normal(size=(rows, K))],
        [Panels(basis.functions, kind) for kind in ("double", "single")],
    )
    with serial_blas():
        found = [
            solve(own, basis.spectrum, hits, [np.inf, 1e-2], scores)
            for scores in given
            for own in panels
        ]
    return [np.append(each.unknowns, each.loss) for own in found for each in own]


def calibrations(rows, K):
    """Calibrate class scores by an offset for each group, and by a temperature too."""
    rng = np.random.default_rng(9)
    given = rng.normal(size=(rows, K)), rng.integers(0, K, rows), rng.random(rows)
    return [fit_calibration(*given, kind).offset for kind in ("offset", "temperature")]


def joint(rows, F):
    """Sum over the rows that share two levels, some of which have shares of levels."""
    X = np.random.default_rng(10).choice([0.0, 0.0, 1.0, 0.3], (rows, 7))
    return [joint_sums(X, np.random.default_rng(11).normal(size=(rows, F)))]


def dual(rows, dtype, single):
    """Fit sites by dual coordinate ascent, with a proximal term and without."""
    n_levels = np.array([2, 30, 9, 65])
    codes = np.random.default_rng(3).integers(0, n_levels, (rows, 4)).astype(dtype)
    problem = DualProblem(codes, np.ones(rows), n_levels, 1.0, single)
    theta = np.zeros((102, 103))
    reports = [np.zeros(4), np.zeros(4), *(np.zeros(4, dtype=np.int32) for _ in range(3))]
    for site in range(4):
        for lambdah in (0.0, 0.1):
            settings = 0.1, lambdah, 0.1 - lambdah, 1e-5, 20
            problem.solve(site, *settings, theta, *reports, np.zeros(1, dtype=np.int32))
    return [theta, *reports]


def posterior(rows, sampler, sweeps=0, **options):
    """Draw from the posterior of a small model, and of a horseshoe."""
    data, layout = sample(rows, np.uint8, True, 3)
    found = []
    for horseshoe in (False, True):
        problem = Posterior(data, layout, 1.0, horseshoe, **options)
        centre, hessian = mode(problem)
        if problem.pseudo and sampler == "nuts":
            problem = replace(problem, adjust=adjustment(problem, centre, hessian))
        chains = draw_chains(
            problem, sampler, centre, hessian, (1, 12, 6), np.random.default_rng(8), sweeps
        )
        found.append(chains[0].draws)
    return found


def neighbours(rows, L):
    codes = np.random.default_rng(6).integers(0, L, (rows, 40)) * (L // 2)  # bytes, or wider codes
    return [neighbour_weights(codes, 0.3)]


def two_way_table(rows: int) -> Cells:
    rng = np.random.default_rng(5)
    row, column = np.nonzero(rng.random((rows, 11)) < 0.4)
    return Cells.from_entries(
        row, column, rng.integers(1, 6, len(row)).astype(float), np.ones(len(row)), (rows, 11)
    )


def two_way(method, rows, groups=None, n_levels=1):
    found = method.fit(two_way_table(rows), groups, 2, np.random.default_rng(6), n_levels=n_levels)
    return [found.rows, found.columns, found.history]


def without_a_job() -> set[str]:
    """Return the kernels that no job runs."""
    modules = walk_packages(bbl._ext.__path__, "bbl._ext.")
    built = {module.name.removeprefix("bbl._ext.") for module in modules if not module.ispkg} - {
        "_shared"
    }
    with_a_job = {
        "model.energy",
        "model.moments",
        "model.eigen",
        "pseudo.dual",
        "pseudo.newton",
        "pseudo.plan",
        "pseudo.pseudo",
    }
    with_a_job |= {
        "pseudo.influence",
        "model.neighbours",
        "model.calibration",
        "model.joint_levels",
    }
    with_a_job |= {
        "gibbs.gibbs",
        "network.families",
        "sparse.sparse",
        "posterior.posterior",
        "variational.persistent",
    }
    with_a_job |= {"bicluster.bicluster", "bicluster.genetic", "bicluster.mcmc"}
    with_a_job |= {"boosting.boosting", "conditional.conditional", "conditional.multinomial"}
    return built - with_a_job


def jobs(rows: int = 120) -> list:
    """Return all jobs; they share no memory but the problems, which kernels only read."""
    found = [partial(eigen, 512)] + [partial(neighbours, rows, L) for L in (2, 300)]
    found += [partial(calibrations, rows, K) for K in (2, 5)] + [
        partial(joint, rows, F) for F in (1, 9)
    ]
    for dtype in (np.uint8, np.uint16, np.int32):
        found += [partial(counts, rows, dtype)] * 2 + [partial(scores, rows, dtype)] * 2
        found += [partial(fit, MeanField(), rows, dtype, 9), partial(networks, rows, dtype)]
        found += [partial(boosted, rows, dtype, K) for K in (2, 3)]
        found += [partial(climbs, rows, dtype, K) for K in (2, 7)] + [partial(regressions, rows, 3)]
        found += [
            partial(fit, PseudoLikelihood(lambda_=0.1, lambdah=0.1), rows, dtype, m)
            for m in (2, 2, 9)
        ]
        found += [partial(influences, PseudoLikelihood(0.1, 0.1), rows, dtype)]
        found += [partial(dual, rows, dtype, single) for single in (False, True)]
        found += [
            partial(fit, PseudoLikelihood(0.1, 0.1, gauge="zero-sum"), rows, dtype, m)
            for m in (2, 9)
        ]
    for likelihood in ("sampled", "pseudo"):
        short = PersistentVI(likelihood=likelihood, n_iter=20, chains=32, draws=2)
        found += [partial(fit, short, rows, np.uint8, m) for m in (2, 9)]
    for width, precision in product(widths(), ("double", "mixed", "single")):
        shared = problem(rows, np.uint8, width, precision)
        other = problem(rows, np.int32, width, precision)
        found += [partial(lbfgs, shared), partial(objective, shared), partial(lbfgs, other)]
        found += [partial(block, rows, np.uint8, width)]
    for lanes in {gibbs.lanes(most) for most in (1, 8, 16)}:
        found += [
            partial(chains, rows // 15, lanes, levels)
            for levels in (LEVELS, np.array([40, 2, 33, 20]))
        ]
    found += [partial(posterior, rows, "nuts"), partial(posterior, rows, "exchange")]
    # each step of these passes over the rows
    apart = {"pseudo": True, "enumerate": False}
    found += [
        partial(posterior, rows // 5, "nuts", **apart),
        partial(posterior, rows // 5, "exchange", 2, **apart),
    ]
    for K, group in product((2, 3), (True, False)):
        found += [partial(sparse_terms, rows, [(0,), (1,), (0, 3), (2, 4)], K, group)]
        found += [partial(sparse_terms, rows, [(0,), (1, 2, 4, 5, 6)], K, group)]
    for options in ({}, {"move": "one"}, {"metric": "pearson"}, {"metric": "levels"}):
        found += [
            partial(
                two_way,
                Prototype(max_iter=5, **options),
                rows,
                (4, 3),
                6 if "levels" in options.values() else 1,
            )
        ]
    for mean in ("block", "mle"):
        found += [partial(two_way, Genetic(mean=mean, generations=20), min(rows // 10, 12))]
    found += [
        partial(two_way, Mcmc(draws=4, warmup=2, sigma=sigma), min(rows // 10, 12))
        for sigma in (0.0, 1.0)
    ]
    return found


if __name__ == "__main__":
    for job in jobs():
        job()
