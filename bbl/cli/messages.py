"""Messages of the command line: errors and warnings that name options and files, not Python
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bbl.errors import BBLError, ConvergenceWarning, DataWarning, Hint

__all__ = ["describe", "replace_arguments"]

# an argument, NAME or NAME=VALUE, that is not part of a word, an option, a path or a quotation
ARGUMENT = re.compile(r"(?<![\w'.-])([^\W\d]\w*)(?:(=)(?:'([^']*)'|([\w.+-]*\w))?|(?![\w']))")
# arguments that are also English words: replaced only as NAME=, or at the beginning of a message
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
    """Return the text of an error or warning of the package for users of the command line.

    Parameters
    ----------
    error : BBLError, DataWarning or ConvergenceWarning
        Its argument is named by its option, and its hint is that for the command line.
    options : mapping of argument to option
        Such as ``{"lambda_": "--lambda"}``; at least one that is not an English word.
    files : mapping of argument to file
        Such as ``{"data": "people.csv"}``.

    Examples
    --------
    >>> error = BBLError("lambda_ is empty.", argument="lambda_", hint="Give lambda_='cv'.")
    >>> describe(error, {"lambda_": "--lambda"}, {})
    '--lambda is empty. Hint: Give --lambda cv.'
    >>> describe(BBLError("data has no rows."), {"lambda_": "--lambda"}, {"data": "people.csv"})
    'people.csv has no rows.'
    """
    message = name_subject(error.message, error.argument, options, files)
    text = replace_arguments(message, options)
    if not error.hint:
        return text
    hint = error.hint.command_line if isinstance(error.hint, Hint) else error.hint
    return f"{text} Hint: {replace_arguments(hint, options)}"


def name_subject(
    message: str,
    argument: str | None,
    options: Mapping[str, str],
    files: Mapping[str, object],
) -> str:
    """Return a message that begins with an option or a file where it begins with their argument."""
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
    """Write the arguments in a text as options: ``log_z='auto'`` becomes ``--log-z auto``.

    A name alone is an argument if it is not also an English word.

    Examples
    --------
    >>> replace_arguments(
    ...     "use log_z='auto', or raise lambda_.", {"log_z": "--log-z", "lambda_": "--lambda"}
    ... )
    'use --log-z auto, or raise --lambda.'
    """

    def option(match: re.Match) -> str:
        """Return the option of a name, and its value where there is one."""
        name, assigned, text_value, value = match.groups()
        if name not in options or (not assigned and name in ENGLISH_WORDS):
            return match[0]
        return f"{options[name]} {text_value or value or ''}".rstrip()

    return ARGUMENT.sub(option, text)
