"""Laws of answers: files, printing, every public method, advice."""

from __future__ import annotations

from seams.case import Case
from seams.laws import Law


def advice_works(case: Case, error: Exception) -> None:
    """What an error advises works when it is followed."""


REFUSED = Law("advice_works", "What an error advises works when it is followed.", advice_works, lambda case: True, 5.0)
