"""Errors of sparse regression on products: ``python -m benchmarks.accuracy.shooter``."""

import json
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from bbl.parallel import serial_blas
from bbl.sparse.choice import choose
from bbl.sparse.products import log_odds, term_links
from benchmarks.files import mnist, shared_file
from benchmarks.report import command, table, write_page

COLUMNS = ("problem", "method", "terms", "objective", "error", "seconds")
PENALTIES = (80.0, 100.0, 100.0)  # of the paper
DIGITS = (3.5, 0.7, 0.7)


def synthetic() -> tuple:
    """Return training and test rows of the synthetic data: 8,000 and 2,000 x 2,000."""
    path = shared_file("data", "highorder", "syn_small_s1.npz")
    if path is None:
        raise SystemExit("data/highorder/syn_small_s1.npz is not there; set BBL_SHARED to the folder of data.")
    data = np.load(path)
    codes = np.unpackbits(data["Xbits"], axis=1)[:10000, :2000]
    y = (data["y"][:10000] > 0).astype(int)
    return codes[:8000], y[:8000], codes[8000:], y[8000:]


def digits() -> tuple | None:
    """Return training and test rows of the images of 0 and 6, binarised at 127: all of them, 80 % for training."""
    parts = [mnist(part) for part in ("train", "test")]
    if any(part is None for part in parts):
        return None
    frame = pd.concat(parts)
    frame = frame[frame.iloc[:, 0].astype(int).isin((0, 6))]
    y, codes = (frame.iloc[:, 0].astype(int) == 6).to_numpy(int), frame.iloc[:, 1:].to_numpy(np.uint8)
    order = np.random.default_rng(0).permutation(len(y))
    first, last = np.split(order, [int(0.8 * len(y))])
    codes = np.ascontiguousarray(codes[:, np.ptp(codes[first], axis=0) > 0])
    return codes[first], y[first], codes[last], y[last]


def baselines(problem: str, data: tuple, penalty: float) -> list[tuple]:
    """Return a row for each linear method of scikit-learn."""
    X, y, T, truth = data
    methods = {
        "logistic regression": LogisticRegression(C=1e6, max_iter=2000),
        "linear SVM": LinearSVC(max_iter=2000),
        f"L1 logistic regression, liblinear ({penalty:g})": LogisticRegression(
            l1_ratio=1, C=1 / penalty, solver="liblinear", tol=1e-6, intercept_scaling=100.0
        ),
    }
    out = []
    for name, model in methods.items():
        begin = time.process_time()
        model.fit(2.0 * X - 1, y)
        seconds = time.process_time() - begin
        used = int((model.coef_ != 0).sum())
        out.append((problem, name, str(used), np.nan, float((model.predict(2.0 * T - 1) != truth).mean()), seconds))
    return out


def ours(problem: str, data: tuple, penalties: tuple[float, ...]) -> list[tuple]:
    """Return a row for each order, raw and refitted, and for the choice between the two."""
    X, y, T, truth = data
    out = []
    for order in range(1, len(penalties) + 1):
        for refit in (False, True) if order < len(penalties) else (False, True, "auto"):
            begin = time.process_time()
            rng = np.random.default_rng(0)
            given = (X, [2] * X.shape[1], y, 2, np.ones(len(y)))
            found = choose(*given, order=order, lambda_=penalties[:order], refit=refit, rng=rng)
            seconds = time.process_time() - begin
            link = log_odds(found.intercept + term_links(T, [2] * X.shape[1], found.weights, None, 1))[:, 0]
            sizes = [len(t) for t in found.weights]
            terms = " + ".join(str(sizes.count(k)) for k in range(1, order + 1))
            kind = {
                False: "penalised",
                True: "refitted",
                "auto": f"auto: {'refitted' if found.refitted else 'penalised'}",
            }
            name = f"shooter, order {order}, {kind[refit]}"
            objective = found.path[0].stages[-1].objective
            out.append((problem, name, terms, objective, float(((link > 0) != truth).mean()), seconds))
    return out


def main() -> None:
    """Write the table."""
    args = command(__doc__, only=("", "synthetic or digits alone"))
    warnings.simplefilter("ignore")
    rows: list[tuple] = []
    with serial_blas():
        if args.only != "digits":
            data = synthetic()
            rows += baselines("synthetic", data, PENALTIES[0]) + ours("synthetic", data, PENALTIES)
        if args.only != "synthetic" and (images := digits()) is not None:
            rows += baselines("digits 0 and 6", images, DIGITS[0]) + ours("digits 0 and 6", images, DIGITS)
    frame = pd.DataFrame(rows, columns=COLUMNS)
    path = args.out / "shooter.csv"
    if path.exists() and args.only:
        known = pd.read_csv(path)
        frame = pd.concat([known[~known["problem"].isin(frame["problem"])], frame]).sort_values(
            "problem", kind="stable"
        )
    frame.to_csv(path, index=False, float_format="%.6g")
    write_page(args.out / "shooter.md", page(frame))


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page of a table."""
    lines = [
        "# Sparse regression on products",
        "",
        "Errors on test rows. *synthetic*: 8,000 rows of 2,000 predictors, 2,000 test rows; of 100 true terms 20, 40",
        "and 40 are of order 1, 2 and 3; penalties 80, 100, 100 on the sum of losses. *digits 0 and 6*: all MNIST",
        "images of both, binarised at 127, a fifth of them for testing; penalties 3.5, 0.7, 0.7. Terms are counted",
        "by order. Seconds are of one core, of the whole call. `python -m benchmarks.accuracy.shooter`",
        "",
    ]
    for problem, part in frame.groupby("problem", sort=False):
        lines += [f"## {problem}", ""]
        cells = [
            [
                r.method,
                str(r.terms),
                "" if np.isnan(r.objective) else f"{r.objective:.3f}",
                f"{r.error:.4f}",
                f"{r.seconds:.1f}",
            ]
            for r in part.itertuples()
        ]
        lines += table(["method", "terms", "objective", "test error", "CPU s"], cells)
    source = shared_file("data", "highorder", "baselines.json")
    if source is not None and "synthetic" in set(frame["problem"]):
        known = json.loads(source.read_text())["syn_small_s1"]["shooter"]
        shown = ", ".join(f"order {k}: {known[f'order{k}']['objective']:.3f}" for k in (1, 2, 3))
        lines += [f"Objectives of an independent program on the synthetic data: {shown}.", ""]
    return lines


if __name__ == "__main__":
    main()
