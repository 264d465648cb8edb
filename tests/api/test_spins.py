"""`to_spins` and `from_spins`: by enumeration, there and back, and what is refused."""

import itertools

import numpy as np
import pytest

import bbl
from bbl.errors import BBLTypeError, DataError, OptionError
from tests import reference as oracle


def spins_and_codes(m):
    codes = np.array(list(itertools.product([0, 1], repeat=m)))
    return 2 * codes - 1, codes


@pytest.mark.parametrize("seed", range(5))
def test_energies_differ_by_the_constant(seed):
    par = bbl.randompar([[0, 1]] * 5, seed=seed)
    s, codes = spins_and_codes(5)
    found = bbl.to_spins(par)
    # eq. 8, written out
    b = found.b.to_numpy()
    M = found.M.to_numpy()
    of_spins = np.array([0.5 * row @ M @ row + b @ row for row in s])
    J = {(i, j): table for (i, j), table in par.J.items() if i < j}
    energies = oracle.energy(par.h, J, codes)
    np.testing.assert_allclose(of_spins + found.constant, energies, atol=1e-12)
    np.testing.assert_allclose(found.energy(s), of_spins)
    # eq. 9
    np.testing.assert_allclose(M[0, 1], par.J[0, 1][0, 0] / 4)
    couplings = sum(par.J[0, j][0, 0] for j in range(1, 5))
    np.testing.assert_allclose(b[0], par.h[0][0] / 2 + couplings / 4)
    assert (M == M.T).all() and not np.diag(M).any()


def test_there_and_back():
    par = bbl.randompar([["-", "+"]] * 4, seed=1)
    spins = bbl.to_spins(par)
    back = bbl.from_spins(spins.b, spins.M)
    for h, again in zip(par.h, back.h, strict=True):
        np.testing.assert_allclose(again, h)
    for pair, table in par.J.items():
        np.testing.assert_allclose(back.J[pair], table)
    rng = np.random.default_rng(0)
    b = rng.normal(size=6)
    M = rng.normal(size=(6, 6))
    M = M + M.T  # with a diagonal, which only adds a constant
    again = bbl.to_spins(bbl.from_spins(b, M))
    np.testing.assert_allclose(again.b, b)
    np.testing.assert_allclose(again.M, M - np.diag(np.diag(M)))


def test_fits_have_spins_by_name():
    titanic = bbl.datasets.load_titanic()
    fit = bbl.bbl("Survived ~ Sex * Age", titanic, weights="Freq")
    spins = bbl.to_spins(fit, "Yes")
    J = float(fit.coef().J["Yes"]["Sex", "Age"].iloc[0, 0])
    h = float(fit.coef().h["Yes"]["Sex"].iloc[0])
    assert spins.M.loc["Sex", "Age"] == pytest.approx(J / 4)
    assert spins.b["Sex"] == pytest.approx(h / 2 + J / 4)
    # probabilities by spins are those of the fit
    s, codes = spins_and_codes(2)
    log_p = spins.energy(s) - np.logaddexp.reduce(spins.energy(s))
    rows = {
        name: [levels[c] for c in column]
        for name, levels, column in zip(fit.labels.names, fit.labels.levels, codes.T, strict=True)
    }
    of_fit = bbl.log_scores(fit, rows, normalised=True)["Yes"]
    np.testing.assert_allclose(log_p, of_fit)
    assert fit.log_z["Yes"] - spins.constant == pytest.approx(np.logaddexp.reduce(spins.energy(s)))
    assert "Spins of 2 predictors" in repr(spins) and spins["b"] is spins.b
    cv = bbl.crossVal("Survived ~ Sex * Age", titanic, "Freq", shuffle=True, verbose=0)
    assert bbl.to_spins(cv, "No").M.shape == (2, 2)
    density = bbl.bbl("~ Sex * Survived", titanic, weights="Freq")
    assert bbl.to_spins(density).b.index.tolist() == ["Sex", "Survived"]


def test_an_estimate_of_one_side_is_averaged():
    codes = np.random.default_rng(0).integers(0, 2, (60, 3))
    par = bbl.mlestimate(codes, symmetrize=False, lambda_=0.1, verbose=0)
    mean = 0.5 * (par.J[0, 1] + par.J[1, 0])[0, 0]
    assert bbl.to_spins(par).M.iloc[0, 1] == pytest.approx(mean / 4)
    upper = bbl.GroupParameters(par.h, {(0, 1): np.array([[2.0]])})
    assert bbl.to_spins(upper).M.to_numpy().tolist() == [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]


def test_what_has_no_spins_is_refused():
    titanic = bbl.datasets.load_titanic()
    fit = bbl.bbl("Survived ~ Class * Sex", titanic, weights="Freq")
    with pytest.raises(OptionError, match="'Class' has 4.*Hint: Merge its levels") as caught:
        bbl.to_spins(fit, "Yes")
    assert caught.value.column == "Class"
    two = bbl.bbl("Survived ~ Sex * Age", titanic, weights="Freq")
    with pytest.raises(OptionError, match="group is missing.*Hint: Pass one of 'No', 'Yes'"):
        bbl.to_spins(two)
    with pytest.raises(OptionError, match="group='yes' is not a group"):
        bbl.to_spins(two, "yes")
    three = bbl.bbl("~ Sex * Age * Survived", titanic, weights="Freq")
    with pytest.raises(OptionError, match="terms of three predictors.*Hint: Use"):
        bbl.to_spins(three)
    with pytest.raises(OptionError, match="Omit the group argument"):
        bbl.to_spins(bbl.randompar([[0, 1]] * 2, seed=1), "Yes")
    with pytest.raises(BBLTypeError, match="must be a fitted Boltzmann machine"):
        bbl.to_spins(titanic)


@pytest.mark.parametrize(
    ("b", "M", "match"),
    [
        ([0.0, 1.0], [[0.0]], "shape"),
        ([[0.0]], [[0.0]], "shape"),
        ([0.0, 1.0], [[0.0, 1.0], [2.0, 0.0]], "not symmetric"),
        ([0.0, np.nan], np.zeros((2, 2)), "non-finite"),
        (["a", "b"], np.zeros((2, 2)), "must be numeric arrays"),
    ],
)
def test_spins_that_do_not_fit_are_refused(b, M, match):
    with pytest.raises(DataError, match=f"{match}.*Hint: "):
        bbl.from_spins(b, M)
