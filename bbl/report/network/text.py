"""Structures and networks as text: what a printed classifier says, and the exchange format BIF."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bbl.report.format import label_text

__all__ = ["bif_text", "structure_text"]


def structure_text(
    class_var: Hashable,
    n_features: int,
    learner: str | None,
    *,
    narcs: int | None = None,
    members: int | None = None,
    nparams: int | None = None,
) -> str:
    """Return a Bayesian network classifier as text, in R's layout.

    Examples
    --------
    >>> print(structure_text("class", 6, "nb", narcs=6))
      Bayesian network classifier
    <BLANKLINE>
      class variable:        class
      num. features:   6
      num. arcs:   6
      learning algorithm:    nb
    """
    lines = ["  Bayesian network classifier", "", f"  class variable:        {label_text(class_var)}"]
    lines.append(f"  num. features:   {n_features}")
    if narcs is not None:
        lines.append(f"  num. arcs:   {narcs}")
    if members is not None:
        lines.append(f"  num. networks:   {members}")
    if nparams is not None:
        lines.append(f"  free parameters:   {nparams}")
    if learner is not None:
        lines.append(f"  learning algorithm:    {learner}")
    return "\n".join(lines)


def bif_text(
    families: Mapping[Hashable, tuple], levels: Mapping[Hashable, Sequence], tables: Mapping[Hashable, np.ndarray]
) -> str:
    """Return a network in the Interchange Format for Bayesian Networks.

    Parameters
    ----------
    families : mapping of name to tuple
        Each variable: itself, then its parents.
    levels : mapping of name to sequence
    tables : mapping of name to ndarray
        Probabilities with the axes (parents..., variable).

    Returns
    -------
    str
        Names and levels are made of letters, digits and underscores, as readers of the format want them; what that
        makes equal gets a number.
    """
    names = dict(zip(families, _words(list(families), "v"), strict=True))
    words = {name: _words(list(levels[name]), "s") for name in families}
    lines = ["network bbl {", "}"]
    for name in families:
        lines += [
            f"variable {names[name]} {{",
            f"  type discrete [ {len(words[name])} ] {{ {', '.join(words[name])} }};",
            "}",
        ]
    for name, (_, *parents) in families.items():
        parents_text = f" | {', '.join(names[p] for p in parents)}" if parents else ""
        lines.append(f"probability ( {names[name]}{parents_text} ) {{")
        table = tables[name]
        if parents:
            for cell in np.ndindex(table.shape[:-1]):
                state = ", ".join(words[p][k] for p, k in zip(parents, cell, strict=True))
                lines.append(f"  ({state}) {_row(table[cell])};")
        else:
            lines.append(f"  table {_row(table)};")
        lines.append("}")
    return "\n".join([*lines, ""])


def _row(values: Any) -> str:
    return ", ".join(repr(float(v)) for v in values)


def _words(labels: list, letter: str) -> list[str]:
    """Return a word of its own for each label."""
    used_words: set[str] = set()
    out = []
    for label in labels:
        word = re.sub(r"\W", "_", str(label), flags=re.ASCII)
        word = word if word[:1].isalpha() else f"{letter}{word}"
        free = (w for w in itertools.chain([word], (f"{word}_{k}" for k in itertools.count(2))) if w not in used_words)
        out.append(next(free))
        used_words.add(out[-1])
    return out
