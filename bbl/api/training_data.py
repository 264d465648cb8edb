"""Training data of the public functions that fit models: their arguments, and the conversion of
rows to codes.

A *design* is a formula read against data: predictors, levels and terms. Data that are *read in
batches* (files, Dask, ...) are never in memory as a table; a *source* reads them, and `lazy_source`
returns None for a table. A *deal* describes folds to which rows are dealt meanwhile.
``source.text`` names the source in messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from bbl.design.design import Design, EncodingRules
from bbl.design.formula import check_formula
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import OnCluster
from bbl.design.streams.passes import encode_source
from bbl.design.streams.source import Source
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, RowFolds, TableLike, Weights
from bbl.errors import OptionError
from bbl.memory import out_of_memory
from bbl.parallel import progress_bar
from bbl.rows.dealing import AnyFolds, Deal
from bbl.rows.folds import Folds, splitter_folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "FEWER_PREDICTORS",
    "EncodedData",
    "TrainingData",
    "encode_data",
    "refuse_batches",
    "user_folds",
]

# advice where memory runs out
FEWER_ROWS = "Use fewer rows or columns, or give a file, which is read in batches."
FEWER_PREDICTORS = "Use fewer predictors or levels, or a formula with fewer interactions."


@dataclass(frozen=True)
class TrainingData:
    """Unchecked arguments that name formula and training data; `bbl.bbl` describes them."""

    formula: str
    data: TableLike | Batches | Source
    weights: Weights | None = None
    xlevels: Mapping[Any, Any] | None = None
    novarOk: bool = False
    missing: str = "raise"
    structural_zeros: object = None
    survey: SurveyDesign | None = None


@dataclass(frozen=True)
class EncodedData:
    """Training data as codes.

    Attributes
    ----------
    design : Design
    sample : Sample or StoredSample
        The n rows to fit; a StoredSample only if the data were read in batches.
    index : pandas.Index of length n, or None
        Labels of the n rows; None if the data were read in batches, whose rows the model does not
        keep.
    frame : Frame or None
        The table; None if the data were read in batches.
    row_positions : ndarray of int, shape (n,)
        Positions of the n rows in `frame`; empty if the data were read in batches.
    dealt_folds : Folds, StoredFolds or None
        Folds to which rows were dealt while they were read in batches; None without a `deal` of
        folds.
    survey : SurveySample or None
        Sampling design of the rows of `frame`, and the n rows among them.
    """

    design: Design
    sample: Rows
    index: pd.Index | None
    frame: Frame | None
    row_positions: np.ndarray
    dealt_folds: AnyFolds | None
    survey: SurveySample | None = field(default=None, kw_only=True)

    @property
    def K(self) -> int:
        """Number of response groups."""
        return len(self.design.labels.groups)

    @property
    def rows(self) -> Sample:
        """`sample` as a Sample, for callers that refuse data that are read in batches."""
        return cast(Sample, self.sample)


def refuse_batches(data: object, purpose: str, argument: str) -> None:
    """Raise an OptionError if `data` are read in batches; `purpose` says what needs all rows in
    memory.
    """
    source = lazy_source(data)
    if source is not None:
        raise OptionError(
            f"{purpose} needs all rows in memory, and {source.text} is read in batches.",
            argument=argument,
            hint="Give a table, or a random sample of the rows if there are too many.",
        )


def encode_data(
    training: TrainingData,
    rules: EncodingRules,
    deal: Deal | None = None,
    cluster: OnCluster | None = None,
    verbose: int = 1,
    workers: int = 1,
) -> EncodedData:
    """Read a formula against data, check weights, and encode the rows.

    Parameters
    ----------
    rules : EncodingRules
        Terms, weights and missing values that the engine or learner accepts.
    deal, cluster, verbose, workers
        For data that are read in batches: folds to which rows are dealt, Dask workers that read the
        rows, 0 for no progress bar, and threads.
    """
    check_formula(training.formula)
    weights = training.weights
    survey = None
    source = lazy_source(training.data)
    if source is None:
        with out_of_memory("Formula and codes of the rows", FEWER_ROWS):
            frame = to_frame(training.data)
            if training.survey is not None:
                weights, survey = training.survey.read(frame)  # of all rows of the table
                # columns of the design are no predictors
                rules = replace(rules, aside=training.survey.columns, sampled=True)
            design, sample, index, row_positions = Design.from_data(
                training.formula,
                frame,
                weights,
                training.xlevels,
                training.novarOk,
                training.missing,
                rules,
            )
        # of the rows that are fitted
        survey = None if survey is None else survey.of_rows(row_positions, sample.weights)
        return EncodedData(
            design, sample, index, frame, row_positions, dealt_folds=None, survey=survey
        )
    call_arguments = (
        training.formula,
        weights,
        training.xlevels,
        training.novarOk,
        training.missing,
    )
    with (
        progress_bar(None, "reading", verbose) as progress,
        out_of_memory("Formula and levels of the data", FEWER_PREDICTORS),
    ):
        encoded = encode_source(
            source,
            *call_arguments,
            deal=deal,
            step=progress,
            cluster=cluster,
            rules=rules,
            workers=workers,
        )
    no_positions = np.zeros(0, dtype=np.intp)
    return EncodedData(
        encoded.design,
        encoded.sample,
        index=None,
        frame=None,
        row_positions=no_positions,
        dealt_folds=encoded.folds,
    )


def user_folds(cv: RowFolds, data: TableLike, encoded: EncodedData) -> Folds:
    """Return the folds of a splitter, or of pairs of row positions, restricted to the rows that are
    fitted.

    Parameters
    ----------
    cv : scikit-learn splitter or iterable of (train, validation) row positions
        Positions count all rows of the data, also those that are not fitted.
    data : table
        Argument of the splitter's ``split``; converted to a DataFrame if it has no shape.
    encoded : EncodedData
        The same data, encoded in memory.
    """
    if isinstance(cv, int | np.integer):
        raise OptionError(
            f"cv={cv} is not a splitter.", argument="cv", hint=f"For {cv} folds give nfold={cv}."
        )
    frame = cast(Frame, encoded.frame)
    row_positions = encoded.row_positions
    weights = np.zeros(frame.n)  # of all rows; 0 for those that are not fitted
    weights[row_positions] = encoded.rows.weights
    if not hasattr(data, "shape"):
        data = pd.DataFrame({name: frame.column(name).array for name in frame.columns})
    y = encoded.design.groups(frame)  # response codes of all rows, for ``cv.split(data, y)``
    folds = splitter_folds(cv, data, y, weights)
    # train, held (folds, rows): weights in the training and in the validation of each fold
    return Folds(folds.train[:, row_positions], folds.held[:, row_positions])
