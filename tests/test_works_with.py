"""Every kind of model is asked for every capability: it works, or is refused by the reason that the
guide lists.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.capabilities import ABSENT, CAPABILITIES
from bbl.engines import ENGINES
from bbl.errors import BBLError

ROWS = 120
FAST = {
    "shbm": {"lambda_": 0.5},
    "bayes": {"warmup": 10, "draws": 8, "chains": 1},
    "pvi": {"n_iter": 20},
    "pcd": {"n_iter": 20},
    "conditional": {"start": None},
}
RNG = np.random.default_rng(0)


def script(name):
    path = Path(__file__).resolve().parents[1] / "docs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn() -> pd.DataFrame:
    y = RNG.integers(0, 2, ROWS)
    columns = {
        name: np.where(RNG.random(ROWS) < 0.7, y, RNG.integers(0, 2, ROWS)) for name in "abc"
    }
    return pd.DataFrame({"y": y, **columns})


DATA = drawn()
GAPS = DATA.astype("Int64")
GAPS.loc[::7, "a"] = pd.NA
REAL = RNG.random(ROWS) + 0.5
NUMBERS = RNG.normal(size=ROWS) + DATA["y"]
NEVER = {"a": [1], "b": [0]}  # a combination of levels that cannot occur


def machine(method):
    def fit(formula="y ~ a + b + c", data=DATA, weights=None, **options):
        return bbl.bbl(
            formula, data, weights, method=method, verbose=0, **FAST.get(method, {}) | options
        )

    return fit


def average(formula="y ~ a + b + c", data=DATA, weights=None, **options):
    fits = [
        machine("pseudo")(formula, data, weights, **{"lambda_": strength} | options)
        for strength in (0.1, 1.0)
    ]
    return bbl.average(fits, "equal")


def network(formula="y ~ a + b + c", data=DATA, weights=None, **options):
    return networks.bnc("tan_cl", formula, data, smooth=1, weights=weights, verbose=0, **options)


def shooter(formula="y ~ a + b + c", data=DATA, weights=None, **options):
    options = {"order": 2, "lambda_": 1.0, "refit": False} | options
    return bbl.shooter(formula, data, weights, verbose=0, **options)


FITS = {name: machine(name) for name in [*ENGINES, "auto"]}
FITS |= {"average": average, "network": network, "shooter": shooter}
PAGE = script("make_works_with")
REFUSALS = dict(zip(FITS, PAGE.KINDS.values(), strict=True))


@functools.cache
def plain(kind, formula="y ~ a + b + c"):
    return FITS[kind](formula)


def with_pairs(kind):
    return plain(kind, "y ~ .^2" if kind in ENGINES else "y ~ .")


def tune(kind, fit):
    option = (
        "lambda_"
        if kind not in ENGINES or ENGINES[kind].tuned is None
        else ENGINES[kind].tuned.option
    )
    fit(**{option: "cv"})


def cross_validate(kind, fit):
    if kind in [*ENGINES, "auto"]:
        model = bbl.crossVal(
            "y ~ a + b", DATA, method=kind, nfold=2, verbose=0, **FAST.get(kind, {})
        )
        assert len(model.cvframe)
    elif kind == "network":
        assert len(networks.cv(fit(), DATA, 2))
    else:
        bbl.crossVal("y ~ a + b", DATA, method=kind)


def mlestimate(kind, fit):
    codes = DATA[["a", "b", "c"]].to_numpy()
    assert len(bbl.mlestimate(codes, method=kind, verbose=0, **FAST.get(kind, {})).h)


def density(kind, fit):
    model = fit("~ a + b + c")
    assert len(model.score_samples(DATA)) == ROWS
    assert len(model.reconstruct(GAPS.head(8))) == 8


def average_with(kind, fit):
    assert len(bbl.average([plain(kind), plain("naive")], "equal").members) == 2


def table(kind, fit):
    model = plain(kind)
    assert len(model.goodness_of_fit()) == 3 and len(model.cells()) == 16
    model.plot_mosaic()


def odds_ratios(kind, fit):
    assert len(with_pairs(kind).odds_ratios()) == 6


def effects(kind, fit):
    found = plain(kind).avg_comparisons("a")
    if found.frame["std_error"].isna().any():  # estimates come without errors, and say why
        raise BBLError(found.note)


def what_if_page(model):
    with tempfile.TemporaryDirectory() as folder:
        assert "whatif-model" in model.explore(Path(folder, "page.html")).html


def plot_network(kind, fit):
    with_pairs(kind).plot_network()


TRIALS = {
    "pairs": lambda kind, fit: fit("y ~ a*b + c"),
    "third_order": lambda kind, fit: fit("y ~ a*b*c"),
    "no_response": lambda kind, fit: fit("~ a + b + c"),
    "numeric": lambda kind, fit: fit(data=DATA.assign(c=NUMBERS), numeric="c").predict(),
    "batches": lambda kind, fit: fit(data=STORED["complete"]),
    "missing_marginal": lambda kind, fit: fit(data=GAPS, missing="marginal"),
    "missing_marginal_batches": lambda kind, fit: fit(data=STORED["gaps"], missing="marginal"),
    "real_weights": lambda kind, fit: fit(data=DATA, weights=REAL),
    "survey": lambda kind, fit: fit(data=DATA.assign(w=REAL), design=bbl.survey("w")),
    "priors": lambda kind, fit: fit(priors={0: 0.1, 1: 0.9}),
    "tuning": tune,
    "calibrate": lambda kind, fit: fit(calibrate="temperature"),
    "relevance": lambda kind, fit: fit(relevance=0.05),
    "structural_zeros": lambda kind, fit: fit(
        data=DATA[(DATA["a"] == 0) | (DATA["b"] == 1)], structural_zeros=NEVER
    ),
    "gauge": lambda kind, fit: fit(gauge="zero-sum"),
    "log_z": lambda kind, fit: fit(log_z="exact"),
    "crossVal": cross_validate,
    "mlestimate": mlestimate,
    "coef": lambda kind, fit: plain(kind).coef(),
    "tidy": lambda kind, fit: plain(kind).tidy(),
    "standard_errors": lambda kind, fit: plain(kind).conf_int(),
    "covariances": lambda kind, fit: plain(kind).cov_params(),
    "tests": lambda kind, fit: plain(kind).inference().tests(),
    "pooled": lambda kind, fit: plain(kind).inference().table(of="pooled"),
    "differences": lambda kind, fit: plain(kind).inference().table(of=(0, 1)),
    "bootstrap": lambda kind, fit: plain(kind).bootstrap(2),
    "draws": lambda kind, fit: plain(kind).posterior,
    "history": lambda kind, fit: plain(kind).history,
    "interactions": lambda kind, fit: plain(kind).interactions(),
    "likelihood": lambda kind, fit: [plain(kind).logLik(), plain(kind).aic, plain(kind).bic],
    "composite_criteria": lambda kind, fit: [plain(kind).claic, plain(kind).clbic],
    "anova": lambda kind, fit: bbl.anova(plain(kind, "y ~ a + b"), plain(kind)),
    "goodness_of_fit": table,
    "odds_ratios": odds_ratios,
    "effects": effects,
    "effects_bootstrap": lambda kind, fit: plain(kind).avg_comparisons(
        "a", se="bootstrap", nboot=2
    ),
    "etable": lambda kind, fit: str(
        bbl.etable({"one": plain(kind), "two": plain(kind, "y ~ a + b")})
    ),
    "explain": lambda kind, fit: plain(kind).explain(DATA.head(2)),
    "explore": lambda kind, fit: what_if_page(plain(kind)),
    "importance": lambda kind, fit: plain(kind).importance(DATA),
    "log_scores": lambda kind, fit: bbl.log_scores(plain(kind), DATA),
    "average": average_with,
    "mcSample": lambda kind, fit: bbl.mcSample(plain(kind), nsteps=2000, seed=1, verbose=0),
    "sample": lambda kind, fit: plain(kind).sample(3, seed=1),
    "density": density,
    "plot_logo": lambda kind, fit: plain(kind).plot_logo(),
    "plot_network": plot_network,
}
STORED: dict[str, str] = {}
# what errors say of it
ABSENCE = (
    "no attribute",
    "no argument",
    "is not an option",
    "is unknown",
    "must be",
    "requires a single",
)


@pytest.fixture(scope="module", autouse=True)
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    for name, table in (("complete", DATA), ("gaps", GAPS)):
        STORED[name] = str(folder / f"{name}.parquet")
        table.to_parquet(STORED[name])


def test_every_capability_has_a_trial():
    assert list(TRIALS) == list(CAPABILITIES)
    for kind, refusals in REFUSALS.items():
        assert set(refusals) <= set(CAPABILITIES), kind


def outcome(kind, trial) -> str | None:
    """Return the error that a trial ends in; None if it works."""
    try:
        trial(kind, FITS[kind])
    except (BBLError, AttributeError) as error:
        return str(error)
    return None


def as_declared(text: str | None, reason: str | None) -> bool:
    """Return whether a trial ended as the reason says that the kind of model declares."""
    if text is None or reason is None:
        return text is reason
    return any(words in text for words in (ABSENCE if reason == ABSENT else [reason]))


@pytest.mark.long
@pytest.mark.parametrize("kind", FITS)
@pytest.mark.filterwarnings("ignore")
def test_a_kind_of_model_does_what_it_declares_and_refuses_the_others_by_its_reasons(kind):
    outcomes = {name: outcome(kind, trial) for name, trial in TRIALS.items()}
    plt.close("all")
    declared = {name: REFUSALS[kind].get(name) for name in TRIALS}
    assert {
        name: text for name, text in outcomes.items() if not as_declared(text, declared[name])
    } == {}


def test_the_page_of_the_guide_is_current():
    assert PAGE.PAGE.read_text(encoding="utf-8") == PAGE.page(), (
        "python docs/make_works_with.py writes it"
    )
