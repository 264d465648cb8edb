"""Errors and warnings carry a message, a hint, and the argument, column and value at fault."""

import copy
import inspect
import pickle
import warnings

import pytest

from bbl import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
FIELDS = {
    "message": "n_jobs=0 is not allowed.",
    "hint": "Give -1 for all cores.",
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
    assert str(made(kind)) == "n_jobs=0 is not allowed. Hint: Give -1 for all cores."
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
