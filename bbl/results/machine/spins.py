"""SpinParameters: a Boltzmann machine of two-level predictors with spins -1 and 1, as in the Ising
model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bbl.report.machine.tables import Named

__all__ = ["SpinParameters"]


@dataclass(frozen=True, repr=False)
class SpinParameters(Named):
    """Parameters for spins s, which are -1 at the reference level and 1 at the other level; see
    `bbl.to_spins`.

    ``P(s) ~ exp(s'Ms / 2 + b's)``, eq. 8 of Woo & Wang (2022). ``par["b"]`` is ``par.b``.

    Attributes
    ----------
    b : Series of length m
        Fields of the spins, by predictor.
    M : DataFrame, shape (m, m)
        Symmetric couplings with zeros on the diagonal.
    constant : float
        The energy of levels minus the energy of spins, ``s'Ms / 2 + b's``; ln Z of the spins equals
        ln Z of the fit minus this constant.

    Examples
    --------
    >>> import bbl
    >>> spins = bbl.to_spins(bbl.randompar([[0, 1]] * 3, seed=1))
    >>> spins.M.shape, len(spins.b)
    ((3, 3), 3)
    """

    b: pd.Series
    M: pd.DataFrame
    constant: float

    def __repr__(self) -> str:
        frame = self.M.copy()
        frame.insert(0, "b", self.b, allow_duplicates=True)
        m = len(self.b)
        return f"Spins of {m} predictors: field b, then couplings M.\n{frame}"

    def energy(self, spins: object) -> np.ndarray:
        """Return ``s'Ms / 2 + b's`` for rows of spins.

        Parameters
        ----------
        spins : array_like, shape (n, m)
            Spins, which are -1 or 1.

        Returns
        -------
        ndarray, shape (n,)

        Examples
        --------
        >>> import bbl
        >>> par = bbl.from_spins([0.5, 0.0], [[0.0, 1.0], [1.0, 0.0]])
        >>> bbl.to_spins(par).energy([[1, 1], [1, -1]]).tolist()
        [1.5, -0.5]
        """
        S = np.asarray(spins, dtype=float)
        return 0.5 * ((S @ self.M.to_numpy()) * S).sum(axis=1) + S @ self.b.to_numpy()
