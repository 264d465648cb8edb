"""LogLikelihood: what `logLik()` returns, a number with degrees of freedom and number of
observations.
"""

from __future__ import annotations

__all__ = ["LogLikelihood"]


class LogLikelihood(float):
    """A log-likelihood: a float with the attributes `df` (degrees of freedom) and `nobs` (number of
    observations).

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> value = fit.logLik()
    >>> value.df, value.nobs
    (18, 2201)
    >>> round(-2 * value + 2 * value.df, 3) == round(fit.aic, 3)
    True
    """

    df: int
    nobs: float

    def __new__(cls, value: float, df: int, nobs: float):
        self = super().__new__(cls, value)
        self.df = df
        self.nobs = nobs
        return self

    def __repr__(self) -> str:  # as R prints it
        return f"'log Lik.' {float(self):.7g} (df={self.df})"
