"""The public functions for scores of Bayesian network classifiers and for mutual information: `cv`,
`accuracy`, `cmi`.

There are n rows and K classes. Features of a `Structure` are positions in its `columns`, the
features available to its learner.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.api.network.data import formula_of, make_folds, prepare, restrict_features
from bbl.api.network.fit import local_dags
from bbl.api.training_data import refuse_batches
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.information import UNITS, conditional_information
from bbl.bayesnet.learners import LEARNERS, Task
from bbl.bayesnet.parameters import fit
from bbl.bayesnet.predict import class_scores
from bbl.boltzmann.job import FitData
from bbl.checks import check_keywords, choice, flag, generator
from bbl.design.factors import Factor, check_discrete
from bbl.design.frames import to_frame
from bbl.design.table_types import Batches, Splitter, TableLike, Weights
from bbl.design.values import factorise
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.parallel import n_workers, progress_bar, run_tasks
from bbl.results.network.network import NetworkResults
from bbl.results.network.structure import AveragedStructure
from bbl.rows.sample import Sample
from bbl.stats.metrics import SCORES, auc, link, log_probabilities

__all__ = ["accuracy", "cmi", "cv"]


@check_keywords
def cv(
    models: NetworkResults | Sequence[NetworkResults] | Mapping[Any, NetworkResults],
    data: TableLike | Batches,
    k: int = 10,
    dag: bool = True,
    mean: bool = True,
    folds: Splitter | Iterable[ArrayLike] | None = None,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    *,
    score: str = "accuracy",
    weights: Weights | None = None,
    verbose: int = 1,
) -> pd.Series | pd.DataFrame:
    """Cross-validate one or several Bayesian network classifiers on the same folds.

    Parameters
    ----------
    models : NetworkResults, or a list or dict of them
        Models fitted by `lp` or `bnc`. Each is refitted on the training rows of every fold, with
        its own settings.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        Data with the class and the features.
    k : int, default 10
        Number of folds, of nearly the same size in each class.
    dag : bool, default True
        Whether the structure is relearned on the training rows of each fold, by the same learner
        with the same options; otherwise, the model keeps its structure. Structures from `aode` and
        from `structure` never change.
    mean : bool, default True
        Whether to return the mean over folds instead of each fold's score.
    folds : list of arrays of row positions, or scikit-learn splitter, optional
        The rows validated by each fold; overrides `k`.
    seed : int, numpy.random.Generator or None, default 0
        Seed for the folds and for models that draw at random. Results do not depend on `n_jobs`.
    n_jobs : int, optional
        Number of threads; None or -1 uses all cores.
    score : {"accuracy", "logloss", "brier", "auc"}, default "accuracy"
        Smaller log-loss and Brier scores are better; "auc" requires two classes.
    weights : column name or array of length n, optional
        Integer frequencies.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    Series or DataFrame
        The unweighted mean over folds for each model; with ``mean=False``, a table with one row per
        fold and one column per model.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> models = [
    ...     networks.bnc(name, "Survived ~ .", titanic, 1, weights="Freq")
    ...     for name in ("nb", "tan_cl", "aode")
    ... ]
    >>> networks.cv(models, titanic, k=5, weights="Freq").round(3)
    nb        0.779
    tan_cl    0.789
    aode      0.783
    dtype: float64
    """
    models_by_name = _models_by_name(models)
    choice("score", score, (*SCORES, "auc"))
    learns_structure = flag("dag", dag)
    workers = n_workers(n_jobs)
    rng = generator(seed)
    refuse_batches(data, "cv()", "data")
    frame = to_frame(data)
    encoded_data = [_encode_as_fitted(model, frame, weights) for model in models_by_name.values()]
    first_data = encoded_data[0]
    if any(
        len(other_data.rows.weights) != len(first_data.rows.weights) for other_data in encoded_data
    ):
        raise OptionError(
            "The models treat missing values differently, so they use different rows.",
            hint="Fit all models with the same missing option.",
        )
    labels = first_data.design.labels
    if score == "auc" and len(labels.groups) != 2:
        raise OptionError(
            f"score='auc' requires two classes, but there are {len(labels.groups)}.",
            argument="score",
            hint="Use score='accuracy'.",
        )
    all_folds = make_folds(folds, first_data, k, rng)
    n_models = len(encoded_data)
    n_folds = len(all_folds)
    tasks = [
        # train, validation (n,): row weights in the fold
        (model, model_data, train, validation, learns_structure, score, fold_rng)
        for model, model_data, model_rng in zip(
            models_by_name.values(), encoded_data, rng.spawn(n_models), strict=True
        )
        for train, validation, fold_rng in zip(
            all_folds.train, all_folds.validation_weights, model_rng.spawn(n_folds), strict=True
        )
    ]
    with progress_bar(len(tasks), "cv", verbose) as progress:
        scores = run_tasks(_score_fold, tasks, workers, progress)
    table = pd.DataFrame(
        np.array(scores).reshape(n_models, n_folds).T, columns=list(models_by_name)
    )
    table.index.name = "fold"
    return table.mean() if flag("mean", mean) else table


def _models_by_name(models: object) -> dict[Any, NetworkResults]:
    """Check `models`, and return them by name; unnamed models are named after their learners: nb,
    nb.1, nb.2, ...
    """
    if isinstance(models, NetworkResults):
        models = [models]
    if not isinstance(models, Mapping):
        if isinstance(models, str) or not isinstance(models, Sequence):
            raise BBLTypeError(
                "models must be a fitted network, or a list or dict of them; got "
                f"{type(models).__name__}.",
                argument="models",
            )
        by_name: dict[Any, Any] = {}
        for model in models:
            learner = getattr(getattr(model, "structure", None), "learner", None) or "model"
            # names: the learner, then "." and a number
            n_same_learner = sum(str(name).rsplit(".", 1)[0] == learner for name in by_name)
            by_name[f"{learner}.{n_same_learner}" if n_same_learner else learner] = model
        models = by_name
    not_networks = [model for model in models.values() if not isinstance(model, NetworkResults)]
    if not_networks or not models:
        type_name = f"{type(not_networks[0]).__name__}" if not_networks else "none"
        raise BBLTypeError(
            f"models must be networks fitted by lp() or bnc(); got {type_name}.",
            argument="models",
        )
    return dict(models)


def _encode_as_fitted(model: NetworkResults, data: TableLike, weights: Weights | None) -> FitData:
    """Encode data with the levels of a fitted model and its treatment of missing values.

    The features are all columns that were available to the model's learner, including columns that
    are not in its structure.
    """
    factors = (model.design.response, *model.design.predictors)
    levels_by_name = {  # the level of missing values is added because of the argument `missing`
        factor.name: [
            level
            for level, kind in zip(factor.levels, factor.kinds, strict=True)
            if kind != "missing"
        ]
        for factor in factors
    }
    formula = formula_of(model.structure.class_var, model.structure.columns)
    return prepare(formula, data, weights, levels_by_name, missing=model.design.missing)


def _score_fold(
    model: NetworkResults,
    encoded: FitData,
    train_weights: np.ndarray,
    validation_weights: np.ndarray,
    learns_structure: bool,
    score: str,
    rng: np.random.Generator,
) -> float:
    """Refit a model on a fold, and return its `score` on the held-out rows with a known class.

    The weights (n,) of the encoded rows define the fold. With `learns_structure`, the structure is
    relearned.
    """
    sample = encoded.rows
    design = encoded.design
    K = encoded.K
    train = sample.weighted(train_weights)  # `weighted` drops rows of weight 0
    validation = sample.weighted(np.where(sample.response >= 0, validation_weights, 0.0))
    if not train.n or not validation.n:
        raise DataError(
            "A fold has no training rows, or no rows with a known class to score.",
            hint="Use fewer folds (k).",
        )
    structure = model.structure
    dags: Sequence[Dag] = structure.dags
    if learns_structure and structure.learner is not None:
        task = Task(train, design.n_levels, K, rng)
        dags = LEARNERS[structure.learner].learn(task, structure.options).dags
    # fssj and bsej may exclude features from the structure. `restricted` contains the other
    # features, and `_select_columns` restricts the rows of the fold to them
    restricted = restrict_features(encoded, tuple(structure.columns[i] for i in dags[0].features))
    names = restricted.design.labels.names
    # a `Structure` or an `AveragedStructure`, of the same type as the model's
    fold_structure = type(structure)(
        structure.class_var, structure.columns, tuple(dags), structure.learner
    )
    # the encoded rows contain all `columns`
    feature_positions = [structure.columns.index(name) for name in names]
    averages_dags = isinstance(structure, AveragedStructure)
    train_rows, validation_rows = (
        _select_columns(fold_sample, feature_positions) for fold_sample in (train, validation)
    )
    fold_dags = local_dags(fold_structure, names)  # features renumbered: positions in `names`
    refit = fit(
        fold_dags, train_rows, restricted.design.n_levels, K, model.recipe, rng, averages_dags
    )
    # ln P(class, known features) (n, K)
    log_joint = class_scores(
        refit.network.log_joint(validation_rows.codes, validation_rows.missing)
    )
    if score == "auc":
        # two classes: the log odds of class 1; `auc` returns the AUC and its confidence limits
        return auc(link(log_joint)[:, 1], validation.response == 1, validation.weights)[0]
    return SCORES[score](log_probabilities(log_joint), validation.response, validation.weights)


def _select_columns(sample: Sample, columns: list[int]) -> Sample:
    """Return the sample with only the features at the positions `columns`."""
    missing = None if sample.missing is None else np.ascontiguousarray(sample.missing[:, columns])
    # y: class codes as stored; None for a single class, whose `response` is zeros
    return Sample(np.ascontiguousarray(sample.codes[:, columns]), sample.weights, sample.y, missing)


@check_keywords
def cmi(
    x: Hashable,
    y: Hashable,
    data: TableLike,
    z: Hashable | None = None,
    unit: str = "log",
    *,
    weights: Weights | None = None,
) -> float:
    """Return the mutual information of the columns x and y, conditional on z if z is given.

    Parameters
    ----------
    x, y : names of columns
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    z : name of a column, optional
    unit : {"log", "log2", "log10"}, default "log"
        Nats, bits or bans.
    weights : column name or array of length n, optional
        Integer frequencies.

    Returns
    -------
    float
        ``H(x,z) + H(y,z) - H(x,y,z) - H(z)`` over the rows where all columns used are known.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> round(
    ...     networks.cmi(
    ...         "Sex", "Survived", datasets.load_titanic(), z="Class", unit="log2", weights="Freq"
    ...     ),
    ...     4,
    ... )
    0.1392
    """
    choice("unit", unit, tuple(UNITS))
    for argument, name in (("x", x), ("y", y), ("z", z)):  # None (no z) is also hashable
        if not isinstance(name, Hashable):
            raise BBLTypeError(
                f"{argument} must be the name of one column; got {name!r}.",
                argument=argument,
                hint=(
                    "Combine several columns first, such as data['a'].astype(str) + ' ' + "
                    "data['b'].astype(str)."
                ),
                value=name,
            )
    frame = to_frame(data)
    is_column = frame.has(weights) if weights is not None else False
    counts = check_weights(frame.column(cast(str, weights)) if is_column else weights, frame.n)
    # one entry per column
    codes = []
    n_levels = []
    for name in (x, y) if z is None else (x, y, z):
        column = factorise(name, frame.column(name), "keep")  # missing values are allowed
        check_discrete(column)
        # all declared levels; levels without rows add 0 to entropies
        factor = Factor.collect(column, unused=True)
        # codes (n,); the codes of missing values have no effect, because these rows have weight 0
        # below
        column_codes = factor.encode(column, skip_missing=True)[0].astype(np.intp)
        is_missing = column.missing()
        counts = counts if is_missing is None else np.where(is_missing, 0.0, counts)
        codes.append(column_codes)
        n_levels.append(max(len(factor.levels), 1))
    cells = np.ravel_multi_index(tuple(codes), tuple(n_levels))  # (n,)
    # axes x, y, z; an absent z has a single level
    table = np.bincount(cells, counts, int(np.prod(n_levels))).reshape(
        n_levels if z is not None else [*n_levels, 1]
    )
    return conditional_information(table) / UNITS[unit]


@check_keywords
def accuracy(predicted: ArrayLike, true: ArrayLike) -> float:
    """Return the proportion of rows with equal predicted and true labels; missing labels count as
    different.

    Parameters
    ----------
    predicted, true : array_like of the same length
        Labels, compared by position. Categorical values are compared as labels, so the order of
        their categories does not matter.

    Returns
    -------
    float

    Examples
    --------
    >>> from bbl import networks
    >>> networks.accuracy(["a", "b", None], ["a", "a", None])
    0.3333333333333333
    """
    predicted_series, true_series = (
        pd.Series(np.asarray(labels, dtype=object)) for labels in (predicted, true)
    )
    if len(predicted_series) != len(true_series) or not len(predicted_series):
        raise DataError(
            "predicted and true must be non-empty and have the same length; got lengths "
            f"{len(predicted_series)} and {len(true_series)}."
        )
    return float(
        ((predicted_series == true_series) & predicted_series.notna() & true_series.notna()).mean()
    )
