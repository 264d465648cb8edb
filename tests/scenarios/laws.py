"""The list of laws: each is a function of a case, with the condition under which it is asked, and a
cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scenarios.case import Case

__all__ = ["LAWS", "Law", "law"]


@dataclass(frozen=True)
class Law:
    """A law.

    Attributes
    ----------
    name : str
        Its name in commands and in the ledger.
    sentence : str
        What holds, for users: the first line of the docstring.
    check : callable
        Raises `LawBroken` where it does not hold.
    when : callable
        Of which cases it can be asked at all. Where it can be asked and does not hold, `exceptions`
        says why.
    cost : float
        About how many milliseconds it takes; dear ones are drawn rarely.
    """

    name: str
    sentence: str
    check: Callable[[Case], None]
    when: Callable[[Case], bool]
    cost: float


LAWS: dict[str, Law] = {}


def law(when: Callable[[Case], bool] = lambda case: True, cost: float = 5.0) -> Callable:
    """Enter a function in the list of laws."""

    def enter(check: Callable[[Case], None]) -> Callable[[Case], None]:
        name = check.__name__
        LAWS[name] = Law(
            name, " ".join((check.__doc__ or "").split("\n\n")[0].split()), check, when, cost
        )
        return check

    return enter
