"""What the pages say of errors: each sentence has its check, and a new sentence needs one."""

import re
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.errors import BBLTypeError, ClassError, DataError, FormulaError, LevelError, OptionError

ROOT = Path(__file__).resolve().parents[1]
SENTENCE = re.compile(
    r"\ban error\b(?! (?:of|in|below|bar)\b)|\bare errors\b|\brefus\w+|\braises\b"
    r"|\brejects? (?:it|such|them|this)\b"
)
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "dev"),
    *sorted((ROOT / "vignettes").glob("*.py")),
]
# the changelog tells of what was; the page on reliability names the test beside each of its
# sentences; the one on what works with what is made from declarations, each of which
# test_works_with.py tries
LEFT_OUT = ("changelog.md", "reliability.md", "works_with.md")


def prose(page):
    """Return the sentences of a page, and the rows of its tables, without code blocks."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        parts = [
            part.split("\n")[1:] for part in text.split("# %%") if part.startswith(" [markdown]")
        ]
        text = "\n".join(re.sub("^# ?", "", line) for part in parts for line in part)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\n *(?![\s|*#-])", " ", text)  # a paragraph in one line
    return [" ".join(one.split()) for one in re.split(r"(?<=[.:;?])\s+|\n", text)]


@cache
def titanic():
    return bbl.datasets.load_titanic()


@cache
def raw():
    return bbl.freq2raw(titanic(), "Freq").sample(400, random_state=0).reset_index(drop=True)


@cache
def fitted(formula="Survived ~ .", **options):
    return bbl.bbl(formula, titanic(), "Freq", **options)


def fractional():
    """Fit with weights that are not counts."""
    return fit("Survived ~ .", titanic().assign(Freq=titanic()["Freq"] + 0.5), "Freq")


def read_in_batches():
    """Fit titanic() in batches."""
    return fit("Survived ~ .", batches(titanic()), "Freq", method="mf")


def loaded():
    """Load a fit that was saved without its rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.bbl"
        fitted().save(path)
        return bbl.load(path)


def unreadable():
    """Yield the columns of titanic(), and fail if rows are read."""
    yield titanic().head(0)
    raise AssertionError("rows were read")


def numbers(n=60):
    rng = np.random.default_rng(0)
    return {
        "y": rng.integers(0, 2, n),
        "a": rng.integers(0, 2, n),
        "x": rng.random(n),
        "id": [f"r{i}" for i in range(n)],
    }


def gaps():
    return raw().assign(Age=raw()["Age"].astype(object).where(np.arange(400) % 9 > 0))


def never_both():
    """Return rows in which the group "No" has either Age or Sex, never both."""
    rows = raw()
    is_no = rows["Survived"] == "No"
    is_even = np.arange(len(rows)) % 2 == 0
    return rows.assign(
        Age=rows["Age"].astype(object).where(~(is_no & is_even)),
        Sex=rows["Sex"].astype(object).where(~(is_no & ~is_even)),
    )


def fit(formula, data=None, weights=None, **options):
    return bbl.bbl(
        formula, titanic() if data is None else data, "Freq" if data is None else weights, **options
    )


def batches(data):
    return lambda: iter([data.iloc[:150], data.iloc[150:]])


# page, words of the sentence, class of the error, what its message says, calls that raise it
STATEMENTS = [
    (
        "docs/matches_bnclassify.md",
        "they are refused",
        OptionError,
        "aode averages several networks",
        [
            lambda options=options: networks.bnc(
                "aode", "Survived ~ .", titanic(), 1, weights="Freq", **options
            )
            for options in ({"manb_prior": 0.5}, {"wanbia": True}, {"awnb_trees": 3})
        ],
    ),
    (
        "docs/matches_r.md",
        "an error where a method cannot take them",
        DataError,
        "integer",
        [
            lambda method=method: fit(
                "Survived ~ .",
                titanic().assign(Freq=titanic()["Freq"] + 0.5),
                "Freq",
                method=method,
            )
            for method in ("bayes", "shbm")
        ],
    ),
    (
        "docs/matches_r.md",
        'an error with `method="mf"`, which supports pairs',
        FormulaError,
        "pairs",
        [lambda: fit("Survived ~ Class:Sex:Age", method="mf")],
    ),
    (
        "docs/matches_r.md",
        "an error that names column and level",
        LevelError,
        "'4th'",
        [lambda: fitted().predict(titanic().assign(Class="4th"))],
    ),
    (
        "docs/matches_r.md",
        "an error that names column and level",
        DataError,
        "Age",
        [lambda: fitted().predict(gaps())],
    ),
    (
        "docs/matches_r.md",
        "an error if the formula has pairs only",
        OptionError,
        "lambda_",
        [lambda: fit("Survived ~ .^2", lambda_=(0.1, 5))],
    ),
    (
        "docs/guide/data.md",
        "raises an error, because Python treats them as equal labels",
        LevelError,
        "True",
        [lambda: fit("y ~ x", {"y": [0, 1, 0, 1], "x": pd.Series([1, True, 0, 0], dtype=object)})],
    ),
    (
        "docs/guide/data.md",
        "because each value would be a separate level",
        DataError,
        "'x'",
        [lambda: fit("y ~ x", numbers())],
    ),
    (
        "docs/guide/data.md",
        "a column is rejected as soon as it has more than 16,000 values",
        DataError,
        "'x'",
        [
            lambda: fit(
                "y ~ x",
                lambda: iter(
                    [pd.DataFrame({"y": [0, 1] * 10_000, "x": [f"p{k}" for k in range(20_000)]})]
                ),
            )
        ],
    ),
    (
        "docs/guide/data.md",
        "considered an identifier, and is rejected",
        DataError,
        "'id'",
        [lambda: fit("y ~ id", numbers())],
    ),
    (
        "docs/guide/data.md",
        "an error that names the column and the number of missing values",
        DataError,
        r"'Age'.*\b45\b",
        [lambda: fit("Survived ~ .", gaps())],
    ),
    (
        "docs/guide/data.md",
        "A predictor with a single level raises an error",
        LevelError,
        "'a'",
        [lambda: fit("y ~ a", {"y": [0, 1], "a": [1, 1]})],
    ),
    (
        "docs/guide/data.md",
        "If indexes differ, an error is raised",
        (DataError, OptionError),
        "index",
        [
            lambda: fit("Survived ~ Sex", titanic(), titanic()["Freq"].rename(lambda k: k + 1)),
            lambda: bbl.freq2raw(titanic(), titanic()["Freq"].rename(lambda k: k + 1)),
            lambda: fit(
                "y ~ a",
                {"y": pd.Series([0, 1, 0, 1]), "a": pd.Series([0, 1, 1, 0], index=[1, 2, 3, 4])},
            ),
        ],
    ),
    (
        "docs/guide/data.md",
        "`bootstrap()` raise an error",
        DataError,
        "not integers",
        [
            lambda: fractional().inference(),
            lambda: fractional().bootstrap(),
        ],
    ),
    (
        "docs/guide/density.md",
        "raise an error that suggests an alternative",
        ClassError,
        "response",
        [lambda: fitted("~ .").predict(titanic())],
    ),
    (
        "docs/guide/evaluation.md",
        "raises an error that asks for a dict",
        OptionError,
        "name",
        [
            lambda: fit(
                "Survived ~ .", titanic().astype({"Survived": str}), "Freq", priors=[0.9, 0.1]
            )
        ],
    ),
    (
        "docs/guide/fitting.md",
        "Options of another method, misspelt options",
        BBLTypeError,
        "eps|lambda_|verbose",
        [
            lambda: fit("Survived ~ .", method="mf", lambda_=1),
            lambda: fit("Survived ~ .", lamda=1),
            lambda: fit("Survived ~ .", progress_bar=True),
        ],
    ),
    (
        "docs/guide/fitting.md",
        "averaging over missing values raise errors",
        bbl.BBLError,
        "method='conditional'",
        [
            lambda: fitted(method="conditional").logLik(),
            lambda: fitted(method="conditional").log_z,
            lambda: bbl.mcSample(fitted(method="conditional")),
            lambda: fitted(method="conditional").sample(3),
            lambda: fit("Survived ~ .", gaps(), method="conditional", missing="marginal"),
        ],
    ),
    (
        "docs/guide/fitting.md",
        '(`"ml"` then raises an error)',
        OptionError,
        "method='pseudo'",
        [lambda: wide(40, method="ml")],
    ),
    (
        "docs/guide/formulas.md",
        "are rejected before parsing",
        FormulaError,
        "not evaluated|not a name",
        [
            lambda right=right: fit("Survived ~ " + right)
            for right in ("log(Age)", "{Age}", "'Age'", "Sex > 1", "2")
        ],
    ),
    (
        "docs/guide/errors.md",
        "All errors that the package raises deliberately",
        bbl.BBLError,
        "lambda_",
        [lambda: fit("Survived ~ .^2", lambda_=-1)],
    ),
    (
        "docs/guide/errors.md",
        "raises an error that is both a `BBLError` and a `MemoryError`",
        MemoryError,
        "GiB",
        [lambda: wide(784, formula="y ~ .^3")],
    ),
    (
        "docs/guide/errors.md",
        "raises an error that is both a `BBLError` and a `MemoryError`",
        bbl.BBLError,
        "GiB",
        [lambda: wide(784, formula="y ~ .^3")],
    ),
    (
        "docs/guide/parallel.md",
        "raises an error if this exceeds 80 %",
        MemoryError,
        "GiB",
        [lambda: wide(784, formula="y ~ .^3")],
    ),
    (
        "docs/guide/formulas.md",
        "a term of three predictors raises an error",
        FormulaError,
        "pairs",
        [lambda: fit("Survived ~ .^3", method="mf")],
    ),
    (
        "docs/guide/large.md",
        "identifiers and dates are rejected",
        DataError,
        "'x'|'id'",
        [
            lambda: fit("y ~ x", batches(pd.DataFrame(numbers(300)))),
            lambda: fit("y ~ id", batches(pd.DataFrame(numbers(300)))),
        ],
    ),
    (
        "docs/guide/large.md",
        "identifiers and dates are rejected",
        BBLTypeError,
        "'x'",
        [
            lambda: fit(
                "y ~ x", batches(pd.DataFrame(numbers(300)).assign(x=pd.Timestamp("2020-01-01")))
            )
        ],
    ),
    (
        "docs/guide/large.md",
        '`missing="marginal"` | an error',
        OptionError,
        "missing",
        [lambda: fit("Survived ~ .^2", batches(gaps()), missing="marginal")],
    ),
    (
        "docs/guide/large.md",
        "new data raise an error",
        DataError,
        "does not keep the order of the training rows",
        [
            lambda: read_in_batches().fitted(),
            lambda: read_in_batches().residuals(),
            lambda: read_in_batches().predict(),
        ],
    ),
    (
        "docs/guide/large.md",
        "raise an error before any row is read",
        OptionError,
        "requires all rows in memory",
        [
            *(
                lambda method=method: bbl.bbl("Survived ~ .", unreadable, method=method)
                for method in ("pvi", "pcd", "mpf", "bayes", "shbm")
            ),
            lambda: networks.bnc("tan_hc", "Survived ~ .", unreadable),
        ],
    ),
    (
        "docs/guide/log_z.md",
        "refused with an error if it is too costly",
        OptionError,
        "exact",
        [lambda: wide(40, log_z="exact")],
    ),
    (
        "docs/guide/missing.md",
        "an error that names the column and counts them | an error",
        DataError,
        "'Age'",
        [lambda: fit("Survived ~ .", gaps()), lambda: fitted().predict(gaps())],
    ),
    (
        "docs/guide/missing.md",
        'an error unless `unseen="ignore"`',
        (DataError, LevelError),
        "Age",
        [lambda: fitted(missing="level").predict(gaps())],
    ),
    (
        "docs/guide/missing.md",
        "If a group has no such rows, an error names the group and the predictor",
        DataError,
        "In group 'No'.*'Sex' and all predictors it interacts with",
        [lambda: fit("Survived ~ Sex * Age", never_both(), missing="marginal")],
    ),
    (
        "docs/guide/missing.md",
        "A missing response raises an error",
        DataError,
        "'Survived'.*response must not contain missing values",
        [
            lambda missing=missing: fit(
                "Survived ~ .",
                titanic().assign(
                    Survived=titanic()["Survived"].astype(object).where(np.arange(32) > 2)
                ),
                "Freq",
                missing=missing,
            )
            for missing in ("raise", "level", "marginal")
        ],
    ),
    (
        "docs/guide/saving.md",
        "so methods that need them",
        DataError,
        "no training rows",
        [
            lambda: loaded().fitted(),
            lambda: loaded().residuals(),
            lambda: loaded().model_frame(),
            lambda: loaded().predict(),
            lambda: loaded().inference(),
        ],
    ),
    (
        "docs/guide/tables.md",
        "an error names the cell",
        DataError,
        "1st.*Male",
        [
            lambda: fit(
                "~ Class + Sex",
                titanic(),
                "Freq",
                method="ml",
                structural_zeros=pd.DataFrame({"Class": ["1st"], "Sex": ["Male"]}),
            )
        ],
    ),
    (
        "docs/guide/networks.md",
        "Interactions in the formula raise an error",
        FormulaError,
        "interaction",
        [lambda: networks.nb("Survived ~ Sex*Age", titanic())],
    ),
    (
        "docs/guide/orders.md",
        "Mean field does not support terms of three predictors",
        FormulaError,
        "pairs",
        [lambda: fit("Survived ~ .^3", method="mf")],
    ),
    (
        "docs/guide/orders.md",
        "an error reports how many there would be, before any of them is created",
        bbl.BBLError,
        "80,314,920",
        [lambda: wide(784, formula="y ~ .^3")],
    ),
    (
        "docs/guide/prediction.md",
        "raises an error that names the column and the level",
        LevelError,
        "'Class'.*'4th'",
        [lambda: fitted().predict(titanic().assign(Class="4th"))],
    ),
    (
        "docs/guide/prediction.md",
        "By default, missing values raise an error",
        DataError,
        "'Age'",
        [lambda: fitted().predict(gaps())],
    ),
    (
        "docs/guide/shooter.md",
        "determines whether missing values raise an error, are dropped",
        DataError,
        "'Age'",
        [lambda: bbl.shooter("Survived ~ .", gaps())],
    ),
    (
        "docs/guide/two_way.md",
        "without any observed cells raises an error",
        DataError,
        "no observed|without|no cell",
        [lambda: bbl.bicluster(None, np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 1.0]]))],
    ),
    (
        "docs/coming_from.md",
        "the error message suggests the name in bbl",
        BBLTypeError,
        "Did you mean '(lambda_|prior_count|verbose|use_auc|log_z|refit|nsteps)'",
        [
            *(
                lambda name=name: bbl.crossVal("Survived ~ .", titanic(), "Freq", **{name: 1})
                for name in ("lambda", "prior.count", "progress.bar", "progress_bar", "use.auc")
            ),
            *(
                lambda name=name: bbl.crossVal("Survived ~ .", titanic(), "Freq", **{name: 1})
                for name in ("lz.half", "lz_half", "storeOpt")
            ),
            *(
                lambda name=name: bbl.mcSample(fitted(), **{name: 1})
                for name in ("nstep", "progress.bar", "progress_bar")
            ),
        ],
    ),
    (
        "docs/coming_from.md",
        "interaction raises an error",
        FormulaError,
        "pairs",
        [lambda: fit("Survived ~ Class:Sex:Age", method="mf")],
    ),
    (
        "vignettes/from_csv.py",
        "so `bbl` refuses it",
        DataError,
        "'id'",
        [lambda: fit("y ~ id", numbers())],
    ),
    (
        "vignettes/r_users.py",
        "If an argument has a different name in Python, the error",
        BBLTypeError,
        "verbose",
        [lambda: fit("Survived ~ .", progress_bar=True)],
    ),
    (
        "vignettes/r_users.py",
        "an error names it",
        LevelError,
        "'Class'.*'4th'",
        [lambda: fitted().predict(titanic().assign(Class="4th"))],
    ),
    (
        "vignettes/r_users.py",
        "Mean field supports only pairs and raises an error",
        FormulaError,
        "pairs",
        [lambda: fit("Survived ~ Class:Sex:Age", method="mf")],
    ),
    (
        "docs/whats_new.md",
        "`1` and `True` in one column were accepted",
        LevelError,
        "both True and 1",
        [
            lambda: bbl.bbl(
                "y ~ x",
                pd.DataFrame({"y": [0, 1] * 30, "x": pd.Series([1, True] * 30, dtype=object)}),
            )
        ],
    ),
    (
        "docs/whats_new.md",
        "is refused as an identifier",
        DataError,
        "'x' looks like an identifier",
        [
            lambda: bbl.bbl(
                "y ~ x", pd.DataFrame({"y": [0, 1] * 300, "x": [f"p{i}" for i in range(600)]})
            )
        ],
    ),
]


# page, words of the sentence, the test that checks it
ELSEWHERE = [
    (
        "docs/guide/log_z.md",
        "`aic` and `bic` raise an error",
        "model/test_logz.py::test_an_approximate_ln_z_is_in_no_criterion",
    ),
    (
        "vignettes/survey.py",
        "If the design is inconsistent, an error is raised",
        "results/test_survey.py::test_bad_designs_are_answered",
    ),
    (
        "docs/guide/missing.md",
        "a larger set raises an error",
        "engines/likelihood/test_refusals.py::test_gaps_of_more_states_than_can_be_listed_are_refused_with_the_remedy",
    ),
    (
        "docs/guide/bayes.md",
        '`draws="mean"` and these values of `log_z` raise an error',
        "boltzmann/test_mixture.py::test_what_has_no_meaning_with_units_is_refused",
    ),
    (
        "docs/guide/shooter.md",
        "Infinite values raise an error",
        "api/test_shooter_numbers.py::test_refusals_of_new_rows",
    ),
    (
        "docs/guide/command_line.md",
        "are reported before the fit",
        "test_main.py::test_figures_are_refused_before_the_fit",
    ),
    (
        "docs/guide/data.md",
        "an error asks you to pass the order",
        "design/test_declared_order.py::test_what_only_some_batches_declare_needs_xlevels",
    ),
    (
        "docs/guide/large.md",
        "an error is raised before any row is written",
        "rows/test_stored.py::test_a_full_disk_is_told_and_the_file_removed",
    ),
    (
        "docs/guide/large.md",
        "since the fit, or has a different number of rows, an error names the file",
        "api/test_lazy_inference.py::test_a_source_that_has_changed_since_the_fit_is_named",
    ),
    (
        "docs/guide/large.md",
        "an error names the predictor",
        "engines/test_pseudo_blocks.py::test_a_stall_without_memory_says_so",
    ),
    (
        "docs/guide/large.md",
        "an error, unless there are few enough rows",
        "api/test_lazy_pseudo.py::test_the_zero_sum_gauge_is_for_rows_that_are_few_enough_for_memory",
    ),
    (
        "docs/guide/log_z.md",
        "refused with an error if this would take hours",
        "model/test_model.py::test_costly_ln_z_is_refused_before_anything_is_fitted",
    ),
    (
        "docs/guide/saving.md",
        "A `ModelFileError` is raised",
        "test_storage.py::test_every_flipped_bit_is_refused",
    ),
    (
        "docs/guide/survey.md",
        "an error that names it",
        "results/test_survey.py::test_bad_designs_are_answered",
    ),
    (
        "docs/guide/survey.md",
        "a cluster in two strata is an error",
        "results/test_survey.py::test_bad_designs_are_answered",
    ),
    (
        "docs/guide/survey.md",
        "Other methods do not accept a design",
        "results/test_survey.py::test_bad_designs_are_answered",
    ),
    (
        "docs/guide/survey.md",
        "Procedures that assume independently sampled rows",
        "results/test_survey.py::test_what_counts_single_rows_is_refused",
    ),
    (
        "docs/whats_new.md",
        "rows without a response are dropped, with a note",
        "test_main.py::test_rows_without_a_response_are_left_out_and_counted",
    ),
    (
        "docs/matches_r.md",
        "one predictor alone is an error",
        "api/test_fit.py::test_one_predictor_and_many_groups",
    ),
]


def wide(m, formula="y ~ .^2", **options):
    """Fit a table of many predictors."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (40, m)), columns=[f"x{i}" for i in range(m)]).assign(
        y=[0, 1] * 20
    )
    return bbl.bbl(formula, data, verbose=0, **options)


@pytest.mark.parametrize(
    ("page", "words", "error", "match", "calls"),
    STATEMENTS,
    ids=[f"{s[0]}: {s[1]}" for s in STATEMENTS],
)
@pytest.mark.filterwarnings(
    "ignore::bbl.errors.DataWarning", "ignore::bbl.errors.ConvergenceWarning"
)
def test_errors_are_as_the_pages_say(page, words, error, match, calls):
    assert sum(words in sentence for sentence in prose(ROOT / page)) >= 1, (
        "the page says it no more"
    )
    for call in calls:
        with pytest.raises(error, match=match):
            call()


@pytest.mark.parametrize(
    ("page", "words", "test"), ELSEWHERE, ids=[words for _, words, _ in ELSEWHERE]
)
def test_errors_that_other_tests_check_are_still_said_and_checked(page, words, test):
    assert sum(words in sentence for sentence in prose(ROOT / page)) == 1
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_every_sentence_about_an_error_is_checked():
    """Add what a new sentence says to `STATEMENTS`, or name the test that checks it in
    `ELSEWHERE`.
    """
    checked = [(ROOT / page, words) for page, words, *_ in [*STATEMENTS, *ELSEWHERE]]
    for page in PAGES:
        if page.name not in LEFT_OUT:
            for sentence in filter(SENTENCE.search, prose(page)):
                assert any(page == at and words in sentence for at, words in checked), (
                    f"{page.name}: {sentence}"
                )
