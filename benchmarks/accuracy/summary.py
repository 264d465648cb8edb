"""Summaries over the splits of a data set: means of each method, and paired differences between
methods.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.model.logz import LOG_Z
from bbl.stats.calibration import CALIBRATE
from benchmarks.accuracy.data import FOLDS, NAMES, UCI, Data
from benchmarks.accuracy.methods import AUTO, BBL, BETTER, MEAN, NETWORKS, RECIPE
from benchmarks.report import update

METHOD = ["method", "log_z", "calibrate"]
SKLEARN = ("CategoricalNB", "logistic", "logistic, pairs", "random forest", "gradient boosting")
FIELD = {
    AUTO: (AUTO, "auto", "temperature"),
    **{name: (name,) for name in (*SKLEARN[:2], *SKLEARN[3:], "CatBoost", *NETWORKS)},
}  # what method="auto" is compared with
OPTIONAL = "CatBoost"
FIELD_SETS = ("titanic", *UCI)
ORDER = [(name,) for name in NAMES]


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean over splits of repeated 5-fold cross-validation, NaN for
    one split.

    Splits share training rows, so their variance is not simply divided by their number (Nadeau and
    Bengio, Machine Learning 52, 2003, section 3).
    """
    if len(values) < 2:
        return np.nan
    return float(values.std(ddof=1) * np.sqrt(1.0 / len(values) + 1.0 / 4.0))


def pooled_error(part: pd.DataFrame, sizes: np.ndarray) -> float:
    """Return the expected calibration error of all rows of a data set, predicted out of fold; the
    mean of the repeats.

    Of the few rows of a single fold chance alone makes up most of it.
    """
    gaps = np.array([[float(gap) for gap in text.split()] for text in part["gaps"]])
    repeat = part["fold"].to_numpy() // FOLDS
    errors = [
        np.abs(gaps[repeat == r].sum(axis=0)).sum() / sizes[repeat == r].sum()
        for r in np.unique(repeat)
    ]
    return float(np.mean(errors))


def as_stored(method: str, log_z: str = "auto", calibrate: str = "none") -> tuple[str, str, str]:
    """Return the columns of a method; only those of bbl have a kind of ln Z and a calibration."""
    return (method, log_z, calibrate) if method.startswith("bbl") else (method, "", "")


def select(frame: pd.DataFrame, *how: str) -> pd.DataFrame:
    """Return the rows of a method."""
    same = [frame[name] == value for name, value in zip(METHOD, as_stored(*how), strict=True)]
    return frame[np.logical_and.reduce(same)]


def pairs() -> Iterator[tuple[str, tuple, tuple]]:
    """Yield the comparisons of the main table: its text, one (method, log_z, calibrate) and the
    other.
    """
    ours = tuple(BBL)
    others = (*SKLEARN, "bbl naive")
    for method in (*ours[2:], "bbl mf"):
        auto, last = (method, "auto", "none"), (method, "auto", "temperature")
        for kind in LOG_Z[2:] if method in ours[1:3] else ():
            yield f"{method}, auto against {kind}", auto, (method, kind, "none")
        for c in CALIBRATE[1:]:
            yield f"{method}, {c} against none", (method, "auto", c), auto
        for name in others if method in RECIPE else ():
            yield f"{method}, temperature against {name}", last, (name,)
    for how in (BETTER, MEAN):
        for name in others:
            yield f"{how[0]} against {name}", how, (name,)
    for how in (BETTER, MEAN):
        for method in RECIPE:
            yield f"{how[0]} against {method}, temperature", how, (method, "auto", "temperature")


def auto_against(name: str) -> str:
    """Return the text of the comparison of ``method="auto"`` with a method of the field."""
    return f"{AUTO} against {name}"


def means(frame: pd.DataFrame, data: Data) -> pd.DataFrame:
    """Return one row for each method on a data set: means over splits and their standard errors.

    `pooled_ece` is `pooled_error`, `seconds` the median, and `setting` is kept only if all splits
    have the same.
    """
    held = np.array([len(test) for _, test in data.splits])
    rows = []
    for how, part in frame.groupby(METHOD, sort=False):
        row = {"data": data.name, "rows": len(data.y), "folds": len(part)}
        row |= dict(zip(METHOD, how, strict=True))
        for metric in ("accuracy", "log_loss", "ece"):
            row[metric] = part[metric].mean()
            row[f"{metric}_se"] = standard_error(part[metric].to_numpy())
        row["brier"] = part["brier"].mean(skipna=False)
        known = (part["gaps"] != "").all()
        row["pooled_ece"] = pooled_error(part, held[part["fold"]]) if known else np.nan
        settings = part["setting"].unique()
        row["setting"] = settings[0] if len(settings) == 1 else ""
        row["cv_loss"] = part["cv_loss"].mean(skipna=False)
        rows.append(row | {"seconds": part["seconds"].median()})
    return pd.DataFrame(rows)


def differences(frame: pd.DataFrame, data: Data) -> pd.DataFrame:
    """Return the mean paired differences, one method less the other, with their standard errors.

    A comparison with a method that is not in the frame has 0 folds: its splits are not at hand.
    """
    compared = {text: (one, other) for text, one, other in pairs()}
    if data.name in FIELD_SETS:
        compared |= {
            auto_against(name): (FIELD[AUTO], how) for name, how in FIELD.items() if name != AUTO
        }
    by_method = {how: part.set_index("fold") for how, part in frame.groupby(METHOD, sort=False)}
    absent = frame[:0].set_index("fold")
    rows = []
    for text, both in compared.items():
        one, other = (by_method.get(as_stored(*how), absent) for how in both)
        if not len(one) and not len(other):
            continue
        folds = one.index.intersection(other.index)
        row = {"data": data.name, "comparison": text, "folds": len(folds)}
        for metric in ("log_loss", "accuracy", "brier"):
            gaps = (one.loc[folds, metric] - other.loc[folds, metric]).to_numpy(float)
            row[metric] = gaps.mean() if len(gaps) else np.nan
            row[f"{metric}_se"] = standard_error(gaps)
        rows.append(row)
    return pd.DataFrame(rows)


def store(frame: pd.DataFrame, data: Data, out: Path) -> None:
    """Put the summaries of a data set's splits into the stored tables, in place of those of the
    same methods.
    """
    # ranks of means depend on digits beyond those shown
    update(out / "accuracy.csv", means(frame, data), ["data", *METHOD], ORDER, "%.9g")
    update(out / "accuracy_pairs.csv", differences(frame, data), ["data", "comparison"], ORDER)


def stored(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the stored means and paired differences."""
    texts = [*METHOD, "setting"]
    frame = pd.read_csv(out / "accuracy.csv", dtype=dict.fromkeys(texts, str))
    return frame.fillna(dict.fromkeys(texts, "")), pd.read_csv(out / "accuracy_pairs.csv")
