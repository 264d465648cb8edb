"""The public function `enrichment`: compare a ranked list of interactions with known pairs."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, integer, near_match
from bbl.errors import BBLTypeError, DataError
from bbl.results.comparisons.enrichment import EnrichmentResults
from bbl.stats.enrichment import hypergeometric, rank_test

__all__ = ["enrichment"]

TOP = (50, 100, 150, 200, 250)  # list lengths in Table 2 of the paper (see References)


@check_keywords
def enrichment(
    terms: pd.DataFrame | Iterable[Any],
    known_pairs: pd.DataFrame | Iterable[Any],
    predictors: Sequence[Any] | None = None,
    top: Sequence[int] | None = None,
    n_universe: int | None = None,
) -> EnrichmentResults:
    """Test whether known pairs are concentrated at the top of a ranked list of interactions.

    Parameters
    ----------
    terms : DataFrame, or sequence of tuples of names
        Interactions, strongest first, such as ``fit.interactions()`` or ``fit.terms``. A DataFrame
        has columns ``predictor``, ``predictor2`` and so on, or a column ``predictors`` of tuples. A
        term of three or more predictors is replaced by its pairs. If a pair is repeated, only its
        first position counts. Single predictors are ignored.
    known_pairs : DataFrame of two columns, or sequence of pairs of names
        Pairs are unordered. Pairs with a name that is not in `predictors` are ignored.
    predictors : sequence of names, optional
        All predictors whose pairs could occur in the list; by default, the predictors in `terms`.
    top : sequence of int, optional
        Numbers of leading pairs to test. The default is the length of the list and every smaller
        number among 50, 100, ..., 250.
    n_universe : int, optional
        Size of a larger universe that contains the predictors, such as all human transcription
        factors. Expected numbers and their p-values then use the proportion of known pairs among
        all pairs of the universe, ``len(known_pairs) / C(n_universe, 2)``, which counts all pairs
        in `known_pairs`. The rank test always uses the pairs of the predictors only.

    Returns
    -------
    EnrichmentResults

    Raises
    ------
    DataError, BBLTypeError
        If a list cannot be read, or `terms` has a name that is not in `predictors`.

    References
    ----------
    Min, Ning, Cheng, Gerstein (2014). Interpretable sparse high-order Boltzmann machines. AISTATS,
    Section 6.3. With `n_universe` the proportion of known pairs is n_0 / C(n_TF0, 2), as in the
    paper. The expected number is the mean number of known pairs among `top` random pairs, as in its
    Table 2.

    Examples
    --------
    >>> enrichment([("a", "b"), ("a", "c"), ("b", "d", "e")], [("b", "a"), ("d", "e")], top=[1, 5])
    2 of 10 pairs are known; 5 are listed
    <BLANKLINE>
      top observed expected enrichment         p
    0   1        1      0.2          5 0.2000000
    1   5        2      1.0          2 0.2222222
    <BLANKLINE>
    A known pair ranks above another pair with probability 0.8125 (rank test: p = 0.133)
    """
    ranked_terms = _read_name_tuples("terms", terms)
    names = (
        dict.fromkeys(name for term in ranked_terms for name in term)
        if predictors is None
        else list(predictors)
    )
    position_of = {name: i for i, name in enumerate(names)}
    for name in (name for term in ranked_terms for name in term):
        if name not in position_of:
            message = f"terms contains {name!r}, which is not listed in predictors."
            raise DataError(
                f"{message}",
                argument="terms",
                hint=f"{near_match(name, position_of)}Include every name in predictors.",
            )
    all_known_pairs = {frozenset(pair) for pair in _read_name_tuples("known_pairs", known_pairs)}
    invalid = next((pair for pair in all_known_pairs if len(pair) != 2), None)
    if invalid is not None:
        raise DataError(
            f"known_pairs contains {tuple(invalid)!r}, which is not a pair of different names.",
            argument="known_pairs",
            hint="Pass two different names for each pair.",
        )
    known_set = {pair for pair in all_known_pairs if pair <= position_of.keys()}
    ranked_pairs = list(
        dict.fromkeys(frozenset(pair) for term in ranked_terms for pair in combinations(term, 2))
    )
    if not ranked_pairs or not known_set:
        argument = "terms" if not ranked_pairs else "known_pairs"
        raise DataError(
            f"{argument} contains no pairs of predictors, so there is nothing to compare.",
            argument=argument,
        )
    is_known = np.array([pair in known_set for pair in ranked_pairs])
    n_known = len(known_set)
    n_pairs = len(position_of) * (len(position_of) - 1) // 2
    lengths = [length for length in TOP if length < len(ranked_pairs)] + [len(ranked_pairs)]
    if top is not None:
        lengths = [integer("top", length, 1, len(ranked_pairs)) for length in top]
    list_lengths = np.array(lengths, dtype=np.int64)
    # number of known pairs among the first pairs of the list, for each length, and its p-value
    reference_known = n_known
    reference_pairs = n_pairs
    if n_universe is not None:
        reference_known = len(all_known_pairs)
        all_names = position_of.keys() | {name for pair in all_known_pairs for name in pair}
        n_universe = integer("n_universe", n_universe, len(all_names))
        reference_pairs = n_universe * (n_universe - 1) // 2
    observed, p = hypergeometric(is_known, list_lengths, reference_pairs, reference_known)
    expected = list_lengths * reference_known / reference_pairs
    enriched = pd.DataFrame(
        {
            "top": list_lengths,
            "observed": observed,
            "expected": expected,
            "enrichment": observed / expected,
            "p": p,
        }
    )
    pairs = [sorted(pair, key=position_of.__getitem__) for pair in ranked_pairs]
    frame = pd.DataFrame(pairs, columns=["predictor", "predictor2"]).assign(known=is_known)
    # auc: probability that a known pair is ranked before another pair
    auc, rank_p = rank_test(is_known, n_pairs, n_known)
    return EnrichmentResults(enriched, auc, rank_p, frame, n_pairs, n_known, n_universe)


def _read_name_tuples(argument: str, terms: object) -> list[tuple[Hashable, ...]]:
    """Return `terms`, the value of `argument`, as a list of tuples of distinct names.

    In a DataFrame, missing names are omitted, because terms may have different orders.
    """
    if isinstance(terms, pd.DataFrame):
        if "predictors" in terms.columns:
            terms = terms["predictors"].tolist()
        else:
            # columns predictor, predictor2, ...; otherwise the first two columns
            name_columns = [
                column for column in terms.columns if re.fullmatch(r"predictor\d*", str(column))
            ] or list(terms.columns[:2])
            cells = terms[name_columns].astype(object).to_numpy()
            terms = [[name for name in row if not pd.isna(name)] for row in cells]
    if isinstance(terms, str) or not isinstance(terms, Iterable):
        raise BBLTypeError(
            f"{argument} must be a DataFrame or a list of tuples of names; got "
            f"{type(terms).__name__}.",
            argument=argument,
        )
    rows = list(terms)
    invalid = next(
        (row for row in rows if isinstance(row, str) or not isinstance(row, Iterable)), None
    )
    if invalid is not None:
        raise BBLTypeError(
            f"{argument} contains {invalid!r}, which is not a tuple of names.", argument=argument
        )
    return [tuple(dict.fromkeys(row)) for row in rows]
