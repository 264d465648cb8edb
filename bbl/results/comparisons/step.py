"""StepResults: path of a stepwise selection of terms, and the selected model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import pandas as pd

from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import label_text, table_text
from bbl.results.machine.machine import MachineResults

__all__ = ["StepResults"]


@final
@dataclass(frozen=True, repr=False)
class StepResults(Notebook):
    """Path of a stepwise selection of terms, as returned by `bbl.step`.

    Attributes
    ----------
    fit : BBLResults or DensityResults
        The fit of the selected model, which is the original fit if the criterion cannot be
        improved.
    path : DataFrame
        A row for each model of the path, numbered by ``step``: the ``term`` that was dropped
        (``"- a:b"``) or added (``"+ a:b"``), empty for the first model; ``df`` and ``deviance``,
        the number of parameters of the term and twice the absolute change in log-likelihood;
        ``parameters`` and ``logLik`` of the model; and the criterion, ``AIC`` or ``BIC``.
    candidates : DataFrame
        All candidate steps, with the columns of `path`; ``step`` is the number of the resulting
        model.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> result = bbl.step(bbl.bbl("~ Sex + Survived", titanic, "Freq", method="ml", verbose=0))
    >>> result.path[["term", "parameters", "AIC"]].round(1)  # doctest: +NORMALIZE_WHITESPACE
                    term  parameters     AIC
    step
    0                              2  5056.4
    1     + Sex:Survived           3  4623.9
    >>> result.fit.formula
    '~ Sex*Survived'
    """

    fit: MachineResults
    path: pd.DataFrame
    candidates: pd.DataFrame

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        return "", [
            first_rows(
                self.path, "Steps", source=".path", note=f"Chosen: {label_text(self.fit.formula)}"
            )
        ]

    def __repr__(self) -> str:
        return f"{table_text(self.path)}\n\nChosen: {label_text(self.fit.formula)}"
