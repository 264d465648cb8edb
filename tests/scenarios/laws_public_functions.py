"""Laws for public functions: each is called with a scenario's table or model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import bbl
from bbl import networks
from scenarios import build
from scenarios.case import Case, LawBroken, expect, expect_close
from scenarios.laws import law

ANOTHER_LAW = {  # functions that scenarios and other laws call
    "average": "a family of scenarios",
    "bbl": "a family of scenarios",
    "bnc": "a family of scenarios",
    "shooter": "a family of scenarios",
    "load": "a_loaded_model_answers_alike",
    "survey": "a_sampling_design_does_not_change_estimates",
    "fetch": "it needs the network",
    "readFasta": "it reads sequences, which are no table",
    "plot_comparison": "it draws two sets of parameters",
    "enrichment": "it takes lists of terms",
    "accuracy": "it compares two columns",
}


def weights_of(case: Case) -> Any:
    return None if case.table.weights is None else case.table.weight_name


def structure(case: Case, learner: str, **options: Any) -> Any:
    """Learn a structure from the scenario's table."""
    return getattr(networks, learner)(
        build.formula(case.s, case.table),
        case.plain_frame,
        weights=weights_of(case),
        **case_options(case),
        **options,
    )


def case_options(case: Case) -> dict[str, Any]:
    return {"missing": case.s.missing} if "missing" in case.s.options else {}


def validated(case: Case) -> Any:
    """Cross-validate the scenario's call in two folds."""
    options = build.arguments(case.s, case.table) if case.s.family == "bbl" else {"verbose": 0}
    for name in ("priors", "testNull"):
        options.pop(name, None)
    options |= {"nfold": 2, "shuffle": True, "seed": 1}
    weights = None if case.s.design else weights_of(case)
    return bbl.crossVal(build.formula(case.s, case.table), case.frame, weights, **options)


def networks_cv(case: Case) -> Any:
    return networks.cv(case.fit, case.frame, k=2, weights=weights_of(case), verbose=0)


def lp(case: Case) -> Any:
    return networks.lp(
        structure(case, "nb"), case.plain_frame, 1.0, weights=weights_of(case), **case_options(case)
    )


def searches(learner: str) -> Callable[[Case], Any]:
    return lambda case: structure(case, learner, k=2, verbose=0)


def complete_codes(case: Case) -> np.ndarray:
    return case.table.codes[(case.table.codes >= 0).all(axis=1)]


FUNCTIONS: dict[str, Callable[[Case], Any]] = {
    "anova": lambda case: bbl.anova(case.fit, case.fit),
    "etable": lambda case: bbl.etable({"one": case.fit, "other": case.fit}),
    "step": lambda case: bbl.step(case.fit, scope=("~ 1", "~ .^2"), verbose=0),
    "graphs": lambda case: bbl.graphs(
        case.plain_frame, weights_of(case), verbose=0, **case_options(case)
    ),
    "log_scores": lambda case: bbl.log_scores(case.fit, case.new_frame),
    "crossVal": validated,
    "mcSample": lambda case: bbl.mcSample(case.fit, nsteps=4, nchains=4, seed=1, verbose=0),
    "bicluster": lambda case: bbl.bicluster(
        None, complete_codes(case), groups=(2, 2), n_init=1, verbose=0
    ),
    "du_process": lambda case: bbl.du_process(len(case.table.names), 5),
    "bin": lambda case: bbl.bin(case.plain_frame, weights=weights_of(case)),
    "lump": lambda case: bbl.lump(case.frame, min_count=3, weights=weights_of(case)),
    "removeConst": lambda case: bbl.removeConst(case.frame, case.table.response),
    "freq2raw": lambda case: bbl.freq2raw(case.frame.head(3), np.arange(len(case.frame.head(3)))),
    "effective_weights": lambda case: bbl.effective_weights(case.frame[case.table.names].head(50)),
    "effective_size": lambda case: bbl.effective_size(
        case.frame[case.table.names].head(50), n_steps=20, verbose=0
    ),
    "sample_rows": lambda case: bbl.sample_rows(case.plain_frame, 3, seed=1),
    "mlestimate": lambda case: bbl.mlestimate(complete_codes(case), verbose=0),
    "randompar": lambda case: bbl.randompar(
        dict(zip(case.table.names, case.table.values, strict=True)), seed=1
    ),
    "randomsamp": lambda case: bbl.randomsamp(
        dict(zip(case.table.names, case.table.values, strict=True)),
        case.table.groups,
        nsample=3,
        seed=1,
    ),
    "to_spins": lambda case: bbl.to_spins(case.fit, case.table.groups[0]),
    "from_spins": lambda case: bbl.from_spins(
        np.ones(len(case.table.names)), np.eye(len(case.table.names))
    ),
    "sample_xi": lambda case: bbl.sample_xi(
        3, dict(zip(case.table.names, case.table.values, strict=True)), seed=1
    ),
    "cmi": lambda case: networks.cmi(
        case.table.names[0], case.table.response, case.plain_frame, weights=weights_of(case)
    ),
    "cv": networks_cv,
    "lp": lp,
    "nb": lambda case: structure(case, "nb"),
    "tan_cl": lambda case: structure(case, "tan_cl"),
    "aode": lambda case: structure(case, "aode"),
    "kdb": lambda case: structure(case, "kdb", search="information", verbose=0),
    "tan_hc": searches("tan_hc"),
    "tan_hcsp": searches("tan_hcsp"),
    "fssj": searches("fssj"),
    "bsej": searches("bsej"),
    "structure": lambda case: networks.structure(
        case.table.response, {name: [] for name in case.table.names}
    ),
}


def public_functions() -> list[str]:
    """Return every public function, found by introspection: a new one is under the laws at once."""
    places = ((bbl, bbl.__all__), (networks, networks.__all__))
    functions = [n for place, names in places for n in names if callable(getattr(place, n))]
    return sorted({n for n in functions if not isinstance(getattr(bbl, n, None), type)})


@law(cost=25)
def every_public_function_answers(case: Case) -> None:
    """Every public function accepts the table or the model, or raises an error of the package."""
    names = [name for name in public_functions() if name not in ANOTHER_LAW]
    if len(case.frame) > 200 or len(case.table.names) > 6:
        names = [
            n
            for n in names
            if n not in ("tan_hc", "tan_hcsp", "fssj", "bsej", "crossVal", "cv", "bicluster")
        ]
    if len(case.table.names) > 4:
        names.remove("graphs")  # all graphs of six variables take a second
    name = str(case.rng.choice(names))
    if name not in FUNCTIONS:
        raise LawBroken(
            f"{name} has no call in tests/scenarios/laws_public_functions.py. Hint: add one."
        )
    try:
        found = FUNCTIONS[name](case)
    except bbl.BBLError as error:
        expect(len(str(error)) > 20, f"{name}: refused with {str(error)!r}")
        return
    expect(len(str(found)) > 0, f"{name}: prints nothing")


@law(
    lambda case: case.s.family == "bbl" and case.s.weights != "huge" and not case.is_tuned, cost=60
)
def a_cross_validation_is_its_own_model(case: Case) -> None:
    """The final model of a cross-validation is the fit to all rows, and its scores are computed
    from its pooled predictions.
    """
    random = (
        case.s.method in ("auto", "bayes", "boosting", "pcd", "pvi", "shbm")
        or case.s.options.get("log_z") == "ais"
    )
    if random or not (case.classes and len(case.frame) >= 8 and case.s.source == "pandas"):
        return
    try:
        cv = validated(case)
    except bbl.BBLError:
        return  # folds may lack what the whole has
    tuned = cv.model.engine.tuned
    plain = case.fit.engine
    if tuned is None or cv.model.engine == plain:
        alone = case.fit.with_priors(None)
        rows = case.new_frame
        expect_close(
            cv.model.predict(rows, type="prob").iloc[:, :-1],
            alone.predict(rows, type="prob").iloc[:, :-1],
            "cv.model",
        )
    found = cv.evaluate()
    expect_close(
        found.accuracy,
        found.confusion.to_numpy().trace() / found.confusion.to_numpy().sum(),
        "accuracy",
    )


@law(
    lambda case: (
        case.s.family == "bbl"
        and case.classes
        and case.s.source == "pandas"
        and not case.s.gaps
        and not (case.s.design or case.s.zeros)  # which the estimator does not take
    ),
    cost=20,
)
def the_estimator_is_the_fit(case: Case) -> None:
    """BBLClassifier gives the same probabilities as bbl with the same options."""
    from bbl.sklearn import BBLClassifier

    s = case.s
    plain = (
        s.method in ("naive", "mf", "pseudo", "ml")
        and not case.is_tuned
        and s.terms in (1, 2)
        and s.names == "plain"
    )
    if (
        min(len(np.unique(column)) for column in case.table.codes[build.kept_rows(s, case.table)].T)
        < 2
    ):
        return  # it leaves constant columns out
    if not plain or "priors" in s.options or not isinstance(case.table.groups[0], str):
        return
    options = {
        "pairs": "all" if s.terms == 2 else [],
        "log_z": s.options.get("log_z", "auto"),
        "n_jobs": 1,
    }
    beside = ("relevance", "covariance", "divisor", "shrink", "transform")
    options["options"] = {name: s.options[name] for name in beside if name in s.options}
    if s.numbers:
        options["numeric"] = build.arguments(s, case.table)["numeric"]
    weights = None if case.table.weights is None else np.asarray(case.table.weights, dtype=float)
    y = [case.table.groups[g] for g in case.table.y]
    estimator = BBLClassifier(case.fit.engine, **options).fit(
        case.frame[case.table.names], y, weights
    )
    found = estimator.predict_proba(case.new_frame[case.table.names])
    groups = list(case.fit.labels.groups)
    at = [groups.index(g) for g in estimator.classes_.tolist()]
    expect_close(
        found, case.probabilities(case.fit).to_numpy()[:, at], "predict_proba", rtol=1e-4, atol=1e-4
    )


def names_a_remedy(case: Case) -> bool:
    return case.s.family == "bbl" and any(
        f"{name} > 0" in " ".join(case.warnings) for name in ("lambdah", "prior_count")
    )


@law(names_a_remedy, cost=10)
def advice_of_warnings_works(case: Case) -> None:
    """Following the advice in a warning about levels without a finite optimum removes the
    warning.
    """
    text = " ".join(case.warnings)
    name = "lambdah" if "lambdah > 0" in text else "prior_count"
    s = dataclasses.replace(case.s, options=case.s.options | {name: 0.5})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        case.refit(scenario=s)
    again = [str(w.message) for w in caught if f"{name} > 0" in str(w.message)]
    expect(not again, f"with {name}=0.5 it still says: {again[:1]}")
