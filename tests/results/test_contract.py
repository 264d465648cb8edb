"""The contract of results: classes are abstract or final, methods are written once, and no family
is deep.
"""

import inspect
import types
from functools import cached_property

import pytest

from bbl.api.load import KINDS
from bbl.results.machine.contrasts import DifferenceInference
from bbl.results.machine.credible import PosteriorInference
from bbl.results.machine.inference import Inference
from bbl.results.network.structure import AveragedStructure, Structure

LEAVES = [
    *KINDS.values(),
    Inference,
    PosteriorInference,
    DifferenceInference,
    Structure,
    AveragedStructure,
]


def ours(cls):
    """Return the classes of the package among the ancestors of a class."""
    return [base for base in cls.__mro__[1:] if base.__module__.startswith("bbl.")]


BASES = list(dict.fromkeys(base for leaf in LEAVES for base in ours(leaf)))


def written(cls):
    """Return the names of the methods and properties whose bodies a class itself holds."""
    kinds = (types.FunctionType, property, cached_property, classmethod)
    members = {name: member for name, member in vars(cls).items() if isinstance(member, kinds)}
    concrete = {
        name
        for name, member in members.items()
        if not getattr(member, "__isabstractmethod__", False)
    }
    return {name for name in concrete if name == "__repr__" or not name.startswith("__")}


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_leaves_are_final_and_whole(leaf):
    assert getattr(leaf, "__final__", False) and not inspect.isabstract(leaf)
    assert len(ours(leaf)) <= 3


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_no_method_is_written_twice(leaf):
    seen = {}
    for cls in (leaf, *ours(leaf)):
        twice = {name: (seen[name], cls.__name__) for name in written(cls) if name in seen}
        assert not twice
        seen |= dict.fromkeys(written(cls), cls.__name__)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_bases_are_not_final_and_have_no_instances(base):
    assert not getattr(base, "__final__", False)
    assert inspect.isabstract(base) or not hasattr(base, "__dataclass_fields__")
