"""Class scores as features of handwritten digits: ``python -m benchmarks.studies.digits``."""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bbl.sklearn import ScoreFeatures
from benchmarks.files import shared_file
from benchmarks.report import command, table, write_page

COLUMNS = ("features", "method", "accuracy", "seconds")
THESIS = {"scores": 0.876, "pixels": 0.942}  # random forests of the thesis, section 3.3.3


def black(X: np.ndarray) -> np.ndarray:
    """Return which pixels are nearer to black than to white."""
    return (np.asarray(X) > 0).astype(np.int8)


def forest(trees: int) -> RandomForestClassifier:
    return RandomForestClassifier(trees, random_state=0)


def pipelines(trees: int) -> dict[tuple[str, str], Callable]:
    """Return what is compared, by features and classifier."""

    def conjugate(**options):
        return ScoreFeatures("conjugate", **options)

    def mean_field(eps: float, **options):
        return make_pipeline(
            FunctionTransformer(black), ScoreFeatures("mf", options={"eps": eps}, **options)
        )

    made = {
        ("256 grey values", "random forest"): lambda: forest(trees),
        ("10 conjugate scores", "random forest"): lambda: make_pipeline(conjugate(), forest(trees)),
        ("10 conjugate scores, in-sample", "random forest"): lambda: make_pipeline(
            conjugate(cv=None), forest(trees)
        ),
        ("10 conjugate scores, signed log", "random forest"): lambda: make_pipeline(
            conjugate(signed_log=True), forest(trees)
        ),
    }
    for eps in (0.05, 0.1, 0.2):
        made[f"10 mean-field scores, eps={eps:g}", "random forest"] = lambda eps=eps: make_pipeline(
            mean_field(eps), forest(trees)
        )
    made["10 mean-field scores, eps=0.1, not normalised", "random forest"] = lambda: make_pipeline(
        mean_field(0.1, normalised=False), forest(trees)
    )
    return made


def largest(data: dict[str, np.ndarray]) -> list[tuple]:
    """Return how often the largest score is that of the right class, which scores without ln Z are
    not made for.
    """
    out = []
    for c, name in ((None, "c = n/2"), (1000.0, "one c for all")):
        began = time.process_time()
        model = ScoreFeatures("conjugate", options=None if c is None else {"c": c})
        scores = model.fit(data["train_x"], data["train_y"]).transform(data["test_x"])
        right = float((model.classes_[scores.argmax(axis=1)] == data["test_y"]).mean())
        out.append(
            (f"10 conjugate scores, {name}", "the largest", right, time.process_time() - began)
        )
    return out


def run(trees: int, which: list[str]) -> pd.DataFrame:
    """Return the rows of all comparisons."""
    path = shared_file("data", "posterior", "usps.npz")
    if path is None:
        raise SystemExit("usps.npz is not there; set BBL_SHARED to the folder of data.")
    with np.load(path) as stored:
        data = {name: stored[name] for name in stored.files}
    X = {part: np.clip(data[f"{part}_x"].astype(float), -1.0, 1.0) for part in ("train", "test")}
    data |= {"train_x": X["train"], "test_x": X["test"]}
    found = largest(data)
    for (features, method), make in pipelines(trees).items():
        if which and not any(word in features for word in which):
            continue
        began = time.process_time()
        right = make().fit(X["train"], data["train_y"]).score(X["test"], data["test_y"])
        found.append((features, method, right, time.process_time() - began))
        print(*found[-1], flush=True)
    return pd.DataFrame(found, columns=COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page."""
    lines = [
        "# Class scores as features of digits",
        "",
        "USPS digits: 7,291 training and 2,007 test images of 256 grey values between -1 and 1. "
        "Scores of training images are out-of-fold (5 folds) unless marked as in-sample. The "
        f"thesis reports {100 * THESIS['scores']:.1f} % accuracy for a random forest on 10 "
        "unnormalised scores of a full machine with 10 hidden units, and "
        f"{100 * THESIS['pixels']:.1f} % for a forest on the grey values. Mean field uses black "
        "and white pixels, and its scores are normalised by ln Z unless marked otherwise.",
        "",
    ]
    rows = [
        [str(f), str(m), f"{100 * a:.2f} %", f"{s:.1f}"]
        for f, m, a, s in frame.itertuples(index=False)
    ]
    return lines + table(["features", "classifier", "test accuracy", "CPU seconds"], rows)


def main() -> None:
    """Run and write ``results/digits.csv`` and ``digits.md``."""
    args = command(
        __doc__, trees=(500, "trees of a forest"), only=([], "words of the features to run")
    )
    frame = run(args.trees, args.only)
    frame.to_csv(args.out / "digits.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "digits.md", summarise(frame)).read_text())


if __name__ == "__main__":
    main()
