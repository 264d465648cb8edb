"""The public function `shooter`: sparse logistic regression on products of predictors.

A *term* is a tuple of predictors, whose number is its *order*; the *path* is the sequence of
penalties that were fitted; a *stage* is the fit of one penalty to the terms up to an order. K is
the number of groups.

A `Choice` (here `selection`) has the `weights` and the `intercept` of the chosen terms, whether
these are `refitted`, the `unbounded` terms, whose weights have no finite optimum, the `path`, a
list of points, and the position `chosen` of the chosen point. A point has a `penalty` with a number
in ``lambdas`` for each order, its `stages`, one for each order, its `ebic`, and its `held_out_loss`
(2,), of raw and of refitted weights; both are nan where they were not computed. A stage has
`weights` by term, a `loss`, an `objective` (the loss plus penalties), and the largest `violation`
of the optimality conditions; `loss` and `objective` are sums over the observations. A `Problem`
holds the data of the regression: codes, numbers of levels, groups and weights of the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bbl.api.training_data import data_arguments, encode_data, refuse_batches
from bbl.boltzmann.prediction_checks import warn_record
from bbl.checks import check_keywords, choice, flag, generator, integer, real, reals
from bbl.design.design import Design, EncodingRules
from bbl.design.formula import check_formula
from bbl.design.table_types import TableLike, Weights
from bbl.errors import BBLTypeError, ConvergenceWarning, DataWarning, FormulaError, OptionError
from bbl.memory import check_memory
from bbl.parallel import n_workers, progress_bar
from bbl.report.shooter.summary import list_terms
from bbl.report.text import call_text
from bbl.results.shooter.archive import PATH
from bbl.results.shooter.shooter import CHOOSE, ShooterResults
from bbl.rows.sample import Sample
from bbl.sparse.choice import Choice, choose
from bbl.sparse.orders import SCREENS, largest_penalty
from bbl.sparse.products import Problem, feature_values
from bbl.stats.metrics import HELD_OUT, LossRecord, shares_loss

__all__ = ["shooter"]

RULES = ("ebic", "cv")  # by which penalties are chosen
# predictors; with more, the pairs of screen="all" would be over 2 million candidates
MAX_ALL_PAIRS = 2000


@check_keywords
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
    numeric: bool | Sequence[Hashable] = False,
    standardise: bool = False,
    nfold: int = 5,
    xlevels: Mapping[Any, Any] | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
    verbose: int = 1,
) -> ShooterResults:
    """Fit a sparse logistic regression of the response on predictors and their products, of any
    order.

    The fit chooses products of up to `order` predictors that separate the response groups. For each
    order in turn, the penalised negative log-likelihood is minimised exactly over the terms chosen
    so far and all products of a chosen term with one more predictor; chosen terms of lower order
    may be dropped again.

    Parameters
    ----------
    formula : str
        ``"y ~ ."`` or ``"y ~ a + b + c"``, without interactions, which the fit chooses.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`.
    weights : column name or array of length n, optional
        Frequencies, whole numbers; a weight is the same as repeating the row.
    order : int, default 3
        Largest number of predictors in a term; an order above the number of predictors is the same
        as that number.
    lambda_ : "ebic", "cv", float or sequence of `order` floats, default "ebic"
        Penalty of each order. "ebic" and "cv" choose one penalty for all orders from a path, by the
        extended BIC of the refitted terms (gamma = 0.5), or by the loss of held-out rows; the path
        ends after 12 penalties that are no better.
    penalty : {"group", "l1"}, default "group"
        "group": ``lambda sqrt(d) ||W||`` for a term of d weights W, which is then chosen as a
        whole. "l1": ``lambda`` times the sum of the absolute weights. With two levels and two
        groups both are the same.
    refit : "auto", True or False, default "auto"
        Whether the chosen terms are refitted without penalty. "auto" takes the option of smaller
        loss on held-out rows: a refit is better if the right terms were chosen, and worse if not.
    screen : {"heredity", "all"}, default "heredity"
        Which pairs are candidates: pairs with a chosen predictor, or all pairs (of up to 2,000
        predictors). See Notes.
    scale : {"sum", "mean"}, default "sum"
        Whether numbers in `lambda_` are penalties on the sum of the losses of all observations, as
        in the paper, or on their mean; the latter are multiplied by the sum of the weights.
    numeric : bool or sequence of predictors, default False
        Predictors that are real numbers, not categories: all with True, or those named. The feature
        of a number is its value, and a product of numbers is the product of their values. Not for
        the response.
    standardise : bool, default False
        Whether numbers are centred at their mean and divided by their standard deviation, both
        weighted. Without it penalties depend on the units of the numbers.
    nfold : int, default 5
        Number of folds for ``lambda_="cv"`` and ``refit="auto"``, drawn within each group; at most
        the number of observations.
    xlevels, novarOk : optional
        As in `bbl`.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing values are an error; or their rows are dropped; or they are a level of their
        predictor.
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
        If no term is chosen under the penalties in `lambda_`.
    ConvergenceWarning
        If refitted terms separate groups, so that their weights have no finite optimum; names the
        terms. A ridge of 1e-7 per observation keeps the weights finite.

    Notes
    -----
    A predictor with L levels has L - 1 features: its levels are the corners of a simplex, with two
    levels -1 and 1. Products of such features are uncorrelated with their factors if levels are
    equally frequent and predictors are independent; products of 0 and 1 are not. With two groups
    the loss is ``ln(1 + exp(-y f))``. The penalties 80, 100, 100 of the paper, for 8,000 rows, are
    ``lambda_=(80, 100, 100)``, or ``lambda_=(0.01, 0.0125, 0.0125)`` with ``scale="mean"``. In
    folds, penalties are proportional to the square root of the number of observations.

    With ``numeric=True`` and given penalties, each order is the L1-penalised logistic regression on
    the columns of numbers and products: scikit-learn's ``LogisticRegression(C=1 / lambda_)`` with
    an L1 penalty has the same optimum. The weight of a term is the change of the log odds per unit
    of the product. Products of centred numbers (``standardise=True``) are less correlated with
    their factors. Two-level categories stay -1 and 1.

    A term is only found if one of its sub-terms with one predictor less is chosen. If the response
    is the parity of three predictors, no sub-term has an effect, and the term is not found.
    ``screen="all"`` finds pairs without chosen predictors.

    References
    ----------
    Min MR, Ning X, Cheng C, Gerstein M (2014). Interpretable Sparse High-Order Boltzmann Machines.
    AISTATS, PMLR 33, 614-622. Foygel R, Drton M (2010). Extended Bayesian Information Criteria for
    Gaussian Graphical Models. NeurIPS 23.

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

    Numbers, and their product:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.random((500, 3))
    >>> y = np.where(8 * x[:, 0] * x[:, 1] + rng.logistic(size=500) > 2, "high", "low")
    >>> data = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    >>> fit = bbl.shooter("y ~ .", data, order=2, numeric=True, standardise=True, verbose=0)
    >>> sorted(fit.terms["predictors"])
    [('a',), ('a', 'b'), ('b',)]
    """
    choice("penalty", penalty, ("group", "l1"))
    choice("screen", screen, SCREENS)
    choice("missing", missing, ("raise", "drop", "level"))
    order = integer("order", order, 1)
    rule, penalties = _check_penalties(lambda_, order)  # penalties: None if `rule` chooses them
    choice("scale", scale, ("sum", "mean"))
    refit = _check_refit(refit)
    nfold = integer("nfold", nfold, 2)
    workers = n_workers(n_jobs)
    rng = generator(seed)
    shown_options = {
        "order": (order, 3),
        "lambda_": (lambda_, "ebic"),
        "penalty": (penalty, "group"),
        "refit": (refit, "auto"),
    }
    shown_options |= {
        "screen": (screen, "heredity"),
        "scale": (scale, "sum"),
        "missing": (missing, "raise"),
        "standardise": (flag("standardise", standardise), False),
    }
    shown_arguments = {"formula": formula, **data_arguments(data, weights)}
    numeric = _check_numeric(numeric)
    call_options = _changed_arguments(shown_options)
    if not isinstance(numeric, bool):
        call_options["numeric"] = list(numeric)
    elif numeric:
        call_options["numeric"] = True
    call_string = call_text("shooter", shown_arguments | call_options)
    check_formula(formula)
    if standardise and not numeric:
        raise OptionError(
            "standardise=True is for numeric predictors, and there are none.",
            argument="standardise",
            hint="Give numeric=True, or the names of the numeric predictors.",
        )
    refuse_batches(data, "shooter()", "data")
    # order None: any interaction is read, so that `_check_feasible` can name it
    # sums_out: whether the error of missing values advises missing="marginal"
    rules = EncodingRules(
        order=None,
        sums_out="missing_marginal" not in ShooterResults._refusals,
        numeric=numeric,
        standardise=standardise,
    )
    encoded = encode_data(
        formula,
        data,
        weights,
        rules=rules,
        xlevels=xlevels,
        novarOk=flag("novarOk", novarOk),
        missing=missing,
    )
    design = encoded.design
    sample = encoded.rows
    index = encoded.index
    _check_feasible(design, sample, screen)
    problem = Problem.make(
        feature_values(sample.codes, design.n_levels, design.is_number),
        design.n_levels.tolist(),
        sample.response,
        len(design.labels.groups),
        sample.weights,
    )
    order = min(order, len(design.labels.names))
    if penalties is not None:
        penalties = tuple(
            value * (sample.total if scale == "mean" else 1.0) for value in penalties[:order]
        )
    K = len(design.labels.groups)
    with progress_bar(None, "shooter", verbose) as progress:
        selection = choose(
            problem,
            order=order,
            lambda_=rule if penalties is None else penalties,
            group=penalty == "group",
            screen=screen,
            refit=refit,
            nfold=nfold,
            rng=rng,
            workers=workers,
            progress=progress,
        )
    _warn_no_terms_or_separation(design, problem, selection, penalties, penalty == "group", screen)
    class_totals = np.bincount(sample.response, sample.weights, K)
    loss = _out_of_fold_loss(selection, class_totals, rule)
    warn_record(loss, stacklevel=4)
    path, entry_rows = path_frame(selection, sample.total)
    chosen_penalties = selection.path[selection.chosen].penalty.lambdas
    return ShooterResults(
        call_string,
        design,
        sample,
        index,
        selection.weights,
        selection.intercept,
        selection.refitted,
        selection.unbounded,
        chosen_penalties,
        penalty,
        path,
        entry_rows,
        class_totals / sample.total,
        _stored_loss=loss,
    )


def _out_of_fold_loss(selection: Choice, class_totals: np.ndarray, rule: str) -> LossRecord | None:
    """Return the out-of-fold log-loss of the chosen terms; None without folds or without terms.

    `class_totals` (K,) are the total weights of the groups.
    """
    # 0: raw, 1: refitted
    loss = float(selection.path[selection.chosen].held_out_loss[int(selection.refitted)])
    if np.isnan(loss) or not selection.weights:
        return None
    # CHOOSE: advice to take the rule "cv"
    return LossRecord(loss, shares_loss(class_totals), HELD_OUT, "" if rule == "cv" else CHOOSE)


def _check_penalties(
    lambda_: str | float | Sequence[float], order: int
) -> tuple[str, tuple[float, ...] | None]:
    """Check `lambda_`; return (rule, None), or ("given", penalty of each order)."""
    if isinstance(lambda_, str):
        return choice("lambda_", lambda_, RULES), None
    values = tuple(reals("lambda_", lambda_, partial(real, low=0.0, open_low=True)).tolist())
    if len(values) == 1:
        values *= order
    if len(values) != order:
        raise OptionError(
            f"lambda_ has {len(values)} penalties, but order={order}.",
            argument="lambda_",
            hint="Give one number, or one for each order.",
        )
    return "given", values


def _check_numeric(numeric: bool | Sequence[Hashable]) -> bool | tuple[Hashable, ...]:
    """Check that `numeric` is True, False or a list of names, and return it."""
    if isinstance(numeric, bool | np.bool_):
        return bool(numeric)
    if isinstance(numeric, str):  # one name
        return (numeric,)
    if isinstance(numeric, Sequence | np.ndarray | pd.Index):
        return tuple(numeric)
    raise BBLTypeError(
        f"numeric must be True, False or a list of names; got {type(numeric).__name__}.",
        argument="numeric",
        hint="Give numeric=True if all predictors are numbers.",
    )


def _check_refit(refit: str | bool) -> str | bool:
    """Check that `refit` is "auto", True or False, and return it."""
    return choice("refit", refit, ("auto",)) if isinstance(refit, str) else flag("refit", refit)


def _changed_arguments(
    options: dict[str, tuple],
) -> dict[str, Any]:
    """Return the arguments to show in the text of the call; `options` are (value, default) by
    name.
    """
    arguments: dict[str, Any] = {}
    for name, (value, default) in options.items():
        if type(value) is not type(default) or value != default:  # a list is never the default
            arguments[name] = (
                value
                if isinstance(value, str | bool | int | float)
                else [float(number) for number in value]
            )
    return arguments


def _check_feasible(design: Design, sample: Sample, screen: str) -> None:
    """Raise an error if the formula has interactions, or the fit would need too much time or
    memory.
    """
    names = design.labels.names
    m = len(design.labels.names)
    # an interaction of lowest order; None without one
    interacting_pair = design.terms.interactions.find_term(2)
    if interacting_pair is not None:
        interaction = ":".join(str(names[i]) for i in interacting_pair)
        raise FormulaError(
            f"formula {design.terms.text!r}: it has the interaction {interaction}, but "
            f"{ShooterResults._refusals['pairs']}.",
            argument="formula",
            hint="Write 'y ~ .' or 'y ~ a + b', and set the maximum number of predictors per term "
            "with order=.",
        )
    if screen == "all" and m > MAX_ALL_PAIRS:
        raise OptionError(
            f"screen='all' takes all pairs of up to {MAX_ALL_PAIRS} predictors; the data has {m}.",
            argument="screen",
            hint="Give screen='heredity'.",
        )
    # bytes: codes and copies of them, and working memory
    needed_bytes = 4.0 * sample.codes.nbytes + 2e8
    check_memory(
        needed_bytes, f"A sparse regression on {sample.n} rows of {m} predictors", "Give fewer."
    )


def _warn_no_terms_or_separation(
    design: Design,
    problem: Problem,
    selection: Choice,
    penalties: tuple[float, ...] | None,
    uses_group_penalty: bool,
    screen: str,
) -> None:
    """Warn if no term is chosen under given `penalties`, or if refitted terms separate groups.

    `penalties` are None if a rule chose them; `uses_group_penalty` is False for the l1 penalty.
    """
    if penalties is not None and not selection.weights:
        largest = largest_penalty(problem, uses_group_penalty, screen)
        warnings.warn(
            DataWarning(
                "lambda_ selects no terms: with one penalty for all orders, the first term enters "
                f"below {largest:.6g} on the sum of losses ({largest / problem.total:.6g} with "
                "scale='mean').",
                hint="Give a smaller one, or 'ebic' or 'cv'.",
            ),
            stacklevel=4,
        )
    if selection.unbounded:
        warnings.warn(
            ConvergenceWarning(
                f"The refitted weights of {list_terms(design.labels, selection.unbounded)} would "
                f"grow without bound, because these terms separate the groups; a ridge of 1e-7 "
                f"per observation keeps them finite.",
                hint="Give refit=False, or a larger lambda_.",
            ),
            stacklevel=4,
        )


def path_frame(selection: Choice, total: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the path as a frame with a row for each stage, and for each chosen term the row at
    which it entered.

    `total` is the sum of the weights of the data. The column ``loss`` is a mean, as the held-out
    losses are; ``objective`` is the sum that was minimised. Compared rows are the last stage of
    each penalty, or all stages if there is a single penalty. The entry row of a term is the
    earliest compared row such that this row and all later ones, up to the chosen row, have the
    term.
    """
    rows: list[tuple] = []
    # an entry for each row of the frame
    is_last_stage = []
    terms_of_rows = []
    for path_position, path_point in enumerate(selection.path):
        for order, stage in enumerate(path_point.stages, 1):
            is_last = order == len(path_point.stages)
            is_last_stage.append(is_last)
            terms_of_rows.append(stage.weights.keys())
            # (ebic, loss of raw weights, loss of refitted weights), in the row of the last stage
            # alone
            final_losses = (
                (path_point.ebic, *path_point.held_out_loss) if is_last else (np.nan,) * 3
            )
            penalty = path_point.penalty.lambdas[order - 1]
            n_terms = len(stage.weights)
            is_chosen = path_position == selection.chosen
            losses = (stage.loss / total, stage.objective)  # a mean, and a sum
            rows.append(
                (
                    path_position,
                    order,
                    penalty,
                    *losses,
                    n_terms,
                    stage.violation,
                    *final_losses,
                    is_last and is_chosen,
                )
            )
    # PATH: types by column: point, order, penalty, loss, objective, terms (their number),
    # violation, ebic, held_raw, held_refit (losses of raw and of refitted weights), chosen
    frame = pd.DataFrame(rows, columns=list(PATH)).astype(PATH)
    chosen_row = int(np.flatnonzero(frame["chosen"])[0])
    compared_rows = [
        row for row in range(chosen_row + 1) if is_last_stage[row] or len(selection.path) == 1
    ]
    entry_rows = []
    for term in selection.weights:
        entry_row = chosen_row
        for row in reversed(compared_rows):
            if term not in terms_of_rows[row]:
                break
            entry_row = row
        entry_rows.append(entry_row)
    return frame, np.array(entry_rows, dtype=np.int64)
