"""`enrichment` against a universe larger than the predictors (Min et al. 2014, section 6.3)."""

import pytest
from scipy.stats import hypergeom

import bbl

RANKED = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")]
KNOWN = [("b", "a"), ("b", "d"), ("x", "y"), ("x", "a")]  # two are not among the predictors


def test_expected_numbers_use_the_share_of_known_pairs_in_the_universe():
    result = bbl.enrichment(RANKED, KNOWN, top=[1, 3], n_universe=20)
    share = 4 / (20 * 19 / 2)
    assert result.table["expected"].tolist() == pytest.approx([share, 3 * share])
    assert result.table["enrichment"].tolist() == pytest.approx([1 / share, 2 / (3 * share)])
    chance = hypergeom.sf([0, 1], 190, 4, [1, 3])
    assert result.table["p"].tolist() == pytest.approx(chance.tolist())
    plain = bbl.enrichment(RANKED, KNOWN, top=[1, 3])
    assert (result.area, result.p) == (plain.area, plain.p)  # of the predictors in any case
    assert plain.table["expected"].tolist() == pytest.approx([2 / 6, 1.0])
    assert "based on 20 names" in repr(result)


@pytest.mark.parametrize("n_universe", [5, 0, 2.5])
def test_a_universe_has_all_names(n_universe):
    with pytest.raises((bbl.BBLError, TypeError), match="n_universe"):
        bbl.enrichment(RANKED, KNOWN, n_universe=n_universe)
