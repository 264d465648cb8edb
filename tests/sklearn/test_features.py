"""ScoreFeatures and log_scores: scikit-learn's checks, scores against the oracle, out-of-fold
scores, a pipeline.
"""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.errors import BBLTypeError, DataError, OptionError

sklearn = pytest.importorskip("sklearn")

from scipy.stats import kstest, spearmanr  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import StratifiedKFold  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from bbl.engines.bayes.grey import fit_grey, truncated_exponential  # noqa: E402
from bbl.sklearn import BBLClassifier, ScoreFeatures  # noqa: E402

OUT_OF_FOLD = dict.fromkeys(
    ["check_transformer_general", "check_transformer_data_not_an_array"],
    "fit_transform returns out-of-fold scores, which are not those of transform",
)
ESTIMATORS = [
    ScoreFeatures("mf", cv=None),
    ScoreFeatures("conjugate", cv=None),
    ScoreFeatures("mf", cv=3),
    ScoreFeatures("conjugate", cv=3),
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 3, (200, 3)), columns=["a", "b", "c"])
    y = np.array(["u", "v"])[((X["a"] == X["b"]) ^ (rng.random(200) < 0.2)).astype(int)]
    return X, y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.thinned(2)
def test_it_passes_the_checks_of_scikit_learn_but_those_that_it_declares(estimator):
    declared = OUT_OF_FOLD if estimator.cv is not None else {}
    # raises at any other failure
    found = check_estimator(estimator, expected_failed_checks=declared, on_skip=None)
    status = {
        s: {c["check_name"] for c in found if c["status"] == s}
        for s in ("passed", "xfail", "skipped")
    }
    assert len(status["passed"]) > 40 and status["skipped"] <= {"check_array_api_input"}
    assert status["xfail"] == set(declared)
    failed = [str(c["exception"]) for c in found if c["status"] == "xfail"]
    assert all("fit_transform and transform outcomes not consistent" in own for own in failed)


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_scores_are_energies_and_with_ln_z_log_probabilities(table, method):
    X, y = table
    data = X.assign(y=y)
    fit = (
        bbl.bbl("y ~ .^2", data, method=method, lambda_=0.1)
        if method == "pseudo"
        else bbl.bbl("y ~ .^2", data, method=method)
    )
    energy, scores = bbl.log_scores(fit, X), bbl.log_scores(fit, X, normalised=True)
    layout = fit.estimate.parameters.layout
    for g, group in enumerate(fit.labels.groups):
        h = [layout.table(fit.estimate.parameters.theta[g], i) for i in range(3)]
        J = {
            (i, j): layout.table(fit.estimate.parameters.theta[g], i, j)
            for i, j in layout.pairs.tolist()
        }
        E = oracle.energy(h, J, X.to_numpy())
        np.testing.assert_allclose(energy[group], E, atol=1e-10)
        np.testing.assert_allclose(
            scores[group], E - oracle.log_partition(h, J, [3, 3, 3]), atol=1e-8
        )
    both = bbl.log_scores(fit, X, normalised=True, prior=True)
    np.testing.assert_allclose(both["u"] - scores["u"], np.log((y == "u").mean()))
    own = fit.predict(X)
    np.testing.assert_allclose(both["v"] - both["u"], own["v"])
    pd.testing.assert_frame_equal(
        bbl.log_scores(fit), energy.set_axis(fit.index), check_names=False
    )


def test_what_is_no_machine_has_no_scores(table):
    with pytest.raises(BBLTypeError, match="fit must be"):
        bbl.log_scores("fit")
    fit = bbl.bbl("y ~ a + b", table[0].assign(y=table[1]), method="naive")
    with pytest.raises(DataError, match="'b'"):
        bbl.log_scores(fit, table[0][["a"]])


@pytest.mark.parametrize("method", ["mf", "conjugate"])
def test_training_scores_are_those_of_the_other_folds(table, method):
    X, y = table
    model = ScoreFeatures(method, cv=4, random_state=3)
    found = model.fit_transform(X, y)
    rng = np.random.RandomState(np.random.RandomState(3).randint(2**31 - 1))
    for train, held in StratifiedKFold(4, shuffle=True, random_state=rng).split(X, y):
        other = ScoreFeatures(method, cv=None).fit(X.iloc[train], y[train])
        np.testing.assert_array_equal(found[held], other.transform(X.iloc[held]))
    assert model.get_feature_names_out().tolist() == ["score_u", "score_v"]
    assert np.array_equal(ScoreFeatures(method, cv=4, random_state=3).fit_transform(X, y), found)
    own = ScoreFeatures(method, cv=None).fit_transform(X, y)
    assert np.array_equal(own, model.transform(X))


def test_a_class_with_fewer_rows_than_folds_gets_the_lowest_score_where_it_is_unknown(table):
    X, y = table
    y = y.astype(object)
    y[0] = "rare"
    scores = ScoreFeatures("naive", cv=4).fit_transform(X, y)
    assert np.isfinite(scores).all()
    assert scores[0, 0] == scores[0, 1:].min()
    with pytest.raises(DataError, match="one row of each class"):
        ScoreFeatures("naive").fit_transform(X.head(2), ["u", "v"])


def test_the_signed_log_and_the_normaliser_are_options(table):
    X, y = table
    plain, logged = ScoreFeatures("mf").fit(X, y), ScoreFeatures("mf", signed_log=True).fit(X, y)
    np.testing.assert_allclose(
        logged.transform(X), bbl.engines.bayes.conjugate.signed_log(plain.transform(X))
    )
    energy = ScoreFeatures("mf", normalised=False).fit(X, y).transform(X)
    fit = BBLClassifier("mf").fit(X, y).result_
    np.testing.assert_allclose(
        energy - plain.transform(X), np.broadcast_to(fit.estimate.log_z, energy.shape)
    )
    for bad, argument in (
        (ScoreFeatures("conjugate", normalised=True), "normalised"),
        (ScoreFeatures(cv=1), "cv"),
    ):
        with pytest.raises(OptionError) as caught:
            bad.fit(X, y)
        assert caught.value.argument == argument


def test_a_pipeline_learns_from_scores_what_its_classifier_alone_cannot(table):
    X, y = table
    scores = make_pipeline(
        ScoreFeatures("pseudo", options={"lambda_": 0.01}), LogisticRegression()
    ).fit(X, y)
    assert scores.score(X, y) > 0.75 > 0.65 > LogisticRegression().fit(X, y).score(X, y)
    drawn = ScoreFeatures("bayes", cv=None, options={"chains": 1, "warmup": 50, "draws": 50})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.ConvergenceWarning)
        assert make_pipeline(drawn, LogisticRegression()).fit(X, y).score(X, y) > 0.75


def test_conjugate_scores_of_grey_values_tell_classes_apart_whatever_c_is():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 300)
    X = np.tanh(rng.normal(size=(3, 8))[y] + 0.7 * rng.normal(size=(300, 8)))
    one, other = (
        make_pipeline(
            ScoreFeatures("conjugate", options={"c": c}), LogisticRegression(max_iter=1000)
        ).fit(X, y)
        for c in (10.0, 20.0)
    )
    np.testing.assert_allclose(2 * other[0].transform(X), one[0].transform(X))
    assert one.score(X, y) > 0.8


@pytest.mark.parametrize("hidden_pairs", [False, True])
def test_scores_of_units_are_sums_over_their_states(hidden_pairs):
    X = np.random.default_rng(3).uniform(-1, 1, (30, 4))
    machine = fit_grey(X, 15.0, (3,), True, 10, np.random.default_rng(0), hidden_pairs)
    J = np.zeros((7, 7))
    J[:4, :4], J[:4, 4:] = machine.beta, machine.weights[0]
    if hidden_pairs:
        J[4:, 4:] = machine.unit_pairs
        assert machine.unit_pairs.any() and (machine.unit_pairs == machine.unit_pairs.T).all()
    field = np.concatenate([machine.alpha, *machine.fields])
    expected = []
    for x in X:
        energies = []
        for units in itertools.product([-1.0, 1.0], repeat=3):
            v = np.array([*x, *units])
            energies.append(
                v @ field + sum(J[i, j] * v[i] * v[j] for j in range(7) for i in range(j))
            )
        expected.append(np.log(np.exp(energies).sum()))
    np.testing.assert_allclose(machine.scores(X), expected, rtol=1e-10)


def test_scores_of_two_layers_are_a_lower_bound_of_the_sum_over_their_states():
    X = np.random.default_rng(4).uniform(-1, 1, (40, 4))
    machine = fit_grey(X, 20.0, (3, 2), False, 10, np.random.default_rng(0))
    sums = []
    for x in X:
        energies = [
            x @ machine.alpha
            + x @ machine.weights[0] @ u
            + u @ machine.weights[1] @ v
            + u @ machine.fields[0]
            + v @ machine.fields[1]
            for u in map(np.array, itertools.product([-1.0, 1.0], repeat=3))
            for v in map(np.array, itertools.product([-1.0, 1.0], repeat=2))
        ]
        sums.append(np.log(np.exp(energies).sum()))
    gap = np.array(sums) - machine.scores(X)
    assert gap.min() > -1e-9 and gap.max() < 1.0
    # rows are ranked almost as by the sum
    assert spearmanr(sums, machine.scores(X)).statistic > 0.95


@pytest.mark.parametrize("slope", [-40.0, -1.0, 0.0, 1e-7, 2.0, 300.0])
def test_numbers_of_a_slope_have_its_distribution(slope):
    drawn = truncated_exponential(np.full(2000, slope), np.random.default_rng(1))
    assert np.abs(drawn).max() <= 1.0

    def cdf(x):
        if abs(slope) < 1e-3:
            return (x + 1.0) / 2.0
        return np.expm1(slope * (x + 1.0)) / np.expm1(2.0 * slope)

    assert kstest(drawn, cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "options", [{"hidden": 8}, {"hidden": (8, 4)}, {"hidden": 4, "hidden_pairs": True}, {}]
)
def test_rows_are_drawn_near_their_class_and_not_near_its_negative(options):
    rng = np.random.default_rng(2)
    pattern = np.array([np.repeat([0.9, -0.7], 8), np.tile([0.9, -0.7], 8)])
    y = np.repeat([0, 1], 80)
    X = np.clip(pattern[y] + rng.normal(0, 0.2, (160, 16)), -1, 1)
    pairs = "none" if options and "hidden_pairs" not in options else "all"
    features = ScoreFeatures("conjugate", pairs=pairs, options=options).fit(X, y)
    for label in (0, 1):
        drawn = features.sample(label, 40, sweeps=20)
        assert ((drawn - drawn.mean(axis=1, keepdims=True)) @ pattern[label] > 0).all()


@pytest.mark.long
def test_grey_values_have_hidden_units_and_are_drawn():
    rng = np.random.default_rng(0)
    y = np.repeat(["dark", "light", "mixed"], 60)
    mean = np.select([y == "dark", y == "light"], [-0.6, 0.6], 0.0)
    X = np.clip(mean[:, None] + rng.normal(0, 0.3, (180, 6)), -1, 1)
    for hidden in (0, 5, (6, 3)):
        features = ScoreFeatures(
            "conjugate", pairs="none", options={"hidden": hidden, "sweeps": 20}
        )
        scores = features.fit_transform(X, y)
        assert scores.shape == (180, 3) and np.isfinite(scores).all()
        again = ScoreFeatures("conjugate", pairs="none", options={"hidden": hidden, "sweeps": 20})
        np.testing.assert_array_equal(again.fit_transform(X, y), scores)
        light = features.sample("light", 200)
        assert np.abs(light).max() <= 1.0 and light.mean() > features.sample("dark", 200).mean()
    with pytest.raises(TypeError, match="'units' is not an option.*Hint: Pass c, hidden"):
        ScoreFeatures("conjugate", options={"units": 3}).fit(X, y)
    for hidden in (0, 1, (3, 2), 17):
        with pytest.raises(ValueError, match="hidden_pairs.*Hint: Add 'hidden': 10"):
            options = {"hidden": hidden, "hidden_pairs": True}
            ScoreFeatures("conjugate", options=options).fit(X, y)
    with pytest.raises(ValueError, match="not a class.*Hint: Pass one of 'dark'"):
        features.sample("grey")
    with pytest.raises(ValueError, match="sample.. requires method='conjugate'"):
        ScoreFeatures("naive").fit((X > 0).astype(int), y).sample("dark")
