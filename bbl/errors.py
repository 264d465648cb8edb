"""The error and warning classes of the package.

Each has a message, a hint, and the argument, column and value that caused it.

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
    """A hint for Python users, with different wordings for other users.

    As a string, it is the hint for Python users.

    Parameters
    ----------
    text : str
        The hint for Python users.
    command_line, estimators : str, optional
        The hint for users of the command line, and of the estimators in `bbl.sklearn`, if
        different.

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
        """Create a hint. `text` replaces wordings that are not given."""
        hint = super().__new__(cls, text)
        hint.command_line = text if command_line is None else command_line
        hint.estimators = text if estimators is None else estimators
        return hint

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        """Return the arguments of `__new__`, for copies and pickles."""
        return (str(self),), {"command_line": self.command_line, "estimators": self.estimators}


def with_hint(message: str, hint: str | None) -> str:
    """Return a message, followed by ``Hint:`` and the hint if there is one.

    Examples
    --------
    >>> with_hint("data has no rows.", "Check the filter.")
    'data has no rows. Hint: Check the filter.'
    """
    return f"{message} Hint: {hint}" if hint else message


class _WithFields(Exception):
    """A message and its parts, shared by errors and warnings."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        argument: str | None = None,
        column: object = None,
        value: object = None,
    ):
        # copies and pickles are created from args, which only contains the message; the other
        # attributes come from __dict__
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.argument = argument
        self.column = column
        self.value = value

    def __str__(self) -> str:
        """Return the message, followed by the hint if there is one."""
        return with_hint(self.message, self.hint)


class BBLError(_WithFields):
    """Base class of all errors that are specific to the package.

    ``str(error)`` is the message, followed by ``Hint:`` and the hint if there is one. All
    parameters are available as attributes.

    Parameters
    ----------
    message : str
        Description of the problem.
    hint : str, optional
        How to solve the problem, in the imperative.
    argument : str, optional
        Name of the argument that caused the error.
    column : object, optional
        Name of the data column that caused the error.
    value : object, optional
        The value that caused the error.

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
    """The formula cannot be parsed, or requests a feature that pairwise models do not have."""


class DataError(BBLError, ValueError):
    """The data cannot be used: missing columns or values, no rows, or invalid weights."""


class LevelError(DataError):
    """A factor level is unknown to the model, or a factor has too few levels."""


class ModelFileError(BBLError, ValueError):
    """A file is damaged, not a model file, or from a later version of the package."""


class OptionError(BBLError, ValueError):
    """An argument has a value outside its allowed range."""


class BBLTypeError(BBLError, TypeError):
    """An argument or a data column has an unsupported type."""


class ClassError(BBLError, AttributeError):
    """A result that requires classes was requested from a model without a response."""


class ConvergenceWarning(_WithFields, UserWarning):
    """An optimiser stopped before the optimum, or no finite optimum exists.

    This warning has the same attributes as `BBLError`: `message`, `hint`, `argument`, `column` and
    `value`.

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
    """The data were used, but they have properties that may need attention.

    This warning has the same attributes as `BBLError`: `message`, `hint`, `argument`, `column` and
    `value`.

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
