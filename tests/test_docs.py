"""The documentation: its code runs, the reference is complete, and the comparison with R is that of
the tests.
"""

import builtins
import collections
import contextlib
import csv
import dataclasses
import importlib
import importlib.util
import inspect
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pandas as pd
import pytest
import rcases
import rloglinear
from expected_errors import expecting
from rcompare import RULES

import bbl

DOCS = Path(__file__).resolve().parents[1] / "docs"
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if "{code-cell}" in page.read_text(encoding="utf-8")
]


def cells(page):
    """Return the code cells of a page without their options."""
    return [
        re.sub(r"\A(:.*\n)+", "", code) for code in CELL.findall(page.read_text(encoding="utf-8"))
    ]


def test_pages_are_found():
    """Ten pages or more have code, so that the test below does not pass for want of any."""
    assert len(PAGES) >= 10


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_code_of_pages_runs(page, tmp_path, monkeypatch, capsys):
    """The cells of a page run one after the other, without warnings, and errors that they show
    occur.
    """
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with contextlib.ExitStack() as stack:
        stack.callback(plt.close, "all")
        for number, code in enumerate(cells(page)):
            exec(expecting(code, f"{page.name}, cell {number}"), names)  # noqa: S102


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_example_prints_the_output_that_is_shown(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "page"})  # noqa: S102
    plt.close("all")
    assert printed.getvalue().rstrip() == shown.rstrip()
    assert (tmp_path / "titanic.png").stat().st_size > 10_000


def links(page):
    """Return the files that the links of a page lead to, without addresses and places in pages."""
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^()\s#]+)(?:#[^()\s]*)?\)", text)
    return [target for target in targets if ":" not in target]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/learn.md"])
def test_links_of_the_first_pages_lead_to_files(page):
    """A page of the gallery is the script of that name in `vignettes/`."""
    path = DOCS.parent / page
    targets = links(path)
    assert len(targets) > 10
    for target in targets:
        found = (path.parent / target).resolve()
        if found.parent == DOCS / "gallery":
            found = DOCS.parent / "vignettes" / found.name
        assert found.exists() or found.name == "notebooks.md", target


CONTRIBUTING = DOCS.parent / "CONTRIBUTING.md"


@pytest.mark.parametrize(
    "page", [CONTRIBUTING, *sorted((DOCS / "dev").glob("*.md"))], ids=lambda page: page.name
)
def test_paths_on_the_pages_for_contributors_exist(page):
    text = page.read_text(encoding="utf-8")
    folders = "bbl|tests|docs|data|benchmarks|vignettes"
    paths = re.findall(rf"`((?:{folders})/[\w./*]+)`", text)
    missing = [path for path in paths if not list(DOCS.parent.glob(path.rstrip("/")))]
    # `FAMILY` and `NAME` stand for any name
    assert not [path for path in missing if not re.search("FAMILY|NAME|_build", path)]
    assert all((page.parent / target).exists() for target in links(page))


def test_the_figure_of_contributing_names_functions_where_they_are():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    figure = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1]
    checked = 0
    for line in figure.splitlines():
        paths = re.findall(r"[\w/]+\.pyx?\b", line)
        code = "".join((DOCS.parent / "bbl" / path).read_text(encoding="utf-8") for path in paths)
        for name in re.findall(r"(\w+)\(", line) if paths else []:
            assert re.search(rf"\b(?:def|class) {name}\b", code), line
            checked += 1
    assert checked > 20


def table(name):
    with (DOCS / name).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    "module", [bbl, bbl.datasets, bbl.errors, bbl.networks], ids=lambda module: module.__name__
)
def test_reference_lists_every_public_name(module):
    listed = set(
        re.findall(
            r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    prefix = "" if module is bbl else module.__name__.removeprefix("bbl.") + "."
    public = {name for name in module.__all__ if name not in ("datasets", "errors", "networks")}
    assert public <= {name.removeprefix(prefix) for name in listed}


def extension(name):
    """Return a module of the folder with the extensions of the build."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "anchor", "expected"),
    [
        ("bbl.step", "bbl.api.step.step", "bbl.step"),
        ("bbl.shooter", "bbl.api.shooter.shooter", "bbl.shooter"),
        (
            "bbl.results.structure.Structure",
            "bbl.results.network.Structure.plot",
            "bbl.results.structure.Structure.plot",
        ),
        ("bbl.BBLResults", "bbl.networks.bnc", "bbl.networks.bnc"),
    ],
)
def test_links_of_source_pages_are_named_by_the_page_they_lead_to(page, anchor, expected):
    accessible = extension("accessible")
    link = f'<a href="../api/generated/{page}.html#{{}}">'
    assert accessible.LINK.sub(accessible.name_the_page, link.format(anchor)) == link.format(
        expected
    )


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="pages have kernels of their own without a fork"
)
def test_kernels_of_pages_are_forks_that_have_the_arguments_folder_and_environment_of_their_client(
    tmp_path, monkeypatch
):
    kernels = extension("kernels")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "page.py").write_text(
        "import os, sys; open('found', 'w').write(str((sys.argv[1:], os.environ['NAME'], "
        "'fractions' in sys.modules)))"
    )
    server, address = kernels.start(str(tmp_path))
    for number in range(2):
        command = [
            sys.executable,
            kernels.__file__,
            "ask",
            address,
            "fractions",
            "page",
            str(number),
        ]
        environment = os.environ | {"NAME": f"page {number}"}
        (tmp_path / "found").unlink(missing_ok=True)
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        assert (tmp_path / "found").read_text() == f"(['{number}'], 'page {number}', True)"
    server.communicate()
    assert server.returncode == 0


def reference_classes():
    """Return the classes that the reference has a page for."""
    names = re.findall(
        r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text(encoding="utf-8"), re.MULTILINE
    )
    found = []
    for name in names:
        folder, _, last = f"bbl.{name}".rpartition(".")
        # so each entry can be imported, too
        member = getattr(importlib.import_module(folder), last)
        found += [member] if isinstance(member, type) else []
    return found


def defined_here(cls):
    """Return the public methods and properties of a class that some class of the package
    defines.
    """
    classes = [base for base in cls.__mro__ if base.__module__.split(".")[0] == "bbl"]
    members = {
        name: member
        for base in reversed(classes)
        for name, member in vars(base).items()
        if name[0] != "_"
    }
    plain = (type(None), type, bool, int, float, str, tuple, frozenset, dict)
    outside = {
        name for name, member in members.items() if type(member).__module__.startswith("sklearn")
    }
    # such as Engine.tuned
    records = {name for name, member in members.items() if dataclasses.is_dataclass(member)}
    return (
        {name for name, member in members.items() if not isinstance(member, plain)}
        - outside
        - records
    )


def page_of(cls):
    """Return the source of a class's page in the reference, as its template writes it."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS / "_templates"),
        autoescape=False,  # noqa: S701
    )
    templates.filters |= {"underline": str}
    sections = extension("members").sections
    page = templates.get_template("autosummary/class.rst")
    return page.render(
        objname=cls.__name__, module=cls.__module__, fullname="", sections=lambda _: sections(cls)
    )


def test_pages_of_classes_list_every_public_method_and_property():
    classes = reference_classes()
    assert len(classes) > 40
    for cls in classes:
        page, own = page_of(cls), defined_here(cls)
        described = re.findall(
            rf"^\.\. auto(?:method|property):: {cls.__name__}\.(\w+)$", page, re.MULTILINE
        )
        listed = re.findall(rf"^   ~{cls.__name__}\.(\w+)$", page, re.MULTILINE)
        assert described == listed, cls
        assert sorted(listed) == sorted(own), cls


def test_the_page_of_results_has_what_its_bases_bring():
    page = page_of(bbl.BBLResults)
    for name in (
        "plot",
        "plot_network",
        "plot_logo",
        "inference",
        "interactions",
        "bse",
        "conf_int",
        "bootstrap",
    ):
        assert f"~BBLResults.{name}\n" in page


def test_public_classes_have_pages():
    public = {getattr(bbl, name) for name in bbl.__all__} - {bbl.datasets, bbl.errors, bbl.networks}
    assert {member for member in public if isinstance(member, type)} <= set(reference_classes())


def test_the_gallery_shows_every_vignette_and_begins_with_the_titanic():
    cards = re.findall(
        r"^(\w+): \d$", (DOCS / "gallery.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cards[0] == "titanic"
    assert sorted(cards) == sorted(path.stem for path in (DOCS.parent / "vignettes").glob("*.py"))


def script(name):
    """Return a script of the folder of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_notebooks_install_the_package_first_and_have_all_code_of_their_vignettes(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    maker = script("make_notebooks")
    maker.main(tmp_path)
    vignettes = sorted((DOCS.parent / "vignettes").glob("*.py"))
    assert [path.stem for path in sorted(tmp_path.glob("*.ipynb"))] == [
        path.stem for path in vignettes
    ]
    page = maker.index_page("gallery")
    for path in vignettes:
        notebook = nbformat.read(tmp_path / f"{path.stem}.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert (
            notebook.cells[0].cell_type == "markdown" and "%pip install" in notebook.cells[1].source
        )
        assert f"gallery/{path.stem}.ipynb" in page
        code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        assert all(
            line in code
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith("import ")
        )


@pytest.mark.parametrize("page", ["index.md", "install.md", "start.md"])
def test_one_place_says_how_the_package_is_installed(page):
    """A release switches docs/release.toml, and pages and notebooks follow."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert "{{ install }}" in text and "pip install boltzmann-bayes" not in text


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("confusion matrix", "guide/evaluation.md"),
        ("imbalance", "guide/evaluation.md"),
        ("odds", "coming_from.md"),
        ("one-hot", "coming_from.md"),
        ("missing", "guide/missing.md"),
        ("report", "guide/results.md"),
        ("bin", "guide/csv.md"),
    ],
)
def test_words_that_readers_search_for_are_on_the_page_that_answers(asked, answer):
    """The search of the pages finds those that have all words, whatever their case."""
    words = set(re.findall(r"\w+", (DOCS / answer).read_text(encoding="utf-8").casefold()))
    assert set(re.findall(r"\w+", asked)) <= words


def newcomers():
    """Return the lines of the tables for newcomers: dicts by heading, empty where a table has no
    such column.
    """
    tables = re.findall(
        r"(?:^\| .*\n)+", (DOCS / "coming_from.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    out = []
    for text in tables:
        head, _, *rows = [
            [cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()
        ]
        out += [collections.defaultdict(str, zip(head, row, strict=True)) for row in rows]
    assert len(tables) == 3 and len(out) > 50
    return out


def resolved(path, start=bbl):
    """Return what a dotted path leads to."""
    for part in path.split("."):
        start = getattr(start, part)
    return start


@pytest.fixture(scope="module")
def newcomer_fits():
    titanic = bbl.datasets.load_titanic()
    return (
        bbl.bbl("Survived ~ Sex * Age", titanic, "Freq"),
        bbl.networks.bnc("nb", "Survived ~ .", titanic, 1, weights="Freq"),
    )


@pytest.mark.parametrize("row", newcomers(), ids=lambda row: row["you want"])
def test_names_of_this_package_in_the_table_for_newcomers_exist(row, newcomer_fits):
    """Attributes, verbs, estimators, and every argument of some verb, method or estimator."""
    text, (fit, network) = row["here"], newcomer_fits
    for name in re.findall(r"\bfit\.(\w+)", text):
        assert hasattr(network if "networks: `fit." + name in text else fit, name), name
    for path in re.findall(r"\bbbl\.((?:\w+\.)?\w+)", text):
        assert resolved(path) is not None
    for name in re.findall(r"`(\w+)`", text):
        if name[0].isupper():
            assert hasattr(importlib.import_module("bbl.sklearn"), name), name
    verbs = [
        bbl.bbl,
        bbl.crossVal,
        bbl.mcSample,
        bbl.networks.bnc,
        bbl.networks.lp,
        bbl.bin,
        fit.predict,
        fit.evaluate,
        fit.conf_int,
    ]
    verbs += [bbl.survey, bbl.Conditional, fit.avg_comparisons, fit.avg_predictions]
    verbs += [importlib.import_module("bbl.sklearn").BBLClassifier]
    known = {name for verb in verbs for name in inspect.signature(verb).parameters}
    for name in re.findall(r"(\w+)=", text.replace("==", "")):
        assert name in known, name


def test_names_of_other_packages_in_the_table_for_newcomers_exist():
    """Functions, estimators and their members, of scikit-learn and statsmodels."""
    data = pd.DataFrame({"y": [0, 1, 0, 1, 1, 0], "a": [0, 0, 1, 1, 0, 1]})
    smf, places = importlib.import_module("statsmodels.formula.api"), {}
    logit = smf.logit("y ~ a", data)
    modules = [
        importlib.import_module(f"statsmodels.{name}")
        for name in ("stats.anova", "iolib.summary2", "miscmodels.ordinal_model")
    ]
    places["statsmodels"] = [smf, *modules, logit, logit.fit(disp=0), smf.ols("y ~ a", data).fit()]
    names = [
        "calibration",
        "feature_selection",
        "impute",
        "inspection",
        "linear_model",
        "metrics",
        "model_selection",
    ]
    modules = [
        importlib.import_module(f"sklearn.{name}") for name in [*names, "pipeline", "preprocessing"]
    ]
    linear = modules[4].LogisticRegression().fit(data[["a"]], data["y"])
    places["scikit-learn"] = [*modules, importlib.import_module("joblib"), linear]
    for column, where in places.items():
        told = " ".join(row[column] for row in newcomers())
        names = {path.split(".")[-1] for path in re.findall(r"`([A-Za-z]\w*(?:\.\w+)?)[`(]", told)}
        names -= {"C", *dir(builtins)}
        assert len(names) > 10
        assert {name for name in names if not any(hasattr(place, name) for place in where)} == set()


def test_versions_of_the_documentation_are_listed_newest_first(tmp_path):
    for name in ("v0.9.0", "v0.10.1", "dev", "v0.10.0", "other"):
        (tmp_path / name).mkdir()
    script("make_versions").main(tmp_path)
    listed = json.loads((tmp_path / "switcher.json").read_text())
    assert [entry["version"] for entry in listed] == ["v0.10.1", "v0.10.0", "v0.9.0", "dev"]
    assert 'url=v0.10.1/"' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("tex", "signs"), [(r"\mathbf{x}_{\setminus i}", "x\\i"), (r"P(x \mid \mathbf{1})", "P(x|1)")]
)
def test_equations_need_no_font_for_mathematics(tex, signs):
    mathml = extension("equations").to_mathml(tex, "inline")
    assert (
        re.sub(r"<[^>]*>|&#x0*([0-9A-F]+);", lambda m: chr(int(m[1], 16)) if m[1] else "", mathml)
        == signs
    )
    assert 'class="bold"' in mathml


def test_comparison_with_bnclassify_passed():
    rows = table("matches_bnclassify.csv")
    assert len({(row["data"], row["what"]) for row in rows}) == len(rows) > 60
    for row in rows:
        found, most = row["largest difference"], row["tolerance"].removeprefix("at most ")
        assert float(found.removesuffix(" differ")) <= float(most), row


def test_comparison_with_r_passed_under_the_rules_of_the_tests():
    checks = table("matches_r.csv")
    assert len(checks) > 3000
    assert all(float(row["difference"]) <= float(row["tolerance"]) for row in checks)
    rules = {
        row["rule"]: row["what is compared"]
        for row in table("matches_r_rules.csv")
        if row["rule"] != "all"
    }
    assert rules == {rule: RULES[rule] for rule in {row["rule"] for row in checks}}


def test_comparison_with_log_linear_models_passed():
    rows = table("matches_r_loglinear.csv")
    assert {row["what is compared"] for row in rows} == set(rloglinear.RULES.values())
    assert all(float(row["largest difference"]) <= float(row["tolerance"]) for row in rows)


def test_comparison_with_r_has_all_cases(shared):
    assert [row["problem"] for row in table("matches_r_cases.csv")] == rcases.names()


def test_live_pages_of_the_gallery_are_written_and_linked(tmp_path):
    pages = extension("live_pages")
    pages.write_pages(tmp_path)
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for name in pages.PAGES:
        assert 'id="whatif-model"' in (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert f'href="live/{name}.html' in gallery
