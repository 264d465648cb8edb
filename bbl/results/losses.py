"""LossResults: the log-loss that a fitted classifier knows, beside that of the shares of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from textwrap import fill

import numpy as np

from bbl.boltzmann.prediction_checks import training_record, training_rows
from bbl.report.format import WIDTH
from bbl.results.model import ModelResults
from bbl.rows.on_disk import Rows
from bbl.stats.loss_record import HELD_OUT, LossRecord

__all__ = ["LossResults"]


@dataclass(frozen=True, repr=False)
class LossResults(ModelResults):
    """A fitted classifier that says its log-loss.

    Attributes
    ----------
    stored_loss : LossRecord or None
        The log-loss that the fit, or the model's file, brings along; `log_loss` is that, or of the training rows.
    """

    stored_loss: LossRecord | None = field(default=None, kw_only=True, repr=False)

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, x)`` of encoded rows but for what groups share, shape (n, K); sums out where `missing`."""
        raise NotImplementedError

    @property
    def class_shares(self) -> np.ndarray:
        """Shares of the groups behind `class_scores`, shape (K,)."""
        raise NotImplementedError

    @cached_property
    def log_loss(self) -> LossRecord | None:
        """Log-loss beside that of the shares of the groups, the same prediction for every row.

        Of validated rows, where the fit was tuned, calibrated or averaged by cross-validation; else of the training
        rows. It does not depend on `priors`. Of very many rows some are looked at, and it is None unless the log-loss
        is above that of the shares; it is None too of a model from an earlier version's file without rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> print(bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv").log_loss)
        0.48 of validated rows; 0.629 of the shares of the groups
        """
        if self.stored_loss is not None or self.training is None:
            return self.stored_loss
        return self.training_loss(self.training)

    def training_loss(self, rows: Rows) -> LossRecord | None:
        """Return the log-loss of encoded training rows; of very many, None unless it is above that of the shares."""
        levels, K = self.design.n_levels, len(self.labels.groups)
        scored, whole = training_rows(rows, levels, K, K * (1.0 + len(levels)))
        if not scored.n:
            return None
        scores = self.class_scores(scored.codes, scored.missing)
        return training_record(scored, whole, scores, self.class_shares, self._advice)

    @property
    def _verdict(self) -> str:
        """What is said of a log-loss above that of the shares of the groups."""
        return "" if self.log_loss is None else self.log_loss.verdict

    def _loss_facts(self) -> dict[str, str]:
        """What a summary says of the log-loss."""
        if self.log_loss is None:
            return {}
        return {"Log-loss": self.log_loss.verdict or str(self.log_loss)}

    def _loss_text(self) -> str:
        """What is printed of the log-loss: of validated rows, and wherever it is above that of the shares."""
        record = self.log_loss
        if record is None or (record.rows != HELD_OUT and record.loss <= record.baseline):
            return ""
        return f"\n\n{fill(f'Log-loss: {record.verdict or record}', WIDTH, break_on_hyphens=False)}"

    @property
    def _remedy(self) -> str:
        return self._advice if self.log_loss is None else self.log_loss.remedy

    @property
    def _advice(self) -> str:
        """What lowers a log-loss above that of the shares of the groups."""
        return ""
