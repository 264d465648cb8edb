"""Posterior draws of the row and column partitions, similarities of items, and diagnostics.

The table has I rows and J columns; a *partition* assigns each row, or each column, to a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bbl.biclustering.mcmc import Draws
from bbl.biclustering.partition import similarity
from bbl.design.factors import Factor
from bbl.design.twoway import TwoWay
from bbl.stats.diagnostics import effective_sample_size, split_rhat

__all__ = ["Posterior", "pack_posterior", "unpack_posterior"]

# fields of `Draws`, in order
ARRAYS = ("rows", "columns", "log_posterior", "loyalty", "popularity")


@dataclass(frozen=True, repr=False, eq=False)
class Posterior:
    """Posterior of both partitions; the attribute ``posterior`` of the result of `bbl.bicluster`
    with ``method="mcmc"``.

    Attributes
    ----------
    row_factor, column_factor : Factor
        Names of the rows and of the columns.
    draws : Draws
        Groups ``draws.rows`` (chains, draws, I) and ``draws.columns`` (chains, draws, J), numbered
        in order of appearance; ``draws.log_posterior`` (chains, draws); the means ``draws.loyalty``
        (chains, I) and ``draws.popularity`` (chains, J) over the draws of each chain (see `loyalty`
        and `popularity`). ``draws.traces`` (chains, draws, 3) are the log posterior and the numbers
        of row groups and column groups.
    row_share, column_share : ndarray, shape (I, I) and (J, J)
        Proportion of draws that assign two rows, or two columns, to the same group.
    """

    row_factor: Factor
    column_factor: Factor
    draws: Draws
    row_share: np.ndarray
    column_share: np.ndarray

    @property
    def row_similarity(self) -> pd.DataFrame:
        """Proportion of draws that assign two rows to the same group, labelled by name."""
        return _square_frame(self.row_share, self.row_factor)

    @property
    def column_similarity(self) -> pd.DataFrame:
        """Proportion of draws that assign two columns to the same group, labelled by name."""
        return _square_frame(self.column_share, self.column_factor)

    @property
    def n_groups(self) -> pd.DataFrame:
        """Posterior probabilities of 1, 2, ... groups (the index) of ``rows`` and ``columns``."""
        # for rows and for columns: the number of draws with 0, 1, 2, ... groups (`draws[:2]`:
        # labels of rows, labels of columns; groups are numbered from 0)
        n_draws = [np.bincount(labels.max(axis=-1).ravel() + 1) for labels in self.draws[:2]]
        table = np.zeros((max(map(len, n_draws)), 2))
        for side, n_by_groups in enumerate(n_draws):
            table[: len(n_by_groups), side] = n_by_groups / n_by_groups.sum()
        # no partition has 0 groups
        return pd.DataFrame(
            table[1:],
            index=pd.RangeIndex(1, len(table), name="groups"),
            columns=["rows", "columns"],
        )

    @property
    def rhat(self) -> pd.Series:
        """Split R-hat of the log posterior and of the numbers of groups; values above 1.01 indicate
        that the chains have not mixed.
        """
        return _trace_series(split_rhat(self.draws.traces), "rhat")

    @property
    def ess(self) -> pd.Series:
        """Effective sample size of the log posterior and of the numbers of groups."""
        return _trace_series(effective_sample_size(self.draws.traces), "ess")

    @property
    def loyalty(self) -> pd.Series:
        """Posterior mean of the parameter lambda of each row's group.

        Lambda controls how slowly the interest of a row group decreases along its ranking of the
        column groups.
        """
        mean = self.draws.loyalty.mean(axis=0)
        return pd.Series(
            mean, index=pd.Index(self.row_factor.levels, name=self.row_factor.name), name="loyalty"
        )

    @property
    def popularity(self) -> pd.Series:
        """Posterior mean of the weight w of each column; the weights sum to one."""
        mean = self.draws.popularity.mean(axis=0)
        names = self.column_factor.levels
        return pd.Series(
            mean, index=pd.Index(names, name=self.column_factor.name), name="popularity"
        )

    def __repr__(self) -> str:
        chains, draws = self.draws.log_posterior.shape
        max_rhat = self.rhat.max()
        return (
            f"Posterior of {chains} chains x {draws} draws; largest R-hat "
            f"{max_rhat:.3f}\n\n{self.n_groups.round(4)}"
        )


def _square_frame(share: np.ndarray, factor: Factor) -> pd.DataFrame:
    """Return proportions (n, n) as a frame whose index and columns are the n names of a factor."""
    names = pd.Index(factor.levels, name=factor.name)
    return pd.DataFrame(share, index=names, columns=names)


def _trace_series(values: np.ndarray, name: str) -> pd.Series:
    """Return `values` (3,), one for each column of `Draws.traces`, as a series with the name
    `name`.
    """
    return pd.Series(values, index=["log posterior", "row groups", "column groups"], name=name)


def pack_posterior(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return the draws as arrays for a model file.

    Similarities are not stored, because `unpack_posterior` recomputes them.
    """
    return {f"draws_{name}": getattr(posterior.draws, name) for name in ARRAYS}


def unpack_posterior(table: TwoWay, arrays: dict[str, np.ndarray]) -> Posterior:
    """Return the posterior stored by `pack_posterior` from validated arrays.

    Raises a ValueError if the model has no draws.
    """
    # the first axis of all arrays is the chain
    draws = Draws(*(arrays[f"draws_{name}"] for name in ARRAYS))
    if not draws.log_posterior.size:
        raise ValueError("the draws are malformed")
    # labels of rows, then of columns, (chains, draws, items): the draws of all chains are pooled
    row_share, column_share = (
        similarity(labels.reshape(-1, labels.shape[-1])) for labels in draws[:2]
    )
    return Posterior(table.rows, table.columns, draws, row_share, column_share)
