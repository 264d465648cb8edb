"""Facts that summaries and the prompt show of fitted Boltzmann machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from bbl.report import text
from bbl.results.machine.machine import MachineResults

__all__ = ["fit_facts", "fit_text"]


def fit_text(fit: MachineResults) -> str:
    """Return the call, the coefficients and the treatment of missing values, as printed at the prompt."""
    missing = f"\n\nMissing values: {_missing_text(fit)}" if fit.design.incomplete else ""
    return text.fit_text(fit.call, fit.labels, fit.parameters) + missing


def _missing_text(fit: MachineResults) -> str:
    return text.missing_text(fit.design.missing, fit.design.incomplete)


def fit_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the facts of a summary, values by title: method, settings, data, likelihood and convergence."""
    joint, posterior = fit.engine.joint, fit.engine.posterior
    settings = ", ".join(
        f"{k} = {v:.7g}" if isinstance(v, float) else f"{k} = {v}" for k, v in vars(fit.engine).items()
    )
    if fit.tuning is not None and fit.tuning.option is not None:
        score = "log-loss" if fit.design.classes else "log pseudo-likelihood"
        settings += f"; {fit.tuning.option} chosen by cross-validated {score}"
    return {
        "Fit method": fit.engine.name,
        **({"Posterior": posterior.describe(fit.engine, fit.parameters.layout)} if posterior else {}),
        "Settings": settings,
        **_reading_facts(fit),
        "Observations": fit.nobs(),
        **({} if fit.design.missing == "raise" else {"Missing values": _missing_text(fit)}),
        "Parameters": fit.n_parameters,
        **({"Conditional log-likelihood": fit.lkh} if joint else _likelihood_facts(fit)),
        "Converged": _convergence_text(fit),
    }


def _convergence_text(fit: MachineResults) -> str:
    """Return whether the fit converged, with the largest gradient of groups that are fitted jointly."""
    answer = "yes" if fit.converged else "no, it stops early" if fit.engine.stops_early else "no"
    norms = fit.estimate.fits[0].grad_norm
    return f"{answer} (largest gradient {norms.max():.2g})" if fit.engine.joint and norms.size else answer


def _reading_facts(fit: MachineResults) -> dict[str, Any]:
    """Return the fact on passes over rows too many for memory, or on the threads of a cluster; empty otherwise."""
    states = [fit.state for fit in fit.estimate.fits]
    streamed = np.array([state["streamed"] for state in states if "streamed" in state]).reshape(-1, 4)
    n_threads = [int(state["shared"][0]) for state in states if "shared" in state]
    if not len(streamed):
        return {"Fitted": f"by nodes: predictors shared by {n_threads[0]} threads of a cluster"} if n_threads else {}
    _, sample, passes, threads = streamed.max(axis=0).tolist()
    where = f", on {threads} threads of a cluster" if threads else ""
    return {"Fitted": f"by rows: a sample of {sample:,}, and {passes} passes over all{where}"}


def _likelihood_facts(fit: MachineResults) -> dict[str, Any]:
    """Return log-likelihood, AIC, BIC and ln Z by title."""
    log_z = ", ".join(f"{g}: {z:.6g}" for g, z in fit.log_z.items())
    return {
        "Log-likelihood": float(fit.logLik()),
        "AIC": fit.aic,
        "BIC": fit.bic,
        f"ln Z ({fit.estimate.log_z_kind})": log_z if fit.design.classes else f"{fit.log_z.iloc[0]:.6g}",
    }
