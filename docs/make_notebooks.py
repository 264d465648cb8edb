"""Notebooks of the vignettes that open without a checkout: their first cell installs the package
where it is absent.

``python docs/make_notebooks.py FOLDER`` writes one for each script of the folder ``vignettes``. The
documentation has them for download, with `index_page` as their page.
"""

import re
import sys
from pathlib import Path

import jupytext
from nbformat.v4 import new_code_cell

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_install import install_cell  # noqa: E402  # beside this file

VIGNETTES = Path(__file__).resolve().parents[1] / "vignettes"
HEAD = """\
# Notebooks

Download any page of the [gallery](gallery.md) as a notebook for Jupyter, VS Code or Colab. The
first cell installs the package if necessary.
"""


def make_notebook(script: Path):
    """Return a vignette as a notebook."""
    notebook = jupytext.read(script)
    notebook.cells.insert(1, new_code_cell(install_cell("data,sklearn,polars"), id="install"))
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return notebook


def main(folder: Path) -> None:
    """Write all notebooks to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(VIGNETTES.glob("*.py")):
        jupytext.write(make_notebook(script), folder / f"{script.stem}.ipynb")


def index_page(folder: str) -> str:
    """Return the page that has the notebooks of a folder for download, under the titles of their
    vignettes.
    """
    lines = [HEAD]
    for script in sorted(VIGNETTES.glob("*.py")):
        title = re.search(r"^# # (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE)[1]
        lines.append(f"- {{download}}`{title.replace('`', '')} <{folder}/{script.stem}.ipynb>`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "notebooks"))
