"""Check the data of Bayesian network classifiers: formula, levels, rows and folds.

In `bbl.api.network`, predictors are called *features* and the response is called the *class*; an
unknown class has the code -1.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from bbl.api.training_data import encode_data, refuse_batches, user_folds
from bbl.boltzmann.job import FitData
from bbl.checks import integer, near_match
from bbl.design.design import EncodingRules
from bbl.design.formula import check_formula
from bbl.design.frames import Frame, to_frame
from bbl.design.grammar import quoted
from bbl.design.interactions import Cube, Interactions
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.source import Source
from bbl.design.table_types import Batches, RowFolds, Splitter, TableLike, Weights
from bbl.errors import BBLTypeError, DataWarning, FormulaError, OptionError
from bbl.results.network.network import NetworkResults
from bbl.rows.folds import Folds, stratified_folds

__all__ = ["formula_of", "make_folds", "prepare", "restrict_features"]


def restrict_features(prepared: FitData, names: tuple) -> FitData:
    """Return the encoded data with only the features `names`, in the order of the data."""
    labels = prepared.design.labels
    if set(names) == set(labels.names):
        return prepared
    positions = [i for i, name in enumerate(labels.names) if name in set(names)]
    predictors = tuple(prepared.design.predictors[i] for i in positions)
    terms = replace(
        prepared.design.terms,
        text=formula_of(labels.response, [predictor.name for predictor in predictors]),
        predictors=tuple(predictor.name for predictor in predictors),
        interactions=Interactions(Cube()),  # no interactions
    )
    sample = prepared.rows
    missing = None if sample.missing is None else np.ascontiguousarray(sample.missing[:, positions])
    if missing is not None and not missing.any():
        missing = None
    restricted = replace(
        sample, codes=np.ascontiguousarray(sample.codes[:, positions]), missing=missing
    )
    design = replace(prepared.design, terms=terms, predictors=predictors)
    return replace(prepared, design=design, labels=design.labels, sample=restricted)


def formula_of(class_: Hashable, names: Iterable[Hashable]) -> str:
    """Return the formula ``class ~ a + b`` for a class and its features, or ``class ~ 1`` without
    features.
    """
    return f"{quoted(class_)} ~ {' + '.join(map(quoted, names)) or '1'}"


def prepare(
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None = None,
    xlevels: Mapping[Any, Any] | None = None,
    *,
    missing: str,
    in_memory_argument: str = "",
    verbose: int = 1,
) -> FitData:
    """Encode the data, given a formula or the name of the class, and keep all declared levels.

    `in_memory_argument` names the argument that requires all rows in memory, such as ``"wanbia"``
    or ``"learner='tan_hc'"``; it is "" if there is none.
    """
    check_formula(formula)
    source = lazy_source(data)
    rows: Frame | Source = to_frame(data) if source is None else source
    if in_memory_argument:
        # of the last column, only the name is needed
        refuse_batches(rows, in_memory_argument, in_memory_argument.partition("=")[0])
    if "~" not in formula:
        # a source's columns, without rows
        frame = rows.frame("data") if isinstance(rows, Source) else rows
        name = formula.strip().strip("`")
        if not frame.has(name):
            near = near_match(name, frame.columns)
            first_columns = ", ".join(map(str, frame.columns[:10]))
            raise FormulaError(
                f"formula {formula!r}: {name!r} is not a column of the data. Its columns are "
                f"{first_columns}.",
                column=name,
                argument="formula",
                hint=f"{near}Pass the name of the class, or a formula such as 'class ~ .'.",
            )
        has_weight_column = isinstance(weights, str) and weights in frame.columns
        # columns except the class, and except the weights if they are another column
        n_features = len(frame.columns) - 1 - (has_weight_column and weights != name)
        formula = f"{quoted(name)} ~ {'.' if n_features else '1'}"
    # interactions of any order are parsed, so that the error below can name them
    rules = EncodingRules(declared=True, order=None)
    encoded = encode_data(
        formula,
        cast(TableLike, rows),
        weights,
        rules=rules,
        xlevels=xlevels,
        missing=missing,
        verbose=verbose,
    )
    design = encoded.design
    term = design.terms.interactions.find_term(2)  # an interaction, or None
    if term is not None:
        interaction_text = ":".join(str(design.labels.names[i]) for i in term)
        raise FormulaError(
            f"formula {formula!r} contains the interaction {interaction_text}, but "
            f"{NetworkResults._refusals['pairs']}.",
            argument="formula",
            hint=(
                "Write 'class ~ .' or 'class ~ a + b', and specify a structure by hand with "
                "networks.structure()."
            ),
        )
    return encoded


def _train_and_validation(folds: Iterable, n: int) -> list[tuple[np.ndarray, Any]]:
    """Return the (training positions, validation positions) of each fold, given the positions of
    the validated rows among n rows.

    The model of a fold is trained on all rows that the fold does not validate.
    """
    rows = np.arange(n)
    try:  # rows[...] raises an IndexError if positions are invalid
        return [
            (np.setdiff1d(rows, rows[np.asarray(validation, dtype=np.intp)]), validation)
            for validation in folds
        ]
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"folds must be lists of row positions between 0 and {n - 1} ({error}).",
            argument="folds",
            hint="For each fold, pass the positions of its validation rows.",
        ) from None


def make_folds(
    folds: Splitter | Iterable[ArrayLike] | None,
    prepared: FitData,
    k: int,
    rng: np.random.Generator,
) -> Folds:
    """Check the user's `folds` (validated row positions, or a splitter), or draw `k` folds with
    `rng`.

    Folds that are drawn have nearly equal sizes within each class.
    """
    sample = prepared.rows
    labels = prepared.design.labels
    if folds is not None:
        if isinstance(folds, str) or not (hasattr(folds, "split") or isinstance(folds, Iterable)):
            raise BBLTypeError(
                "folds must be a list of arrays of row positions or a scikit-learn splitter; "
                f"got {folds!r}.",
                argument="folds",
                value=folds,
            )
        frame = cast(Frame, prepared.frame)
        cv = (
            folds
            if hasattr(folds, "split")
            else _train_and_validation(cast(Iterable, folds), frame.n)
        )
        return user_folds(cast(RowFolds, cv), frame, prepared)
    k = integer("k", k, 2)
    has_class = sample.response >= 0
    total = float(sample.weights[has_class].sum())
    if k > total:
        raise OptionError(
            f"k must be between 2 and {total:.0f}, the number of rows with a known class; got {k}.",
            argument="k",
            hint="Use fewer folds.",
        )
    class_totals = np.bincount(
        sample.response[has_class], sample.weights[has_class], len(labels.groups)
    )
    smallest = int(np.argmin(np.where(class_totals > 0, class_totals, np.inf)))
    if class_totals[smallest] < k:
        warnings.warn(
            DataWarning(
                f"{labels.response}={labels.groups[smallest]!r} has {class_totals[smallest]:.0f} "
                f"rows, fewer than the k={k} folds, so some folds contain none of them.",
                hint="Use fewer folds (k), or merge rare classes.",
            ),
            stacklevel=4,
        )
    return stratified_folds(sample, k, rng)
