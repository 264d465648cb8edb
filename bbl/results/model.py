"""ModelResults: what every fitted model has: its rows, its likelihood and criteria, a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bbl.checks import flag, verb
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.errors import DataError
from bbl.model.moments import level_counts
from bbl.report.machine.summary import Section
from bbl.results.report_page import report_html
from bbl.rows.sample import Sample
from bbl.storage import write_model

__all__ = ["LogLikelihood", "ModelResults", "Training"]


class LogLikelihood(float):
    """A log-likelihood: a float that knows its degrees of freedom and number of observations."""

    df: int
    nobs: float

    def __new__(cls, value: float, df: int, nobs: float):
        self = super().__new__(cls, value)
        self.df, self.nobs = df, nobs
        return self

    def __repr__(self) -> str:
        return f"'log Lik.' {float(self):.7g} (df={self.df})"


@dataclass(frozen=True)
class Training:
    """What the file of a model keeps of its training rows, whether they are in it or not.

    Attributes
    ----------
    nobs : int or float
        Number of observations: the sum of the weights.
    log_likelihood : float
    counts : list of m ndarrays, shape (K, L_i)
        Weighted count of every level in every group.
    sections : list of Section, or None
        The tests that the summary prints; None if the file has none.
    """

    nobs: float
    log_likelihood: float
    counts: list[np.ndarray]
    sections: list[Section] | None = None


@dataclass(frozen=True, repr=False)
class ModelResults:
    """A fitted model. A family of models adds `log_likelihood`, `n_parameters`, `pack` and `unpack`.

    Attributes
    ----------
    call : str
        The call that made it.
    design : Design
        Formula, factors and their levels: encodes new data like the training data.
    training : Sample or None
        The encoded training rows; None in a model that was loaded from a file without them.
    index : pandas.Index or None
        Labels of the training rows (those of positive weight).
    """

    call: str
    design: Design
    training: Sample | None
    index: pd.Index | None
    stored: Training | None = field(default=None, kw_only=True, repr=False)

    kind: ClassVar[str]  # of its model file
    refusals: ClassVar[Mapping[str, str]] = {}  # the `CAPABILITIES` that the kind lacks, each with the reason

    def log_likelihood(self, rows: Sample) -> float:
        """Return the weighted log-likelihood of encoded rows."""
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all groups."""
        raise NotImplementedError

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return what a model file holds: names and options as a dict, numbers as arrays."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> ModelResults:
        """Return the model of `pack`, after checking that its content can be what `pack` stored."""
        raise NotImplementedError

    @property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""
        return self.design.labels

    @property
    def formula(self) -> str:
        """The formula as it was given."""
        return self.design.terms.text

    def _rows(self) -> Sample:
        if self.training is None:
            raise DataError(
                "This model has no training rows: it was saved without them, or fitted to data that were read in "
                "batches. Give newdata=; or save it with store_data=True, or fit a table in memory, such as a random "
                "sample of the rows."
            )
        return self.training

    def _index(self) -> pd.Index:
        return pd.RangeIndex(self._rows().n) if self.index is None else self.index

    @property
    def weights(self) -> pd.Series:
        """Frequency weights of the training rows."""
        return pd.Series(self._rows().weights, index=self._index(), name="weights")

    @property
    def model_frame(self) -> pd.DataFrame:
        """The training rows as the model sees them: the response, if there is one, and the predictors, as categories.

        What was missing is missing here too with ``missing="marginal"``, and a level with ``missing="level"``; rows
        that were dropped are not here, nor in anything else that is told of the training rows.
        """
        rows = self._rows()
        columns = {self.labels.response: (rows.response, self.labels.groups)} if self.design.classes else {}
        codes = rows.codes if rows.missing is None else np.where(rows.missing, -1, rows.codes.astype(np.intp))
        for i, (name, levels) in enumerate(zip(self.labels.names, self.labels.levels, strict=True)):
            columns[name] = (codes[:, i], levels)
        return pd.DataFrame(
            {
                k: pd.Categorical.from_codes(codes.astype(np.intp), pd.Index(levels, dtype=object))
                for k, (codes, levels) in columns.items()
            },
            index=self._index(),
        )

    # what is told of the training rows, where the model does not bring it along
    @cached_property
    def _nobs(self) -> float:
        if self.stored is not None:
            return self.stored.nobs
        rows = self._rows()
        return round(rows.total) if rows.whole else rows.total

    def check_likelihood(self) -> None:
        """Raise an OptionError if rows have no likelihood under this model."""

    @cached_property
    def _log_likelihood(self) -> float:
        self.check_likelihood()
        return self.log_likelihood(self._rows()) if self.stored is None else self.stored.log_likelihood

    @cached_property
    def _counts(self) -> list[np.ndarray]:
        if self.stored is not None:
            return self.stored.counts
        return level_counts(self._rows(), self.design.n_levels, len(self.labels.groups))

    def nobs(self) -> float:
        """Return the number of observations: the sum of the weights."""
        return self._nobs

    def logLik(self) -> LogLikelihood:
        """Return the log-likelihood of the training rows, with the parameters of all groups as its ``df``.

        With ``missing="marginal"`` it is the log-likelihood of what is known: missing predictors are summed out.

        Raises
        ------
        OptionError
            If rows have no likelihood under the model, as in a conditional fit or an average; nor are there `aic` and
            `bic` then.
        """
        return LogLikelihood(self._log_likelihood, self.n_parameters, self.nobs())

    @property
    def aic(self) -> float:
        """``-2 logLik + 2 df``. With an approximate ln Z or a penalty in force it only ranks like with like."""
        return -2.0 * self.logLik() + 2.0 * self.logLik().df

    @property
    def bic(self) -> float:
        """``-2 logLik + df ln(nobs)``; see `aic`."""
        return float(-2.0 * self.logLik() + np.log(self.nobs()) * self.logLik().df)

    @verb
    def report(self, path, newdata: Any = None, weights: Any = None) -> None:
        """Write all that the model tells of itself to one HTML page, which needs no network and holds no script.

        Parameters
        ----------
        path : str or path-like
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows for the evaluation of a model with classes, with the response; the training rows by default.
        weights : column name or array_like of shape (n,), optional
            Of the new rows.

        Notes
        -----
        The page has what was dropped and put together, the summary, the evaluation with its figures, the parameters
        with their tests, and the interactions as a table and a graph. It can be read on a telephone, in print and with
        a screen reader.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        Path(path).write_text(report_html(self, newdata, weights), encoding="utf-8")

    @verb
    def save(self, path, *, store_data: bool = False) -> None:
        """Write the model to a file that `bbl.load` reads: versioned, checked by a digest, without pickle.

        Parameters
        ----------
        path : str or path-like
        store_data : bool, default False
            Whether the encoded training rows go into the file too; without them, what needs them
            (``fitted``, ``residuals``, ``model_frame``, ``predict()`` without newdata) is not there after loading.
            What ``summary()`` prints, its tests included, is in the file in any case.

        Raises
        ------
        OSError, BBLTypeError
            If the file cannot be written; an older file of that name is then left as it was.
        """
        write_model(path, *self.pack(flag("store_data", store_data)), kind=self.kind)
