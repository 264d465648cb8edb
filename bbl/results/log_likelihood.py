"""LogLikelihood: the return value of `logLik()`, a float with degrees of freedom and number of
observations.
"""

from __future__ import annotations

from bbl.errors import OptionError

__all__ = ["LogLikelihood"]


class LogLikelihood(float):
    """A log-likelihood: a float with the attributes `df` (degrees of freedom), `nobs` (number of
    observations) and `log_z`.

    `log_z` is "half", "pseudo" or "mf" if the value depends on this approximation of ln Z, whose
    error is unknown, and otherwise None. The approximation is mentioned when the value is printed,
    and AIC and BIC are not available.

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
    log_z: str | None

    def __new__(cls, value: float, df: int, nobs: float, log_z: str | None = None):
        self = super().__new__(cls, value)
        self.df = df
        self.nobs = nobs
        self.log_z = log_z
        return self

    def check_comparable(self) -> LogLikelihood:
        """Return the value. Raises an OptionError if it depends on an approximate ln Z.

        Examples
        --------
        >>> LogLikelihood(-12.5, df=3, nobs=10).check_comparable()
        'log Lik.' -12.5 (df=3)
        """
        if self.log_z is not None:
            raise OptionError(
                f"ln Z of this fit is an approximation (log_z={self.log_z!r}) with unknown error, "
                "so its log-likelihood cannot be compared with others, and AIC and BIC are not "
                "available.",
                argument="log_z",
                hint="Fit with log_z='ais', which estimates ln Z by annealed importance sampling "
                "and provides a standard error.",
            )
        return self

    def __repr__(self) -> str:  # as R prints it
        mark = "" if self.log_z is None else f"; ln Z is approximate, log_z={self.log_z!r}"
        return f"'log Lik.' {float(self):.7g} (df={self.df}{mark})"
