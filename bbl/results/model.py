"""ModelResults, the base class of fitted models: training rows, likelihood, criteria, summary,
report and model file.

Below, n, m and K are the numbers of rows, predictors and groups (K = 1 for a model without a
response), and predictor i has L_i levels.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.capabilities import MethodTraits
from bbl.checks import check_keywords, flag
from bbl.design.design import Design
from bbl.design.frames import to_frame
from bbl.design.labels import Labels
from bbl.design.numbers import NumberFactor
from bbl.design.streams.source import TrainingSource
from bbl.errors import DataError, Hint, OptionError, with_hint
from bbl.model.moments import level_counts
from bbl.parallel import progress_bar
from bbl.report.explore.score_model import ScoreModel
from bbl.report.explore.section import WhatIf
from bbl.report.machine.summary import Section, Summary
from bbl.report.markup import html_fragment
from bbl.report.page import Part, page_html
from bbl.report.text import label_text
from bbl.results.deprecated import Deprecated, DeprecatedNames
from bbl.results.exploration import (
    CONTENT,
    Exploration,
    is_in_notebook,
    refuse_numbers,
    what_if,
    what_if_assets,
    what_if_page,
    what_if_part,
)
from bbl.results.log_likelihood import LogLikelihood
from bbl.results.report_page import data_part
from bbl.rows.kept import KeptRows
from bbl.rows.sample import Sample
from bbl.storage import write_model

__all__ = [
    "ModelResults",
    "Training",
    "model_frame",
]

# names in R, statsmodels and scikit-learn, and what to use here
OTHER_NAMES = {
    "AIC": "aic",
    "BIC": "bic",
    "anova": "bbl.anova(fit, other)",
    "coefficients": "coef()",
    "confint": "conf_int()",
    "cv": "crossVal()",
    "feature_importances_": "importance()",
    "fitted_values": "fitted()",
    "load": "bbl.load(path)",
    "loglik": "logLik()",
    "margins": "avg_comparisons()",
    "predict_proba": "predict(newdata, type='prob')",
    "step": "bbl.step(fit)",
    "vcov": "cov_params()",
    "wald_test": "inference().tests()",
}


@dataclass(frozen=True)
class Training:
    """Summaries of the training rows, which model files contain even without the rows.

    Attributes
    ----------
    nobs : int or float
        Number of observations: the total weight.
    log_likelihood : float
        Log-likelihood of the training rows; nan if the model does not have one.
    counts : list of m ndarrays, shape (K, L_i)
        Weighted counts of every level in every group, one array per predictor.
    sections : list of Section, or None
        Tests printed in the summary; None for a model from a file of an earlier version, which did
        not store them.
    sampling_design : str or None
        Text on the sampling design for the summary; None if the model has no sampling design.
    """

    nobs: float
    log_likelihood: float
    counts: list[np.ndarray]
    sections: list[Section] | None = None
    sampling_design: str | None = None


def model_frame(design: Design, rows: Sample, index: pd.Index) -> pd.DataFrame:
    """Decode rows and return a table of categories and numbers (see `ModelResults.model_frame`)."""
    columns: dict[Hashable, object] = {}
    if design.classes:
        columns[design.response.name] = pd.Categorical.from_codes(
            rows.response, pd.Index(design.response.levels, dtype=object)
        )
    for i, factor in enumerate(design.predictors):
        codes = rows.codes[:, i]
        is_missing = None if rows.missing is None else rows.missing[:, i]
        if isinstance(factor, NumberFactor):
            numbers = codes * factor.scale + factor.center
            columns[factor.name] = (
                numbers if is_missing is None else np.where(is_missing, np.nan, numbers)
            )
            continue
        # signed integers, because pandas uses the code -1 for missing values
        codes = codes.astype(np.intp)
        columns[factor.name] = pd.Categorical.from_codes(
            codes if is_missing is None else np.where(is_missing, -1, codes),
            pd.Index(factor.levels, dtype=object),
        )
    return pd.DataFrame(columns, index=index)


@dataclass(frozen=True, repr=False)
class ModelResults(DeprecatedNames, ABC):
    """A fitted model. Each model family implements the abstract methods.

    Attributes
    ----------
    call : str
        The call that created the model.
    design : Design
        Formula, factors and levels; used to encode new data like the training data.
    training : Sample or None
        The encoded training rows; None in a model loaded from a file without them.
    index : pandas.Index or None
        Labels of the training rows (rows with positive weight).
    """

    call: str
    design: Design
    training: Sample | None
    index: pd.Index | None
    # summaries of the training rows, for a model that was loaded from a file or fitted in batches
    # and may lack the rows. None for any other fit, which computes the same numbers from `training`
    _stored: Training | None = field(default=None, kw_only=True, repr=False)
    # for a fit of data read in batches: its rows without their order, or a sample of them
    _kept: KeptRows | None = field(default=None, kw_only=True, repr=False)
    # the data of such a fit, if they can be read again; not stored in files
    _source: TrainingSource | None = field(default=None, kw_only=True, repr=False)

    _kind: ClassVar[str]  # model kind in the header of the model file
    # the `CAPABILITIES` that this kind of model lacks, with reasons
    _refusals: ClassVar[Mapping[str, str]] = {}

    check_likelihood = Deprecated("_check_likelihood")
    kind = Deprecated("_kind")
    log_likelihood = Deprecated("_log_likelihood_of", "logLik()")
    pack = Deprecated("_pack", "save()")
    refusals = Deprecated("_refusals")
    stored = Deprecated("_stored")
    unpack = Deprecated("_unpack", "bbl.load()")

    @property
    @abstractmethod
    def class_shares(self) -> np.ndarray:
        """Class proportions in the training rows, shape (K,)."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of free parameters of all groups."""

    @property
    @abstractmethod
    def _traits(self) -> MethodTraits:
        """Properties of the method, for averages and comparisons."""

    @abstractmethod
    def _check_likelihood(self) -> None:
        """Raise an OptionError if this model does not define a likelihood of rows."""

    @abstractmethod
    def _log_likelihood_of(self, rows: Sample) -> float:
        """Return the weighted log-likelihood of encoded rows."""

    def logLik(self) -> LogLikelihood:
        """Return the log-likelihood of the training rows.

        Its attribute ``df`` is the number of parameters of all groups.

        With ``missing="marginal"``, missing predictors are averaged over.

        Raises
        ------
        OptionError
            If the model does not define a likelihood of rows, for example if it was fitted by
            conditional likelihood or is an average. In this case, `aic` and `bic` are not available
            either.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.logLik()
        'log Lik.' -3865.815 (df=18)
        """
        return LogLikelihood(self._log_likelihood, self.n_parameters, self.nobs())

    def _ratio_test(self, other: ModelResults) -> dict[str, float | int | str]:
        """Return the likelihood ratio test of two fits: ``df``, ``test`` (its name, or the reason
        why it is missing), ``ratio`` and ``p``.

        Raises a DataError or OptionError if the fits are not nested, have different rows, or are
        not both Boltzmann machines.
        """
        raise OptionError("the test requires Boltzmann machines.")

    def _composite_aic(self) -> float:
        """Return the composite-likelihood AIC. Raises an OptionError if it is not available."""
        raise OptionError("composite criteria require Boltzmann machines.")

    @abstractmethod
    def summary(self) -> Summary:
        """Return a summary that can be displayed as text, HTML or LaTeX."""

    @abstractmethod
    def __repr__(self) -> str:
        """Return the printed form: the call and key statistics."""

    @abstractmethod
    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: the call, and tables of key statistics."""

    def _repr_html_(self) -> str:
        return html_fragment(*self._notebook())

    @abstractmethod
    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of a model file, i.e. a dict of names and options, and a dict of
        arrays.
        """

    @classmethod
    @abstractmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> Self:
        """Return the model from the content of a model file.

        Raises a ValueError if the content was not created by `_pack`.
        """

    @abstractmethod
    def _evaluation_parts(self, newdata: object, weights: Hashable | ArrayLike) -> list[Part]:
        """Return the sections of the report on predictions, an empty list for a model without
        classes.
        """

    @abstractmethod
    def _model_parts(self) -> list[Part]:
        """Return the sections of the report on parameters, structure or terms."""

    @abstractmethod
    def _score_model(self) -> ScoreModel:
        """Return the class scores as sums of tables.

        Raises an OptionError if the class scores are not sums of tables, or if the tables are too
        large for a page.
        """

    def _what_if(self) -> WhatIf:
        """Return the "what if" section of HTML pages.

        Raises an OptionError for regressions on numeric predictors, and in the same cases as
        `_score_model`.
        """
        refuse_numbers(self.labels)
        return what_if(
            self._score_model(),
            self.design,
            self._counts,
            self.training,
            self.class_shares,
            self._shares_in_use,
        )

    def _what_if_part(self) -> Part:
        """Return the what-if section of the report, or a sentence that explains why it is
        missing.
        """
        try:
            return what_if_part(self._what_if())
        except OptionError as error:
            return Part("What if", [f"Not available: {error.message}"])

    @property
    def _shares_in_use(self) -> np.ndarray:
        """Class proportions (K,) used for predictions."""
        return self.class_shares

    def _title(self) -> str:
        """Return the title of pages."""
        response = self.labels.response
        return f"Model of {'its rows' if response is None else label_text(response)}"

    def _lead(self) -> str:
        """Return the sentence below the title of pages."""
        m = len(self.labels.names)
        return (
            f"{self._rows_text()}, {m} predictor{'s' * (m != 1)}, {self.n_parameters} parameters."
        )

    def _summary_notes(self) -> list[str]:
        """Return the sentences above the summary in the report."""
        return []

    @property
    def labels(self) -> Labels:
        """Names of the response, its groups, the predictors and their levels."""
        return self.design.labels

    @property
    def formula(self) -> str:
        """The formula of the call, as text."""
        return self.design.terms.text

    def _rows(self, *, takes_newdata: bool = False) -> Sample:
        """Return the training rows.

        Raises a DataError if the model has none. The hint mentions ``newdata`` if the caller has
        this argument.
        """
        if self.training is None:
            problem = (
                "This model has no training rows: it was saved without them, or fitted to data "
                "read in batches."
                if self._kept is None
                else "This model does not keep the order of the training rows, because the data "
                "were read in batches."
            )
            raise DataError(
                problem,
                hint=Hint(
                    f"{'Pass newdata=, save' if takes_newdata else 'Save'} the model with "
                    "store_data=True, or refit it to a table in memory, such as "
                    "bbl.sample_rows(data, 100_000).",
                    command_line="Save the model with --store-data, or refit it to a table in "
                    "memory, such as a random sample of the rows.",
                ),
            )
        return self.training

    @property
    def _rereads(self) -> TrainingSource | None:
        """Training data that must be read again if all rows are needed, or None."""
        is_complete = self._kept is not None and self._kept.is_complete
        return None if self.training is not None or is_complete else self._source

    def _all_rows(self, *, takes_newdata: bool = False) -> Sample:
        """Return all training rows, in arbitrary order.

        These are the rows of `_rows` or, for data read in batches, the kept rows if all rows were
        kept.
        """
        if self.training is not None or self._kept is None:
            return self._rows(takes_newdata=takes_newdata)
        if not self._kept.is_complete:
            raise DataError(
                "This result requires all training rows, but the data were read in batches, and "
                "this model keeps only a random sample of the rows.",
                hint=f"{'Pass newdata=, or refit' if takes_newdata else 'Refit'} the model to a "
                "table in memory, such as bbl.sample_rows(data, 500_000).",
            )
        return self._kept.sample

    def _index(self) -> pd.Index:
        """Return the labels of the training rows, 0 to n - 1 by default."""
        return pd.RangeIndex(self._rows().n) if self.index is None else self.index

    def _encode_rows(
        self, newdata: object, unseen: str
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, pd.Index]:
        """Return the codes (n, m), missing cells (n, m) or None, dropped rows (n,) or None, and row
        labels of new rows.

        If `newdata` is None, the training rows are used. Rows are dropped if the fit would have
        dropped them because of missing values. Training rows are never dropped. An unknown level
        raises an error if `unseen` is "raise", and is treated as missing if it is "ignore".
        """
        if newdata is None:
            rows = self._rows(takes_newdata=True)
            return rows.codes, rows.missing, None, self._index()  # None: no row is dropped
        frame = to_frame(newdata, "newdata")
        # encode: codes, missing
        return *self.design.encode(frame, unseen), self.design.dropped(frame), frame.index

    @property
    def weights(self) -> pd.Series:
        """Frequency weights of the training rows."""
        return pd.Series(self._rows().weights, index=self._index(), name="weights")

    @property
    def model_frame(self) -> pd.DataFrame:
        """The encoded training rows as categories: the response, if any, and the predictors.

        A missing value remains missing with ``missing="marginal"`` and is a level with
        ``missing="level"``. Dropped rows are absent.
        """
        return model_frame(self.design, self._rows(), self._index())

    @cached_property
    def _nobs(self) -> float:
        """Total weight, as an int if all weights are integers."""
        if self._stored is not None:
            return self._stored.nobs
        rows = self._rows()
        return round(rows.total) if rows.whole else rows.total

    @cached_property
    def _log_likelihood(self) -> float:
        """Log-likelihood of the training rows."""
        self._check_likelihood()  # raises an OptionError if the model has no likelihood
        return (
            self._log_likelihood_of(self._rows())
            if self._stored is None
            else self._stored.log_likelihood
        )

    @cached_property
    def _counts(self) -> list[np.ndarray]:
        """Weighted counts (K, L_i) of each predictor's L_i levels in K groups, one array per
        predictor.
        """
        if self._stored is not None:
            return self._stored.counts
        rows = self._rows()
        if self.design.is_number.any():  # rows of numbers are counted as a whole
            rows = replace(rows, codes=self.design.level_codes(rows.codes))
        return level_counts(rows, self.design.n_levels, len(self.labels.groups))

    def nobs(self) -> float:
        """Return the number of observations: the total weight.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.nobs()
        2201
        """
        return self._nobs

    if not TYPE_CHECKING:  # so that type checkers report unknown attributes

        def __getattr__(self, name: str):
            """Raise an AttributeError, with a hint for names used by other packages.

            Python calls this method only if the object does not have the attribute.
            """
            if name in OTHER_NAMES:
                message = f"{type(self).__name__!r} object has no attribute {name!r}."
                raise AttributeError(with_hint(message, f"Use {OTHER_NAMES[name]}."))
            return object.__getattribute__(self, name)

    def _rows_text(self) -> str:
        """Return the number of observations as text; with sampling weights, the effective
        number.
        """
        nobs = self.nobs()
        if isinstance(nobs, int):
            return f"{nobs:,} observations"
        return f"an effective number of {nobs:,.1f} observations"

    @property
    def aic(self) -> float:
        """``-2 logLik + 2 df``; with a penalty, compare only fits that use the same method.

        Raises an OptionError if ln Z is approximated with an unknown error (`log_z` "half",
        "pseudo" or "mf").
        """
        likelihood = self.logLik().check_comparable()
        return -2.0 * likelihood + 2.0 * likelihood.df

    @property
    def bic(self) -> float:
        """``-2 logLik + df ln(nobs)``; see `aic`."""
        likelihood = self.logLik().check_comparable()
        return float(-2.0 * likelihood + np.log(self.nobs()) * likelihood.df)

    @check_keywords
    def report(
        self,
        path: str | os.PathLike[str],
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        *,
        interactive: bool = True,
        verbose: int = 1,
    ) -> None:
        """Write the evaluation, parameters, figures and summary to a self-contained HTML page.

        The page begins with an interactive "what if" form (see `explore`), unless the model is too
        large. The other sections describe the accuracy of the predictions and the most important
        predictors, the evaluation with its figures, the differences between the groups with their
        tests, the interactions as a table and a graph, the summary, and the data with dropped rows
        and merged levels. The layout is suitable for phones, print and screen readers.

        Parameters
        ----------
        path : str or path-like
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the response, for the evaluation of a model with classes; the training rows by
            default.
        weights : column name or array_like of shape (n,), optional
            Weights of the new rows. By default, the column that contained the training weights,
            such as ``"Freq"`` after ``weights="Freq"``, if `newdata` has it; otherwise all rows
            have equal weight.
        interactive : bool, default True
            Whether the page has the form, a graph of interactions with a threshold, and tables that
            can be sorted; otherwise the page contains no scripts.
        verbose : int, default 1
            0 hides the progress bar.

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "titanic.html")
        ...     fit.report(path)
        ...     path.read_text(encoding="utf-8")[:15]
        '<!DOCTYPE html>'
        """
        sections = (  # each is a step of the progress bar
            lambda: self._evaluation_parts(newdata, weights),
            self._model_parts,
            lambda: [Part("Summary", self._summary_notes(), [self.summary().as_html()])],
            lambda: [data_part(self.call, self.design, self._counts, self.class_shares)],
        )
        parts: list[Part] = []
        if flag("interactive", interactive):
            parts.append(self._what_if_part())
        with progress_bar(len(sections), "report", verbose) as progress:
            for make_parts in sections:
                parts += make_parts()
                progress()
        if not interactive:
            parts = [replace(part, widget="") for part in parts]
        html = page_html(
            self._title(),
            self._lead(),
            parts,
            f"Generated by bbl, the Boltzmann Bayes learner. {CONTENT}",
            **(what_if_assets() if interactive else {}),
        )
        Path(path).write_text(html, encoding="utf-8")

    @check_keywords
    def explore(self, path: str | os.PathLike[str] | None = None) -> Exploration:
        """Create an interactive "what if" page, a self-contained HTML file with predictions for
        chosen levels.

        The page lists all levels of each predictor, has a slider for each numeric predictor, and
        includes "unknown" if averaging over the levels is fast enough. After each choice, it shows
        the probabilities, the contributions of the levels, and the decision for given costs. Class
        proportions can be changed. The probabilities are the same as in `predict`. For a model
        without a response, the page shows the probabilities of any predictor given the others. The
        chosen levels are part of the page's address, which can be shared.

        Parameters
        ----------
        path : str or path-like, optional
            By default ``explore.html`` in the current directory; in a notebook the page is shown
            and not written.

        Returns
        -------
        Exploration
            The page, which is displayed in notebooks.

        Raises
        ------
        OptionError
            If the class scores are not sums of tables (hidden units, normal scores of numeric
            predictors, numeric predictors in ``shooter``), or the model is too large for a page.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = fit.explore(Path(folder, "titanic.html"))
        ...     page.path.exists()
        True
        """
        html = what_if_page(self._what_if(), self._title(), self._lead())
        if path is None and is_in_notebook():
            return Exploration(html, None)
        written = Path("explore.html" if path is None else path)
        written.write_text(html, encoding="utf-8")
        return Exploration(html, written)

    @check_keywords
    def save(self, path: str | os.PathLike[str], *, store_data: bool = False) -> None:
        """Write the model to a file for `bbl.load`. The format is versioned, has a checksum and
        does not use pickle.

        Parameters
        ----------
        path : str or path-like
        store_data : bool, default False
            Whether to store the encoded training rows as well. Without them, ``fitted``,
            ``residuals``, ``model_frame`` and ``predict()`` without newdata raise a DataError after
            loading; ``summary()`` prints the same text and tests with and without the rows.

        Raises
        ------
        OSError, BBLTypeError
            If the file cannot be written. An existing file with the same name then remains
            unchanged.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(Path(folder, "titanic.bbl"))
        ...     loaded = bbl.load(Path(folder, "titanic.bbl"))
        >>> loaded.predict(titanic.head(2), type="class").tolist()
        ['Yes', 'No']
        """
        write_model(path, *self._pack(flag("store_data", store_data)), kind=self._kind)
