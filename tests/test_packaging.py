"""Tests of what surrounds the code: README commands, versions, the package list, the layers."""

import ast
import functools
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

import bbl

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "bbl").rglob("*")
    if path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".h")
)


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands():
    """Return the commands in the README's opening, before its first heading of second level."""
    opening = text("README.md").split("\n## ")[0]
    blocks = re.findall(r"```(?:bash|sh|shell|console)\n(.*?)```", opening, flags=re.DOTALL)
    return [line for block in blocks for line in block.strip().splitlines()]


def test_readme_opens_with_the_two_commands():
    run, check = commands()
    assert run == "python -m pip install -e . && python -m bbl"
    assert check.endswith(" && python -m pytest")


def test_ci_installs_and_tests_as_the_readme_says():
    install, test = commands()[1].split(" && ")
    lines = [line.strip() for line in text(".ci/run").splitlines()]
    assert install in lines and test in lines
    assert f"- run: {install}" in text(".github/workflows/test.yml")


def test_version_is_the_same_everywhere():
    version = PROJECT["project"]["version"]
    assert bbl.__version__ == version == distribution("boltzmann-bayes").version
    released = re.findall(
        r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$", text("CHANGELOG.md"), flags=re.MULTILINE
    )
    assert released[0] == version


def test_recipe_and_citation_say_what_the_project_says():
    version = PROJECT["project"]["version"]
    recipe, citation = text("conda/recipe.yaml"), text("CITATION.cff")
    assert f'version: "{version}"' in recipe and f"\nversion: {version}\n" in citation
    run = re.search(r"  run:\n(.*?)\n\n", recipe, flags=re.DOTALL)[1]
    named = re.findall(r"    - ([\w-]+) (>=\S+)", run)
    wanted = [
        re.fullmatch(r"([\w-]+)(>=.*)", entry).groups()
        for entry in PROJECT["project"]["dependencies"]
    ]
    assert [(name.removesuffix("-base"), least) for name, least in named] == wanted
    build = re.findall(r"(?:setuptools|cython) >=\S+", recipe)
    assert [entry.replace(" ", "") for entry in build] == [
        r.lower() for r in PROJECT["build-system"]["requires"]
    ]


def test_what_a_tag_builds_is_published_after_all_of_it_is_built():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(text(".github/workflows/wheels.yml"))["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def test_every_package_folder_is_found():
    folders = {path.rsplit("/", 1)[0] for path in SOURCES}
    assert {f"{folder}/__init__.py" for folder in folders} <= set(SOURCES), (
        "setup.py takes folders with __init__.py"
    )
    names = {"bbl.data", *(folder.replace("/", ".") for folder in folders)}
    options = PROJECT["tool"]["setuptools"]
    declared = options["package-dir"].keys() | options["package-data"].keys()
    assert declared - {"*"} <= names and "packages" not in options


@pytest.mark.long
def test_a_kernel_is_built_again_where_what_it_reads_or_how_it_is_built_changes(
    tmp_path, monkeypatch
):
    setuptools = pytest.importorskip("setuptools")
    pytest.importorskip("Cython")
    folder = tmp_path / "bbl" / "_ext"
    files = {
        "own/own.pyx": 'cdef extern from "own.h":\n    pass\n',
        "own/own.h": '#include "all.h"\n',
        "other/other.pyx": "",
        "other/other.h": "",
        "all.h": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    for name in ("BBL_FLAGS", "BBL_DEBUG", "BBL_TRACE", "BBL_BUILT"):
        monkeypatch.delenv(name, raising=False)

    def places():
        made = runpy.run_path(str(ROOT / "setup.py"))
        build = made["Build"](setuptools.Distribution({"ext_modules": made["extensions"]}))
        build.ensure_finalized()
        assert build.parallel == os.cpu_count()
        build.compiler = SimpleNamespace(compiler_so=["cc"], linker_so=["cc"])
        return [build.kept(own) for own in made["extensions"]]

    other, own, shared = places()
    assert places() == [other, own, shared]
    for header, read in (("own/own.h", True), ("all.h", True), ("other/other.h", False)):
        before = places()
        (folder / header).write_text(files[header] + "/* changed */\n")
        after = places()
        assert (after[1] != before[1]) is read and after[0] == before[0]
    before = places()
    for name, value in (("BBL_FLAGS", "-O1"), ("BBL_DEBUG", "1"), ("BBL_TRACE", "1")):
        monkeypatch.setenv(name, value)
        after = places()
        assert not set(after) & set(before)
        before = after


def test_python_versions_agree():
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    classifiers = PROJECT["project"]["classifiers"]
    oldest = next(c.rsplit(" ", 1)[1] for c in classifiers if "Python :: 3." in c)
    assert oldest == python == PROJECT["tool"]["mypy"]["python_version"]
    assert f'python: ["{python}"' in text(".github/workflows/test.yml")


def layers():
    """Return the files and folders of `bbl` in the order of the table in CONTRIBUTING.md."""
    rows = re.findall(r"^\|(.*?)\|", text("CONTRIBUTING.md"), flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`bbl/([^`/]+)/?`", row)]


def test_every_file_and_folder_has_a_layer():
    assert sorted(layers()) == sorted({path.split("/")[1] for path in SOURCES})


def module_name(path):
    return path.rsplit(".", 1)[0].removesuffix("/__init__").replace("/", ".")


MODULES = {module_name(path): path for path in SOURCES if path.endswith((".py", ".pyx"))}


def imported(path):
    """Return the files that the Python file `path` imports, inside functions and by importlib from
    names in strings.
    """
    names = set()
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            names |= submodules or {node.module}
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("bbl.")
        ):
            names.add(node.value)
    return {MODULES[name] for name in names & set(MODULES)} - {path}


@functools.cache
def imports():
    """Return what each Python file imports, read once by a worker that asks: it takes seconds."""
    return {path: imported(path) for path in SOURCES if path.endswith(".py")}


def circles(arrows):
    """Return the names that are on a circle of `arrows`, a dict from names to the names they point
    at.
    """
    remaining = {name: set(targets) for name, targets in arrows.items()}
    while leaves := {name for name in remaining if not remaining[name] & set(remaining)}:
        remaining = {name: targets for name, targets in remaining.items() if name not in leaves}
    return set(remaining)


def folder_arrows():
    """Return what each folder imports; the `__init__` of a folder is a floor of its own above what
    is in it.
    """
    arrows = {}
    for path, targets in imports().items():
        home, *others = (
            name if name.endswith("__init__.py") else name.rsplit("/", 1)[0]
            for name in (path, *sorted(targets))
        )
        arrows.setdefault(home, set()).update(set(others) - {home})
    return arrows


@pytest.mark.long
def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}}) == {"a", "b", "c"}
    assert "bbl/api/machine/fit.py" in imports()["bbl/__init__.py"], (
        "names in strings that importlib takes are seen"
    )


def test_imports_run_down_the_table():
    order = {name: row for row, name in enumerate(layers())}
    arrows = {
        (path.split("/")[1], target.split("/")[1])
        for path, found in imports().items()
        for target in found
    }
    upward = {(a, b) for a, b in arrows if order[b] < order[a]}
    assert not upward, (
        "imports run down the table of layers in CONTRIBUTING.md: move a file, or what is imported"
    )


def test_no_files_and_no_folders_import_each_other():
    assert circles(imports()) == set()
    assert (
        circles({folder: targets for folder, targets in folder_arrows().items() if folder != "bbl"})
        == set()
    )


def test_public_names_are_imported_when_they_are_asked_for_from_where_type_checkers_see_them():
    block = next(
        node for node in ast.parse(text("bbl/__init__.py")).body if isinstance(node, ast.If)
    )
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    modules = tuple(node.names[0].asname for node in block.body if isinstance(node, ast.Import))
    assert seen == bbl.NAMES_BY_MODULE | bbl.ESTIMATORS_BY_MODULE
    names = [*modules, *(name for names in bbl.NAMES_BY_MODULE.values() for name in names)]
    assert sorted(names) == sorted(bbl.__all__)
    assert set(bbl.__all__) < set(dir(bbl))
    with pytest.raises(AttributeError, match="no attribute 'Bbl'"):
        bbl.Bbl  # noqa: B018


def test_importing_the_package_imports_nothing_else():
    code = (
        "import sys, bbl; print([m for m in ('numpy', 'pandas', 'formulaic', 'bbl.api') if m in "
        "sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
    code = "from bbl import *; print(bbl.__name__, networks.nb.__name__, errors.BBLError.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "bbl nb BBLError\n"


def test_what_takes_long_to_import_is_imported_where_it_is_used():
    late = {"scipy", "statsmodels", "matplotlib", "formulaic", "joblib", "narwhals", "sklearn"}
    apart = ("bbl/sklearn/", "bbl/design/expansion.py")  # the file subclasses formulaic
    paths = [p for p in SOURCES if p.endswith(".py") and not p.startswith(apart)]
    assert paths
    for path in paths:
        modules = re.findall(r"^(?:import|from) (\w+)", text(path), flags=re.MULTILINE)
        assert not late.intersection(modules), path


FIRST_FIT = """
import sys
import pandas
loaded = set(sys.modules)
from bbl import bbl
table = pandas.DataFrame({"y": [*"ababab"] * 9, "a": [*"uvvuuv"] * 9, "b": [*"ppqqqp"] * 9})
fit = bbl("y ~ a*b", table, n_jobs=1)
print(*sorted(set(sys.modules) - loaded))
str(fit.summary())
print(*sorted(set(sys.modules) - loaded))
import formulaic
from formulaic import Formula
assert "formulaic.materializers" in sys.modules
matrix = formulaic.model_matrix("a + b", table)
assert isinstance(matrix, formulaic.ModelMatrix) and matrix.shape == (54, 3)
assert formulaic.model_matrix.__globals__["__name__"] == "formulaic.sugar"
"""


def test_a_first_fit_and_summary_import_only_what_they_need_and_leave_formulaic_whole():
    run = subprocess.run(
        [sys.executable, "-c", FIRST_FIT], capture_output=True, text=True, check=True
    )
    loaded, summarised = (set(line.split()) for line in run.stdout.splitlines())
    assert not summarised & {"matplotlib", "scipy.stats", "statsmodels"}
    assert {"bbl.engines.pseudo.engine", "formulaic.parser.parser"} <= loaded
    assert not loaded & {
        "formulaic.materializers",
        "formulaic.formula",
        "formulaic.model_matrix",
        "joblib",
        "matplotlib",
        "narwhals",
        "psutil",
        "pydoc",
        "scipy.optimize",
        "scipy.sparse",
        "scipy.stats",
        "sklearn",
        "statsmodels",
        "unittest",
    }


def test_scikit_learn_version_is_the_same_everywhere():
    (wanted,) = (
        extra.removeprefix("scikit-learn>=")
        for extra in PROJECT["project"]["optional-dependencies"]["sklearn"]
    )
    said = re.findall(
        r"scikit-learn (\d[\d.]*\d)", text("bbl/sklearn/base.py") + text("docs/guide/sklearn.md")
    )
    assert said and set(said) == {wanted}


HEADERS = [path for path in SOURCES if path.endswith(".h")]


HEADER_PATHS = {Path(path).name: path for path in HEADERS}
INCLUDES = {
    path: {
        HEADER_PATHS[name]
        for name in re.findall(
            r'^(?:#include|cdef extern from) "(?!Python)(\w+\.h)"', text(path), flags=re.MULTILINE
        )
    }
    for path in SOURCES
    if path.endswith((".h", ".pyx", ".pxd"))
}


def test_headers_have_names_of_their_own_and_include_no_other_familys():
    assert len(HEADER_PATHS) == len(HEADERS)
    assert circles(INCLUDES) == set()
    for path, included in INCLUDES.items():
        assert {name.rsplit("/", 1)[0] for name in included} <= {
            "bbl/_ext",
            path.rsplit("/", 1)[0],
        }, path


def reached(path):
    """Return the headers that `path` includes, directly or by another."""
    return {path}.union(*(reached(name) for name in INCLUDES[path]))


def defined(path):
    """Return the functions that a header defines."""
    return set(re.findall(r"^static [\w \*]*?\b(\w+)\(", text(path), flags=re.MULTILINE))


def types(path):
    """Return the types that a header defines."""
    return set(
        re.findall(r"^(?:typedef void \(\*|\} )(\w+)(?:;|\))", text(path), flags=re.MULTILINE)
    )


def test_headers_use_nothing_that_they_do_not_include():
    # without what is made by NAME(x), for one width and file
    home = {
        name: header
        for header in HEADERS
        for name in defined(header) | types(header)
        if "_" in name
    }
    assert set(home) > {
        "pseudo_prepare",
        "pseudo_problem",
        "gibbs_run",
        "gibbs_model",
        "cpu_runs",
        "newton_solve",
    }
    for path in HEADERS:
        code = re.sub(r"/\*.*?\*/|#include.*?\n", "", text(path), flags=re.DOTALL)
        used = {home[name] for name in set(re.findall(r"\w+", code)) & set(home)}
        # parts of a kernel are included one after the other by one header, which includes what they
        # all use
        together = reached(path).union(
            *(reached(name) for name in HEADERS if path in INCLUDES[name])
        )
        assert used <= together, path
