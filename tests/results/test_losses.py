"""The log-loss that a fitted classifier knows is said beside that for the class proportions,
wherever it is worse.
"""

import json

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks
from bbl.__main__ import main
from bbl.errors import DataWarning, ModelFileError
from bbl.stats.metrics import HELD_OUT, TRAINING, LossRecord, shares_loss
from bbl.storage import read_model, write_model

WORSE = "predicting the class proportions for every row would do better than this model"
N_TRAINING = 600  # rows; the others are new


def items(n, seed, gaps=0.0):
    """Eight items that measure one trait, and a group that depends on it: all pairs interact, and
    few rows tell which.
    """
    rng = np.random.default_rng(seed)
    trait = rng.normal(size=n)
    codes = np.digitize(trait[:, None] + rng.normal(size=(n, 8)), [-1.0, 0.0, 1.0])
    data = pd.DataFrame(codes).add_prefix("x").astype(str)
    if gaps:
        data = data.mask(rng.random(data.shape) < gaps)
    return data.assign(y=np.where(trait + rng.normal(size=n) > 0.9, "high", "low"))


def told(call):
    """Return what `call` returns, and its one warning."""
    with pytest.warns(DataWarning, match=WORSE) as caught:
        found = call()
    (warning,) = [each for each in caught if each.category is DataWarning]
    assert warning.filename == __file__
    return found, str(warning.message)


@pytest.fixture(
    scope="module",
    params=[0.0, pytest.param(0.1, marks=pytest.mark.long)],
    ids=["complete", "gaps"],
)
def example(request):
    options = {"missing": "marginal"} if request.param else {}
    return items(3000, 7, request.param), options


@pytest.fixture(scope="module")
def tuned(example):
    data, options = example
    return told(lambda: bbl.bbl("y ~ .^2", data[:N_TRAINING], lambda_="cv", **options))


@pytest.mark.long
def test_a_tuned_fit_worse_than_the_shares_says_so_everywhere(tuned, example, tmp_path):
    (fit, warning), data = tuned, example[0]
    record = fit.log_loss
    assert record.rows == HELD_OUT and record.loss == fit.tuning.loss[fit.tuning.chosen]
    assert record.baseline == pytest.approx(
        shares_loss(np.bincount(data[:N_TRAINING]["y"] == "low").astype(float)), abs=2e-3
    )
    assert (
        f"{record.loss:.3g}, compared with {record.baseline:.3g} for the class proportions"
        in warning
    )
    said = " ".join(str(fit).split())
    assert warning in said and warning in " ".join(str(fit.summary()).split())
    fit.report(tmp_path / "r.html", data[N_TRAINING:])
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count(WORSE) == 3  # of the held-out rows, and of the new ones, first in short
    evaluation = fit.evaluate(data[N_TRAINING:])
    assert evaluation.log_loss.is_worse and evaluation.log_loss.remedy == record.remedy
    for form in (str(evaluation), evaluation.as_html(), evaluation.as_latex()):
        assert WORSE in " ".join(form.split())


@pytest.mark.long
def test_explanations_and_importances_of_such_a_fit_begin_with_it(tuned, example):
    fit, new = tuned[0], example[0][N_TRAINING : N_TRAINING + 400]
    found = fit.importance(new)
    evaluated = fit.evaluate(new).log_loss
    assert found.loss == pytest.approx(evaluated.loss, abs=1e-12)
    assert found.baseline == pytest.approx(evaluated.baseline, abs=1e-12)
    assert str(found).startswith(
        "On the new rows, the log-loss is"
    ) and fit.log_loss.remedy in " ".join(str(found).split())
    assert " ".join(str(fit.explain(new[:2])).split()).startswith(fit.log_loss.verdict)


@pytest.mark.long
@pytest.mark.parametrize(
    "remedy", [{"calibrate": "temperature", "lambda_": "cv"}, {"method": "auto"}]
)
def test_each_remedy_lowers_the_loss_below_that_of_the_shares(tuned, example, remedy):
    data, options = example
    name, value = next(iter(remedy.items()))
    assert f"{name}={value!r}" in tuned[1]
    fit = bbl.bbl("y ~ .^2", data[:N_TRAINING], **remedy, **options)  # a warning would be an error
    assert fit.log_loss.loss < 0.45 < fit.log_loss.baseline
    evaluated = fit.evaluate(data[N_TRAINING:]).log_loss
    assert evaluated.loss < 0.46 < evaluated.baseline
    assert "Log-loss: 0.4" in str(fit) and WORSE not in str(fit) + str(fit.summary())


@pytest.mark.long
def test_a_file_keeps_what_is_said(tuned, example, tmp_path):
    fit = tuned[0]
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    assert back.log_loss == fit.log_loss and str(back) == str(fit)
    evaluated = str(back.evaluate(example[0][N_TRAINING:]))
    assert evaluated == str(fit.evaluate(example[0][N_TRAINING:]))
    meta, arrays = read_model(tmp_path / "m.bbl")
    meta["log_loss"]["loss"] = "none"
    write_model(tmp_path / "bad.bbl", meta, arrays)
    with pytest.raises(ModelFileError):
        bbl.load(tmp_path / "bad.bbl")
    del meta["log_loss"]  # as earlier versions wrote it
    write_model(tmp_path / "old.bbl", json.loads(json.dumps(meta)), arrays)
    old = bbl.load(tmp_path / "old.bbl").log_loss
    assert old.loss == fit.log_loss.loss and old.baseline == pytest.approx(
        fit.log_loss.baseline, rel=1e-2
    )
    assert old.remedy == "Use calibrate='temperature'."


def test_an_untuned_fit_is_judged_on_all_of_its_rows_whether_complete_or_not(example):
    data, options = example
    fit, warning = told(lambda: bbl.bbl("y ~ .", data[:N_TRAINING], method="naive", **options))
    assert "On the training rows" in warning and fit.log_loss.rows == TRAINING
    assert fit.log_loss.loss == pytest.approx(fit.evaluate().log_loss.loss, abs=1e-9)
    better = bbl.bbl("y ~ .", data[:N_TRAINING], method="naive", calibrate="temperature", **options)
    assert better.log_loss.loss < fit.log_loss.baseline < fit.log_loss.loss


@pytest.mark.long
def test_a_cross_validation_and_its_model_say_it(example):
    data, options = example
    cv, warning = told(
        lambda: bbl.crossVal(
            "y ~ .^2", data[:N_TRAINING], lambda_=[0.03, 0.1], shuffle=True, seed=3, **options
        )
    )
    assert warning in " ".join(str(cv).split()) and cv.model.log_loss.verdict == warning
    assert cv.evaluate().log_loss.loss == pytest.approx(cv.model.log_loss.loss, abs=1e-12)


def test_neither_weights_nor_order_nor_source_make_a_difference(tmp_path):
    data = items(400, 2)[["x0", "x1", "y"]]
    counts = data.value_counts().rename("n").reset_index()
    data.to_parquet(tmp_path / "d.parquet")
    sources = [(data, None), (counts, "n"), (data[::-1], None), (tmp_path / "d.parquet", None)]
    assert (
        len(
            {
                bbl.bbl("y ~ x0 * x1", rows, weights, verbose=0).log_loss
                for rows, weights in sources[:3]
            }
        )
        == 1
    )
    read = bbl.bbl("y ~ x0 * x1", sources[3][0], verbose=0).log_loss
    assert read.loss == pytest.approx(bbl.bbl("y ~ x0 * x1", data).log_loss.loss, abs=1e-12)


def test_networks_say_it_with_a_remedy_that_helps(tmp_path):
    data = items(1000, 1)
    fit = networks.bnc("nb", "y ~ .", data, smooth=1)
    record = fit.log_loss
    assert record.is_worse and record.verdict in " ".join(str(fit).split())
    assert record.verdict in " ".join(str(fit.summary()).split())
    assert str(fit.importance(data[:50])).startswith("On the new rows") and WORSE in " ".join(
        str(fit.explain(data[:1])).split()
    )
    fit.save(tmp_path / "n.bbl")
    assert bbl.load(tmp_path / "n.bbl").log_loss == record
    data.to_parquet(tmp_path / "d.parquet")
    assert networks.bnc("nb", "y ~ .", tmp_path / "d.parquet", smooth=1).log_loss == record
    assert "bbl.bbl()" in record.remedy and "calibrate='temperature'" in record.remedy
    assert bbl.bbl("y ~ .", data, calibrate="temperature").log_loss.loss < record.baseline


def test_sparse_regressions_know_the_loss_of_their_folds(tmp_path):
    rng = np.random.default_rng(4)
    noise = (
        pd.DataFrame(rng.integers(0, 3, (80, 6))).add_prefix("x").assign(y=rng.integers(0, 2, 80))
    )
    fit, warning = told(lambda: bbl.shooter("y ~ .", noise, lambda_=3.0, order=2))
    chosen = fit.path[fit.path["chosen"]].iloc[0]
    assert fit.log_loss.loss == chosen["held_refit" if fit.refitted else "held_raw"]
    assert warning in " ".join(str(fit).split()) and "lambda_='cv'" in warning
    assert bbl.shooter("y ~ .", noise, lambda_="cv", order=2).log_loss.loss < fit.log_loss.loss
    fit.save(tmp_path / "s.bbl")
    assert bbl.load(tmp_path / "s.bbl").log_loss == fit.log_loss


@pytest.mark.long
def test_averages_know_the_loss_of_their_folds(tmp_path):
    data = items(1000, 1)
    fits = [told(lambda m=m: bbl.bbl("y ~ .", data, method=m))[0] for m in ("naive", "pseudo")]
    average, warning = told(lambda: bbl.average(fits))
    assert average.log_loss.rows == HELD_OUT and average.log_loss.loss < max(average.losses)
    assert warning in " ".join(str(average).split()) and warning in " ".join(
        str(average.summary()).split()
    )
    assert "calibrate='temperature'" in warning
    calibrated = [
        bbl.bbl("y ~ .", data, method=m, calibrate="temperature") for m in ("naive", "pseudo")
    ]
    assert bbl.average(calibrated).log_loss.loss < average.log_loss.baseline
    average.save(tmp_path / "a.bbl")
    assert bbl.load(tmp_path / "a.bbl").log_loss == average.log_loss


def test_losses_that_are_almost_the_same_are_told_apart():
    assert str(LossRecord(0.69321, 0.69315, TRAINING)).startswith(
        "0.69321 on training rows; 0.69315 for"
    )
    assert (
        not LossRecord(0.69321, 0.69315, TRAINING).is_worse
        and not LossRecord(0.5, 0.6, TRAINING).verdict
    )
    assert "No better prediction was found" in LossRecord(0.7, 0.6, TRAINING).verdict
    assert shares_loss(np.array([1.0, 0.0])) == 0.0


def collinear(n=300):
    """Return six near copies of one variable, and a response that follows it."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, n)
    noisy = {
        f"x{i}": np.where(rng.random(n) < 0.98, codes, rng.integers(0, 3, n)) for i in range(6)
    }
    y = np.where(rng.random(n) < 0.95, codes, rng.integers(0, 3, n))
    return pd.DataFrame(noisy).astype(str).assign(y=y.astype(str))


@pytest.mark.parametrize("calibrate", ["none", "offset", "temperature"])
def test_a_fit_whose_parameters_are_wrong_is_told_to_tune_them(calibrate):
    data = collinear()
    fit, warning = told(
        lambda: bbl.bbl("y ~ .^2", data, method="mf", calibrate=calibrate, verbose=0)
    )
    advice = {} if calibrate == "temperature" else {"calibrate": "temperature"}
    text = " and ".join(f"{k}={v!r}" for k, v in {"eps": "cv", **advice}.items())
    assert f"Use {text}, or method='auto'." in warning and fit.score() < 0.5
    better = bbl.bbl("y ~ .^2", data, method="mf", eps="cv", calibrate="temperature", verbose=0)
    assert better.score() > 0.9 and not better.log_loss.is_worse
    assert "='cv'" not in better.log_loss.remedy


def test_the_command_line_names_its_own_options(tmp_path, capsys):
    data = collinear()
    fit = told(lambda: bbl.bbl("y ~ .^2", data, method="mf", verbose=0))[0]
    fit.save(tmp_path / "m.bbl")
    data.to_csv(tmp_path / "d.csv", index=False)
    assert main(["evaluate", str(tmp_path / "m.bbl"), str(tmp_path / "d.csv")]) in (0, None)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Use --eps cv and --calibrate temperature" in printed
