"""Effective sample size: weights by neighbourhoods, and the size that explains mutual
information.
"""

import functools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import dirichlet_multinomial

import bbl
from bbl.errors import ConvergenceWarning, DataError, OptionError
from bbl.stats.effective import (
    CONCENTRATIONS,
    _concentration_probabilities,
    _draw_frequencies,
    mutual_information,
)


def test_weights_are_one_over_the_rows_within_the_distance():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (80, 20))
    rows[40:] = np.where(rng.random((40, 20)) < 0.12, 2, rows[:40])
    expected = [1.0 / ((rows != row).sum(axis=1) < 0.2 * 20).sum() for row in rows]
    np.testing.assert_array_equal(bbl.effective_weights(rows), expected)
    letters = pd.DataFrame(np.array(list("ACG"))[rows])
    np.testing.assert_array_equal(bbl.effective_weights(letters, identity=0.8), expected)
    copies = [1.0 / (rows == row).all(axis=1).sum() for row in rows]
    np.testing.assert_array_equal(bbl.effective_weights(rows, identity=1.0), copies)
    assert bbl.effective_weights(np.repeat(rows, 3, axis=0)).sum() == pytest.approx(
        bbl.effective_weights(rows).sum()
    )


@pytest.mark.parametrize(
    ("n", "m", "L"), [(1, 3, 2), (64, 32, 2), (65, 33, 4), (600, 70, 3), (400, 5, 300), (130, 1, 2)]
)
def test_weights_of_any_shape_and_share_are_those_of_all_pairs(n, m, L):
    """Of one block of rows and of many, of bytes and of wider codes, with a share that some pairs
    meet exactly.
    """
    rng = np.random.default_rng(n)
    rows = rng.integers(0, L, (n, m))
    rows = np.where(rng.random((n, m)) < 0.3, rows, rows[rng.integers(0, max(1, n // 5), n)])
    differences = (rows[:, None] != rows).sum(axis=2)
    for identity in (0.0, 0.5, 1.0 - 2.0 / m if m > 2 else 0.3, 0.8, 1.0):
        similar = (differences < m * (1.0 - identity) - 1e-9) | (differences == 0)
        np.testing.assert_array_equal(
            bbl.effective_weights(rows, identity), 1.0 / similar.sum(axis=1)
        )


def test_mutual_information_is_that_of_its_definition():
    assert mutual_information(np.eye(3)) == pytest.approx(np.log(3))
    assert mutual_information(np.outer([1.0, 2.0], [3.0, 4.0])) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.long
def test_frequencies_come_from_their_posterior():
    counts = np.array([7.0, 2.0, 0.0, 0.0])
    present = np.array([True, True, True, False])
    cumulative = _concentration_probabilities(counts[None], present[None])[0]
    drawn = _draw_frequencies(
        *(np.tile(each, (40_000, 1)) for each in (counts, present, cumulative)),
        np.random.default_rng(1),
    )
    mass = np.array([dirichlet_multinomial.pmf([7, 2, 0], [a] * 3, 9) for a in CONCENTRATIONS])
    mean = sum(
        p * (counts[:3] + a) / (9 + 3 * a)
        for p, a in zip(mass / mass.sum(), CONCENTRATIONS, strict=True)
    )
    np.testing.assert_allclose(drawn.mean(axis=0), [*mean, 0.0], atol=0.005)


@pytest.mark.long
def test_copies_of_rows_do_not_make_more_of_them():
    rows = np.random.default_rng(2).integers(0, 5, (150, 40))
    alone, copied = (
        bbl.effective_size(x, n_steps=300, seed=3) for x in (rows, np.repeat(rows, 4, axis=0))
    )
    assert alone == pytest.approx(150, rel=0.1) and copied == pytest.approx(150, rel=0.1)
    half = bbl.effective_size(np.repeat(rows, 4, axis=0), np.full(600, 0.25), n_steps=300, seed=3)
    assert half == pytest.approx(150, rel=0.1)
    assert bbl.effective_size(rows, n_steps=100, seed=4) == bbl.effective_size(
        rows, n_steps=100, seed=4
    )


@functools.cache
def size_of_single_rows(L, n):
    """Return rows, and the size that is found for them alone."""
    rows = np.random.default_rng(1).integers(0, L, (n, 60))
    return rows, bbl.effective_size(rows, n_steps=300, seed=5, verbose=0)


@pytest.mark.parametrize(("L", "n", "copies"), [(2, 300, 10), (3, 300, 10), (4, 300, 10)])
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e5])
@pytest.mark.long
def test_the_size_is_that_of_the_rows_before_they_were_copied(L, n, copies, scale):
    # the mutual information of single rows varies too: what they have themselves is the truth
    rows, alone = size_of_single_rows(L, n)
    copied = np.repeat(rows, copies, axis=0)
    found = bbl.effective_size(copied, np.full(len(copied), scale), n_steps=300, verbose=0)
    assert found == pytest.approx(alone, rel=0.03) and found == pytest.approx(n, rel=0.08)


@pytest.mark.parametrize(("L", "n", "columns", "copies"), [(21, 300, 20, 10), (20, 250, 60, 6)])
@pytest.mark.long
def test_the_size_of_many_letters_is_that_of_the_rows_before_they_were_copied(
    L, n, columns, copies
):
    rows = np.repeat(np.random.default_rng(0).integers(0, L, (n, columns)), copies, axis=0)
    assert bbl.effective_size(rows, n_steps=100, verbose=0) == pytest.approx(n, rel=0.05)


def test_a_size_that_is_not_found_brings_a_warning():
    column = np.random.default_rng(0).integers(0, 4, (100, 1))
    with pytest.warns(
        ConvergenceWarning,
        match="strongly coupled: .*Hint: Instead, scale",
    ):
        assert bbl.effective_size(np.repeat(column, 5, axis=1), n_steps=100, verbose=0) < 3
    design = np.array([[a, b] for a in range(3) for b in range(3)])
    with pytest.warns(ConvergenceWarning, match="no mutual information.*Hint: Leave"):
        bbl.effective_size(design, n_steps=300, batch=10, verbose=0)
    rows = np.repeat(np.random.default_rng(0).integers(0, 4, (30, 20)), 300, axis=0)
    with pytest.warns(ConvergenceWarning, match="not converge.*Hint: Increase n_steps"):
        bbl.effective_size(rows, n_steps=4, verbose=0)


def test_bad_input_is_named():
    with pytest.raises(OptionError, match="identity"):
        bbl.effective_weights(np.zeros((2, 2)), identity=1.2)
    with pytest.raises(DataError, match="no rows"):
        bbl.effective_weights(np.zeros((0, 2)))
    with pytest.raises(DataError, match="pairs of columns"):
        bbl.effective_size(np.zeros((5, 1)))
    with pytest.raises(DataError, match="weights"):
        bbl.effective_size(np.zeros((5, 2)), np.full(5, -1.0))
