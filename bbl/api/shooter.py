"""The public function `shooter`: sparse logistic regression on products of predictors.

A *term* is a tuple of predictors, a *stage* is the fit of all terms up to one order at one penalty,
and the *path* is the sequence of penalties. K is the number of groups.
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

RULES = ("ebic", "cv")  # rules that choose the penalties
# maximum number of predictors for screen="all": 2,000 have about 2 million candidate pairs
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

    The fit selects products of up to `order` predictors that separate the response groups. For each
    order, the penalised negative log-likelihood is minimised exactly over the terms selected so far
    and all products of a selected term with one more predictor. Terms of lower orders may be
    dropped again.

    Parameters
    ----------
    formula : str
        ``"y ~ ."`` or ``"y ~ a + b + c"``, without interactions, which are selected by the fit.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`.
    weights : column name or array of length n, optional
        Integer frequencies; a row of weight w counts as w identical rows.
    order : int, default 3
        Maximum number of predictors in a term. An order above the number of predictors is reduced
        to that number.
    lambda_ : "ebic", "cv", float or sequence of `order` floats, default "ebic"
        Penalty of each order. "ebic" and "cv" choose one penalty for all orders from a path: "ebic"
        minimises the extended BIC of the refitted terms (gamma = 0.5), and "cv" minimises the loss
        on held-out rows. The path stops after 12 penalties without improvement.
    penalty : {"group", "l1"}, default "group"
        "group": ``lambda sqrt(d) ||W||`` for a term with d weights W; all weights of a term are
        selected together. "l1": ``lambda`` times the sum of the absolute weights. The two are
        identical for two-level predictors and two groups.
    refit : "auto", True or False, default "auto"
        Whether the selected terms are refitted without penalty. "auto" decides by the loss on
        held-out rows, because a refit improves predictions only if the correct terms were selected.
    screen : {"heredity", "all"}, default "heredity"
        Candidate pairs: pairs with at least one selected predictor, or all pairs (for up to 2,000
        predictors). See Notes.
    scale : {"sum", "mean"}, default "sum"
        Whether the penalties in `lambda_` apply to the sum of the losses of all observations, as in
        the paper, or to their mean. Penalties on the mean are multiplied by the sum of the weights.
    numeric : bool or sequence of predictors, default False
        Predictors to treat as numeric instead of categorical: True for all, or a list of names. A
        numeric predictor enters the model as its value, and a product of numeric predictors as the
        product of their values. The response cannot be numeric.
    standardise : bool, default False
        Whether numeric predictors are centred and divided by their standard deviation (both
        weighted). If False, the effect of the penalties depends on the units of measurement.
    nfold : int, default 5
        Number of folds for ``lambda_="cv"`` and ``refit="auto"``, stratified by group; at most the
        number of observations.
    xlevels, novarOk : optional
        As in `bbl`.
    missing : {"raise", "drop", "level"}, default "raise"
        "raise": raise an error for missing values; "drop": drop their rows; "level": treat them as
        a separate level of their predictor.
    seed : int, numpy.random.Generator or None, default 0
        Seed of the fold assignment.
    n_jobs : int, optional
        Number of threads for the folds; None or -1 uses all cores. Results do not depend on it.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    ShooterResults

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError, BBLTypeError
        The message names the column or argument and suggests a remedy.

    Warns
    -----
    DataWarning
        If the penalties in `lambda_` select no term.
    ConvergenceWarning
        If refitted terms separate the groups; their weights then have no finite optimum. The
        message lists the terms. A ridge of 1e-7 per observation keeps the weights finite.

    Notes
    -----
    A predictor with L levels has L - 1 features, which code its levels as the corners of a simplex:
    -1 and 1 for two levels. If levels are equally frequent and predictors independent, products of
    such features are uncorrelated with their factors, unlike products of 0/1 indicators. With two
    groups the loss is ``ln(1 + exp(-y f))``. The penalties in the paper, 80, 100 and 100 for 8,000
    rows, are ``lambda_=(80, 100, 100)``, or ``lambda_=(0.01, 0.0125, 0.0125)`` with
    ``scale="mean"``. Within folds, penalties are scaled in proportion to the square root of the
    number of observations.

    With ``numeric=True`` and given penalties, each order is an L1-penalised logistic regression on
    the numeric predictors and their products, with the same optimum as scikit-learn's
    ``LogisticRegression(C=1 / lambda_)`` with an L1 penalty. The weight of a term is the change in
    log odds per unit of the product. Centring (``standardise=True``) reduces the correlation
    between products and their factors. Two-level categorical predictors keep the codes -1 and 1.

    A term can be selected only if one of its sub-terms with one fewer predictor is selected. If the
    response is the parity of three predictors, no sub-term has an effect, and the term is not
    found. With ``screen="all"``, pairs are also found if neither of their predictors was selected.

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

    Numeric predictors and their product:

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
            "standardise=True applies to numeric predictors, but there are none.",
            argument="standardise",
            hint="Use numeric=True, or list the names of the numeric predictors.",
        )
    refuse_batches(data, "shooter()", "data")
    # order=None accepts interactions of any order, so that `_check_feasible` can name them.
    # sums_out: whether the error about missing values suggests missing="marginal"
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
    """Return the out-of-fold log-loss of the selected terms, or None if folds or terms are missing.

    `class_totals` (K,) contains the total weight of each group.
    """
    # position 0: raw weights, 1: refitted weights
    loss = float(selection.path[selection.chosen].held_out_loss[int(selection.refitted)])
    if np.isnan(loss) or not selection.weights:
        return None
    # CHOOSE: the remedy that suggests the rule "cv"
    return LossRecord(loss, shares_loss(class_totals), HELD_OUT, "" if rule == "cv" else CHOOSE)


def _check_penalties(
    lambda_: str | float | Sequence[float], order: int
) -> tuple[str, tuple[float, ...] | None]:
    """Check `lambda_`; return (rule, None), or ("given", penalties by order)."""
    if isinstance(lambda_, str):
        return choice("lambda_", lambda_, RULES), None
    values = tuple(reals("lambda_", lambda_, partial(real, low=0.0, open_low=True)).tolist())
    if len(values) == 1:
        values *= order
    if len(values) != order:
        raise OptionError(
            f"lambda_ has {len(values)} penalties, but order={order}.",
            argument="lambda_",
            hint="Pass a single number, or one number for each order.",
        )
    return "given", values


def _check_numeric(numeric: bool | Sequence[Hashable]) -> bool | tuple[Hashable, ...]:
    """Check that `numeric` is True, False or a list of names, and return it."""
    if isinstance(numeric, bool | np.bool_):
        return bool(numeric)
    if isinstance(numeric, str):  # a single name
        return (numeric,)
    if isinstance(numeric, Sequence | np.ndarray | pd.Index):
        return tuple(numeric)
    raise BBLTypeError(
        f"numeric must be True, False or a list of column names; got {type(numeric).__name__}.",
        argument="numeric",
        hint="Use numeric=True if all predictors are numeric.",
    )


def _check_refit(refit: str | bool) -> str | bool:
    """Check that `refit` is "auto", True or False, and return it."""
    return choice("refit", refit, ("auto",)) if isinstance(refit, str) else flag("refit", refit)


def _changed_arguments(
    options: dict[str, tuple],
) -> dict[str, Any]:
    """Return the arguments that are printed in the call; `options` maps names to (value,
    default).
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
    """Raise an error if the formula has interactions, or if the fit would need too much time or
    memory.
    """
    names = design.labels.names
    m = len(design.labels.names)
    # the lowest-order interaction, or None
    interacting_pair = design.terms.interactions.find_term(2)
    if interacting_pair is not None:
        interaction = ":".join(str(names[i]) for i in interacting_pair)
        raise FormulaError(
            f"formula {design.terms.text!r} contains the interaction {interaction}, but "
            f"{ShooterResults._refusals['pairs']}.",
            argument="formula",
            hint="Write 'y ~ .' or 'y ~ a + b', and set the maximum number of predictors per "
            "term with the argument order.",
        )
    if screen == "all" and m > MAX_ALL_PAIRS:
        raise OptionError(
            f"screen='all' supports up to {MAX_ALL_PAIRS} predictors, but the data has {m}.",
            argument="screen",
            hint="Use screen='heredity'.",
        )
    # number of bytes of the codes, their copies and working memory
    needed_bytes = 4.0 * sample.codes.nbytes + 2e8
    check_memory(
        needed_bytes,
        f"A sparse regression with {sample.n} rows and {m} predictors",
        "Use fewer of them.",
    )


def _warn_no_terms_or_separation(
    design: Design,
    problem: Problem,
    selection: Choice,
    penalties: tuple[float, ...] | None,
    uses_group_penalty: bool,
    screen: str,
) -> None:
    """Warn if the given `penalties` select no term, or if refitted terms separate the groups.

    `penalties` is None if a rule chose them; `uses_group_penalty` is False for the l1 penalty.
    """
    if penalties is not None and not selection.weights:
        largest = largest_penalty(problem, uses_group_penalty, screen)
        warnings.warn(
            DataWarning(
                "lambda_ selects no terms: with one penalty for all orders, the first term is "
                f"selected when lambda_ is below {largest:.6g} "
                f"({largest / problem.total:.6g} with scale='mean').",
                hint="Use a smaller lambda_, or 'ebic' or 'cv'.",
            ),
            stacklevel=4,
        )
    if selection.unbounded:
        warnings.warn(
            ConvergenceWarning(
                f"The refitted weights of {list_terms(design.labels, selection.unbounded)} would "
                "grow without bound, because these terms separate the groups. A ridge of 1e-7 "
                "per observation keeps them finite.",
                hint="Use refit=False, or a larger lambda_.",
            ),
            stacklevel=4,
        )


def path_frame(selection: Choice, total: float) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the path as a frame with one row per stage, and the row at which each term entered the
    model.

    `total` is the sum of the weights of the data. The column ``loss`` is a mean, like the held-out
    losses, and ``objective`` is the minimised sum. The entry row of a term is the first row from
    which the term remains selected up to the chosen row. Only the last stage of each penalty is
    considered, or every stage if there is a single penalty.
    """
    rows: list[tuple] = []
    # one entry per row of the frame
    is_last_stage = []
    terms_of_rows = []
    for path_position, path_point in enumerate(selection.path):
        for order, stage in enumerate(path_point.stages, 1):
            is_last = order == len(path_point.stages)
            is_last_stage.append(is_last)
            terms_of_rows.append(stage.weights.keys())
            # (ebic, loss of raw weights, loss of refitted weights), for the last stage only
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
    # PATH: the types of the columns. terms: number of terms; held_raw and held_refit: held-out
    # losses of raw and of refitted weights
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
