"""AverageResults: a weighted average of the class probabilities of fitted classifiers, its
*members*. There are K groups and M members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.boltzmann.averaging import Averaged, CrossAverage, average_members, cross_average
from bbl.boltzmann.job import FitSpec
from bbl.boltzmann.prediction_checks import warn_record
from bbl.capabilities import MACHINE_ONLY, MethodTraits, lacking
from bbl.checks import check_keywords
from bbl.choices import EvaluationFigure
from bbl.crossval import Scores
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.engines import PREPARED_AS
from bbl.errors import ClassError, OptionError
from bbl.model.location import LocationModel
from bbl.parallel import progress_bar
from bbl.report.explore.score_model import ScoreMixture, ScoreModel
from bbl.report.machine.summary import Section, Summary, fit_summary
from bbl.report.notebook import first_rows
from bbl.report.page import Part
from bbl.report.text import head_text
from bbl.results.archive import PRIORS, pack_loss, unpack_loss
from bbl.results.array_table import POSITIVE, ArraySpec, check_arrays, check_types
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import loss_facts, loss_text
from bbl.results.machine.cross_validation import (
    CrossValArguments,
    stored_data,
    validated_positions,
)
from bbl.results.machine.cv import CVResults, score_frame
from bbl.results.machine.fit import BBLResults
from bbl.results.machine.machine import MachineResults
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.likelihood_ratio import likelihood_ratio
from bbl.stats.metrics import LossRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NOT_CLASSIFIERS", "AverageResults", "auto_results", "average_cv", "member_advice"]

NO_LIKELIHOOD = "An average of classifiers does not define a likelihood of rows"
NOT_CLASSIFIERS = "all members must be fitted classifiers"
NO_COVARIANCE = (
    "The members of an average are fitted to the same rows, so they are correlated, and "
    "their covariance is unknown"
)
NOT_A_SUM = "The scores of an average are not sums over terms"
CLASS_PROPORTIONS = "class proportions"  # name of a member without predictors
ONLY_SHARES = (
    "the class proportions, because no predictor is relevant and a model with all "
    "predictors does not predict better"
)

# arrays of a model file in addition to the members' arrays: kind of dtype, shape, range of values
TABLE = {
    "member_weights": ArraySpec("f", ("members",), POSITIVE, sum_tolerance=1e-9),
    "losses": ArraySpec("f", ("members",)),
    "priors": PRIORS,
}


# attributes that only single Boltzmann machines have
MACHINE_NAMES = frozenset(name for name in dir(BBLResults) if not name.startswith("_"))


@final
@dataclass(frozen=True, repr=False)
class AverageResults(ClassifierResults):
    """An average of fitted classifiers, as returned by ``bbl(method="auto")`` and `average`.

    Members fitted by conditional likelihood cannot average over missing values. They are not used
    for rows with missing values, and the weights of the other members are rescaled for these rows.

    Attributes
    ----------
    call, design, training, index, priors
        As in `BBLResults`.
    members : tuple of BBLResults, NetworkResults, ShooterResults or AverageResults
    member_weights : ndarray, shape (M,)
        Positive weights, which sum to 1.
    losses : ndarray, shape (M,)
        Out-of-fold log-loss of each member; nan if the members were not compared.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method="auto")
    >>> list(fit.tuning.columns)
    ['setting', 'log_loss', 'weight']
    """

    members: tuple[ClassifierResults, ...]
    member_weights: np.ndarray
    losses: np.ndarray
    # candidates of ``method="auto"`` that were too large for these data
    _left_out: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    # number of rows that each member was fitted to, and that the settings were chosen on, if the
    # rows were too many to choose settings on all of them
    _member_rows: tuple[int, ...] = field(default=(), kw_only=True, repr=False)
    _setting_rows: int = field(default=0, kw_only=True, repr=False)

    _kind = "average"
    _refusals = lacking(  # capabilities that averages lack, some with the reason
        *MACHINE_ONLY,
        "sample",
        no_response=NOT_CLASSIFIERS,
        density=NOT_CLASSIFIERS,
        likelihood=NO_LIKELIHOOD,
        explain=NOT_A_SUM,
        effects=NO_COVARIANCE,
    )

    @check_keywords
    def mcSample(self) -> NoReturn:
        """Raise an OptionError, because an average does not define a distribution of rows to sample
        from.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method="auto", verbose=0)
        >>> try:
        ...     fit.mcSample()
        ... except bbl.BBLError as error:
        ...     print(error.hint)
        Call mcSample() on one of fit.members, such as one fitted with method='pseudo'.
        """
        raise OptionError(
            "An average of classifiers does not model the distribution of rows.",
            hint="Call mcSample() on one of fit.members, such as one fitted with method='pseudo'.",
        )

    @check_keywords
    def crossVal(
        self,
        nfold: int = 5,
        *,
        use_auc: bool = True,
        score: str | None = None,
        cv: Any = None,
        shuffle: bool = False,
        seed: int | np.random.Generator | None = None,
        refit: bool = True,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> CVResults:
        """Cross-validate an average fitted by ``method="auto"`` on its training rows (see
        `bbl.crossVal`).

        Parameters
        ----------
        nfold, use_auc, score, cv, shuffle, seed, refit, n_jobs, verbose
            As in `BBLResults.crossVal`.

        Returns
        -------
        CVResults

        Raises
        ------
        DataError
            If the fit has no training rows.
        OptionError, BBLTypeError
            If the model was created by `average`, or an argument is out of range.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ .", titanic, "Freq", method="auto", verbose=0)
        >>> cv = fit.crossVal(nfold=2, shuffle=True, seed=1, verbose=0)
        >>> bool(0.7 < cv.maxscore < 0.8)
        True
        """
        if self.call.startswith("average("):  # also for a model loaded from a file
            raise OptionError(
                "An average of given fits cannot be refitted to other rows.",
                hint="Call crossVal() on each of fit.members.",
            )
        asked = CrossValArguments(nfold, use_auc, score, cv, shuffle, seed, refit, n_jobs)
        data = stored_data(self, f"formula={self.formula!r}, data=..., method='auto'", PREPARED_AS)
        score = asked.score_name(data)
        folds = asked.folds(self, data)
        design = self.design
        location = LocationModel.of_pairs(design.n_levels, design.is_number, design.pairs)
        spec = FitSpec(PREPARED_AS, workers=asked.workers, rng=asked.rng, location=location)
        with progress_bar(len(folds), "crossVal", verbose) as progress:
            crossed = cross_average(data, spec, folds, score, refit, progress)
        warn_record(crossed.loss)
        data_fields = (f"crossVal({self.call})", self.design, data.rows, data.index)
        model = auto_results(data_fields, crossed.averaged, crossed.loss, self.priors)
        return average_cv(crossed, score, validated_positions(crossed.scored, folds), model)

    def __getattr__(self, name: str) -> Any:
        """Raise a ClassError for attributes of single Boltzmann machines, and otherwise an
        AttributeError.

        Python calls this method only if the object does not have the attribute.
        """
        if name in MACHINE_NAMES:
            raise ClassError(
                f"{name} requires a single Boltzmann machine, but this is an average of "
                f"{len(self.members)} models.",
                hint=(
                    f"Use one of its members, such as fit.members[0].{name}. For the average, use "
                    "avg_comparisons(), importance() and evaluate()."
                ),
            )
        return super().__getattr__(name)  # type: ignore[misc]  # hidden from type checkers

    @property
    def names(self) -> list[str]:
        """Names of the members: the name of the method, numbered if several members have the same
        one.

        Members without relevant predictors predict the class proportions and are named
        ``"class proportions"``.
        """
        methods = [
            CLASS_PROPORTIONS
            if isinstance(member, MachineResults) and member.estimate.has_no_predictors
            else member._traits.name
            for member in self.members
        ]
        n_members = Counter(methods)  # by method: number of all members
        n_before = Counter[str]()  # by method: number of preceding members
        names = []
        for method in methods:
            n_before[method] += 1
            names.append(f"{method} {n_before[method]}" if n_members[method] > 1 else method)
        return names

    @property
    def tuning(self) -> pd.DataFrame:
        """Tuned options, out-of-fold log-loss and weight of each member."""
        settings = [member._traits.setting for member in self.members]
        columns: dict[str, Any] = {
            "setting": settings,
            "log_loss": self.losses,
            "weight": self.member_weights,
        }
        if self._member_rows:
            columns["rows"] = list(self._member_rows)
        return pd.DataFrame(columns, index=self.names)

    @property
    def _bootstrap_members(self) -> list[tuple[ClassifierResults, float]]:
        """Members with their weights, or none if a member cannot be refitted or is an average."""
        if not all(member._can_refit for member in self.members):
            return []
        return list(zip(self.members, self.member_weights.tolist(), strict=True))

    @property
    def class_shares(self) -> np.ndarray:
        """Weighted class proportions in the training rows, shape (K,)."""
        return self.members[0].class_shares  # of the first member, as `training`

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all members."""
        return sum(member.n_parameters for member in self.members)

    @property
    def converged(self) -> bool:
        """Whether every member converged or stopped early by design.

        Closed-form estimates count as converged.
        """
        return all(traits.converged or traits.stops_early for traits in self._member_traits)

    @property
    def _member_traits(self) -> list[MethodTraits]:
        """Properties of each member's method."""
        return [member._traits for member in self.members]

    @property
    def _traits(self) -> MethodTraits:
        """Properties that are used if the average is a member of another average or is compared
        with other fits.
        """
        return MethodTraits(name=self._kind, learner=self._kind, converged=self.converged)

    def _class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the logarithms (n, K) of the averaged probabilities of encoded rows (n, m)."""
        needed = [traits.needed for traits in self._member_traits]
        score_functions = [self._member_scores(member) for member in self.members]
        return average_members(score_functions, needed, self.member_weights, codes, missing)

    def _member_scores(self, member: ClassifierResults) -> Scores:
        """Return a function that computes class scores of a member for rows encoded for the
        average.
        """
        if not self.design.is_number.any():
            return member._class_scores

        def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
            """Return the class scores (n, K) after cutting numeric predictors into the member's
            intervals.
            """
            return member._class_scores(member.design.from_numbers(codes, self.design), missing)

        return scores

    @property
    def _advice(self) -> str:
        """Advice for an average that predicts worse than the class proportions."""
        return member_advice(self.members)

    @check_keywords
    def relevant(self) -> pd.DataFrame:
        """Return the terms that affect predictions, i.e. whose parameters differ between groups in
        some member.

        Returns
        -------
        DataFrame
            Indexed by ``term`` (a predictor, or several joined by colons), largest weight first:
            ``order`` (number of predictors) and ``weight`` (total weight of the members that use
            the term).

        Raises
        ------
        OptionError
            If a member is not a Boltzmann machine, because other models do not have a table of
            relevant terms.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method="auto", verbose=0)
        >>> fit.relevant().round(3).head(3)["order"].tolist()
        [1, 1, 1]
        """
        methods = [member.relevant for member in self.members if hasattr(member, "relevant")]
        if len(methods) < len(self.members):
            raise OptionError(
                "relevant() requires Boltzmann machines, but a member of this average is a "
                "different model."
            )
        frames = [
            # by term: its order, and the member's weight
            relevant()["order"].to_frame().assign(weight=weight)
            for relevant, weight in zip(methods, self.member_weights, strict=True)
        ]
        terms = (
            pd.concat(frames).groupby("term", sort=False).agg({"order": "first", "weight": "sum"})
        )
        return terms.sort_values("weight", ascending=False, kind="stable")

    def _log_likelihood_of(self, rows: Rows) -> NoReturn:
        """Raise the OptionError of `_check_likelihood`."""
        self._check_likelihood()

    def _check_likelihood(self) -> NoReturn:
        """Raise an OptionError, because an average does not define a likelihood of rows."""
        raise OptionError(
            f"{NO_LIKELIHOOD}, so AIC and BIC are not available.",
            argument="method",
            hint="Assess its predictions with evaluate(), or use the likelihoods of fit.members.",
        )

    def coef(self) -> dict[str, Any]:
        """Return the coefficients of each member that has coefficients, by member name.

        Raises
        ------
        OptionError
            If no member has coefficients.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [
        ...     bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method=name)
        ...     for name in ("mf", "pseudo")
        ... ]
        >>> average = bbl.average(fits, "equal")
        >>> list(average.coef())
        ['mf', 'pseudo']
        """
        # Any: not all classifiers have coef()
        members: Any = zip(self.names, self.members, strict=True)
        coefficients = {
            name: member.coef() for name, member in members if "coef" not in member._refusals
        }
        if not coefficients:
            raise OptionError(
                "No member of this average has coefficients.",
                hint="For the probability tables of networks, use fit.members[0].params.",
            )
        return coefficients

    def summary(self) -> Summary:
        """Summarise the members with their weights, and the naive Bayes test of each predictor.

        The tests compare the distribution of each predictor between groups. They use counts of the
        training rows and do not depend on the members. The table ``"h"`` contains the naive Bayes
        fields by predictor and level.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [
        ...     bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method=name)
        ...     for name in ("mf", "pseudo")
        ... ]
        >>> average = bbl.average(fits, "equal")
        >>> list(average.summary().tables)
        ['fit', 'tests', 'h', 'Members']
        """
        facts = {
            "Fit method": "average of " + ", ".join(self.names)
            if len(self.members) > 1
            else ONLY_SHARES,
            "Observations": self.nobs(),
            **loss_facts(self.log_loss),
            "Converged": self._convergence_text(),
            **({"Left out": self._left_out_text} if self._left_out else {}),
            **({"Rows": self._member_rows_text} if self._member_rows else {}),
        }
        note = "log_loss: out-of-fold loss of each member; weight: its weight in the average."
        # `_counts`: for each predictor i, the weighted level counts (K, L_i) in the training rows
        # of each group
        # numbers have no counts
        tested = np.flatnonzero(~self.design.is_number)
        tests = likelihood_ratio([self._counts[i] for i in tested], prior_count=0.0)
        sections = [Section("Members", self.tuning, note)]
        labels = self.design.only(tested).labels if len(tested) < len(self._counts) else self.labels
        head = head_text(self.call, self.labels) if self.design.is_number.any() else None
        return fit_summary(self.call, labels, tests, facts, sections, head)

    def _convergence_text(self) -> str:
        """Return ``yes`` or ``no`` for `converged`, with the names of members that stop early by
        design.
        """
        early = [
            name
            for name, traits in zip(self.names, self._member_traits, strict=True)
            if traits.stops_early
        ]
        answer = "yes" if self.converged else "no"
        return f"{answer}; stopped early by design: {', '.join(early)}" if early else answer

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        return f"{self.call}{loss_text(self.log_loss)}", [
            first_rows(self.tuning.round(4), self._heading, source=".tuning")
        ]

    def __repr__(self) -> str:
        table = self.tuning.round(4).to_string()
        note = f"\nLeft out: {self._left_out_text}" if self._left_out else ""
        return f"{self.call}\n\n{self._heading}:\n{table}{loss_text(self.log_loss)}{note}"

    @property
    def _left_out_text(self) -> str:
        """Candidates that were left out, with the reasons."""
        return f"{', '.join(self._left_out)} (too many parameters with all pairs)"

    @property
    def _member_rows_text(self) -> str:
        """Text on the number of rows used for choosing settings and the numbers of rows used for
        fitting members.
        """
        parts: list[str] = []
        for n in sorted(set(self._member_rows), reverse=True):
            names = [
                name for name, own in zip(self.names, self._member_rows, strict=True) if own == n
            ]
            listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
            rows = (
                f"the {n:,}" if n == self._setting_rows else f"all {n:,} rows that are not held out"
            )
            parts.append(f"{listed} {'fitted ' * (not parts)}to {rows}")
        return f"settings chosen on {self._setting_rows:,} random rows; {'; '.join(parts)}"

    @property
    def _heading(self) -> str:
        """Heading of the table of members.

        If there is only one member, it predicts the class proportions (see
        `bbl.boltzmann.averaging`).
        """
        return (
            f"Average of {len(self.members)} members"
            if len(self.members) > 1
            else f"T{ONLY_SHARES[1:]}"
        )

    def _attribution(self) -> NoReturn:
        """Raise an OptionError, because logarithms of averaged probabilities are not sums over
        terms.
        """
        raise OptionError(
            f"{NOT_A_SUM}, so its predictions cannot be explained by terms.",
            hint="Explain a member, fit.members[0].explain(...), or fit with method='pseudo'.",
        )

    def _score_model(self) -> ScoreModel:
        scores = ScoreMixture(
            weights=self.member_weights,
            members=[member._score_model().scores for member in self.members],
            averages_posteriors=True,
        )
        return ScoreModel(scores, None, f"{NOT_A_SUM}.")

    def _model_parts(self) -> list[Part]:
        """Return an empty list of sections for the HTML report, because an average does not have
        parameters to draw.
        """
        return []

    def plot(
        self,
        kind: EvaluationFigure = "calibration",
        newdata: object = None,
        weights: Hashable | ArrayLike = None,
        groups: Sequence[Any] | None = None,
        axes: Axes | Sequence[Axes] | None = None,
    ) -> Any:
        """Plot the quality of predictions (see `Evaluation.plot`).

        Parameters
        ----------
        kind : {"calibration", "confusion", "roc"}, default "calibration"
        newdata, weights
            As in `evaluate`.
        groups, axes
            As in `Evaluation.plot`.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fits = [
        ...     bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method=name)
        ...     for name in ("mf", "pseudo")
        ... ]
        >>> average = bbl.average(fits, "equal")
        >>> axes = average.plot()
        >>> plt.close()
        """
        return self.evaluate(newdata, weights).plot(kind, groups, axes)

    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of the model file: the options and arrays of the members.

        Only the first member contains the training rows.

        The arrays of member k have the prefix ``m{k}_``.
        """
        # (options, arrays) of each member; only the first has the training rows
        contents = [member._pack(store_data and k == 0) for k, member in enumerate(self.members)]
        meta: dict[str, Any] = {
            "call": self.call,
            "missing": self.design.missing,  # policy for missing values
            "members": [
                {"kind": m._kind, **content[0]}
                for m, content in zip(self.members, contents, strict=True)
            ],
            **pack_loss(self.log_loss),
        }
        if self._left_out:
            meta["left_out"] = list(self._left_out)
        if self._member_rows:
            meta["member_rows"] = list(self._member_rows)
            meta["setting_rows"] = self._setting_rows
        arrays = {
            f"m{k}_{name}": array
            for k, (_, member_arrays) in enumerate(contents)
            for name, array in member_arrays.items()
        }
        arrays |= {"member_weights": self.member_weights, "losses": self.losses}
        if self.priors is not None:
            arrays["priors"] = self.priors
        return meta, arrays

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> Self:
        """Return the model stored by `_pack`, after checking every value."""
        check_types(meta, {"call": str})
        if not meta["members"]:
            raise ValueError("it has no members")
        # classes of all classifiers by kind; `bbl.load` has imported their modules
        classes = {
            model_class._kind: model_class for model_class in ClassifierResults.__subclasses__()
        }
        # the members' arrays are taken out of `average_arrays`
        members = []
        average_arrays = dict(arrays)
        for k, stored_member in enumerate(meta["members"]):
            prefix = f"m{k}_"
            member_meta = dict(stored_member)
            names = [name for name in arrays if name.startswith(prefix)]
            member_arrays = {name.removeprefix(prefix): average_arrays.pop(name) for name in names}
            members.append(classes[member_meta.pop("kind")]._unpack(member_meta, member_arrays))
        first = members[0]
        if any(not _are_alike(m.labels, first.labels) for m in members):
            raise ValueError("its members have different groups or predictors")
        check_arrays(average_arrays, TABLE, K=len(first.labels.groups), members=len(members))
        # old files have no policy for missing values: all members had the same one
        missing = meta.get("missing", first.design.missing)
        if missing not in {member.design.missing for member in members}:
            raise ValueError("its treatment of missing values is malformed")
        left_out = meta.get("left_out", [])
        if not isinstance(left_out, list) or not all(isinstance(name, str) for name in left_out):
            raise ValueError("its list of methods that were left out is malformed")
        member_rows = meta.get("member_rows", [])
        setting_rows = meta.get("setting_rows", 0)
        if (
            not isinstance(member_rows, list)
            or len(member_rows) not in (0, len(members))
            or not all(type(n) is int and n > 0 for n in (*member_rows, setting_rows or 1))
        ):
            raise ValueError("its numbers of rows are malformed")
        design = replace(first.design, missing=missing)
        return cls(
            meta["call"],
            design,
            first.training,
            first.index,
            tuple(members),
            average_arrays["member_weights"],
            average_arrays["losses"],
            _stored=first._stored,
            _kept=first._kept,
            priors=average_arrays.get("priors"),
            _stored_loss=unpack_loss(meta),
            _left_out=tuple(left_out),
            _member_rows=tuple(member_rows),
            _setting_rows=setting_rows,
        )


def _are_alike(labels: Labels, first: Labels) -> bool:
    """Return whether two members have the same groups, predictors and levels.

    Numeric predictors may be cut into intervals in one member and be regressors in another.
    """
    if labels.groups != first.groups or labels.names != first.names:
        return False
    if labels.response != first.response:
        return False
    return all(
        own == other or i in first.measured
        for i, (own, other) in enumerate(zip(labels.levels, first.levels, strict=True))
    )


def member_advice(members: Sequence[ClassifierResults]) -> str:
    """Return a sentence of advice for an average that predicts worse than the class proportions.

    It is empty unless one of the `members` can be calibrated but is not.
    """
    return (
        "Average fits with calibrate='temperature'."
        if any(m._traits.can_calibrate for m in members)
        else ""
    )


def auto_results(
    training: tuple[str, Design, Sample | None, pd.Index | None],
    averaged: Averaged,
    loss: LossRecord | None,
    priors: np.ndarray | None = None,
) -> AverageResults:
    """Return the results of ``method="auto"`` from an average.

    `training` contains the first four attributes of the results, and `loss` is the out-of-fold
    log-loss.
    """
    call, design, rows, index = training
    members = []
    for member in averaged.members:
        own_design = design
        own_rows = rows
        if member.intervals is not None:
            own_design = design.with_intervals(member.intervals.cuts)
            own_rows = None if rows is None else member.intervals.rows(rows)
        elif (units := member.estimate.parameters.layout.numbers) is not None:
            own_design = design.with_regressors(units)
        members.append(
            BBLResults(
                call, own_design, own_rows, index, member.engine, member.estimate, member.tuning
            )
        )
    first = members[0]  # files contain its design and its rows
    return AverageResults(
        call,
        first.design,
        first.training,
        index,
        tuple(members),
        averaged.weights,
        averaged.losses,
        priors=priors,
        _stored_loss=loss,
        _left_out=averaged.left_out,
        _member_rows=averaged.rows,
        _setting_rows=averaged.setting_rows,
    )


def average_cv(
    crossed: CrossAverage, score: str, folds: list[np.ndarray], model: AverageResults
) -> CVResults:
    """Return the results of a cross-validation of ``method="auto"``.

    `folds` contains the positions of held-out rows.
    """
    # an average has no settings: one row, numbered 0, with setting nan
    frame = score_frame(crossed.table, score, "setting", np.nan)
    return CVResults(frame, 0, score, folds, crossed.scored, "none", model)
