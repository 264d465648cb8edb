"""BinningTransformer: scikit-learn's own checks, and agreement with `bbl.bin`."""

import numpy as np
import pandas as pd
import pytest

import bbl

pytest.importorskip("sklearn")

from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from bbl.errors import DataError  # noqa: E402
from bbl.sklearn import BBLClassifier, BinningTransformer  # noqa: E402

KINDS = (BinningTransformer(), BinningTransformer(method="mdl"))


def check_name(check):
    return getattr(check, "func", check).__name__


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{estimator.method}-{check_name(check)}")
        for kind in KINDS
        for estimator, check in estimator_checks_generator(kind)
        # needs scipy to be told of the array API before its import
        if check_name(check) != "check_array_api_input"
    ],
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:method='mdl' found no cut in 'b'")
def test_codes_are_those_of_bin():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.exponential(size=200)}).mask(
        rng.random((200, 2)) < 0.1
    )
    y = (X["a"].fillna(0) > 0).astype(int)
    for method in ("quantile", "width", "mdl"):
        model = BinningTransformer(4, method=method).fit(X, y)
        table = bbl.bin(X.assign(y=y), ["a", "b"], bins=4, method=method, response="y")
        codes = np.column_stack([table[c].cat.codes.astype(float) for c in "ab"])
        np.testing.assert_array_equal(model.transform(X), np.where(codes < 0, np.nan, codes))
    w = rng.integers(0, 3, 200)
    one, other = (
        BinningTransformer().fit(X, sample_weight=w),
        BinningTransformer().fit(X.loc[np.repeat(X.index, w)]),
    )
    np.testing.assert_allclose(one.cuts_[0], other.cuts_[0])
    assert list(model.get_feature_names_out()) == ["a", "b"]
    with pytest.raises(DataError, match="requires y"):
        BinningTransformer(method="mdl").fit(X)


def test_a_pipeline_learns_an_interaction_of_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = make_pipeline(BinningTransformer(4), BBLClassifier("pseudo")).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.9


def test_sample_weights_need_not_be_whole():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(200, 2)), rng.integers(1, 4, 200)
    whole = BinningTransformer(4).fit(X, sample_weight=weights)
    for a, b in zip(
        whole.cuts_, BinningTransformer(4).fit(X, sample_weight=weights / 8.0).cuts_, strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_texts_pass_through():
    X = pd.DataFrame({"a": np.arange(8.0), "sex": list("fm") * 4})
    transformer = BinningTransformer(2).fit(X)
    assert transformer.cuts_[1] is None
    cells = transformer.transform(X)
    assert cells[:, 0].tolist() == [0] * 4 + [1] * 4
    assert cells[:, 1].tolist() == X["sex"].tolist()
    np.testing.assert_array_equal(BinningTransformer(2).fit_transform(X.to_numpy()), cells)
    model = make_pipeline(BinningTransformer(2), BBLClassifier("pseudo"))
    assert model.fit(X, np.arange(8) // 4).score(X, np.arange(8) // 4) == 1
    with pytest.raises(DataError, match="column 'a' contains values that are not numbers"):
        transformer.transform(X.assign(a="q"))
