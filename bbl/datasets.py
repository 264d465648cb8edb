"""Readers of the small data sets that are shipped with the package (files in bbl.data)."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

__all__ = ["load_genetic_code", "load_titanic"]

_TITANIC_LEVELS = {
    "Class": ["1st", "2nd", "3rd", "Crew"],
    "Sex": ["Male", "Female"],
    "Age": ["Child", "Adult"],
    "Survived": ["No", "Yes"],
}


def _read(name: str) -> pd.DataFrame:
    """Return the shipped file `name`; no text in it means "missing"."""
    with files("bbl.data").joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False)


def load_titanic() -> pd.DataFrame:
    """Return the people on board the Titanic, counted by class, sex, age and fate (base R's ``Titanic``).

    Returns
    -------
    DataFrame, shape (32, 5)
        Unordered categorical columns ``Class``, ``Sex``, ``Age``, ``Survived`` with R's declared levels, and
        ``Freq``, the number of people: pass it as ``weights="Freq"``. Eight cells are empty (``Freq`` 0).

    Notes
    -----
    Source: Dawson (1995), doi:10.1080/10691898.1995.11910499; the example of Woo & Wang (2022), section 3.1.

    Examples
    --------
    >>> titanic = load_titanic()
    >>> titanic.head(3)
      Class   Sex    Age Survived  Freq
    0   1st  Male  Child       No     0
    1   2nd  Male  Child       No     0
    2   3rd  Male  Child       No    35
    >>> int(titanic["Freq"].sum())
    2201
    """
    table = _read("titanic.csv")
    return table.astype({name: pd.CategoricalDtype(levels) for name, levels in _TITANIC_LEVELS.items()})


def load_genetic_code() -> pd.DataFrame:
    """Return the standard genetic code, one row per codon.

    Returns
    -------
    DataFrame, shape (64, 4)
        Text columns ``b1``, ``b2``, ``b3``, the bases (``a``, ``c``, ``g``, ``t``), and ``aa``, the amino acid in
        the one-letter code or ``*`` for a stop.

    Notes
    -----
    The response and predictors of the codon example of Woo & Wang (2022), section 3.4.

    Examples
    --------
    >>> code = load_genetic_code()
    >>> code.query("b1 == 'a' and b2 == 't'")
       b1 b2 b3 aa
    12  a  t  a  I
    13  a  t  c  I
    14  a  t  g  M
    15  a  t  t  I
    """
    return _read("genetic_code.csv")
