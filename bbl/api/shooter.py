"""The verb of sparse regression on products of predictors: shooter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bbl.api.training_data import TrainingData, encode_data, refuse_batches
from bbl.boltzmann.prediction_checks import warn_record
from bbl.checks import choice, flag, generator, integer, real, reals, verb
from bbl.design.design import Design, EncodingRules
from bbl.design.formula import check_formula
from bbl.design.table_types import TableLike, Weights
from bbl.errors import ConvergenceWarning, DataWarning, FormulaError, OptionError
from bbl.memory import check_memory
from bbl.parallel import n_workers, progress_bar
from bbl.report.shooter.summary import some_terms
from bbl.report.text import call_text
from bbl.results.shooter.archive import PATH
from bbl.results.shooter.shooter import CHOOSE, ShooterResults
from bbl.rows.sample import Sample
from bbl.sparse.choice import Choice, choose
from bbl.sparse.orders import SCREENS, largest_penalty
from bbl.sparse.products import Problem
from bbl.stats.loss_record import HELD_OUT, LossRecord, shares_loss

__all__ = ["shooter"]

RULES = ("ebic", "cv")
WIDE = 2000  # predictors of which all pairs are candidates at most


@verb
def shooter(
    formula: str,
    data: TableLike,
    weights: Weights | None = None,
    *,
    order: int = 3,
    lambda_: str | float | Sequence[float] = "ebic",
    penalty: str = "group",
    refit: str | bool = "auto",
    screen: str = "heredity",
    scale: str = "sum",
    nfold: int = 5,
    xlevels: dict | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    verbose: int = 1,
) -> ShooterResults:
    """Fit a sparse logistic regression of the response on its predictors and their products, of any order.

    Of all products of up to `order` predictors those are chosen that tell the response groups apart. Order by order,
    the penalised likelihood is minimised exactly over the terms chosen so far and all products of a chosen term with
    one more predictor; terms of lower order may drop out again.

    Parameters
    ----------
    formula : str
        ``"y ~ ."`` or ``"y ~ a + b + c"``; interactions are what is looked for.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`.
    weights : column name or array of length n, optional
        Frequencies, whole numbers; a weight is the same as repeating the row.
    order : int, default 3
        Largest number of predictors in a term; an order above the number of predictors is the same as that number.
    lambda_ : "ebic", "cv", float or sequence of `order` floats, default "ebic"
        Penalty of each order. By "ebic" and "cv" one for all orders is chosen from a path: by the extended BIC of the
        refitted terms (gamma = 0.5), or by the loss of held-out rows.
    penalty : {"group", "l1"}, default "group"
        ``lambda sqrt(d) ||W||`` for each term with its d weights, so that a term is chosen as a whole; or
        ``lambda`` times the sum of the sizes of its weights, one by one. With two levels and groups both are the same.
    refit : "auto", True or False, default "auto"
        Whether the chosen terms are fitted once more without penalty. "auto" does what has the smaller loss on held-out
        rows: a refit is better where the right terms were chosen, and worse where they were not.
    screen : {"heredity", "all"}, default "heredity"
        Which pairs are candidates: those with a chosen predictor, or all (of up to 2,000 predictors). See Notes.
    scale : {"sum", "mean"}, default "sum"
        Whether numbers given as `lambda_` belong to the sum of the losses of all observations, as in the paper, or to
        their mean: then they are multiplied by the sum of the weights.
    nfold : int, default 5
        Folds for ``lambda_="cv"`` and ``refit="auto"``, drawn within each group; as many as observations at most.
    xlevels, novarOk : optional
        As in `bbl`.
    missing : {"raise", "drop", "level"}, default "raise"
        What is done with missing values: they are an error, their rows are dropped, or they are a level of their own.
    seed : int, numpy.random.Generator or None, default 0
        For the folds.
    n_jobs : int, optional
        Threads for the folds; None or -1 for all cores. Results do not depend on it.
    verbose : int, default 1
        0 for no progress bar.

    Returns
    -------
    ShooterResults

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError, BBLTypeError
        Each names the column or argument, and what to do.

    Warns
    -----
    DataWarning
        If the penalties that are given keep no term.
    ConvergenceWarning
        If refitted terms separate groups, so that their weights would grow without end; they are named. A ridge of 1e-7
        per observation keeps them finite.

    Notes
    -----
    A predictor with L levels has L - 1 features, the corners of a simplex; with two levels -1 and 1. Products of these
    are uncorrelated with their factors where levels are equally frequent and independent; products of 0 and 1 are not.
    With two groups the loss is ``ln(1 + exp(-y f))``, the penalties 80, 100, 100 of the paper are ``lambda_=(80, 100,
    100)``, and with ``scale="mean"`` for its 8,000 rows ``lambda_=(0.01, 0.0125, 0.0125)``. In folds penalties go by
    the square root of the number of observations.

    A product of three predictors none of whose pairs, or pairs none of whose predictors, are chosen is not found: a
    response that is the parity of three predictors looks like noise to the lower orders. ``screen="all"`` finds pairs
    without chosen predictors.

    References
    ----------
    Min MR, Ning X, Cheng C, Gerstein M (2014). Interpretable Sparse High-Order Boltzmann Machines. AISTATS, PMLR 33,
    614-622.
    Foygel R, Drton M (2010). Extended Bayesian Information Criteria for Gaussian Graphical Models. NeurIPS 23.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.shooter("Survived ~ .", titanic, weights="Freq", lambda_=60, order=2, refit=True)
    >>> fit.order_counts.to_dict()
    {1: 2, 2: 1}
    >>> fit.predict(titanic.head(2), type="prob").round(3)
          No    Yes yhat
    0  0.346  0.654  Yes
    1  0.579  0.421   No
    """
    choice("penalty", penalty, ("group", "l1"))
    choice("screen", screen, SCREENS)
    choice("missing", missing, ("raise", "drop", "level"))
    order = integer("order", order, 1)
    rule, penalties = _penalties(lambda_, order)
    choice("scale", scale, ("sum", "mean"))
    refit, nfold = _refit(refit), integer("nfold", nfold, 2)
    workers, rng = n_workers(n_jobs), generator(seed)
    shown = {"order": (order, 3), "lambda_": (lambda_, "ebic"), "penalty": (penalty, "group"), "refit": (refit, "auto")}
    shown |= {"screen": (screen, "heredity"), "scale": (scale, "sum"), "missing": (missing, "raise")}
    call = call_text("shooter", _shown(formula, weights, shown))
    check_formula(formula)
    refuse_batches(data, "shooter()", "data")
    rules = EncodingRules(order=None, sums_out="missing_marginal" not in ShooterResults.refusals)
    encoded = encode_data(TrainingData(formula, data, weights, xlevels, flag("novarOk", novarOk), missing), rules)
    design, sample, index = encoded.design, encoded.rows, encoded.index
    _check(design, sample, screen)
    order = min(order, len(design.labels.names))
    if penalties is not None:
        penalties = tuple(v * (sample.total if scale == "mean" else 1.0) for v in penalties[:order])
    K = len(design.labels.groups)
    with progress_bar(None, "shooter", verbose) as step:
        selection = choose(
            Problem.make(sample.codes, design.n_levels.tolist(), sample.response, K, sample.weights), order=order,
            lambda_=rule if penalties is None else penalties, group=penalty == "group", screen=screen, refit=refit,
            nfold=nfold, rng=rng, workers=workers, progress=step,
        )  # fmt: skip
    _warn(design, sample, selection, penalties, penalty == "group", screen)
    totals = np.bincount(sample.response, sample.weights, K)
    record = _held_out(selection, totals, rule)
    warn_record(record, 4)
    path, entered = path_frame(selection, sample.total)
    chosen_penalties = selection.path[selection.chosen].penalty.lambdas
    return ShooterResults(
        call, design, sample, index, selection.weights, selection.intercept, selection.refitted, selection.unbounded,
        chosen_penalties, penalty, path, entered, totals / sample.total, stored_loss=record,
    )  # fmt: skip


def _held_out(selection: Choice, totals: np.ndarray, rule: str) -> LossRecord | None:
    """Return the out-of-fold log-loss of chosen terms, where folds were needed; without terms it is the shares'."""
    loss = float(selection.path[selection.chosen].held_out_loss[int(selection.refitted)])
    if np.isnan(loss) or not selection.weights:
        return None
    return LossRecord(loss, shares_loss(totals), HELD_OUT, "" if rule == "cv" else CHOOSE)


def _penalties(lambda_: str | float | Sequence[float], order: int) -> tuple[str, tuple[float, ...] | None]:
    """Return the rule, or the penalty of each order."""
    if isinstance(lambda_, str):
        return choice("lambda_", lambda_, RULES), None
    values = tuple(reals("lambda_", lambda_, partial(real, low=0.0, open_low=True)).tolist())
    if len(values) == 1:
        values *= order
    if len(values) != order:
        raise OptionError(
            f"lambda_ has {len(values)} penalties for order={order}; give one number, or one for each order.",
            argument="lambda_",
        )
    return "given", values


def _refit(refit: str | bool) -> str | bool:
    """Return `refit`, checked: "auto", True or False."""
    return choice("refit", refit, ("auto",)) if isinstance(refit, str) else flag("refit", refit)


def _shown(formula: str, weights: Weights | None, options: dict[str, tuple]) -> dict[str, Any]:
    """Return the arguments to show in the call; of `options`, (value, default) by name, those that differ."""
    shown: dict[str, Any] = {"formula": formula, "data": "data"}
    if weights is not None:
        shown["weights"] = weights if isinstance(weights, str) else "weights"
    for name, (value, default) in options.items():
        if type(value) is not type(default) or value != default:
            shown[name] = value if isinstance(value, str | bool | int | float) else [float(v) for v in value]
    return shown


def _check(design: Design, sample: Sample, screen: str) -> None:
    """Raise an error if the formula has interactions, or the fit would take too much time or memory."""
    names, m = design.labels.names, len(design.labels.names)
    pair = design.terms.interactions.first(2)
    if pair is not None:
        interaction = ":".join(str(names[i]) for i in pair)
        raise FormulaError(
            f"formula {design.terms.text!r}: it has the interaction {interaction}, but "
            f"{ShooterResults.refusals['pairs']}. Write 'y ~ .' or 'y ~ a + b', and the most predictors of a "
            "term as order=.",
            argument="formula",
        )
    if screen == "all" and m > WIDE:
        raise OptionError(
            f"screen='all' takes all pairs of up to {WIDE} predictors, not of {m}; use 'heredity'.", argument="screen"
        )
    check_memory(
        4.0 * sample.codes.nbytes + 2e8, f"A sparse regression on {sample.n} rows of {m} predictors", "Give fewer."
    )


def _warn(
    design: Design, sample: Sample, selection: Choice, penalties: tuple[float, ...] | None, group: bool, screen: str
) -> None:
    """Warn if given penalties keep no term, or if refitted weights separate groups."""
    if penalties is not None and not selection.weights:
        problem = Problem.make(
            sample.codes, design.n_levels.tolist(), sample.response, len(design.labels.groups), sample.weights
        )
        top = largest_penalty(problem, group, screen)
        warnings.warn(
            f"lambda_ keeps no term: with one penalty for all orders the first comes in below {top:.6g} on the sum of "
            f"losses ({top / sample.total:.6g} with scale='mean'). Give a smaller one, or 'ebic' or 'cv'.",
            DataWarning,
            stacklevel=4,
        )
    if selection.unbounded:
        warnings.warn(
            f"the refitted weights of {some_terms(design.labels, selection.unbounded)} would grow without end, because "
            "they separate groups; a ridge of 1e-7 per observation keeps them finite. Take refit=False, or a larger "
            "lambda_.",
            ConvergenceWarning,
            stacklevel=4,
        )


def path_frame(selection: Choice, total: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the path as a frame, and for each chosen term the row since which it is there."""
    rows: list[tuple] = []
    ends, terms_seen = [], []
    for k, point in enumerate(selection.path):
        for order, stage in enumerate(point.stages, 1):
            last = order == len(point.stages)
            ends.append(last)
            terms_seen.append(stage.weights.keys())
            tail = (point.ebic, *point.held_out_loss) if last else (np.nan,) * 3
            rows.append(
                (k, order, point.penalty.lambdas[order - 1], stage.loss / total, stage.objective, len(stage.weights),
                 stage.violation, *tail, last and k == selection.chosen)
            )  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(PATH)).astype(PATH)
    until = int(np.flatnonzero(frame["chosen"])[0])
    steps = [r for r in range(until + 1) if ends[r] or len(selection.path) == 1]
    entered = []
    for term in selection.weights:
        since = until
        for r in reversed(steps):
            if term not in terms_seen[r]:
                break
            since = r
        entered.append(since)
    return frame, np.array(entered, dtype=np.int64)
