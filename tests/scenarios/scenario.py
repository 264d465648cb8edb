"""A scenario: a random combination of table, source, weights, gaps, formula, method and options,
drawn from a seed.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scenarios.words import NAME_STYLES

__all__ = ["Scenario", "draw", "from_json", "to_json"]

MEMORY = ("pandas", "polars", "arrow", "dict")
STREAMS = ("file", "files", "folder", "dataset", "reader", "lazyframe", "callable")
COSTLY = ("duckdb", "dask")
PREDICTORS = (
    "str",
    "category",
    "ordered",
    "bool",
    "int",
    "float",
    "Int64",
    "boolean",
    "string",
    "arrow",
    "object",
)
# dtypes of numeric predictors
NUMBER_KINDS = ("number", "whole", "Float64")
WITH_NUMBERS = (
    "pseudo",
    "ml",
    "mf",
    "naive",
    "blanket",
    "boosting",
    "shbm",
    "pcd",
    "mpf",
    "conditional",
)
GROUPS = ("str", "category", "ordered", "bool", "int", "Int64", "string", "arrow", "float")
POLICIES = ("raise", "drop", "level", "marginal")
WEIGHTS = ("none", "counts", "zero", "real", "huge")
# that the exact likelihood sums over with all interactions: more take minutes for a fit
MAX_STATES = 2**17


@dataclass(frozen=True)
class Scenario:
    """What a user did: a table and a call. Every field can be replaced by a simpler one, which is
    how a failure shrinks.

    Attributes
    ----------
    seed : int
        Of the table's cells, and of whatever a law draws.
    n : int
        Number of rows that are drawn.
    levels : tuple of int
        Number of levels of each predictor; 1 for numbers.
    shares : tuple of float
        Of the groups; their number is the number of groups.
    kinds, group_kind : tuple of str, str
        The dtype of each predictor, and of the response.
    names : str
        Style of the names of columns and levels, see `NAME_STYLES`.
    gaps : float
        Share of cells that are missing.
    absent : float
        Probability that a level never occurs in a group.
    rows, columns : tuple of int, or None
        Positions that are left of the table; None for all. The shrinker drops rows and columns by
        them.
    weights, source : str
    family : {"bbl", "network", "shooter", "average"}
    response : bool
        Whether the formula has a response; "~ ." has none.
    terms : int, or tuple of tuple of int
        ``y ~ .^k``; or the predictors of every term.
    method : str
        Method of `bbl`, or the learner of a network.
    options : dict
        Arguments of the call beside formula, data, weights and method.
    zeros : int
        How many cells that never occur are structural zeros.
    design : dict
        Arguments of `bbl.survey`: for columns how many distinct values they have, options as they
        are. Empty for rows that were drawn one by one.
    """

    seed: int
    n: int
    levels: tuple[int, ...]
    shares: tuple[float, ...]
    kinds: tuple[str, ...]
    group_kind: str = "str"
    names: str = "plain"
    gaps: float = 0.0
    absent: float = 0.0
    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None
    weights: str = "none"
    source: str = "pandas"
    family: str = "bbl"
    response: bool = True
    terms: int | tuple[tuple[int, ...], ...] = 1
    method: str = "pseudo"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    zeros: int = 0
    design: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def used(self) -> tuple[int, ...]:
        """Positions of the predictors that are left."""
        return tuple(range(len(self.levels))) if self.columns is None else self.columns

    @property
    def numbers(self) -> tuple[int, ...]:
        """Positions of the numeric predictors that are left."""
        return tuple(i for i in self.used if self.kinds[i] in NUMBER_KINDS)

    @property
    def missing(self) -> str:
        """The policy for missing values."""
        return self.options.get("missing", "marginal" if self.family == "network" else "raise")

    @property
    def order(self) -> int:
        """The highest order of a term."""
        return self.terms if isinstance(self.terms, int) else max(map(len, self.terms))


def to_json(scenario: Scenario) -> str:
    """Return a scenario as one line of JSON, without what is as by default."""
    plain = {
        f.name: getattr(scenario, f.name)
        for f in dataclasses.fields(Scenario)
        if f.default is dataclasses.MISSING or getattr(scenario, f.name) != f.default
    }
    return json.dumps(plain)


def from_json(text: str) -> Scenario:
    """Return the scenario of `to_json`."""
    plain = json.loads(text)

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return Scenario(**{k: v if k in ("options", "design") else tuples(v) for k, v in plain.items()})


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = np.random.default_rng([seed, 20])

    def one(choices: dict[Any, float] | tuple) -> Any:
        keys = list(choices)
        p = (
            np.array([choices[k] for k in keys])
            if isinstance(choices, dict)
            else np.ones(len(keys))
        )
        return keys[rng.choice(len(keys), p=p / p.sum())]

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def chance(p: float) -> bool:
        return bool(rng.random() < p)

    n = round(log_uniform(1, 3000) if chance(0.15) else log_uniform(2, 200))
    m = round(log_uniform(1, 40) if chance(0.05) else log_uniform(1, 7))
    levels = tuple(int(v) for v in rng.integers(2, 8 if chance(0.3) else 5, m))
    K = one({1: 0.01, 2: 0.6, 3: 0.25, 4: 0.07, 5: 0.04, 6: 0.03})
    shares = rng.dirichlet(np.full(K, one((0.3, 2.0, 20.0))))
    style = one({"plain": 0.5, "words": 0.2, "unicode": 0.1, "punctuation": 0.15, "long": 0.05})
    plain = chance(0.4)
    kinds = tuple("str" if plain else one(PREDICTORS) for _ in levels)
    kinds = tuple(
        "int" if L > 2 and kind in ("bool", "boolean") else kind
        for L, kind in zip(levels, kinds, strict=True)
    )
    group_kind = "str" if chance(0.5) else one(GROUPS)
    if K > 2 and group_kind == "bool":
        group_kind = "int"
    family = one({"bbl": 0.72, "network": 0.2, "shooter": 0.04, "average": 0.04})
    draft = Scenario(
        seed,
        n,
        levels,
        tuple(round(float(s), 3) for s in shares),
        kinds,
        group_kind,
        style,
        gaps=one({0.0: 0.65, 0.02: 0.15, 0.2: 0.15, 0.6: 0.05}),
        absent=one({0.0: 0.6, 0.1: 0.3, 0.4: 0.1}),
        weights=one({"none": 0.55, "counts": 0.25, "zero": 0.08, "real": 0.08, "huge": 0.04}),
        source=one(
            {"pandas": 0.6}
            | dict.fromkeys(MEMORY[1:], 0.05)
            | dict.fromkeys(STREAMS, 0.035)
            | {"duckdb": 0.002, "dask": 0.001}
        ),
        family=family,
    )
    chosen = {
        "bbl": _draw_bbl,
        "network": _draw_network,
        "shooter": _draw_shooter,
        "average": _draw_average,
    }
    changes = chosen[family](draft, one, log_uniform, chance, rng)
    options = changes.pop("options")
    if draft.gaps and chance(0.9):
        policies = ("drop", "level") if family == "shooter" else ("drop", "level", "marginal")
        options["missing"] = one(policies)
    elif chance(0.1):
        options["missing"] = one(POLICIES)
    if "priors" in options and options["priors"] == "drawn":
        options["priors"] = [round(float(p), 3) + 0.01 for p in rng.dirichlet(np.full(K, 1.0))]
    assert style in NAME_STYLES
    scenario = dataclasses.replace(draft, options=options, **changes)
    # by numbers of its own, so that other draws stay
    if scenario.method == "conditional" and "ordered" in kinds:
        of_order = np.random.default_rng([seed, 22])
        options["ordered"] = str(
            of_order.choice(["nominal", "linear", "cumulative", "cv"], p=[0.3, 0.3, 0.3, 0.1])
        )
    if scenario.family == "bbl" and scenario.method in ("pseudo", "ml") and "ordered" in kinds:
        options |= _draw_linear(scenario, np.random.default_rng([seed, 27]))
    if scenario.method == "conditional" and np.random.default_rng([seed, 29]).random() < 0.4:
        scenario = dataclasses.replace(scenario, group_kind="ordered")
    if scenario.method == "conditional" and scenario.group_kind == "ordered":  # as above
        scenario = _draw_logits(scenario, np.random.default_rng([seed, 25]))
    if scenario.method == "conditional":  # as above
        scenario = _draw_blanket(scenario, np.random.default_rng([seed, 23]))
    if scenario.method == "conditional":
        scenario = _draw_boosting(scenario, np.random.default_rng([seed, 24]))
    scenario = dataclasses.replace(
        scenario, **_draw_beside(scenario, np.random.default_rng([seed, 21]))
    )
    if scenario.family == "bbl":
        scenario = _draw_numbers(scenario, np.random.default_rng([seed, 28]))
    return scenario


def _draw_linear(s: Scenario, rng: Any) -> dict[str, Any]:
    """Return options of couplings that are linear in level scores, or none."""
    is_possible = any(
        kind == "ordered" and L > 2 for kind, L in zip(s.kinds, s.levels, strict=True)
    )
    # now and then where it is refused
    if rng.random() > (0.5 if is_possible else 0.1):
        return {}
    if not is_possible or rng.random() < 0.6:
        return {"ordered": "linear"}
    scored = [i for i, kind in enumerate(s.kinds) if kind == "ordered" and s.levels[i] > 2]
    return {"ordered": "linear", "level_scores": [int(rng.choice(scored)), int(rng.integers(1e6))]}


def _draw_numbers(s: Scenario, rng: Any) -> Scenario:
    """Return a scenario with numeric predictors besides the others or instead of them, or now and
    then the same one.
    """
    may_take = s.method in WITH_NUMBERS and not s.zeros
    if rng.random() > (0.35 if may_take else 0.03):
        return s
    names = {"structural_zeros", "relevance"} if rng.random() > 0.1 else set()
    options = {k: v for k, v in s.options.items() if k not in names}
    options["numeric"] = str(rng.choice(["listed", "listed", "all"]))
    given = set(options)
    if rng.random() < 0.35:
        options["covariance"] = "shared"
    if rng.random() < 0.25:
        options["divisor"] = "ml"
    if rng.random() < 0.25:
        options["shrink"] = float(rng.choice([0.1, 0.5, 1.0]))
    if rng.random() < 0.2:
        options["transform"] = "normal"
    for name in ("covariance", "shrink", "transform"):
        if rng.random() < 0.05:
            options[name] = "cv"
    # which numbers that are regressors do not have
    if s.method == "conditional" and rng.random() < 0.9:
        options = {k: v for k, v in options.items() if k in given}
    q = int(rng.choice([1, 2, 3, 4], p=[0.35, 0.35, 0.2, 0.1]))
    alone = rng.random() < 0.2 and s.method != "blanket"
    m = 0 if alone else len(s.levels)
    kinds = tuple(str(rng.choice(NUMBER_KINDS, p=[0.6, 0.25, 0.15])) for _ in range(q))
    # engines see terms of levels alone; means are sums over predictors
    terms: int | tuple = min(s.terms, 2) if isinstance(s.terms, int) else s.terms
    if alone:
        terms = int(rng.integers(1, 3))
    if not isinstance(terms, int) or rng.random() < 0.4:
        levels = range(m)
        if isinstance(terms, int):
            terms = tuple((i,) for i in levels) if terms < 2 else tuple(_pairs(levels))
        numbers = range(m, m + q)
        pairs = [(i, j) for i in range(m + q) for j in numbers if i < j and rng.random() < 0.4]
        terms = (*terms, *((j,) for j in numbers), *pairs)
    if rng.random() > 0.1:
        options.pop("log_z", None)
    source = s.source if s.source in MEMORY or rng.random() < 0.1 else "pandas"
    return dataclasses.replace(
        s,
        levels=s.levels[:m] + (1,) * q,
        kinds=s.kinds[:m] + kinds,
        terms=terms,
        options=options,
        source=source,
    )


def _pairs(levels: range) -> list[tuple[int, ...]]:
    """Return the terms of ``.^2``."""
    return [(i,) for i in levels] + [(i, j) for i in levels for j in levels if i < j]


def _draw_logits(s: Scenario, rng: Any) -> Scenario:
    """Return a scenario with logits of an ordered response, where the data keep its order."""
    logits = str(rng.choice(["nominal", "adjacent", "cumulative", "cv"], p=[0.2, 0.35, 0.35, 0.1]))
    if logits == "nominal" or s.source not in ("pandas", "arrow") or s.family != "bbl":
        return s
    options = {k: v for k, v in s.options.items() if k not in ("start", "lambda_")}
    if options.get("ridge") == "firth":
        options["ridge"] = 0.0
    if logits != "adjacent":
        options.pop("calibrate", None)
    return dataclasses.replace(s, options=options | {"logits": logits})


def _draw_blanket(s: Scenario, rng: Any) -> Scenario:
    """Return a scenario of conditional likelihood, or now and then the same one of Markov
    blankets.
    """
    if rng.random() > 0.35:
        return s
    options = {
        k: v
        for k, v in s.options.items()
        if k not in ("ridge", "start", "lambda_", "ordered", "logits")
    }
    if rng.random() > 0.1:
        options.pop("relevance", None)  # which is refused
    if rng.random() < 0.7:
        is_tuned = s.options.get("ridge") == "cv"
        options["iss"] = "cv" if is_tuned else float(rng.choice([0.1, 1.0, 10.0, 100.0]))
    return dataclasses.replace(s, method="blanket", options=options)


def _draw_boosting(s: Scenario, rng: Any) -> Scenario:
    """Return a scenario of conditional likelihood, or now and then the same one of boosting."""
    if rng.random() > 0.4:
        return s
    options = {
        k: v
        for k, v in s.options.items()
        if k not in ("ridge", "start", "lambda_", "ordered", "logits")
    }
    if rng.random() < 0.3:
        options["rate"] = float(rng.choice([0.03, 0.3, 1.0]))
    if rng.random() < 0.3:
        options["pairs"] = int(rng.integers(0, 6))
    return dataclasses.replace(s, method="boosting", options=options)


def _draw_beside(s: Scenario, rng: Any) -> dict[str, Any]:
    """Return structural zeros or a sampling design, for methods that take one (and now and then for
    others).
    """
    may_take = s.family == "bbl" and s.source in MEMORY
    if may_take and s.method == "ml" and rng.random() < 0.25:
        return {"zeros": int(rng.integers(1, 4))}
    takes = s.method in ("naive", "pseudo", "ml") or (
        s.method == "conditional" and s.options.get("ridge") == 0.0
    )
    if not (may_take and rng.random() < (0.12 if takes else 0.01)):
        return {}
    design: dict[str, Any] = {"lonely": str(rng.choice(["adjust", "remove", "average"]))}
    if rng.random() < 0.6:
        design["strata"] = int(rng.integers(1, 4))
    if rng.random() < 0.6:
        design["cluster"] = [int(v) for v in rng.integers(4, 30, 1 + int(rng.random() < 0.2))]
    kind = rng.random()
    if kind < 0.15:
        design["fpc"] = True
    elif kind < 0.3:
        design |= {"type": str(rng.choice(["JKn", "bootstrap"])), "mse": bool(rng.random() < 0.5)}
    elif kind < 0.4:
        design = {"replicates": int(rng.integers(8, 30)), "type": "bootstrap"}
    if rng.random() < 0.2:
        design["domain"] = 0.7
    return {
        "design": design,
        "weights": s.weights if s.weights in ("counts", "real", "huge") else "real",
    }


def _terms(m: int, order: int, rng: Any, chance: Any) -> int | tuple:
    """Return all terms up to an order, or all fields and some interactions."""
    if chance(0.6) or m < 2:
        return order
    chosen = {(i,) for i in range(m)}
    if order > 1:
        for _ in range(int(rng.integers(1, m + 1))):
            size = int(rng.integers(2, min(order, m) + 1))
            chosen.add(tuple(sorted(map(int, rng.choice(m, size, replace=False)))))
    return tuple(sorted(chosen, key=lambda t: (len(t), t)))


def _draw_bbl(draft: Scenario, one: Any, log_uniform: Any, chance: Any, rng: Any) -> dict[str, Any]:
    small = draft.n <= 60 and len(draft.levels) <= 3
    methods = {"naive": 0.25, "mf": 0.25, "pseudo": 0.34, "ml": 0.10, "conditional": 0.06}
    if small:
        methods |= {
            "auto": 0.003,
            "bayes": 0.003,
            "pvi": 0.003,
            "shbm": 0.03,
            "mpf": 0.03,
            "pcd": 0.01,
        }
    method = one(methods)
    m = len(draft.levels)
    top = {"naive": 3, "mf": 2, "mpf": 2, "pcd": 2}.get(method, 4 if m <= 6 else 2)
    order = min(one({1: 0.3, 2: 0.5, 3: 0.12, 4: 0.08}), top, 2 if m > 8 else 4)
    if method == "mf" and chance(0.03):
        order = 3
    options: dict[str, Any] = {}
    tuning = chance(0.04) and draft.n <= 200 and m <= 8
    if method == "pseudo":
        if chance(0.5):
            options["lambda_"] = (
                one({"cv": 0.5, "cv-1se": 0.5}) if tuning else one((0.0, 1e-3, 0.1, 10.0))
            )
        if chance(0.2):
            options["lambdah"] = one((1e-3, 0.1))
        if chance(0.15):
            options["prior_count"] = one((0.5, 1.0))
        if chance(0.15):
            options["gauge"] = "zero-sum"
        if chance(0.08):
            options["symmetrize"] = False
    elif method == "ml":
        n_states = math.prod(draft.levels)
        many_states = n_states > 1000
        if draft.gaps and many_states:  # tables of 5,000 states with gaps take a minute or more
            order = min(order, 2 if n_states <= 5_000 else 1)
        if chance(0.3):
            options["lambda_"] = (
                one({"cv": 0.5, "cv-1se": 0.5}) if tuning and not many_states else one((1e-3, 0.1))
            )
        if chance(0.1):
            options["lambdah"] = 0.01
        if chance(0.25):
            options["prior_count"] = one((0.5, 1.0))
    elif method == "mf":
        if chance(0.6):
            options["eps"] = (
                one({"cv": 0.5, "cv-1se": 0.5}) if tuning else one((0.0, 0.5, 0.9, 1.0))
            )
        if chance(0.15):
            options["gauge"] = "zero-sum"
        if chance(0.2):
            options["prior_count"] = one((0.0, 0.5, 1.0))
    elif method == "naive" and chance(0.4):
        options["prior_count"] = one((0.5, 1.0))
    elif method == "conditional":
        if chance(0.6):
            ridges = {1e-4: 0.3, 0.1: 0.2, 0.0: 0.3, "firth": 0.2}
            options["ridge"] = "cv" if tuning else one(ridges)
        if chance(0.1) and draft.n <= 200 and options.get("ridge") not in (0.0, "firth"):
            options |= {"start": "pseudo", "lambda_": 0.01}
    elif method in ("mpf", "pcd"):
        options |= {"lambda_": one((1e-3, 0.1)), "penalty": one(("l2", "group"))}
        if method == "pcd":
            options["n_iter"] = 50
    elif method == "bayes":
        options |= {"draws": 20, "chains": 2, "warmup": 20}
    elif method == "pvi":
        options |= {"n_iter": 200, "chains": 20}
    response = method in ("conditional", "auto") or not chance(0.1)
    if method not in ("auto", "conditional", "bayes", "pvi") and chance(0.35):
        options["log_z"] = one(
            {"exact": 3, "pseudo": 3, "half": 3, "mf": 2, "ais": 0.1 if small else 0.0}
        )
    if response and method not in ("auto",) and chance(0.07):
        options["calibrate"] = one(("offset", "temperature"))
    if response and method in ("pseudo", "ml", "mf", "naive", "conditional") and chance(0.12):
        options["relevance"] = one(
            {0.05: 0.6, 0.5: 0.3, "cv": 0.1 if draft.n <= 200 and m <= 8 else 0.0}
        )
    if response and chance(0.12):
        options["priors"] = one(("equal", "drawn"))
    if response and chance(0.2):
        options["testNull"] = False
    if chance(0.6):
        options["novarOk"] = True
    terms = _terms(m, order, rng, chance)
    if method == "ml" and terms in (2, 3, 4) and math.prod(draft.levels) > MAX_STATES:
        terms = tuple((i,) for i in range(m)) + tuple((i, i + 1) for i in range(m - 1))
    return {"method": method, "terms": terms, "options": options, "response": response}


def _draw_network(
    draft: Scenario, one: Any, log_uniform: Any, chance: Any, rng: Any
) -> dict[str, Any]:
    learners = {"nb": 0.4, "tan_cl": 0.3, "aode": 0.15, "kdb": 0.1}
    if draft.n <= 100 and len(draft.levels) <= 4:
        learners |= dict.fromkeys(("tan_hc", "tan_hcsp", "fssj", "bsej"), 0.03)
    learner = one(learners)
    options: dict[str, Any] = {}
    if chance(0.7):
        options["smooth"] = one((0.5, 1.0, 0.01))
    if learner == "kdb":
        options["dag_args"] = {"search": "information"}
    elif learner in ("tan_hc", "tan_hcsp", "fssj", "bsej"):
        options["dag_args"] = {"k": 2, "smooth": 1.0}
    elif learner == "tan_cl" and chance(0.5):
        options["dag_args"] = {"score": one(("aic", "bic", "loglik"))}
    if learner == "nb" and chance(0.2):
        options |= one(({"manb_prior": 0.5, "smooth": 1.0}, {"wanbia": True}, {"awnb_trees": 2}))
    if chance(0.15):
        options["priors"] = one(("equal", "drawn"))
    return {"method": learner, "terms": 1, "options": options}


def _draw_shooter(
    draft: Scenario, one: Any, log_uniform: Any, chance: Any, rng: Any
) -> dict[str, Any]:
    options: dict[str, Any] = {"order": one({1: 0.3, 2: 0.5, 3: 0.2}), "refit": one((True, False))}
    options["lambda_"] = one((1.0, 5.0, 20.0)) if chance(0.8) or draft.n > 100 else "ebic"
    if chance(0.3):
        options["penalty"] = "l1"
    if chance(0.6):
        options["novarOk"] = True
    return {"method": "shooter", "terms": 1, "options": options}


def _draw_average(
    draft: Scenario, one: Any, log_uniform: Any, chance: Any, rng: Any
) -> dict[str, Any]:
    method = one(("naive+mf", "naive+pseudo", "mf+nb", "nb+tan_cl", "pseudo+conditional"))
    options: dict[str, Any] = {"average": one({"equal": 0.8, "cv": 0.2})}
    if chance(0.3):
        options["priors"] = one(("equal", "drawn"))
    return {"method": method, "terms": 1 if "nb" in method else one((1, 2)), "options": options}
