"""The class `Tuning`, which records the settings compared by cross-validation within a fit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Problem
from bbl.boltzmann.validation import Validated
from bbl.engines import Engine
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import table_text
from bbl.stats.calibration import Calibration

__all__ = ["Tuning"]


@dataclass(frozen=True, repr=False)
class Tuning(Notebook):
    """Result of cross-validation within a fit.

    Attributes
    ----------
    option : str or None
        The option that was tuned; None if only a calibration was fitted.
    values : ndarray, shape (S,)
        The settings that were compared, in the order of the grid.
    loss : ndarray, shape (S,)
        Out-of-fold log-loss of each setting.
    chosen : int
        Position of the selected setting in `values`.
    calibration : Calibration
        Calibration of the class scores at the selected setting.
    found : list of Problem
        Problems of the fits to the folds, if any did not converge.
    scored : Validated or None
        Out-of-fold scores at the selected setting, before calibration; not stored in model files.
    engine : Engine or None
        The engine with the selected setting; not stored in model files.
    rows : int or None
        Number of random rows on which the settings were compared, with penalties converted to all
        rows; None if they were compared on all rows.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> tuning = bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv", verbose=0).tuning
    >>> tuning.values[tuning.chosen] in tuning.values
    True
    >>> tuning.option
    'lambda_'
    """

    option: str | None
    values: np.ndarray
    loss: np.ndarray
    chosen: int
    calibration: Calibration
    found: list[Problem]
    scored: Validated | None = field(default=None, repr=False)
    engine: Engine | None = field(default=None, repr=False)
    rows: int | None = None

    @property
    def frame(self) -> pd.DataFrame:
        """The settings with their out-of-fold log-losses.

        The column ``chosen`` marks the selected setting.
        """
        settings = {self.option or "setting": self.values, "loss": self.loss}
        return pd.DataFrame({**settings, "chosen": np.arange(len(self.loss)) == self.chosen})

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the title and sections of the notebook display."""
        # no heading; .frame has all rows
        return self._title(), [first_rows(self._shown(), "", ".frame")]

    def _title(self) -> str:
        """Return the selected setting and its log-loss as text."""
        loss = f"out-of-fold loss {self.loss[self.chosen]:.4g}"
        if self.rows is not None:
            loss += f" of {self.rows:,} random rows"
        if self.option is None:
            return f"Calibration only, {loss}"
        return (
            f"{self.option} = {self.values[self.chosen]:.4g} of {len(self.values)} settings, {loss}"
        )

    def _shown(self) -> pd.DataFrame:
        """Return the printed table, with a star at the selected setting."""
        return self.frame.assign(
            chosen=["*" if row == self.chosen else "" for row in range(len(self.loss))]
        )

    def __repr__(self) -> str:
        return f"{self._title()}\n{table_text(self._shown())}"
