"""EnrichmentResults: enrichment of known interactions among the top-ranked pairs of predictors."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import table_text
from bbl.stats.enrichment import PERMUTATIONS

__all__ = ["EnrichmentResults"]


@dataclass(frozen=True, repr=False)
class EnrichmentResults(Notebook):
    """Enrichment of known pairs at the top of a ranked list, as returned by `bbl.enrichment`.

    Attributes
    ----------
    table : DataFrame
        A row for each number of top pairs: ``top`` (this number), ``observed`` (number of known
        pairs among them), ``expected`` (number expected by chance), ``enrichment`` (observed /
        expected) and ``p`` (p-value of the hypergeometric test).
    area : float
        Probability that a known pair is ranked before another pair (the AUC), where pairs that are
        not listed are tied for last place. nan if all pairs are known.
    p : float
        p-value of the one-sided rank test for an `area` above 0.5; nan if all pairs are known.
    listed : DataFrame
        The ranked pairs: ``predictor``, ``predictor2``, and ``known``.
    n_pairs, n_known : int
        Number of pairs of the predictors, and number of known pairs among them.
    n_universe : int or None
        Number of names in the universe used for the expected numbers; None if the universe consists
        of the predictors.

    Examples
    --------
    >>> import bbl
    >>> result = bbl.enrichment(
    ...     [("a", "b"), ("a", "c"), ("b", "d", "e")], [("b", "a"), ("d", "e")], top=[1, 5]
    ... )
    >>> result.table
       top  observed  expected  enrichment         p
    0    1         1       0.2         5.0  0.200000
    1    5         2       1.0         2.0  0.222222
    """

    table: pd.DataFrame
    area: float
    p: float
    listed: pd.DataFrame
    n_pairs: int
    n_known: int
    n_universe: int | None = None

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        pair_counts, rank_test = self._texts()
        return pair_counts, [first_rows(self.table, "", source=".table", note=rank_test)]

    def _texts(self) -> tuple[str, str]:
        """Return two sentences, on the numbers of pairs and on the test of the ranks."""
        # the smallest p of random permutations is a bound
        sign = "<" if self.p == 1.0 / (PERMUTATIONS + 1) else "="
        rank_test = (
            f"A known pair ranks above another pair with probability {self.area:.4g} (rank test: "
            f"p {sign} {self.p:.3g})"
        )
        if self.n_known == self.n_pairs:
            rank_test = "All pairs are known, so there are no other pairs for a rank test."
        pair_counts = (
            f"{self.n_known} of {self.n_pairs} pairs are known; {len(self.listed)} are listed"
        )
        if self.n_universe is not None:
            pair_counts += f"; expected numbers are based on {self.n_universe} names"
        return pair_counts, rank_test

    def __repr__(self) -> str:
        pair_counts, rank_test = self._texts()
        return f"{pair_counts}\n\n{table_text(self.table)}\n\n{rank_test}"
