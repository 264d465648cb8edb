"""NetworkResults: a fitted Bayesian network classifier; each method only arranges what the rooms below compute."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.families import BLOCK
from bbl.bayesnet.parameters import Recipe, fit
from bbl.bayesnet.predict import Network, class_scores, log_table
from bbl.bayesnet.sampling import draw
from bbl.capabilities import MACHINE_ONLY, NO_RESPONSE, NOT_COUNTS, OF_MACHINES, lacking
from bbl.checks import choice, generator, integer, near_match
from bbl.design.frames import to_frame
from bbl.errors import BBLError, OptionError
from bbl.names import label_index
from bbl.report.machine.summary import Summary
from bbl.report.network.plot import plot_probabilities
from bbl.report.network.summary import network_summary
from bbl.report.network.text import bif_text, structure_text
from bbl.report.page import Part, figure_html
from bbl.report.text import label_text, missing_text
from bbl.results.classifier import ClassifierResults
from bbl.results.evaluation import FIGURES
from bbl.results.explanation import Attribution
from bbl.results.model import LogLikelihood, MethodTraits, no_composite_aic, no_ratio_test, training_log_likelihood
from bbl.results.network.archive import pack, unpack
from bbl.results.network.structure import AveragedStructure, Structure, only
from bbl.results.network.tables import NetworkTables
from bbl.results.predictions import accuracy_score, importance, predict_batches, predict_rows
from bbl.results.report_page import MAX_TABLE_ROWS
from bbl.rows.sample import Rows, Sample
from bbl.stats.scores import log_probabilities

__all__ = ["NetworkResults"]

ASKED = (  # what a fitted network answers as its structure does
    "arcs", "class_var", "families", "feature_families", "features", "is_anb", "is_kde", "is_nb", "is_ode",
    "is_semi_naive", "learner", "members", "modelstring", "narcs", "score_log", "to_dot", "to_networkx", "vars",
)  # fmt: skip
LEARNT = "a network's structure is learnt"


@final
@dataclass(frozen=True, repr=False)
class NetworkResults(NetworkTables, ClassifierResults):
    """A fitted Bayesian network classifier; made by `lp` and `bnc`.

    What can be asked of its `structure` can be asked of it: ``features``, ``families``, ``feature_families``,
    ``arcs``, ``narcs``, ``modelstring``, ``vars``, ``class_var``, ``learner``, ``score_log``, ``is_nb``, ``is_ode``,
    ``is_anb``, ``is_semi_naive``, ``is_kde(k)``, ``to_networkx()``, ``to_dot()``, and ``members`` of an average.

    Attributes
    ----------
    call, design, training, index
        As in `BBLResults`.
    structure : Structure or AveragedStructure
    network : Network or Averaged
        Tables as arrays.
    recipe : Recipe
        How they were estimated.
    arc_posterior, feature_weights : ndarray, shape (m,), or None
        In the order of the model.
    stored_errors : (ndarray, ndarray) or None
        Standard errors as the model's file has them, of all tables (cells, K) and of the classes (K,).

    Examples
    --------
    >>> import bbl
    >>> from bbl import networks
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> fit.modelstring
    '[Survived] [Class|Survived] [Sex|Class:Survived] [Age|Class:Survived]'
    >>> fit.params["Sex"].round(3).head(2)  # doctest: +NORMALIZE_WHITESPACE
    Sex              Male  Female
    Class Survived
    1st   No        0.960   0.040
          Yes       0.307   0.693
    """

    structure: Structure | AveragedStructure
    network: Network | Averaged
    recipe: Recipe
    arc_posterior: np.ndarray | None = None
    feature_weights: np.ndarray | None = None
    stored_errors: tuple[np.ndarray, np.ndarray] | None = None

    kind = "network"
    refusals = lacking(
        *OF_MACHINES, *MACHINE_ONLY, "tuning", "coef", pairs=LEARNT, third_order=LEARNT, no_response=NO_RESPONSE,
        density=NO_RESPONSE, real_weights=NOT_COUNTS,
    )  # fmt: skip
    _can_refit = True

    importance = importance
    predict_batches = predict_batches
    _composite_aic = no_composite_aic
    _ratio_test = no_ratio_test

    def __getattr__(self, name: str) -> Any:
        if name not in ASKED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(self.structure, name):
            return getattr(self.structure, name)
        raise AttributeError(
            f"A single network has no {name}; of an average of networks it is a dict of structures by feature."
            if name == "members"
            else f"An average of {len(self.structure.dags)} networks has no {name}; each network in members has."
        )

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *(name for name in ASKED if hasattr(self.structure, name))}
        return sorted(names - (set() if isinstance(self.structure, Structure) else {"params_se"}))

    @property
    def classes(self) -> tuple:
        """Levels of the class."""
        return self.labels.groups

    @property
    def nparams(self) -> int:
        """Number of free parameters; of an average, those of all members."""
        return self.network.n_params

    n_parameters = nparams

    @property
    def _traits(self) -> MethodTraits:
        return MethodTraits(self.kind, self.structure.learner or "by hand")

    def values(self, var: Hashable) -> tuple:
        """Return the levels of a feature or of the class."""
        if var == self.labels.response:
            return self.classes
        if var not in self.labels.names:
            variable_names = ", ".join(map(repr, self.structure.vars[:10]))
            hint = near_match(var, self.structure.vars) or "."
            raise OptionError(f"{var!r} is no variable of the model{hint} It has {variable_names}.", argument="var")
        return self.labels.levels[self.labels.names.index(var)]

    # scores

    @property
    def class_shares(self) -> np.ndarray:
        """Estimated shares of the classes."""
        return self.network.prior

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, known features)`` (n, K) of rows encoded by ``design.encode``.

        All are alike in a row to which every class gives probability zero.
        """
        return class_scores(self.network.log_joint(codes, missing))

    def check_likelihood(self) -> None:
        """Raise nothing: every row has a likelihood."""

    def log_likelihood(self, rows: Rows) -> float:
        """Return the weighted log-likelihood of class and known features; nan if a class is missing."""
        chunks = rows.chunks(BLOCK)
        return float(sum(_own(self.network.log_joint(chunk.codes, chunk.missing), chunk) for chunk in chunks))

    def _new_rows(self, newdata: Any) -> Sample:
        """Encode new rows that have the class, too."""
        newdata = to_frame(newdata, "newdata")
        codes, missing = self.design.encode(newdata)
        y = self.design.encode_response(newdata)
        rows = Sample(codes, np.ones(len(codes)), y, missing)
        dropped = self.design.dropped(newdata)
        return rows if dropped is None else rows.rows(~dropped)

    def logLik(self, newdata: Any = None) -> LogLikelihood:
        """Return the log-likelihood of class and known features, of the training rows or of new ones.

        Missing features are summed out. It is missing (nan) if the class of a row is, and -inf if a row has
        probability zero. That of an average is the log of the mean joint probability of its members.
        """
        if newdata is None:
            return training_log_likelihood(self)
        rows = self._new_rows(newdata)
        return LogLikelihood(self.log_likelihood(rows), self.nparams, rows.n)

    def cLogLik(self, newdata: Any = None) -> float:
        """Return the conditional log-likelihood: the sum of ``ln P(class | known features)``."""
        rows = self._rows() if newdata is None else self._new_rows(newdata)
        return _own(log_probabilities(self._prior_shifted(self.class_scores(rows.codes, rows.missing))), rows)

    def score(  # type: ignore[override]  # a table may stand first, as elsewhere
        self, kind: Any = "accuracy", newdata: Any = None, weights: Any = None, *, priors: Any = None, costs: Any = None
    ) -> float:
        """Return the accuracy, or one of bnclassify's scores, of which larger is better.

        Parameters
        ----------
        kind : {"accuracy", "loglik", "aic", "bic"}, default "accuracy"
            The share of rows whose class is predicted; or the log-likelihood, less the number of free parameters, or
            less ``log(n) / 2`` for each of them; n is the number of rows, incomplete ones included. (`aic` and `bic`
            are on the usual scale, smaller is better.) A table stands for `newdata`: ``score(newdata)``.
        newdata : DataFrame, optional
            The training rows by default.
        weights, priors, costs
            Of the accuracy, as in `evaluate`.

        Returns
        -------
        float
        """
        if kind is None or not isinstance(kind, str):
            return accuracy_score(self, kind, newdata if weights is None else weights, priors=priors, costs=costs)
        if kind == "accuracy":
            return accuracy_score(self, newdata, weights, priors=priors, costs=costs)
        choice("kind", kind, ("accuracy", "loglik", "aic", "bic"))
        log_lik = self.logLik(newdata)
        each = {"loglik": 0.0, "aic": 1.0, "bic": 0.5 * float(np.log(max(log_lik.nobs, 1)))}
        return float(log_lik) - each[kind] * self.nparams

    def predict(
        self, newdata: Any = None, type: str = "prob", unseen: str = "raise", *, priors: Any = None, costs: Any = None
    ) -> pd.DataFrame | pd.Series:
        """Predict the class of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the features' columns; others are ignored. None for the training rows.
        type : {"prob", "class", "link"}, default "prob"
            Probabilities of the classes, the most likely class alone, or the log-odds of each class.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that the model does not know is an error, or its feature is summed out in that row.
        priors, costs
            Class shares in place of those of the model, and costs of wrong decisions; as of `BBLResults.predict`.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per class, then ``yhat`` (``yhat_`` beside a class of that name); for
            ``type="class"`` the classes alone. Of equally likely classes, the first is taken. A row to
            which every class gives probability zero has equal probabilities.

        Raises
        ------
        DataError, LevelError
            If columns are missing, or values are missing in spite of the policy, or unknown; they are named.
        """
        return predict_rows(self, newdata, type, unseen, priors=priors, costs=costs)

    def _attribution(self) -> Attribution:
        only(self.structure, "single sum for its scores")
        network, names = self.network, [label_text(x) for x in self.labels.names]
        assert isinstance(network, Network)  # noqa: S101  # as its structure
        terms, titles = {}, []
        for f, (i, parents) in enumerate(network.families.families):
            table = log_table(network.families.table(network.theta, f))
            terms[(*parents, i)] = np.moveaxis(table, -1, 0)
            parent_names = ", ".join(names[p] for p in parents)
            titles.append(f"{names[i]} | {parent_names}" if parent_names else names[i])
        return Attribution(titles, terms, [scope[-1:] for scope in terms], log_table(network.prior))

    def _refit(self, train: Sample, rng: np.random.Generator) -> Refitted:
        averaged = isinstance(self.network, Averaged)
        members = self.network.members if isinstance(self.network, Averaged) else (self.network,)
        dags = [member.dag for member in members]
        estimate = fit(dags, train, self.design.n_levels, len(self.classes), self.recipe, rng, averaged)
        return Refitted(estimate.network)

    @property
    def _advice(self) -> str:
        return "Fit bbl.bbl() to the same formula with calibrate='temperature'."

    # what is shown, drawn, sampled and written

    def summary(self) -> Summary:
        """Summarise the fit: its facts, every feature with its parents, and small tables.

        Returns
        -------
        Summary
            Prints as text; has HTML and LaTeX forms and ``.tables``.
        """
        facts = self._facts() | self._loss_facts()
        return network_summary(self.call, self.labels, facts, self._feature_facts(), self._shown_params())

    def _shown_params(self) -> dict[Hashable, pd.DataFrame]:
        return self.params if isinstance(self.network, Network) else {}

    def plot(self, var: Hashable = None, ax=None, *, kind: str = "graph", newdata: Any = None, weights: Any = None):
        """Draw the graph, the probabilities of one variable with their standard errors, or what predictions are worth.

        Parameters
        ----------
        var : name of a variable, optional
            By default the graph is drawn.
        ax : matplotlib Axes, optional
        kind : {"graph", "confusion", "roc", "calibration"}, default "graph"
            The graph or, with `var`, a table; or what ``evaluate(newdata, weights).plot(kind)`` draws.
        newdata, weights : optional
            As in `evaluate`; the training rows by default.

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``
        """
        if choice("kind", kind, ("graph", *FIGURES)) in FIGURES:
            return self.evaluate(newdata, weights).plot(kind, ax=ax)
        if var is None:
            return only(self.structure, "single graph").plot(ax)
        only(self.structure, "single table")
        self.values(var)
        table = self.params[var]
        errors = table * np.nan if self._errors is None else self.params_se[var]
        return plot_probabilities(var, table, errors, ax)

    def write_bif(self, path: str | os.PathLike) -> None:
        """Write the network in the Interchange Format for Bayesian Networks, which other programs read.

        Parameters
        ----------
        path : str or path-like

        Notes
        -----
        Names and levels become words of letters, digits and underscores, a number being added where two would be the
        same.
        """
        structure = only(self.structure, "single network to write")
        network = self.network
        assert isinstance(network, Network)  # noqa: S101  # as its structure
        labels = self.labels
        tables: dict[Hashable, np.ndarray] = {labels.response: network.prior}
        for f, i in enumerate(network.dag.features):
            tables[labels.names[i]] = np.moveaxis(network.families.table(network.theta, f), -2, -1)
        levels = {**dict(zip(labels.names, labels.levels, strict=True)), labels.response: labels.groups}
        Path(path).write_text(bif_text(structure.families, levels, tables), encoding="utf-8")

    def sample(self, n: int, seed: int | np.random.Generator | None = 0) -> pd.DataFrame:
        """Draw `n` rows of class and features, as categories with all their levels.

        The classes have the model's `priors`, or the shares of the training rows.
        """
        y, codes = draw(self.network, self.shares_in_use, integer("n", n, 0), generator(seed))
        labels = self.labels
        columns = {labels.response: (y, labels.groups)}
        columns |= {name: (codes[:, i], labels.levels[i]) for i, name in enumerate(labels.names)}
        return pd.DataFrame(
            {
                name: pd.Categorical.from_codes(column.astype(np.intp), label_index(levels))
                for name, (column, levels) in columns.items()
            }
        )

    def _model_parts(self) -> list[Part]:
        try:
            figure = self.plot().figure
        except BBLError as error:  # an average of networks
            return [Part("Structure", [str(error)])]
        is_small = len(self.labels.names) <= MAX_TABLE_ROWS
        alt = f"Graph of the network {self.modelstring}" if is_small else "Graph of the network"
        return [Part("Structure", html=[figure_html(figure, alt, "The class is a parent of every feature.")])]

    # the file

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return what the model file holds."""
        return pack(self, store_data)

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> NetworkResults:
        """Return the model of `pack`."""
        return cls(**unpack(meta, arrays))

    def __repr__(self) -> str:
        structure = self.structure
        narcs = structure.narcs if isinstance(structure, Structure) else None
        members = None if isinstance(structure, Structure) else len(structure.dags)
        n = len(structure.features)
        head = structure_text(
            structure.class_var, n, structure.learner, narcs=narcs, members=members, nparams=self.nparams
        )
        incomplete = self.design.incomplete
        text = head + (f"\n\nMissing values: {missing_text(self.design.missing, incomplete)}" if incomplete else "")
        return text + self._loss_text()


@dataclass(frozen=True)
class Refitted:
    """A network with the interface of cross-validation."""

    network: Network | Averaged

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K)."""
        return class_scores(self.network.log_joint(codes, missing))


def _own(log_p: np.ndarray, rows: Sample) -> float:
    """Return the weighted sum of each row's entry for its class; nan if one is unknown."""
    if (rows.response < 0).any():
        return float("nan")
    return float(rows.weights @ log_p[np.arange(rows.n), rows.response])
