"""The verb that compares a list of interactions with known ones: enrichment."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from bbl.checks import integer, near_match, verb
from bbl.errors import BBLTypeError, DataError
from bbl.results.together.enrichment import EnrichmentResults
from bbl.stats.enrichment import hypergeometric, rank_test

__all__ = ["enrichment"]

TOP = (50, 100, 150, 200, 250)  # of the paper's Table 2


@verb
def enrichment(
    terms: pd.DataFrame | Iterable,
    known_pairs: pd.DataFrame | Iterable,
    predictors: Sequence | None = None,
    top: Sequence[int] | None = None,
) -> EnrichmentResults:
    """Ask whether a ranked list of interactions begins with known ones.

    Parameters
    ----------
    terms : DataFrame, or sequence of tuples of names
        Strongest first, such as ``fit.interactions()`` or ``fit.terms``: a frame with ``predictor``, ``predictor2``
        and so on, or with tuples in ``predictors``. A term of three or more predictors stands for its pairs, and a
        pair that comes again counts where it came first. Single predictors are passed over.
    known_pairs : DataFrame of two columns, or sequence of pairs of names
        Pairs are unordered. Those of other predictors do not count.
    predictors : sequence of names, optional
        All predictors, whose pairs might have been listed; those that `terms` name by default.
    top : sequence of int, optional
        Lengths of the beginnings that are looked at: 50, 100, ..., 250 and the whole list by default, as far as
        there are so many.

    Returns
    -------
    EnrichmentResults

    Raises
    ------
    DataError, BBLTypeError
        If a list cannot be read, or names a predictor that is none.

    References
    ----------
    Min, Ning, Cheng, Gerstein (2014). Interpretable sparse high-order Boltzmann machines. AISTATS, Table 2. There the
    expected number is that of all pairs; here it is that of as many pairs as were taken.

    Examples
    --------
    >>> enrichment([("a", "b"), ("a", "c"), ("b", "d", "e")], [("b", "a"), ("d", "e")], top=[1, 5])
    2 known pairs of 10, 5 listed
    <BLANKLINE>
      top observed expected enrichment         p
    0   1        1      0.2          5 0.2000000
    1   5        2      1.0          2 0.2222222
    <BLANKLINE>
    A known pair comes before another one with probability 0.8125 (rank test: p = 0.133)
    """
    ranked = _rows("terms", terms)
    names = dict.fromkeys(name for term in ranked for name in term) if predictors is None else list(predictors)
    number = {name: i for i, name in enumerate(names)}
    for name in (name for term in ranked for name in term):
        if name not in number:
            text = f"terms name {name!r}, which is not among the predictors{near_match(name, number) or '.'}"
            raise DataError(f"{text} Name all of them in predictors.", argument="terms")
    listed_pairs = {frozenset(pair) for pair in _rows("known_pairs", known_pairs)}
    odd = next((pair for pair in listed_pairs if len(pair) != 2), None)
    if odd is not None:
        raise DataError(f"known_pairs holds {tuple(odd)!r}; give two different names each.", argument="known_pairs")
    known_in_ranking = {pair for pair in listed_pairs if pair <= number.keys()}
    listed = list(dict.fromkeys(frozenset(pair) for term in ranked for pair in combinations(term, 2)))
    if not listed or not known_in_ranking:
        argument = "terms" if not listed else "known_pairs"
        raise DataError(f"{argument} holds no pair of the predictors; there is nothing to compare.", argument=argument)
    is_known = np.array([pair in known_in_ranking for pair in listed])
    n_known, n_pairs = len(known_in_ranking), len(number) * (len(number) - 1) // 2
    lengths = [n for n in TOP if n < len(listed)] + [len(listed)]
    if top is not None:
        lengths = [integer("top", n, 1, len(listed)) for n in top]
    list_lengths = np.array(lengths, dtype=np.int64)
    observed, p = hypergeometric(is_known, list_lengths, n_pairs, n_known)
    expected = list_lengths * n_known / n_pairs
    enriched = pd.DataFrame(
        {"top": list_lengths, "observed": observed, "expected": expected, "enrichment": observed / expected, "p": p}
    )
    pairs = [sorted(pair, key=number.__getitem__) for pair in listed]
    frame = pd.DataFrame(pairs, columns=["predictor", "predictor2"]).assign(known=is_known)
    return EnrichmentResults(enriched, *rank_test(is_known, n_pairs, n_known), frame, n_pairs, n_known)


def _rows(argument: str, terms: object) -> list[tuple[Hashable, ...]]:
    """Return the terms that a caller lists, as tuples of distinct names."""
    if isinstance(terms, pd.DataFrame):
        if "predictors" in terms.columns:
            terms = terms["predictors"].tolist()
        else:
            columns = [c for c in terms.columns if re.fullmatch(r"predictor\d*", str(c))] or list(terms.columns[:2])
            cells = terms[columns].astype(object).to_numpy()
            terms = [[name for name in row if not pd.isna(name)] for row in cells]
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise BBLTypeError(
            f"{argument} must be a DataFrame or a list of tuples of names; got {type(terms).__name__}.",
            argument=argument,
        )
    rows = list(terms)
    bad = next((row for row in rows if isinstance(row, str) or not isinstance(row, Iterable)), None)
    if bad is not None:
        raise BBLTypeError(f"{argument} holds {bad!r}, which is no tuple of names.", argument=argument)
    return [tuple(dict.fromkeys(row)) for row in rows]
