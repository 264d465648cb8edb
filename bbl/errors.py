"""The error and warning classes of the package; each message names the problem, the place and the
remedy.

Examples
--------
>>> import bbl
>>> titanic = bbl.datasets.load_titanic()
>>> try:
...     bbl.bbl("Survived ~ Sex", titanic, method="psuedo")
... except bbl.errors.OptionError as error:
...     print(error.argument)
method
"""

from __future__ import annotations

__all__ = [
    "BBLError",
    "BBLTypeError",
    "ClassError",
    "ConvergenceWarning",
    "DataError",
    "DataWarning",
    "FormulaError",
    "LevelError",
    "ModelFileError",
    "OptionError",
]


class BBLError(Exception):
    """Root of all errors that the package raises on purpose.

    Parameters
    ----------
    message : str
        What is wrong and what to do about it.
    column : object, optional
        Name of the data column at fault.
    argument : str, optional
        Name of the argument at fault.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> try:
    ...     bbl.bbl("Survived ~ Klass", titanic)
    ... except bbl.BBLError as error:
    ...     print(type(error).__name__, error.column)
    FormulaError Klass
    """

    def __init__(self, message: str, *, column: object = None, argument: str | None = None):
        super().__init__(message)
        self.column = column
        self.argument = argument


class FormulaError(BBLError, ValueError):
    """The formula cannot be read, or asks for something that a pairwise model does not have."""


class DataError(BBLError, ValueError):
    """The data cannot be used as they are: missing columns or values, no rows, bad weights."""


class LevelError(DataError):
    """A factor level that the model does not know, or a factor with too few levels."""


class ModelFileError(BBLError, ValueError):
    """A model file is damaged, not a model file, or from a later version of the package."""


class OptionError(BBLError, ValueError):
    """An argument has a value outside its allowed range."""


class BBLTypeError(BBLError, TypeError):
    """An argument, or a data column, is of a type that cannot be used."""


class ClassError(BBLError, AttributeError):
    """A model without a response is asked for what only classes have."""


class ConvergenceWarning(UserWarning):
    """An optimiser stopped before the optimum, or there is no finite optimum.

    Examples
    --------
    >>> import warnings
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", itmax=1, verbose=0)
    >>> {warning.category.__name__ for warning in caught}
    {'ConvergenceWarning'}
    """


class DataWarning(UserWarning):
    """The data were used, but something about them deserves a look.

    Examples
    --------
    >>> import warnings
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     cv = bbl.crossVal("Survived ~ .", titanic, "Freq", verbose=0)
    >>> {warning.category.__name__ for warning in caught}
    {'DataWarning'}
    """
