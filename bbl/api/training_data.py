"""Training data of the public functions that fit models: their arguments, and the conversion of
rows to codes.

A *design* is a formula read against data: predictors, levels and terms. Data that are *read in
batches* (files, Dask, ...) are never in memory as a table; a *source* reads them, and `lazy_source`
returns None for a table. A *deal* describes folds to which rows are dealt meanwhile.
``source.text`` names the source in messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.job import FitData
from bbl.design.design import Design, EncodingRules
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import OnCluster
from bbl.design.streams.passes import encode_source
from bbl.design.streams.source import Source
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, RowFolds, TableLike, Weights
from bbl.errors import OptionError
from bbl.memory import out_of_memory
from bbl.model.layout import Layout
from bbl.parallel import progress_bar
from bbl.rows.dealing import Deal
from bbl.rows.folds import Folds, splitter_folds

__all__ = [
    "FEWER_PREDICTORS",
    "encode_data",
    "refuse_batches",
    "user_folds",
]

# advice where memory runs out
FEWER_ROWS = "Use fewer rows or columns, or give a file, which is read in batches."
FEWER_PREDICTORS = "Use fewer predictors or levels, or a formula with fewer interactions."


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
    formula: str,
    data: TableLike | Batches | Source,
    weights: Weights | None = None,
    *,
    rules: EncodingRules,
    xlevels: Mapping[Any, Any] | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    survey: SurveyDesign | None = None,
    deal: Deal | None = None,
    cluster: OnCluster | None = None,
    verbose: int = 1,
    workers: int = 1,
) -> FitData:
    """Read a formula against data, check weights, and encode the rows; the layout is not made.

    Parameters
    ----------
    formula, data, weights, xlevels, novarOk, missing
        Unchecked arguments; `bbl.bbl` describes them.
    rules : EncodingRules
        Terms, weights and missing values that the engine or learner accepts.
    survey : SurveyDesign, optional
        Sampling design, which names the weights.
    deal, cluster, verbose, workers
        For data that are read in batches: folds to which rows are assigned, Dask workers that read
        the rows, 0 for no progress bar, and threads.
    """
    source = lazy_source(data)
    layout = cast(Layout, None)  # its terms depend on the family of models
    if source is not None:
        with (
            progress_bar(None, "reading", verbose) as progress,
            out_of_memory("Formula and levels of the data", FEWER_PREDICTORS),
        ):
            encoded = encode_source(
                source,
                formula,
                weights,
                xlevels,
                novarOk,
                missing,
                deal=deal,
                step=progress,
                cluster=cluster,
                rules=rules,
                workers=workers,
            )
        labels = encoded.design.labels
        return FitData(
            encoded.sample,
            layout,
            len(labels.groups),
            labels,
            design=encoded.design,
            dealt_folds=encoded.folds,
        )
    with out_of_memory("Formula and codes of the rows", FEWER_ROWS):
        frame = to_frame(data)
        drawn = None
        if survey is not None:
            weights, drawn = survey.read(frame)  # of all rows of the table
            # columns of the design are no predictors
            rules = replace(rules, aside=survey.columns, sampled=True)
        design, sample, index, row_positions = Design.from_data(
            formula, frame, weights, xlevels, novarOk, missing, rules
        )
        if survey is not None:
            design = replace(design, weights=survey.weights)
    return FitData(
        sample,
        layout,
        len(design.labels.groups),
        design.labels,
        design=design,
        index=index,
        frame=frame,
        row_positions=row_positions,
        survey=None if drawn is None else drawn.of_rows(row_positions, sample.weights),
    )


def user_folds(cv: RowFolds, data: TableLike, encoded: FitData) -> Folds:
    """Return the folds of a splitter, or of pairs of row positions, restricted to the rows that are
    fitted.

    Parameters
    ----------
    cv : scikit-learn splitter or iterable of (train, validation) row positions
        Positions count all rows of the data, also those that are not fitted.
    data : table
        Argument of the splitter's ``split``; converted to a DataFrame if it has no shape.
    encoded : FitData
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
