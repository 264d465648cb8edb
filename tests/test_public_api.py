"""The public names: three lists and nothing else, as docs/stability.md says, each with an example
that runs.
"""

import dataclasses
import doctest
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bbl
import bbl.networks
import bbl.sklearn
from bbl.engines import ENGINES
from bbl.results.deprecated import Deprecated

ROOT = Path(__file__).resolve().parents[1]
MODULES = [bbl, bbl.networks, bbl.sklearn]
ENGINE_CLASSES = set(ENGINES.values())

DOWNLOADED = {"fetch_ma0014", "fetch_mnist"}  # an example would need the network


def members_module():
    """Return the extension of the reference that lists the public members of a class."""
    spec = importlib.util.spec_from_file_location("members", ROOT / "docs" / "_ext" / "members.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference():
    """Return the functions and classes that the reference has a page for, by name."""
    page = (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
    names = re.findall(r"^   ([\w.]+)$", page, re.MULTILINE)
    found = {}
    for name in names:
        folder, _, last = f"bbl.{name}".rpartition(".")
        found[name] = getattr(importlib.import_module(folder), last)
    return found


def documented():
    """Return what needs an example, by name: the three lists, the reference, and the methods of
    their classes.
    """
    found = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in MODULES
        for name in module.__all__
    }
    listed = {
        name: thing
        for name, thing in reference().items()
        if name.rpartition(".")[2] not in DOWNLOADED
    }
    # methods, posteriors and errors of what is public
    inner = ("biclustering.", "errors.", "results.bicluster.")
    found |= {f"bbl.{name}": thing for name, thing in listed.items() if not name.startswith(inner)}
    own_members = members_module().own_members
    for name, thing in list(found.items()):
        if (
            not inspect.isclass(thing)
            or thing in ENGINE_CLASSES
            or thing.__module__.startswith("bbl.engines")
        ):
            continue
        for method in own_members(thing)[0]:
            found[f"{name}.{method}"] = getattr(thing, method)
    return found


DOCUMENTED = documented()


def test_the_namespaces_have_the_listed_names_and_nothing_else():
    assert set(dir(bbl)) == {*bbl.__all__, "__version__"}
    assert {name for name in vars(bbl.networks) if not name.startswith("_")} == set(
        bbl.networks.__all__
    )
    estimators = {
        name
        for name, value in vars(bbl.sklearn).items()
        if name[0] != "_" and not inspect.ismodule(value)
    }
    assert estimators == set(bbl.sklearn.__all__)
    for module in MODULES:
        assert len(module.__all__) == len(set(module.__all__))
        for name in module.__all__:
            assert (getattr(module, name).__doc__ or "").strip()


def test_names_leave_only_by_way_of_a_deprecation():
    """A name of the list is removed from it with the release that removes it, after the time that
    the policy gives.
    """
    listed = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()
    public = {f"{module.__name__}.{name}" for module in MODULES for name in module.__all__}
    assert set(listed) <= public, "docs/stability.md says how a public name goes"


def test_each_public_attribute_of_a_fitted_model_has_one_place_in_the_reference():
    """A topic of its page, or the section *Attributes* of its docstring."""
    members = members_module()
    classes = [cls for cls in reference().values() if cls.__name__ in members.GROUPED]
    assert len(classes) == len(members.GROUPED)
    grouped = [name for names in members.TOPICS.values() for name in names.split()]
    assert len(grouped) == len(set(grouped)), "a name has two topics"
    own_by_class = {cls: set(sum(members.own_members(cls), [])) for cls in classes}
    own = set().union(*own_by_class.values())
    assert set(grouped) <= own, f"not attributes: {set(grouped) - own}"
    for cls in classes:
        section = re.search(r"\nAttributes\n-+\n(.*?)\n\n", inspect.getdoc(cls), re.DOTALL)[1]
        lines = re.findall(r"^(\w+(?:, \w+)*)(?: : .*)?$", section, re.MULTILINE)
        described = {name for line in lines for name in line.split(", ")}
        fields = {field.name for field in dataclasses.fields(cls)}
        public = {
            name
            for name in {*dir(cls), *fields}
            if name[0] != "_"
            and not isinstance(inspect.getattr_static(cls, name, None), Deprecated)
        }
        placed = set(grouped) & own_by_class[cls]
        assert not placed & described, cls
        missing = public - placed - described
        assert not missing, f"add to TOPICS of docs/_ext/members.py: {missing} ({cls.__name__})"
        assert placed | described == public, cls


def test_docstrings_have_examples_that_are_run():
    for name, thing in DOCUMENTED.items():
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")
        assert examples, f"{name} needs an example"
        assert not any(doctest.SKIP in example.options for example in examples), name


def test_pytest_runs_the_examples():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "pytest"
    ]["ini_options"]
    assert "--doctest-modules" in options["addopts"] and "bbl" in options["testpaths"]


def test_estimators_are_at_the_top_too():
    for name in bbl.sklearn.__all__:
        assert getattr(bbl, name) is getattr(bbl.sklearn, name)
    assert sorted(bbl.sklearn.__all__) == sorted(bbl.ESTIMATORS_BY_MODULE["bbl.sklearn"])


@pytest.mark.long
def test_without_scikit_learn_estimators_say_what_to_install_and_the_rest_works():
    code = (
        "import sys\n"
        "sys.modules['sklearn'] = None  # as if it were absent\n"
        "from bbl import *\n"
        "import bbl as package\n"
        "assert not hasattr(package, 'BNclassifier')\n"
        "try:\n"
        "    package.BNClassifier\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "import bbl.sklearn\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install boltzmann-bayes[sklearn]" in run.stdout
    assert "ImportError" in run.stderr
    assert "pip install boltzmann-bayes[sklearn]" in run.stderr


@pytest.mark.long
def test_scikit_learn_is_imported_when_an_estimator_is_asked_for():
    seen = "print('sklearn' in sys.modules)"
    code = f"import sys, bbl; bbl.__all__; {seen}; bbl.BBLClassifier; {seen}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
