"""Members that are clearly worse than the best one, and log-losses that are clearly lower than
others.
"""

import numpy as np
import pytest

from bbl.boltzmann.member_weights import (
    CLEARLY_WORSE,
    beats_shares,
    limited_equality,
    shrinkage_to_shares,
)

ROWS = np.random.default_rng(0)
BEST = np.log(ROWS.uniform(0.5, 0.9, 50))
NOISE = ROWS.normal(size=50)
NOISE = (NOISE - NOISE.mean()) / NOISE.std()  # a mean of them has the standard error 1 / sqrt(50)


def worse_by(errors):
    """Return log-probabilities of 50 rows that are worse than the best by so many standard
    errors.
    """
    return BEST - errors / np.sqrt(50) + NOISE


def test_only_members_that_are_clearly_worse_are_drawn_up_less():
    log_p = np.array([worse_by(2.9), BEST, worse_by(3.1), worse_by(9.0)])
    for weights in (np.ones(50), np.full(50, 0.5)):
        found = limited_equality(np.array([1.0, 1.0, 1.0, 0.01]), log_p, weights)
        assert found.tolist() == [1.0, 1.0, CLEARLY_WORSE if weights[0] == 1.0 else 1.0, 0.01]


def test_rows_of_weight_two_are_two_rows():
    log_p = np.array([BEST, worse_by(2.5)])
    doubled = limited_equality(np.ones(2), log_p, np.full(50, 2.0))
    assert (
        doubled.tolist()
        == limited_equality(np.ones(2), np.repeat(log_p, 2, axis=1), np.ones(100)).tolist()
    )
    assert doubled.tolist() == [1.0, CLEARLY_WORSE]  # 2.5 sqrt(2) errors


def test_rows_that_a_member_cannot_score_are_left_out():
    log_p = np.array([BEST, worse_by(3.1)])
    log_p[:, :5] = -np.inf
    assert (
        limited_equality(np.ones(2), log_p, np.ones(50)).tolist()
        == limited_equality(np.ones(2), log_p[:, 5:], np.ones(45)).tolist()
    )
    assert limited_equality(np.ones(2), np.full((2, 3), -np.inf), np.ones(3)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("errors", "beaten"), [(2.9, False), (3.1, True), (-5.0, False)])
def test_shares_are_beaten_by_three_standard_errors(errors, beaten):
    assert beats_shares(np.array([BEST]), np.ones(1), np.ones(50), worse_by(errors)) is beaten
    # by the same in all rows
    assert beats_shares(np.array([BEST]), np.ones(1), np.ones(50), BEST - 0.1)
    assert not beats_shares(np.array([BEST]), np.ones(1), np.ones(50), BEST)


def test_class_proportions_get_the_largest_weight_within_one_standard_error():
    log_p, shares = np.array([BEST]), worse_by(1.5)
    weight = shrinkage_to_shares(log_p, np.ones(1), np.ones(50), shares)

    def excess(weight):
        """Return the standard errors by which a weight is worse than the best of a fine grid."""
        weights = np.linspace(0.0, 1.0, 1001)
        losses = -np.log(np.outer(1.0 - weights, np.exp(BEST)) + np.outer(weights, np.exp(shares)))
        loss = -np.log((1.0 - weight) * np.exp(BEST) + weight * np.exp(shares))
        gain = loss - losses[losses.mean(axis=1).argmin()]
        return gain.mean() / (gain.std() / np.sqrt(50))

    assert 0.0 < weight < 1.0 and excess(weight) <= 1.0 < excess(weight + 0.02)
    # better in every row
    assert shrinkage_to_shares(log_p, np.ones(1), np.ones(50), BEST + 0.1) == 1.0
    repeated = shrinkage_to_shares(
        np.repeat(log_p, 2, axis=1), np.ones(1), np.ones(100), np.repeat(shares, 2)
    )
    assert repeated == shrinkage_to_shares(log_p, np.ones(1), np.full(50, 2.0), shares) < weight
