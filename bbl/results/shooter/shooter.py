"""ShooterResults: a fitted sparse logistic regression on products of predictors.

A *term* is a set of predictors, represented by the tuple of their positions. Its *features* are
products of contrasts of their levels. K is the number of groups, and L_i is the number of levels of
predictor i. The *links* of a row are K - 1 linear predictors. `contrasts` (K, K - 1) maps them to
the scores of the K groups, and `log_odds` maps them to the log odds of every other group against
the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, final

import numpy as np
import pandas as pd

from bbl.capabilities import (
    MACHINE_ONLY,
    NO_RESPONSE,
    NOT_COUNTS,
    OF_MACHINES,
    MethodTraits,
    lacking,
)
from bbl.checks import choice
from bbl.choices import EvaluationFigure
from bbl.errors import OptionError
from bbl.report.explore.score_model import ScoreModel, ScoreSum, ScoreTerm, check_size
from bbl.report.machine.summary import Summary
from bbl.report.markup import Section
from bbl.report.notebook import first_rows
from bbl.report.page import Part, figure_html
from bbl.report.shooter.plot import plot_path, plot_terms
from bbl.report.shooter.summary import list_terms, shooter_summary, shooter_text, weight_frame
from bbl.report.text import label_text, missing_text
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import loss_facts, loss_text, priors_facts
from bbl.results.evaluation import FIGURES
from bbl.results.explanation import Attribution
from bbl.results.shooter.archive import pack, unpack
from bbl.rows.sample import Sample
from bbl.sparse.products import contrasts, feature_values
from bbl.sparse.tables import log_odds, reference_tables, term_links, zero_sum_table
from bbl.sparse.workingset import Weights
from bbl.stats.metrics import log_probabilities

__all__ = ["CHOOSE", "ShooterResults"]

CHOOSE = "Choose the penalty by lambda_='cv'."
MAX_DRAWN = 30  # terms in a figure
NO_ERRORS = (
    "The terms of shooter() are selected on the same rows, and neither a covariance matrix nor "
    "refits would account for this selection"
)
SEARCHES_TERMS = "shooter selects interactions automatically"


@final
@dataclass(frozen=True, repr=False)
class ShooterResults(ClassifierResults):
    """A fitted sparse regression on products of predictors, as returned by `shooter`.

    Attributes
    ----------
    call, design, training, index, priors
        As in `BBLResults`.
    chosen : dict of tuple of int to ndarray, shape (d, K - 1)
        For each chosen term, the weights of its d features (`bbl.sparse.products`), ``d = prod(L_i
        - 1)``, in each of the K - 1 links.
    intercept : ndarray, shape (K - 1,)
        Constant of each link.
    refitted : bool
        Whether the weights of the selected terms were refitted without penalty.
    separating : tuple of tuples of int
        Terms that separate groups, so that their unpenalised weights would be infinite.
    penalties : tuple of floats
        Penalty of each order; penalties are added to the sum of the losses, not to their mean.
    penalty : {"group", "l1"}
        Norm of the penalty. "group": the Euclidean norm of the weights of a term; "l1": the sum of
        their absolute values.
    path : DataFrame
        A row for each candidate penalty and each order: ``point`` and ``order``, the ``penalty`` of
        that order, the mean ``loss`` of the training rows, the penalised ``objective``, the number
        of ``terms`` and the largest ``violation`` of the optimality conditions as a fraction of the
        penalty. The last row of a penalty also contains ``ebic`` and, if computed, the mean losses
        of held-out rows without a refit (``held_raw``) and with a refit (``held_refit``). With
        ``refit="auto"``, ``held_refit`` is infinite for the first penalty at which the refit of
        some fold fails, and for all smaller penalties. A refit fails if the total loss of its
        held-out rows exceeds the loss without terms on the same rows by more than the loss without
        terms on all rows. ``chosen`` marks the row of the fit.
    entered : ndarray of int
        For each selected term, the row of `path` at which it entered the model permanently.
    shares : ndarray, shape (K,)
        Class proportions in the training rows.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.shooter("Survived ~ .", titanic, weights="Freq", order=2, lambda_=60, refit=True)
    >>> fit.order_counts.to_dict()
    {1: 2, 2: 1}
    >>> fit.terms.drop(columns="step").round(3).tail(3)
       order  predictors         levels  strength  Yes vs No
    2      1    (Class,)         (3rd,)     0.597     -1.681
    3      1    (Class,)        (Crew,)     0.597     -0.814
    4      2  (Sex, Age)  (Male, Child)     0.531      2.123
    """

    chosen: Weights
    intercept: np.ndarray
    refitted: bool
    separating: tuple[tuple[int, ...], ...]
    penalties: tuple[float, ...]
    penalty: str
    path: pd.DataFrame
    entered: np.ndarray
    shares: np.ndarray

    _kind = "shooter"
    _refusals = lacking(  # capabilities that these fits lack, some with the reason
        *OF_MACHINES,
        *MACHINE_ONLY,
        "priors",
        "sample",
        "missing_marginal",
        "missing_marginal_batches",
        "crossVal",
        pairs=SEARCHES_TERMS,
        third_order=SEARCHES_TERMS,
        no_response=NO_RESPONSE,
        density=NO_RESPONSE,
        effects=NO_ERRORS,
        effects_bootstrap=NO_ERRORS,
        batches="shooter() requires all rows in memory",
        real_weights=NOT_COUNTS,
    )

    @property
    def _bootstrap_members(self) -> tuple[()]:
        """Always empty: the bootstrap is not available, because refits would not repeat the
        selection of terms.
        """
        return ()

    @property
    def class_shares(self) -> np.ndarray:
        """Class proportions in the training rows."""
        return self.shares

    @property
    def n_parameters(self) -> int:
        """Number of weights of the selected terms, plus the number of intercepts."""
        return len(self.intercept) + sum(weight.size for weight in self.chosen.values())

    @property
    def _traits(self) -> MethodTraits:
        """Properties of the model, for averages and tables of fits."""
        return MethodTraits(name=self._kind, learner=self._kind, models_predictors=False)

    @property
    def order_counts(self) -> pd.Series:
        """Number of selected terms of each order."""
        orders = [len(term) for term in self.chosen]
        index = pd.RangeIndex(1, len(self.penalties) + 1, name="order")
        return pd.Series([orders.count(k) for k in index], index=index, name="terms")

    @property
    def _numbers(self) -> list[int]:
        """Positions of numeric predictors."""
        return np.flatnonzero(self.design.is_number).tolist()

    @property
    def _zero_sum_tables(self) -> dict[tuple[int, ...], np.ndarray]:
        """Log odds of each term against the first group, in the zero-sum gauge.

        The table of a term of k predictors has shape (L_1, ..., L_k, K - 1). The empty term () is
        the intercept, with shape (K - 1,).
        """
        intercept: dict[tuple[int, ...], np.ndarray] = {(): log_odds(self.intercept)}
        return intercept | {
            term: log_odds(zero_sum_table(term, self.design.n_levels, w, self._numbers))
            for term, w in self.chosen.items()
        }

    @cached_property
    def terms(self) -> pd.DataFrame:
        """Selected terms, strongest first, with a row for each combination of levels except first
        levels.

        Columns are ``order``, ``predictors``, ``levels``, ``step`` (the row of `path` at which the
        term entered), ``strength``, and a weight for every group except the first (log odds against
        the first group).

        The weights are in the reference gauge, as in `coef`: 0 at the first level of a predictor. A
        weight is a difference in log odds with all other predictors at their first levels, so it
        depends on which level is the first. A selected term also contributes to the weights of the
        terms that it contains (`coef` returns all of them). The weight of a strong term may
        therefore be close to 0 or have the opposite sign. Weights of different orders are on
        different scales: with two levels and two groups, a term ``w x_1 ... x_k`` of predictors
        coded -1 and 1 has the weight 2^k w in this table.

        To rank terms, use their strength. It is the root mean square, over all joint levels with
        equal weight, of the contribution of the term to the link in the zero-sum gauge, which is
        also used for penalties and selection (``coef("zero-sum")``). The strength does not depend
        on which level is the first. With two levels and two groups, it is the absolute value of w.

        The weights of numeric predictors are per unit, or per standard deviation with
        ``standardise=True``. The strength of a term of numeric predictors is the magnitude of its
        weights. The strengths of numeric predictors with different units cannot be compared.
        """
        # over the joint levels, features have mean square 1 and are orthogonal: the norm of w is
        # the root mean square
        strength = {term: float(np.sqrt((w * w).sum())) for term, w in self.chosen.items()}
        # strongest first
        terms = sorted(self.chosen, key=lambda term: (-strength[term], len(term), term))
        tables = reference_tables(self._zero_sum_tables)
        # without the first levels
        frame = weight_frame(self.labels, {term: tables[term] for term in terms}, first=1)
        entered = dict(zip(self.chosen, self.entered.tolist(), strict=True))
        # size of each term in the frame: prod(L_i - 1)
        n_rows = [len(self.chosen[term]) for term in terms]
        frame.insert(3, "step", np.repeat([entered[term] for term in terms], n_rows).astype(int))
        frame.insert(
            4, "strength", np.repeat([strength[term] for term in terms], n_rows).astype(float)
        )
        return frame

    def coef(self, gauge: str = "reference") -> pd.DataFrame:
        """Return all coefficients, as log odds of every other group against the first.

        Parameters
        ----------
        gauge : {"reference", "zero-sum"}, default "reference"
            ``"reference"``: coefficients are 0 at first levels, and terms contained in a selected
            term also have coefficients. ``"zero-sum"``: coefficients sum to 0 over the levels of
            each predictor; only selected terms have coefficients.

        Returns
        -------
        DataFrame
            Columns ``order`` (0 for the intercept), ``predictors``, ``levels``, and one for each
            group except the first.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.shooter(
        ...     "Survived ~ .", titanic, weights="Freq", order=2, lambda_=60, refit=True
        ... )
        >>> fit.coef().tail(2).round(3)
           order  predictors         levels  Yes vs No
        5      1      (Age,)       (Child,)     -1.061
        6      2  (Sex, Age)  (Male, Child)      2.123
        """
        choice("gauge", gauge, ("reference", "zero-sum"))
        if gauge == "zero-sum":
            return weight_frame(self.labels, self._zero_sum_tables, first=0)
        tables = reference_tables(self._zero_sum_tables)
        return weight_frame(
            self.labels,
            {term: tables[term] for term in sorted(tables, key=lambda term: (len(term), term))},
            first=1,
        )

    # scores

    def _class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y | x)`` (n, K) for rows (n, m).

        A term with a missing predictor contributes 0, which is its mean over the levels of this
        predictor with equal weights. A missing numeric value is replaced by its mean in the
        training rows.
        """
        from scipy.special import log_softmax

        is_number = self.design.is_number
        codes = feature_values(codes, self.design.n_levels, is_number)
        if missing is not None and is_number.any():
            means = [getattr(factor, "mean", 0.0) for factor in self.design.predictors]
            codes = np.where(missing & is_number, means, codes)
            missing = missing & ~is_number
        link = self.intercept + term_links(
            codes, self.design.n_levels, self.chosen, missing, len(self.intercept)
        )
        # (n, K - 1) links by (K - 1, K)
        return log_softmax(link @ contrasts(len(self.labels.groups)).T, axis=1)

    def _check_likelihood(self) -> None:
        """Do nothing, because this kind of model always defines a likelihood of rows."""

    def _log_likelihood_of(self, rows: Sample) -> float:
        """Return the log-likelihood of the groups given the predictors, summed over the weighted
        rows.
        """
        # `codes` and `missing` are (n, m); `weights` and `response`, the group numbers, are (n,)
        log_p = log_probabilities(
            self._encoded_scores(rows.codes, rows.missing, dropped=None, priors=None)
        )
        return float(rows.weights @ log_p[np.arange(rows.n), rows.response])

    def _attribution(self) -> Attribution:
        """Return class scores as a sum over terms.

        The tables (K, L_1, ..., L_k) of terms contain log odds, which are zero for the first group.

        The sum differs from ``ln P(y | x)`` by a constant common to all groups.
        """
        names = [label_text(x) for x in self.labels.names]
        if self._numbers:
            raise OptionError(
                f"explain() requires categorical predictors, but {names[self._numbers[0]]} is "
                f"numeric.",
                hint="Call coef() for the weights of the terms.",
            )
        # insert the first group, whose log odds are 0, and move the group axis to the front
        tables = {
            term: np.moveaxis(np.insert(w, 0, 0.0, axis=-1), -1, 0)
            for term, w in self._zero_sum_tables.items()
        }
        constant = tables.pop(()).astype(float)  # (K,): the intercept
        return Attribution(
            names=[":".join(names[i] for i in term) for term in tables],
            terms=tables,
            shown=list(tables),
            constant=constant,
        )

    def _score_model(self) -> ScoreModel:
        parts = self._attribution()
        check_size(sum(table.size for table in parts.terms.values()))
        terms = [
            ScoreTerm(scope, table, name, scope)
            for (scope, table), name in zip(parts.terms.items(), parts.names, strict=True)
        ]
        scores = ScoreSum(constant=parts.constant, terms=terms, sums_unknown=False)
        return ScoreModel(scores, scores)

    @property
    def _advice(self) -> str:
        """Advice for a regression that predicts worse than the class proportions."""
        return CHOOSE

    # summary, figures, file

    def summary(self) -> Summary:
        """Summarise the fit: key statistics and the strongest terms.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.shooter(
        ...     "Survived ~ .", titanic, weights="Freq", order=2, lambda_=60, refit=True
        ... )
        >>> list(fit.summary().tables)
        ['fit', 'terms']
        """
        path_row = self.path[self.path["chosen"]].iloc[0]  # the row of this fit
        counts = self.order_counts
        facts: dict[str, Any] = {
            "Terms": (
                f"{counts.sum()} ({', '.join(f'{n} of order {k}' for k, n in counts.items())})"
            ),
            "Penalty": f"{self.penalty}, "
            + ", ".join(f"{v:.4g}" for v in self.penalties)
            + " by order (on the sum of losses)",
            "Weights": "unpenalised" if self.refitted else "penalised",
            "Optimality": (
                f"conditions satisfied to within {path_row['violation']:.1e} times the penalty"
            ),
            "Parameters": self.n_parameters,
            "Observations": self.nobs(),
        }
        if self.separating:
            facts["Separated by"] = list_terms(self.labels, self.separating)
        if self.design.incomplete:
            facts["Missing values"] = missing_text(self.design.missing, self.design.incomplete)
        facts |= priors_facts(self.labels.groups, self.priors) | loss_facts(self.log_loss)
        facts |= {"Log-likelihood": float(self.logLik()), "AIC": self.aic, "BIC": self.bic}
        return shooter_summary(self.call, self.labels, facts, self.terms)

    def plot(
        self,
        kind: Literal["terms", "path"] | EvaluationFigure = "terms",
        ax: Any = None,
        *,
        newdata: Any = None,
        weights: Any = None,
    ) -> Any:
        """Draw the terms by strength, the path of penalties, or a plot of the predictions, and
        return the Axes.

        Parameters
        ----------
        kind : {"terms", "path", "confusion", "roc", "calibration"}, default "terms"
            ``"terms"``: the 30 strongest terms. ``"path"``: loss and number of terms by penalty (or
            by order, for a single penalty). Other values: the figure of
            ``evaluate(newdata, weights).plot(kind)``.
        ax : matplotlib Axes, optional
        newdata, weights : optional
            As in `evaluate`; the training rows by default.

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.shooter(
        ...     "Survived ~ .", titanic, weights="Freq", order=2, lambda_=60, refit=True
        ... )
        >>> axis = fit.plot()
        >>> plt.close()
        """
        if choice("kind", kind, ("terms", "path", *FIGURES)) in FIGURES:
            return self.evaluate(newdata, weights).plot(cast(EvaluationFigure, kind), ax=ax)
        if kind == "path":
            return plot_path(self.path, ax)
        terms = self.terms.drop_duplicates("predictors").head(MAX_DRAWN)  # one row per term
        names = [":".join(map(str, predictors)) for predictors in terms["predictors"]]
        return plot_terms(
            names, terms["order"].to_numpy(), terms["strength"].to_numpy(), len(self.chosen), ax
        )

    def _model_parts(self) -> list[Part]:
        """Return the section of the HTML report with the figure of the terms."""
        alt = (
            "Bar chart of the selected terms by strength. The numbers are in the tables of the "
            "summary."
        )
        figure = figure_html(self.plot().figure, alt, "Selected terms, strongest first.")
        return [Part("Terms", html=[figure])]

    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of the model file: a dict of names and options, and a dict of
        arrays.
        """
        return pack(self, store_data)

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> ShooterResults:
        """Return the model stored by `_pack`."""
        return cls(**unpack(meta, arrays))

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        return repr(self), [first_rows(self.terms, "Terms, strongest first", source=".terms")]

    def __repr__(self) -> str:
        return shooter_text(self.call, self.labels, self.order_counts, self.refitted) + loss_text(
            self.log_loss
        )
