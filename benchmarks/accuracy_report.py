"""Tables and the plot of the accuracy benchmark: ``accuracy.md`` and ``accuracy.png``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bbl.model.logz import LOG_Z
from benchmarks.report import table

__all__ = ["RECIPE", "write"]

CALIBRATE = ("none", "offset", "temperature")
SKLEARN = ("CategoricalNB", "logistic", "logistic, pairs", "random forest", "gradient boosting")
OURS = ("bbl naive", "bbl mf", "bbl pseudo", "bbl pseudo, lambdah 0", "bbl pseudo, lambdah 0.0001")
PSEUDO = OURS[-1]
RECIPE = ("bbl mf", PSEUDO)
BETTER, MEAN = (("bbl " + name, "auto", "temperature") for name in ("better of both", "mean of both"))
COLORS = {"bbl": "#0072B2", "sklearn": "#D55E00"}
INTRO = """# Accuracy

Data sets of categorical predictors, stratified 5-fold cross-validation repeated three times (one split for the images).
bbl: all levels known in advance, the penalty (`lambda_="cv"` on 1e-4 to 10, `eps="cv"`) and the calibration from 5
shuffled folds of the training rows, as `bbl()` does it, `log_z="auto"`. `pseudo` has `lambdah=1e-4` in the first
tables, and `lambdah=None` (the penalty of the couplings for fields too) in those of ln Z, where all kinds were run.
`both`: mf and pseudo with temperature; of them the one whose cross-validated log-loss is smaller, or the mean of their
probabilities.
scikit-learn: ridge logistic regression on dummies with C from 5-fold cross-validation, with products of all pairs of
dummies where these are few; random forest of 300 trees; histogram gradient boosting at its defaults. ± is the standard
error over splits, corrected for the training rows that they share (Nadeau and Bengio 2003). Probabilities are clipped
at 1e-15. ECE: expected calibration error in 15 bins. `python -m benchmarks.accuracy` makes this file.
"""


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean over splits of repeated 5-fold cross-validation.

    Splits share training rows, so their variance is not simply divided by their number (Nadeau and Bengio, Machine
    Learning 52, 2003, section 3).
    """
    return float(values.std(ddof=1) * np.sqrt(1.0 / len(values) + 1.0 / 4.0))


def _mean(part: pd.DataFrame, metric: str, scale: float = 1.0, digits: int = 3) -> str:
    """Return mean and standard error over splits as text."""
    values = scale * part[metric].to_numpy()
    if not len(values):
        return ""
    error = f" ± {standard_error(values):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def _select(frame: pd.DataFrame, method: str, log_z: str = "auto", calibrate: str = "none") -> pd.DataFrame:
    ours = method.startswith("bbl")
    kind, calibration = (log_z, calibrate) if ours else ("", "")
    return frame[(frame["method"] == method) & (frame["log_z"] == kind) & (frame["calibrate"] == calibration)]


def _by_data(frame: pd.DataFrame, metric: str, columns: dict[str, tuple], scale: float, digits: int) -> list[str]:
    """Return a table with one row for each data set and one column for each (method, log_z, calibrate)."""
    rows = []
    for data in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == data]
        rows.append([data] + [_mean(_select(part, *how), metric, scale, digits) for how in columns.values()])
    return table(["", *columns], rows)


def _difference(frame: pd.DataFrame, one: tuple, other: tuple, metric: str) -> list[tuple[str, float, float]]:
    """Return, for each data set, the mean difference over splits and its standard error."""
    out = []
    for data in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == data]
        a, b = (_select(part, *how).set_index("fold")[metric] for how in (one, other))
        d = (a - b).dropna()
        if len(d):
            out.append((data, float(d.mean()), standard_error(d.to_numpy()) if len(d) > 1 else np.nan))
    return out


def _wins(frame: pd.DataFrame, one: tuple, other: tuple, metric: str) -> str:
    """Return on how many data sets `one` is better and worse than `other`, and beyond two standard errors."""
    sign = 1.0 if metric == "accuracy" else -1.0
    found = _difference(frame, one, other, metric)
    better = [d for d in found if sign * d[1] > 0]
    worse = [d for d in found if sign * d[1] < 0]
    clear = [sum(abs(d[1]) > 2 * d[2] for d in side) for side in (better, worse)]
    text = ", ".join(d[0] for d in worse if abs(d[1]) > 2 * d[2])
    return f"{len(better)} ({clear[0]}) : {len(worse)} ({clear[1]})" + (f" [{text}]" if text else "")


def ranks(frame: pd.DataFrame, metric: str, columns: dict[str, tuple]) -> pd.Series:
    """Return the average rank over data sets of each method that is there for all of them."""
    sign = -1.0 if metric == "accuracy" else 1.0
    means = pd.DataFrame(
        {name: _select(frame, *how).groupby("data")[metric].mean() * sign for name, how in columns.items()}
    ).dropna(axis=1)
    return means.rank(axis=1).mean().sort_values()


def critical_difference(k: int, n: int) -> float:
    """Return Nemenyi's critical difference of average ranks of `k` methods over `n` data sets, at 0.05."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))


def main_columns() -> dict[str, tuple]:
    """Return the columns of the main table."""
    columns: dict[str, tuple] = {name: (name,) for name in SKLEARN}
    columns["bbl naive"] = ("bbl naive",)
    for name, method in (("mf", OURS[1]), ("pseudo", PSEUDO)):
        columns |= {f"bbl {name}, {c}": (method, "auto", c) for c in CALIBRATE}
    return columns | {how[0]: how for how in (BETTER, MEAN)}


def tables(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown tables of the cross-validated data sets."""
    out = []
    for metric, scale, digits in (("accuracy", 100.0, 1), ("log_loss", 1.0, 3), ("ece", 1.0, 3)):
        unit = " (%)" if scale > 1 else ""
        out += [f"## {metric.replace('_', '-').replace('ece', 'ECE')}{unit}", ""]
        out += _by_data(frame, metric, main_columns(), scale, digits)
    for method in ("bbl pseudo", "bbl mf"):
        out += [f"## Log-loss of `{method}` by ln Z, not calibrated", ""]
        kinds = [k for k in LOG_Z if len(_select(frame, method, k))]
        out += _by_data(frame, "log_loss", {k: (method, k, "none") for k in kinds}, 1.0, 3)
    out += ["## Better : worse, number of data sets (beyond two standard errors) [where clearly worse]", ""]
    rows = []
    for method in (*OURS[2:4], PSEUDO, "bbl mf"):
        auto = (method, "auto", "none")
        kinds = LOG_Z[2:] if method in OURS[1:3] else ()
        pairs = [(f"{method}, auto against {k}", auto, (method, k, "none")) for k in kinds]
        pairs += [(f"{method}, {c} against none", (method, "auto", c), auto) for c in CALIBRATE[1:]]
        last = (method, "auto", "temperature")
        others = (*SKLEARN, "bbl naive") if method in RECIPE else ()
        pairs += [(f"{method}, temperature against {name}", last, (name,)) for name in others]
        rows += [[name, *(_wins(frame, a, b, metric) for metric in ("log_loss", "accuracy"))] for name, a, b in pairs]
    both = [(how[0], how) for how in (BETTER, MEAN)]
    pairs = [(f"{one} against {name}", how, (name,)) for one, how in both for name in (*SKLEARN, "bbl naive")]
    pairs += [(f"{one} against {m}, temperature", how, (m, "auto", "temperature")) for one, how in both for m in RECIPE]
    rows += [[name, *(_wins(frame, a, b, metric) for metric in ("log_loss", "accuracy"))] for name, a, b in pairs]
    out += table(["", "log-loss", "accuracy"], rows)
    for c in ("none", "temperature"):
        out += [f"## Log-loss and accuracy of `pseudo` by the penalty of the fields, calibrate {c}", ""]
        out += _by_data(frame, "log_loss", {m: (m, "auto", c) for m in OURS[2:]}, 1.0, 3)
        out += _by_data(frame, "accuracy", {m: (m, "auto", c) for m in OURS[2:]}, 100.0, 1)
    return out


def rank_table(frame: pd.DataFrame) -> list[str]:
    """Return the table of average ranks."""
    found = {metric: ranks(frame, metric, main_columns()) for metric in ("log_loss", "accuracy", "ece")}
    names = found["log_loss"].index
    n = frame["data"].nunique()
    rows = [[name, *(f"{found[m][name]:.2f}" for m in found)] for name in names]
    text = f"Over {n} data sets; methods that ran on all of them. Critical difference (Nemenyi, 0.05): "
    text += f"{critical_difference(len(names), n):.2f}."
    return ["## Average ranks", "", text, "", *table(["", *(m.replace("_", "-") for m in found)], rows)]


def mnist_table(frame: pd.DataFrame) -> list[str]:
    """Return the table of all of MNIST."""
    frame = frame[frame["log_z"].isin(["", "auto"])]
    rows = [
        [r.method, str(r.setting), r.calibrate, f"{100 * (1 - r.accuracy):.2f}", f"{r.log_loss:.3f}", f"{r.ece:.3f}",
         f"{r.seconds:.0f}"]
        for r in frame.itertuples()
    ]  # fmt: skip
    head = ["", "setting", "calibrate", "test error (%)", "log-loss", "ECE", "CPU s, tuning included"]
    text = (
        "All 60,000 + 10,000 images, pixels above 127; settings and calibration by cross-validation of the training "
        "images, as above. The grids are not refined."
    )
    return ["## MNIST", "", text, "", *table(head, rows)] if rows else []


def plot(frame: pd.DataFrame, out: Path) -> None:
    """Draw the average ranks with Nemenyi's critical difference, for log-loss and accuracy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n = frame["data"].nunique()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for ax, metric in zip(axes, ("log_loss", "accuracy"), strict=True):
        found = ranks(frame, metric, main_columns())
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
    figure.text(0.5, -0.02, "Lines: critical difference (Nemenyi, 0.05). A method whose mark lies right of the dashed "
                "line is worse than the best one.", ha="center", fontsize=9)  # fmt: skip
    figure.tight_layout()
    figure.savefig(out / "accuracy.png", dpi=130, bbox_inches="tight")
    plt.close(figure)


def write(frame: pd.DataFrame, out: Path) -> None:
    """Write ``accuracy.md`` and ``accuracy.png``."""
    single = frame["data"] == "mnist"
    lines = [INTRO]
    if (~single).any():
        lines += rank_table(frame[~single]) + ["![average ranks](accuracy.png)", ""] + tables(frame[~single])
        plot(frame[~single], out)
    (out / "accuracy.md").write_text("\n".join([*lines, *mnist_table(frame[single])]).rstrip() + "\n")
