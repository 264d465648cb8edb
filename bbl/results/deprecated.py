"""Deprecated attribute names. They can be used until the next major release, but cause a
warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn

__all__ = ["Deprecated", "DeprecatedNames"]


@dataclass(frozen=True)
class Deprecated:
    """Former name of an attribute or method; `DeprecatedNames` hides it from ``dir(object)``.

    Attributes
    ----------
    path : str
        Path of the attribute that contains the value, such as ``"estimate.parameters"``.
    use : str
        Replacement named in the warning; empty for internal names without a replacement.
    """

    path: str
    use: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __get__(self, instance: object, owner: type) -> Any:
        warnings.warn(
            f"{owner.__name__}.{self.name} is deprecated and will be removed in bbl 2.0"  # type: ignore[attr-defined]
            f"{f'; use {self.use}' if self.use else ''}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return attrgetter(self.path)(owner if instance is None else instance)

    def __set__(self, instance: object, value: object) -> NoReturn:
        # with a setter, tools that list methods treat it as data and leave it out
        raise AttributeError("a fitted model is frozen")


class DeprecatedNames:
    """Base class of objects with `Deprecated` attributes, which ``dir`` does not list."""

    def __dir__(self) -> list[str]:
        """Return the names of the attributes without deprecated names."""
        attributes: dict[str, object] = {}
        for owner in reversed(type(self).__mro__):
            attributes |= vars(owner)
        return [
            name for name in super().__dir__() if not isinstance(attributes.get(name), Deprecated)
        ]
