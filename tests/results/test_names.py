"""Names that users choose, whatever they are, are in no frame's way: other names, the same frames
under them.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.design.grammar import quoted
from bbl.report.text import distinct_names

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::bbl.errors.{kind}Warning")
    for kind in ("Convergence", "Data")
]

# of all columns, indices and tables that the package names itself; a test tells what is not here
OWN = (
    "(baseline)",
    "(draws)",
    "(summed out)",
    "AIC",
    "AUC",
    "BIC",
    "F1",
    "J",
    "Members",
    "Pr(>chisq)",
    "against",
    "baseline",
    "brier",
    "calibrate",
    "chain",
    "odds ratio",
    "chisq",
    "ci1",
    "ci2",
    "clAIC",
    "class",
    "contribution",
    "count",
    "df",
    "difference",
    "draw",
    "entropy (bits)",
    "ess_bulk",
    "ess_tail",
    "estimate",
    "features",
    "fit",
    "fitness",
    "fitted",
    "fold",
    "fpr",
    "group",
    "h",
    "hdi_lower",
    "hdi_upper",
    "importance",
    "index",
    "information",
    "level",
    "level2",
    "levels",
    "log_density",
    "log_loss",
    "log_odds",
    "log_pl",
    "log_prob",
    "log_z",
    "logLik",
    "logloss",
    "lower",
    "mcse",
    "mean",
    "member",
    "model",
    "most frequent",
    "observed",
    "order",
    "p",
    "p_bh",
    "p_holm",
    "parameter",
    "parameters",
    "penalty",
    "point",
    "pooled",
    "precision",
    "predicted",
    "predictor",
    "predictor2",
    "predictors",
    "ratio",
    "recall",
    "residuals",
    "rhat",
    "score",
    "sd",
    "se",
    "setting",
    "share",
    "step",
    "strength",
    "sum",
    "support",
    "term",
    "terms",
    "test",
    "threshold",
    "tpr",
    "upper",
    "value",
    "weight",
    "weights",
    "y",
    "yhat",
    "z",
    "loss",
    "objective",
    "violation",
    "ebic",
    "held_raw",
    "held_refit",
    "chosen",
    "accuracy",
    "feature parents",
    "lambda",
    "all",
    "Holm",
    "BH",
    "inclusion",
)


class Names(NamedTuple):
    response: str
    groups: tuple
    predictors: tuple
    levels: tuple


ODD = (
    Names("a:b", ("b:a", "a=b"), ("a:b:a", "a", "b", "a=b : b", "x:a"), ("b=a", "x", "b=a : x=x")),
    Names("a", (1, "1"), ("1", "1_", 1, "yhat", "2"), (2, "2", "2_")),
    Names(
        "x | y",
        ("yhat", "yhat_"),
        ("x", "y", "x | y", "(summed out)", "(baseline)"),
        ("y", "?", "yhat"),
    ),
    Names("", (" ", "  "), ("a\nb", "a\\nb", "log_odds_", "group_", "log_odds"), ("", " ", "\t")),
    Names(
        "é",
        ("e\u0301", "🙂"),
        ("東京", "n" * 60, "n" * 61, '`"\\', "'"),
        ("é", "e\u0301", "-" * 99),
    ),
)
EACH = 20
WORDS = [
    Names("y", ("yhat", "pooled"), (*OWN, *OWN)[k : k + EACH], ("level", "estimate", "p"))
    for k in range(0, len(OWN), EACH)
]


def plain(names):
    """Return names of the same number that nothing else has."""
    groups, predictors, levels = (
        tuple(f"{what}{k}." for k in range(len(own)))
        for what, own in zip(("g", "x", "v"), names[1:], strict=True)
    )
    return Names("r.", groups, predictors, levels)


def table(names, n=90):
    """Return n rows of a response and predictors under these names, and the formula with one
    interaction.
    """
    rng, K, m, L = np.random.default_rng(0), *map(len, names[1:])
    y, x = np.arange(n) % K, rng.integers(0, L, (n, m))
    x[:, 0] = np.where(rng.random(n) < 0.5, y % L, x[:, 0])
    columns = {name: (x[:, i], names.levels) for i, name in enumerate(names.predictors)}
    columns[names.response if names.response not in columns else f"{names.response}!"] = (
        y,
        names.groups,
    )
    frame = pd.DataFrame(
        {
            name: pd.Categorical.from_codes(c, pd.Index(v, dtype=object), ordered=True)
            for name, (c, v) in columns.items()
        }
    )
    return frame, str(frame.columns[-1])


def class_frames(fit, data, path):
    """Yield the frames of a classifier."""
    some = data.head(9)
    yield "model_frame", fit.model_frame
    yield from fit.summary().tables.items()
    for kind in ("link", "prob", "class"):
        yield f"predict {kind}", fit.predict(some, type=kind)
    yield "fitted", fit.fitted()
    yield "importance", fit.importance(data).frame
    evaluation = fit.evaluate(data)
    yield from ((name, getattr(evaluation, name)) for name in ("scores", "confusion", "report"))
    yield "roc", evaluation.roc(fit.labels.groups[0])
    fit.predict_batches(some, to=path, verbose=0)
    yield "parquet", pd.read_parquet(path)
    if fit._kind != "average":
        why = fit.explain(some)
        yield from ((f"explain {name}", getattr(why, name)) for name in ("frame", "values"))
        yield "row", why.row(1).rename(index=str)


def machine_frames(fit, data):
    """Yield the frames of a Boltzmann machine."""
    yield from ((name, getattr(fit, name)) for name in ("terms", "params", "order_counts"))
    yield "tidy", fit.tidy()
    yield "interactions", fit.interactions()
    yield "sample", fit.sample(5, seed=1)
    yield from (
        (f"reconstruct {t}", fit.reconstruct(data.head(9), type=t, verbose=0))
        for t in ("prob", "class")
    )
    yield "etable", bbl.etable({"AIC": fit, 1: fit, "1": fit}).frame


def inference_frames(fit):
    """Yield the frames of a fit with standard errors."""
    for of in ("group", "pooled", fit.labels.groups[:2]):
        inference = fit.inference()
        yield f"table {of}", inference.table(of)
        yield f"tests {of}", inference.tests(of)
        yield f"conf_int {of}", inference.conf_int(of=of)
    yield "pooled interactions", fit.interactions("pooled")
    yield "permuted", fit.interactions(pvalues="permutation", n=19, seed=0)
    yield "bse", fit.bse
    yield "cov_params", fit.cov_params(fit.labels.groups[0])


def block_frames(names):
    """Yield the frames of a two-way table whose columns have such names."""
    row, column, response = list(dict.fromkeys(map(str, names.predictors)))[:3]
    columns = {row: np.arange(30) % 6, column: np.arange(30) // 6, response: np.arange(30) % 5 + 1}
    data = pd.DataFrame(columns).astype({row: str, column: str})
    formula = f"{quoted(response)} ~ {quoted(row)} + {quoted(column)}"
    own = {"method": "genetic", "generations": 3, "population": 6, "n_init": 1, "verbose": 0}
    blocks = bbl.bicluster(formula, data, **own)
    yield "fitted", blocks.fitted()
    yield from (
        (name, getattr(blocks, name)) for name in ("block_means", "row_groups", "population")
    )
    texts = bbl.bicluster(formula, data.astype(str), (2, 2), metric="levels", verbose=0)
    yield from (("texts", texts.fitted()), ("shares", texts.block_means))


def frames(names, path):
    """Yield every frame of every kind of result, with what it is."""
    data, response = table(names)
    quick = {"verbose": 0}
    pair = ":".join(quoted(str(name)) for name in names.predictors[:2])
    formula, main = f"{quoted(response)} ~ . + {pair}", f"{quoted(response)} ~ ."
    fits = {
        "pseudo": bbl.bbl(formula, data, lambda_=0.1, testNull=True, **quick),
        "mf": bbl.bbl(formula, data, method="mf", **quick),
        "bayes": bbl.bbl(main, data, method="bayes", draws=10, warmup=10, chains=2, **quick),
        "shooter": bbl.shooter(main, data, order=2, lambda_=9.0, **quick),
        "network": networks.bnc("tan_cl", main, data, 1),
        "density": bbl.bbl(f"~ . + {pair}", data.drop(columns=response), lambda_=0.1, **quick),
    }
    fits["average"] = bbl.average([fits["pseudo"], fits["mf"]], "equal")
    for kind, fit in fits.items():
        if kind != "density":
            yield from ((kind, what, frame) for what, frame in class_frames(fit, data, path))
        if kind in ("pseudo", "mf", "bayes", "density"):
            yield from ((kind, what, frame) for what, frame in machine_frames(fit, data))
    yield from (("inference", what, frame) for what, frame in inference_frames(fits["pseudo"]))
    yield from (("bicluster", what, frame) for what, frame in block_frames(names))
    yield "", "anova", bbl.anova(fits["mf"], fits["pseudo"])
    yield "", "log_scores", bbl.log_scores(fits["pseudo"], data)
    yield "bayes", "draws", fits["bayes"].posterior.to_frame()
    yield "bayes", "posterior", fits["bayes"].posterior.summary()
    yield "shooter", "terms", fits["shooter"].terms
    yield from (
        ("shooter", gauge, fits["shooter"].coef(gauge)) for gauge in ("reference", "zero-sum")
    )
    yield "shooter", "path", fits["shooter"].path
    for what in ("params", "params_se"):
        yield from (
            ("network", f"{what} {k}", t)
            for k, t in enumerate(getattr(fits["network"], what).values())
        )
    yield "network", "sample", fits["network"].sample(5, seed=0)
    yield "average", "tuning", fits["average"].tuning
    cv = bbl.crossVal(main, data, lambda_=[0.1, 1.0], nfold=3, shuffle=True, seed=1, **quick)
    yield from (("cv", name, getattr(cv, name)) for name in ("cvframe", "pooled", "observed"))
    yield "cv", "compare", cv.compare()
    levels = {f"{name}": list(names.levels) for name in names.predictors[:2]}
    par = [bbl.randompar(levels, seed=k) for k in range(2)]
    yield "", "randomsamp", bbl.randomsamp(levels, list(names.groups), par=par, nsample=5, seed=3)


def check_alike(found, expected, title):
    """Compare two frames of the same model under other names: shapes and numbers; and no column is
    there twice.
    """
    found, expected = (f.to_frame() if isinstance(f, pd.Series) else f for f in (found, expected))
    assert found.shape == expected.shape, title
    assert found.columns.is_unique, (title, found.columns[found.columns.duplicated()])
    is_number = np.array([dtype.kind in "fib" for dtype in expected.dtypes], dtype=bool)
    if is_number.any():
        one, other = (f.loc[:, is_number].to_numpy(float) for f in (found, expected))
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9, err_msg=title)
    if not is_number.all():
        one, other = (f.loc[:, ~is_number] for f in (found, expected))
        assert (one.isna().to_numpy() == other.isna().to_numpy()).all(), title
        same_texts = "values" in title or "parquet" in title  # which levels 2 and "2" may have
        assert same_texts or one.nunique().tolist() == other.nunique().tolist(), title


@cache
def plain_frames(names):
    """Return the frames of such names, once for each process."""
    with TemporaryDirectory() as folder:
        return list(frames(names, Path(folder) / "p"))


@pytest.mark.long
@pytest.mark.parametrize("names", [*WORDS, *ODD])
def test_frames_are_the_same_under_any_names(names, tmp_path):
    pairs = zip(frames(names, tmp_path / "p"), plain_frames(plain(names)), strict=True)
    for (kind, what, found), (_, _, expected) in pairs:
        check_alike(found, expected, f"{kind} {what}")


@pytest.mark.long
def test_groups_may_have_any_names(tmp_path):
    names = Names("resp", OWN, ("pooled", "yhat"), ("low", "mid", "high"))
    for fit in (
        lambda rows, text: bbl.bbl(text, rows, method="mf", verbose=0),
        lambda rows, text: networks.bnc("tan_cl", text, rows, 1),
    ):
        each = []
        for own in (names, plain(names)):
            data, response = table(own, 300)
            each.append(class_frames(fit(data, f"{quoted(response)} ~ ."), data, tmp_path / "p"))
        for (what, found), (_, expected) in zip(*each, strict=True):
            check_alike(found, expected, what)


def test_the_list_of_words_is_whole(tmp_path):
    """What is no user's name in a frame's columns, or names its axes, stands in `OWN`."""
    names = Names("r.", ("g0.", "g1."), ("x0.", "x1.", "x2."), ("v0.", "v1.", "v2."))
    words = set()
    for _, _, frame in frames(names, tmp_path / "p"):
        frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
        axes = [frame.columns.get_level_values(k) for k in range(frame.columns.nlevels)]
        words.update(
            str(word) for axis in (*axes, frame.index.names, frame.columns.names) for word in axis
        )
    assert {word for word in words if "." not in word and not word.isdecimal()} <= {
        *OWN,
        "None",
        "1_",
    }


def test_names_of_the_package_give_way():
    assert distinct_names(["yhat", "yhat_", "yhat"]) == ["yhat", "yhat_", "yhat__"]
    assert distinct_names([1, "1", 1]) == [1, "1", "1_"]
    data, _ = table(Names("r", ("yhat", "no"), ("log_odds", "group", "b"), ("u", "v", "w")))
    fit = bbl.bbl("r ~ .^2", data, lambda_=0.1, verbose=0)
    p = fit.predict(data, type="prob")
    assert list(p.columns) == ["yhat", "no", "yhat_"]
    assert p["yhat_"].tolist() == fit.predict(data, type="class").tolist()
    why = fit.explain(data)
    assert list(why.frame.columns[:5]) == ["group_", "against", "(baseline)", "log_odds", "group"]
    np.testing.assert_allclose(why.frame["log_odds_"], np.log(p["no"] / p["yhat"]), atol=1e-9)
    np.testing.assert_allclose(
        why.frame.iloc[:, 2:-1].sum(axis=1), why.frame["log_odds_"], atol=1e-9
    )
    assert why.terms[:4] == (("log_odds",), ("group",), ("b",), ("log_odds", "group"))


def test_a_group_of_the_name_of_the_index_of_a_confusion_matrix():
    data, _ = table(Names("r", ("observed", "predicted"), ("a", "b", "c"), ("u", "v", "w")))
    confusion = bbl.bbl("r ~ .", data, lambda_=0.1, verbose=0).evaluate(data).confusion
    assert confusion.index.name == "observed_"
    assert list(confusion.reset_index().columns) == ["observed_", "observed", "predicted"]


def test_numbers_and_groups_of_the_names_of_the_index_of_their_means_and_covariances():
    own = ("number", "term", "group")
    numbers = dict(zip(own, np.random.default_rng(1).normal(size=(3, 60)), strict=True))
    rows = pd.DataFrame(numbers | {"r": ["number", "term", "group"] * 20})
    fit = bbl.bbl("r ~ .^2", rows, numeric=True, verbose=0)
    assert "Means of term" in str(fit)
    means = fit.means().reset_index()
    assert list(means.columns) == ["number_", "term_", "group", "number", "term"]
    covariances = fit.covariances().reset_index()
    assert list(covariances.columns) == ["group_", "number_", *own]
