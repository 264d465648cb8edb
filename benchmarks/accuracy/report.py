"""Tables and the plot of the accuracy benchmark: ``accuracy.md`` and ``accuracy.png``."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.model.logz import LOG_Z
from bbl.stats.calibration import CALIBRATE
from benchmarks.accuracy.data import FOLDS, UCI, load
from benchmarks.accuracy.methods import AUTO, BBL, BETTER, MEAN, NETWORKS, RECIPE
from benchmarks.report import number, table, write_page

SKLEARN = ("CategoricalNB", "logistic", "logistic, pairs", "random forest", "gradient boosting")
OURS, PSEUDO = tuple(BBL), RECIPE[1]
# the columns of the main tables
MAIN: dict[str, tuple] = {name: (name,) for name in (*SKLEARN, "bbl naive")}
MAIN |= {f"bbl mf, {c}": ("bbl mf", "auto", c) for c in CALIBRATE}
MAIN |= {f"bbl pseudo, {c}": (PSEUDO, "auto", c) for c in CALIBRATE}
MAIN |= {how[0]: how for how in (BETTER, MEAN)}
FIELD = {
    AUTO: (AUTO, "auto", "temperature"),
    **{name: (name,) for name in (*SKLEARN[:2], *SKLEARN[3:], "CatBoost", *NETWORKS)},
}  # what method="auto" is held against
OPTIONAL = "CatBoost"
FIELD_SETS = ("titanic", *UCI)
MANY = 1000  # rows from which on calibration is judged
# scale and digits in the tables
METRICS = {"log_loss": (1.0, 3), "accuracy": (100.0, 1), "ece": (1.0, 3)}
COLORS = {"bbl": "#0072B2", "sklearn": "#D55E00"}


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean over splits of repeated 5-fold cross-validation.

    Splits share training rows, so their variance is not simply divided by their number (Nadeau and
    Bengio, Machine Learning 52, 2003, section 3).
    """
    return float(values.std(ddof=1) * np.sqrt(1.0 / len(values) + 1.0 / 4.0))


def _select(
    frame: pd.DataFrame, method: str, log_z: str = "auto", calibrate: str = "none"
) -> pd.DataFrame:
    kind, calibration = (log_z, calibrate) if method.startswith("bbl") else ("", "")
    return frame[
        (frame["method"] == method) & (frame["log_z"] == kind) & (frame["calibrate"] == calibration)
    ]


def _by_data(frame: pd.DataFrame, metric: str, columns: dict[str, tuple]) -> list[str]:
    """Return mean ± standard error over splits, by data set and, in columns, (method, log_z,
    calibrate).
    """
    scale, digits = METRICS[metric]

    def cell(values: np.ndarray) -> str:
        error = f" ± {standard_error(values):.{digits}f}" if len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{error}" if len(values) else ""

    rows = [
        [
            str(data),
            *(cell(scale * _select(part, *how)[metric].to_numpy()) for how in columns.values()),
        ]
        for data, part in frame.groupby("data", sort=False)
    ]
    return table(["", *columns], rows)


def _wins(frame: pd.DataFrame, one: tuple, other: tuple, metric: str) -> str:
    """Return on how many data sets `one` is better and worse than `other`, and beyond two standard
    errors.
    """
    sign = 1.0 if metric == "accuracy" else -1.0
    better, worse = [], []  # name of the data set, whether clearly
    for data, part in frame.groupby("data", sort=False):
        a, b = (_select(part, *how).set_index("fold")[metric] for how in (one, other))
        d = sign * (a - b).dropna()
        if len(d) and d.mean():
            clear = len(d) > 1 and abs(d.mean()) > 2 * standard_error(d.to_numpy())
            (better if d.mean() > 0 else worse).append((str(data), clear))
    text = ", ".join(data for data, clear in worse if clear)
    counts = [f"{len(side)} ({sum(clear for _, clear in side)})" for side in (better, worse)]
    return " : ".join(counts) + (f" [{text}]" if text else "")


def ranks(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return the average rank over data sets of each method that is there for all of them."""
    sign = -1.0 if metric == "accuracy" else 1.0
    means = {
        name: _select(frame, *how).groupby("data")[metric].mean() * sign
        for name, how in MAIN.items()
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


def _pairs() -> Iterator[tuple[str, tuple, tuple]]:
    """Yield what is compared: its text, one (method, log_z, calibrate) and the other."""
    others = (*SKLEARN, "bbl naive")
    for method in (*OURS[2:], "bbl mf"):
        auto, last = (method, "auto", "none"), (method, "auto", "temperature")
        for kind in LOG_Z[2:] if method in OURS[1:3] else ():
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


def tables(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown tables of the cross-validated data sets."""
    out = []
    for metric, title in (("accuracy", "accuracy (%)"), ("log_loss", "log-loss"), ("ece", "ECE")):
        out += [f"## {title}", "", *_by_data(frame, metric, MAIN)]
    for method in ("bbl pseudo", "bbl mf"):
        kinds = {k: (method, k, "none") for k in LOG_Z if len(_select(frame, method, k))}
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
        [text, *(_wins(frame, a, b, metric) for metric in ("log_loss", "accuracy"))]
        for text, a, b in _pairs()
    ]
    out += table(["", "log-loss", "accuracy"], rows)
    for c in ("none", "temperature"):
        out += [
            "## Log-loss and accuracy of `pseudo` by the penalty of the fields, with "
            f'`calibrate="{c}"`',
            "",
        ]
        for metric in ("log_loss", "accuracy"):
            out += _by_data(frame, metric, {m: (m, "auto", c) for m in OURS[2:]})
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


def pooled_error(part: pd.DataFrame, sizes: pd.Series) -> float:
    """Return the expected calibration error of all rows of a data set, predicted out of fold; the
    mean of the repeats.

    Of the few rows of a single fold chance alone makes up most of it.
    """
    gaps = np.array([[float(gap) for gap in text.split()] for text in part["gaps"]])
    repeat, n = part["fold"].to_numpy() // FOLDS, sizes.to_numpy()
    errors = [
        np.abs(gaps[repeat == r].sum(axis=0)).sum() / n[repeat == r].sum()
        for r in np.unique(repeat)
    ]
    return float(np.mean(errors))


def auto_tables(frame: pd.DataFrame) -> list[str]:
    """Return ``method="auto"`` against the field, on the data sets and splits that all of them have
    run on.

    One method may be missing on some sets: it has no mean then, and ranks of its own on the sets
    that it has.
    """
    frame = frame[frame["data"].isin(FIELD_SETS)]
    found = {name: _select(frame, *how).set_index(["data", "fold"]) for name, how in FIELD.items()}
    found = {name: part for name, part in found.items() if len(part)}
    if AUTO not in found:
        return []
    always = {name: part for name, part in found.items() if name != OPTIONAL}
    names = [
        n
        for n in FIELD_SETS
        if all(n in part.index.get_level_values(0) for part in always.values())
    ]
    own = found[AUTO].index
    common = [
        key for key in own if all(key in part.index for part in always.values()) and key[0] in names
    ]
    if not common or len(found) < 2:
        return []
    # of a set, all common splits or none
    parts = {name: part.reindex(common) for name, part in found.items()}
    for name in names if OPTIONAL in parts else ():
        if parts[OPTIONAL].loc[[name], "log_loss"].isna().any():
            parts[OPTIONAL].loc[[name]] = np.nan
    out = ['## `method="auto"` compared with other methods', ""]
    mean_loss = found[AUTO].loc[names, "log_loss"].astype(float).groupby("data").mean().mean()
    text = (
        f"{len(names)} data sets, {len(common)} splits that all of these methods have run on. Over "
        "all splits that it "
    )
    out += [text + f"has run on, the mean log-loss of `auto` is {mean_loss:.4f}.", ""]
    for metric, title in (("log_loss", "Log-loss"), ("brier", "Brier score")):
        cells = {name: pd.to_numeric(part[metric]) for name, part in parts.items()}
        if not any(cells[name].isna().any() for name in always):
            out += [f"### {title}", "", *_against(cells, names)]
    return (
        out
        + _seconds(parts, names)
        + _calibration_of_many({name: parts[name] for name in always}, names)
    )


def _against(cells: dict[str, pd.Series], names: list[str]) -> list[str]:
    """Return the table of means over splits, average ranks, and where ``method="auto"`` is clearly
    worse.
    """
    mean = pd.DataFrame(
        {name: values.groupby("data").mean() for name, values in cells.items()}
    ).loc[names]
    rows = [[name, *_cells(mean.loc[name], 3)] for name in names]
    rows.append(["mean", *_cells(mean.mean(skipna=False), 3)])
    full, shared = mean.dropna(axis=1), mean.dropna(axis=0)
    rows.append(["average rank", *_cells(full.rank(axis=1).mean().reindex(mean.columns), 2)])
    if len(full.columns) < len(mean.columns):
        rows.append(
            [f"on the {len(shared)} sets of {OPTIONAL}", *_cells(shared.rank(axis=1).mean(), 2)]
        )
    gap = {name: cells[AUTO] - values for name, values in cells.items() if name != AUTO}
    worse = {
        name: [d for d in names if standard_error_beyond(values.loc[d])]
        for name, values in gap.items()
    }
    rows.append(
        ["`auto` clearly worse on", "", *(", ".join(worse[name]) or "none" for name in gap)]
    )
    return table(["", *mean.columns], rows)


def _cells(values: pd.Series, digits: int) -> list[str]:
    """Return numbers as text, nothing for what is missing."""
    return ["" if np.isnan(value) else f"{value:.{digits}f}" for value in values]


def standard_error_beyond(gaps: pd.Series) -> bool:
    """Return whether differences by split are above zero by more than two standard errors of their
    mean.
    """
    return len(gaps) > 1 and gaps.mean() > 2 * standard_error(gaps.to_numpy())


def _seconds(parts: dict[str, pd.DataFrame], names: list[str]) -> list[str]:
    """Return the table of the CPU time of a fit, settings included where a method chooses them."""
    cost = pd.DataFrame(
        {name: pd.to_numeric(p["seconds"]).groupby("data").median() for name, p in parts.items()}
    )
    rows = [[name, *(number(value) for value in cost.loc[name])] for name in names]
    text = (
        "Median over splits, tuning and predictions included, of one thread on a machine with "
        "other work."
    )
    return ["### CPU seconds of a fit", "", text, "", *table(["", *cost.columns], rows)]


def _calibration_of_many(parts: dict[str, pd.DataFrame], names: list[str]) -> list[str]:
    """Return the table of pooled calibration errors of the data sets of many rows."""
    rows = []
    for name in names:
        own = [part.loc[[name]].reset_index() for part in parts.values()]
        data = None if any((part["gaps"] == "").any() for part in own) else load(name)
        if data is None or len(data.y) < MANY:
            continue
        held = pd.Series([len(test) for _, test in data.splits])
        rows.append(
            [
                f"{name} ({len(data.y):,} rows)",
                *(f"{pooled_error(p, held.loc[p['fold']]):.3f}" for p in own),
            ]
        )
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


def write(frame: pd.DataFrame, out: Path) -> None:
    """Write ``accuracy.md`` and ``accuracy.png``."""
    single = frame["data"] == "mnist"
    lines = [Path(__file__).with_name("intro.md").read_text(encoding="utf-8")]
    if (~single).any():
        lines += (
            auto_tables(frame[~single])
            + rank_table(frame[~single])
            + ["![average ranks](accuracy.png)", ""]
            + tables(frame[~single])
        )
        plot(frame[~single], out)
    write_page(out / "accuracy.md", [*lines, *mnist_table(frame[single])])
