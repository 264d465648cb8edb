"""Random rows from a network: the class is drawn first, then each feature after its parents."""

from __future__ import annotations

import numpy as np

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.predict import Network
from bbl.rows.sample import code_dtype

__all__ = ["draw"]


def draw(
    network: Network | Averaged, shares: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes (n,) as intp, and levels (n, m), from the joint distribution.

    `shares` (K,) contains the class probabilities. For an average of networks, each row is drawn
    from a random member.
    """
    members = network.members if isinstance(network, Averaged) else (network,)
    member_of_row = (
        rng.integers(0, len(members), n) if len(members) > 1 else np.zeros(n, dtype=np.intp)
    )
    n_levels = members[0].families.n_levels
    y = _draw_levels(np.broadcast_to(shares, (n, len(shares))), rng)
    # 2, because a network may have no features
    codes = np.zeros((n, len(n_levels)), dtype=code_dtype([*n_levels, 2]))
    for k, member in enumerate(members):
        rows = np.flatnonzero(member_of_row == k)
        # position of each feature's table
        family_of = {i: f for f, i in enumerate(member.dag.features)}
        for layer in member.dag.layers:  # sets of features whose parents are in earlier layers
            for i in layer:
                # table of probabilities with shape (levels of the parents..., K, levels of the
                # feature)
                table = np.moveaxis(member.families.table(member.theta, family_of[i]), -2, -1)
                parent_codes = (*(codes[rows, p] for p in member.dag.parents[i]), y[rows])
                # (rows, levels of the feature): distribution given the parents and the class of
                # each row
                codes[rows, i] = _draw_levels(table[parent_codes], rng)
    return y, codes


def _draw_levels(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one level for each row of `p` (n, r), which contains unnormalised probabilities."""
    cumulative = np.cumsum(p, axis=1)
    uniform = rng.random(len(p)) * cumulative[:, -1]
    # the minimum is needed if the product was rounded up to the last sum
    return np.minimum((uniform[:, None] >= cumulative).sum(axis=1), p.shape[1] - 1)
