"""The public function `load`: read a model from a file."""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np

import bbl.results
from bbl.checks import verb
from bbl.errors import BBLError, ModelFileError
from bbl.storage import read_any

__all__ = ["load", "restored"]


def _find_kinds() -> dict[str, Any]:
    """Return the classes of results by the kind that is stored in a model file: all of `bbl.results` with a `kind`."""
    modules = [import_module(found.name) for found in walk_packages(bbl.results.__path__, "bbl.results.")]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {vars(cls)["kind"]: cls for cls in classes if isinstance(vars(cls).get("kind"), str)}


KINDS = _find_kinds()


def restored(kind: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the fitted model of this `kind` whose method `pack` returned `meta` and `arrays`."""
    return KINDS[kind].unpack(meta, arrays)


@verb
def load(path: str | os.PathLike) -> Any:
    """Read a model that ``fit.save(path)`` wrote.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    ModelResults or BiclusterResults
        Of the class that was saved (such as `BBLResults`), bitwise equal; without training rows unless they were
        stored.

    Raises
    ------
    ModelFileError
        If the file is not a saved model, is damaged, or has a later format version.
    FileNotFoundError, OSError
        If the file cannot be read.

    Notes
    -----
    The file holds text and numbers, checked by a digest, and no code.
    """
    kind, meta, arrays = read_any(path, KINDS)
    try:
        return restored(kind, meta, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, BBLError) as error:
        raise ModelFileError(f"{path} is not a model of this package ({error}); save the model again.") from error
