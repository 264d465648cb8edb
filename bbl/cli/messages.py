"""Messages of the command line, with options and file names instead of Python arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bbl.errors import BBLError, ConvergenceWarning, DataWarning, Hint, with_hint

__all__ = ["describe", "replace_arguments"]

# an argument, NAME or NAME=VALUE, outside words, options, paths and quotations
ARGUMENT = re.compile(r"(?<![\w'.-])([^\W\d]\w*)(?:(=)(?:'([^']*)'|([\w.+-]*\w))?|(?![\w']))")
# arguments that are also English words: replaced only in NAME=..., or at the start of a message
ENGLISH_WORDS = frozenset(
    (
        "by",
        "cluster",
        "contrast",
        "cross",
        "data",
        "help",
        "keep",
        "kind",
        "levels",
        "method",
        "missing",
        "of",
        "plot",
        "row",
        "save",
        "score",
        "seed",
        "shuffle",
        "strata",
        "type",
        "weights",
    )
)


def describe(
    error: BBLError | DataWarning | ConvergenceWarning,
    options: Mapping[str, str],
    files: Mapping[str, object],
) -> str:
    """Return the text of one of the package's errors or warnings, worded for the command line.

    Parameters
    ----------
    error : BBLError, DataWarning or ConvergenceWarning
        Its argument is replaced by the option, and its hint by the hint for the command line.
    options : mapping of argument to option
        For example ``{"lambda_": "--lambda"}``; at least one argument must not be an English word.
    files : mapping of argument to file
        For example ``{"data": "people.csv"}``.

    Examples
    --------
    >>> error = BBLError("lambda_ is empty.", argument="lambda_", hint="Use lambda_='cv'.")
    >>> describe(error, {"lambda_": "--lambda"}, {})
    '--lambda is empty. Hint: Use --lambda cv.'
    >>> describe(BBLError("data has no rows."), {"lambda_": "--lambda"}, {"data": "people.csv"})
    'people.csv has no rows.'
    """
    message = name_subject(error.message, error.argument, options, files)
    hint = error.hint.command_line if isinstance(error.hint, Hint) else error.hint or ""
    return with_hint(replace_arguments(message, options), replace_arguments(hint, options))


def name_subject(
    message: str,
    argument: str | None,
    options: Mapping[str, str],
    files: Mapping[str, object],
) -> str:
    """Replace an argument at the start of a message by the corresponding option or file."""
    subject, space, rest = message.partition(" ")
    name = subject.strip("':")
    colon = ":" if subject.endswith(":") else ""
    assigned, equals, value = subject.partition("=")
    if equals and assigned in files:
        return f"{value}{space}{rest}"
    if name in files:
        return f"{files[name]}{colon}{space}{rest}"
    if name == argument and name in options:
        return f"{options[name]}{colon}{space}{rest}"
    return message


def replace_arguments(text: str, options: Mapping[str, str]) -> str:
    """Rewrite the arguments in a text as options: ``log_z='auto'`` becomes ``--log-z auto``.

    A bare name is treated as an argument only if it is not an English word.

    Examples
    --------
    >>> replace_arguments(
    ...     "use log_z='auto', or raise lambda_.", {"log_z": "--log-z", "lambda_": "--lambda"}
    ... )
    'use --log-z auto, or raise --lambda.'
    """

    def option(match: re.Match) -> str:
        """Return the option for a matched name, with its value if there is one."""
        name, assigned, text_value, value = match.groups()
        if name not in options or (not assigned and name in ENGLISH_WORDS):
            return match[0]
        if value == "True":  # a flag
            return options[name]
        return f"{options[name]} {text_value or value or ''}".rstrip()

    return ARGUMENT.sub(option, text)
