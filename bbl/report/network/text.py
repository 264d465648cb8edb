"""Bayesian network classifiers as text: the printed form, and BIF (Interchange Format for Bayesian
Networks).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from bbl.report.text import label_text

__all__ = ["bif_text", "structure_text"]


def structure_text(
    class_var: Hashable,
    n_features: int,
    learner: str | None,
    n_arcs: int | None = None,
    n_networks: int | None = None,
    n_parameters: int | None = None,
) -> str:
    """Return the printed form of a Bayesian network classifier, in R's layout. Arguments that are
    None are omitted.

    Examples
    --------
    >>> print(structure_text("class", 6, "nb", n_arcs=6))
      Bayesian network classifier
    <BLANKLINE>
      class variable:        class
      num. features:   6
      num. arcs:   6
      learning algorithm:    nb
    """
    lines = [
        "  Bayesian network classifier",
        "",
        f"  class variable:        {label_text(class_var)}",
    ]
    lines.append(f"  num. features:   {n_features}")
    if n_arcs is not None:
        lines.append(f"  num. arcs:   {n_arcs}")
    if n_networks is not None:
        lines.append(f"  num. networks:   {n_networks}")
    if n_parameters is not None:
        lines.append(f"  free parameters:   {n_parameters}")
    if learner is not None:
        lines.append(f"  learning algorithm:    {learner}")
    return "\n".join(lines)


def bif_text(
    families: Mapping[Hashable, tuple],
    levels: Mapping[Hashable, Sequence],
    tables: Mapping[Hashable, np.ndarray],
) -> str:
    """Return a network in the Interchange Format for Bayesian Networks (BIF).

    Names and levels are replaced by words that BIF allows: letters, digits and underscores.

    Parameters
    ----------
    families : mapping of name to tuple
        For each variable: the variable, then its parents.
    levels : mapping of name to sequence
        Levels of each variable.
    tables : mapping of name to ndarray
        Probabilities with the axes (parents..., variable).
    """
    variable_words = dict(zip(families, _distinct_words(list(families), "v"), strict=True))
    level_words = {name: _distinct_words(list(levels[name]), "s") for name in families}
    lines = ["network bbl {", "}"]
    for name, words in level_words.items():
        lines += [
            f"variable {variable_words[name]} {{",
            f"  type discrete [ {len(words)} ] {{ {', '.join(words)} }};",
            "}",
        ]
    for name, (_, *parents) in families.items():
        parents_text = f" | {', '.join(variable_words[p] for p in parents)}" if parents else ""
        lines.append(f"probability ( {variable_words[name]}{parents_text} ) {{")
        table = tables[name]
        if parents:
            for parent_codes in np.ndindex(table.shape[:-1]):
                parent_levels = ", ".join(
                    level_words[p][code] for p, code in zip(parents, parent_codes, strict=True)
                )
                lines.append(f"  ({parent_levels}) {_comma_separated(table[parent_codes])};")
        else:
            lines.append(f"  table {_comma_separated(table)};")
        lines.append("}")
    return "\n".join([*lines, ""])


def _comma_separated(probabilities: np.ndarray) -> str:
    """Return probabilities (L,) at full precision, separated by commas."""
    return ", ".join(repr(float(p)) for p in probabilities)


def _distinct_words(labels: list, prefix: str) -> list[str]:
    """Return a distinct BIF word for each label. Characters that BIF does not allow become ``_``,
    and repeated words get a number.

    `prefix` is prepended to words that do not begin with a letter.
    """
    words: list[str] = []
    used_words: set[str] = set()
    for label in labels:
        word = re.sub(r"\W", "_", str(label), flags=re.ASCII)
        word = word if word[:1].isalpha() else f"{prefix}{word}"
        candidates = itertools.chain([word], (f"{word}_{k}" for k in itertools.count(2)))
        words.append(next(w for w in candidates if w not in used_words))
        used_words.add(words[-1])
    return words
