"""Tests of what surrounds the code: README commands, versions, the package list, the map in CONTRIBUTING.md."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

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
    released = re.findall(r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert released[0] == version


def test_recipe_and_citation_say_what_the_project_says():
    version = PROJECT["project"]["version"]
    recipe, citation = text("conda/recipe.yaml"), text("CITATION.cff")
    assert f'version: "{version}"' in recipe and f"\nversion: {version}\n" in citation
    run = re.search(r"  run:\n(.*?)\n\n", recipe, flags=re.DOTALL)[1]
    named = re.findall(r"    - ([\w-]+) (>=\S+)", run)
    wanted = [re.fullmatch(r"([\w-]+)(>=.*)", entry).groups() for entry in PROJECT["project"]["dependencies"]]
    assert [(name.removesuffix("-base"), least) for name, least in named] == wanted
    build = re.findall(r"(?:setuptools|cython) >=\S+", recipe)
    assert [entry.replace(" ", "") for entry in build] == [r.lower() for r in PROJECT["build-system"]["requires"]]


def test_what_a_tag_builds_is_published_after_all_of_it_is_built():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(text(".github/workflows/wheels.yml"))["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def test_every_package_folder_is_declared():
    folders = {path.rsplit("/", 1)[0].replace("/", ".") for path in SOURCES}
    assert folders | {"bbl.data"} == set(PROJECT["tool"]["setuptools"]["packages"])


def test_python_versions_agree():
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    classifiers = PROJECT["project"]["classifiers"]
    oldest = next(c.rsplit(" ", 1)[1] for c in classifiers if "Python :: 3." in c)
    assert oldest == python == PROJECT["tool"]["mypy"]["python_version"]
    assert f'python: ["{python}"' in text(".github/workflows/test.yml")


@pytest.mark.parametrize("path", SOURCES)
def test_first_line_says_what_lives_there(path):
    first = text(path).split("\n", 1)[0]
    opening = {".py": '"""', ".h": "/* "}.get(Path(path).suffix, ("# ", '"""'))
    assert first.startswith(opening) and not first.startswith("# cython:") and len(first) > 15


def listed():
    """Return the files of the table in CONTRIBUTING.md, top to bottom."""
    return re.findall(r"^\| `(bbl/[^`]+)` \| .{10,} \|$", text("CONTRIBUTING.md"), flags=re.MULTILINE)


def test_contributing_lists_every_file_once():
    assert sorted(listed()) == SOURCES, "the table of files in CONTRIBUTING.md has a row for each file of bbl/"


def imported(path):
    """Return the files of bbl that the Python file `path` imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            stem = name.replace(".", "/")
            found |= {f"{stem}{end}" for end in (".py", "/__init__.py", ".pyx")} & set(SOURCES)
    return found


@pytest.mark.parametrize("path", [path for path in SOURCES if path.endswith(".py")])
def test_imports_run_down_the_table(path):
    order = {name: row for row, name in enumerate(listed())}
    upward = {name for name in imported(path) if order.get(name, len(order)) <= order.get(path, -1)}
    assert not upward, "imports run down the table of files in CONTRIBUTING.md: move a row, or what is imported"


def test_public_names_are_imported_when_they_are_asked_for_from_where_type_checkers_see_them():
    block = next(node for node in ast.parse(text("bbl/__init__.py")).body if isinstance(node, ast.If))
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    modules = tuple(node.names[0].asname for node in block.body if isinstance(node, ast.Import))
    assert seen == bbl.HOMES
    assert sorted([*modules, *(name for names in seen.values() for name in names)]) == sorted(bbl.__all__)
    assert set(bbl.__all__) < set(dir(bbl))
    with pytest.raises(AttributeError, match="no attribute 'Bbl'"):
        bbl.Bbl  # noqa: B018


def test_importing_the_package_imports_nothing_else():
    code = "import sys, bbl; print([m for m in ('numpy', 'pandas', 'formulaic', 'bbl.api') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
    code = "from bbl import *; print(bbl.__name__, networks.nb.__name__, errors.BBLError.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "bbl nb BBLError\n"


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.endswith(".py") and not p.startswith(("bbl/sklearn/", "benchmarks/", "tests/"))]
)
def test_what_takes_long_to_import_is_imported_where_it_is_used(path):
    modules = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.parse(text(path)).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not {name.split(".")[0] for name in modules} & {"scipy", "statsmodels", "matplotlib", "formulaic", "sklearn"}


def test_scikit_learn_version_is_the_same_everywhere():
    (wanted,) = (
        extra.removeprefix("scikit-learn>=") for extra in PROJECT["project"]["optional-dependencies"]["sklearn"]
    )
    said = re.findall(r"scikit-learn (\d[\d.]*\d)", text("bbl/sklearn/base.py") + text("docs/guide/sklearn.md"))
    assert said and set(said) == {wanted}


HEADERS = [path for path in SOURCES if path.endswith(".h")]


@pytest.mark.parametrize("path", [path for path in SOURCES if path.endswith((".h", ".pyx"))])
def test_headers_include_only_headers_further_down(path):
    order = {name: row for row, name in enumerate(listed())}
    included = re.findall(r'^(?:#include|cdef extern from) "(?!Python)(\w+\.h)"', text(path), flags=re.MULTILINE)
    assert [name for name in included if order[f"bbl/_ext/{name}"] <= order[path]] == []


def defined(path):
    """Return the functions that a header defines."""
    return set(re.findall(r"^static [\w \*]*?\b(\w+)\(", text(path), flags=re.MULTILINE))


def types(path):
    """Return the types that a header defines."""
    return set(re.findall(r"^(?:typedef void \(\*|\} )(\w+)(?:;|\))", text(path), flags=re.MULTILINE))


@pytest.mark.parametrize("path", HEADERS)
def test_headers_use_nothing_that_is_defined_further_up(path):
    order = {name: row for row, name in enumerate(listed())}
    # without what is made by NAME(x), for one width and file
    home = {name: header for header in HEADERS for name in defined(header) | types(header) if "_" in name}
    assert set(home) > {"pseudo_prepare", "pseudo_problem", "gibbs_run", "gibbs_model", "cpu_runs", "newton_solve"}
    code = re.sub(r"/\*.*?\*/|#include.*?\n", "", text(path), flags=re.DOTALL)
    words = set(re.findall(r"\w+", code))
    assert {name for name in words & set(home) if order[home[name]] < order[path]} == set()
