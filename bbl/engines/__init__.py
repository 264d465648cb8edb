"""The inference methods: `ENGINES` maps the names given as ``method=`` to engine classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from bbl.checks import choice, near_match
from bbl.engines.base import Engine
from bbl.engines.bayes.engine import Posterior
from bbl.engines.blanket.engine import MarkovBlanket
from bbl.engines.boosting.engine import Boosting
from bbl.engines.conditional.engine import Conditional
from bbl.engines.engine_fit import EngineFit, Equations
from bbl.engines.highorder.engine import HighOrder
from bbl.engines.likelihood.engine import MaximumLikelihood
from bbl.engines.meanfield import MeanField
from bbl.engines.naive import NaiveBayes
from bbl.engines.pairwise.divergence import ContrastiveDivergence
from bbl.engines.pairwise.flow import ProbabilityFlow
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.engines.traits import Tuned
from bbl.engines.variational.engine import PersistentVI
from bbl.errors import BBLTypeError

__all__ = [
    "BASELINE",
    "DEFAULT",
    "ENGINES",
    "EXACT",
    "PREPARED_AS",
    "Boosting",
    "Conditional",
    "ContrastiveDivergence",
    "Engine",
    "EngineFit",
    "Equations",
    "HighOrder",
    "MarkovBlanket",
    "MaximumLikelihood",
    "MeanField",
    "NaiveBayes",
    "PersistentVI",
    "Posterior",
    "ProbabilityFlow",
    "PseudoLikelihood",
    "Tuned",
    "engine_class",
    "make_engine",
]

ENGINES: dict[str, type[Engine]] = {
    e.name: e
    for e in (
        PseudoLikelihood,
        MeanField,
        NaiveBayes,
        MaximumLikelihood,
        PersistentVI,
        Posterior,
        ContrastiveDivergence,
        ProbabilityFlow,
        HighOrder,
        Conditional,
        MarkovBlanket,
        Boosting,
    )
}
DEFAULT: Final = "pseudo"  # the default of method=
EXACT = MaximumLikelihood()  # fits graphical models
# for method="auto": every candidate accepts the formulas and rows that this engine accepts
PREPARED_AS = MeanField()
BASELINE = NaiveBayes()  # predictions worse than naive Bayes give a warning


def engine_class(method: str | Engine) -> type[Engine]:
    """Return the engine class named `method`, or the class of `method` if it is an engine."""
    return (
        type(method)
        if isinstance(method, Engine)
        else ENGINES[choice("method", method, list(ENGINES))]
    )


_DESIGN = "Specify the sampling design: design=bbl.survey(weights=..., strata=..., cluster=...)."
# arguments that other packages have, and how to do the same here
ELSEWHERE = {
    "strata": _DESIGN,
    "cluster": _DESIGN,
    "fpc": _DESIGN,
    "replicates": _DESIGN,
    "family": "Leave it out: the response is categorical. method='conditional' with ridge=0 is "
    "logistic regression.",
    "subset": "Select the rows of the table first.",
    "na_action": "Use missing='drop', 'level' or 'marginal'.",
    "ref": "List the levels in order, with the reference level first: xlevels={'a': ['u', 'v']}.",
}


def make_engine(method: str | Engine, options: dict, beside: Iterable[str] = ()) -> Engine:
    """Return the engine named by `method` with `options`, or `method` itself if it is an engine.

    A BBLTypeError is raised for an unknown option. The error suggests the closest name among the
    engine's options and `beside`, which contains the names of the caller's other arguments.
    """
    kind = engine_class(method)
    option_names = [f.name for f in dataclasses.fields(kind)]
    for name in options:
        if name not in option_names:  # `near_match` returns a question, or "" without a near match
            raise BBLTypeError(
                f"{name!r} is not an option of method={kind.name!r}.",
                argument=name,
                hint=(
                    ELSEWHERE.get(name)
                    or f"{near_match(name, [*option_names, *beside])}Its options are "
                    f"{', '.join(option_names)}."
                ),
            )
    if isinstance(method, Engine):
        if options:
            raise BBLTypeError(
                f"Options cannot be combined with an engine object: {', '.join(options)}.",
                argument=next(iter(options)),
                hint=f"Pass {', '.join(options)} to {kind.__name__}(...) itself.",
            )
        return method
    return kind(**options)
