"""Former names of attributes: they work as before, with a warning, until a major release."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn

__all__ = ["Deprecated"]


@dataclass(frozen=True)
class Deprecated:
    """A former name of an attribute of a class, hidden from its `dir`.

    Attributes
    ----------
    path : str
        Attribute that has the value, such as ``"estimate.parameters"``.
    use : str
        What to use instead, for the warning; empty for what was meant for the package alone.
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
        # with a setter, tools that list methods take it for data, and leave it out
        raise AttributeError("a fitted model is frozen")
