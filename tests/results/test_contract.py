"""Former names of attributes of results work, and say until when."""

import inspect

import numpy as np
import pytest

import bbl
from bbl.api.load import KINDS
from bbl.results.deprecated import Deprecated
from bbl.results.machine.posterior import PosteriorDraws
from bbl.results.model import OTHER_NAMES


@pytest.fixture(scope="module")
def fit():
    return bbl.bbl("Survived ~ Sex + Age", bbl.datasets.load_titanic(), weights="Freq")


def former_names(cls):
    """Return the deprecated attributes of a class, by name."""
    found = {name: inspect.getattr_static(cls, name) for name in dir(cls)}
    return {name: member for name, member in found.items() if isinstance(member, Deprecated)}


@pytest.mark.parametrize("name", former_names(bbl.BBLResults))
def test_former_names_work_and_say_until_when(fit, name):
    path = former_names(bbl.BBLResults)[name].path
    with pytest.warns(DeprecationWarning, match=rf"{name} is deprecated .* in bbl 2\.0") as caught:
        value = getattr(fit, name)
    assert caught[0].filename == __file__
    new = fit
    for part in path.split("."):
        new = getattr(new, part)
    assert value is new or np.array_equal(value, new) or value.__func__ is new.__func__
    assert name not in dir(fit)


def test_former_names_keep_what_they_did(fit):
    with pytest.warns(DeprecationWarning):
        assert fit.df == 2 and fit.n_parameters == 4
    with pytest.warns(DeprecationWarning):
        assert fit.log_likelihood(fit.training) == fit.logLik()
    with pytest.warns(DeprecationWarning):
        content = fit.pack(store_data=True)
    with pytest.warns(DeprecationWarning):
        again = bbl.BBLResults.unpack(*content)
    assert np.array_equal(again.estimate.parameters.theta, fit.estimate.parameters.theta)


def test_every_former_name_of_every_kind_leads_somewhere():
    for cls in (*KINDS.values(), bbl.GroupParameters, PosteriorDraws):
        assert former_names(cls)
        for name, member in former_names(cls).items():
            first = member.path.split(".")[0]
            fields = getattr(cls, "__dataclass_fields__", {})
            assert first in fields or hasattr(cls, first), f"{cls.__name__}.{name}"


def test_former_constructors_work_and_are_hidden():
    layout = bbl.bbl("~ .", {"a": ["x", "y"], "b": ["y", "x"]}).estimate.parameters.layout
    with pytest.warns(DeprecationWarning, match="MLEstimate.from_matrix is deprecated"):
        make = bbl.MLEstimate.from_matrix
    assert make.__func__ is bbl.GroupParameters._from_matrix.__func__
    with pytest.warns(DeprecationWarning, match="GroupParameters.from_matrix is deprecated"):
        found = bbl.GroupParameters.from_matrix(layout, np.zeros(2), np.zeros((2, 2)))
    assert "from_matrix" not in dir(found) and "J" in dir(found)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_other_packages_lead_to_ours(fit, name):
    with pytest.raises(AttributeError, match=f"no attribute {name!r}. Hint: Use ") as caught:
        getattr(fit, name)
    advised = OTHER_NAMES[name].split("(")[0]
    assert f"Hint: Use {advised}" in str(caught.value)
    owner = bbl if advised.startswith("bbl.") else fit
    assert hasattr(owner, advised.removeprefix("bbl."))
