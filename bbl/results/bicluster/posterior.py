"""Posterior: draws of two partitions, how often items are together, whether the chains have mixed."""

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

ARRAYS = ("rows", "columns", "log_posterior", "loyalty", "popularity")


@dataclass(frozen=True, repr=False, eq=False)
class Posterior:
    """The posterior of both partitions; ``fit.posterior`` of `bbl.bicluster` with ``method="mcmc"``.

    Attributes
    ----------
    row_factor, column_factor : Factor
        The names of rows and columns.
    draws : Draws
        Labels ``draws.rows`` (chains, draws, I) and ``draws.columns`` (chains, draws, J), numbered in order of
        appearance, and ``draws.log_posterior`` (chains, draws).
    row_share, column_share : ndarray, shape (I, I) and (J, J)
        How often each two are in one group.
    """

    row_factor: Factor
    column_factor: Factor
    draws: Draws
    row_share: np.ndarray
    column_share: np.ndarray

    @property
    def row_similarity(self) -> pd.DataFrame:
        """Share of draws in which two rows are in one group."""
        return _square(self.row_share, self.row_factor)

    @property
    def column_similarity(self) -> pd.DataFrame:
        """Share of draws in which two columns are in one group."""
        return _square(self.column_share, self.column_factor)

    @property
    def n_groups(self) -> pd.DataFrame:
        """Posterior probabilities of the numbers of groups: ``rows`` and ``columns`` by number."""
        counts = [np.bincount(labels.max(axis=-1).ravel() + 1) for labels in self.draws[:2]]
        table = np.zeros((max(map(len, counts)), 2))
        for k, count in enumerate(counts):
            table[: len(count), k] = count / count.sum()
        return pd.DataFrame(table[1:], index=pd.RangeIndex(1, len(table), name="groups"), columns=["rows", "columns"])

    @property
    def rhat(self) -> pd.Series:
        """Split R-hat of the log posterior and of the numbers of groups; above 1.01 the chains have not mixed."""
        return _diagnostic(split_rhat(self.draws.traces), "rhat")

    @property
    def ess(self) -> pd.Series:
        """Effective sample size of the same."""
        return _diagnostic(effective_sample_size(self.draws.traces), "ess")

    @property
    def loyalty(self) -> pd.Series:
        """Posterior mean of lambda of each row's group: how slowly interest falls off with an item group's rank."""
        mean = self.draws.loyalty.mean(axis=0)
        return pd.Series(mean, index=pd.Index(self.row_factor.levels, name=self.row_factor.name), name="loyalty")

    @property
    def popularity(self) -> pd.Series:
        """Posterior mean of the weight w of each column; they sum to one."""
        mean = self.draws.popularity.mean(axis=0)
        return pd.Series(
            mean, index=pd.Index(self.column_factor.levels, name=self.column_factor.name), name="popularity"
        )

    def __repr__(self) -> str:
        chains, draws = self.draws.log_posterior.shape
        worst = self.rhat.max()
        return f"Posterior of {chains} chains x {draws} draws; largest R-hat {worst:.3f}\n\n{self.n_groups.round(4)}"


def _square(share: np.ndarray, factor: Factor) -> pd.DataFrame:
    names = pd.Index(factor.levels, name=factor.name)
    return pd.DataFrame(share, index=names, columns=names)


def _diagnostic(values: np.ndarray, name: str) -> pd.Series:
    return pd.Series(values, index=["log posterior", "row groups", "column groups"], name=name)


def pack_posterior(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return the arrays of a model file."""
    return {f"draws_{name}": getattr(posterior.draws, name) for name in ARRAYS}


def unpack_posterior(table: TwoWay, arrays: dict[str, np.ndarray]) -> Posterior:
    """Return the posterior of `pack_posterior`; a ValueError names the problem."""
    draws = Draws(*(arrays[f"draws_{name}"] for name in ARRAYS))
    chains, n = draws.log_posterior.shape
    for labels, size in zip(draws[:2], table.shape, strict=True):
        if labels.shape != (chains, n, size) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() >= size:
            raise ValueError("the draws are not as saved")
    if draws.loyalty.shape != (chains, table.shape[0]) or draws.popularity.shape != (chains, table.shape[1]):
        raise ValueError("the draws are not as saved")
    share = [similarity(labels.reshape(-1, labels.shape[-1])) for labels in draws[:2]]
    return Posterior(table.rows, table.columns, draws, share[0], share[1])
