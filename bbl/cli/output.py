"""Print results and notes, save figures, and check files before a session starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bbl.cli.tables import STDIN, is_read_in_batches
from bbl.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "check_figure",
    "check_readable",
    "check_writable",
    "draw_into_files",
    "print_note",
    "save_figure",
    "show_titled",
]


def show_titled(title: str, value: object) -> None:
    """Print a title, one or more lines of code, and a value below it."""
    prompts = "\n".join(f">>> {line}" for line in title.splitlines())
    print(f"\n{prompts}\n{value}")


def print_note(text: str) -> None:
    """Print a note to standard error, separate from the results."""
    print(text, file=sys.stderr)


def draw_into_files() -> None:
    """Make matplotlib draw to files, without a display."""
    import matplotlib

    matplotlib.use("Agg")


def save_figure(draw: Callable[[], Figure], path: Path) -> None:
    """Call `draw` and save the returned figure."""
    draw_into_files()
    draw().savefig(path, dpi=150)
    print_note(f"Figure saved to {path}")


def check_readable(path: Path) -> None:
    """Raise an OSError if a file cannot be opened. Standard input and data read in batches are
    skipped.
    """
    if path != STDIN and not is_read_in_batches(path):
        with path.open("rb"):  # raises the error
            pass


def check_writable(argument: str, path: Path | None) -> None:
    """Raise an OptionError about `argument` if a file cannot be written at `path`."""
    if path is None:
        return
    folder = path.parent
    problem = ""
    remedy = ""
    if path.is_dir():
        problem = f"{str(path)!r} is a directory."
        remedy = "Pass the path of a file in this directory."
    elif not folder.is_dir():
        problem = f"the directory {str(folder)!r} does not exist."
        remedy = "Create it first, or choose another directory."
    elif not os.access(folder, os.W_OK):
        problem = f"the directory {str(folder)!r} is not writable."
        remedy = "Choose another directory."
    if problem:
        raise OptionError(f"{argument}: {problem}", argument=argument, hint=remedy)


def check_figure(path: Path) -> None:
    """Raise an OptionError if `path` is not writable, or matplotlib does not support
    its file type.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    file_types = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in file_types:
        raise OptionError(
            f"plot: {path.name!r} is not a supported figure format.",
            argument="plot",
            hint=(
                "Pass a name that ends in "
                f"{', '.join(f'.{suffix}' for suffix in file_types[:-1])} or "
                f".{file_types[-1]}."
            ),
        )
    check_writable("plot", path)
