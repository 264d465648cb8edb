"""The verb that reads models from files: load."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bbl.checks import verb
from bbl.errors import BBLError, ModelFileError
from bbl.results.bicluster.bicluster import BiclusterResults
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.network.network import NetworkResults
from bbl.results.shooter.shooter import ShooterResults
from bbl.results.together.average import AverageResults
from bbl.storage import read_any

__all__ = ["load", "restored"]

KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (BBLResults, DensityResults, NetworkResults, ShooterResults, BiclusterResults, AverageResults)
}


def restored(kind: str, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return a fitted model; `meta` and `arrays` are what `pack` of a model of this kind returned."""
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
        Of the class that was saved (such as `BBLResults`), with the same numbers to the last bit; without training rows
        unless they were stored.

    Raises
    ------
    ModelFileError
        If the file is not such a model, is damaged, or was written by a later format version.
    FileNotFoundError, OSError
        If it cannot be read.

    Notes
    -----
    Nothing in the file is run: it holds text and numbers, checked by a digest.
    """
    kind, meta, arrays = read_any(path, KINDS)
    try:
        return restored(kind, meta, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, BBLError) as error:
        raise ModelFileError(f"{path} is not a model of this package ({error}); save the model again.") from error
