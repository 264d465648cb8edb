"""Tests of the verbs of Bayesian network classifiers, most of them against outputs of R's
bnclassify.
"""

import functools
import json

import bncases
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks

USUAL = {"weights": "Freq"}


@functools.cache
def frame(name, part="train"):
    """Return a recorded data set as categories with declared levels."""
    stored = bncases.case(f"data_{name}")
    columns = stored[part]["columns"]
    return pd.DataFrame(
        {v: pd.Categorical(columns[v], categories=stored["levels"][v]) for v in columns}
    )


@functools.cache
def learn(name, model):
    """Return the structure that a recorded model is called by."""
    data = frame(name)
    class_ = bncases.case(f"data_{name}")["class"]
    kind, _, score = model.removesuffix("_manb").partition("_cl_" if "_cl_" in model else "_")
    if kind == "tan":
        return networks.tan_cl(class_, data, score)
    return {"nb": networks.nb, "aode": networks.aode}[kind](class_, data)


@functools.cache
def fitted(name, structure, smooth):
    """Return its fit, which several tests look at."""
    return networks.lp(learn(name, structure), frame(name), smooth)


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", bncases.cases("structure"))
def test_structures_can_be_inspected_as_in_r(name):
    stored = bncases.case(f"{name}_structure")
    for model, want in stored["structures"].items():
        found = learn(name, model)
        assert list(found.features) == want["features"]
        assert {k: list(v) for k, v in found.families.items()} == want["families"]
        assert [list(a) for a in found.arcs] == want["arcs"]
        for what in ("modelstring", "narcs", "is_anb", "is_nb", "is_ode", "is_semi_naive"):
            assert getattr(found, what) == want[what], what
    members = learn(name, "aode").members
    assert {s: {k: list(v) for k, v in m.families.items()} for s, m in members.items()} == stored[
        "aode"
    ]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", ["car", "syn_b"])
def test_a_root_turns_the_tree_where_r_ignores_it(name):
    data, stored = frame(name), bncases.case(f"{name}_structure")
    root, class_ = stored["root_given"]["root"], bncases.case(f"data_{name}")["class"]
    for score in ("loglik", "aic", "bic"):
        plain, turned = (
            networks.tan_cl(class_, data, score),
            networks.tan_cl(class_, data, score, root=root),
        )
        assert turned.feature_families[root] == (root,)
        assert {frozenset(a) for a in plain.arcs} == {frozenset(a) for a in turned.arcs}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", bncases.cases("params"))
def test_params_are_labelled_tables_of_rs_numbers(name):
    for model in bncases.case(f"{name}_params")["models"]:
        fit = fitted(name, model["structure"], model["smooth"])
        params = fit.params
        assert fit.nparams == model["nparams"]
        for x, cpt in model["cpts"].items():
            table = params[x]
            assert table.columns.tolist() == cpt["levels"][0]
            if x != fit.class_var:
                assert list(table.index.names) == cpt["vars"][1:]
            want = bncases.table(cpt)
            want = np.moveaxis(want, -2, -1).reshape(table.shape) if want.ndim > 1 else want[None]
            np.testing.assert_allclose(table, want, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", bncases.cases("scores"))
def test_scores_are_rs_on_rs_scale(name):
    data = frame(name)
    for model in bncases.case(f"{name}_scores")["models"]:
        fit = fitted(name, model["structure"], model["smooth"])
        assert fit.cLogLik() == pytest.approx(bncases.number(model["cLogLik"]), rel=1e-9)
        if model.get("logLik") is None:
            continue
        assert fit.logLik(data) == pytest.approx(bncases.number(model["logLik"]), rel=1e-9)
        for kind in ("AIC", "BIC"):
            assert fit.score(kind.lower()) == pytest.approx(bncases.number(model[kind]), rel=1e-9)
            usual = fit.aic if kind == "AIC" else fit.bic
            assert usual == pytest.approx(-2 * bncases.number(model[kind]), rel=1e-9)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", ["car", "syn_a", "syn_b", "tiny", "voting"])
@pytest.mark.long
def test_predictions_of_new_rows_are_rs(name):
    new, stored = frame(name, "newdata"), bncases.case(f"{name}_predict")
    for model in stored["models"]:
        fit = fitted(name, model["structure"], model["smooth"])
        found = fit.predict(new)
        assert found.columns.tolist() == [*fit.classes, "yhat"]
        good = np.ones(len(new), dtype=bool)
        good[np.array(model.get("newdata_defect_rows") or [], dtype=int) - 1] = False
        want = np.array([bncases.numbers(row) for row in model["newdata_posterior"]])
        np.testing.assert_allclose(
            found.iloc[good, :-1].astype(float), want[good], rtol=0, atol=1e-10
        )
        sums = found.iloc[:, :-1].sum(axis=1)
        np.testing.assert_allclose(sums, 1.0)
        first = found.iloc[:, :-1].to_numpy(float).argmax(axis=1)
        assert fit.predict(new, type="class").tolist() == [fit.classes[k] for k in first]


@pytest.mark.long
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", bncases.cases("cv"))
def test_cross_validation_has_rs_accuracies(name):
    data, stored = frame(name), bncases.case(f"{name}_cv")
    folds = [np.array(rows) - 1 for rows in stored["folds"]]
    class_ = bncases.case(f"data_{name}")["class"]

    def fit(model):
        if model == "nb_manb":
            return networks.bnc(
                "nb", class_, data, stored["smooth"], manb_prior=stored["manb_prior"]
            )
        known = {
            "nb": "nb",
            "aode": "aode",
            **{f"tan_{s}": f"tan_cl_{s}" for s in ("loglik", "aic", "bic")},
        }
        return fitted(name, known[model], stored["smooth"])

    for key, relearn in (("relearn_structure", True), ("fixed_structure", False)):
        rows = {entry["model"]: entry for entry in stored[key]}
        table = networks.cv(
            {m: fit(m) for m in rows}, data, dag=relearn, mean=False, folds=folds, n_jobs=1
        )
        for model, entry in rows.items():
            np.testing.assert_allclose(table[model], entry["fold_accuracy"], rtol=0, atol=1e-12)
            assert table[model].mean() == pytest.approx(entry["mean"], abs=1e-12)


@pytest.mark.usefixtures("shared")
def test_information_and_given_weights_are_rs():
    data, stored = frame("syn_b"), bncases.case("syn_b_cmi")
    for pair in stored["pairs"]:
        assert networks.cmi(pair["x"], pair["y"], data) == pytest.approx(pair["mi"], abs=1e-12)
        assert networks.cmi(pair["x"], pair["y"], data, "y") == pytest.approx(
            pair["cmi_given_class"], abs=1e-12
        )
    for entry in stored["with_class"]:
        for unit in ("log2", "log10"):
            assert networks.cmi(entry["x"], "y", data, unit=unit) == pytest.approx(
                entry[f"mi_{unit}"], abs=1e-12
            )
    case = bncases.case("syn_b_wanbia")
    fit = networks.bnc("nb", "y", data, case["models"][0]["smooth"], wanbia=case["weights"])
    assert fit.cLogLik() == pytest.approx(case["models"][0]["cLogLik"], rel=1e-9)
    assert fit.wanbia_weights.to_dict() == case["weights"] and fit.awnb_weights is None


@pytest.mark.usefixtures("shared")
def test_greedy_learners_take_folds_and_keep_their_log():
    data = frame("car")
    verbs = {n: getattr(networks, n) for n in ("tan_hc", "tan_hcsp", "fssj", "bsej", "kdb")}
    for run in bncases.case("car_greedy")["runs"][::3]:
        if not run["tie_free"]:
            continue
        options = {"epsilon": run["epsilon"], "smooth": run["smooth"]}
        if run["kdbk"]:
            options["kdbk"] = run["kdbk"]
        folds = [np.array(rows) - 1 for rows in run["folds"]]
        found = verbs[run["learner"]]("class ~ .", data, folds=folds, **options)
        assert found.modelstring == run["modelstring"] and list(found.features) == run["features"]
        assert found.score_log == pytest.approx(run["scores_log"], abs=1e-12)


@pytest.mark.long
def test_weights_are_repeated_rows_for_every_learner(titanic):
    repeated = bbl.freq2raw(titanic, "Freq")
    new = titanic.drop(columns=["Survived", "Freq"])
    for learner in ("nb", "tan_cl", "tan_hc", "tan_hcsp", "fssj", "bsej", "kdb", "aode"):
        dag_args = {"k": 3, "epsilon": 0.0} if learner not in ("nb", "tan_cl", "aode") else None
        a, b = (
            networks.bnc(learner, "Survived ~ .", d, 0.5, dag_args=dag_args, seed=3, **w)
            for d, w in ((titanic, USUAL), (repeated, {}))
        )
        assert a.structure == b.structure, learner
        pd.testing.assert_frame_equal(a.predict(new), b.predict(new), check_exact=True)
        assert a.nobs() == b.nobs() and a.logLik() == pytest.approx(b.logLik(), rel=1e-12)
    both = ((titanic, USUAL), (repeated, {}))
    for option in ({"manb_prior": 0.2}, {"awnb_trees": 4}, {"wanbia": True}):
        a, b = (networks.bnc("nb", "Survived ~ .", d, 0.5, **o, **option) for d, o in both)
        np.testing.assert_allclose(a.predict(new).iloc[:, 0], b.predict(new).iloc[:, 0], atol=1e-6)
    a, b = (networks.cv(networks.bnc("nb", "Survived", d, 1, **o), d, k=4, **o) for d, o in both)
    pd.testing.assert_series_equal(a, b, check_exact=True)


def test_declared_levels_count_though_they_never_occur():
    data = pd.DataFrame(
        {
            "y": pd.Categorical(list("aab"), list("abc")),
            "x": pd.Categorical(list("uvu"), list("wuv")),
            "z": list("pqp"),
        }
    )
    fit = networks.bnc("nb", "y", data, 1)
    assert (
        fit.classes == ("a", "b", "c")
        and fit.values("x") == ("w", "u", "v")
        and fit.values("z") == ("p", "q")
    )
    np.testing.assert_allclose(fit.params["x"].loc["a"], [1 / 5, 2 / 5, 2 / 5])
    np.testing.assert_allclose(fit.params["x"].loc["c"], 1 / 3)
    np.testing.assert_allclose(fit.params["y"].iloc[0], [3 / 6, 2 / 6, 1 / 6])
    assert fit.nparams == 2 + 3 * 2 + 3


def test_levels_with_no_rows_at_all_can_be_predicted_from():
    data = pd.DataFrame({"y": list("aabb"), "x": pd.Categorical(list("uvuv"), list("uvw"))})
    fit = networks.bnc("nb", "y ~ x", data)
    found = fit.predict(pd.DataFrame({"x": ["w"]}))
    # impossible under both: equal
    np.testing.assert_allclose(found.iloc[0, :-1].astype(float), 0.5)


def test_the_class_may_be_missing_where_parameters_are_learnt():
    data = pd.DataFrame({"y": ["a", "b", None, "a"], "x": ["u", "v", "u", None]})
    fit = networks.bnc("nb", "y ~ x", data, 1)
    np.testing.assert_allclose(fit.params["y"].iloc[0], [3 / 5, 2 / 5])
    assert np.isnan(fit.logLik()) and fit.nobs() == 4
    assert fit.residuals().isna().tolist() == [False, False, True, False]
    assert np.isfinite(fit.logLik(data.iloc[[0, 1, 3]])) and np.isnan(fit.logLik(data))
    assert fit.predict(data)["yhat"].notna().all()


@pytest.mark.parametrize("policy", ["drop", "level", "raise"])
def test_missing_values_go_by_the_policy(policy):
    data = pd.DataFrame({"y": list("aabbab"), "x": ["u", None, "v", "v", "u", "u"]})
    if policy == "raise":
        with pytest.raises(bbl.errors.DataError, match="'x' has 1 missing"):
            networks.nb("y", data, missing=policy)
        return
    fit = networks.bnc("nb", "y", data, 1, missing=policy)
    assert fit.nobs() == (5 if policy == "drop" else 6)
    assert len(fit.values("x")) == (2 if policy == "drop" else 3)


def test_one_feature_and_none_are_fine():
    one = pd.DataFrame({"y": list("aab"), "x": list("uvv")})
    for learner in ("nb", "tan_cl", "aode", "kdb", "tan_hc"):
        with pytest.warns(bbl.DataWarning) if learner in ("kdb", "tan_hc") else _nothing():
            fit = networks.bnc(
                learner, "y", one, 1, dag_args={"k": 2} if learner in ("kdb", "tan_hc") else None
            )
        assert fit.features == ("x",)
    alone = networks.bnc("nb", "y", one[["y"]])
    np.testing.assert_allclose(alone.predict(one).iloc[:, :-1].astype(float), [[2 / 3, 1 / 3]] * 3)
    assert alone.features == () and alone.modelstring == "[y]" and alone.nparams == 1
    assert alone.summary() and repr(alone) and len(alone.sample(5)) == 5
    assert networks.bnc("aode", "y", one[["y"]]).predict(one)["yhat"].tolist() == ["a"] * 3


class _nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def test_a_feature_that_a_search_leaves_out_is_not_looked_at_in_new_rows():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 60)
    data = pd.DataFrame(
        {"y": y, "good": np.where(rng.random(120) < 0.9, y, "a"), "noise": rng.integers(0, 2, 120)}
    )
    fit = networks.bnc("fssj", "y", data, 1, dag_args={"k": 4})
    assert fit.features == ("good",) and fit.structure.columns == ("good", "noise")
    assert len(fit.predict(data[["good"]])) == 120
    with pytest.raises(bbl.errors.DataError, match="no column 'good'"):
        fit.predict(data[["noise"]])
    for option in ({"wanbia": True}, {"awnb_trees": 3}):
        weighted = networks.lp(fit.structure, data, 1, **option)
        assert weighted.features == ("good",)
    assert networks.cv(fit, data, k=3).between(0.8, 1).all()


def test_cross_validation_scores_models_of_any_kind_on_the_same_folds(titanic):
    models = {
        "manb": networks.bnc("nb", "Survived ~ .", titanic, 1, manb_prior=0.5, **USUAL),
        "by hand": networks.lp(
            networks.structure("Survived", {"Sex": [], "Class": ["Sex"]}),
            titanic,
            smooth=1,
            **USUAL,
        ),
        "search": networks.bnc("tan_hc", "Survived ~ .", titanic, 1, dag_args={"k": 3}, **USUAL),
    }
    for score in ("accuracy", "logloss", "brier", "auc"):
        one = networks.cv(models, titanic, k=3, score=score, n_jobs=1, **USUAL)
        two = networks.cv(models, titanic, k=3, score=score, n_jobs=2, **USUAL)
        pd.testing.assert_series_equal(one, two, check_exact=True)
        assert one.index.tolist() == list(models) and one.between(0, 1).all()
    folds = networks.cv(models, titanic, k=3, mean=False, n_jobs=1, **USUAL)
    assert folds.shape == (3, 3) and folds.index.name == "fold"
    again = networks.cv([models["manb"], models["manb"]], titanic, k=3, **USUAL)
    assert again.index.tolist() == ["nb", "nb.1"]


def test_seeds_decide_folds_and_ties(titanic):
    runs = [
        networks.tan_hc("Survived", titanic, k=4, epsilon=0.0, seed=s, **USUAL) for s in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].score_log != runs[2].score_log


def test_labels_are_compared_by_name_and_missing_ones_never_agree():
    a = pd.Categorical(["a", "b", None], ["a", "b"])
    b = pd.Categorical(["a", "a", None], ["b", "a"])
    assert networks.accuracy(a, b) == pytest.approx(1 / 3)
    assert networks.accuracy(pd.Series([1, 2], index=[5, 6]), np.array([1, 2])) == 1.0


def test_a_class_name_that_is_no_identifier_works_everywhere():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 3, (60, 3)), columns=["my class", "a:b", "c d"])
    for option in ({}, {"awnb_trees": 3}, {"wanbia": True}, {"manb_prior": 0.5}):
        fit = networks.bnc("nb", "my class", data, 1, **option)
        assert fit.class_var == "my class" and fit.features == ("a:b", "c d")
        assert networks.cv(fit, data, k=3).notna().all()


BAD = [
    (
        "no class",
        lambda d: networks.nb("klass", d),
        r"'klass' is not a column of the data\..*Hint: Did you mean 'class'",
    ),
    ("class in formula", lambda d: networks.nb("klass ~ .", d), "'klass' is not a column"),
    (
        "interactions",
        lambda d: networks.nb("class ~ a*b", d),
        "interaction a:b, but the structure of a network is learnt from the data",
    ),
    (
        "learner",
        lambda d: networks.bnc("tancl", "class", d),
        "learner='tancl' is unknown. Hint: Did you mean 'tan_cl'",
    ),
    ("k of rows", lambda d: networks.tan_hc("class", d, k=99), "k must be between 2 and 40"),
    ("smooth", lambda d: networks.bnc("nb", "class", d, -1), "smooth must be in"),
    ("nan smooth", lambda d: networks.bnc("nb", "class", d, np.nan), "smooth must be in"),
    (
        "nan weights",
        lambda d: networks.nb("class", d, weights=np.full(40, np.nan)),
        "weights must all be non-negative integers",
    ),
    (
        "weight above 1",
        lambda d: networks.bnc("nb", "class", d, 1, wanbia={"a": 2, "b": 0}),
        r"wanbia\['a'\] must be in",
    ),
    (
        "nan weight",
        lambda d: networks.bnc("nb", "class", d, 1, wanbia={"a": np.nan, "b": 0}),
        r"wanbia\['a'\] must",
    ),
    (
        "weight of none",
        lambda d: networks.bnc("nb", "class", d, 1, wanbia={"a": 1, "c": 0}),
        "'c', which is no",
    ),
    (
        "weight lacks",
        lambda d: networks.bnc("nb", "class", d, 1, wanbia={"a": 1}),
        "no weight",
    ),
    (
        "two methods",
        lambda d: networks.bnc("nb", "class", d, 1, manb_prior=0.5, wanbia=True),
        "cannot be combined",
    ),
    (
        "three",
        lambda d: networks.bnc("nb", "class", d, 1, wanbia=True, awnb_trees=3),
        "cannot be combined",
    ),
    (
        "manb of tan",
        lambda d: networks.bnc("tan_cl", "class", d, 1, manb_prior=0.5),
        "not naive Bayes",
    ),
    (
        "manb, smooth 0",
        lambda d: networks.bnc("nb", "class", d, manb_prior=0.5),
        "requires smooth > 0",
    ),
    (
        "manb prior",
        lambda d: networks.bnc("nb", "class", d, 1, manb_prior=1.5),
        "manb_prior must be in",
    ),
    (
        "aode",
        lambda d: networks.bnc("aode", "class", d, 1, awnb_bootstrap=0.5),
        "does not support awnb",
    ),
    ("trees", lambda d: networks.bnc("nb", "class", d, 1, awnb_trees=0), "awnb_trees must be"),
    (
        "root",
        lambda d: networks.tan_cl("class", d, root="aa"),
        r"root='aa' is no.*feature\. Hint: Did you mean 'a'",
    ),
    (
        "score",
        lambda d: networks.tan_cl("class", d, "bick"),
        "score='bick' is unknown. Hint: Did you mean 'bic'",
    ),
    (
        "dag_args",
        lambda d: networks.bnc("tan_cl", "class", d, dag_args={"scor": "bic"}),
        "Did you mean 'score'",
    ),
    (
        "parent",
        lambda d: networks.structure("c", {"a": ["b"]}),
        "'a' has the parent 'b', which is no.*feature",
    ),
    ("cycle", lambda d: networks.structure("c", {"a": ["b"], "b": ["a"]}), "cycle through"),
    ("itself", lambda d: networks.structure("c", {"a": ["a"]}), "cycle through 'a'"),
    (
        "class as child",
        lambda d: networks.structure("c", {"a": [], "c": ["a"]}),
        "has no parents itself",
    ),
    (
        "class as parent",
        lambda d: networks.structure("c", {"a": ["c"]}),
        "is always a parent of 'a'",
    ),
    ("string", lambda d: networks.structure("c", {"a": "b", "b": []}), r"Write \['b'\]"),
    (
        "column",
        lambda d: networks.lp(networks.structure("class", {"z": []}), d),
        "'z' is not a column",
    ),
    ("var", lambda d: networks.bnc("nb", "class", d).values("z"), "'z' is no.*variable"),
    (
        "folds",
        lambda d: networks.tan_hc("class", d, folds=[[0, 1], [99]]),
        "cv cannot split|folds",
    ),
    ("fold text", lambda d: networks.tan_hc("class", d, folds="five"), "folds must be a list"),
    ("models", lambda d: networks.cv("nb", d), "models must be a fitted network"),
    ("no models", lambda d: networks.cv([], d), "models must be networks"),
    ("lengths", lambda d: networks.accuracy([1, 2], [1]), "same length"),
    ("cmi", lambda d: networks.cmi("a", "zz", d), "no column 'zz'"),
    ("unit", lambda d: networks.cmi("a", "b", d, unit="bit"), "unit='bit' is unknown"),
    ("kind", lambda d: networks.bnc("nb", "class", d).score("bick"), "kind='bick' is unknown"),
    (
        "a name",
        lambda d: networks.bnc("nb", "class", d, 1, weigths="a"),
        "weigths.*Did you mean 'weights'",
    ),
    ("aode figure", lambda d: networks.bnc("aode", "class", d).plot(), "aode averages 2 networks"),
]


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 3, (40, 3)), columns=["class", "a", "b"])
    return data


@pytest.mark.parametrize(("call", "text"), [(c, t) for _, c, t in BAD], ids=[n for n, *_ in BAD])
def test_bad_input_is_refused_with_the_remedy(call, text, small):
    with pytest.raises(bbl.BBLError, match=text):
        call(small)


def test_a_level_that_the_model_does_not_know_is_refused_or_summed_out(small):
    fit = networks.bnc("tan_cl", "class", small, 1)
    new = pd.DataFrame({"a": [0, 7], "b": [1, 1]})
    with pytest.raises(bbl.errors.LevelError, match="'a' has unknown levels: 7"):
        fit.predict(new)
    known = fit.predict(new, unseen="ignore")
    np.testing.assert_array_equal(
        known.iloc[1, :-1], fit.predict(new.assign(a=[0, None])).iloc[1, :-1]
    )


def test_a_class_of_many_numbers_is_refused(small):
    data = small.assign(y=np.arange(40.0) / 7)
    with pytest.raises(bbl.errors.DataError, match="'y' looks continuous"):
        networks.nb("y", data)
    wide = pd.DataFrame({"y": np.arange(300), "x": np.arange(300) % 3})
    with pytest.raises(bbl.errors.DataError, match="300 distinct numbers in 300 rows"):
        networks.nb("y", wide)
    declared = networks.nb("y", wide.astype({"y": "category"}))  # accepted
    assert declared.features == ("x",)


def test_more_folds_than_a_class_has_rows_are_warned_of():
    data = pd.DataFrame({"y": list("a" * 20 + "bbb"), "x": list("uv" * 11 + "u")})
    with pytest.warns(bbl.DataWarning, match="y='b' has 3 rows, fewer than the k=5 folds"):
        networks.tan_hc("y", data, k=5)


def test_ten_thousand_levels_are_weighed_before_memory_is_taken(monkeypatch):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "y": rng.integers(0, 2, 20000),
            "a": rng.permutation(20000) % 10000,
            "b": rng.permutation(20000) % 10000,
        }
    )
    assert networks.bnc("nb", "y", data.astype({"a": str, "b": str}), 1).nparams == 1 + 2 * 2 * 9999
    monkeypatch.setattr("bbl.memory.available_memory", lambda: 2**30)
    with pytest.raises(MemoryError, match="would need about 4.5 GiB"):
        networks.tan_cl("y", data.astype({"a": str, "b": str}))


@pytest.mark.long
def test_an_interrupt_stops_a_search():
    code = """
import os, signal, threading
import numpy as np, pandas as pd
from bbl import networks
rng = np.random.default_rng(0)
data = pd.DataFrame(rng.integers(0, 4, (20000, 25)), columns=[f"x{i}" for i in range(25)])
threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    networks.kdb("x0 ~ .", data, k=5, epsilon=0.0, kdbk=3, verbose=0)
    print("finished")
except KeyboardInterrupt:
    print("stopped")
"""
    import subprocess
    import sys

    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert found.stderr == ""
    assert found.stdout == "stopped\n"


def test_structures_go_to_other_libraries(small):
    import networkx

    graph = networks.structure("class", {"a": [], "b": ["a"]})
    found = graph.to_networkx()
    assert sorted(found.edges) == [("a", "b"), ("class", "a"), ("class", "b")]
    assert networkx.is_directed_acyclic_graph(found)
    assert graph.to_dot().splitlines()[0] == "digraph {" and '  "a" -> "b";' in graph.to_dot()
    odd = networks.structure('y"', {"a\nb": []})
    assert json.loads(odd.to_dot().splitlines()[1].strip(" ;")) == 'y"'


def test_one_name_for_each_column_of_the_mutual_information():
    with pytest.raises(
        bbl.errors.BBLTypeError, match=r"z must be the name of one column; got \['Class'\]"
    ):
        networks.cmi("Sex", "Survived", bbl.datasets.load_titanic(), z=["Class"])
