"""The types of the public names: a user's script passes mypy and pyright in strict mode, and
mistakes are found.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import distribution
from inspect import isfunction, signature
from pathlib import Path
from typing import get_args

import pytest
from typed import user

import bbl
from bbl import choices
from bbl.api.machine.signatures import CrossValKeywords, CrossValOptions, FitKeywords, FitOptions
from bbl.bayesnet.learners import LEARNERS
from bbl.engines import DEFAULT, ENGINES

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = [ROOT / "tests" / "typed" / name for name in ("user.py", "mistakes.py")]


def environment():
    """Return the environment for a type checker; the checkout is on its path unless an installation
    is of it.
    """
    origin = json.loads(distribution("boltzmann-bayes").read_text("direct_url.json") or "{}").get(
        "url", ""
    )
    elsewhere = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")
    }
    return elsewhere if origin == ROOT.as_uri() else elsewhere | {"MYPYPATH": str(ROOT)}


@pytest.mark.long
def test_the_users_script_runs(tmp_path, capsys):
    user.main(tmp_path)
    assert "Survived" in capsys.readouterr().out and (tmp_path / "fit.html").exists()


def test_the_users_script_has_every_verb():
    text = SCRIPTS[0].read_text(encoding="utf-8")
    verbs = {name for name in bbl.__all__ if isfunction(getattr(bbl, name))}
    assert verbs <= set(re.findall(r"\bbbl\.(\w+)", text))


@pytest.mark.long
def test_mypy_passes_the_users_script_and_finds_mistakes(tmp_path):
    """The package itself is checked as a part of the linters, with its own settings.

    They are those of a strict user for all other modules and for what the package exports, so their
    cache serves here too. Without it, the package is read with less work.
    """
    cache, settings = tmp_path / "cache", ROOT / "pyproject.toml"
    if (linted := ROOT / ".mypy_cache").is_dir():
        shutil.copytree(linted, cache)
    else:
        settings = tmp_path / "mypy.ini"
        settings.write_text("[mypy]\n[mypy-bbl.*]\nignore_errors = True\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        f"--config-file={settings}",
        f"--cache-dir={cache}",
        *map(str, SCRIPTS),
    ]
    found = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.long
def test_pyright_passes_the_users_script_and_finds_mistakes(tmp_path):
    if (pyright := shutil.which("pyright")) is None:
        return  # it is no requirement: it brings a JavaScript engine
    for script in SCRIPTS:
        shutil.copy(script, tmp_path)
    settings = {
        "typeCheckingMode": "strict",
        "include": [script.name for script in SCRIPTS],
        "extraPaths": [environment().get("MYPYPATH", "")],
        "reportUnnecessaryTypeIgnoreComment": True,
        "enableTypeIgnoreComments": True,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--pythonpath", sys.executable, "-p", str(tmp_path)]
    found = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_words_are_those_that_the_code_knows():
    assert set(get_args(choices.Method)) == set(ENGINES) and DEFAULT in get_args(choices.Method)
    assert set(get_args(choices.NetworkLearner)) == set(LEARNERS)


@pytest.mark.parametrize(
    ("verb", "keywords", "options"),
    [(bbl.bbl, FitKeywords, FitOptions), (bbl.crossVal, CrossValKeywords, CrossValOptions)],
)
def test_declared_keywords_are_those_of_the_verbs_and_methods(verb, keywords, options):
    positional = {"formula", "data", "weights", "method", "options"}
    arguments = signature(verb).parameters.keys() - positional
    of_methods = {field.name for engine in ENGINES.values() for field in fields(engine)}
    assert set(keywords.__annotations__) == arguments
    assert set(options.__annotations__) == arguments | of_methods
