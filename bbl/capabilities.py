"""Capabilities (the rows of the table "what works with what"), and the capabilities that each kind
of model lacks.

A *kind of model* is an engine or a class of results. `MethodTraits` describes the models fitted by
a method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = [
    "ABSENT",
    "CAPABILITIES",
    "MACHINE_ONLY",
    "NOT_COUNTS",
    "NO_RESPONSE",
    "OF_MACHINES",
    "WITH_NUMBERS",
    "WITH_ZEROS",
    "Capability",
    "MethodTraits",
    "lacking",
]

ABSENT = ""  # the reason if a kind of model does not have the argument or attribute
NO_RESPONSE = "it must have a response"  # "it" is the formula
NOT_COUNTS = "weights must all be non-negative integers"

# sections of the table
DATA = "Formula and data"
FIT = "Fitting"
RESULTS = "Results"


@dataclass(frozen=True)
class Capability:
    """A row of the guide's table "what works with what"."""

    section: str  # heading above the row
    title: str  # text of the row, in Markdown


CAPABILITIES: dict[str, Capability] = {
    "pairs": Capability(DATA, "pairwise interactions, `y ~ a*b`"),
    "third_order": Capability(DATA, "terms of three or more predictors, `y ~ a*b*c`"),
    "no_response": Capability(DATA, "no response, `~ a + b`: a model of the distribution of rows"),
    "numeric": Capability(DATA, "numeric predictors, `numeric=`"),
    "batches": Capability(DATA, "data read in batches (Parquet, DuckDB, Dask, ...)"),
    "missing_marginal": Capability(DATA, '`missing="marginal"`: missing values are marginalised'),
    "missing_marginal_batches": Capability(
        DATA, "marginalised missing values in data read in batches"
    ),
    "real_weights": Capability(DATA, "weights that are not integers"),
    "survey": Capability(DATA, "sampling designs of surveys, `design=bbl.survey(...)`"),
    "priors": Capability(FIT, "class `priors=` in the call"),
    "tuning": Capability(
        FIT, 'a setting chosen by cross-validation inside the fit, such as `lambda_="cv"`'
    ),
    "calibrate": Capability(FIT, "`calibrate=` of the class scores"),
    "relevance": Capability(
        FIT,
        "`relevance=`: only the distributions of relevant predictors differ between groups",
    ),
    "structural_zeros": Capability(FIT, "`structural_zeros=`: cells that cannot occur"),
    "gauge": Capability(FIT, '`gauge="zero-sum"`: penalties without a reference level'),
    "log_z": Capability(FIT, "a choice of how ln Z is computed, `log_z=`"),
    "crossVal": Capability(FIT, "cross-validation, `crossVal` (networks: `networks.cv`)"),
    "mlestimate": Capability(FIT, "`mlestimate` of integer codes"),
    "coef": Capability(RESULTS, "`coef()`"),
    "tidy": Capability(RESULTS, "`tidy()`, `params`"),
    "standard_errors": Capability(
        RESULTS, "standard errors: `inference().table()`, `conf_int()`, `bse`"
    ),
    "covariances": Capability(RESULTS, "`cov_params()`"),
    "tests": Capability(RESULTS, "tests: `inference().tests()`, `pvalues`"),
    "pooled": Capability(RESULTS, 'groups against all rows, `of="pooled"`'),
    "differences": Capability(RESULTS, "intervals for differences between two groups, `of=(a, b)`"),
    "bootstrap": Capability(RESULTS, "`bootstrap()`"),
    "draws": Capability(RESULTS, "posterior draws, `posterior`"),
    "history": Capability(RESULTS, "`history` of the fit"),
    "interactions": Capability(RESULTS, "`interactions()`"),
    "likelihood": Capability(RESULTS, "`logLik()`, `aic`, `bic`"),
    "composite_criteria": Capability(RESULTS, "`claic`, `clbic`"),
    "anova": Capability(RESULTS, "`anova`, `compare()`"),
    "goodness_of_fit": Capability(RESULTS, "`goodness_of_fit()`, `cells()`, `plot_mosaic()`"),
    "odds_ratios": Capability(RESULTS, "`odds_ratios()`"),
    "effects": Capability(RESULTS, "standard errors of `avg_comparisons()`, `avg_predictions()`"),
    "effects_bootstrap": Capability(RESULTS, 'the same by refits, `se="bootstrap"`'),
    "etable": Capability(RESULTS, "`etable`"),
    "explain": Capability(RESULTS, "`explain()`"),
    "explore": Capability(RESULTS, '`explore()`: an interactive "what if" page'),
    "importance": Capability(RESULTS, "`importance()`"),
    "log_scores": Capability(RESULTS, "`log_scores`"),
    "average": Capability(RESULTS, "a member of `average`"),
    "mcSample": Capability(RESULTS, "`mcSample`"),
    "sample": Capability(RESULTS, "rows drawn from the model, `sample()`"),
    "density": Capability(RESULTS, "without a response: `score_samples()`, `reconstruct()`"),
    "plot_logo": Capability(RESULTS, "`plot_logo()`"),
    "plot_network": Capability(RESULTS, "`plot_network()`"),
}

# keys of CAPABILITIES: options of Boltzmann machines only (*machines*)
OF_MACHINES = ("calibrate", "relevance", "structural_zeros", "gauge", "log_z", "survey")
# keys of CAPABILITIES: all other features of Boltzmann machines only
MACHINE_ONLY = (
    "mlestimate",
    "tidy",
    "standard_errors",
    "covariances",
    "tests",
    "pooled",
    "differences",
    "bootstrap",
    "draws",
    "history",
    "interactions",
    "composite_criteria",
    "goodness_of_fit",
    "odds_ratios",
    "log_scores",
    "mcSample",
    "plot_logo",
    "plot_network",
)
# features that are not available with structural zeros, in Markdown, and the reason
WITH_ZEROS: dict[str, str] = {
    "data read in batches": "structural zeros require all rows in memory",
    "a choice of `log_z`": (
        "with structural zeros, ln Z is always the exact sum over the cells that can occur"
    ),
    "`mcSample`": (
        "with structural zeros, chains that change one predictor at a time may not reach every cell"
    ),
    '`ordered="linear"`': (
        "with structural zeros, degrees of freedom can only be counted for nominal levels"
    ),
    "`explain()`": "with structural zeros in only some groups, class scores are not sums of terms",
    '`reconstruct(method="gibbs")` and `"mf"`': (
        "with structural zeros, probabilities of missing values are always exact"
    ),
}


# features that cannot be combined with numeric predictors, and the reason
WITH_NUMBERS: dict[str, str] = {
    "structural_zeros": "structural zeros are combinations of levels",
    "relevance": "relevance only compares distributions of levels",
}


def lacking(*absent: str, **reasons: str) -> dict[str, str]:
    """Return the capabilities that a kind of model lacks, as a dict from keys to reasons.

    Keys are those of CAPABILITIES. The reason is ABSENT for keys in `absent`; the keyword arguments
    `reasons` map other keys to their reasons.
    """
    return dict.fromkeys(absent, ABSENT) | reasons


@dataclass(frozen=True)
class MethodTraits:
    """Properties of a fitted model's method, used for model averages and tables of several fits.

    Attributes
    ----------
    name : str
        Name of the engine of a Boltzmann machine, or of the kind of model for other models.
    learner : str
        `name`, or the structure learner of a Bayesian network.
    setting : str
        Tuned options as ``option=value``, separated by commas.
    variant : str
        Text that distinguishes models of the same method in tables of several fits; usually empty.
    converged : bool
        Whether the optimum was reached; True for closed-form estimates.
    stops_early : bool
        Whether the method is designed to stop before its optimum.
    needed : ndarray of intp or None
        The predictors that must be observed to score a row; None if all can be marginalised.
    calibration : str
        ``"temperature"`` or ``"none"``.
    relevance : float or None
        Significance level for selecting the predictors that differ between groups; None if all
        predictors differ.
    can_calibrate : bool
        Whether the fit can be calibrated but has not been calibrated.
    models_predictors : bool
        Whether the likelihood is based on P(x, y), for response and predictors, instead of P(y|x).
    """

    name: str
    learner: str
    setting: str = ""
    variant: str = ""
    converged: bool = True
    stops_early: bool = False
    needed: np.ndarray | None = None
    calibration: str = "none"
    relevance: float | None = None
    can_calibrate: bool = False
    models_predictors: bool = True

    @property
    def title(self) -> str:
        """The learner and its variant, for tables of several fits."""
        return f"{self.learner}, {self.variant}" if self.variant else self.learner
