"""Laws of predictions: probabilities, explanations, evaluations, batches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import reference
import reference_numbers
from scipy import stats
from sklearn import metrics

from scenarios.build import kept_rows, structural_zeros
from scenarios.case import Case, expect, expect_close
from scenarios.laws import law


def has_classes(case: Case) -> bool:
    return case.classes


def class_shares(case: Case) -> np.ndarray:
    """Return the class shares behind the model's predictions."""
    return case.fit.class_shares if case.fit.priors is None else np.asarray(case.fit.priors)


@law(has_classes)
def probabilities_sum_to_one(case: Case) -> None:
    """The probabilities of a row are between 0 and 1 and sum to 1, and the predicted group is the
    most probable one.
    """
    found = case.fit.predict(case.new_frame, type="prob")
    groups = list(case.fit.labels.groups)
    expect(list(found.columns[:-1]) == groups, f"columns {list(found.columns)} for groups {groups}")
    p = found.iloc[:, :-1].to_numpy(float)
    kept = ~np.isnan(p).any(axis=1)
    expect(kept.all() or case.s.missing == "drop", "a probability is nan")
    expect((p[kept] >= 0).all() and (p[kept] <= 1 + 1e-12).all(), "a probability is outside 0 to 1")
    expect_close(p[kept].sum(axis=1), np.ones(kept.sum()), "sum of probabilities", atol=1e-9)
    said = found.iloc[:, -1].to_numpy(object)[kept]
    chosen = np.array([groups.index(g) for g in said], dtype=int)
    said_p, highest = p[kept][np.arange(kept.sum()), chosen], p[kept].max(axis=1)
    # scores within 1e-12 of their size are ties, and those of weights of 1e9 with an approximate ln
    # Z reach 1e5
    expect_close(said_p, highest, "probability of the predicted group", atol=1e-6)
    alone = case.fit.predict(case.new_frame, type="class").to_numpy(object)[kept]
    expect(list(alone) == list(said), f"type='class' says {list(alone)[:5]}, yhat {list(said)[:5]}")


def enumerable(case: Case) -> bool:
    """Whether the model is a Boltzmann machine with a true ln Z, and few states."""
    engine = case.engine
    if (
        engine is None
        or engine.joint
        or case.fit.estimate.predictive is not None
        or -1 in case.table.zeros
    ):
        return False
    states = math.prod(len(levels) for levels in case.fit.labels.levels)
    return (
        states <= 800
        and case.fit.estimate.log_z_kind in ("auto", "exact")
        and case.fit.estimate.calibration is None
    )


def tables(case: Case, group: object) -> dict:
    """Return the coefficients of a group as `reference.term_energy` wants them, from the public
    table of them.
    """
    names = list(case.fit.labels.names)
    L = [len(levels) for levels in case.fit.labels.levels]
    out: dict = {}
    frame = case.fit.tidy()
    if not len(frame):
        return out
    frame = frame[[g == group and type(g) is type(group) for g in frame["group"]]]
    places = [c for c in frame.columns if str(c).startswith("predictor")]
    levels = [c for c in frame.columns if str(c).startswith("level")]
    columns = {c: list(frame[c]) for c in (*places, *levels, "estimate")}
    for k in range(len(frame)):
        scope = [names.index(columns[c][k]) for c in places if not pd.isna(columns[c][k])]
        at = [
            list(case.fit.labels.levels[i]).index(columns[c][k])
            for i, c in zip(scope, levels, strict=False)
        ]
        key = tuple(scope)
        if key not in out:
            out[key] = np.zeros([L[i] - 1 for i in key])
        out[key][tuple(a - 1 for a in at)] = columns["estimate"][k]
    return out


def possible_states(case: Case, states: np.ndarray) -> np.ndarray:
    """Return which states (S, m) can occur, for structural zeros that are those of all groups."""
    zeros, labels = structural_zeros(case.table) or {}, case.fit.labels
    at = {name: k for k, name in enumerate(labels.names)}
    wrong = np.zeros(len(states), dtype=bool)
    for cell in zip(*zeros.values(), strict=True):
        codes = [
            (at[name], list(labels.levels[at[name]]).index(v))
            for name, v in zip(zeros, cell, strict=True)
        ]
        wrong |= np.logical_and.reduce([states[:, i] == code for i, code in codes])
    return ~wrong


def energies_with_numbers(
    case: Case, own: list[dict], x: np.ndarray, number_at: list[int]
) -> np.ndarray:
    """Return the energies (n, K) of new rows plus the log density of their numbers, from the tables
    of means and covariances; missing values are summed and integrated out.
    """
    fit = case.fit
    L = [len(levels) for levels in fit.labels.levels]
    x = x.copy()
    x[:, number_at] = 0
    u = case.new_frame[case.table.numbers].to_numpy(float, na_value=np.nan).copy()
    if case.fit.estimate.location.model.transform == "normal":
        for j, name in enumerate(case.table.numbers):
            u[:, j] = normal_scores(case, name, u[:, j])
    partners = np.array([[interact(case, i, j) for j in range(len(L))] for i in number_at])
    partners[:, number_at] = False
    means = fit.means()
    out = np.empty((len(x), len(own)))
    states = reference.states(L)
    for g, group in enumerate(fit.labels.groups):
        energies = reference.term_energy(own[g], states)
        log_p = dict(zip(map(tuple, states.tolist()), energies, strict=True))
        C = [means.loc[name].iloc[:, g].to_numpy() for name in case.table.numbers]
        S = fit.covariances(group).to_numpy()
        out[:, g] = [
            reference_numbers.log_joint(x[k], u[k], log_p, C, S, L, partners) for k in range(len(x))
        ]
    return out


def interact(case: Case, i: int, j: int) -> bool:
    """Return whether the formula lets two predictors interact."""
    if case.s.method == "naive":
        return False
    terms = case.s.terms
    return (
        terms > 1
        if isinstance(terms, int)
        else tuple(sorted((case.s.used[i], case.s.used[j]))) in terms
    )


def normal_scores(case: Case, name: str, values: np.ndarray) -> np.ndarray:
    """Return the normal scores of new values, by their mid-ranks among the training rows."""
    table = case.table.take(np.flatnonzero(kept_rows(case.s, case.table)))
    train = table.frame()[name].to_numpy(float)
    weights = np.ones(table.n) if table.weights is None else table.weights.astype(float)
    known = np.unique(train)
    below = np.array([weights[train < v].sum() + weights[train == v].sum() / 2 for v in known])
    return np.interp(values, known, stats.norm.ppf(below / weights.sum()))


@law(enumerable, cost=15)
def probabilities_follow_from_coefficients(case: Case) -> None:
    """Class probabilities, ln Z and the probabilities of rows agree with an enumeration of all
    states.
    """
    fit = case.fit
    L = [len(levels) for levels in fit.labels.levels]
    groups = list(fit.labels.groups)
    own = [tables(case, g) for g in groups]
    possible = possible_states(case, reference.states(L))
    log_z = np.array(
        [reference.logsumexp(reference.term_energy(t, reference.states(L)[possible])) for t in own]
    )
    rounding = (
        10.0 * np.finfo(float).eps * float(np.abs(fit.estimate.parameters.theta).max(initial=0.0))
    )
    expect_close(fit.log_z.to_numpy(), log_z, "ln Z", 1e-8, 1e-8 + rounding)
    codes, missing = fit.design.encode(case.new_frame)
    number_at = [fit.labels.names.index(name) for name in case.table.numbers]
    x = codes.astype(float)
    x[:, number_at] = 0
    x = x.astype(int)
    if missing is not None:
        x = np.where(missing, -1, x)
    if number_at:
        E = energies_with_numbers(case, own, x, number_at)
    elif (x < 0).any():
        E = np.array([reference.term_marginal_energy(t, L, x, possible) for t in own]).T
    else:
        E = np.array([reference.term_energy(t, x) for t in own]).T
    with np.errstate(divide="ignore"):
        scores = E - log_z + (np.log(class_shares(case)) if case.classes else 0.0)
    dropped = fit.design.dropped(case.new_frame)
    kept = slice(None) if dropped is None else ~dropped
    rounding += (
        10.0
        * np.finfo(float).eps
        * np.abs(np.where(np.isfinite(E - log_z), log_z, 0.0)).max(initial=0.0)
    )
    if case.classes:
        p = np.exp(scores - reference.logsumexp(scores)[:, None])
        expect_close(
            case.probabilities(fit).to_numpy()[kept],
            p[kept],
            "P(group | row)",
            1e-7 + rounding,
            1e-9,
        )
    found = fit.score_samples(case.new_frame).to_numpy()
    expect_close(found[kept], reference.logsumexp(scores)[kept], "ln P(row)", 1e-7 + rounding, 1e-7)


@law(lambda case: case.classes and case.in_memory)
def training_rows_are_rows(case: Case) -> None:
    """predict() and predict(newdata) with the training rows give the same result."""
    rows = case.frame[kept_rows(case.s, case.table)]
    expect_close(
        case.fit.predict(type="prob").iloc[:, :-1],
        case.probabilities(case.fit, rows),
        "training rows",
        atol=1e-12,
    )


@law(cost=8)
def a_subset_is_predicted_as_within_the_whole(case: Case) -> None:
    """Predictions, explanations and scores of a row do not depend on the other rows in the call."""
    at = np.sort(case.rng.choice(len(case.new_frame), 4, replace=False))
    part = case.new_frame.iloc[at].reset_index(drop=True)
    calls = [lambda rows: case.fit.predict(rows).iloc[:, :-1]] if case.classes else []
    if case.engine is not None and not case.engine.joint:
        calls.append(lambda rows: case.fit.score_samples(rows).to_frame())
    if explains(case):
        calls.append(lambda rows: case.fit.explain(rows, of=pair(case)).frame.iloc[:, -1:])
    for call in calls:
        expect_close(call(part), call(case.new_frame).iloc[at], "a subset of rows", atol=1e-12)


def pair(case: Case) -> tuple:
    """Return two groups."""
    groups = list(case.fit.labels.groups)
    return groups[-1], groups[0]


def explains(case: Case) -> bool:
    # structural zeros of single groups, with which scores are no sums of terms
    of_groups = -1 in case.table.zeros
    # cumulative logits of three groups or more are no log-odds of two of them
    cumulative = case.s.options.get("logits") in ("cumulative", "cv") and len(case.table.groups) > 2
    return (
        case.classes
        and not cumulative
        and case.s.family != "average"
        and case.s.method not in ("auto", "aode")
        and not of_groups
    )


@law(explains)
def explanations_add_up_to_the_prediction(case: Case) -> None:
    """The parts of an explanation add up to the log-odds of predict()."""
    groups = list(case.fit.labels.groups)
    one, other = pair(case)
    found = case.fit.explain(case.new_frame, of=(one, other))
    link = case.fit.predict(case.new_frame, type="prob").iloc[:, :-1].to_numpy(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(link[:, groups.index(one)]) - np.log(link[:, groups.index(other)])
    numbers = found.frame.iloc[:, 2:].to_numpy(float)
    # what a network without prior counts finds impossible has infinite parts
    kept = np.isfinite(odds) & (np.abs(odds) < 30) & np.isfinite(numbers).all(axis=1)
    # parts of 1e9 that cancel leave what rounding left of them
    largest = np.abs(numbers[kept]).max(initial=1.0)
    near = {"rtol": 1e-6, "atol": 1e-6 * max(1.0, 1e-8 * largest)}
    expect_close(numbers[kept, -1], odds[kept], "log_odds of explain()", **near)
    expect_close(numbers[kept, :-1].sum(axis=1), odds[kept], "sum of the parts", **near)
    row = found.row(0)
    if kept[0]:
        expect_close(row.sum(), numbers[0, -1], "sum of row(0)", **near)


@law(has_classes, cost=12)
def evaluate_agrees_with_scikit_learn(case: Case) -> None:
    """evaluate() gives the same accuracy, log-loss, Brier score and AUC as scikit-learn."""
    groups = list(case.fit.labels.groups)
    whole = case.fit.predict(case.new_frame, type="prob")
    p = whole.iloc[:, :-1].to_numpy(float)
    kept = ~np.isnan(p).any(axis=1)
    y = np.array([groups.index(case.new.groups[g]) for g in case.new.y])[kept]
    p, said = p[kept], [groups.index(g) for g in whole.iloc[:, -1].to_numpy(object)[kept]]
    if not len(y):
        return
    found = case.fit.evaluate(case.new_frame).scores["estimate"]
    expect_close(found["accuracy"], metrics.accuracy_score(y, said), "accuracy")
    at = p[np.arange(len(y)), y]
    if (at > 1e-14).all():
        expect_close(found["log-loss"], -np.log(at).mean(), "log-loss", rtol=1e-7)
    expect_close(
        found["Brier score"], ((p - np.eye(len(groups))[y]) ** 2).sum(axis=1).mean(), "Brier score"
    )
    if len(groups) == 2 and len(np.unique(y)) == 2:
        link = case.fit.predict(case.new_frame).iloc[:, 1].to_numpy(float)[kept]
        link = np.clip(link, -1e200, 1e200)
        of_size = np.maximum(1.0, np.abs(link))
        differences = np.abs(link[y == 1][:, None] - link[y == 0])
        # rounding decides
        tied = (differences < 1e-9 * np.maximum(of_size[y == 1][:, None], of_size[y == 0])).mean()
        expect_close(
            found["AUC"], metrics.roc_auc_score(y, np.round(link, 9)), "AUC", atol=1e-9 + tied
        )


@law(has_classes)
def batches_are_predicted_as_the_whole(case: Case) -> None:
    """predict_batches() gives the same predictions as predict()."""
    half = len(case.new_frame) // 2

    def rows():
        yield case.new_frame.iloc[:half]
        yield case.new_frame.iloc[half:]

    parts = list(case.fit.predict_batches(rows, verbose=0))
    whole = case.fit.predict(case.new_frame, type="prob")
    found = pd.concat(parts)
    expect(list(found.columns) == list(whole.columns), f"columns {list(found.columns)}")
    expect_close(found.iloc[:, :-1], whole.iloc[:, :-1], "batches", atol=1e-12)


@law(has_classes)
def priors_follow_bayes_rule(case: Case) -> None:
    """with_priors(), predict(priors=) and reweighted probabilities agree."""
    fit = case.fit
    K = len(fit.labels.groups)
    q = case.rng.dirichlet(np.full(K, 2.0))
    given = dict(zip(fit.labels.groups, q, strict=True))
    p = case.probabilities(fit).to_numpy(float)
    own = class_shares(case)
    turned = p * q / own if (own > 0).all() else np.full_like(p, np.nan)
    turned /= turned.sum(axis=1, keepdims=True)
    a = fit.predict(case.new_frame, type="prob", priors=given).iloc[:, :-1].to_numpy(float)
    b = case.probabilities(fit.with_priors(given)).to_numpy(float)
    expect_close(a, b, "predict(priors=) and with_priors()", atol=1e-12)
    safe = (p > 1e-12).all(axis=1) & ~np.isnan(turned).any(axis=1)
    expect_close(a[safe], turned[safe], "Bayes' rule", rtol=1e-6, atol=1e-8)


@law(has_classes)
def costs_are_least(case: Case) -> None:
    """With costs, the predicted group is one with the lowest expected cost."""
    groups = list(case.fit.labels.groups)
    costs = case.rng.integers(0, 5, (len(groups), len(groups))).astype(float)
    np.fill_diagonal(costs, 0.0)
    table = pd.DataFrame(costs, index=groups, columns=groups)
    found = case.fit.predict(case.new_frame, type="prob", costs=table)
    p = found.iloc[:, :-1].to_numpy(float)
    for row, said in itertools.islice(zip(p, found.iloc[:, -1], strict=True), 5):
        if not np.isnan(row).any():
            expected = row @ costs
            expect_close(
                expected[groups.index(said)], expected.min(), "expected cost of the prediction"
            )
