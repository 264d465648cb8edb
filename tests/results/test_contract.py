"""The contract of results: classes are abstract or final."""

import inspect

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


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_leaves_are_final_and_whole(leaf):
    assert getattr(leaf, "__final__", False) and not inspect.isabstract(leaf)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_bases_are_not_final_and_have_no_instances(base):
    assert not getattr(base, "__final__", False)
    assert inspect.isabstract(base) or not hasattr(base, "__dataclass_fields__")
