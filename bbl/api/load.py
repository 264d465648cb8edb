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
    """Return the classes of results by the kind that is stored in a model file: all of
    `bbl.results` with a `kind`.
    """
    modules = [
        import_module(module_info.name)
        for module_info in walk_packages(bbl.results.__path__, "bbl.results.")
    ]
    classes = [
        value for module in modules for value in vars(module).values() if isinstance(value, type)
    ]
    # vars: the class's own `kind`; a subclass that inherits it would take the place of its base
    return {vars(cls)["kind"]: cls for cls in classes if isinstance(vars(cls).get("kind"), str)}


KINDS = _find_kinds()  # classes of results by their kind in a model file


def restored(kind: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return the fitted model of this `kind`, from the `meta` and `arrays` that its method `pack`
    returned.
    """
    return KINDS[kind]._unpack(meta, arrays)


@overload
# Any for models without classes
def load(path: str | os.PathLike[str]) -> ClassifierResults | Any: ...
@overload
def load(path: str | os.PathLike[str], kind: type[Model]) -> Model: ...
@check_keywords
def load(path: str | os.PathLike[str], kind: type | None = None) -> Any:
    """Read a model that ``fit.save(path)`` wrote.

    Parameters
    ----------
    path : str or path-like
    kind : class of results, optional
        The class that the file must hold, such as `BBLResults`; type checkers then know the methods
        of the model.

    Returns
    -------
    ModelResults or BiclusterResults
        Of the class that was saved (such as `BBLResults`), bitwise equal; without training rows
        unless they were stored.

    Raises
    ------
    ModelFileError
        If the file is not a saved model, is damaged, has a later format version, or holds a model
        that is no `kind`.
    FileNotFoundError, OSError
        If the file cannot be read.

    Notes
    -----
    The file holds text and numbers, checked by a digest, and no code.

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
            hint=f"Leave kind out, or give kind=bbl.{KINDS[stored_kind].__name__}.",
        )
    try:
        return restored(stored_kind, meta, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, BBLError) as error:
        raise ModelFileError(
            f"{path} is not a model of this package ({error}).", hint="Save the model again."
        ) from error
