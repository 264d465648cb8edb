"""The error and warning classes of the package; each carries its message, a hint, and the argument,
column and value at fault.

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


class Hint(str):
    """A hint in the words of Python, with those for users who write no Python call.

    Parameters
    ----------
    text : str
        The hint for callers in Python.
    command_line, estimators : str, optional
        The hint for users of the command line, and of the estimators of `bbl.sklearn`, where
        theirs is another.

    Examples
    --------
    >>> hint = Hint("Save it with store_data=True.", command_line="Save it with --store-data.")
    >>> hint, hint.command_line, hint.estimators
    ('Save it with store_data=True.', 'Save it with --store-data.', 'Save it with store_data=True.')
    """

    command_line: str
    estimators: str

    def __new__(
        cls, text: str, *, command_line: str | None = None, estimators: str | None = None
    ) -> Hint:
        """Make a hint; a wording that is left out is that of Python."""
        hint = super().__new__(cls, text)
        hint.command_line = text if command_line is None else command_line
        hint.estimators = text if estimators is None else estimators
        return hint

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        """Return the arguments of `__new__`, for copies and pickles."""
        return (str(self),), {"command_line": self.command_line, "estimators": self.estimators}


class _WithFields(Exception):
    """A message and its parts, which errors and warnings share."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        argument: str | None = None,
        column: object = None,
        value: object = None,
    ):
        # copies and pickles are rebuilt from args, the message alone, and get the fields from
        # __dict__
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.argument = argument
        self.column = column
        self.value = value

    def __str__(self) -> str:
        """Return the message and, where there is one, the hint."""
        return f"{self.message} Hint: {self.hint}" if self.hint else self.message


class BBLError(_WithFields):
    """Root of all errors that the package raises on purpose.

    ``str(error)`` is the message, followed by ``Hint:`` and the hint where there is one. All
    parameters are attributes too.

    Parameters
    ----------
    message : str
        What is wrong.
    hint : str, optional
        What to do about it, an imperative.
    argument : str, optional
        Name of the argument at fault.
    column : object, optional
        Name of the data column at fault.
    value : object, optional
        The value at fault.

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


class ConvergenceWarning(_WithFields, UserWarning):
    """An optimiser stopped before the optimum, or there is no finite optimum.

    It has the same attributes as `BBLError`: `message`, `hint`, `argument`, `column` and `value`.

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


class DataWarning(_WithFields, UserWarning):
    """The data were used, but something about them deserves a look.

    It has the same attributes as `BBLError`: `message`, `hint`, `argument`, `column` and `value`.

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
