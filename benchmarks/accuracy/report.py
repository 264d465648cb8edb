"""Tables and the plot of the accuracy benchmark: ``accuracy.md`` and ``accuracy.png``."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.model.logz import LOG_Z
from bbl.stats.calibration import CALIBRATE
from benchmarks.accuracy.methods import AUTO, BBL, BETTER, MEAN, RECIPE
from benchmarks.accuracy.summary import (
    FIELD,
    FIELD_SETS,
    METHOD,
    OPTIONAL,
    SKLEARN,
    as_stored,
    auto_against,
    pairs,
    select,
)
from benchmarks.report import number, table, write_page

PSEUDO = RECIPE[1]
# the columns of the main tables
MAIN: dict[str, tuple] = {name: (name,) for name in (*SKLEARN, "bbl naive")}
MAIN |= {f"bbl mf, {c}": ("bbl mf", "auto", c) for c in CALIBRATE}
MAIN |= {f"bbl pseudo, {c}": (PSEUDO, "auto", c) for c in CALIBRATE}
MAIN |= {how[0]: how for how in (BETTER, MEAN)}
MANY = 1000  # rows from which on calibration is judged
# scale and digits in the tables
METRICS = {"log_loss": (1.0, 3), "accuracy": (100.0, 1), "ece": (1.0, 3)}
COLORS = {"bbl": "#0072B2", "sklearn": "#D55E00"}


def _by_data(frame: pd.DataFrame, metric: str, columns: dict[str, tuple]) -> list[str]:
    """Return mean ± standard error over splits, by data set and, in columns, (method, log_z,
    calibrate).
    """
    scale, digits = METRICS[metric]

    found = frame.groupby(["data", *METHOD], sort=False).first()
    means = (found[metric] * scale).to_dict()
    errors = (found[f"{metric}_se"] * scale).to_dict()

    def cell(key: tuple[str, ...]) -> str:
        if key not in means:
            return ""
        mean, error = means[key], errors[key]
        return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")

    rows = [
        [str(data), *(cell((data, *as_stored(*how))) for how in columns.values())]
        for data in frame["data"].unique()
    ]
    return table(["", *columns], rows)


def _wins(compared: pd.DataFrame, metric: str) -> str:
    """Return on how many data sets one method is better and worse than the other, and beyond two
    standard errors.
    """
    sign = 1.0 if metric == "accuracy" else -1.0
    difference = sign * compared[metric]
    clear = difference.abs() > 2 * compared[f"{metric}_se"]
    sides = [difference > 0, difference < 0]
    counts = [f"{side.sum()} ({(side & clear).sum()})" for side in sides]
    text = ", ".join(compared.loc[sides[1] & clear, "data"])
    return " : ".join(counts) + (f" [{text}]" if text else "")


def ranks(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return the average rank over data sets of each method that is there for all of them."""
    sign = -1.0 if metric == "accuracy" else 1.0
    means = {
        name: select(frame, *how).set_index("data")[metric] * sign for name, how in MAIN.items()
    }
    return pd.DataFrame(means).dropna(axis=1).rank(axis=1).mean().sort_values()


@cache
def critical_difference(k: int, n: int) -> float:
    """Return Nemenyi's critical difference of average ranks of `k` methods over `n` data sets, at
    0.05.
    """
    from scipy.stats import studentized_range

    return float(
        studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    )


def tables(frame: pd.DataFrame, compared: pd.DataFrame) -> list[str]:
    """Return the Markdown tables of the cross-validated data sets."""
    out = []
    for metric, title in (("accuracy", "accuracy (%)"), ("log_loss", "log-loss"), ("ece", "ECE")):
        out += [f"## {title}", "", *_by_data(frame, metric, MAIN)]
    for method in ("bbl pseudo", "bbl mf"):
        kinds = {k: (method, k, "none") for k in LOG_Z if len(select(frame, method, k))}
        out += [
            f"## Log-loss of `{method}` by `log_z`, without calibration",
            "",
            *_by_data(frame, "log_loss", kinds),
        ]
    out += [
        "## Number of data sets with better : worse results (by more than two standard errors) "
        "[clearly worse on]",
        "",
    ]
    rows = [
        [
            text,
            *(
                _wins(compared[compared["comparison"] == text], metric)
                for metric in ("log_loss", "accuracy")
            ),
        ]
        for text, _, _ in pairs()
    ]
    out += table(["", "log-loss", "accuracy"], rows)
    for c in ("none", "temperature"):
        out += [
            "## Log-loss and accuracy of `pseudo` by the penalty of the fields, with "
            f'`calibrate="{c}"`',
            "",
        ]
        for metric in ("log_loss", "accuracy"):
            out += _by_data(frame, metric, {m: (m, "auto", c) for m in tuple(BBL)[2:]})
    return out


def rank_table(frame: pd.DataFrame) -> list[str]:
    """Return the table of average ranks."""
    found = {metric: ranks(frame, metric) for metric in METRICS}
    names = found["log_loss"].index
    n = frame["data"].nunique()
    rows = [[name, *(f"{found[m][name]:.2f}" for m in found)] for name in names]
    text = (
        f"Over {n} data sets; methods that ran on all of them. Critical difference (Nemenyi, "
        "0.05): "
    )
    text += f"{critical_difference(len(names), n):.2f}."
    return [
        "## Average ranks",
        "",
        text,
        "",
        *table(["", *(m.replace("_", "-") for m in found)], rows),
    ]


def auto_tables(frame: pd.DataFrame, compared: pd.DataFrame) -> list[str]:
    """Return ``method="auto"`` against the field, on the data sets in which all of them have run
    on the same splits.

    One method may be missing on some sets: it has no mean then, and ranks of its own on the sets
    that it has.
    """
    frame = frame[frame["data"].isin(FIELD_SETS)]
    found = {name: select(frame, *how).set_index("data") for name, how in FIELD.items()}
    found = {name: part for name, part in found.items() if len(part)}
    if AUTO not in found or len(found) < 2:
        return []
    folds = found[AUTO]["folds"]
    run = pd.DataFrame(
        {name: part["folds"].reindex(folds.index) == folds for name, part in found.items()}
    )
    complete = run.drop(columns=OPTIONAL, errors="ignore").all(axis=1)
    names = [name for name in FIELD_SETS if name in folds.index and complete[name]]
    if not names:
        return []
    # of a set, all splits or none
    parts = {name: part.reindex(names).where(run.loc[names, name]) for name, part in found.items()}
    always = {name: part for name, part in parts.items() if name != OPTIONAL}
    text = (
        f"{len(names)} data sets, {folds[names].sum()} splits that all of these methods have run "
        "on. Over all splits that it has run on, the mean log-loss of `auto` is "
        f"{parts[AUTO]['log_loss'].mean():.4f}."
    )
    out = ['## `method="auto"` compared with other methods', "", text, ""]
    for metric, title in (("log_loss", "Log-loss"), ("brier", "Brier score")):
        mean = pd.DataFrame({name: part[metric] for name, part in parts.items()})
        if not mean[list(always)].isna().any(axis=None):
            out += [f"### {title}", "", *_against(mean, compared, metric)]
    return out + _seconds(parts) + _calibration_of_many(always)


def _against(mean: pd.DataFrame, compared: pd.DataFrame, metric: str) -> list[str]:
    """Return the table of means over splits, average ranks, and where ``method="auto"`` is clearly
    worse.
    """
    rows = [[str(name), *_cells(row, 3)] for name, row in mean.iterrows()]
    rows.append(["mean", *_cells(mean.mean(skipna=False), 3)])
    full, shared = mean.dropna(axis=1), mean.dropna(axis=0)
    rows.append(["average rank", *_cells(full.rank(axis=1).mean().reindex(mean.columns), 2)])
    if len(full.columns) < len(mean.columns):
        rows.append(
            [f"on the {len(shared)} sets of {OPTIONAL}", *_cells(shared.rank(axis=1).mean(), 2)]
        )
    worse = [
        _clearly_worse(compared[compared["comparison"] == auto_against(name)], own.index, metric)
        for name, own in ((name, mean[name].dropna()) for name in mean if name != AUTO)
    ]
    rows.append(["`auto` clearly worse on", "", *worse])
    return table(["", *mean.columns], rows)


def _clearly_worse(compared: pd.DataFrame, names: pd.Index, metric: str) -> str:
    """Return the data sets on which a difference is above zero by more than two standard errors,
    and those on which the methods did not run together.
    """
    gaps = compared.set_index("data").reindex(names)
    worse = names[gaps[metric] > 2 * gaps[f"{metric}_se"]]
    apart = names[gaps[metric].isna()]
    parts = [", ".join(worse)] if len(worse) else []
    parts += ["not compared: " + ", ".join(apart)] if len(apart) else []
    return "; ".join(parts) or "none"


def _cells(values: pd.Series, digits: int) -> list[str]:
    """Return numbers as text, nothing for what is missing."""
    return ["" if np.isnan(value) else f"{value:.{digits}f}" for value in values]


def _seconds(parts: dict[str, pd.DataFrame]) -> list[str]:
    """Return the table of the CPU time of a fit, settings included where a method chooses them."""
    cost = pd.DataFrame({name: part["seconds"] for name, part in parts.items()})
    rows = [[str(name), *(number(value) for value in row)] for name, row in cost.iterrows()]
    text = (
        "Median over splits, tuning and predictions included, of one thread on a machine with "
        "other work."
    )
    return ["### CPU seconds of a fit", "", text, "", *table(["", *cost.columns], rows)]


def _calibration_of_many(parts: dict[str, pd.DataFrame]) -> list[str]:
    """Return the table of pooled calibration errors of the data sets of many rows."""
    errors = pd.DataFrame({name: part["pooled_ece"] for name, part in parts.items()})
    n = parts[AUTO]["rows"]
    errors = errors[n >= MANY].dropna()
    rows = [[f"{name} ({n[name]:,.0f} rows)", *_cells(row, 3)] for name, row in errors.iterrows()]
    text = (
        "15 bins of the largest probability; the predictions of five folds are pooled, mean of the "
        "repeats."
    )
    return (
        ["### Expected calibration error", "", text, "", *table(["", *parts], rows)] if rows else []
    )


def mnist_table(frame: pd.DataFrame) -> list[str]:
    """Return the table of all of MNIST."""
    frame = frame[frame["log_z"].isin(["", "auto"])]
    error = (100 * (1 - frame["accuracy"])).map("{:.2f}".format)
    digits = [
        frame[c].map(f"{{:.{d}f}}".format) for c, d in (("log_loss", 3), ("ece", 3), ("seconds", 0))
    ]
    texts = (frame["method"], frame["setting"].astype(str), frame["calibrate"], error, *digits)
    rows = [list(cells) for cells in zip(*texts, strict=True)]
    head = [
        "",
        "setting",
        "calibrate",
        "test error (%)",
        "log-loss",
        "ECE",
        "CPU s, tuning included",
    ]
    text = (
        "All 60,000 + 10,000 images, pixels above 127; settings and calibration by "
        "cross-validation of the training "
    )
    text += (
        "images, as above. The grids are not refined. `bbl auto` chooses its settings on samples "
        "of the training "
    )
    text += "images, and holds a fifth of them out for its weights."
    return ["## MNIST", "", text, "", *table(head, rows)] if rows else []


def plot(frame: pd.DataFrame, out: Path) -> None:
    """Draw the average ranks with Nemenyi's critical difference, for log-loss and accuracy."""
    from matplotlib.figure import Figure

    n = frame["data"].nunique()
    figure = Figure(figsize=(11, 4.2))
    for ax, metric in zip(figure.subplots(1, 2), ("log_loss", "accuracy"), strict=True):
        found = ranks(frame, metric)
        cd = critical_difference(len(found), n)
        y = np.arange(len(found))[::-1]
        for name, rank, at in zip(found.index, found, y, strict=True):
            color = COLORS["bbl" if name.startswith("bbl") else "sklearn"]
            ax.plot([rank, rank + cd], [at, at], color=color, lw=1.2, alpha=0.5)
            ax.plot(rank, at, "o" if name.startswith("bbl") else "s", color=color)
        ax.axvline(found.iloc[0] + cd, color="#555555", lw=0.8, ls="--")
        ax.set_yticks(y, found.index)
        ax.set_xlabel("average rank (1 is best)")
        ax.set_title(f"{metric.replace('_', '-')}, {n} data sets", fontsize=10)
        ax.grid(axis="x", color="#e0e0e0")
        ax.spines[["top", "right"]].set_visible(False)
    note = "A method whose mark lies right of the dashed line is worse than the best one."
    figure.text(
        0.5, -0.02, f"Lines: critical difference (Nemenyi, 0.05). {note}", ha="center", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(out / "accuracy.png", dpi=130, bbox_inches="tight")


def write(frame: pd.DataFrame, compared: pd.DataFrame, out: Path) -> None:
    """Write ``accuracy.md`` and ``accuracy.png`` of the summaries and the paired differences."""
    single = frame["data"] == "mnist"
    compared = compared[compared["data"] != "mnist"]
    lines = [Path(__file__).with_name("intro.md").read_text(encoding="utf-8")]
    if (~single).any():
        lines += (
            auto_tables(frame[~single], compared)
            + rank_table(frame[~single])
            + ["![average ranks](accuracy.png)", ""]
            + tables(frame[~single], compared)
        )
        plot(frame[~single], out)
    write_page(out / "accuracy.md", [*lines, *mnist_table(frame[single])])
