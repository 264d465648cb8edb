"""The public function `step`: choose the terms of a log-linear model stepwise, by AIC or BIC.

A `Visit` is a model on the path, with all steps that can be taken from it. ``layout.scopes`` lists
the predictors of each parameter table: first the m single predictors, then the terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.fitted import list_problems, warn_problems
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.stepwise import Candidate, Score, StepScorer, stepwise
from bbl.checks import check_keywords, choice, real
from bbl.design.formula import parse, write_formula
from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, DataWarning, OptionError
from bbl.parallel import progress_bar
from bbl.report.text import label_text
from bbl.results.comparisons.step import StepResults
from bbl.results.machine.fit import BBLResults
from bbl.results.machine.machine import MachineResults
from bbl.stats.survey.sample import check_single_rows

__all__ = ["step"]

# signs of the steps that drop or add a term
DIRECTIONS = {"both": "-+", "backward": "-", "forward": "+"}
Term = tuple[int, ...]  # increasing positions of the interacting predictors


@check_keywords
def step(
    fit: MachineResults,
    direction: str = "both",
    k: float | str = 2,
    scope: tuple[str, str] = ("~ 1", "~ .^3"),
    *,
    verbose: int = 1,
) -> StepResults:
    """Choose the terms of a log-linear model stepwise by AIC or BIC, like ``stepAIC`` in R's MASS.

    Each step drops or adds the term that decreases the criterion most, until no step decreases the
    criterion any more. Models stay hierarchical: a term is dropped only if no larger term contains
    it, and added only if all its sub-terms are in the model.

    Parameters
    ----------
    fit : BBLResults or DensityResults
        The initial model, fitted by exact maximum likelihood (``method="ml"``) without a penalty.
    direction : {"both", "backward", "forward"}, default "both"
        Whether terms are both dropped and added, only dropped, or only added.
    k : float or "bic", default 2
        Penalty per parameter: 2 for AIC, ``"bic"`` for the log of the number of observations.
    scope : (str, str), default ("~ 1", "~ .^3")
        Formulas of the smallest and the largest model. They contain interactions only. All
        predictors stay in the model because likelihoods of different sets of predictors are not
        comparable.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    StepResults
        ``fit``, the chosen model; ``path``; ``candidates``, all steps compared.

    Raises
    ------
    OptionError, BBLTypeError
        If the fit is not a maximum-likelihood fit, or its formula does not lie between those in
        `scope`.
    FormulaError
        If a formula cannot be parsed.
    DataError
        If the fit has no training rows, its weights are not counts, or it uses a sampling design.

    Warns
    -----
    DataWarning
        If models were skipped because their tables would be too large.

    Notes
    -----
    The criterion is ``-2 logLik + k df``, as in ``fit.aic``. With a response, log-likelihoods and
    degrees of freedom are summed over the groups, which all have the same terms. The degrees of
    freedom are the number of parameters that are estimable given the empty cells. The p-values of
    the chosen model are too small and its intervals too narrow because they ignore the selection.

    References
    ----------
    Venables WN, Ripley BD (2002). Modern Applied Statistics with S. Springer, section 7.3.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("~ Class + Sex + Survived", titanic, weights="Freq", method="ml")
    >>> bbl.step(fit, k="bic")
                      term df  deviance parameters    logLik       BIC
    0                       0   0.00000          5 -5339.514 10717.511
    1       + Sex:Survived  1 434.46884          6 -5122.279 10290.738
    2          + Class:Sex  3 412.60121          9 -4915.979  9901.227
    3     + Class:Survived  3 106.07507         12 -4862.941  9818.242
    4 + Class:Sex:Survived  3  65.17983         15 -4830.351  9776.152
    <BLANKLINE>
    Chosen: ~ Class*Sex*Survived
    """
    engine = _check_fit(fit)
    k = _check_penalty(k)
    directions = DIRECTIONS[choice("direction", direction, tuple(DIRECTIONS))]
    check_single_rows(fit.survey, "Stepwise selection of terms")
    rows = fit._all_rows()
    labels = fit.labels
    layout = fit.estimate.parameters.layout
    rows.check_whole("Stepwise selection requires")
    start = frozenset(layout.scopes[layout.m :])  # terms of the initial model
    lower, upper = _check_scope(scope, fit, start)
    penalty = float(np.log(fit.nobs())) if isinstance(k, str) else k
    scorer = StepScorer(rows, len(labels.groups), layout, engine)
    with progress_bar(None, "step", verbose) as progress:
        path = stepwise(scorer, start, lower, upper, directions, penalty, progress)
    if scorer.n_refused:
        warnings.warn(
            DataWarning(
                f"{scorer.n_refused} models were skipped because the exact likelihood would need "
                f"tables that are too large.",
                hint="Use a smaller scope.",
            ),
            stacklevel=3,
        )
    chosen = (
        fit
        if len(path) == 1
        else _fit_terms(fit, path[-1].model, f"direction = {direction!r}, k = {k!r}")
    )
    criterion_name = "BIC" if isinstance(k, str) else "AIC"
    scores = [visit.score for visit in path]
    steps = [  # the initial model is compared with itself
        _step_row(
            labels,
            criterion_name,
            penalty,
            model_number,
            visit.step,
            visit.score,
            scores[max(model_number - 1, 0)],
        )
        for model_number, visit in enumerate(path)
    ]
    candidates = [  # with the number of the step at which they were compared
        _step_row(
            labels, criterion_name, penalty, model_number, candidate, candidate.score, visit.score
        )
        for model_number, visit in enumerate(path, 1)
        for candidate in visit.candidates
    ]
    return StepResults(
        chosen, _step_frame(steps, criterion_name), _step_frame(candidates, criterion_name)
    )


def _step_frame(rows: list[dict], criterion_name: str) -> pd.DataFrame:
    """Return rows made by `_step_row` as a frame, indexed by the number of the step."""
    columns = ["step", "term", "df", "deviance", "parameters", "logLik", criterion_name]
    return pd.DataFrame(rows, columns=columns).set_index("step")


def _check_fit(fit: object) -> Any:
    """Return the engine of an exact maximum-likelihood fit; raise an error for any other
    argument.
    """
    if not isinstance(fit, MachineResults):
        kind = type(fit).__name__
        raise BBLTypeError(
            f"fit must be a result of bbl(..., method='ml'); got {kind}.", argument="fit"
        )
    engine = fit.engine
    if not engine.has_likelihood:
        raise OptionError(
            f"step compares maximised likelihoods, which method={engine.name!r} does not compute.",
            argument="fit",
            hint="Fit the formula with method='ml'.",
        )
    if engine.penalised:
        raise OptionError(
            "step compares maximised likelihoods, but this fit has a penalty or a prior count.",
            argument="fit",
            hint="Fit without lambda_, lambdah or prior_count.",
        )
    if fit.estimate.location is not None:
        raise OptionError(
            "step selects interactions of levels, but this fit has numeric predictors.",
            argument="fit",
            hint="Compare formulas with bbl.anova(), or bin the numeric predictors with bbl.bin().",
        )
    if fit.estimate.calibration is not None:
        raise OptionError(
            "step does not support calibration.",
            argument="fit",
            hint="Fit with calibrate='none', then calibrate the fit of the selected formula.",
        )
    if fit.estimate.relevance is not None:
        raise OptionError(
            "step selects terms automatically.", argument="fit", hint="Fit without relevance."
        )
    # without a penalty; the penalty of the fit may be a tuple of zeros, one for each order
    return engine.at(0.0)


def _check_penalty(k: object) -> float | str:
    """Return the penalty per parameter: a positive number or "bic"."""
    return choice("k", k, ("bic",)) if isinstance(k, str) else real("k", k, 0.0)


def _check_scope(
    scope: object, fit: MachineResults, start: frozenset[Term]
) -> tuple[frozenset[Term], frozenset[Term]]:
    """Return the terms of the smallest and the largest model, given by the formulas in `scope`.

    Raise an OptionError unless the fit's terms `start` lie between these models.
    """
    if (
        isinstance(scope, str)
        or not isinstance(scope, Iterable)
        or len(formulas := list(scope)) != 2
    ):
        raise BBLTypeError(
            f"scope must be two formulas, such as ('~ 1', '~ .^3'); got {scope!r}.",
            argument="scope",
            value=scope,
        )
    lower, upper = (_scope_terms(formula, fit) for formula in formulas)
    # {0} and {1} are the formulas in messages, and {2} is the term missing from the larger model
    for smaller_terms, larger_terms, message, hint in (
        (
            lower,
            upper,
            "the smallest model, {0}, contains the term {2}, but the largest model, {1}, does not",
            "Add it to the largest model.",
        ),
        (
            lower,
            start,
            "the smallest model, {0}, contains the term {2}, but the fit does not",
            "Use a formula with this term.",
        ),
        (
            start,
            upper,
            "the fit contains the term {2}, but the largest model, {1}, does not",
            "Use a larger model.",
        ),
    ):
        if extra := sorted(smaller_terms - larger_terms, key=len):
            term = _term_text(fit.labels, extra[0])
            raise OptionError(
                f"scope: {message.format(*map(repr, formulas), term)}.",
                argument="scope",
                hint=hint,
            )
    return lower, upper


def _scope_terms(formula: object, fit: MachineResults) -> frozenset[Term]:
    """Return the terms of a formula with or without the response, as positions of the fit's
    predictors.
    """
    names = list(fit.labels.names)
    response = fit.labels.response
    text = formula if isinstance(formula, str) else str(formula)
    is_one_sided = response is None or text.lstrip().startswith("~")
    columns: list[Hashable] = names if is_one_sided else [response, *names]
    # terms may have any order; a formula may have no terms ("~ 1") and no response
    parsed = parse(formula, columns, order=None, empty=True, one_sided=True)  # type: ignore[arg-type]
    if parsed.response is not None and parsed.response != response:
        raise OptionError(
            f"scope: {parsed.response!r}, the response in {text!r}, is a predictor in the fit.",
            argument="scope",
            hint="Write '~' and the interactions.",
        )
    # parsed terms contain positions among the parsed predictors
    positions = [names.index(name) for name in parsed.predictors]
    # parsed.terms: an array (terms, k) for each order k
    terms = (term for terms_of_order in parsed.terms for term in terms_of_order.tolist())
    return frozenset(tuple(sorted(positions[i] for i in term)) for term in terms)


def _fit_terms(fit: MachineResults, terms: frozenset[Term], options: str) -> MachineResults:
    """Fit a model with other terms to the same rows by the same engine; `options` are shown in the
    printed call.
    """
    labels = fit.labels
    old_estimate = fit.estimate
    layout = old_estimate.parameters.layout.with_terms(sorted(terms))
    # with more terms, the exact ln Z may be too costly; "auto" then approximates it
    log_z = "auto" if old_estimate.log_z_kind == "exact" else old_estimate.log_z_kind
    data = FitData(fit._all_rows(), layout, len(labels.groups), labels)
    has_pooled = old_estimate.parameters.pooled is not None
    (refit,) = estimate_path(data, FitSpec(fit.engine, log_z), pooled=has_pooled)
    warn_problems(list_problems(refit.fits, labels))
    design = replace(fit.design, terms=write_formula(labels.response, labels.names, terms))
    # log-loss, tuning and stored summaries are valid only for the initial model
    fit = replace(fit, _stored_loss=None) if isinstance(fit, BBLResults) else fit
    call = f"step({fit.call}, {options})"
    return replace(fit, call=call, design=design, estimate=refit, tuning=None, _stored=None)


def _step_row(
    labels: Labels,
    criterion_name: str,
    penalty: float,
    model_number: int,
    step: Candidate | None,
    score: Score,
    previous_score: Score,
) -> dict:
    """Return a row of the path as a dict, with the number of the model, the step that led to it,
    and its score.

    `step` is None for the initial model; `previous_score` is the score before the step. `penalty`
    is the criterion's penalty per parameter.
    """
    return {
        "step": model_number,
        "term": "" if step is None else f"{step.sign} {_term_text(labels, step.term)}",
        "df": abs(score.n_parameters - previous_score.n_parameters),
        "deviance": 2.0 * abs(score.log_likelihood - previous_score.log_likelihood),
        "parameters": score.n_parameters,
        "logLik": score.log_likelihood,
        criterion_name: score.criterion(penalty),
    }


def _term_text(labels: Labels, term: Term) -> str:
    """Return a term as the names of its predictors joined by colons."""
    return ":".join(label_text(labels.names[i]) for i in term)
