"""NetworkResults: a fitted Bayesian network classifier; its methods label and print what `bbl.bayesnet` computes.

The *class* y is the response, one of K levels; the m other variables are the *features*. A *family* is a feature with
its feature parents; the class is a parent of every feature. An *average* is a mixture of several networks, its
*members*, with equal weights. *Codes* are levels as integers, *missing* a mask of the codes that are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged, Refitted
from bbl.bayesnet.families import BLOCK
from bbl.bayesnet.parameters import Recipe, fit
from bbl.bayesnet.predict import Network, class_scores, log_table, sum_at_class
from bbl.bayesnet.sampling import draw
from bbl.capabilities import MACHINE_ONLY, NO_RESPONSE, NOT_COUNTS, OF_MACHINES, lacking
from bbl.checks import choice, generator, integer, near_match
from bbl.design.frames import to_frame
from bbl.errors import BBLError, OptionError
from bbl.report.machine.summary import Summary
from bbl.report.machine.tables import category_frame
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
from bbl.results.network.structure import AveragedStructure, Structure, require_single
from bbl.results.network.tables import NetworkTables
from bbl.results.predictions import accuracy_score, importance, predict_batches, predict_rows
from bbl.results.report_page import MAX_TABLE_ROWS
from bbl.rows.sample import Rows, Sample
from bbl.stats.scores import log_probabilities

__all__ = ["NetworkResults"]

FROM_STRUCTURE = (  # attributes that a fitted network takes from its structure
    "arcs", "class_var", "families", "feature_families", "features", "is_anb", "is_kde", "is_nb", "is_ode",
    "is_semi_naive", "learner", "members", "modelstring", "narcs", "score_log", "to_dot", "to_networkx", "vars",
)  # fmt: skip
STRUCTURE_LEARNT = "a network's structure is learnt"


@final
@dataclass(frozen=True, repr=False)
class NetworkResults(NetworkTables, ClassifierResults):
    """A fitted Bayesian network classifier; made by `lp` and `bnc`.

    The fit has these attributes of its `structure` too: ``features``, ``families``, ``feature_families``, ``arcs``,
    ``narcs``, ``modelstring``, ``vars``, ``class_var``, ``learner``, ``score_log``, ``is_nb``, ``is_ode``, ``is_anb``,
    ``is_semi_naive``, ``is_kde(k)``, ``to_networkx()``, ``to_dot()``, and, if networks are averaged, ``members``.

    Attributes
    ----------
    call, design, training, index
        As in `BBLResults`.
    structure : Structure or AveragedStructure
    network : Network or Averaged
        The structure with its probability tables, as arrays.
    recipe : Recipe
        Options by which the probabilities were estimated.
    arc_posterior : ndarray, shape (m,), or None
        Posterior probability of the arc from the class to each feature (MANB), features in the order of `features`.
    feature_weights : ndarray, shape (m,), or None
        Weight of each feature (WANBIA, AWNB), in the same order.
    stored_errors : (ndarray, ndarray) or None
        Standard errors that were read from a model file: of the tables of all families (cells, K), and of the class
        probabilities (K,).

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
        *OF_MACHINES, *MACHINE_ONLY, "tuning", "coef", pairs=STRUCTURE_LEARNT, third_order=STRUCTURE_LEARNT,
        no_response=NO_RESPONSE, density=NO_RESPONSE, real_weights=NOT_COUNTS,
    )  # fmt: skip
    _can_refit = True

    importance = importance
    predict_batches = predict_batches
    _composite_aic = no_composite_aic
    _ratio_test = no_ratio_test

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the structure, if `name` is one of `FROM_STRUCTURE`."""
        if name not in FROM_STRUCTURE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(self.structure, name):
            return getattr(self.structure, name)
        raise AttributeError(
            f"A single network has no {name}; of an average of networks it is a dict of structures by feature."
            if name == "members"
            else f"An average of {len(self.structure.dags)} networks has no {name}; each network in members has."
        )

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *(name for name in FROM_STRUCTURE if hasattr(self.structure, name))}
        return sorted(names if isinstance(self.structure, Structure) else names - {"params_se"})

    @property
    def classes(self) -> tuple:
        """Levels of the class."""
        return self.labels.groups

    @property
    def nparams(self) -> int:
        """Number of free parameters; for an average, the sum over its members."""
        return self.network.n_params

    n_parameters = nparams

    @property
    def _traits(self) -> MethodTraits:
        """Kind and learner of the network, for averages and tables of fits."""
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
        """Estimated class probabilities, shape (K,)."""
        return self.network.prior

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, known features)``, shape (n, K), for rows (n, m) encoded by ``design.encode``.

        A row that has probability zero in every class gets K equal scores.
        """
        return class_scores(self.network.log_joint(codes, missing))

    def check_likelihood(self) -> None:
        """Raise nothing: every row has a likelihood."""

    def log_likelihood(self, rows: Rows) -> float:
        """Return the weighted log-likelihood of class and known features; nan if the class of a row is missing."""
        chunks = rows.chunks(BLOCK)
        return float(sum(sum_at_class(self.network.log_joint(c.codes, c.missing), c) for c in chunks))

    def _new_rows(self, newdata: Any) -> Sample:
        """Encode a table of features and class; rows that the design drops for missing values are left out."""
        newdata = to_frame(newdata, "newdata")
        codes, missing = self.design.encode(newdata)
        y = self.design.encode_response(newdata)
        rows = Sample(codes, np.ones(len(codes)), y, missing)
        is_dropped = self.design.dropped(newdata)
        return rows if is_dropped is None else rows.rows(~is_dropped)

    def logLik(self, newdata: Any = None) -> LogLikelihood:
        """Return the log-likelihood of class and known features, for the training rows or new rows.

        Missing features are summed out. The result is nan if the class of a row is missing, and -inf if a row has
        probability zero. The joint probability under an average is the mean over its members.
        """
        if newdata is None:
            return training_log_likelihood(self)
        rows = self._new_rows(newdata)
        return LogLikelihood(self.log_likelihood(rows), self.nparams, rows.n)

    def cLogLik(self, newdata: Any = None) -> float:
        """Return the conditional log-likelihood: the weighted sum of ``ln P(class | known features)``.

        Priors of the classes are those that predictions use. The result is nan if the class of a row is missing.
        """
        rows = self._rows() if newdata is None else self._new_rows(newdata)
        scores = self._prior_shifted(self.class_scores(rows.codes, rows.missing))
        return sum_at_class(log_probabilities(scores), rows)

    def score(  # type: ignore[override]  # `kind` may be the table, as in score(newdata) of other models
        self, kind: Any = "accuracy", newdata: Any = None, weights: Any = None, *, priors: Any = None, costs: Any = None
    ) -> float:
        """Return the accuracy, or a score of the R package bnclassify; larger is better.

        Parameters
        ----------
        kind : {"accuracy", "loglik", "aic", "bic"}, default "accuracy"
            The share of rows whose class is predicted; the log-likelihood; the log-likelihood minus the number of free
            parameters; or minus ``log(n) / 2`` times that number, where n counts all rows, incomplete ones included.
            (The attributes `aic` and `bic` are on the usual scale: smaller is better.) ``score(newdata)`` with a table
            is the accuracy on it.
        newdata : DataFrame, optional
            The training rows by default.
        weights, priors, costs
            For the accuracy, as in `evaluate`.

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
        penalty_per_parameter = {"loglik": 0.0, "aic": 1.0, "bic": 0.5 * float(np.log(max(log_lik.nobs, 1)))}
        return float(log_lik) - penalty_per_parameter[kind] * self.nparams

    def predict(
        self, newdata: Any = None, type: str = "prob", unseen: str = "raise", *, priors: Any = None, costs: Any = None
    ) -> pd.DataFrame | pd.Series:
        """Predict the class of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the features' columns; other columns are ignored. None for the training rows.
        type : {"prob", "class", "link"}, default "prob"
            Probabilities of the classes, the most likely class, or the log-odds of each class.
        unseen : {"raise", "ignore"}, default "raise"
            Whether a level that was not in the training rows is an error, or counts as a missing value, which is
            summed out.
        priors, costs
            Class shares in place of the model's, and costs of wrong decisions; as in `BBLResults.predict`.

        Returns
        -------
        DataFrame or Series
            On the index of `newdata`: one column per class, then ``yhat`` (``yhat_`` beside a class of that name); for
            ``type="class"`` the classes alone. Among equally likely classes the first is predicted. A row that has
            probability zero in every class gets equal class probabilities.

        Raises
        ------
        DataError, LevelError
            If columns are missing, values are missing although the model forbids it, or levels are unknown.
        """
        return predict_rows(self, newdata, type, unseen, priors=priors, costs=costs)

    def _attribution(self) -> Attribution:
        """Return ``ln P(y, x)`` as a sum: the log prior, plus one table of log probabilities for each family.

        A table has the axes (class, parents..., feature), and is attributed to its feature alone.
        """
        require_single(self.structure, "single sum for its scores")
        network, names = self.network, [label_text(x) for x in self.labels.names]
        assert isinstance(network, Network)  # noqa: S101  # a Structure has a single Network
        tables, titles = {}, []
        for f, (i, parents) in enumerate(network.families.families):
            log_p = log_table(network.families.table(network.theta, f))
            tables[(*parents, i)] = np.moveaxis(log_p, -1, 0)
            parent_names = ", ".join(names[p] for p in parents)
            titles.append(f"{names[i]} | {parent_names}" if parent_names else names[i])
        return Attribution(titles, tables, [variables[-1:] for variables in tables], log_table(network.prior))

    def _refit(self, train: Sample, rng: np.random.Generator) -> Refitted:
        """Estimate the probabilities of the same graphs from the rows `train`."""
        averaged = isinstance(self.network, Averaged)
        members = self.network.members if isinstance(self.network, Averaged) else (self.network,)
        dags = [member.dag for member in members]
        return Refitted(fit(dags, train, self.design.n_levels, len(self.classes), self.recipe, rng, averaged).network)

    @property
    def _advice(self) -> str:
        """What to try if the network predicts worse than the shares of the classes."""
        return "Fit bbl.bbl() to the same formula with calibrate='temperature'."

    # summary, figures, samples, exports

    def summary(self) -> Summary:
        """Summarise the fit: key figures, every feature with its parents, and the smaller probability tables.

        Returns
        -------
        Summary
            Prints as text; has HTML and LaTeX forms and ``.tables``.
        """
        facts = self._facts() | self._loss_facts()
        params = self.params if isinstance(self.network, Network) else {}
        return network_summary(self.call, self.labels, facts, self._feature_facts(), params)

    def plot(self, var: Hashable = None, ax=None, *, kind: str = "graph", newdata: Any = None, weights: Any = None):
        """Draw the graph, the probabilities of one variable with their standard errors, or the quality of predictions.

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
        """
        if choice("kind", kind, ("graph", *FIGURES)) in FIGURES:
            return self.evaluate(newdata, weights).plot(kind, ax=ax)
        if var is None:
            return require_single(self.structure, "single graph").plot(ax)
        require_single(self.structure, "single table")
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
        Characters of names and levels other than letters, digits and underscores are replaced, and a number is added
        where two names would become equal.
        """
        structure = require_single(self.structure, "single network to write")
        network, labels = self.network, self.labels
        assert isinstance(network, Network)  # noqa: S101  # a Structure has a single Network
        tables: dict[Hashable, np.ndarray] = {labels.response: network.prior}
        for f, i in enumerate(network.dag.features):
            tables[labels.names[i]] = np.moveaxis(network.families.table(network.theta, f), -2, -1)
        levels = {**dict(zip(labels.names, labels.levels, strict=True)), labels.response: labels.groups}
        Path(path).write_text(bif_text(structure.families, levels, tables), encoding="utf-8")

    def sample(self, n: int, seed: int | np.random.Generator | None = 0) -> pd.DataFrame:
        """Draw `n` rows of class and features, as categorical columns with all levels.

        The class probabilities are the model's `priors`, or else the estimated shares of the classes.
        """
        y, codes = draw(self.network, self.shares_in_use, integer("n", n, 0), generator(seed))
        labels = self.labels
        columns = {labels.response: (y, labels.groups)}
        columns |= {name: (codes[:, i], labels.levels[i]) for i, name in enumerate(labels.names)}
        return category_frame(columns, pd.RangeIndex(len(y)))

    def _model_parts(self) -> list[Part]:
        """Return the part of the HTML report with the graph, or with a message if networks are averaged."""
        try:
            figure = self.plot().figure
        except BBLError as error:
            return [Part("Structure", [str(error)])]
        is_small = len(self.labels.names) <= MAX_TABLE_ROWS
        alt = f"Graph of the network {self.modelstring}" if is_small else "Graph of the network"
        return [Part("Structure", html=[figure_html(figure, alt, "The class is a parent of every feature.")])]

    # the file

    def pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of the model file: names and options as a dict, numbers as arrays."""
        return pack(self, store_data)

    @classmethod
    def unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> NetworkResults:
        """Return the model that `pack` stored."""
        return cls(**unpack(meta, arrays))

    def __repr__(self) -> str:
        structure, incomplete = self.structure, self.design.incomplete
        n_arcs = structure.narcs if isinstance(structure, Structure) else None
        n_networks = None if isinstance(structure, Structure) else len(structure.dags)
        text = structure_text(
            structure.class_var, len(structure.features), structure.learner, n_arcs, n_networks, self.nparams
        )
        text += f"\n\nMissing values: {missing_text(self.design.missing, incomplete)}" if incomplete else ""
        return text + self._loss_text()
