"""Folds of networks: positions are those of the data, and what a splitter does not train on is not
trained on.
"""

import numpy as np
import pandas as pd
import pytest

from bbl import networks
from bbl.errors import OptionError

sklearn = pytest.importorskip("sklearn.model_selection")
SPLIT = sklearn.ShuffleSplit(4, train_size=0.2, test_size=0.3, random_state=0)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 3, (80, 4)), columns=list("abcd")).astype("category")
    frame["y"] = pd.Categorical(
        np.where(rng.random(80) < 0.7, frame["a"].astype(int) > 0, rng.random(80) < 0.5)
    )
    return frame


def test_a_splitter_says_what_is_trained_on(data):
    weights = np.ones(len(data))
    weights[::9] = 0.0  # positions do not shift where rows take no part
    found = networks.cv(
        networks.bnc("nb", "y ~ .", data, 1, weights=weights),
        data,
        folds=SPLIT,
        mean=False,
        weights=weights,
    )
    for own, (train, test) in zip(found["nb"], SPLIT.split(data), strict=True):
        part = np.zeros(len(data))
        part[train] = weights[train]
        kept = test[weights[test] > 0]
        predicted = networks.bnc("nb", "y ~ .", data, 1, weights=part).predict(
            data.iloc[kept], type="class"
        )
        assert own == pytest.approx(networks.accuracy(predicted, data["y"].iloc[kept]))


def test_a_search_trains_on_all_that_a_fold_does_not_validate(data):
    with pytest.raises(OptionError, match="folds leave") as caught:
        networks.tan_hc("y ~ .", data, folds=SPLIT)
    assert caught.value.argument == "folds"
