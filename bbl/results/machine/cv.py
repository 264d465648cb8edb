"""CVResults: the result of a cross-validation.

The *held-out rows* are the validation rows of all folds, one fold after another. Each row is
predicted by the model that was fitted to the other folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import numpy as np
import pandas as pd

from bbl.boltzmann.cross_fit import CrossFit
from bbl.checks import check_keywords, choice, share
from bbl.choices import EvaluationFigure, PredictionType, Unseen
from bbl.crossval import Scored, calibrated
from bbl.design.decisions import Costs, Decisions, Priors, check_costs, check_priors
from bbl.errors import ClassError, OptionError
from bbl.report import text
from bbl.report.machine import plot  # a module
from bbl.report.machine.summary import Summary
from bbl.report.machine.tables import Coefficients
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.plot_check import plot_calibration
from bbl.report.text import fill
from bbl.results.batches import prediction_frame
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import remedy, verdict
from bbl.results.evaluation import FIGURES, Evaluation, evaluate_rows
from bbl.results.machine.draws import SampleResults
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.monte_carlo import ChainOptions, sample_chains
from bbl.stats.calibration import CALIBRATE
from bbl.stats.metrics import SCORES, auc, link, log_probabilities, with_priors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CVResults", "cv_results", "score_frame"]


def score_frame(
    table: np.ndarray, score: str, column: str, settings: float | Sequence[float] | np.ndarray
) -> pd.DataFrame:
    """Return a frame with the S `settings` in the column `column`, and their scores.

    `table` contains the scores (S, 1) or, if `score` is ``"auc"``, the AUC and its lower and upper
    limits (S, 3).
    """
    frame = pd.DataFrame(table, columns={"auc": ["AUC", "ci1", "ci2"]}.get(score, ["score"]))
    frame.insert(0, column, settings)
    return frame


@dataclass(frozen=True, repr=False)
class CVResults(Notebook):
    """Result of a cross-validation, as returned by `bbl.crossVal`.

    Attributes
    ----------
    cvframe : DataFrame
        One row per setting: ``lambda`` or ``epsilon``, and ``AUC``, ``ci1``, ``ci2`` or ``score``.
    best : int
        Row of the best setting.
    score : str
        Name of the score.
    folds : list of ndarray
        Held-out rows of each fold, as positions in the data, in the order of `pooled`. A row with
        weight w counts as w copies, which may be in different folds. The weights in `observed` are
        numbers of copies.
    scored : Scored
        Class scores (S, N, K) of the N held-out rows for each of S settings, with their groups
        `y` and weights (N,).
    calibrate : str
        Calibration applied to the scores before settings were compared: ``"none"``, ``"offset"`` or
        ``"temperature"``.
    model : BBLResults, DensityResults or AverageResults
        The refit to all rows at `regstar` or, as in R, the fit of the last fold.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
    >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
    >>> cv.regstar, round(cv.maxscore, 3)
    (0.5, 0.753)
    >>> cv.cvframe.round(3)
       epsilon    AUC    ci1    ci2
    0      0.5  0.753  0.729  0.777
    1      0.9  0.746  0.723  0.770
    """

    cvframe: pd.DataFrame
    best: int
    score: str
    folds: list[np.ndarray]
    scored: Scored
    calibrate: str
    model: MachineResults | ClassifierResults

    @property
    def regstar(self) -> float:
        """The best setting."""
        return float(self.cvframe.to_numpy()[self.best, 0])  # the first column has the settings

    @property
    def maxscore(self) -> float:
        """Score of the best setting."""
        return float(self.cvframe.to_numpy()[self.best, 1])  # the second column has the scores

    @property
    def _best_scores(self) -> np.ndarray:
        """Calibrated class scores (N, K) of the held-out rows at `regstar`; K = 1 for models
        without a response.
        """
        return calibrated(self.scored, self.scored.scores[self.best], self.calibrate)

    @property
    def pooled(self) -> pd.DataFrame:
        """Predictions for the held-out rows at `regstar`, fold by fold: the log-odds of each group,
        followed by ``yhat``.

        Without a response, the only column contains the log-probability (``log_prob``) or the log
        pseudo-likelihood (``log_pl``) of each row.
        """
        index = pd.RangeIndex(len(self.scored.y))
        if not self.model.design.classes:
            # "pnll": negative log pseudo-likelihood
            column = "log_pl" if self.score == "pnll" else "log_prob"
            return pd.DataFrame(self._best_scores, index=index, columns=[column])
        # response=None: the response's name is used only for type "class"
        return pd.DataFrame(
            prediction_frame(
                self._best_scores, self.model.labels.groups, "link", index, response=None
            )
        )

    @property
    def observed(self) -> pd.DataFrame:
        """Observed group ``y`` and ``weights`` of the held-out rows, in the order of `pooled`."""
        # object: labels of mixed types, such as 1 and "a", are not converted to text; the original
        # type is restored if all labels have it
        groups = pd.Index(self.model.labels.groups, dtype=object).infer_objects()
        return pd.DataFrame(
            {"y": pd.Categorical.from_codes(self.scored.y, groups), "weights": self.scored.weights}
        )

    def compare(self) -> pd.DataFrame:
        """Return accuracy, AUC, log-loss and Brier score for every setting and calibration.

        Returns
        -------
        DataFrame
            Columns are the setting, ``calibrate``, ``accuracy``, ``logloss``, ``brier`` and, with
            two groups, ``AUC``.

        Raises
        ------
        ClassError
            If the model has no response.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> cv.compare().round(3)
           epsilon    calibrate  accuracy  logloss  brier    AUC
        0      0.5         none     0.782    0.492  0.318  0.753
        1      0.5       offset     0.781    0.492  0.318  0.753
        2      0.5  temperature     0.781    0.493  0.319  0.753
        3      0.9         none     0.791    0.495  0.321  0.746
        4      0.9       offset     0.791    0.495  0.321  0.745
        5      0.9  temperature     0.791    0.495  0.321  0.745
        """
        self._require_response("compare")
        scored = self.scored
        setting_name = self.cvframe.columns[0]
        rows = []
        for setting, raw_scores in zip(self.cvframe[setting_name], scored.scores, strict=True):
            for calibration in CALIBRATE:
                scores = calibrated(scored, raw_scores, calibration)
                row = {setting_name: setting, "calibrate": calibration}
                log_p = log_probabilities(scores)
                # `SCORES`: functions for accuracy, logloss and brier
                row |= {
                    title: measure(log_p, scored.y, scored.weights)
                    for title, measure in SCORES.items()
                }
                if scores.shape[1] == 2:  # `link`: log odds (n, 2) of each group against the other
                    # [0]: without the limits
                    row["AUC"] = auc(link(scores)[:, 1], scored.y == 1, scored.weights)[0]
                rows.append(row)
        return pd.DataFrame(rows)

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
    @check_keywords
    def predict(
        self,
        newdata: object = None,
        type: PredictionType = "link",
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
        costs: Costs = None,
    ) -> pd.DataFrame | pd.Series:
        """Predict with `model`; see `BBLResults.predict`.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> cv.predict(titanic.head(2), type="class").tolist()
        ['Yes', 'Yes']
        """
        model: Any = self.model  # DensityResults, which has no classes, raises an error
        predicted: pd.DataFrame | pd.Series = model.predict(
            newdata, type, unseen, priors=priors, costs=costs
        )
        return predicted

    def _machine(self, name: str) -> MachineResults:
        """Return `model`. Raises an OptionError that names the calling method `name` if the model
        is an average.
        """
        if not isinstance(self.model, MachineResults):
            raise OptionError(
                f"{name}() requires a single Boltzmann machine, but the model is an average.",
                hint=f"Call {name}() on one of cv.model.members.",
            )
        return self.model

    def coef(self) -> Coefficients:
        """Return the coefficients of `model` (see `BBLResults.coef`).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> cv.coef().h["Yes"]["Sex"].round(2).to_dict()
        {'Male': -0.36}
        """
        return self._machine("coef").coef()

    @check_keywords
    def summary(self, prior_count: float = 0.0) -> Summary:
        """Summarise `model`; see `BBLResults.summary`.

        Parameters
        ----------
        prior_count : float, default 0.0
            As in `BBLResults.summary`; not used by averages.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> list(cv.summary().tables)[:3]
        ['fit', 'tests', 'h']
        """
        if isinstance(self.model, MachineResults):
            model: Any = self.model
            summary: Summary = model.summary(prior_count)
            return summary
        return self.model.summary()

    @check_keywords
    def mcSample(
        self,
        nsteps: int = 1000,
        *,
        nchains: int = 64,
        draws: bool = False,
        thin: int = 1,
        seed: int | np.random.Generator | None = None,
        verbose: int = 1,
    ) -> SampleResults:
        """Sample the predictors of each group from `model` (see `bbl.mcSample`).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> cv.mcSample(nsteps=100, seed=1, verbose=0).xmax["No"].to_dict()
        {'Class': 'Crew', 'Sex': 'Male', 'Age': 'Adult'}
        """
        model = self._machine("mcSample")
        return sample_chains(model, ChainOptions(nsteps, nchains, draws, thin, seed, verbose))

    def _require_response(self, name: str) -> None:
        """Raise a ClassError that names the calling method `name` if the model has no response."""
        if not self.model.design.classes:
            raise ClassError(
                f"{name}() requires classes, but {self.model.formula!r} has no response.",
                argument="formula",
                hint="For the scores of all settings, see cvframe.",
            )

    @check_keywords
    def evaluate(
        self, *, level: float = 0.95, priors: Priors = None, costs: Costs = None
    ) -> Evaluation:
        """Compare predicted with observed groups on the held-out rows at `regstar`.

        The arguments are described in `BBLResults.evaluate`. The intervals, with confidence
        `level`, treat the rows as independent and do not account for the selection of `regstar` on
        the same rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> round(cv.evaluate().accuracy, 3)
        0.782
        """
        self._require_response("evaluate")
        share("level", level)
        scored = self.scored
        labels = self.model.labels
        response = self.model.design.response
        scores = self._best_scores
        # replace the class proportions of the training rows, which the scores include
        if priors is not None:
            scores = with_priors(scores, self.model.class_shares, check_priors(priors, response))
        cost_matrix = None if costs is None else check_costs(costs, response)
        subject = f"held-out rows of {len(self.folds)} folds"
        model = cast(ClassifierResults, self.model)  # with a response, it is a classifier
        # a sentence, printed if the predictions are worse than the class proportions; may be empty
        advice = remedy(model.log_loss, model._advice)
        return evaluate_rows(
            labels, scores, scored.y, scored.weights, subject, level, cost_matrix, advice
        )

    @check_keywords
    def plot(self, ax: Any = None, *, kind: Literal["cv"] | EvaluationFigure = "cv") -> Any:
        """Draw the score against the setting (Woo & Wang 2022, Figures 3, 5a, 6, 8), or plot the
        predictions.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"cv", "confusion", "roc", "calibration"}, default "cv"
            "cv": the score of every setting. Others: the figure of ``evaluate().plot(kind)``.

        Returns
        -------
        matplotlib Axes, or a list of them for ``"calibration"``

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> cv.plot().get_ylabel()
        'AUC'
        >>> plt.close()
        """
        if choice("kind", kind, ("cv", *FIGURES)) in FIGURES:
            return self.evaluate().plot(cast(EvaluationFigure, kind), ax=ax)
        # symbol and title of the tuned option's axis, and whether it is logarithmic; None without
        # such an option
        tuned_option = self.model.engine.tuned if isinstance(self.model, MachineResults) else None
        if tuned_option is None:
            return plot.plot_cv(self.cvframe, best=self.regstar, ax=ax)
        symbol = tuned_option.symbol
        title = tuned_option.title
        logarithmic = tuned_option.logarithmic
        return plot.plot_cv(
            self.cvframe, self.regstar, ax, symbol=symbol, title=title, logarithmic=logarithmic
        )

    @check_keywords
    def plot_calibration(
        self,
        bins: int = 10,
        groups: Sequence[Any] | None = None,
        axes: Sequence[Axes] | None = None,
    ) -> list[Axes]:
        """Draw a calibration plot of the held-out rows at `regstar`.

        Observed proportions of each group are shown against predicted probabilities.

        Parameters
        ----------
        bins : int, default 10
            Number of bins of equal width between 0 and 1.
        groups : sequence, optional
            Groups to draw; by default all groups, or only the second group if there are two.
        axes : sequence of matplotlib Axes, optional
            One diagram and one histogram for all groups, or a diagram and a histogram for each
            group; a new figure by default.

        Returns
        -------
        list of matplotlib Axes
            A diagram and a histogram for each group. Points have 95 % binomial intervals and are
            close to the diagonal if the model is calibrated.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> options = {"method": "mf", "eps": [0.5, 0.9], "shuffle": True, "seed": 1}
        >>> cv = bbl.crossVal("Survived ~ .^2", titanic, "Freq", verbose=0, **options)
        >>> len(cv.plot_calibration())
        2
        >>> plt.close()
        """
        self._require_response("plot_calibration")
        scored = self.scored
        probabilities = np.exp(log_probabilities(self._best_scores))
        return plot_calibration(
            self.model.labels,
            probabilities,
            scored.y,
            scored.weights,
            bins=bins,
            groups=groups,
            axes=axes,
        )

    @property
    def _warning(self) -> str:
        """Warning if the log-loss of `model` is above the baseline; otherwise empty.

        `log_loss` contains the losses of the model and the baseline, or is None if they are
        unknown. They are computed on held-out rows if the fit was tuned, calibrated or averaged by
        cross-validation, and otherwise on the training rows.
        """
        return (
            verdict(cast(ClassifierResults, self.model).log_loss)
            if self.model.design.classes
            else ""
        )

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        text_lines = text.cv_head(self.cvframe, self.regstar, self.maxscore, self.score)
        return text_lines, [
            first_rows(self.cvframe, "Scores", source=".cvframe", note=self._warning)
        ]

    def __repr__(self) -> str:
        warning = f"\n\n{fill(self._warning)}" if self._warning else ""
        return text.cv_text(self.cvframe, self.regstar, self.maxscore, self.score) + warning


def cv_results(
    found: CrossFit,
    score: str,
    calibrate: str,
    folds: list[np.ndarray],
    model: MachineResults,
) -> CVResults:
    """Return the results of a cross-validation, given the positions `folds` of held-out rows."""
    frame = score_frame(found.table, score, found.setting_name, found.settings)
    return CVResults(frame, found.best, score, folds, found.validated, calibrate, model)
