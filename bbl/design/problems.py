"""`ColumnProblems`: collects the errors of all columns of a table, and raises them as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bbl.errors import BBLError, BBLTypeError, DataError, Hint

__all__ = ["ColumnProblems"]

MAX_SHOWN = 5  # columns whose problems are told in full


class ColumnProblems:
    """The errors of the columns of a table.

    Attributes
    ----------
    errors : list of DataError or BBLTypeError

    Examples
    --------
    >>> problems = ColumnProblems()
    >>> for name in ("a", "b"):
    ...     with problems.of_column():
    ...         raise DataError(f"column {name!r} is empty.", column=name, hint="Leave it out.")
    >>> problems.refuse()
    Traceback (most recent call last):
    ...
    bbl.errors.DataError: column 'a' is empty. Column 'b' is empty. Hint: Leave it out.
    """

    def __init__(self) -> None:
        self.errors: list[BBLError] = []

    @contextmanager
    def of_column(self) -> Iterator[None]:
        """Keep an error of the ``with`` block for `refuse`."""
        try:
            yield
        except (DataError, BBLTypeError) as error:
            self.errors.append(error)

    def refuse(self) -> None:
        """Raise all errors as one, of the class of the first; a single one as it is."""
        if not self.errors:
            return
        first = self.errors[0]
        if len(self.errors) == 1:
            raise first
        message = " ".join([first.message, *map(_as_sentence, self.errors[1:MAX_SHOWN])])
        others = [repr(error.column) for error in self.errors[MAX_SHOWN:]]
        if others:
            message += f" Other columns cannot be used either: {_shorten(others)}."
        error_class: type[BBLError] = type(first)
        if len({type(error) for error in self.errors}) > 1:
            error_class = BBLTypeError if isinstance(first, BBLTypeError) else DataError
        raise error_class(
            message,
            hint=_join_hints(self.errors),
            argument=first.argument,
            column=first.column,
            value=first.value,
        ) from None


def _as_sentence(error: BBLError) -> str:
    """Return the message of an error with a capital letter."""
    return error.message[:1].upper() + error.message[1:]


def _join_hints(errors: list[BBLError]) -> Hint | None:
    """Return the hint of each kind of problem, with the columns that it is for.

    Problems are of one kind if their hints differ in the name of the column alone.
    """
    errors_by_kind: dict[str, list[BBLError]] = {}
    for error in errors:
        if error.hint:
            kind = error.hint
            for text in _mentions(error.column):
                kind = kind.replace(text, "")
            errors_by_kind.setdefault(kind, []).append(error)
    if not errors_by_kind:
        return None

    def join(words: str) -> str:
        """Return the hints in the words of Python (""), the command line or the estimators."""
        texts = []
        for alike in errors_by_kind.values():
            hint = alike[0].hint
            text = str(getattr(hint, words, hint))
            names = [repr(error.column) for error in alike]
            if any(mention in text for mention in _mentions(alike[0].column)):
                same = f" The same for {_shorten(names[1:])}." if names[1:] else ""
                texts.append(f"{text}{same}")
            elif len(errors_by_kind) > 1:
                texts.append(f"{_shorten(names)}: {text}")
            else:
                texts.append(text)
        return " ".join(texts)

    return Hint(join(""), command_line=join("command_line"), estimators=join("estimators"))


def _mentions(column: object) -> tuple[str, ...]:
    """Return how a hint may name a column: as a value, in a formula or in an option."""
    return repr(column), f"- {column})", f"'{column}="


def _shorten(names: list[str]) -> str:
    """Return up to ten names, and how many more there are."""
    return ", ".join(names[:10]) + f", and {len(names) - 10} more" * (len(names) > 10)
