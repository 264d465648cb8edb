"""Messages of the command line: errors and warnings that name options and files, not Python
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["replace_arguments"]

# (pattern, replacement) for advice that only a Python program can follow; {column} is the column at
# fault
REMEDIES = (
    (
        r" Drop these rows: data\.dropna\(.*\); or missing",
        r" Leave these rows out of the table; or missing",
    ),
    (
        r" Drop them with removeConst\(data\), give their levels in xlevels, or pass "
        r"novarOk=True\.",
        r" Leave them out of the formula, or pass novarOk=.",
    ),
    (
        r", for example with bbl\.bin or pandas\.cut; if each number is a level, make it a "
        r"category\.",
        r" (--bin quantile); if each number is a level, pass --dtype '{column}=text'.",
    ),
    (r" \(or list them in xlevels\)", r""),
    (r", or give lonely='adjust'.*", r"."),
    (
        r"if they are sampling weights, give design=bbl\.survey\(weights=\.\.\.\) in their place "
        r"for standard errors\.",
        (
            r"if they are sampling weights, name clusters and strata (--cluster, --strata) for "
            r"standard errors."
        ),
    ),
    (r" Save it with store_data=True\.", r" Save it with --store-data."),
    (r", or give its levels in order: xlevels=.*\.$", r"."),
    (r" Give the name of one, or an array\.", r" Give the name of one."),
    (r" the data; did you mean", r" the table; did you mean"),
)
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


def replace_arguments(
    text: str,
    options: Mapping[str, str],
    files: Mapping[str, object],
    argument: str | None = None,
    column: object = "",
) -> str:
    """Replace arguments in a message by options, and ``data`` and ``newdata`` by file names.

    Parameters
    ----------
    text : str
        Message of an error or warning.
    options : mapping of argument to option
        Such as ``{"lambda_": "--lambda"}``; at least one that is no English word.
    files : mapping of argument to file
        Such as ``{"data": "people.csv"}``.
    argument, column : optional
        The argument and the column at fault.

    Examples
    --------
    >>> replace_arguments(
    ...     "use log_z='auto', or raise lambda_.", {"log_z": "--log-z", "lambda_": "--lambda"}, {}
    ... )
    'use --log-z auto, or raise --lambda.'
    """
    for pattern, replacement in REMEDIES:
        # backslashes in the name are doubled, as replacements of `re.sub` need
        text = re.sub(
            pattern, replacement.replace("{column}", str(column).replace("\\", r"\\")), text
        )
    # messages about a table begin with the name of its argument
    text = re.sub(r"^(data|newdata)\b", lambda match: str(files.get(match[1], match[1])), text)
    if argument in options:
        # a message may begin with its argument
        text = re.sub(rf"^{argument}\b(?!=)", options[str(argument)], text)
    # longest first, as a pattern takes the first name that fits
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    # name='value', name=value or name= becomes --name value
    text = re.sub(
        rf"(?<![\w-])({names})=(?:'([^']*)'|([\w.+-]*\w))?",
        lambda match: f"{options[match[1]]} {match[2] or match[3] or ''}".rstrip(),
        text,
    )
    if argument in options:  # as in "'eps' is not an option of ..."
        text = text.replace(f"'{argument}'", options[str(argument)])
    # names that stand alone, not in quotes, options or attributes
    unambiguous = "|".join(name for name in names.split("|") if name not in ENGLISH_WORDS)
    return re.sub(rf"(?<![\w'.-])({unambiguous})(?![\w'=])", lambda match: options[match[1]], text)
