"""A learner declares all that others need: one made up here runs through every verb, without
touching another file.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.__main__ import main
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.learners import LEARNERS, Learner, Learnt, Option
from bbl.checks import integer
from bbl.errors import OptionError
from bbl.results.network.structure import AveragedStructure
from bbl.sklearn import BNClassifier


def chain(task, options):
    """Return a chain of the features from `first` on, every one with a parent `step` places before
    it.
    """
    m = len(task.n_levels)
    order = np.roll(np.arange(m), -(options["first"] or 0)).tolist()
    step = options["step"]
    return Learnt(
        (Dag(tuple((i, (order[at - step],) if at >= step else ()) for at, i in enumerate(order))),)
    )


def star(task, options):
    """Return a star around the first feature, which asks for folds."""
    assert task.fold_weights is not None and len(task.fold_weights) == options["k"]
    task.progress()
    return Learnt((Dag(((0, ()), *((i, (0,)) for i in range(1, len(task.n_levels))))),), (0.5,))


def two_chains(task, options):
    """Return the same chain twice, to be averaged."""
    m = len(task.n_levels)
    return Learnt(tuple(Dag(tuple((i, (i - 1,) if i else ()) for i in range(m))) for _ in range(2)))


LEARNERS_MADE_UP = (
    Learner(
        "chain",
        chain,
        {"first": Option(None), "step": Option(1, lambda value: integer("step", value, 1))},
    ),
    Learner(
        "star", star, {"k": Option(4, lambda value: integer("k", value, 2))}, lambda options: True
    ),
    Learner("chains", two_chains, averages=True),
)
MADE_UP = {learner.name: learner for learner in LEARNERS_MADE_UP}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, learner in MADE_UP.items():
        monkeypatch.setitem(LEARNERS, name, learner)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2, (3, 200))
    y = np.where(rng.random(200) < 0.8, a ^ b, c)
    return pd.DataFrame({"y": np.array(["no", "yes"])[y], "a": a, "b": b, "c": c})


def fitted(name, data, **options):
    return networks.bnc(name, "y ~ .", data, 1, verbose=0, **options)


@pytest.mark.parametrize("name", MADE_UP)
def test_every_verb_has_it(name, data, tmp_path):
    fit = fitted(name, data)
    assert fit.structure.learner == name and name in repr(fit) and name in str(fit.summary())
    assert fit.score() > 0.6
    p = fit.predict(data, type="prob")
    again = networks.lp(fit.structure, data, 1)
    pd.testing.assert_frame_equal(p, again.predict(data, type="prob"))
    fit.save(tmp_path / "fit.bbl")
    stored = bbl.load(tmp_path / "fit.bbl")
    pd.testing.assert_frame_equal(p, stored.predict(data, type="prob"))
    assert stored.structure == fit.structure
    assert bbl.average([fit, bbl.bbl("y ~ .", data)]).predict(data).shape == (200, 3)
    assert bbl.etable([fit]).frame.loc["Method", "(1)"] == name
    model = BNClassifier(name).fit(data[["a", "b", "c"]], data["y"])
    np.testing.assert_array_equal(model.predict_proba(data[["a", "b", "c"]]), p[["no", "yes"]])


def test_options_are_checked_as_declared(data):
    fit = fitted("chain", data, dag_args={"first": "b", "step": 2})
    assert fit.structure.modelstring == "[y] [b|y] [c|y] [a|b:y]"
    assert fit.structure.options == {"first": 1, "step": 2}
    for wrong, name in (({"step": 0}, "step"), ({"first": "d"}, "first"), ({"k": 3}, "dag_args")):
        with pytest.raises(OptionError) as caught:
            fitted("chain", data, dag_args=wrong)
        assert caught.value.argument == name
    with pytest.raises(OptionError, match="k must be"):
        fitted("star", data, dag_args={"k": 1})


def test_folds_are_dealt_to_those_that_validate(data):
    folds = [np.arange(200)[i::2] for i in range(2)]
    assert fitted("star", data, dag_args={"k": 2, "folds": folds}).structure.score_log == (0.5,)
    batches = lambda: iter([data.iloc[:90], data.iloc[90:]])  # noqa: E731
    assert fitted("chain", batches).nobs() == 200
    with pytest.raises(OptionError, match="learner='star'"):
        fitted("star", batches)


def test_averages_are_averaged(data, tmp_path):
    fit = fitted("chains", data)
    assert isinstance(fit.structure, AveragedStructure) and len(fit.network.members) == 2
    with pytest.raises(OptionError, match="chains.*manb_prior"):
        fitted("chains", data, manb_prior=0.5)
    with pytest.raises(OptionError, match="chains averages 2 networks"):
        fit.write_bif(tmp_path / "fit.bif")


def test_structures_are_learnt_anew_in_every_fold(data):
    models = [fitted("chain", data), fitted("chains", data)]
    table = networks.cv(models, data, k=4, verbose=0, mean=False)
    pd.testing.assert_frame_equal(
        table, networks.cv(models, data, k=4, verbose=0, mean=False, dag=False)
    )


def test_the_command_line_has_it(data, tmp_path, capsys):
    data.to_csv(tmp_path / "data.csv", index=False)
    main(["y ~ .", str(tmp_path / "data.csv"), "--learner", "chain"])
    assert "chain" in capsys.readouterr().out
