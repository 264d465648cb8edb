"""Any fields, couplings, levels, chains, sweeps and seeds into the Gibbs sampler."""

import numpy as np

from bbl.model import chains
from fuzz.harness import ODD


def gibbs(source) -> None:
    """Run a few sweeps of a few chains; states lie within the levels, and the best energy is the
    chains' best.
    """
    m = source.integer(1, 4)
    n_levels = [source.integer(2, 5) for _ in range(m)]
    if source.maybe(16):
        n_levels[0] = source.pick((*ODD, 17, 20, 40))
    D = sum(L - 1 for L in n_levels)
    D = D + source.maybe(32) if 0 < D < 60 else 1
    h = np.resize(source.array(source.pick(("f8", "f4", "i1")), min(D, 16)), D)
    J = source.array(source.pick(("f8", "f4")), 8)
    J = np.resize(J, (D, D))
    if not source.maybe(16):
        J = np.where(np.tri(D, dtype=bool), J, J.T)
        start = np.cumsum([0, *(L - 1 for L in n_levels)])
        for i in range(m):
            J[start[i] : start[i + 1], start[i] : start[i + 1]] = 0
    found = chains.gibbs(
        h,
        J,
        np.array(n_levels),
        n_sweeps=source.pick((1, 2, 3, 5, 0, -1, 1.5)),
        n_chains=source.pick((1, 2, 3, 33, 64, 0, -1)),
        rng=source.pick((0, 1, 2**64, -1, None, "x")),
        burn_in=source.pick((0, 1, 2, -1)),
        thin=source.pick((1, 2, 3, 0, None, True)),
    )
    for states in (
        found.best,
        found.chain_best,
        found.last,
        *([] if found.draws is None else [found.draws]),
    ):
        assert ((states >= 0) & (states < n_levels)).all()
    assert np.isfinite(found.best_energy) and found.best_energy == found.chain_energy.max()
