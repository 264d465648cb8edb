"""PrototypeBiclustering: scikit-learn's own checks, its attributes, and agreement with
`bicluster`.
"""

import numpy as np
import pandas as pd
import pytest

import bbl

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.cluster import SpectralBiclustering  # noqa: E402
from sklearn.datasets import make_checkerboard  # noqa: E402
from sklearn.metrics import consensus_score  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from bbl.errors import OptionError  # noqa: E402
from bbl.sklearn import PrototypeBiclustering  # noqa: E402


def check_name(check):
    return getattr(check, "func", check).__name__


CHECKS = list(estimator_checks_generator(PrototypeBiclustering(n_clusters=2, n_init=2)))
# scipy would have to know before
CHECKS = [pair for pair in CHECKS if check_name(pair[1]) != "check_array_api_input"]


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[check_name(check) for _, check in CHECKS]
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def board():
    data, rows, columns = make_checkerboard((60, 40), (4, 3), noise=2, random_state=0)
    return data, (rows, columns)


def test_attributes_are_those_of_spectral_biclustering(board):
    data, truth = board
    ours = PrototypeBiclustering((4, 3), random_state=0).fit(data)
    theirs = SpectralBiclustering((4, 3), random_state=0).fit(data)
    for name in ("rows_", "columns_", "row_labels_", "column_labels_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
    assert ours.rows_.dtype == theirs.rows_.dtype == bool
    assert consensus_score(ours.biclusters_, truth) == 1.0
    for k in range(12):
        rows, columns = ours.get_indices(k)
        assert set(ours.row_labels_[rows]) == {k // 3} and set(ours.column_labels_[columns]) == {
            k % 3
        }
        assert ours.get_submatrix(k, data).shape == ours.get_shape(k) == (len(rows), len(columns))
        assert ours.get_submatrix(k, data).mean() == pytest.approx(ours.block_means_[k // 3, k % 3])


def test_missing_cells_are_welcome(board):
    data, truth = board
    holes = np.where(np.random.default_rng(0).random(data.shape) < 0.5, np.nan, data)
    model = PrototypeBiclustering((4, 3), random_state=0).fit(holes)
    assert consensus_score(model.biclusters_, truth) == 1.0
    np.testing.assert_array_equal(model.predict(holes[::-1]), model.row_labels_[::-1])


def test_it_is_bicluster(board):
    data, _ = board
    options = {"move": "one", "start": "random", "n_init": 3}
    model = PrototypeBiclustering(4, **options, random_state=3).fit(
        pd.DataFrame(data).add_prefix("c")
    )
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    fit = bbl.bicluster(None, data, (4, 4), seed=seed, **options)
    assert fit.method == model.result_.method
    np.testing.assert_array_equal(model.row_labels_, fit.rows)
    assert model.inertia_ == fit.wcss and model.feature_names_in_[0] == "c0"
    assert clone(model).get_params() == model.get_params()


@pytest.mark.long
def test_numbers_of_clusters_may_be_chosen(board):
    data, _ = board
    model = PrototypeBiclustering(None, n_init=3, random_state=0).fit(data)
    assert model.result_.groups == (4, 3) and model.rows_.shape == (12, 60)


def test_more_clusters_than_rows_are_refused(board):
    with pytest.raises(OptionError, match="70 groups, but there are only 60 rows"):
        PrototypeBiclustering((70, 3)).fit(board[0])
