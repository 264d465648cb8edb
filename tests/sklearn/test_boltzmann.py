"""BBLClassifier: scikit-learn's own checks, agreement with `bbl.bbl`, and scikit-learn's tools
around it.
"""

import pickle
from unittest import SkipTest

import joblib
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import (
    BBLTypeError,
    ConvergenceWarning,
    DataError,
    DataWarning,
    FormulaError,
    LevelError,
    OptionError,
)

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import (  # noqa: E402
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import KBinsDiscretizer, OrdinalEncoder  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from bbl.sklearn import BBLClassifier  # noqa: E402

METHODS = ("pseudo", "mf", "naive")
MEAN_FIELD = {"method": "mf", "prior_count": 2, "log_z": "mf"}
ENGINE = bbl.PseudoLikelihood(symmetrize=False)


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def rows(titanic):
    """Passengers in random order, one a row: X and y."""
    data = bbl.freq2raw(titanic, "Freq").sample(frac=0.3, random_state=0).astype(str)
    return data.drop(columns="Survived"), data["Survived"]


@pytest.fixture(scope="module")
def digits():
    """Integer data of three classes that differ in how two columns go together."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, (240, 5))
    return X, (X[:, 0] + X[:, 1] + (rng.random(240) < 0.2)) % 3


CHECKS = [
    pair
    for method in (*METHODS, "auto")
    for pair in estimator_checks_generator(BBLClassifier(method=method))
]


def check_name(check):
    return getattr(check, "func", check).__name__


# needs scipy to be told of the array API before its import: test_array_api
ELSEWHERE = {"check_array_api_input"}
COSTLY = "check_sample_weight_equivalence_on_dense_data"


def cases():
    """Yield estimators and their checks; a quick variant of the costly one, and the whole among the
    long tests.
    """
    for estimator, check in CHECKS:
        # a check then tunes, calibrates and averages
        name, long = check_name(check), estimator.method == "auto"
        if name in ELSEWHERE:
            continue
        if name == COSTLY and estimator.method == "pseudo":
            quick = clone(estimator).set_params(lambda_=1.0, lambdah=1.0, tolerance=1e-7)
            yield pytest.param(quick, check, id=f"{estimator.method}-{name}-penalised")
            long = True
        yield pytest.param(
            estimator, check, id=f"{estimator.method}-{name}", marks=[pytest.mark.long] * long
        )


# some checks give continuous arrays, one of them 15 rows in 30 such columns, where rounding ends
# the fit
@pytest.mark.filterwarnings(
    "ignore::bbl.errors.DataWarning", "ignore::bbl.errors.ConvergenceWarning"
)
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
@pytest.mark.thinned(2)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as skipped:
        pytest.fail(f"scikit-learn skips it: {skipped}")


def test_all_checks_are_there():
    names = {check_name(check) for _, check in CHECKS}
    # 1.8 lacks the check
    assert names > ELSEWHERE or tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9)
    assert len(CHECKS) > 150


class TestAgreement:
    """The classifier is `bbl.bbl` on the same columns, to the last bit."""

    @pytest.mark.parametrize(
        ("options", "right", "more"),
        [
            ({}, ".^2", {"lambdah": 1e-4}),
            ({"lambda_": 0.01, "lambdah": 0.02}, ".^2", {"lambda_": 0.01, "lambdah": 0.02}),
            ({"pairs": "Class*Sex + Age"}, "Class*Sex + Age", {"lambdah": 1e-4}),
            ({"pairs": [("Age", "Class"), (0, 1)]}, ". + Age:Class + Class:Sex", {"lambdah": 1e-4}),
            ({"method": "mf", "eps": 0.5}, ".^2", {"method": "mf", "eps": 0.5}),
            (MEAN_FIELD, ".^2", MEAN_FIELD),
            ({"method": "naive", "pairs": "none"}, ".", {"method": "naive"}),
            ({"method": ENGINE}, ".^2", {"method": ENGINE}),
        ],
    )
    def test_to_the_last_bit(self, rows, options, right, more):
        X, y = rows
        model = BBLClassifier(**{"method": "pseudo"} | options).fit(X, y)
        fit = bbl.bbl(f"Survived ~ {right}", X.assign(Survived=y), **more)
        prob, odds = (fit.predict(X, type=t).iloc[:, :2].to_numpy() for t in ("prob", "link"))
        assert np.array_equal(model.predict_proba(X), prob)
        assert np.array_equal(model.decision_function(X), odds[:, 1])
        assert np.array_equal(model.predict(X), fit.predict(X, type="class").astype(str))
        assert np.array_equal(np.exp(model.predict_log_proba(X)), prob)
        assert model.score(X, y) == (fit.predict(X, type="class").astype(str) == y).mean()
        assert model.result_.labels.names == fit.labels.names
        assert model.result_.lkh == fit.lkh

    def test_three_classes(self, digits):
        X, y = digits
        model = BBLClassifier("pseudo").fit(X, y)
        fit = bbl.bbl("y ~ .^2", pd.DataFrame(X, columns=list("abcde")).assign(y=y), lambdah=1e-4)
        frame = pd.DataFrame(X, columns=list("abcde"))
        assert np.array_equal(model.decision_function(X), fit.predict(frame).iloc[:, :3].to_numpy())
        assert np.array_equal(model.classes_, [0, 1, 2])
        assert model.score(X, y) > 0.75

    def test_setting_by_cross_validation_inside(self, digits):
        X, y = digits
        model = BBLClassifier("pseudo", lambda_="cv").fit(X, y)
        assert model.result_.engine.lambda_ in model.result_.tuning.values

    @pytest.mark.parametrize("n_jobs", [2, -1])
    def test_threads_do_not_matter(self, digits, n_jobs):
        X, y = np.tile(digits[0], (100, 1)), np.tile(digits[1], 100)
        one = BBLClassifier("pseudo").fit(X, y).predict_proba(X[:240])
        assert np.array_equal(
            one, BBLClassifier("pseudo", n_jobs=n_jobs).fit(X, y).predict_proba(X[:240])
        )


class TestTables:
    def test_kinds_of_frames(self, rows):
        pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
        X, y = rows
        expected = BBLClassifier("pseudo").fit(X, y).predict_proba(X)
        for table in (
            X.astype("category"),
            X.astype(pd.CategoricalDtype(["x", *sorted(set(X.to_numpy().ravel()))])),
            X.astype(object),
            pl.DataFrame(X.to_dict("list")),
            pl.DataFrame(X.to_dict("list")).with_columns(pl.all().cast(pl.Categorical)),
            pa.table(X.to_dict("list")),
        ):
            model = BBLClassifier("pseudo").fit(table, y)
            assert list(model.feature_names_in_) == list(X.columns)
            assert model.n_features_in_ == 3
            assert np.array_equal(model.predict_proba(table), expected)
            assert np.array_equal(model.predict_proba(X), expected)

    def test_kinds_of_arrays(self, rows):
        X, y = rows
        expected = BBLClassifier("pseudo").fit(X, y).predict_proba(X)
        for array in (X.to_numpy(dtype=object), X.to_numpy(dtype="U10"), X.to_numpy().tolist()):
            model = BBLClassifier("pseudo").fit(array, y.tolist())
            assert not hasattr(model, "feature_names_in_")
            assert model.result_.labels.names == ("x0", "x1", "x2")
            assert np.array_equal(model.predict_proba(array), expected)

    @pytest.mark.parametrize(
        "dtype", ["int8", "uint8", "int32", "int64", "float32", "float64", "object", "Int64"]
    )
    def test_kinds_of_numbers(self, digits, dtype):
        X, y = digits
        expected = BBLClassifier("pseudo").fit(X, y).predict_proba(X)
        table = pd.DataFrame(X).astype(dtype) if dtype == "Int64" else X.astype(dtype)
        assert np.array_equal(
            BBLClassifier("pseudo").fit(table, y).predict_proba(X.astype(float)), expected
        )

    def test_numbers_in_lists_beside_strings_stay_numbers(self):
        X = [["a", 1], ["b", 2], ["a", 2], ["b", 1]] * 3
        model = BBLClassifier("pseudo").fit(X, [0, 1, 1, 0] * 3)
        assert model.result_.labels.levels == (("a", "b"), (1, 2))

    @pytest.mark.parametrize("kind", [str, bool, int, "category"])
    def test_kinds_of_classes(self, digits, kind):
        X, y = digits
        labels = pd.Series(y > 0).astype(kind)
        model = BBLClassifier("pseudo").fit(X, labels)
        assert np.array_equal(model.classes_, np.unique(np.asarray(labels)))
        assert set(model.predict(X)) <= set(labels)
        assert model.decision_function(X).shape == (240,)

    def test_name_of_the_response(self, rows):
        X, y = rows
        assert BBLClassifier("pseudo").fit(X, y).result_.labels.response == "Survived"
        assert BBLClassifier("pseudo").fit(X, y.to_numpy()).result_.labels.response == "y"
        assert (
            BBLClassifier("pseudo")
            .fit(X.rename(columns={"Sex": "y"}), y.to_numpy())
            .result_.labels.response
            == "y_"
        )

    def test_odd_names(self, rows):
        X, y = rows
        odd = X.set_axis(["odd `name`", "all", "a:b ~ c"], axis=1)
        for pairs in ("all", "`all`*`odd ``name```", [("all", "a:b ~ c"), (0, 2)]):
            model = BBLClassifier("pseudo", pairs=pairs).fit(odd, y.rename("a `response`"))
            assert "all" in model.result_.labels.names
            assert model.score(odd, y) > 0.7

    def test_rows_need_no_order_and_weights_count_rows(self, titanic, rows):
        X, y = titanic.drop(columns=["Survived", "Freq"]), titanic["Survived"]
        weighted = BBLClassifier("pseudo").fit(X, y, sample_weight=titanic["Freq"].astype(float))
        raw = bbl.freq2raw(titanic, "Freq").sample(frac=1.0, random_state=1)
        repeated = BBLClassifier("pseudo").fit(raw.drop(columns="Survived"), raw["Survived"])
        assert np.array_equal(weighted.predict_proba(X), repeated.predict_proba(X))


class TestWeights:
    def test_zero_is_absence(self, digits):
        X, y = digits
        odd = np.vstack([X, [[7, 7, 7, 7, 7], [0, 8, 0, 0, 0]]])
        classes = np.append(y, [0, 9])
        model = BBLClassifier("pseudo").fit(
            odd, classes, sample_weight=np.append(np.ones(240), [0, 0])
        )
        assert np.array_equal(model.classes_, [0, 1, 2])
        assert np.array_equal(
            model.predict_proba(X), BBLClassifier("pseudo").fit(X, y).predict_proba(X)
        )

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (np.full(240, -1), "row 0 has -1"),
            (np.zeros(240), "all zero"),
            (np.ones(239), "length 239"),
            (np.ones((240, 2)), "1d array"),
            (np.full(240, np.nan), "row 0 has nan"),
        ],
    )
    def test_refused(self, digits, weights, words):
        with pytest.raises(ValueError, match=words):
            BBLClassifier("pseudo").fit(*digits, sample_weight=weights)

    def test_fractions_where_the_method_takes_them(self, digits):
        X, y = digits
        weights = np.tile([0.5, 1.25], 120)
        with pytest.warns(DataWarning, match="not all integers"):
            model = BBLClassifier("pseudo", lambda_=0.1).fit(X, y, weights)
        # penalties go by shares of the weights, so that these equal counts of 2 and 5
        expected = BBLClassifier("pseudo", lambda_=0.1).fit(X, y, 4 * weights).predict_proba(X)
        np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-8)
        with pytest.raises(ValueError, match="sample_weight must .* integers, but row 0 has 0.5"):
            BBLClassifier("bayes").fit(X, y, weights)


class TestConstants:
    def test_no_parameters(self, digits):
        X, y = digits
        wide = np.column_stack([np.full(240, 5), X, np.full(240, 6)])
        model = BBLClassifier("pseudo", pairs="all").fit(wide, y)
        assert model.n_features_in_ == 7
        assert model.result_.labels.names == tuple(f"x{i}" for i in range(1, 6))
        expected = BBLClassifier("pseudo").fit(X, y).predict_proba(X)
        assert np.array_equal(model.predict_proba(wide), expected)
        wide[:, 0] = 3  # not looked at
        assert np.array_equal(model.predict_proba(wide), expected)

    def test_rows_of_weight_zero_do_not_count(self, digits):
        X, y = digits
        weights = (X[:, 4] == 1).astype(float)
        assert BBLClassifier("pseudo").fit(X, y, weights).result_.labels.names == (
            "x0",
            "x1",
            "x2",
            "x3",
        )

    def test_all_constant(self):
        X, y = np.full((100, 2), "a"), np.repeat([0, 1], [25, 75])
        for method in METHODS:
            model = BBLClassifier(method=method).fit(X, y)
            assert model.predict_proba([["a", "a"]])[0] == pytest.approx([0.25, 0.75], abs=0.02)

    @pytest.mark.long
    def test_in_folds(self, digits):
        X, y = digits
        rare = np.column_stack([X, np.arange(240) == 7])
        for method in METHODS:
            assert np.isfinite(
                cross_val_score(BBLClassifier(method=method), rare, y, cv=StratifiedKFold(5))
            ).all()


class TestUnseen:
    def test_summed_out(self, digits):
        X, y = digits
        model = BBLClassifier("pseudo").fit(X, y)
        strange = X[:1].copy()
        strange[0, 2] = 9
        joint = np.zeros(3)
        for level in range(3):
            row = X[:1].copy()
            row[0, 2] = level
            codes, _ = model.result_.design.encode(
                pd.DataFrame(row, columns=[f"x{i}" for i in range(5)])
            )
            joint += np.exp(model.result_._class_scores(codes))[0]
        assert model.predict_proba(strange)[0] == pytest.approx(joint / joint.sum(), rel=1e-10)

    @pytest.mark.parametrize("log_z", ["exact", "half", "mf"])
    def test_nothing_known(self, digits, log_z):
        X, y = digits
        model = BBLClassifier("pseudo", log_z=log_z).fit(X, y)
        prob = model.predict_proba(np.vstack([np.full((1, 5), 9), X[:3]]))
        assert prob[0] == pytest.approx(np.bincount(y) / 240)
        assert np.array_equal(prob[1:], model.predict_proba(X[:3]))

    def test_raise(self, digits):
        X, y = digits
        model = BBLClassifier("pseudo", unseen="raise").fit(X, y)
        with pytest.raises(LevelError, match="'x2'.*9"):
            model.predict(np.array([[0, 0, 9, 0, 0]]))


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"method": "foo"}, OptionError, "method='foo'"),
            ({"eps": 0.5}, BBLTypeError, "'eps' is not an option of method='pseudo'"),
            (
                {"method": "mf", "lambda_": 1.0},
                BBLTypeError,
                "'lambda_' is not an option of method='mf'",
            ),
            ({"lambda_": -1.0}, OptionError, "lambda_"),
            ({"itmax": 0}, OptionError, "itmax"),
            ({"log_z": "foo"}, OptionError, "log_z='foo'"),
            ({"unseen": "foo"}, OptionError, "unseen='foo'"),
            ({"n_jobs": 0}, ValueError, "n_jobs"),
            ({"pairs": "x0*nothing"}, FormulaError, "'nothing' is not a column"),
            ({"pairs": "x0:x1:x2", "method": "mf"}, FormulaError, "three or more"),
            ({"pairs": [("x0", "x9")]}, OptionError, "'x9'"),
            ({"pairs": [(0, 5)]}, OptionError, "X, which has 5 columns"),
            ({"pairs": [(0, 0)]}, OptionError, "different"),
            ({"pairs": ["x0"]}, OptionError, "'x0'"),
            ({"pairs": 3}, BBLTypeError, "pairs must be"),
        ],
    )
    def test_options(self, digits, options, error, words):
        with pytest.raises(error, match=words):
            BBLClassifier(**{"method": "pseudo"} | options).fit(*digits)

    def test_continuous(self, rows):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
        with pytest.raises(DataError, match="column 'age' looks continuous.*bbl.bin"):
            BBLClassifier("pseudo").fit(pd.DataFrame(X, columns=["age", "b"]), y)
        with pytest.warns(DataWarning, match="look continuous: 0, 1.*Bin them"):
            BBLClassifier("pseudo").fit(X, y)

    def test_few_fractions_are_levels(self, digits):
        X, y = digits
        assert np.array_equal(
            BBLClassifier("pseudo").fit(X / 2, y).predict(X / 2),
            BBLClassifier("pseudo").fit(X, y).predict(X),
        )

    @pytest.mark.parametrize("value", [None, np.nan, pd.NA, float("inf")])
    def test_missing(self, rows, value):
        X, y = rows
        X = X.astype(object)
        X.iloc[3, 1] = value
        with pytest.raises(DataError, match="column 'Sex'|level of column 'Sex'"):
            BBLClassifier("pseudo").fit(X, y)

    def test_dates(self, rows):
        X, y = rows
        with pytest.raises(BBLTypeError, match="'day'.*datetime64"):
            BBLClassifier("pseudo").fit(X.assign(day=pd.Timestamp("2020-01-01")), y)

    def test_missing_class(self, rows):
        X, y = rows
        with pytest.raises(DataError, match="y has 1 missing"):
            BBLClassifier("pseudo").fit(X, y.astype(object).where(np.arange(len(y)) > 0, None))

    def test_one_class(self, digits):
        with pytest.raises(DataError, match="one class, 'a'"):
            BBLClassifier("pseudo").fit(digits[0], np.full(240, "a"))

    def test_no_rows(self, rows):
        with pytest.raises(DataError, match="no rows"):
            BBLClassifier("pseudo").fit(rows[0].iloc[:0], rows[1].iloc[:0])

    def test_columns_twice(self, rows):
        with pytest.raises(DataError, match="duplicate column name 'Sex'"):
            BBLClassifier("pseudo").fit(rows[0].set_axis(["Sex", "Sex", "Age"], axis=1), rows[1])

    def test_not_fitted(self, rows):
        with pytest.raises(NotFittedError):
            BBLClassifier("pseudo", lambda_=0.1).predict(rows[0])

    def test_warns_where_no_optimum_exists(self):
        X, y = np.array([[0, 0], [0, 1], [0, 1], [1, 0], [1, 1], [2, 1]]), [0, 0, 0, 1, 1, 1]
        with pytest.warns(ConvergenceWarning, match="never occurs"):
            BBLClassifier("pseudo", lambda_=0.0, lambdah=0.0).fit(X, y)
        BBLClassifier("pseudo").fit(X, y)  # a penalty by default: nothing to warn of

    def test_no_rows_to_predict(self, rows):
        model = BBLClassifier("pseudo").fit(*rows)
        assert model.predict(rows[0].iloc[:0]).shape == (0,)
        assert model.predict_proba(rows[0].iloc[:0]).shape == (0, 2)


class TestTools:
    def test_pickle_and_clone(self, rows):
        X, y = rows
        model = BBLClassifier(method="mf", eps=0.3, pairs=[("Age", "Sex")]).fit(X, y)
        expected = model.predict_proba(X)
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), expected)  # noqa: S301
        again = clone(model)
        assert again.get_params() == model.get_params()
        assert not hasattr(again, "result_")
        assert np.array_equal(again.fit(X, y).predict_proba(X), expected)
        assert again.set_params(eps=0.9, pairs="none").fit(X, y).result_.engine.eps == 0.9
        assert repr(BBLClassifier(eps=0.5, method="mf")) == "BBLClassifier(eps=0.5, method='mf')"

    def test_saved_model(self, rows, tmp_path):
        X, y = rows
        model = BBLClassifier("pseudo").fit(X, y)
        model.result_.save(tmp_path / "model")
        loaded = bbl.load(tmp_path / "model").predict(X, type="prob")
        assert np.array_equal(loaded.iloc[:, :2].to_numpy(), model.predict_proba(X))

    def test_memory_mapped_and_read_only(self, digits, tmp_path):
        X, y = digits
        weights = np.ones(len(y))
        joblib.dump((X, y, weights), tmp_path / "data")
        mapped = joblib.load(tmp_path / "data", mmap_mode="r")
        assert isinstance(mapped[0], np.memmap)
        assert not mapped[0].flags.writeable
        for method in METHODS:
            model = BBLClassifier(method=method).fit(mapped[0], mapped[1], mapped[2])
            expected = BBLClassifier(method=method).fit(X, y).predict_proba(X)
            assert np.array_equal(model.predict_proba(mapped[0]), expected)

    @pytest.mark.long
    def test_processes(self, rows):
        X, y = rows
        one = cross_val_score(BBLClassifier("pseudo"), X, y, cv=4)
        # so small that all is memory-mapped
        with joblib.parallel_config("loky", n_jobs=2, max_nbytes=1000):
            two = cross_val_score(BBLClassifier("pseudo"), X, y, cv=4)
            arrays = cross_val_score(
                BBLClassifier("pseudo"), X.to_numpy(dtype="U8"), y.to_numpy(dtype="U8"), cv=4
            )
        assert np.array_equal(one, two)
        assert np.array_equal(one, arrays)
        assert one.mean() > 0.7

    def test_pipeline_with_frames_inside(self, rows):
        X, y = rows
        wide = X.assign(fare=np.random.default_rng(0).normal(size=len(X)))
        bins = KBinsDiscretizer(3, encode="ordinal", strategy="uniform")
        split = make_column_transformer((OrdinalEncoder(), list(X.columns)), (bins, ["fare"]))
        prob = []
        for container in ("default", "pandas"):
            pipe = make_pipeline(split, BBLClassifier("pseudo")).set_output(transform=container)
            pipe.fit(wide, y)
            prob.append(pipe.predict_proba(wide))
            named = container != "default"
            assert hasattr(pipe[-1], "feature_names_in_") == named
            assert ("ordinalencoder__Sex" in pipe[-1].result_.labels.names) == named
        assert np.array_equal(prob[0], prob[1])

    def test_pipeline_with_polars_inside(self, rows):
        pytest.importorskip("polars")
        X, y = rows
        plain = make_pipeline(OrdinalEncoder(), BBLClassifier("pseudo")).fit(X, y)
        pipe = (
            make_pipeline(OrdinalEncoder(), BBLClassifier("pseudo"))
            .set_output(transform="polars")
            .fit(X, y)
        )
        assert list(pipe[-1].feature_names_in_) == ["Class", "Sex", "Age"]
        assert np.array_equal(pipe.predict_proba(X), plain.predict_proba(X))

    @pytest.mark.long
    def test_grid_search_with_routed_weights(self, titanic):
        X, y = titanic.drop(columns=["Survived", "Freq"]), titanic["Survived"]
        groups = np.arange(len(y)) % 4
        grid = [
            {
                "method": ["pseudo"],
                "lambda_": [1e-4, 1e-1],
                "pairs": ["all", "none", "Class*Sex + Age"],
            },
            {"method": ["mf"], "eps": [0.1, 0.9]},
        ]
        kept = titanic["Freq"].to_numpy() > 0
        with sklearn.config_context(enable_metadata_routing=True):
            model = (
                BBLClassifier("pseudo")
                .set_fit_request(sample_weight=True)
                .set_score_request(sample_weight=True)
            )
            search = GridSearchCV(model, grid, cv=GroupKFold(4), error_score="raise")
            search.fit(X[kept], y[kept], sample_weight=titanic["Freq"][kept], groups=groups[kept])
        assert search.best_estimator_.result_.nobs() == titanic["Freq"].sum()
        assert search.best_score_ > 0.6
        fold = next(GroupKFold(4).split(X[kept], y[kept], groups[kept]))
        by_hand = clone(model).set_params(**search.cv_results_["params"][0])
        by_hand.fit(
            X[kept].iloc[fold[0]], y[kept].iloc[fold[0]], titanic["Freq"][kept].iloc[fold[0]]
        )
        score = by_hand.score(
            X[kept].iloc[fold[1]], y[kept].iloc[fold[1]], titanic["Freq"][kept].iloc[fold[1]]
        )
        assert search.cv_results_["split0_test_score"][0] == score

    @pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
    def test_calibration(self, rows, method):
        X, y = rows
        model = CalibratedClassifierCV(BBLClassifier("pseudo"), method=method, cv=3).fit(X, y)
        prob = model.predict_proba(X)
        assert prob.sum(axis=1) == pytest.approx(1.0)
        assert prob[:, 1].mean() == pytest.approx((y == "Yes").mean(), abs=0.02)
        assert model.score(X, y) > 0.7

    # few rows of many groups
    @pytest.mark.filterwarnings("ignore:On the training rows:bbl.errors.DataWarning")
    def test_cross_val_predict(self, digits):
        X, y = digits
        prob = cross_val_predict(BBLClassifier("pseudo"), X, y, cv=KFold(3), method="predict_proba")
        first = BBLClassifier("pseudo").fit(X[80:], y[80:]).predict_proba(X[:80])
        assert np.array_equal(prob[:80], first)


def test_classes_of_several_types_are_refused_in_words():
    y = np.array(["1", 1] * 10, dtype=object)
    with pytest.raises(
        BBLTypeError, match=r"y mixes labels of the types int, str\..*Convert all labels to strings"
    ):
        BBLClassifier("pseudo").fit(pd.DataFrame({"a": list("uv") * 10}), y)
