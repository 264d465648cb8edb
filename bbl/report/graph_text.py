"""Export of graphs: the optional networkx, and names quoted for Graphviz."""

from __future__ import annotations

import re
from types import ModuleType

from bbl.errors import with_hint

__all__ = ["quoted", "require_networkx"]


def require_networkx() -> ModuleType:
    """Import and return networkx. If it is not installed, raise an ImportError with the
    installation command.
    """
    try:
        import networkx
    except ImportError as error:
        message = with_hint("networkx is not installed.", "Run pip install networkx.")
        raise ImportError(message) from error
    return networkx


def quoted(name: object) -> str:
    """Return a name as a quoted Graphviz identifier, on one line."""
    text = re.sub(r"[\r\n]+", " ", str(name))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
