"""Bayesian network classifiers: the verbs, as ``bbl.networks``; the files of this room have the arrays behind them.

The verbs live in ``bbl.api`` and stand on this room, so they are looked up when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "accuracy",
    "aode",
    "bnc",
    "bsej",
    "cmi",
    "cv",
    "fssj",
    "kdb",
    "lp",
    "nb",
    "structure",
    "tan_cl",
    "tan_hc",
    "tan_hcsp",
]

PLACES = ("bbl.api.network", "bbl.api.network_fit", "bbl.api.network_cv")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for place in PLACES:
            module = import_module(place)
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
