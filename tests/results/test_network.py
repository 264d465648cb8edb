"""Tests of fitted Bayesian network classifiers: what they show, draw, keep in files and write for
other programs.
"""

import importlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.results.network.network import NetworkResults

matplotlib.use("Agg")
HAND = {"Sex": [], "Class": ["Sex"], "Age": ["Class", "Sex"]}


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fits(titanic):
    graph = networks.structure("Survived", HAND)
    given = {"weights": "Freq"}
    return {
        "tan": networks.bnc(
            "tan_cl", "Survived ~ .", titanic, 1, dag_args={"root": "Age"}, **given
        ),
        "hand": networks.lp(graph, titanic, 0.5, **given),
        "manb": networks.bnc("nb", "Survived ~ .", titanic, 1, manb_prior=0.5, **given),
        "wanbia": networks.bnc(
            "nb", "Survived ~ .", titanic, 1, wanbia={"Class": 0.5, "Sex": 1, "Age": 0}, **given
        ),
        "awnb": networks.bnc("nb", "Survived ~ .", titanic, 1, awnb_trees=3, **given),
        "aode": networks.bnc("aode", "Survived ~ .", titanic, 1, **given),
        "search": networks.bnc("fssj", "Survived ~ .", titanic, 1, dag_args={"k": 3}, **given),
    }


def test_every_fit_comes_back_from_its_file_to_the_last_bit(fits, titanic, tmp_path):
    for name, fit in fits.items():
        for store in (False, True):
            path = tmp_path / f"{name}.bbl"
            fit.save(path, store_data=store)
            again = bbl.load(path)
            assert isinstance(again, NetworkResults)
            assert (
                again.structure == fit.structure
                and again.recipe == fit.recipe
                and repr(again) == repr(fit)
            )
            pd.testing.assert_frame_equal(
                again.predict(titanic), fit.predict(titanic), check_exact=True
            )
            assert str(again.summary()) == str(fit.summary())
            assert (again.training is None) != store
            if fit.recipe.plain and name != "aode":
                for x in fit.vars:
                    pd.testing.assert_frame_equal(
                        again.params_se[x], fit.params_se[x], check_exact=True
                    )
    loaded = [bbl.load(tmp_path / f"{name}.bbl") for name in ("tan", "search")]
    table = networks.cv(loaded, titanic, k=3, weights="Freq")
    pd.testing.assert_series_equal(
        table, networks.cv([fits["tan"], fits["search"]], titanic, k=3, weights="Freq")
    )


def test_a_file_with_parts_that_cannot_have_been_saved_is_refused(fits, tmp_path):
    from bbl.storage import read_model, write_model

    path = tmp_path / "fit.bbl"
    fits["hand"].save(path, store_data=True)
    meta, arrays = read_model(path, "network")
    changes = [
        lambda m, a: a.update(parents=a["parents"] + 7),
        lambda m, a: a.update(parents=np.zeros(3, dtype=np.int64)),
        lambda m, a: a.update(features=a["features"] * 0),
        lambda m, a: a.update(n_parents=a["n_parents"] + 1),
        lambda m, a: a.update(theta=a["theta"][1:]),
        lambda m, a: a.update(theta=a["theta"] - 2.0),
        lambda m, a: a.update(prior=a["prior"] * np.nan),
        lambda m, a: a.update(counts=-a["counts"] - 1),
        lambda m, a: a.update(codes=a["codes"] + 50),
        lambda m, a: a.update(y=a["y"] - 5),
        lambda m, a: a.update(more=np.zeros(2)),
        lambda m, a: m.update(learner="tan_lc"),
        lambda m, a: m.update(options={"k": 3}),
        lambda m, a: m.update(columns=m["columns"][:2]),
        lambda m, a: m.update(recipe={**m["recipe"], "smooth": -1.0}),
        lambda m, a: m.update(recipe={**m["recipe"], "wanbia": [2.0]}),
        lambda m, a: m.update(recipe={}),
        lambda m, a: m.update(nobs="many"),
    ]
    for change in changes:
        hostile, other = dict(meta), {k: v.copy() for k, v in arrays.items()}
        change(hostile, other)
        write_model(path, hostile, other, "network")
        with pytest.raises(bbl.errors.ModelFileError):
            bbl.load(path)


def test_standard_errors_are_those_of_the_dirichlet_posterior(fits, titanic):
    fit, smooth = fits["hand"], 0.5
    n = titanic.groupby(["Sex", "Survived", "Class"], observed=False)["Freq"].sum()
    below = n.groupby(["Sex", "Survived"], observed=False).transform("sum") + 4 * smooth
    p = (n + smooth) / below
    want = np.sqrt(p * (1 - p) / (below + 1)).unstack("Class")
    found = fit.params_se["Class"]
    np.testing.assert_allclose(found, want.loc[found.index, found.columns], rtol=1e-12)
    draws = np.random.default_rng(0).dirichlet(n.loc["Male", "Yes"] + smooth, 20000)
    np.testing.assert_allclose(
        found.loc[("Male", "Yes")], draws.std(axis=0)[: len(found.columns)], rtol=0.05
    )
    empty = networks.bnc(
        "nb", "y", pd.DataFrame({"y": pd.Categorical(["a", "b"], list("abc")), "x": ["u", "v"]})
    )
    assert empty.params_se["x"].loc["c"].isna().all() and (empty.params_se["x"].loc["a"] == 0).all()
    for name in ("manb", "aode"):
        with pytest.raises(bbl.errors.OptionError, match="standard errors"):
            fits[name].params_se  # noqa: B018


def test_summaries_have_three_forms_and_say_what_was_done(fits):
    for name, fit in fits.items():
        summary = fit.summary()
        for text in (str(summary), summary.as_html(), summary.as_latex()):
            assert "Sex" in text and "Observations" in text
        assert summary.tables["features"].index.tolist() == list(fit.features)
        expected = {
            "manb": "MANB",
            "awnb": "AWNB",
            "wanbia": "weighted as given",
            "search": "Accuracy in the search",
        }
        assert expected.get(name, "Dirichlet") in str(summary)
    assert fits["awnb"].awnb_weights.between(0, 1).all() and fits["awnb"].manb_arc_posterior is None


def test_many_features_are_summarised_by_those_that_tell_most():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (50, 41))).rename(columns=lambda c: f"x{c}")
    data["y"] = data["x7"]
    summary = networks.bnc("nb", "y", data, 1).summary()
    assert "20 most informative of 41" in str(summary) and "x7" in str(summary)


def test_reprs_are_in_rs_layout(fits):
    assert repr(fits["tan"]).splitlines() == [
        "  Bayesian network classifier",
        "",
        "  class variable:        Survived",
        "  num. features:   3",
        "  num. arcs:   5",
        "  free parameters:   23",
        "  learning algorithm:    tan_cl",
    ]
    assert "num. networks:   3" in repr(fits["aode"]) and "learning algorithm" not in repr(
        fits["hand"]
    )
    assert "num. arcs:   5" in repr(fits["tan"].structure)


def test_answers_of_the_structure_are_answers_of_the_fit(fits):
    fit = fits["hand"]
    for name in (
        "arcs",
        "families",
        "feature_families",
        "features",
        "modelstring",
        "narcs",
        "vars",
        "is_ode",
    ):
        assert getattr(fit, name) == getattr(fit.structure, name)
    assert fit.is_kde(2) and not fit.is_kde(1) and not fit.is_nb and fit.is_semi_naive
    assert "modelstring" in dir(fit)
    assert fits["aode"].members["Sex"].arcs[0] == ("Survived", "Sex")
    with pytest.raises(AttributeError, match="no_such"):
        fit.no_such  # noqa: B018


def test_figures_show_every_variable_and_table(fits):
    import matplotlib.pyplot as plt

    ax = fits["hand"].plot()
    assert {t.get_text() for t in ax.texts} >= {"Survived", "Sex", "Class", "Age"}
    bars = fits["hand"].plot("Age")
    assert len(bars.patches) == 2 * 16 and bars.get_xlabel() == "Class, Sex, Survived"
    own = plt.subplots()[1]
    assert fits["hand"].structure.plot(ax=own) is own and fits["tan"].plot("Survived", own) is own
    assert not fits["manb"].plot("Sex").collections  # no error bars where there are no errors
    plt.close("all")


def test_samples_have_the_joint_distribution_of_the_network(fits, titanic):
    n = 10_000
    for name in ("hand", "aode"):
        fit = fits[name]
        drawn = fit.sample(n, seed=1)
        assert drawn.equals(fit.sample(n, seed=1))
        assert drawn.columns[0] == "Survived" and len(fit.sample(0)) == 0
        labels = fit.labels
        codes = np.array(
            list(itertools.product(*(range(len(v)) for v in labels.levels))), dtype=np.uint8
        )
        joint = np.exp(fit.network.log_joint(codes))
        assert joint.sum() == pytest.approx(1.0)
        at = np.ravel_multi_index(
            [drawn[x].cat.codes for x in labels.names], [len(v) for v in labels.levels]
        )
        found = np.zeros_like(joint)
        np.add.at(found, (at, drawn["Survived"].cat.codes), 1 / n)
        assert np.abs(found - joint).max() < 5 * np.sqrt(joint.max() / n)


def peers(name):
    """Skip the test where a program that reads the files written here is absent, but not under
    CI.
    """
    if importlib.util.find_spec(name) is None and not os.environ.get("CI"):
        pytest.skip(f"{name} is not installed: pip install {name}")


def posterior_by_states(fit, ask):
    """Compare posteriors of all complete rows with those of another program."""
    states = list(itertools.product(*fit.labels.levels))
    found = fit.predict(pd.DataFrame(states, columns=list(fit.labels.names)))
    for state, own in zip(states, found[list(fit.classes)].to_numpy(), strict=True):
        np.testing.assert_allclose(
            ask(dict(zip(fit.labels.names, state, strict=True))), own, atol=1e-7
        )


PYAGRUM = """
import json, sys
import pyagrum

engine = pyagrum.LazyPropagation(pyagrum.loadBN(sys.argv[1]))
found = []
for evidence in json.loads(sys.argv[2]):
    engine.setEvidence(evidence)
    engine.makeInference()
    found.append(engine.posterior("Survived").tolist())
print(json.dumps(found))
"""


@pytest.mark.long
def test_pyagrum_reads_what_is_written(fits, tmp_path):
    """In a process of its own: its threads do not get on with those of other libraries."""
    peers("pyagrum")
    fit = fits["hand"]
    fit.write_bif(tmp_path / "net.bif")
    names = fit.labels.names
    states = [
        dict(zip(names, state, strict=True)) for state in itertools.product(*fit.labels.levels)
    ]
    evidence = [
        {k: str(v) if str(v)[0].isalpha() else f"s{v}" for k, v in state.items()}
        for state in states
    ]
    command = [sys.executable, "-c", PYAGRUM, str(tmp_path / "net.bif"), json.dumps(evidence)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answers = {
        tuple(state.values()): own
        for state, own in zip(states, json.loads(done.stdout), strict=True)
    }
    posterior_by_states(fit, lambda state: answers[tuple(state.values())])


@pytest.mark.long
def test_pgmpy_reads_what_is_written(fits, tmp_path):
    peers("pgmpy")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.inference import VariableElimination
        from pgmpy.readwrite import BIFReader

        fits["hand"].write_bif(tmp_path / "net.bif")
        net = BIFReader(str(tmp_path / "net.bif")).get_model()
        engine = VariableElimination(net)

        def ask(state):
            evidence = {k: str(v) if str(v)[0].isalpha() else f"s{v}" for k, v in state.items()}
            found = engine.query(["Survived"], evidence=evidence, show_progress=False)
            return [found.get_value(Survived=c) for c in fits["hand"].classes]

        posterior_by_states(fits["hand"], ask)


def test_names_that_the_format_does_not_know_become_words_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (30, 3)), columns=["c", "a b", "a-b"])
    fit = networks.bnc("nb", "c", data.assign(**{"a b": np.where(data["a b"], "x;", "x,")}), 1)
    fit.write_bif(tmp_path / "net.bif")
    text = (tmp_path / "net.bif").read_text()
    assert (
        "variable a_b {" in text
        and "variable a_b_2 {" in text
        and "{ x_, x__2 }" in text
        and "{ s0, s1 }" in text
    )
    with pytest.raises(bbl.errors.OptionError, match="single network"):
        networks.bnc("aode", "c", data, 1).write_bif(tmp_path / "x.bif")
