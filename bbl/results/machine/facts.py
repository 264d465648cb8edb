"""Text and labelled values that describe a fitted Boltzmann machine in printed output."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from bbl.engines import Engine
from bbl.engines.level_scores import score_ranges
from bbl.report import text
from bbl.report.machine.numbers import numbers_text
from bbl.report.text import label_text
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.thresholds import thresholds

__all__ = ["fit_facts", "render_fit", "observations"]

FURTHEST = 15.0  # log odds above which a parameter counts as infinite
SHOWN_GROUPS = 4  # groups whose values are printed on one line


def render_fit(fit: MachineResults) -> str:
    """Return the printed form of a fit: call, coefficients and treatment of missing values."""
    # `incomplete` is the number of training observations with missing values
    missing = f"\n\nMissing values: {_missing_text(fit)}" if fit.design.incomplete else ""
    shown_thresholds = (
        thresholds(fit.estimate, fit.engine, fit.labels) if fit.engine.is_ordinal else None
    )
    parameters = fit.estimate.parameters
    ranges = score_ranges(fit.engine, fit.labels.names, parameters.layout)
    location = fit.estimate.location
    numbers = (
        ""
        if location is None
        else "\n\n" + numbers_text(fit.labels, location, fit.design.number_centers)
    )
    coefficients = text.fit_text(fit.call, fit.labels, parameters, shown_thresholds, ranges)
    return coefficients + numbers + missing


def _missing_text(fit: MachineResults) -> str:
    """Return the treatment of missing values as text, with the number of incomplete rows."""
    return text.missing_text(fit.design.missing, fit.design.incomplete)


def fit_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the facts of a summary, as a dict of values by title in the order of printing."""
    joint_traits = fit.engine.joint
    posterior_traits = fit.engine.posterior
    settings = _settings_text(fit.engine)
    # option None: only a calibration was tuned
    if fit.tuning is not None and fit.tuning.option is not None:
        score = "log-loss" if fit.design.classes else "log pseudo-likelihood"
        settings += f"; {fit.tuning.option} chosen by cross-validated {score}"
        if fit.tuning.rows is not None:
            settings += f" on {fit.tuning.rows:,} random rows"
    return {
        "Fit method": fit.engine.name,
        **(
            {"Posterior": posterior_traits.describe(fit.engine, fit.estimate.parameters.layout)}
            if posterior_traits
            else {}
        ),
        "Settings": settings,
        **_streaming_facts(fit),
        "Observations": observations(fit),
        **_zeros_facts(fit),
        **_order_facts(fit),
        **({} if fit._sampling_design is None else {"Sampling design": fit._sampling_design}),
        **({} if fit.design.missing == "raise" else {"Missing values": _missing_text(fit)}),
        "Parameters": fit.n_parameters,
        **(_joint_facts(fit) if joint_traits else _likelihood_facts(fit)),
        "Converged": _convergence_text(fit),
    }


def observations(fit: MachineResults) -> int | str:
    """Return the number of observations as text; with real-valued weights, the effective number."""
    nobs = fit.nobs()
    if isinstance(nobs, int):
        return nobs
    return f"effective number {nobs:,.1f}"


def _settings_text(engine: Engine) -> str:
    """Return the engine's main options, and any other options that have an effect and a non-default
    value.
    """
    options = fields(engine)
    main = {option.name for option in options[:1]}
    if engine.tuned:
        main.add(engine.tuned.option)
    shown = {
        option.name: getattr(engine, option.name)
        for option in options
        if option.name in main
        or (getattr(engine, option.name) != option.default and option.name not in engine.inert)
    }
    if shown.get("level_scores"):
        scores_of = dict(shown["level_scores"])
        shown["level_scores"] = ", ".join(
            f"{name}: {' '.join(f'{score:.7g}' for score in scores)}"
            for name, scores in scores_of.items()
        )
    return ", ".join(
        f"{name} = {value:.7g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in shown.items()
    )


def _zeros_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the fact "Structural zeros", which lists the combinations that cannot occur, or an
    empty dict if there are none.
    """
    # which cells of the predictors `scope` can occur; None if all can
    support = fit.estimate.parameters.layout.support
    if support is None:
        return {}
    names = ", ".join(label_text(fit.labels.names[i]) for i in support.scope)
    # n_groups: 1 if all groups have the same zeros
    where = " in single groups" if support.n_groups > 1 else ""
    return {
        "Structural zeros": (
            f"{support.n_zeros} combination{'s' * (support.n_zeros != 1)} of {names}{where}"
        )
    }


def _order_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the fact "In order", which lists the predictors with ordered levels and their coding.

    The result is empty if no levels are ordered, or if the engine treats them as nominal.
    """
    # n_ordered (m,): number of ordered levels of each predictor; the order of two levels carries no
    # information
    coding = vars(fit.engine).get("ordered", "nominal")
    scores = fit.estimate.parameters.layout.scores
    ordered_predictors = (
        np.flatnonzero(fit.design.n_ordered > 2)
        if scores is None
        else np.flatnonzero([own is not None for own in scores])
    )
    if coding == "nominal" or not len(ordered_predictors):
        return {}
    return {
        "In order": (
            f"{', '.join(label_text(fit.labels.names[i]) for i in ordered_predictors)} ({coding})"
        )
    }


def _convergence_text(fit: MachineResults) -> str:
    """Return "yes" or "no" for convergence, followed by the largest gradient for joint fits."""
    answer = "yes" if fit.converged else "no, stopped early" if fit.engine.stops_early else "no"
    # (m,), or empty if the engine records none; in a joint fit all predictors have the same norm
    gradient_norms = fit.estimate.fits[0].grad_norm
    # nan: it was not computed
    has_gradient = bool(gradient_norms.size) and not np.isnan(gradient_norms).all()
    if fit.engine.joint and has_gradient:
        answer += f" (largest gradient {gradient_norms.max():.2g})"
    n_infinite = int((np.abs(fit.estimate.parameters.theta) > FURTHEST).sum())
    if n_infinite:
        parameters = f"{n_infinite} parameters have" if n_infinite > 1 else "1 parameter has"
        answer += (
            f"; {parameters} no finite value, because levels do not occur or separate the groups"
        )
    return answer


def _streaming_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the fact "Fitted" if rows were read in blocks or predictors were distributed over a
    cluster.

    Otherwise, the result is empty.
    """
    states = [run.state for run in fit.estimate.fits]
    streaming_records = np.array(
        [state["streamed"] for state in states if "streamed" in state]
    ).reshape(-1, 4)
    cluster_threads = [int(state["shared"][0]) for state in states if "shared" in state]
    if len(streaming_records):
        # a record: rows, rows of the sample, passes over all rows, threads of a cluster (0 without
        # one)
        _, sample_size, passes, threads = streaming_records.max(axis=0).tolist()
        cluster_text = f", on {threads} cluster threads" if threads else ""
        return {
            "Fitted": (
                f"by rows: a sample of {sample_size:,}, and {passes} passes over all "
                f"rows{cluster_text}"
            )
        }
    if cluster_threads:  # a node: the regression of one predictor on the others
        return {
            "Fitted": f"by nodes: predictors distributed over {cluster_threads[0]} cluster threads"
        }
    return {}


def _joint_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the log-likelihood of P(group | row) and, without a penalty, AIC, BIC and log odds at
    reference levels.
    """
    facts: dict[str, Any] = {"Conditional log-likelihood": fit.lkh}  # the maximised objective
    if fit.engine.is_ordinal:
        values = thresholds(fit.estimate, fit.engine, fit.labels)
        criteria = {} if fit.engine.penalised else {"AIC": fit.aic, "BIC": fit.bic}
        shown = ", ".join(f"{name}: {value:.6g}" for name, value in values.items())
        return facts | criteria | {"Thresholds": shown}
    if not fit.engine.penalised:
        # `log_z` of a joint fit is stored so that this difference is the intercept
        with np.errstate(divide="ignore"):
            # -inf for a group without rows
            intercepts_by_group = np.log(fit.class_shares) - fit.estimate.log_z
        # of all groups except the first, minus the first
        other_groups = list(
            zip(fit.labels.groups, intercepts_by_group - intercepts_by_group[0], strict=True)
        )[1:]
        intercepts_text = ", ".join(
            f"{label_text(group)}: {intercept:.6g}" for group, intercept in other_groups
        )
        facts |= {
            "AIC": fit.aic,
            "BIC": fit.bic,
            f"Intercepts against {label_text(fit.labels.groups[0])}": intercepts_text,
        }
    return facts


def _likelihood_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the facts log-likelihood, AIC, BIC and ln Z."""
    log_z = ", ".join(f"{label_text(g)}: {z:.6g}" for g, z in fit.log_z.head(SHOWN_GROUPS).items())
    if len(fit.log_z) > SHOWN_GROUPS:
        log_z += f", ... ({len(fit.log_z)} in all: fit.log_z)"
    likelihood = fit.logLik()
    criteria: dict[str, Any] = (
        {"Log-likelihood": float(likelihood), "AIC": fit.aic, "BIC": fit.bic}
        if likelihood.log_z is None
        else {"Log-likelihood": f"{float(likelihood):.7g}, with approximate ln Z (see log_z=)"}
    )
    return criteria | {
        f"ln Z ({fit.estimate.log_z_kind})": log_z
        if fit.design.classes
        else f"{fit.log_z.iloc[0]:.6g}",
    }
