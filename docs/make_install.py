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
        "With Python 3.11 or later and a C compiler, in a checkout of the source (the package is "
        "not on PyPI yet; once it is, the first line will be `python -m pip install "
        f"boltzmann-bayes`):\n\n{commands}"
    )


def install_cell(extras: str) -> str:
    """Return the first cell of a notebook, which installs the package with these extras where it is
    absent.
    """
    lines = ["import importlib.util", "", 'if importlib.util.find_spec("bbl") is None:']
    if not RELEASE["published"]:
        lines.append(
            "    # not on PyPI yet: run the notebook in a checkout, or put its path for the dot"
        )
    return "\n".join([*lines, f'    %pip install --quiet {OPTION}"{PACKAGE}[{extras}]"'])
