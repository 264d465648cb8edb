"""A model from a file answers as the one that was saved, whatever it is asked; and is saved to the
same bytes.
"""

import copy
import dataclasses
import inspect
import warnings
from functools import cache, partial

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.design.formula import FormulaTerms
from bbl.errors import BBLError, ClassError
from bbl.results.effect_table import Effects
from bbl.results.network.structure import SingleGraph
from bbl.rows.sample import Sample

matplotlib.use("Agg")

TITANIC = bbl.datasets.load_titanic()
NEW = TITANIC.head(12)
QUICK = {"verbose": 0}


def drawn(n=120, seed=0):
    """Return rows whose response and predictors are of several types, some missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": rng.integers(0, 3, n),
            "flag": rng.random(n) < 0.5,
            "text": rng.choice(["é", "b:c", "d"], n),
            "size": pd.Categorical(rng.choice(["S", "M"], n), ["S", "M", "L"], ordered=True),
        }
    )
    frame["y"] = np.where(rng.random(n) < 0.6, frame["number"] % 2 == 1, rng.random(n) < 0.5)
    return frame


ROWS = drawn()
GAPS = ROWS.astype(object).mask(
    np.random.default_rng(1).random(ROWS.shape) < np.array([0.1, 0, 0.1, 0, 0])
)
REAL = np.random.default_rng(2).random(len(ROWS)) + 0.5
LONG = pd.DataFrame(
    {"u": np.arange(60) % 12, "i": np.arange(60) // 12, "r": np.arange(60) * 7 % 5 + 1}
).astype({"u": str, "i": str})
MATRIX = pd.DataFrame(np.random.default_rng(3).normal(size=(8, 6)), columns=list("abcdef"))


def streamed(tmp_path, formula):
    ROWS.to_parquet(tmp_path / "rows.parquet")
    return bbl.bbl(formula, str(tmp_path / "rows.parquet"), **QUICK)


def titanic(formula="Survived ~ .^2", **options):
    return lambda _: bbl.bbl(formula, TITANIC, "Freq", **options, **QUICK)


def network(learner, **options):
    return lambda _: networks.bnc(
        learner, "Survived ~ .", TITANIC, **{"smooth": 1, "weights": "Freq", **options}
    )


def blocks(formula, data, *args, **options):
    return lambda _: bbl.bicluster(formula, data, *args, **options, **QUICK)


def regression(**options):
    return lambda _: bbl.shooter(
        "Survived ~ .", TITANIC, weights="Freq", **{"lambda_": 60, **options, **QUICK}
    )


BAYES = {"method": "bayes", "draws": 20, "warmup": 20, "chains": 2}
LEVELS = {
    "Class": ["1st", "2nd", "3rd", "Crew"],
    "Sex": ["Male", "Female"],
    "Age": ["Adult", "Child"],
}


def averaged(_):
    members = [
        titanic("Survived ~ .", xlevels=LEVELS),
        network("tan_cl", xlevels=LEVELS),
        regression(xlevels=LEVELS),
    ]
    return bbl.average([make(0) for make in members], "equal").with_priors("equal")


FITS = {
    "pseudo": titanic(testNull=True, lambda_="cv", calibrate="offset", priors="equal"),
    "mf": titanic(method="mf", eps="cv"),
    "conditional": titanic(method="conditional", ridge=1e-3),
    "pvi": titanic("Survived ~ Sex + Age", method="pvi", n_iter=20),
    "bayes": titanic("Survived ~ Sex * Age", **BAYES),
    "mpf": titanic("Survived ~ Sex * Age", method="mpf"),
    "pcd": titanic("Survived ~ Sex * Age", method="pcd", n_iter=20),
    "ml": titanic("Survived ~ Class + Sex*Age", method="ml"),
    "shbm": titanic(method="shbm", order=2),
    "auto": titanic("Survived ~ .", method="auto"),
    "density": titanic("~ .^2"),
    "types": lambda _: bbl.bbl("y ~ .^2", ROWS, xlevels={"size": ["S", "M", "L"]}, **QUICK),
    "real": lambda _: bbl.bbl("y ~ .", ROWS, REAL, **QUICK),
    "marginal": lambda _: bbl.bbl("y ~ .^2", GAPS, missing="marginal", **QUICK),
    "level": lambda _: bbl.bbl("y ~ .", GAPS, missing="level", **QUICK),
    "streamed": lambda path: streamed(path, "y ~ .^2"),
    "aode": network("aode", priors="equal"),
    "wanbia": network("nb", wanbia=True),
    "gaps": lambda _: networks.bnc("tan_hc", "y ~ .", GAPS, 1, dag_args={"k": 2}, verbose=0),
    "by hand": lambda _: networks.lp(
        networks.structure("y", {"number": [], "flag": ["number"]}), ROWS, 1
    ),
    "shooter": regression(refit=True),
    "no terms": lambda _: regression(lambda_=1e6)(0).with_priors({"No": 0.9, "Yes": 0.1}),
    "averaged": averaged,
    "prototype": blocks(None, MATRIX, (2, 2)),
    "chosen": blocks("r ~ u * i", LONG),
    "levels": blocks("r ~ u * i", LONG.astype(str), (2, 2), metric="levels"),
    "genetic": blocks("r ~ u * i", LONG, method="genetic", generations=3, population=6, n_init=1),
    "mcmc": blocks("~ u * i", LONG[LONG["r"] > 2], method="mcmc", draws=20, warmup=5, n_init=2),
}

# one of each family; all others are long tests
QUICK_FITS = ("density", "gaps", "shooter", "prototype")
ALL_FITS = [
    name if name in QUICK_FITS else pytest.param(name, marks=pytest.mark.long) for name in FITS
]
FIXED = {"seed": 0, "nboot": 3, "nfold": 2}

# what the file of a model does not hold, as its attributes say
UNSAVED = {"history", "cells"}
# of what is compared; files contain neither training rows (with store_data=False) nor their source
LEFT_OUT = {"training", "index", "state", "fits", "scored", "engine", "_source", "_kept"}
# what a model without its training rows leaves out, and says so: tests, criteria of
# pseudo-likelihood
WITHOUT_ROWS = {"training", "index", "interactions()", "compare()"}
LACKING = ("training rows", "saved without its cells")


class Refused(str):
    """The type and text of an error."""


def answer(ask):
    """Return what is answered, or the refusal; any other error is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ask()
        except BBLError as error:
            return Refused(f"{type(error).__name__}: {error}")
        finally:
            plt.close("all")


def arguments(fit, path):
    """Return arguments for what has no default, by name."""
    names = {"path": path / "out", "priors": None, "draws": "all", "n": 3, "k": 1, "calls": ()}
    if isinstance(fit, bbl.BiclusterResults):
        table = MATRIX if fit.table.formula is None else LONG
        return names | {"newdata": table.head(3), "other": (fit.rows, fit.columns)}
    rows = NEW if "Sex" in fit.labels.names else ROWS.head(12)
    codes = fit.design.encode(rows)[0]
    more = {
        "newdata": rows,
        "codes": codes,
        "var": fit.labels.names[0],
        "normalised": True,
        "prior": True,
        "x": fit.labels.names[0],
        "y": fit.labels.names[-1],
    }
    return (
        names
        | more
        | {"unseen": "raise", "rows": Sample(codes, np.ones(12), np.zeros(12, dtype=np.intp))}
    )


def questions(fit, path):
    """Return what asks for every public attribute and method of a model, by name."""
    given, asked = arguments(fit, path), {}
    for name in dir(fit):
        # pages begin with other answers if the model has its rows
        if name.startswith("_") or name in ("save", "explore"):
            continue
        value = answer(lambda name=name: getattr(fit, name))
        if not callable(value):
            asked[name] = partial(getattr, fit, name)
            continue
        parameters = inspect.signature(value).parameters.values()
        lacking = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        # a KeyError: say above what it takes
        args = {argument: given[argument] for argument in lacking}
        args |= {p.name: FIXED[p.name] for p in parameters if p.name in FIXED}
        asked[f"{name}()"] = partial(value, *([fit] if name == "compare" else []), **args)
        if "newdata" in [p.name for p in parameters] and "newdata" not in args and name != "report":
            asked[f"{name}(newdata)"] = partial(value, **args, newdata=given["newdata"])
    return asked


def same(one, other, what):
    """Compare two answers of any kind, to the last bit."""
    assert type(one) is type(other), (what, one, other)
    if isinstance(one, pd.DataFrame):
        exact = {
            "check_exact": True,
            "check_column_type": False,
            "check_index_type": False,
            "check_names": False,
        }
        pd.testing.assert_frame_equal(one, other, **exact, check_dtype=len(one) > 0, obj=what)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True, obj=what)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=what)
        assert one.dtype == other.dtype, what
    elif isinstance(one, dict):
        assert list(one) == list(other), what
        for key in one:
            same(one[key], other[key], f"{what}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), what
        for k, pair in enumerate(zip(one, other, strict=True)):
            same(*pair, f"{what}[{k}]")
    elif isinstance(one, float):
        assert one == other or (np.isnan(one) and np.isnan(other)), (what, one, other)
        same(getattr(one, "__dict__", None), getattr(other, "__dict__", None), what)
    elif isinstance(one, str | int | bool | None):
        assert one == other, (what, one, other)
    elif isinstance(one, FormulaTerms):
        assert one.text == other.text and one.predictors == other.predictors, what
        assert [list(map(tuple, terms)) for terms in one.terms] == [
            list(map(tuple, terms)) for terms in other.terms
        ]
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name not in LEFT_OUT and not field.name.startswith("_stored"):
                same(getattr(one, field.name), getattr(other, field.name), f"{what}.{field.name}")
    else:
        assert repr(one).split(" at 0x")[0] == repr(other).split(" at 0x")[0], what


@pytest.mark.filterwarnings(
    "ignore::bbl.errors.ConvergenceWarning", "ignore::bbl.errors.DataWarning"
)
@pytest.mark.parametrize("name", ALL_FITS)
@pytest.mark.long
def test_a_loaded_model_is_the_saved_one(name, tmp_path, undrawn):
    fit = FITS[name](tmp_path)
    live = questions(fit, tmp_path)
    answer_of_live = cache(lambda what: answer(live[what]))
    for stored in (True, False):
        fit.save(tmp_path / "one.bbl", store_data=stored)
        again = bbl.load(tmp_path / "one.bbl")
        again.save(tmp_path / "two.bbl", store_data=stored)
        assert (tmp_path / "one.bbl").read_bytes() == (tmp_path / "two.bbl").read_bytes()
        loaded = questions(again, tmp_path)
        assert live.keys() == loaded.keys()
        for what in live.keys() - UNSAVED - (set() if stored else WITHOUT_ROWS):
            if not stored and what.startswith(("report", "plot", "bootstrap", "importance")):
                continue
            found = answer(loaded[what])
            if what.startswith(("report", "plot")) and not isinstance(found, Refused):
                continue  # drawn, which takes its time; the numbers are compared elsewhere
            if (
                not stored
                and isinstance(found, Effects)
                and any(why in found.note for why in LACKING)
            ):
                continue  # estimates alone: standard errors come from the training rows
            if stored or not isinstance(found, Refused) or not any(why in found for why in LACKING):
                same(answer_of_live(what), found, what)


@pytest.mark.filterwarnings(
    "ignore::bbl.errors.ConvergenceWarning", "ignore::bbl.errors.DataWarning"
)
@pytest.mark.parametrize("name", FITS)
@pytest.mark.thinned(5)
def test_what_a_result_lists_is_there(name, tmp_path):
    fit = FITS[name](tmp_path)
    for attribute in [name for name in dir(fit) if not name.startswith("_")]:
        # an AttributeError is no answer
        answer(lambda attribute=attribute: getattr(fit, attribute))
    same(copy.copy(fit).nobs(), fit.nobs(), "nobs()")


def test_averages_of_networks_list_what_they_have():
    aode, tan = network("aode")(0), network("tan_cl")(0)
    assert {"arcs", "modelstring", "params_se"} <= set(dir(tan)) - set(
        dir(aode)
    ) and "members" in set(dir(aode)) - set(dir(tan))
    with pytest.raises(
        AttributeError,
        match="An average of 3 networks has no arcs. Each network in members has one",
    ):
        aode.arcs  # noqa: B018
    with pytest.raises(AttributeError, match="A single network has no members"):
        tan.members  # noqa: B018
    for name in (name for name in vars(SingleGraph) if not name.startswith("_")):
        with pytest.raises(AttributeError, match=f"An average of 3 networks has no {name}\\."):
            # a property raises before it is called
            getattr(aode, name)(*([1] if name == "is_kde" else []))
        assert callable(getattr(tan, name)) or getattr(tan, name) == getattr(tan.structure, name)


def test_a_density_has_nothing_of_classes():
    fit = titanic("~ .")(0)
    for name in vars(bbl.results.classifier.ClassifierResults):
        if name not in dir(fit) and not name.startswith("_"):
            with pytest.raises(ClassError, match=f"{name} requires classes"):
                getattr(fit, name)
    assert not {"predict", "predict_batches", "compare", "priors"} & set(dir(fit))


def test_observations_of_blocks_are_a_number_too():
    fit = blocks(None, MATRIX, (2, 2))(0)
    assert fit.nobs == fit.nobs() == MATRIX.size and type(fit.nobs()) is int
