"""Graphs for other programs: networkx where it is installed, and names as Graphviz quotes them."""

from __future__ import annotations

import re
from types import ModuleType

__all__ = ["quoted", "require_networkx"]


def require_networkx() -> ModuleType:
    """Return the module networkx; if it is not installed, raise an ImportError that says how to
    install it.
    """
    try:
        import networkx
    except ImportError as error:
        raise ImportError("to_networkx needs networkx: pip install networkx") from error
    return networkx


def quoted(name: object) -> str:
    """Return a name as a quoted identifier of Graphviz, on one line."""
    text = re.sub(r"[\r\n]+", " ", str(name))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
