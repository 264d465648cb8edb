"""EnrichmentResults: how early known interactions come in a ranked list."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bbl.report.text import table_text

__all__ = ["EnrichmentResults"]


@dataclass(frozen=True, repr=False)
class EnrichmentResults:
    """Known pairs among those of a ranked list; made by `bbl.enrichment`.

    Attributes
    ----------
    table : DataFrame
        A row for each beginning of the list: ``top`` (its length), ``observed`` known pairs, ``expected`` by chance,
        ``enrichment`` (their ratio) and ``p`` of the hypergeometric test.
    area : float
        Probability that a known pair comes before another one; pairs that are not listed come last, together. nan, as
        is `p`, where all pairs are known.
    p : float
        Of the rank test that it is over a half.
    listed : DataFrame
        The pairs in their order: ``predictor``, ``predictor2``, ``known``.
    n_pairs, n_known : int
        All pairs of the predictors, and the known ones among them.
    """

    table: pd.DataFrame
    area: float
    p: float
    listed: pd.DataFrame
    n_pairs: int
    n_known: int

    def __repr__(self) -> str:
        rank = f"A known pair comes before another one with probability {self.area:.4g} (rank test: p = {self.p:.3g})"
        if self.n_known == self.n_pairs:
            rank = "All pairs are known, so there are no others that they could come before: no rank test."
        head = f"{self.n_known} known pairs of {self.n_pairs}, {len(self.listed)} listed"
        return f"{head}\n\n{table_text(self.table)}\n\n{rank}"
