"""What pages and notebooks say about installing: today's way, or the one of a published package
(release.toml).
"""

import tomllib
from pathlib import Path

RELEASE = tomllib.loads(
    (Path(__file__).resolve().parent / "release.toml").read_text(encoding="utf-8")
)
# in a checkout the folder bbl hides an installed copy, unless that is an editable one
PACKAGE = "boltzmann-bayes" if RELEASE["published"] else "."
OPTION = "" if RELEASE["published"] else "-e "


def install_text() -> str:
    """Return the lines of a page that install the package."""
    commands = f"```bash\npython -m pip install {OPTION}{PACKAGE}\npython -m bbl\n```\n"
    if RELEASE["published"]:
        return f"With Python 3.11 or later:\n\n{commands}"
    return (
        "The package is not on PyPI yet; once it is, `python -m pip install boltzmann-bayes` will "
        "install it. Until then, run these commands in a checkout of the source, with Python 3.11 "
        f"or later and a C compiler:\n\n{commands}"
    )


def install_cell(extras: str) -> str:
    """Return the first cell of a notebook, which installs the package with these extras where it is
    absent.
    """
    lines = ["import importlib.util", "", 'if importlib.util.find_spec("bbl") is None:']
    if not RELEASE["published"]:
        lines.append(
            "    # not on PyPI yet: run this in a checkout, or replace the dot with its path"
        )
    return "\n".join([*lines, f'    %pip install --quiet {OPTION}"{PACKAGE}[{extras}]"'])
