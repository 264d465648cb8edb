"""What every fitted classifier has, whatever its family: predictions, their evaluation,
explanations, a file.
"""

import numpy as np
import pytest

import bbl
from bbl.api.load import KINDS
from bbl.results.classifier import ClassifierResults


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fits(titanic):
    machine = bbl.bbl("Survived ~ Class * Sex + Age", titanic, "Freq", verbose=0)
    network = bbl.networks.bnc("tan_cl", "Survived ~ .", titanic, 1, weights="Freq", verbose=0)
    sparse = bbl.shooter(
        "Survived ~ .", titanic, "Freq", order=2, lambda_=60, refit=True, verbose=0
    )
    average = bbl.average([machine, bbl.bbl("Survived ~ .", titanic, "Freq", verbose=0)], "equal")
    return {fit._kind: fit for fit in (machine, network, sparse, average)}


KIND = sorted(name for name, kind in KINDS.items() if issubclass(kind, ClassifierResults))


def test_all_kinds_with_classes_are_tried(fits):
    assert sorted(fits) == KIND


@pytest.mark.parametrize("kind", KIND)
def test_predictions_and_their_evaluation_belong_together(fits, titanic, kind):
    fit = fits[kind]
    prob = fit.predict(titanic, type="prob")
    share = prob[["No", "Yes"]].to_numpy(float)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert (prob["yhat"].to_numpy() == np.array(["No", "Yes"])[share.argmax(axis=1)]).all()
    np.testing.assert_allclose(fit.fitted().to_numpy(float), share[titanic["Freq"] > 0], rtol=1e-12)
    hit = np.average(prob["yhat"] == titanic["Survived"], weights=titanic["Freq"])
    assert fit.evaluate().accuracy == pytest.approx(hit) == fit.score(titanic, titanic["Freq"])
    kept = titanic["Freq"] > 0
    right = (prob["yhat"] == titanic["Survived"])[kept].astype(int)
    assert fit.residuals().tolist() == right.tolist()


@pytest.mark.parametrize("kind", KIND)
def test_other_shares_of_classes_shift_log_odds_by_a_constant(fits, titanic, kind):
    def log_odds(priors):
        prob = fits[kind].predict(titanic, type="prob", priors=priors)
        return np.log(prob["Yes"].astype(float) / prob["No"].astype(float))

    no, yes = np.log(fits[kind].class_shares)
    np.testing.assert_allclose(log_odds("equal") - log_odds(None), no - yes, rtol=1e-9)


@pytest.mark.parametrize("kind", KIND)
def test_it_comes_back_from_its_file(fits, titanic, kind, tmp_path):
    fits[kind].save(tmp_path / "fit.bbl")
    back = bbl.load(tmp_path / "fit.bbl")
    assert type(back) is type(fits[kind]) is KINDS[kind]
    assert back.predict(titanic).equals(fits[kind].predict(titanic))
