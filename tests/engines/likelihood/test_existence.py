"""Where the likelihood has its maximum in a limit: faces, their ranks, and what cannot be
estimated.
"""

import itertools

import numpy as np
import pytest
import reference as oracle
import reference_likelihood as truth

from bbl.engines.likelihood.existence import facial_set, zero_margins
from bbl.engines.likelihood.influence import LikelihoodInfluence
from bbl.engines.likelihood.solve import Penalty, Solver
from bbl.engines.likelihood.states import StateTable
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

PAIRS = [(0, 1), (0, 2), (1, 2)]
N_TABLES = 200


def fit(L, terms, counts):
    """Fit the counts of all states without a penalty."""
    layout, seen = Layout(L, terms), np.flatnonzero(counts)
    sample = Sample(oracle.states(L).astype(np.uint8)[seen], counts[seen].astype(float))
    return Solver(layout, 1e-10, 200).fit(sample, Penalty(np.zeros(layout.size), 0.0))


def sparse_table(seed):
    """Return levels, terms and counts of a random table with empty states."""
    rng = np.random.default_rng([seed, 11])
    while True:
        m = int(rng.integers(2, 5))
        L = [int(n) for n in rng.integers(2, 4, m)]
        if np.prod(L) <= 54:
            break
    sets = [t for k in range(2, min(m, 3) + 1) for t in itertools.combinations(range(m), k)]
    terms = {t for t in sets if rng.random() < (0.8 if len(t) == 2 else 0.2)}
    terms |= {pair for t in terms for pair in itertools.combinations(t, 2)}
    n = int(rng.integers(1, 3) * np.prod(L))
    p = rng.dirichlet(np.full(int(np.prod(L)), rng.choice([0.3, 1.0, 3.0])))
    return L, sorted(terms, key=lambda t: (len(t), t)), rng.multinomial(n, p).astype(float)


def test_habermans_table_has_no_zero_margin_and_no_maximum():
    counts = np.array([0, 3, 5, 2, 4, 6, 1, 0], dtype=float)
    layout = Layout([2, 2, 2], PAIRS)
    table = StateTable(layout)
    assert zero_margins(table, counts, np.ones(layout.size, dtype=bool)).support is None
    face = facial_set(table, counts, np.ones(layout.size, dtype=bool))
    np.testing.assert_array_equal(face.support, counts > 0)
    solution = fit([2, 2, 2], PAIRS, counts)
    assert not solution.determined.any()
    assert solution.basis.sum() == 5  # six states that are left, and their probabilities sum to 1
    p, _ = truth.probabilities(truth.indicators([2, 2, 2], PAIRS), solution.theta)
    np.testing.assert_allclose(p * counts.sum(), counts, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 5))]
)
def test_faces_are_those_of_a_programme_for_each_empty_state(block):
    n_faces = 0
    for seed in range(block * N_TABLES // 5, (block + 1) * N_TABLES // 5):
        L, terms, counts = sparse_table(seed)
        X, table = truth.indicators(L, terms), StateTable(Layout(L, terms))
        face = facial_set(table, counts, np.ones(X.shape[1], dtype=bool))
        keeps = truth.facial_set(X, counts)
        support = np.ones(len(counts), dtype=bool) if face.support is None else face.support
        np.testing.assert_array_equal(support, keeps, err_msg=str(seed))
        if not keeps.all():
            n_faces += 1
            drop = X @ face.direction
            np.testing.assert_allclose(drop[keeps], drop[keeps][0], atol=1e-7, err_msg=str(seed))
            assert (drop[~keeps] <= drop[keeps][0] - 1 + 1e-7).all(), seed
        _check_fit(L, terms, counts, X, keeps, str(seed))
    assert 5 < n_faces < N_TABLES // 5


def _check_fit(L, terms, counts, X, keeps, seed):
    """Check ranks, fitted probabilities, moments and determined parameters of a fit against the
    face's.
    """
    solution = fit(L, terms, counts)
    assert solution.basis.sum() == truth.rank_on(X, keeps), seed
    p, _ = truth.probabilities(X, solution.theta)
    assert p[~keeps].sum() < 1e-14, seed
    np.testing.assert_allclose(p @ X, counts @ X / counts.sum(), atol=1e-9, err_msg=seed)
    on_face, _ = truth.probabilities(X, truth.maximum(X, counts, 0.0, keeps), keeps)
    np.testing.assert_allclose(p, on_face, rtol=1e-7, atol=1e-10, err_msg=seed)
    assert solution.value * counts.sum() == pytest.approx(
        truth.log_likelihood(on_face, counts), rel=1e-11
    ), seed
    if solution.determined.any():
        _check_errors(L, terms, counts, X, on_face, solution, seed)
    centred = X[keeps] - X[keeps].mean(axis=0)
    for k in np.flatnonzero(solution.determined ^ _determined(centred)):
        pytest.fail(f"table {seed}: parameter {k} is determined in one way only")


def _check_errors(L, terms, counts, X, on_face, solution, seed):
    """Check standard errors against the pseudo-inverse of the information on the face."""
    layout, seen = Layout(L, terms), np.flatnonzero(counts)
    rows = Sample(oracle.states(L).astype(np.uint8)[seen], counts[seen].astype(float))
    found = LikelihoodInfluence(
        rows, layout, solution, Penalty(np.zeros(layout.size), 0.0)
    ).covariance(rows)
    expected = (
        np.linalg.pinv(truth.information(X, on_face), rcond=1e-9, hermitian=True) / counts.sum()
    )
    at = np.ix_(solution.determined, solution.determined)
    np.testing.assert_allclose(found[at], expected[at], rtol=1e-5, atol=1e-7, err_msg=seed)
    assert np.isnan(found[~solution.determined]).all()


def _determined(centred):
    """Return which parameters no change of the others makes up for: those whose column the others
    do not span.
    """
    rank = np.linalg.matrix_rank(centred)
    others = [np.linalg.matrix_rank(np.delete(centred, k, axis=1)) for k in range(centred.shape[1])]
    return np.array([rank > other for other in others])


def test_a_ridge_keeps_all_parameters_finite():
    counts = np.array([0, 3, 5, 2, 4, 6, 1, 0], dtype=float)
    layout = Layout([2, 2, 2], PAIRS)
    seen = np.flatnonzero(counts)
    sample = Sample(oracle.states([2, 2, 2]).astype(np.uint8)[seen], counts[seen])
    ridge = np.full(layout.size, 1e-3)
    solution = Solver(layout, 1e-10, 200).fit(sample, Penalty(ridge, 0.0))
    expected = truth.maximum(truth.indicators([2, 2, 2], PAIRS), counts, ridge)
    np.testing.assert_allclose(solution.theta, expected, rtol=1e-8)
    assert solution.determined.all()


@pytest.mark.long
def test_zero_margins_on_a_tree_leave_the_face_of_a_table(monkeypatch):
    from bbl.engines.likelihood import solve

    n_faces = 0
    for seed in range(N_TABLES // 2):
        L, terms, counts = sparse_table(seed)
        X, table = truth.indicators(L, terms), StateTable(Layout(L, terms))
        free = np.ones(X.shape[1], dtype=bool)
        by_margins, face = zero_margins(table, counts, free), facial_set(table, counts, free)
        if by_margins.support is None or not np.array_equal(by_margins.support, face.support):
            continue
        n_faces += 1
        expected = fit(L, terms, counts)
        with monkeypatch.context() as patch:
            patch.setattr(solve, "MAX_STATES", 0)
            found = fit(L, terms, counts)
        np.testing.assert_allclose(
            truth.probabilities(X, found.theta)[0],
            truth.probabilities(X, expected.theta)[0],
            atol=1e-9,
        )
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        np.testing.assert_array_equal(found.determined, expected.determined)
        assert found.basis.sum() == expected.basis.sum()
    assert n_faces > 15


def test_steps_on_a_face_take_no_eigenvectors(monkeypatch):
    """The step moves parameters that the states on the face tell apart: their information has a
    Cholesky factor.
    """
    counts = np.array([[[30, 40], [50, 20], [33, 61]], [[24, 30], [40, 52], [0, 0]]], dtype=float)
    sizes, eigh = [], np.linalg.eigh

    def counted(matrix):
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", counted)
    solution = fit([2, 3, 2], PAIRS, counts.ravel())
    assert solution.n_iter > 3 and not solution.determined.all() and solution.norm <= 1e-10
    assert len(sizes) == 1  # to tell them apart
