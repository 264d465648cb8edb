"""NetworkResults: a fitted Bayesian network classifier.

The *class* y is the response, one of K levels; the m other variables are the *features*. A *family*
is a feature with its feature parents. An *average* is an equally weighted mixture of several
networks, its *members*.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, cast, final, overload

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged, Refitted
from bbl.bayesnet.families import BLOCK
from bbl.bayesnet.information import pair_information
from bbl.bayesnet.parameters import Recipe, draw_tables, standard_errors
from bbl.bayesnet.parameters import fit as fit_tables
from bbl.bayesnet.predict import Network, class_scores, sum_at_class
from bbl.bayesnet.sampling import draw
from bbl.capabilities import (
    MACHINE_ONLY,
    NO_RESPONSE,
    NOT_COUNTS,
    OF_MACHINES,
    MethodTraits,
    lacking,
)
from bbl.checks import choice, generator, integer, near_match
from bbl.choices import EvaluationFigure, PredictionType, Unseen
from bbl.design.decisions import Decisions
from bbl.design.design import Design
from bbl.design.frames import to_frame
from bbl.errors import BBLError, OptionError
from bbl.report.explore.interactions import Pair, interactions_html
from bbl.report.explore.score_model import ScoreModel
from bbl.report.machine.summary import Summary
from bbl.report.machine.tables import category_frame
from bbl.report.markup import Section
from bbl.report.network.plot import plot_probabilities
from bbl.report.network.summary import network_summary
from bbl.report.notebook import first_rows
from bbl.report.page import Part, figure_html
from bbl.report.text import label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import loss_text
from bbl.results.deprecated import Deprecated
from bbl.results.evaluation import FIGURES
from bbl.results.explanation import Attribution
from bbl.results.log_likelihood import LogLikelihood
from bbl.results.network.archive import pack, unpack
from bbl.results.network.facts import feature_facts, network_facts, network_text
from bbl.results.network.structure import AveragedStructure, SingleGraph, Structure, require_single
from bbl.results.network.tables import (
    attribution,
    cell_tables,
    interchange_text,
    label_by_feature,
    network_scores,
)
from bbl.results.report_page import MAX_TABLE_ROWS
from bbl.rows.sample import Rows, Sample
from bbl.stats.metrics import log_probabilities

__all__ = ["NetworkResults"]

# attributes that are not available for averages of networks
OF_SINGLE_NETWORKS = {
    "params_se",
    *(name for name in vars(SingleGraph) if not name.startswith("_")),
}
STRUCTURE_LEARNT = "the structure of a network is learnt from the data"


@final
@dataclass(frozen=True, repr=False)
class NetworkResults(SingleGraph, ClassifierResults):
    """A fitted Bayesian network classifier, as returned by `lp` and `bnc`.

    The fit also has the attributes of its `structure`: for a single network, the attributes of its
    graph, such as ``families``, ``arcs``, ``modelstring``, ``is_nb`` and ``to_dot()``; for an
    average of networks, ``members``.

    Attributes
    ----------
    call, design, training, index, priors
        As in `BBLResults`.
    structure : Structure or AveragedStructure
    network : Network or Averaged
        The structure with its tables: ``prior`` (K,), ``theta`` (cells, K); ``log_joint`` of rows
        has shape (n, K).
    recipe : Recipe
        Options of the estimates; ``recipe.plain`` is True if they are neither averaged nor
        weighted. For estimates without AWNB, ``recipe.awnb`` is None; without WANBIA,
        ``recipe.wanbia`` is False.
    arc_posterior : ndarray, shape (m,), or None
        Posterior probability of the arc from the class to each feature (MANB), in the order of
        `features`.
    feature_weights : ndarray, shape (m,), or None
        Weight of each feature (WANBIA, AWNB), in the same order.

    Examples
    --------
    >>> import bbl
    >>> from bbl import networks
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> fit.modelstring
    '[Survived] [Class|Survived] [Sex|Class:Survived] [Age|Class:Survived]'
    >>> fit.params["Sex"].round(3).head(2)  # doctest: +NORMALIZE_WHITESPACE
    Sex             Female   Male
    Class Survived
    1st   No         0.040  0.960
          Yes        0.693  0.307
    """

    structure: Structure | AveragedStructure
    network: Network | Averaged
    recipe: Recipe
    arc_posterior: np.ndarray | None = None
    feature_weights: np.ndarray | None = None
    # standard errors from a model file, for the tables of all families (cells, K) and the class
    # probabilities (K,)
    _stored_errors: tuple[np.ndarray, np.ndarray] | None = None

    _kind = "network"
    _refusals = lacking(  # capabilities that networks lack, some with the reason
        *OF_MACHINES,
        *MACHINE_ONLY,
        "numeric",
        "tuning",
        "coef",
        pairs=STRUCTURE_LEARNT,
        third_order=STRUCTURE_LEARNT,
        no_response=NO_RESPONSE,
        density=NO_RESPONSE,
        real_weights=NOT_COUNTS,
        effects="No covariance matrix is available for the probability tables of networks",
    )
    _can_refit = True

    stored_errors = Deprecated("_stored_errors", "params_se")

    # the structure

    def _single_graph(self, attribute: str) -> Structure:
        """Return the graph.

        Raises an AttributeError for an average of networks, which does not have this `attribute`.
        """
        if isinstance(self.structure, Structure):
            return self.structure
        raise AttributeError(
            f"An average of {len(self.structure.dags)} networks has no {attribute}. Each network "
            "in members has one."
        )

    def __dir__(self) -> list[str]:
        """Return the names of the attributes that apply to this model, i.e. to an average or a
        single network.
        """
        hidden = {"members"} if isinstance(self.structure, Structure) else OF_SINGLE_NETWORKS
        return sorted({*super().__dir__()} - hidden)

    def _require_network(self, noun: str) -> Network:
        """Return the network.

        Raises an OptionError for an average of networks, which does not have this `noun`.
        """
        require_single(self.structure, noun)
        return cast(Network, self.network)

    @property
    def members(self) -> dict[Hashable, Structure]:
        """Graphs of an average, by the name of the feature that is the parent of all others."""
        if isinstance(self.structure, AveragedStructure):
            return self.structure.members
        raise AttributeError(
            "A single network has no members. For an average of networks, members is a dict that "
            "maps features to structures."
        )

    @property
    def learner(self) -> str | None:
        """Name of the learner, or None if the structure was specified by the user."""
        return self.structure.learner

    @property
    def score_log(self) -> tuple[float, ...]:
        """Accuracy of the structure at each step of a greedy search, averaged over the folds."""
        return self.structure.score_log

    @property
    def class_var(self) -> Hashable:
        """Name of the class."""
        return self.structure.class_var

    @property
    def features(self) -> tuple[Any, ...]:
        """Names of the features, in the order of the graph."""
        return self.structure.features

    @property
    def vars(self) -> tuple[Any, ...]:
        """Names of the class and the features."""
        return self.structure.vars

    @property
    def classes(self) -> tuple[Any, ...]:
        """Levels of the class."""
        return self.labels.groups

    @property
    def nparams(self) -> int:
        """Number of free parameters; for an average, the sum over the members."""
        return self.network.n_params

    n_parameters = nparams

    @property
    def _traits(self) -> MethodTraits:
        """Kind and learner of the network, for averages and tables of fits."""
        return MethodTraits(name=self._kind, learner=self.structure.learner or "by hand")

    # probability tables

    @cached_property
    def params(self) -> dict[Hashable, Any]:
        """Probability table of each variable, with one row for each parent configuration and one
        column for each level.

        For an average, this is a dict with the tables of each member.
        """
        if isinstance(self.network, Averaged):
            networks = zip(self.members, self.network.members, strict=True)
            return {
                name: cell_tables(self.labels, network, network.theta, network.prior)
                for name, network in networks
            }
        return cell_tables(self.labels, self.network, self.network.theta, self.network.prior)

    @cached_property
    def params_se(self) -> dict[Hashable, pd.DataFrame]:
        """Standard errors of `params`: standard deviations of the Dirichlet posterior, or nan if
        not available.
        """
        network = self._require_network("standard errors")
        if self._errors is None:
            raise OptionError(
                "Tables that were averaged or weighted (MANB, WANBIA, AWNB) have no "
                "Dirichlet posterior, so they have no standard errors.",
                hint="Fit without manb_prior, wanbia, awnb_trees or awnb_bootstrap.",
            )
        return cell_tables(self.labels, network, *self._errors)

    @cached_property
    def _errors(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Standard errors of all tables (cells, K) and of the class probabilities (K,), or None."""
        if (
            self._stored_errors is not None
            or not self.recipe.plain
            or isinstance(self.network, Averaged)
        ):
            return self._stored_errors  # None unless they are in the model file
        return standard_errors(self.network, self._rows(), self.recipe.smooth)

    @property
    def manb_arc_posterior(self) -> pd.Series | None:
        """Posterior probability of the arc from the class to each feature (MANB), or None in other
        fits.
        """
        return label_by_feature(self.features, self.arc_posterior)

    @property
    def awnb_weights(self) -> pd.Series | None:
        """Weight of each feature from decision trees (AWNB), or None in other fits."""
        return (
            None
            if self.recipe.awnb is None
            else label_by_feature(self.features, self.feature_weights)
        )

    @property
    def wanbia_weights(self) -> pd.Series | None:
        """Weight of each feature by WANBIA, or None in other fits."""
        return (
            None
            if self.recipe.wanbia is False
            else label_by_feature(self.features, self.feature_weights)
        )

    # scores

    @property
    def _bootstrap_members(self) -> tuple[tuple[NetworkResults, float]]:
        """This fit, with weight 1, since it is the only one that a bootstrap refits."""
        return ((self, 1.0),)

    @property
    def class_shares(self) -> np.ndarray:
        """Estimated class probabilities, shape (K,)."""
        return self.network.prior

    def _class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, known features)``, shape (n, K), for rows (n, m) encoded by
        ``design.encode``.

        If the probability of a row is zero in every class, its K scores are equal.
        """
        # the function of `bbl.bayesnet`
        return class_scores(self.network.log_joint(codes, missing))

    def _check_likelihood(self) -> None:
        """Do nothing, because this kind of model always defines a likelihood of rows."""

    def _log_likelihood_of(self, rows: Rows) -> float:
        """Return the weighted log-likelihood of the class and the known features, or nan if the
        class is missing in any row.
        """
        chunks = rows.chunks(BLOCK)  # chunks of `BLOCK` rows, or all rows if they are in memory
        return float(
            sum(
                sum_at_class(self.network.log_joint(chunk.codes, chunk.missing), chunk)
                for chunk in chunks
            )
        )

    @overload
    def predict(
        self,
        newdata: object,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        *,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        type: Literal["link", "prob"] = ...,
        unseen: Unseen = ...,
        **options: Unpack[Decisions],
    ) -> pd.DataFrame: ...
    def predict(
        self,
        newdata: Any = None,
        type: PredictionType = "prob",
        unseen: Unseen = "raise",
        *,
        priors: Any = None,
        costs: Any = None,
    ) -> pd.DataFrame | pd.Series:
        """Predict the class of each row.

        Parameters
        ----------
        newdata, unseen, priors, costs
            As in `ClassifierResults.predict`; ignored levels are treated as missing values.
        type : {"prob", "class", "link"}, default "prob"
            Probabilities of the classes, the most probable class, or the log-odds of each class.

        Returns
        -------
        DataFrame or Series
            Predictions with the index of `newdata`: one column per class, followed by ``yhat`` (or
            ``yhat_`` if a class has that name). For ``type="class"``, only the predicted classes.
            In case of ties, the first class is predicted. If the probability of a row is zero in
            every class, all class probabilities are equal.

        Raises
        ------
        DataError, LevelError
            If columns are missing, values are missing although the model does not allow it, or
            levels are unknown.

        Examples
        --------
        >>> from bbl import datasets, networks
        >>> titanic = datasets.load_titanic()
        >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
        >>> fit.predict(titanic.head(2)).round(3)
              No    Yes yhat
        0  0.308  0.692  Yes
        1  0.145  0.855  Yes
        """
        return super().predict(newdata, type, unseen, priors=priors, costs=costs)

    def _attribution(self) -> Attribution:
        """Return ``ln P(y, x)`` as a sum over families. Raises an OptionError for an average."""
        return attribution(self.labels, self._require_network("single sum for its scores"))

    def _score_model(self) -> ScoreModel:
        return network_scores(self.labels, self.network)

    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Refitted:
        """Estimate the tables of the same graphs from the rows `train`.

        `rng` is used for the trees of AWNB; `warm` is ignored.
        """
        members = self.network.members if isinstance(self.network, Averaged) else (self.network,)
        dags = [member.dag for member in members]
        averaged = isinstance(self.network, Averaged)
        refit = fit_tables(
            dags, train, self.design.n_levels, len(self.classes), self.recipe, rng, averaged
        )
        return Refitted(refit.network)  # `Refitted` has the method class_scores

    def _redraw(self, rows: Sample, rng: np.random.Generator) -> tuple[Refitted, np.ndarray] | None:
        """Draw the tables from their Dirichlet posteriors given `rows`, and return the network and
        its class proportions (K,).

        Returns None for averaged or weighted tables, which do not have a posterior.
        """
        if not self.recipe.plain:
            return None
        drawn = draw_tables(self.network, rows, self.recipe.smooth, rng)
        return Refitted(drawn), drawn.prior

    @property
    def _advice(self) -> str:
        """Advice for a network that predicts worse than the class proportions."""
        return "Fit the same formula with bbl.bbl() and calibrate='temperature'."

    # summary, figures, samples, exports

    def summary(self) -> Summary:
        """Summarise the fit: key statistics, all features with their parents, and the smaller
        probability tables.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.

        Examples
        --------
        >>> from bbl import datasets, networks
        >>> titanic = datasets.load_titanic()
        >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
        >>> list(fit.summary().tables)
        ['Class', 'Sex', 'Age', 'Survived', 'fit', 'features']
        """
        facts = network_facts(self, self.structure, self.recipe)
        features = feature_facts(
            self.labels, self._counts, self.structure, self.arc_posterior, self.feature_weights
        )
        params = self.params if isinstance(self.network, Network) else {}  # no tables of an average
        return network_summary(self.call, self.labels, facts, features, params)

    def _model_parts(self) -> list[Part]:
        """Return the section of the HTML report with the graph or, for an average of networks, with
        a message.
        """
        strengths, widget = self._arc_widget()
        try:
            figure = self.plot().figure
        except BBLError as error:
            return [Part("Structure", [str(error), *strengths], widget=widget)]
        is_small = len(self.labels.names) <= MAX_TABLE_ROWS
        alt = f"Graph of the network {self.modelstring}" if is_small else "Graph of the network"
        return [
            Part(
                "Structure",
                strengths,
                [figure_html(figure, alt, "The class is a parent of every feature.")],
                widget=widget,
            )
        ]

    def _arc_widget(self) -> tuple[list[str], str]:
        """Return a sentence on the strengths of the arcs between features, and their graph and heat
        map.

        Both are empty if the model has no training rows in memory.
        """
        if self.training is None or not self.training.whole:
            return [], ""
        n_levels = self.design.n_levels
        information, _ = pair_information(self.training, n_levels, len(self.labels.groups))
        # of all networks, if this is an average
        arcs = {(min(arc), max(arc)) for dag in self.structure.dags for arc in dag.arcs}
        pairs = [Pair("", i, j, max(float(information[i, j]), 0.0)) for i, j in arcs]
        pairs.sort(key=lambda pair: (-pair.strength, pair.i, pair.j))
        widget = interactions_html([label_text(name) for name in self.labels.names], pairs)
        text = (
            "The strength of an arc between two features is their mutual information given the "
            "class, in nats, from the training rows."
        )
        return [text] if widget else [], widget

    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of the model file: a dict of names and options, and a dict of
        arrays.
        """
        return pack(self, store_data)

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> NetworkResults:
        """Return the model stored by `_pack`."""
        return cls(**unpack(meta, arrays))

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        features = feature_facts(
            self.labels, self._counts, self.structure, self.arc_posterior, self.feature_weights
        )
        return f"{self.call}\n\n{self!r}", [first_rows(features, "Features", source=".families")]

    def __repr__(self) -> str:
        return network_text(self.structure, self.nparams, self.design) + loss_text(self.log_loss)

    # levels, figures, draws and files

    def values(self, var: Hashable) -> tuple[Any, ...]:
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
        self,
        var: Hashable = None,
        ax: Any = None,
        *,
        kind: Literal["graph"] | EvaluationFigure = "graph",
        newdata: Any = None,
        weights: Any = None,
    ) -> Any:
        """Draw the graph, the probabilities of one variable with their standard errors, or a plot
        of the predictions.

        Parameters
        ----------
        var : name of a variable, optional
            Variable whose probabilities are drawn; the graph by default.
        ax : matplotlib Axes, optional
        kind : {"graph", "confusion", "roc", "calibration"}, default "graph"
            ``"graph"``: the graph, or the probabilities of `var`. Other values: the figure of
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
        errors = (
            table * np.nan if self._errors is None else self.params_se[var]
        )  # nan: no error bars
        return plot_probabilities(var, table, errors, ax)

    def write_bif(self, path: str | os.PathLike[str]) -> None:
        """Export the network to a file in the Interchange Format for Bayesian Networks (BIF).

        Parameters
        ----------
        path : str or path-like

        Notes
        -----
        Characters in names and levels other than letters, digits and underscores are replaced. A
        number is appended if two names would become equal.

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
        Path(path).write_text(
            interchange_text(self.labels, self.families, network), encoding="utf-8"
        )

    def sample(self, n: int, seed: int | np.random.Generator | None = 0) -> pd.DataFrame:
        """Draw `n` rows of the class and the features, as categorical columns with all levels.

        The class probabilities are the `priors` of the model, or the estimated class proportions.

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
        y, codes = draw(self.network, self._shares_in_use, integer("n", n, 0), generator(seed))
        labels = self.labels
        columns = {labels.response: (y, labels.groups)}
        columns |= {name: (codes[:, i], labels.levels[i]) for i, name in enumerate(labels.names)}
        return category_frame(columns, pd.RangeIndex(len(y)))

    # likelihoods and scores of rows

    def logLik(self, newdata: Any = None) -> LogLikelihood:
        """Return the log-likelihood of the class and the known features in the training rows or new
        rows.

        Missing features are averaged over. The result is nan if the class of a row is missing, and
        -inf if a row has probability zero. The joint probability of an average is the mean over its
        members.

        Examples
        --------
        >>> from bbl import datasets, networks
        >>> titanic = datasets.load_titanic()
        >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
        >>> fit.logLik()
        'log Lik.' -5166.983 (df=23)
        """
        if newdata is None:
            return super().logLik()
        rows = _encode_new(self.design, newdata)
        # new rows have weight 1
        return LogLikelihood(self._log_likelihood_of(rows), self.n_parameters, rows.n)

    def cLogLik(self, newdata: Any = None) -> float:
        """Return the conditional log-likelihood: the weighted sum of ``ln P(class | known
        features)``.

        The class priors are the same as in predictions. The result is nan if the class is missing
        in any row.

        Examples
        --------
        >>> from bbl import datasets, networks
        >>> titanic = datasets.load_titanic()
        >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
        >>> round(fit.cLogLik(titanic), 2)
        -37.62
        """
        rows = (
            self._rows(takes_newdata=True) if newdata is None else _encode_new(self.design, newdata)
        )
        scores = self._encoded_scores(rows.codes, rows.missing, dropped=None, priors=None)
        # weighted sum over rows of the log-probability of each row's class
        return sum_at_class(log_probabilities(scores), rows)

    def score(  # type: ignore[override]  # as in R, its first argument may be the kind
        self,
        kind: Any = "accuracy",
        newdata: Any = None,
        weights: Any = None,
        *,
        priors: Any = None,
        costs: Any = None,
    ) -> float:
        """Return the accuracy or a score defined as in the R package bnclassify; larger is better.

        Parameters
        ----------
        kind : {"accuracy", "loglik", "aic", "bic"}, default "accuracy"
            "accuracy": the proportion of correctly classified rows. "loglik": the log-likelihood.
            "aic": the log-likelihood minus the number of free parameters. "bic": the log-likelihood
            minus ``log(n) / 2`` times the number of free parameters, where n counts all rows,
            including incomplete rows. In contrast, the attributes `aic` and `bic` are on the usual
            scale, where smaller is better. If the first argument is a table, as in
            ``score(newdata)``, the result is the accuracy on this table.
        newdata : DataFrame, optional
            The training rows by default.
        weights, priors, costs
            Used for the accuracy, as in `evaluate`.

        Returns
        -------
        float

        Examples
        --------
        >>> from bbl import datasets, networks
        >>> titanic = datasets.load_titanic()
        >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
        >>> round(fit.score(titanic, weights="Freq"), 4)
        0.7892
        """
        # score(newdata, weights), as for other classifiers: by position, `kind` is newdata, a table
        # or None; `newdata` is the weights, unless weights= gives them
        if kind is None or not isinstance(kind, str):
            return super().score(
                kind, newdata if weights is None else weights, priors=priors, costs=costs
            )
        if kind == "accuracy":
            return super().score(newdata, weights, priors=priors, costs=costs)
        choice("kind", kind, ("accuracy", "loglik", "aic", "bic"))
        log_lik = self.logLik(newdata)
        penalty_per_parameter = {
            "loglik": 0.0,
            "aic": 1.0,
            "bic": 0.5 * float(np.log(max(log_lik.nobs, 1))),
        }
        return float(log_lik) - penalty_per_parameter[kind] * self.n_parameters


def _encode_new(design: Design, newdata: Any) -> Sample:
    """Return the level codes of features and class as a table.

    Rows that the design drops because of missing values are omitted.
    """
    newdata = to_frame(newdata, "newdata")
    codes, missing = design.encode(newdata)  # (n, m); `missing` is None if no value is missing
    y = design.encode_response(newdata)  # (n,), -1 for a missing class
    rows = Sample(codes, np.ones(len(codes)), y, missing)  # each row counts once
    is_dropped = design.dropped(newdata)  # (n,), or None if the design drops no rows
    return rows if is_dropped is None else rows.rows(~is_dropped)
