"""Former names of attributes, which work with a warning until the next major release."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn

__all__ = ["Deprecated"]


@dataclass(frozen=True)
class Deprecated:
    """A former attribute name, hidden from the `dir` of its class.

    Attributes
    ----------
    path : str
        Attribute with the value, such as ``"estimate.parameters"``.
    use : str
        Replacement mentioned in the warning; empty for names that were internal.
    """

    path: str
    use: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", f"{owner.__name__}.{name}")

    def __get__(self, instance: object, owner: type) -> Any:
        warnings.warn(
            f"{self.name} is deprecated and will be removed in bbl 2.0"  # type: ignore[attr-defined]
            f"{f'; use {self.use}' if self.use else ''}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return attrgetter(self.path)(owner if instance is None else instance)

    def __set__(self, instance: object, value: object) -> NoReturn:
        # with a setter, tools that list methods treat it as data and leave it out
        raise AttributeError("a fitted model is frozen")
