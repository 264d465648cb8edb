"""Levels, figures, draws and files of fitted Bayesian networks: methods of `NetworkResults`."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.predict import Network
from bbl.bayesnet.sampling import draw
from bbl.checks import choice, generator, integer, near_match
from bbl.choices import EvaluationFigure
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.report.machine.tables import category_frame
from bbl.report.network.plot import plot_probabilities
from bbl.results.evaluation import FIGURES, Evaluation
from bbl.results.network.structure import AveragedStructure, Structure, require_single
from bbl.results.network.tables import interchange_text

__all__ = ["plot", "sample", "values", "write_bif"]


class FittedNetwork(Protocol):
    """The attributes of a `NetworkResults` that its methods in this file use; K is the number of
    classes.

    Attributes
    ----------
    structure : Structure or AveragedStructure
        The graph, or the graphs of an average of networks.
    network : Network or Averaged
        The graph or graphs with their probability tables, as arrays.
    labels : Labels
        Names of the class (``labels.response``, its levels ``labels.groups``) and of the features
        with their levels.
    families : dict
        For each variable: the variable, its feature parents, the class.
    shares_in_use : ndarray, shape (K,)
        Class probabilities: those that the user gave as priors, or else the estimated ones.
    params, params_se : dict of DataFrame
        For each variable, its probability table and the standard errors.
    _errors : (ndarray, ndarray) or None
        Standard errors as arrays; None if there are none.

    The method ``_require_network(noun)`` returns the network, or raises an OptionError if networks
    are averaged: an average has no such `noun`.
    """

    @property
    def structure(self) -> Structure | AveragedStructure: ...

    @property
    def network(self) -> Network | Averaged: ...

    @property
    def labels(self) -> Labels: ...

    @property
    def families(self) -> dict[Hashable, tuple[Any, ...]]: ...

    @property
    def shares_in_use(self) -> np.ndarray: ...

    @property
    def params(self) -> dict[Hashable, Any]: ...

    @property
    def params_se(self) -> dict[Hashable, pd.DataFrame]: ...

    @property
    def _errors(self) -> tuple[np.ndarray, np.ndarray] | None: ...

    def values(self, var: Hashable) -> tuple[Any, ...]: ...

    def evaluate(self, newdata: object = None, weights: Any = None) -> Evaluation: ...

    def _require_network(self, noun: str) -> Network: ...


def values(self: FittedNetwork, var: Hashable) -> tuple[Any, ...]:
    """Return the levels of a feature or of the class.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> fit.values("Class")
    ('1st', '2nd', '3rd', 'Crew')
    """
    if var == self.labels.response:
        return self.labels.groups
    if var not in self.labels.names:
        variable_names = ", ".join(map(repr, self.structure.vars[:10]))
        # "; did you mean 'x'?", or "" if no name is close
        near = near_match(var, self.structure.vars)
        raise OptionError(
            f"{var!r} is not a variable of the model.",
            argument="var",
            hint=f"{near}Choose one of {variable_names}.",
        )
    return self.labels.levels[self.labels.names.index(var)]


def plot(
    self: FittedNetwork,
    var: Hashable = None,
    ax: Any = None,
    *,
    kind: Literal["graph"] | EvaluationFigure = "graph",
    newdata: Any = None,
    weights: Any = None,
) -> Any:
    """Draw the graph, the probabilities of one variable with their standard errors, or the quality
    of predictions.

    Parameters
    ----------
    var : name of a variable, optional
        Variable whose probabilities are drawn; by default the graph is drawn.
    ax : matplotlib Axes, optional
    kind : {"graph", "confusion", "roc", "calibration"}, default "graph"
        ``"graph"``: the graph, or the probabilities of `var`. Others: the figure of
        ``evaluate(newdata, weights).plot(kind)``.
    newdata, weights : optional
        As in `evaluate`; the training rows by default.

    Returns
    -------
    matplotlib Axes, or a list of them for ``"calibration"``

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> axis = fit.plot("Sex")
    >>> plt.close()
    """
    if choice("kind", kind, ("graph", *FIGURES)) in FIGURES:
        return self.evaluate(newdata, weights).plot(cast(EvaluationFigure, kind), ax=ax)
    if var is None:
        return require_single(self.structure, "single graph").plot(ax)
    require_single(self.structure, "single table")  # raises an OptionError for an average
    self.values(var)  # raises an OptionError for an unknown variable
    table = self.params[var]
    errors = table * np.nan if self._errors is None else self.params_se[var]  # nan: no error bars
    return plot_probabilities(var, table, errors, ax)


def write_bif(self: FittedNetwork, path: str | os.PathLike[str]) -> None:
    """Write the network in the Interchange Format for Bayesian Networks, which other programs read.

    Parameters
    ----------
    path : str or path-like

    Notes
    -----
    Characters of names and levels other than letters, digits and underscores are replaced, and a
    number is added where two names would become equal.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.write_bif(Path(folder, "titanic.bif"))
    ...     Path(folder, "titanic.bif").read_text(encoding="utf-8").splitlines()[0]
    'network bbl {'
    """
    network = self._require_network("single network to write")
    Path(path).write_text(interchange_text(self.labels, self.families, network), encoding="utf-8")


def sample(self: FittedNetwork, n: int, seed: int | np.random.Generator | None = 0) -> pd.DataFrame:
    """Draw `n` rows of class and features, as categorical columns with all levels.

    The class probabilities are the model's `priors`, or else the estimated shares of the classes.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> fit.sample(2, seed=1)
      Survived Class   Sex    Age
    0       No   2nd  Male  Adult
    1      Yes  Crew  Male  Adult
    """
    # level codes of the class (n,) and of the m features (n, m)
    y, codes = draw(self.network, self.shares_in_use, integer("n", n, 0), generator(seed))
    labels = self.labels
    columns = {labels.response: (y, labels.groups)}
    columns |= {name: (codes[:, i], labels.levels[i]) for i, name in enumerate(labels.names)}
    return category_frame(columns, pd.RangeIndex(len(y)))
