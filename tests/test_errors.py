"""Errors and warnings carry a message, a hint, and the argument, column and value at fault."""

import copy
import inspect
import pickle
import warnings

import pandas as pd
import pytest

import bbl
from bbl import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
FIELDS = {
    "message": "n_jobs=0 is not allowed.",
    "hint": "Pass -1 for all cores.",
    "argument": "n_jobs",
    "column": "a",
    "value": 0,
}


def made(kind):
    return kind(FIELDS["message"], **{k: v for k, v in FIELDS.items() if k != "message"})


def fields(error):
    return {name: getattr(error, name) for name in FIELDS}


@pytest.mark.parametrize("kind", CLASSES)
def test_the_text_is_the_message_and_the_hint(kind):
    assert str(made(kind)) == "n_jobs=0 is not allowed. Hint: Pass -1 for all cores."
    assert str(kind("No.")) == "No."
    assert fields(kind("No.")) == dict.fromkeys(FIELDS) | {"message": "No."}


def pickled(error):
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_copies_and_pickles_keep_the_fields(kind, duplicate):
    error = duplicate(made(kind))
    assert type(error) is kind
    assert fields(error) == FIELDS
    assert str(error) == str(made(kind))


@pytest.mark.parametrize("kind", CLASSES)
def test_fields_are_keywords(kind):
    with pytest.raises(TypeError):
        kind("No.", "a hint by position")
    assert issubclass(kind, Warning) != issubclass(kind, errors.BBLError)
    assert inspect.getdoc(kind)


def test_a_caught_warning_keeps_its_fields():
    with pytest.warns(errors.DataWarning) as caught:
        warnings.warn(made(errors.DataWarning), stacklevel=1)
    assert fields(caught[0].message) == FIELDS


def titanic():
    return bbl.datasets.load_titanic()


def test_hints_of_common_first_steps():
    data = titanic()
    fit = bbl.bbl("Survived ~ Sex * Age", data, "Freq", verbose=0)
    rows = pd.DataFrame({"y": list("aabb") * 100, "Freq": range(400), "x": list("uvwxv") * 80})
    with pytest.raises(errors.DataError, match="pass weights='Freq'"):
        bbl.bbl("y ~ .", rows, verbose=0)
    bbl.bbl("y ~ .", rows, weights="Freq", verbose=0)
    with pytest.raises(errors.FormulaError) as caught:
        bbl.bbl('Survived ~ C(Class, Treatment("3rd"))', data, "Freq", verbose=0)
    assert "xlevels={'Class': [...]}" in caught.value.hint
    levels = {"Class": ["3rd", "1st", "2nd", "Crew"]}
    assert bbl.bbl("Survived ~ Class", data, "Freq", xlevels=levels, verbose=0)
    with pytest.raises(errors.BBLTypeError, match=r"plot_network\(\)"):
        fit.plot("network")
    assert fit.plot_network()


def test_averages_refuse_what_a_single_model_has():
    data = titanic()
    fit = bbl.bbl("Survived ~ Sex * Age", data, "Freq", verbose=0)
    mean = bbl.average([fit, bbl.bbl("Survived ~ Sex + Age", data, "Freq", verbose=0)])
    with pytest.raises(errors.ClassError, match=r"fit\.members\[0\]\.inference"):
        mean.inference()
    assert mean.members[0].inference()
    with pytest.raises(errors.BBLTypeError, match="has no fields h"):
        bbl.plot_comparison(mean, mean)
    with pytest.raises(AttributeError):
        mean.nonsense  # noqa: B018
    assert not hasattr(mean, "nonsense")


def test_a_loaded_fit_advises_newdata_only_where_it_is_an_argument(tmp_path):
    fit = bbl.bbl("Survived ~ Sex * Age", titanic(), "Freq", verbose=0)
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    for ask in (loaded.inference, lambda: loaded.bse, loaded.conf_int):
        with pytest.raises(
            errors.DataError, match="Hint: Save the model with store_data=True"
        ) as caught:
            ask()
        assert "newdata" not in str(caught.value)
    for ask in (loaded.predict, loaded.evaluate):
        with pytest.raises(errors.DataError, match="Hint: Pass newdata="):
            ask()
    fit.save(tmp_path / "fit.bbl", store_data=True)
    assert bbl.load(tmp_path / "fit.bbl").inference()


def test_cells_that_are_not_numbers_are_named():
    data = pd.DataFrame({"x": ["1", "2", "?", "many"]})
    with pytest.raises(errors.DataError, match=r"'\?', 'many'") as caught:
        bbl.bin(data, columns=["x"])
    assert caught.value.value == "?"
