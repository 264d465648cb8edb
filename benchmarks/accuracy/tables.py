"""Log-loss of ``method="auto"`` on tables that it was not made on: ``python -m
benchmarks.accuracy.tables``.

Tables of people and of measurements are split into five stratified folds, twice up to 3,000 rows.
Tables that are drawn from Bayesian networks have 300 or 3,000 training rows and 5,000 new ones, and
a log-loss that no method can beat, that of the true network. Other methods are quoted from one run
of theirs on the same splits.
"""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from benchmarks.files import data_folder
from benchmarks.report import command, number, rows_of, table, update, write_page

QUOTED = Path(__file__).with_name("tables_quoted.csv")
OURS = "bbl auto"
PEERS = (
    "logistic",
    "CatBoost",
    "EBM",
    "random forest",
    "TAN",
    "AODE",
    "gradient boosting",
    "naive Bayes",
)
# gaps: hits less confidence in each bin; boosting, boosting_seconds: log-loss and time of
# method="boosting" alone
COLUMNS = (
    "set",
    "fold",
    "log_loss",
    "brier",
    "rows",
    "gaps",
    "seconds",
    "boosting",
    "boosting_seconds",
)
KEY = ["set", "fold"]
FOLDS = 5
SEEDS = (1000, 1001)  # of the folds; the second one for tables of up to `REPEATED_ROWS` rows
REPEATED_ROWS = 3000
DRAWN_ROWS = (300, 3000)
BINS = 15


def _read(path: Path) -> pd.DataFrame:
    """Return a table of texts, missing values as None."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.mask(frame == "", None)


def _categorical(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns know all of their levels."""
    return pd.DataFrame(
        {c: pd.Categorical(frame[c], categories=sorted(frame[c].dropna().unique())) for c in frame}
    )


def problems(
    folder: Path,
) -> Iterator[tuple[str, pd.DataFrame, list[tuple[np.ndarray, np.ndarray]]]]:
    """Yield the name of each problem, its table, and its splits into training and new rows."""
    from sklearn.model_selection import StratifiedKFold

    for path in sorted(folder.glob("*.csv.gz")):
        name, *part = path.name.removesuffix(".csv.gz").split(".")
        if part == ["test"]:
            continue
        if part == ["train"]:
            train, test = _read(path), _read(folder / f"{name}.test.csv.gz")
            both = _categorical(pd.concat([train, test], ignore_index=True))
            new = np.arange(len(train), len(both))
            for n in DRAWN_ROWS:
                yield f"{name}_{n}", both, [(np.arange(n), new)]
            continue
        frame = _read(path)
        frame = frame[frame["class"].map(frame["class"].value_counts()) >= 10]
        codes = pd.Categorical(frame["class"], categories=sorted(frame["class"].unique())).codes
        seeds = SEEDS if len(frame) <= REPEATED_ROWS else SEEDS[:1]
        repeats = [
            StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(codes, codes)
            for seed in seeds
        ]
        yield name, _categorical(frame), [split for splits in repeats for split in splits]


def fit_and_predict(train: pd.DataFrame, new: pd.DataFrame, method: str) -> np.ndarray:
    """Return the probabilities (n, K) of all classes for new rows, from a fit to training rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bbl.bbl(
            "class ~ .^2", train, method=method, missing="level", novarOk=True, verbose=0, n_jobs=1
        )
        found = fit.predict(new.drop(columns="class"), type="prob", unseen="ignore")
    return found.reindex(columns=new["class"].cat.categories, fill_value=0.0).to_numpy(float)


def run_split(name: str, frame: pd.DataFrame, number_of_split: int, split: tuple) -> list[tuple]:
    """Return the row of one split."""
    train, new = (frame.iloc[rows].reset_index(drop=True) for rows in split)
    begin = time.process_time()
    p = fit_and_predict(train, new, "auto")
    seconds = time.process_time() - begin
    p = np.clip(p, 1e-15, None)
    p /= p.sum(axis=1, keepdims=True)
    y = new["class"].cat.codes.to_numpy()
    top, hit = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = " ".join(f"{(hit[bins == b] - top[bins == b]).sum():.4g}" for b in range(BINS))
    squares = ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()
    log_loss = -np.log(p[np.arange(len(y)), y]).mean()
    print(f"{name} {number_of_split}: {log_loss:.4f}, {seconds:.1f} s", flush=True)
    return [
        (name, number_of_split, log_loss, squares, len(y), gaps, seconds, *run_boosting(train, new))
    ]


def run_boosting(train: pd.DataFrame, new: pd.DataFrame) -> tuple[float, float]:
    """Return the log-loss of boosting alone, and its seconds; rows with unseen levels get the
    shares of the classes.
    """
    begin = time.process_time()
    shares = (
        train["class"]
        .value_counts(normalize=True)
        .reindex(new["class"].cat.categories, fill_value=0.0)
    )
    p = np.tile(shares.to_numpy(), (len(new), 1))
    is_known = np.all([new[c].isin(train[c].unique()) for c in new if c != "class"], axis=0)
    p[is_known] = fit_and_predict(train, new[is_known], "boosting")
    log_p = np.log(np.clip(p, 1e-15, None))
    return -log_p[np.arange(len(new)), new["class"].cat.codes].mean(), time.process_time() - begin


def calibration_error(splits: pd.DataFrame) -> float:
    """Return the expected calibration error of the pooled splits of a problem."""
    gaps = np.array([[float(gap) for gap in text.split()] for text in splits["gaps"]])
    return float(np.abs(gaps.sum(axis=0)).sum() / splits["rows"].sum())


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean log-loss by problem, ours and the quoted ones in columns; nan where a method
    has none.
    """
    quoted = pd.read_csv(QUOTED).pivot_table(index="set", columns="method", values="log_loss")
    ours = frame.groupby("set")["log_loss"].mean().rename(OURS)
    return pd.concat([ours, quoted[[*PEERS, "true network"]]], axis=1, join="inner")


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page: tables of real and of drawn problems, ranks, and what the tables are."""
    found = losses(frame)
    drawn = found["true network"].notna()
    lines = [
        "# Tables that were not used to develop `auto`",
        "",
        "Log-loss on held-out rows; smaller is better. The members of `auto` with relevant "
        "predictors, Markov blankets and boosting, the constants of boosting, and the pull of "
        "weights towards equality were chosen on these tables; all other settings were chosen on "
        "other data. Real tables: five stratified folds, assigned twice for up to 3,000 rows. "
        "Simulated tables: 300 or 3,000 rows from a Bayesian network (asia, sachs, child, alarm, "
        "hailfinder, win95pts), and 5,000 new rows; the excess is the log-loss minus the log-loss "
        "of the true network. Other methods are quoted, on the same splits: scikit-learn 1.9.1 "
        "(logistic: ridge on dummies, C by cross-validation; forest of 500 trees with at least "
        "two rows per leaf; histogram boosting), CatBoost 1.2.10 (at most 500 iterations, with "
        "early stopping on 15 % of the training rows; on marketing it did not finish within 60 "
        "s), EBM of interpret-core 0.7.8 with defaults, and bbl's TAN and AODE with a pseudocount "
        "of 1. Missing values are a level. The mean excess of a method is over the problems on "
        "which it was run. `python -m benchmarks.accuracy.tables`",
        "",
    ]
    names = [OURS, *PEERS]
    for title, part in (("Real tables", found[~drawn]), ("Simulated tables", found[drawn])):
        rows = [[name, *(number(v) for v in values)] for name, *values in part[names].itertuples()]
        whole = part[names].dropna()
        rows.append(["average rank", *(f"{v:.2f}" for v in whole.rank(axis=1).mean())])
        rows.append([f"mean of {len(whole)}", *(number(v) for v in whole.mean())])
        lines += [f"## {title}", "", *table(["", *names], rows)]
    excess = found[drawn][names].sub(found.loc[drawn, "true network"], axis=0)
    rows = []
    for n in DRAWN_ROWS:
        part = excess[excess.index.str.endswith(f"_{n}")]
        rows.append([f"{n:,} rows", *(number(v) for v in part.mean())])
    lines += ["## Excess over the true network, mean", "", *table(["", *names], rows)]
    seconds = frame.groupby("set")["seconds"].mean()
    error = np.mean([calibration_error(splits) for _, splits in frame.groupby("set")])
    lines += [
        f"A fit of `auto` takes {seconds.median():.1f} s of CPU time (median over problems; at "
        f"most {seconds.max():.1f} s, {seconds.idxmax()}) on a shared machine. The expected "
        f"calibration error in {BINS} bins, for the pooled splits of a problem and averaged over "
        f"problems, is {error:.3f}.",
        "",
        *boosting_lines(frame, found, drawn),
    ]
    return lines


def boosting_lines(frame: pd.DataFrame, found: pd.DataFrame, drawn: pd.Series) -> list[str]:
    """Return the sentences on boosting alone: mean log-loss beside the methods that have run on all
    problems.
    """
    alone = frame.groupby("set")[["boosting", "boosting_seconds"]].mean()
    means = []
    for title, part in (("real", found[~drawn]), ("simulated", found[drawn])):
        whole = part[[OURS, *PEERS]].dropna()
        others = ", ".join(
            f"{name} {number(whole[name].mean())}" for name in ("EBM", "logistic", "CatBoost")
        )
        means.append(
            f"{number(alone.loc[whole.index, 'boosting'].mean())} on the {len(whole)} {title} "
            f"tables ({others})"
        )
    seconds = alone["boosting_seconds"]
    return [
        f'`method="boosting"` alone has a mean log-loss of {" and ".join(means)}, in '
        f"{seconds.min():.2f} to {seconds.max():.2f} s of CPU time per fit, including predictions."
    ]


def plot(frame: pd.DataFrame, path: Path) -> None:
    """Draw the differences in log-loss between each method and `auto`, one line per problem."""
    import matplotlib.pyplot as plt

    found = losses(frame)
    others = found[list(PEERS)].sub(found[OURS], axis=0)
    order = others["logistic"].sort_values().index
    figure, ax = plt.subplots(figsize=(7, 0.26 * len(order) + 1), layout="constrained")
    marks = zip(PEERS[:4], ("#D55E00", "#0072B2", "#009E73", "#CC79A7"), "osD^", strict=True)
    for name, color, mark in marks:
        ax.plot(
            others.loc[order, name].clip(upper=0.2),
            range(len(order)),
            mark,
            color=color,
            ms=5,
            label=name,
        )
    ax.axvline(0.0, color="0.5", lw=1)
    ax.set_yticks(range(len(order)), [name.removeprefix("net_") for name in order], fontsize=8)
    ax.set_xlabel("log-loss minus log-loss of method='auto' (right of 0: worse; truncated at 0.2)")
    ax.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Run and write ``results/tables.csv``, ``tables.md`` and ``tables.png``."""
    args = command(__doc__, only=([], "problems that are run; all by default"))
    folder = (data_folder() or Path()) / "data" / "tables"
    tasks = [
        (name, frame, k, split)
        for name, frame, splits in problems(folder)
        if not args.only or name in args.only
        for k, split in enumerate(splits)
    ]
    rows = rows_of(run_split, tasks, args.jobs, COLUMNS)
    order = [
        (name, str(k))
        for name in sorted(pd.read_csv(QUOTED)["set"].unique())
        for k in range(FOLDS * len(SEEDS))
    ]
    if len(rows):
        update(args.out / "tables.csv", rows, KEY, order)
    frame = pd.read_csv(args.out / "tables.csv")
    plot(frame, args.out / "tables.png")
    print(write_page(args.out / "tables.md", page(frame)).read_text())


if __name__ == "__main__":
    main()
