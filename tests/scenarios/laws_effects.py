"""Laws of effects: predictions and comparisons on the scale of probabilities."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from bbl.results.effect_table import Effects
from scenarios.build import Table, impossible, kept_rows
from scenarios.case import Case, expect, expect_close
from scenarios.laws import law

NUMBERS = ("estimate", "std_error", "p_value", "conf_low", "conf_high")


def numbers(effects: Effects, groups: list | None = None) -> np.ndarray:
    """Return the numbers of effects, shape (effects, K, 5), the groups in their order or in that of
    `groups`.
    """
    own = list(effects.labels.groups)
    columns = [effects.columns[name] for name in NUMBERS]
    values = effects.frame[columns].to_numpy(float).reshape(-1, len(own), len(columns))
    return values if groups is None else values[:, [own.index(g) for g in groups]]


def set_to(table: Table, at: int, level: Any) -> Table:
    """Return the rows with predictor `at` at a level; missing for a level that stands for missing
    cells.
    """
    known = table.values[at]
    codes = table.codes.copy()
    codes[:, at] = next(
        (a for a, v in enumerate(known) if type(v) is type(level) and v == level),
        known.index(level) if level in known else -1,
    )
    return dataclasses.replace(table, codes=codes)


def unseen(table: Table, at: int, level: Any) -> bool:
    """Return whether no cell can have a level, though the model has it: of declared categories, or
    of lone levels.
    """
    return level not in table.values[at] and level != "(missing)"


def compares(case: Case) -> bool:
    """Whether there are classes, and a predictor with two levels."""
    labels = case.fit.labels
    return case.classes and any(
        len(levels) > 1 and name not in case.table.numbers
        for name, levels in zip(labels.names, labels.levels, strict=True)
    )


def compared(case: Case) -> tuple[Any, list]:
    """Return a predictor with two levels, and its levels."""
    labels = case.fit.labels
    at = [
        i
        for i, levels in enumerate(labels.levels)
        if len(levels) > 1 and labels.names[i] not in case.table.numbers
    ]
    i = int(case.rng.choice(at))
    return labels.names[i], list(labels.levels[i])


def asked_rows(case: Case) -> tuple[Table, dict[str, Any], np.ndarray]:
    """Return rows, the arguments that ask effects of them, and their weights."""
    if case.in_memory and case.rng.random() < 0.5:
        table = case.table.take(np.flatnonzero(kept_rows(case.s, case.table)))
        weights = (
            np.ones(table.n) if table.weights is None else np.asarray(table.weights, dtype=float)
        )
        return dataclasses.replace(table, design={}), {}, weights
    table = case.new
    kept = (table.codes >= 0).all(axis=1) | (case.s.missing != "drop")
    weights = case.rng.uniform(0.2, 3.0, table.n)
    return (
        table.take(np.flatnonzero(kept)),
        {"newdata": table.frame(), "weights": weights},
        weights[kept],
    )


@law(compares, cost=40)
def effects_follow_from_predictions(case: Case) -> None:
    """Average predictions and comparisons equal averages of predict() for rows that are set to each
    level.
    """
    name, levels = compared(case)
    table, asked, weights = asked_rows(case)
    at = case.table.names.index(name)
    levels = [level for level in levels if not unseen(table, at, level)]
    if not table.n or not levels:
        return
    means = []
    for level in levels:
        rows = set_to(table, at, level)
        p = np.full((1, len(case.fit.labels.groups)), np.nan)
        if not impossible(table, rows.codes, np.full(table.n, -1)).any():
            p = case.fit.predict(rows.frame(), type="prob").iloc[:, :-1].to_numpy(float)
        means.append(np.average(p, axis=0, weights=weights if len(p) > 1 or table.n == 1 else None))
    wanted = np.array(means)
    found = numbers(case.fit.avg_predictions(variables={name: levels}, se=False, **asked))[..., 0]
    expect_close(found, wanted, f"avg_predictions(variables={name!r})")
    pairs = list(itertools.pairwise(levels[::-1]))
    if pairs:
        contrast = numbers(case.fit.avg_comparisons({name: pairs}, se=False, **asked))[..., 0]
        expect_close(contrast, np.diff(wanted, axis=0)[::-1], f"avg_comparisons({name!r})")
    whole = numbers(case.fit.avg_predictions(se=False, **asked))[0, :, 0]
    effects = case.fit.avg_predictions(by=name, se=False, **asked)
    cells = [
        None if level is None or level == "(missing)" else level
        for level in unit_values(effects, name)
    ]
    masses = [
        weights[
            table.codes[:, at] == (-1 if v is None else set_to(table, at, v).codes[0, at])
        ].sum()
        for v in cells
    ]
    expect_close(
        np.array(masses) / weights.sum() @ numbers(effects).reshape(len(cells), -1, 5)[..., 0],
        whole,
        "by=",
    )


@law(lambda case: case.classes and bool(case.table.numbers), cost=40)
def effects_of_numbers_follow_from_predictions(case: Case) -> None:
    """Comparisons of a number equal averages of predict() for rows with the number increased by the
    step, and slopes are their limit for small steps.
    """
    table, asked, weights = asked_rows(case)
    if not table.n:
        return
    name = str(case.rng.choice(case.table.numbers))
    values = np.array(case.table.values[case.table.names.index(name)], dtype=float)
    sd = float(values.std())
    step = float(case.rng.uniform(-2.0, 2.0)) * sd
    frame = table.frame()

    def mean_at(shift: float) -> np.ndarray:
        """Return the average probabilities (K,) of rows with the number increased."""
        moved = frame.assign(**{name: frame[name] + shift})
        p = case.fit.predict(moved, type="prob").iloc[:, :-1].to_numpy(float)
        return np.average(p, axis=0, weights=weights)

    found = case.fit.avg_comparisons([name], step={name: step}, se=False, **asked)
    expect_close(numbers(found)[0, :, 0], mean_at(step) - mean_at(0.0), f"{name!r} + {step}")
    if case.s.options.get("transform") in ("normal", "cv"):  # slopes of a polygon at its corners
        return
    by_sd = sd * numbers(case.fit.avg_slopes([name], se=False, **asked))[0, :, 0]
    h = 1e-4
    expected = (mean_at(h * sd) - mean_at(-h * sd)) / (2.0 * h)
    expect_close(by_sd, expected, f"slope of {name!r}", rtol=1e-3, atol=1e-4)


def unit_values(effects: Effects, name: Any) -> list:
    """Return the values of a column of `by`, one for each unit."""
    values = effects.frame[name].to_numpy(object)[:: len(effects.labels.groups)]
    return [None if v is None or v != v else v for v in values]


@law(compares, cost=50)
def intervals_of_effects_agree(case: Case) -> None:
    """The p-value of an effect is below 0.05 if and only if its 95 % interval excludes the null
    value.
    """
    if not case.in_memory and case.probabilities(case.fit).isna().any(axis=1).all():
        return  # there are no rows without missing values to average over
    name, levels = compared(case)
    transform = str(case.rng.choice(["difference", "ratio", "lift", "lnoddsratio"]))
    pair = (levels[-1], levels[0])
    asked = {} if case.in_memory else {"newdata": case.new_frame}
    effects = case.fit.avg_comparisons({name: pair}, transform=transform, **asked)
    value, se, p, low, high = numbers(effects)[0].T
    there = ~np.isnan(p)
    expect(((p[there] >= 0) & (p[there] <= 1)).all(), "a p-value is outside 0 to 1")
    expect(
        np.isnan(low[np.isnan(se)]).all() and (np.isnan(low) == np.isnan(high)).all(),
        "limits without errors",
    )
    expect(
        not (se < 0).any() and not (low > high).any(), "a standard error or an interval is negative"
    )
    out = (low > effects.null) | (high < effects.null)
    clear = there & (np.abs(p - 0.05) > 1e-6)
    expect(
        not (clear & (out != (p < 0.05))).any(),
        f"p and interval: {effects.frame.to_dict('records')}",
    )
    notes = effects.frame[effects.columns["note"]].to_numpy(object)
    silent = np.isnan(low) & (notes == "") & ("No standard errors" not in effects.note)
    expect(
        not silent.any(), f"no interval, and nothing says why: {effects.frame.to_dict('records')}"
    )
    turned = case.fit.avg_comparisons({name: pair[::-1]}, transform=transform, **asked)
    if transform == "lift":
        with np.errstate(divide="ignore", invalid="ignore"):
            turned_value = np.where(np.isposinf(value), -1.0, -value / (1.0 + value))
        is_clear = np.abs(1.0 + value) > 1e-4  # the ratio is not all but zero
        expect_close(
            numbers(turned)[0, is_clear, 0], turned_value[is_clear], "the pair turned round", 1e-6
        )
    elif transform != "ratio":
        expect_close(
            numbers(turned)[0, :, :3],
            np.column_stack([-value, se, p]),
            "the pair turned round",
            rtol=1e-6,
        )
    if transform == "difference":
        is_undefined = np.isnan(value)  # rows would be in cells that cannot occur
        expect(
            is_undefined.all() == is_undefined.any(),
            "a difference is undefined for some of the groups",
        )
        expect_close(
            0.0 if is_undefined.all() else value.sum(), 0.0, "sum of differences over the groups"
        )
        if len(value) == 2:
            expect_close(se[0], se[1], "standard errors of two groups", rtol=1e-6)


@law(lambda case: case.classes, cost=40)
def a_row_is_an_average_of_one(case: Case) -> None:
    """Predictions and comparisons of a row equal the averages over only this row, with the same
    standard errors.
    """
    kept = np.flatnonzero((case.new.codes >= 0).all(axis=1) | (case.s.missing != "drop"))
    if not len(kept):
        return
    frame = case.new.take(kept[:3]).frame()
    by_row = numbers(case.fit.predictions(frame))
    alone = np.concatenate(
        [numbers(case.fit.avg_predictions(newdata=frame.iloc[[k]])) for k in range(len(frame))]
    )
    expect_close(by_row, alone, "predictions of a row", rtol=1e-7)
    expect_close(by_row[..., 0], case.probabilities(case.fit, frame), "predictions() and predict()")
