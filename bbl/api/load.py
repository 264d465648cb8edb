"""The public function `load`: read a model from a file."""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar, overload

import numpy as np

import bbl.results
from bbl.checks import check_keywords
from bbl.errors import BBLError, BBLTypeError, ModelFileError
from bbl.results.classifier import ClassifierResults
from bbl.storage import read_any

__all__ = ["load", "restored"]

Model = TypeVar("Model")


def _find_kinds() -> dict[str, Any]:
    """Return a dict that maps each kind of model in a file to its results class; it contains all
    classes in `bbl.results` with a `_kind`.
    """
    modules = [
        import_module(module_info.name)
        for module_info in walk_packages(bbl.results.__path__, "bbl.results.")
    ]
    classes = [
        value for module in modules for value in vars(module).values() if isinstance(value, type)
    ]
    # vars() contains only the class's own attributes: a subclass that inherits a `_kind` must not
    # replace its base class
    return {vars(cls)["_kind"]: cls for cls in classes if isinstance(vars(cls).get("_kind"), str)}


KINDS = _find_kinds()  # results classes by the kind stored in a model file


def restored(kind: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Rebuild a fitted model of this `kind` from its `meta` and `arrays`, as returned by `pack`."""
    return KINDS[kind]._unpack(meta, arrays)


@overload
# models without classes return Any
def load(path: str | os.PathLike[str]) -> ClassifierResults | Any: ...
@overload
def load(path: str | os.PathLike[str], kind: type[Model]) -> Model: ...
@check_keywords
def load(path: str | os.PathLike[str], kind: type | None = None) -> Any:
    """Read a model from a file written by ``fit.save(path)``.

    Parameters
    ----------
    path : str or path-like
    kind : results class, optional
        Required class of the model, such as `BBLResults`. Type checkers can then infer the type of
        the result.

    Returns
    -------
    ModelResults or BiclusterResults
        An instance of the saved class (such as `BBLResults`), bitwise equal to the saved model,
        without training rows unless they were saved.

    Raises
    ------
    ModelFileError
        If the file is not a saved model, is damaged, has a newer format version, or contains a
        model of a class other than `kind`.
    FileNotFoundError, OSError
        If the file cannot be read.

    Notes
    -----
    The file contains text and numbers, which are verified by a digest, and no code.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(Path(folder, "titanic.bbl"))
    ...     loaded = bbl.load(Path(folder, "titanic.bbl"))
    >>> loaded.formula, loaded.nobs()
    ('Survived ~ Class * Sex + Sex * Age', 2201)
    """
    if kind is not None and not isinstance(kind, type):
        raise BBLTypeError(
            f"kind must be a results class, such as bbl.BBLResults; got {kind!r}.",
            argument="kind",
            value=kind,
        )
    stored_kind, meta, arrays = read_any(path, KINDS)
    if kind is not None and not issubclass(KINDS[stored_kind], kind):
        raise ModelFileError(
            f"{path} contains {KINDS[stored_kind].__name__}, not {kind.__name__}.",
            hint=f"Omit kind, or use kind=bbl.{KINDS[stored_kind].__name__}.",
        )
    try:
        return restored(stored_kind, meta, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, BBLError) as error:
        raise ModelFileError(
            f"{path} is not a model saved by this package ({error}).", hint="Save the model again."
        ) from error
