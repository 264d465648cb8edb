"""The verbs that judge Bayesian network classifiers and data: cv, accuracy, cmi."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.api.network.data import formula_of, given_folds, prepare, restrict_features
from bbl.api.network.fit import local_dags
from bbl.api.training_data import EncodedData, TrainingData, refuse_batches
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.information import UNITS, conditional_information
from bbl.bayesnet.learners import LEARNERS, Task
from bbl.bayesnet.parameters import fit
from bbl.bayesnet.predict import class_scores
from bbl.checks import choice, flag, generator, verb
from bbl.design.factors import Factor
from bbl.design.frames import to_frame
from bbl.design.values import factorise
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.parallel import n_workers, progress_bar, run_tasks
from bbl.results.network.network import NetworkResults
from bbl.results.network.structure import AveragedStructure
from bbl.rows.sample import Sample
from bbl.stats.metrics import SCORES, auc
from bbl.stats.scores import link, log_probabilities

__all__ = ["accuracy", "cmi", "cv"]


@verb
def cv(
    models: NetworkResults | Sequence[NetworkResults] | Mapping[Any, NetworkResults],
    data: Any,
    k: int = 10,
    dag: bool = True,
    mean: bool = True,
    folds: Any = None,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    *,
    score: str = "accuracy",
    weights: Any = None,
    verbose: int = 1,
) -> pd.Series | pd.DataFrame:
    """Cross-validate Bayesian network classifiers, all on the same folds.

    Parameters
    ----------
    models : NetworkResults, or a list or dict of them
        Fitted by `lp` or `bnc`. Each fold is fitted as they were.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        With the class and the features.
    k : int, default 10
        Folds, of nearly the same size in each class.
    dag : bool, default True
        Whether the structure is learnt anew on the training rows of each fold, by the same learner with the same
        options, or kept. That of `aode`, or one by hand, is the same either way.
    mean : bool, default True
        Whether the mean over folds is returned, or the score of every fold.
    folds : list of arrays of row positions, or scikit-learn splitter, optional
        The rows that each fold validates; overrules `k`.
    seed : int, numpy.random.Generator or None, default 0
        For the folds, and whatever the models draw. Results do not depend on `n_jobs`.
    n_jobs : int, optional
        Threads; None or -1 for all cores.
    score : {"accuracy", "logloss", "brier", "auc"}, default "accuracy"
        Smaller log-loss and Brier scores are better; "auc" is for two classes.
    weights : column name or array of length n, optional
        Frequencies, whole numbers.
    verbose : int, default 1
        0 for no progress bar.

    Returns
    -------
    Series or DataFrame
        One entry per model: the mean, without weights, over the folds; or, with ``mean=False``, folds by models.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> models = [networks.bnc(name, "Survived ~ .", titanic, 1, weights="Freq") for name in ("nb", "tan_cl", "aode")]
    >>> networks.cv(models, titanic, k=5, weights="Freq").round(3)
    nb        0.779
    tan_cl    0.789
    aode      0.783
    dtype: float64
    """
    named = _named(models)
    choice("score", score, (*SCORES, "auc"))
    relearn, workers, rng = flag("dag", dag), n_workers(n_jobs), generator(seed)
    refuse_batches(data, "cv()", "data")
    data = to_frame(data)
    prepared = [_again(model, data, weights) for model in named.values()]
    first = prepared[0]
    if any(len(p.rows.weights) != len(first.rows.weights) for p in prepared):
        raise OptionError("models treat missing values differently, so their rows differ; fit them alike.")
    labels = first.design.labels
    if score == "auc" and len(labels.groups) != 2:
        raise OptionError(f"score='auc' needs two classes, not {len(labels.groups)}; use 'accuracy'.", argument="score")
    dealt = given_folds(folds, first, k, rng)
    tasks = [
        (model, p, *parts, relearn, score, fold_stream)
        for (model, p), stream in zip(zip(named.values(), prepared, strict=True), rng.spawn(len(named)), strict=True)
        for *parts, fold_stream in zip(dealt.train, dealt.held, stream.spawn(len(dealt)), strict=True)
    ]
    with progress_bar(len(tasks), "cv", verbose) as step:
        scores = run_tasks(_score_fold, tasks, workers, step)
    table = pd.DataFrame(np.array(scores).reshape(len(named), len(dealt)).T, columns=list(named))
    table.index.name = "fold"
    return table.mean() if flag("mean", mean) else table


def _named(models: Any) -> dict[Any, NetworkResults]:
    """Return models by name; those of a list go by their learner."""
    if isinstance(models, NetworkResults):
        models = [models]
    if not isinstance(models, Mapping):
        if isinstance(models, str) or not isinstance(models, Sequence):
            raise BBLTypeError(
                f"models must be a fitted network, or a list or dict of them; got {type(models).__name__}.",
                argument="models",
            )
        named: dict[Any, Any] = {}
        for model in models:
            base = getattr(getattr(model, "structure", None), "learner", None) or "model"
            count = sum(str(n).rsplit(".", 1)[0] == base for n in named)
            named[f"{base}.{count}" if count else base] = model
        models = named
    wrong = [m for m in models.values() if not isinstance(m, NetworkResults)]
    if wrong or not models:
        type_name = f"{type(wrong[0]).__name__}" if wrong else "none"
        raise BBLTypeError(f"models must be networks that lp() or bnc() fitted; got {type_name}.", argument="models")
    return dict(models)


def _again(model: NetworkResults, data: Any, weights: Any) -> EncodedData:
    """Return data as a model was fitted to them, with all columns among which its structure was learnt."""
    factors = (model.design.response, *model.design.predictors)
    levels_by_name = {
        f.name: [v for v, kind in zip(f.levels, f.kinds, strict=True) if kind != "missing"] for f in factors
    }
    formula = formula_of(model.structure.class_var, model.structure.columns)
    return prepare(TrainingData(formula, data, weights, levels_by_name, missing=model.design.missing))


def _score_fold(
    model: NetworkResults,
    prepared: EncodedData,
    weights: np.ndarray,
    held: np.ndarray,
    relearn: bool,
    score: str,
    rng: np.random.Generator,
) -> float:
    """Fit a model to the training `weights` of a fold, and score it on what the fold holds."""
    sample, design, K = prepared.rows, prepared.design, prepared.K
    train = sample.weighted(weights)
    test = sample.weighted(np.where(sample.response >= 0, held, 0.0))
    if not train.n or not test.n:
        raise DataError("A fold has no rows to train on, or none of known class to score; give fewer folds (k).")
    structure = model.structure
    dags: Sequence[Dag] = structure.dags
    if relearn and structure.learner is not None:
        task = Task(train, design.n_levels, K, rng)
        dags = LEARNERS[structure.learner].learn(task, structure.options).dags
    restricted = restrict_features(prepared, tuple(structure.columns[i] for i in dags[0].features))
    names = restricted.design.labels.names
    parts = type(structure)(structure.class_var, structure.columns, tuple(dags), structure.learner)
    columns = [structure.columns.index(name) for name in names]
    averaged = isinstance(structure, AveragedStructure)
    rows = [_columns(fold_sample, columns) for fold_sample in (train, test)]
    recipe = model.recipe
    fitted = fit(local_dags(parts, names), rows[0], restricted.design.n_levels, K, recipe, rng, averaged)
    log_joint = class_scores(fitted.network.log_joint(rows[1].codes, rows[1].missing))
    if score == "auc":
        return auc(link(log_joint)[:, 1], test.response == 1, test.weights)[0]
    return SCORES[score](log_probabilities(log_joint), test.response, test.weights)


def _columns(sample: Sample, columns: list[int]) -> Sample:
    """Return a sample of some features alone."""
    missing = None if sample.missing is None else np.ascontiguousarray(sample.missing[:, columns])
    return Sample(np.ascontiguousarray(sample.codes[:, columns]), sample.weights, sample.y, missing)


@verb
def cmi(
    x: Hashable, y: Hashable, data: Any, z: Hashable | None = None, unit: str = "log", *, weights: Any = None
) -> float:
    """Return the mutual information of two columns, given a third if one is named.

    Parameters
    ----------
    x, y : names of columns
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
    z : name of a column, optional
    unit : {"log", "log2", "log10"}, default "log"
        Nats, bits or bans.
    weights : column name or array of length n, optional
        Frequencies, whole numbers.

    Returns
    -------
    float
        ``H(x,z) + H(y,z) - H(x,y,z) - H(z)`` over the rows in which the columns are known.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> round(networks.cmi("Sex", "Survived", datasets.load_titanic(), z="Class", unit="log2", weights="Freq"), 4)
    0.1392
    """
    choice("unit", unit, tuple(UNITS))
    for argument, name in (("x", x), ("y", y), ("z", z)):
        if not isinstance(name, Hashable):
            raise BBLTypeError(
                f"{argument} must be the name of one column; got {name!r}. Put several columns together first, such as "
                "data['a'].astype(str) + ' ' + data['b'].astype(str).",
                argument=argument,
            )
    frame = to_frame(data)
    is_column = frame.has(weights) if weights is not None else False
    counts = check_weights(frame.column(weights) if is_column else weights, frame.n)
    codes, shape = [], []
    for name in (x, y) if z is None else (x, y, z):
        column = factorise(name, frame.column(name), "keep")
        factor = Factor.collect(column, unused=True)
        encoded = factor.encode(column, skip_missing=True)[0].astype(np.intp)
        none = column.missing()
        counts = counts if none is None else np.where(none, 0.0, counts)
        codes.append(encoded)
        shape.append(max(len(factor.levels), 1))
    flat = np.ravel_multi_index(tuple(codes), tuple(shape))
    table = np.bincount(flat, counts, int(np.prod(shape))).reshape(shape if z is not None else [*shape, 1])
    return conditional_information(table) / UNITS[unit]


@verb
def accuracy(predicted: Any, true: Any) -> float:
    """Return the share of equal labels; a missing label equals none.

    Parameters
    ----------
    predicted, true : array_like of the same length
        By position; categories are compared by their labels, whatever their order.

    Returns
    -------
    float

    Examples
    --------
    >>> from bbl import networks
    >>> networks.accuracy(["a", "b", None], ["a", "a", None])
    0.3333333333333333
    """
    a, b = (pd.Series(np.asarray(v, dtype=object)) for v in (predicted, true))
    if len(a) != len(b) or not len(a):
        raise DataError(f"predicted and true must be of the same length, 1 or more; got {len(a)} and {len(b)}.")
    return float(((a == b) & a.notna() & b.notna()).mean())
