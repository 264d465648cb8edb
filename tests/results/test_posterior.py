"""`fit.posterior`: its draws under labels, summary, figures, ArviZ; posteriors in model files."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import ConvergenceWarning, ModelFileError, OptionError
from bbl.report.machine.plot_posterior import plot_posterior
from bbl.stats.diagnostics import effective_sample_size, highest_density, split_rhat
from bbl.storage import read_any, write_model

FORMULA = "Survived ~ Class * Sex + Age"


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fit(titanic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return bbl.bbl(
            FORMULA, titanic, "Freq", "bayes", chains=3, warmup=100, draws=80, verbose=0, n_jobs=1
        )


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_draws_have_their_labels(fit):
    posterior = fit.posterior
    assert posterior.draws.shape == (3, 80, 2, 8)
    frame = posterior.to_frame()
    assert frame.index.names == ["chain", "draw"] and frame.columns.names == ["group", "parameter"]
    np.testing.assert_array_equal(frame.loc[1, 7].to_numpy().reshape(2, 8), posterior.draws[1, 7])
    assert posterior.names[0] == "Class[2nd]" and posterior.names[-1] == "Class[Crew]:Sex[Male]"
    assert "3 chains with 80 draws of 8 parameters in 2 groups: normal prior with tau 1" in repr(
        posterior
    )
    assert "exact ln Z" in str(fit.summary()) and fit.posterior is posterior


def test_a_summary_is_in_the_order_of_tidy_and_says_what_the_draws_say(fit):
    found, tidy = fit.posterior.summary(0.9), fit.tidy()
    assert found[["group", "predictor", "level"]].equals(tidy[["group", "predictor", "level"]])
    draws = fit.posterior.draws
    np.testing.assert_allclose(found["mean"], tidy["estimate"], rtol=1e-12)
    np.testing.assert_allclose(found["sd"], draws.std(axis=(0, 1), ddof=1).ravel())
    lower, upper = highest_density(draws, 0.9)
    np.testing.assert_array_equal(
        found[["hdi_lower", "hdi_upper"]], np.column_stack([lower.ravel(), upper.ravel()])
    )
    np.testing.assert_array_equal(found["ess_bulk"], effective_sample_size(draws).ravel())
    np.testing.assert_array_equal(found["rhat"], split_rhat(draws, folded=True).ravel())
    with pytest.raises(OptionError, match="level"):
        fit.posterior.summary(1.5)


def test_intervals_of_inference_and_of_differences_are_those_of_the_draws(fit):
    draws = fit.posterior.draws.reshape(-1, 2, 8)
    table = fit.inference().table(level=0.8)
    np.testing.assert_allclose(table["se"], draws.std(axis=0, ddof=1).ravel())
    np.testing.assert_allclose(table["lower"], np.quantile(draws, 0.1, axis=0).ravel())
    difference = fit.inference().table(of=("Yes", "No"))
    np.testing.assert_allclose(
        difference["upper"], np.quantile(draws[:, 1] - draws[:, 0], 0.975, axis=0)
    )
    pairs = fit.interactions()
    assert pairs["inclusion"].between(0, 1).all() and "posterior" in pairs["test"].iloc[0]


@pytest.mark.parametrize(("kind", "panels"), [("forest", 1), ("trace", 8), ("rank", 8)])
def test_figures_show_what_they_say(fit, kind, panels):
    axes = fit.posterior.plot(kind)
    assert len(axes) == panels
    if kind == "forest":
        assert [t.get_text() for t in axes[0].get_yticklabels()] == fit.posterior.names
        assert len(fit.posterior.plot(kind, group="Yes", top=3)[0].get_yticks()) == 3
        assert axes[0].get_legend() is not None
    else:
        rhat = fit.posterior.summary()["rhat"].to_numpy()[:8]
        assert axes[0].get_title().startswith(fit.posterior.names[int(rhat.argmax())])
        figure = axes[0].figure
        assert figure.get_suptitle() == "No" and "one colour per chain" in figure.get_supxlabel()
        assert figure.get_supylabel() == {"trace": "Value", "rank": "Relative frequency"}[kind]
    if kind == "trace":
        np.testing.assert_array_equal(
            axes[0].lines[2].get_ydata(), fit.posterior.draws[2, :, 0, rhat.argmax()]
        )
    if kind == "rank":
        heights = np.array([patch.get_data().values for patch in axes[0].patches])
        np.testing.assert_allclose(heights.mean(axis=0), 1.0, atol=0.1)
        assert heights.shape == (3, 20)
    with pytest.raises(OptionError, match="kind"):
        fit.posterior.plot("pairs")
    with pytest.raises(OptionError, match="not a group"):
        fit.posterior.plot(kind, group="Maybe")


def test_a_figure_goes_into_the_callers_axes(fit):
    _, axes = plt.subplots(1, 2)
    assert fit.posterior.plot("trace", top=2, axes=axes)[0] is axes[0]
    assert axes[1].get_xlabel() == "Draw" and not axes[0].figure.get_suptitle()
    assert fit.posterior.plot("forest", axes=axes[1])[0] is axes[1]
    with pytest.raises(OptionError, match="axes contains 2"):
        fit.posterior.plot("rank", top=3, axes=axes)


@pytest.mark.parametrize("kind", ["trace", "rank"])
@pytest.mark.long
def test_names_above_panels_stay_apart_and_on_the_figure(kind):
    names = [
        f"${'a long name of one predictor and one level'[: 40 + k]}$ number {k:02d}"
        for k in range(40)
    ]
    draws = np.random.default_rng(0).normal(size=(2, 30, 1, 40))
    axes = plot_posterior(kind, draws, ["one"], names, np.linspace(1.0, 2.0, 40)[None], 40, 0.95)
    titles = [ax.get_title() for ax in axes]
    assert len(set(titles)) == len(axes) == 12 and all(r"\$" in title for title in titles)
    axes[0].figure.draw_without_rendering()
    boxes = [ax.title.get_window_extent() for ax in axes]
    assert all(box.x0 >= 0 and box.x1 <= axes[0].figure.bbox.x1 for box in boxes)
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


def test_draws_are_handed_to_arviz_where_it_is(fit, monkeypatch):
    class Stand:
        @staticmethod
        def from_dict(posterior, coords, dims):
            return posterior, coords, dims

    monkeypatch.setitem(__import__("sys").modules, "arviz", Stand)
    posterior, coords, dims = fit.posterior.to_arviz()
    assert posterior["theta"] is fit.posterior.draws and dims == {"theta": ["group", "parameter"]}
    assert coords == {"group": ["No", "Yes"], "parameter": fit.posterior.names}

    class Later:
        @staticmethod
        def from_dict(data, *, coords, dims):
            return data, coords, dims

    monkeypatch.setitem(__import__("sys").modules, "arviz", Later)
    data, *labels = fit.posterior.to_arviz()
    assert list(data) == ["posterior"] and data["posterior"]["theta"] is fit.posterior.draws
    assert labels == [coords, dims]
    monkeypatch.setitem(__import__("sys").modules, "arviz", None)
    with pytest.raises(bbl.BBLError, match="pip install arviz"):
        fit.posterior.to_arviz()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:")  # ArviZ's own, of what it will change
def test_arviz_has_the_draws(fit):
    pytest.importorskip("arviz")
    theta = fit.posterior.to_arviz()["posterior"]["theta"]
    np.testing.assert_array_equal(theta.to_numpy(), fit.posterior.draws)
    assert theta.dims == ("chain", "draw", "group", "parameter")
    assert theta.coords["parameter"].to_numpy().tolist() == fit.posterior.names


def test_a_method_without_draws_says_which_one_has_them(titanic):
    with pytest.raises(OptionError, match="method='naive' has no posterior draws.*method='bayes'"):
        _ = bbl.bbl("Survived ~ .", titanic, "Freq", "naive").posterior


def test_a_posterior_comes_back_from_its_file(fit, titanic, tmp_path):
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    np.testing.assert_array_equal(back.posterior.draws, fit.posterior.draws)
    for draws in ("all", "mean"):
        one, other = (own.predict(titanic, type="prob", draws=draws) for own in (fit, back))
        pd.testing.assert_frame_equal(one, other)
    pd.testing.assert_frame_equal(back.posterior.summary(), fit.posterior.summary())
    pd.testing.assert_frame_equal(back.inference().table(), fit.inference().table())
    assert back.engine == fit.engine and str(back.summary()) == str(fit.summary())


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(draws=a["draws"][..., :-1]),
        lambda a: a.update(draws=a["draws"][0]),
        lambda a: a.update(draws=a["draws"].astype("int64")),
        lambda a: a.update(draws_log_z=a["draws_log_z"][:, :-1]),
        lambda a: a.update(draws_log_z=np.full_like(a["draws_log_z"], np.nan)),
        lambda a: a.update(draws_log_z=np.zeros((2, 10**6))),
        lambda a: a.update(draws_hidden=np.zeros((2, 3, 8))),
    ],
)
def test_a_file_whose_draws_cannot_have_been_saved_is_refused(fit, tmp_path, change):
    fit.save(tmp_path / "m.bbl")
    kind, meta, arrays = read_any(tmp_path / "m.bbl", ("bbl",))
    arrays = dict(arrays)
    change(arrays)
    write_model(tmp_path / "bad.bbl", meta, arrays, kind=kind)
    with pytest.raises(ModelFileError):
        bbl.load(tmp_path / "bad.bbl")


@pytest.mark.parametrize("hidden", [3, 2**31, 2**70])
@pytest.mark.parametrize("hidden_pairs", [False, True])
def test_a_file_whose_hidden_units_do_not_fit_its_draws_is_refused(
    hidden, hidden_pairs, titanic, tmp_path
):
    options = {
        "prior": "conjugate",
        "hidden": 2,
        "hidden_pairs": hidden_pairs,
        "draws": 4,
        "chains": 1,
        "warmup": 10,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hidden units freeze
        fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", "bayes", **options, verbose=0)
    fit.save(tmp_path / "m.bbl")
    _, meta, arrays = read_any(tmp_path / "m.bbl", ("bbl",))
    wide = fit.engine.widened(fit.estimate.parameters.layout)
    assert fit.engine.widened(fit.estimate.parameters.layout, wide.size).size == wide.size
    with pytest.raises(ValueError, match="parameters"):
        fit.engine.widened(fit.estimate.parameters.layout, wide.size - 1)
    write_model(
        tmp_path / "bad.bbl", meta | {"engine": meta["engine"] | {"hidden": hidden}}, arrays
    )
    with pytest.raises(ModelFileError, match="hidden"):
        bbl.load(tmp_path / "bad.bbl")
    write_model(
        tmp_path / "bad.bbl", meta, {name: a for name, a in arrays.items() if name != "draws_log_z"}
    )
    with pytest.raises(ModelFileError, match="it lacks the array 'draws_log_z'"):
        bbl.load(tmp_path / "bad.bbl")


def test_folds_have_posteriors_of_their_own_and_an_estimator_takes_the_method(titanic):
    rows = bbl.freq2raw(titanic, "Freq").sample(400, random_state=0)
    options = {"chains": 2, "warmup": 50, "draws": 40}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cv = bbl.crossVal(
            "Survived ~ Sex * Age",
            rows,
            method="bayes",
            nfold=3,
            shuffle=True,
            seed=1,
            verbose=0,
            **options,
        )
        assert 0.6 < cv.maxscore < 0.9 and cv.model.posterior.draws.shape[:2] == (2, 40)
        from bbl.sklearn import BBLClassifier

        model = BBLClassifier("bayes", options=options).fit(rows[["Sex", "Age"]], rows["Survived"])
    assert model.score(rows[["Sex", "Age"]], rows["Survived"]) > 0.7
    assert np.isfinite(model.predict_proba(rows[["Sex", "Age"]])).all()


@pytest.mark.parametrize("options", [{}, {"prior": "conjugate", "hidden": 2}])
def test_a_loaded_model_has_the_records_of_its_sampler(tmp_path, options):
    titanic = bbl.datasets.load_titanic()
    short = {"draws": 20, "chains": 2, "warmup": 20, "verbose": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", method="bayes", **short, **options)
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    for before, after in zip(fit.posterior.state, loaded.posterior.state, strict=True):
        vectors = {name: values for name, values in before.items() if values.ndim == 1}
        assert vectors.keys() == after.keys() and vectors
        assert all(np.array_equal(values, after[name]) for name, values in vectors.items())
