"""The class `Estimate`, which stores a fitted model as arrays, and the non-convergence warning.

K, m, n and q are the numbers of groups, predictors, rows and selected predictors; x is a row, and y
its group.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bbl.design.labels import Labels
from bbl.engines import EngineFit
from bbl.engines.engine_fit import Note
from bbl.errors import ConvergenceWarning, OptionError
from bbl.model.ais import annealed_log_z
from bbl.model.attribution import zero_sum_factors
from bbl.model.cumulative import log_group_probabilities
from bbl.model.fields import pseudo_log_likelihood
from bbl.model.layout import Layout
from bbl.model.location import Location
from bbl.model.logz import exact_log_z
from bbl.model.marginal import MarginalEnergy
from bbl.model.number_terms import centred_factors
from bbl.model.parameters import Parameters
from bbl.rows.sample import nominal_codes
from bbl.stats.calibration import Calibration
from bbl.stats.metrics import class_scores

__all__ = [
    "AVERAGED",
    "Estimate",
    "Predictive",
    "Problem",
    "Relevance",
    "build_predictive",
    "group_text",
    "list_problems",
    "thinned",
    "warn_problems",
]


# number of draws over which predictions are averaged, for each method of computing ln Z
AVERAGED = {"exact": 200, "ais": 50}
ANNEALING_STEPS = 100  # for each draw; errors of ln Z (0.01 to 0.05) average out over the draws
ANNEALING_CHAINS = 256  # for each draw
# maximum number of entries in the coupling matrices (D, D) of draws that are processed together
MAX_COUPLINGS = 2**22


@dataclass(frozen=True)
class Predictive:
    """Posterior draws of the parameters of K groups, and the mean energies of rows over the draws.

    Attributes
    ----------
    layout : Layout
        Layout of the predictors, followed by the hidden units.
    theta : ndarray, shape (K, T, layout.size)
        Draws of the parameters.
    log_z : ndarray, shape (K, T)
        ln Z of each draw.
    hidden : int
        Number of hidden units, which are the last predictors in `layout` and are marginalised.
    """

    layout: Layout
    theta: np.ndarray
    log_z: np.ndarray
    hidden: int = 0

    def free_energy(self, codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
        """Return the mean energies (n, K) of rows over the draws, marginalised over hidden units.

        Models with hidden units have no energy at the mean of the draws, so the mean of the
        energies is used instead. Predictions average probabilities rather than energies; see
        `energy`.
        """
        return np.column_stack(
            [
                np.concatenate(list(self.energies(g, codes, unknown)), axis=1).mean(axis=1)
                for g in range(len(self.theta))
            ]
        )

    def with_units(
        self, codes: np.ndarray, unknown: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Append hidden units, as unknown cells, to the codes and the mask of unknown cells."""
        if not self.hidden:
            return codes, unknown
        unknown = np.zeros(codes.shape, dtype=bool) if unknown is None else unknown
        unknown = np.pad(unknown, ((0, 0), (0, self.hidden)), constant_values=True)
        return np.pad(codes, ((0, 0), (0, self.hidden))), unknown

    def draw_probabilities(
        self, groups: np.ndarray, codes: np.ndarray, unknown: np.ndarray
    ) -> np.ndarray:
        """Return the joint probabilities (n, K T) of group and draw, given the known cells of rows.

        `groups` (n, K) contains the probabilities of the groups. The draws of a group are in
        adjacent columns.
        """
        probabilities = []
        for g, p in enumerate(groups.T):
            log_p = np.concatenate(list(self.energies(g, codes, unknown)), axis=1) - self.log_z[g]
            log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
            probabilities.append(p[:, None] * np.exp(log_p))
        return np.column_stack(probabilities)

    def energies(
        self, g: int, codes: np.ndarray, unknown: np.ndarray | None
    ) -> Iterator[np.ndarray]:
        """Yield the energies (n, draws) of rows under group g, for chunks of its draws."""
        codes, unknown = self.with_units(codes, unknown)
        chunk_size = max(1, MAX_COUPLINGS // max(self.layout.D**2, 1))
        for first_draw in range(0, self.theta.shape[1], chunk_size):
            yield MarginalEnergy(self.layout, self.theta[g, first_draw : first_draw + chunk_size])(
                codes, unknown
            )

    def energy(self, shift: np.ndarray) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """Return a function that maps codes (n, m) and unknown cells (or None) to energies (n, K).

        The energy is the logarithm of the row's mean probability over the draws, plus the `shift`
        (K,) of the group. Callers subtract this shift in the same way as ln Z.
        """

        def averaged_energies(codes: np.ndarray, unknown: np.ndarray | None = None) -> np.ndarray:
            """Return the logs (n, K) of the mean probabilities over the draws, plus the shift."""
            return np.column_stack(
                [
                    self._log_mean_probability(g, codes, unknown) + shift[g]
                    for g in range(len(self.theta))
                ]
            )

        return averaged_energies

    def _log_mean_probability(
        self, g: int, codes: np.ndarray, unknown: np.ndarray | None
    ) -> np.ndarray:
        """Return ``ln((1/T) sum_t exp(energy_t - ln Z_t))`` (n,) over the T draws of group g."""
        log_sum_p = np.full(len(codes), -np.inf)
        first_draw = 0
        for energies in self.energies(g, codes, unknown):
            log_z = self.log_z[g, first_draw : first_draw + energies.shape[1]]
            log_sum_p = np.logaddexp(log_sum_p, np.logaddexp.reduce(energies - log_z, axis=1))
            first_draw += energies.shape[1]
        return log_sum_p - np.log(self.theta.shape[1])

    def pseudo_log_likelihood(
        self, g: int, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``sum_i ln P(x_i | the other predictors)`` (n,) of rows under group g.

        Missing predictors are marginalised and do not contribute to the sum.
        """
        out = np.zeros(len(codes))
        log_p = self._log_mean_probability(g, codes, missing)
        for i in range(codes.shape[1]):
            known = np.flatnonzero(~missing[:, i]) if missing is not None else np.arange(len(codes))
            unknown = np.zeros(codes.shape, dtype=bool) if missing is None else missing.copy()
            unknown[:, i] = True
            of_others = self._log_mean_probability(g, codes[known], unknown[known])
            out[known] += log_p[known] - of_others
        return out


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` draws, evenly spaced in each chain, as an array (count, size).

    `draws` has the shape (chains, draws, size).
    """
    n_chains, n_draws, size = draws.shape
    n_kept = min(max(count // n_chains, 1), n_draws)
    # [:count]: there may be more chains than `count`
    return draws[:, np.linspace(0, n_draws - 1, n_kept).round().astype(int)].reshape(-1, size)[
        :count
    ]


def build_predictive(
    layout: Layout,
    fits: Sequence[EngineFit],
    kind: str,
    starts: Sequence,
    rngs: Sequence[np.random.Generator],
    workers: int,
    hidden: int = 0,
) -> Predictive | None:
    """Return the draws of all groups with ln Z, or None.

    The result is None for fits without draws, or if ln Z depends on the rows.

    Parameters
    ----------
    layout : Layout
        Layout of the predictors, followed by the hidden units.
    fits : sequence of EngineFit
        The fit of each group. If a group has no rows, its draws are set to zero.
    kind : str
        How ln Z is computed; "exact" and "ais" do not depend on the rows.
    starts : sequence of ndarray, shape (D,)
        Initial fields for annealing in each group, for "ais".
    rngs : sequence of Generator
        Random generator of each group, for "ais".
    workers : int
    hidden : int, default 0
        Number of hidden units.
    """
    draws_by_group = [
        fit.state["hidden"] if hidden and fit.draws is not None else fit.draws for fit in fits
    ]
    available_draws = [draws for draws in draws_by_group if draws is not None]
    if kind not in AVERAGED or not available_draws:
        return None
    # the same in all groups with draws
    n_draws = len(thinned(available_draws[0], AVERAGED[kind]))
    no_draws = np.zeros((n_draws, layout.size))
    theta = np.array(
        [no_draws if draws is None else thinned(draws, n_draws) for draws in draws_by_group]
    )
    if kind == "exact":
        log_z = exact_log_z(layout, theta.reshape(-1, layout.size)).reshape(theta.shape[:2])
    else:
        annealing = (ANNEALING_STEPS, ANNEALING_CHAINS)  # the fields of hidden units start at zero
        log_z = np.array(
            [
                [
                    annealed_log_z(
                        layout, draw, np.append(start, np.zeros(hidden)), *annealing, rng, workers
                    ).log_z
                    for draw in group_theta
                ]
                for group_theta, start, rng in zip(theta, starts, rngs, strict=True)
            ]
        )
    return Predictive(layout, theta, log_z, hidden)


@dataclass(frozen=True)
class ZeroSumTerms:
    """Energies as the sum of a constant and terms that average to zero over the levels.

    Attributes
    ----------
    terms : dict of tuple of int to ndarray
        A table (K, L_i, ...) for each scope. The axis of a numeric regressor has length one, and
        the table is multiplied by the regressor's deviation from its origin.
    constant : ndarray, shape (K,)
    origins : dict of int to float
        Means of the numeric regressors, by position.
    """

    terms: dict[tuple[int, ...], np.ndarray]
    constant: np.ndarray
    origins: dict[int, float]


@dataclass(frozen=True)
class Relevance:
    """The predictors that were selected because they discriminate between groups.

    Attributes
    ----------
    level : float
        Significance level used for the selection.
    chosen : ndarray of intp, shape (q,)
        Positions of the selected predictors, in increasing order.
    p_value : ndarray, shape (q,)
        p-value of each predictor at the step that selected it, multiplied by the number of
        candidates.
    """

    level: float
    chosen: np.ndarray
    p_value: np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A fitted model as plain arrays.

    Attributes
    ----------
    parameters : Parameters
    log_z : ndarray, shape (K,)
        ln Z of each group.
    log_z_kind : str
        How `log_z` was computed: "exact", "pseudo", "half", "mf" or "ais". With "none", P(x|y) is
        not modelled, and `log_z` contains the constants that are subtracted from class scores.
    class_prior : ndarray, shape (K,)
        Weighted class proportions.
    lkh : float
        Maximised objective, summed over the observations of all groups.
    fits : tuple of EngineFit
        The fit of each group, followed by the pooled fit, if any.
    log_z_error : ndarray, shape (K,)
        Standard error of `log_z`; zero unless ln Z was sampled.
    calibration : Calibration or None
        Transformation of class scores that is applied before they are converted to probabilities.
    predictive : Predictive or None
        Posterior draws over which class scores are averaged, if the method has draws.
    relevance : Relevance or None
        The predictors selected because they differ between groups; None if all are used.
    cumulative : bool
        Whether energies plus constants are cumulative logits ``ln P(y >= g) / P(y < g)`` of an
        ordered response instead of class scores.
    location : Location or None
        The distribution of the numeric predictors given the categorical predictors; None if there
        are no numeric predictors. The parameters, ln Z and `lkh` refer to the categorical
        predictors.
    """

    parameters: Parameters
    log_z: np.ndarray
    log_z_kind: str
    class_prior: np.ndarray
    lkh: float
    fits: tuple[EngineFit, ...]
    log_z_error: np.ndarray
    calibration: Calibration | None = None
    predictive: Predictive | None = None
    relevance: Relevance | None = None
    cumulative: bool = False
    location: Location | None = None

    @property
    def coefficients(self) -> np.ndarray:
        """The intercepts and parameters of all groups, shape (K, 1 + size).

        Intercepts are ``ln (class proportion) - ln Z``, where ln 0 is replaced by 0.
        """
        log_share = np.log(np.where(self.class_prior > 0.0, self.class_prior, 1.0))
        return np.column_stack([log_share - self.log_z, self.parameters.theta])

    @property
    def has_cumulative_logits(self) -> bool:
        """Whether probabilities are computed from cumulative logits that differ from class scores.

        With two groups, cumulative logits and class scores are the same.
        """
        return self.cumulative and len(self.class_prior) > 2

    @property
    def has_no_predictors(self) -> bool:
        """Whether no predictors were selected.

        All predictions are then equal to the class proportions.
        """
        return (
            self.relevance is not None and not len(self.relevance.chosen) and self.location is None
        )

    @cached_property
    def needed(self) -> np.ndarray | None:
        """Positions of the predictors required to score a row; None if all of them may be missing.

        Methods that do not model the predictors require all predictors with parameters that differ
        between groups.
        """
        if self.log_z_kind != "none":
            return None
        # groups without rows have no parameters
        theta = self.parameters.theta[self.class_prior > 0.0]
        used = np.flatnonzero(
            self.parameters.layout.predictors_of((theta != theta[:1]).any(axis=0))
        )
        return used if self.location is None else np.union1d(used, self.location.model.used)

    def only(self, predictors: np.ndarray) -> Estimate:
        """Return the estimate for a subset of the predictors, which are renumbered.

        All omitted predictors must be numeric, because only then do the parameters stay the same.
        """
        number = np.full(self.parameters.layout.m, -1)
        number[predictors] = np.arange(len(predictors))

        def restrict(fit: EngineFit) -> EngineFit:
            """Return a fit with entries for the remaining predictors only."""
            by_predictor = {
                name: getattr(fit, name)[predictors]
                for name in ("grad_norm", "n_iter", "converged")
                if len(getattr(fit, name))
            }
            layout = None if fit.layout is None else fit.layout.only(predictors)
            return replace(fit.renumbered(number), layout=layout, **by_predictor)

        parameters = replace(self.parameters, layout=self.parameters.layout.only(predictors))
        fits = tuple(map(restrict, self.fits))
        return replace(self, parameters=parameters, fits=fits, location=None)

    def with_numbers(self, location: Location, layout: Layout) -> Estimate:
        """Add the numeric predictors in `location` to the estimate (inverse of `only`).

        `layout` describes all predictors and contains their numbers of levels.
        """
        predictors = location.model.categories
        fits = tuple(fit.of_predictors(predictors, layout) for fit in self.fits)
        relevance = self.relevance
        if relevance is not None:
            relevance = replace(relevance, chosen=predictors[relevance.chosen])
        terms = [predictors[terms] for terms in self.parameters.layout.terms]
        parameters = replace(self.parameters, layout=layout.with_terms(terms))
        return replace(
            self, parameters=parameters, fits=fits, relevance=relevance, location=location
        )

    def zero_sum_terms(self) -> ZeroSumTerms:
        """Return the energies of levels and numeric regressors as a sum in the zero-sum gauge."""
        layout = self.parameters.layout
        theta = self.parameters.theta
        constant = np.zeros(len(theta))
        origins: dict[int, float] = {}
        # structural zeros come last
        factors = layout.factors(theta)[: len(layout.scopes)]
        if layout.numbers is not None:
            origins = {
                i: float(layout.numbers[i, 0]) for i in np.flatnonzero(layout.is_number).tolist()
            }
            factors, constant = centred_factors(layout, theta)
        if self.location is not None:  # its numbers, predictors with one level, have no tables
            is_number = self.location.model.is_number
            factors = [own for own in factors if not is_number[list(own[0])].any()]
        terms, means = zero_sum_factors(factors, list(origins))
        return ZeroSumTerms(terms, constant + means, origins)

    def energy(self) -> Callable:
        """Return a function that maps codes (n, m) and missing values (n, m) to energies (n, K).

        With posterior draws, the function averages probabilities over them; see
        `Predictive.energy`.
        """
        if self.predictive is not None:
            return self.predictive.energy(self.log_z)
        energy = MarginalEnergy(self.parameters.layout, self.parameters.theta)
        return energy if self.location is None else self.location.add_to(energy)

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, after any calibration of the model.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), optional
            Mask of missing values, which are marginalised, or ignored if the model does not use the
            predictor. The scores of a row without known predictors are the log class proportions.
        """
        return self.scores_by(self.energy(), codes, missing)

    def scores_by(
        self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the same result as `class_scores`, given a function from the method `energy`.

        The function can be used for several sets of rows.
        """
        # rows without known predictors are not averaged over: their scores are set below
        is_all_missing = (
            np.zeros(len(codes), dtype=bool) if missing is None else np.array(missing.all(axis=1))
        )
        summed_out = None if missing is None else missing & ~is_all_missing[:, None]
        if summed_out is not None and self.needed is not None:
            if summed_out[:, self.needed].any():
                raise OptionError(
                    "This model does not describe the distribution of the predictors, P(x|y), so "
                    "predictions cannot be averaged over missing or unseen values.",
                    argument="newdata",
                    hint="Use complete rows of known levels, or fit with method='pseudo'.",
                )
            # at any level, the other predictors add the same amount to the scores of all groups
            codes = np.where(summed_out, 0, codes).astype(codes.dtype)
            # numeric predictors are averaged over
            summed_out = (
                None if self.location is None else summed_out & self.location.model.is_number
            )
        scores = class_scores(energy(codes, summed_out), self.log_z, self.class_prior)
        if self.cumulative:
            scores = log_group_probabilities(scores)
        if self.calibration is not None:
            scores = self.calibration(scores)
        with np.errstate(divide="ignore"):  # a class proportion of 0 gives -inf
            scores[is_all_missing] = np.log(self.class_prior)
        return scores

    def log_density(
        self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``ln sum_y P(y) P(x|y)`` (n,) of encoded rows, without calibration; see
        `scores_by`.
        """
        scores = replace(self, calibration=None).scores_by(energy, codes, missing)
        return np.logaddexp.reduce(scores, axis=1)

    def pseudo_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the log pseudo-likelihood (n, K) of encoded rows under the model of each group."""
        groups = range(len(self.parameters.theta))
        return np.column_stack([self._pseudo_log_likelihood(g, codes, missing) for g in groups])

    def _pseudo_log_likelihood(
        self, g: int, codes: np.ndarray, missing: np.ndarray | None
    ) -> np.ndarray:
        """Return ``sum_i ln P(x_i | the other predictors)`` (n,) of rows under group g."""
        if self.predictive is not None and self.predictive.hidden:
            return self.predictive.pseudo_log_likelihood(g, codes, missing)
        layout = self.parameters.layout.of_group(g)
        if self.location is not None:  # of the other predictors
            is_number = self.location.model.is_number
            codes = nominal_codes(codes, is_number, layout.n_levels)
            missing = None if missing is None else missing & ~is_number
        return pseudo_log_likelihood(layout, self.parameters.theta[g], codes, missing)

    def pnll(
        self, codes: np.ndarray, missing: np.ndarray | None, y: np.ndarray, weights: np.ndarray
    ) -> float:
        """Return the weighted mean negative log pseudo-likelihood of rows, given their groups.

        The arguments are the rows' `codes` (n, m), the mask `missing` (n, m), the known groups `y`
        (n,), and `weights` (n,).
        """
        total = 0.0
        for g in range(len(self.parameters.theta)):
            rows = np.flatnonzero((y == g) & (weights > 0.0))
            if len(rows):
                group_missing = None if missing is None else missing[rows]
                log_p = self._pseudo_log_likelihood(g, codes[rows], group_missing)
                total -= float(weights[rows] @ log_p)
        return total / float(weights.sum())

    @property
    def n_parameters(self) -> int:
        """Number of estimable parameters in the selected terms, summed over groups."""
        K, size = self.parameters.theta.shape
        # `free` (size,): parameters of terms that the group chose; `rank`: number of estimable
        # ones, None for all
        n_free = [
            int(fit.state["free"].sum()) if "free" in fit.state else size for fit in self.fits[:K]
        ]
        # not strict, because the pooled fit, which is not counted, may follow the groups' fits
        n_of_levels = sum(
            n if fit.rank is None else fit.rank for n, fit in zip(n_free, self.fits, strict=False)
        )
        return n_of_levels + (0 if self.location is None else self.location.n_parameters)

    @property
    def converged(self) -> bool:
        """Whether the optimum was reached for every predictor in every group."""
        return all(fit.converged.all() for fit in self.fits)


SHOWN = 5  # number of problems of one kind listed in a warning


def group_text(labels: Labels, g: int) -> str:
    """Return the name of fit `g`: a group, or the pooled fit, which follows the last group."""
    return f"group {labels.groups[g]!r}" if g < len(labels.groups) else "the pooled fit"


class Problem(NamedTuple):
    """A fit that did not converge.

    Attributes
    ----------
    group, predictor, level : str
        Names for the message; empty if all predictors or levels are affected.
    what : str
        The kind of problem.
    detail : str
        Details of this problem.
    hint : str
        A sentence that suggests a remedy; empty if there is none.
    """

    group: str
    predictor: str
    level: str
    what: str
    detail: str
    hint: str = ""

    @property
    def where(self) -> str:
        """The group, predictor and level, without empty parts."""
        return ", ".join(name for name in (self.group, self.predictor, self.level) if name)


def list_problems(fits: Sequence[EngineFit], labels: Labels) -> list[Problem]:
    """Return the notes and the unbounded parameters of fits as named problems."""
    problems = []
    for g, fit in enumerate(fits):
        for note in fit.notes:
            note = Note(*note)  # also accepts plain tuples without the detail or the hint
            level_text = ""
            predictor_text = ""
            if note.predictor >= 0:
                predictor_text = f"predictor {labels.names[note.predictor]!r}"
            if note.level >= 0:
                level_text = f"level {labels.levels[note.predictor][note.level]!r}"
            problems.append(
                Problem(
                    group_text(labels, g),
                    predictor_text,
                    level_text,
                    note.what,
                    note.detail,
                    note.hint,
                )
            )
        for predictor, level_code, *partners in fit.unbounded:
            level_text = f"level {labels.levels[predictor][level_code]!r}"
            if partners:
                partner_levels = [
                    f"level {labels.levels[partner][partner_code]!r} of {labels.names[partner]!r}"
                    for partner, partner_code in zip(partners[::2], partners[1::2], strict=True)
                ]
                level_text += f" with {' and '.join(partner_levels)}"
            problems.append(
                Problem(
                    group_text(labels, g),
                    f"predictor {labels.names[predictor]!r}",
                    "",
                    "no finite estimate without a penalty",
                    level_text,
                    hint=f"{fit.remedy}, or leave one of the predictors out.",
                )
            )
    return problems


def warn_problems(problems: Sequence[Problem], stacklevel: int = 3) -> None:
    """Issue a single ConvergenceWarning with one line for each kind of problem."""
    kinds: dict[tuple[bool, str], list[Problem]] = {}
    hints: dict[str, None] = {}
    for problem in dict.fromkeys(problems):
        kinds.setdefault((bool(problem.level), problem.what), []).append(problem)
        if problem.hint:
            hints[problem.hint] = None
    if kinds:
        lines = [
            _kind_text(text, is_of_level, same_kind)
            for (is_of_level, text), same_kind in kinds.items()
        ]
        warnings.warn(
            ConvergenceWarning("In " + "\n  in ".join(lines) + ".", hint=" ".join(hints) or None),
            stacklevel=stacklevel,
        )


def _kind_text(what: str, is_of_level: bool, same_kind: list[Problem]) -> str:
    """Return a line about the problems in `same_kind`, which have the same text `what`.

    The line contains the number of problems and lists at most `SHOWN` of them, from as many groups
    as possible. `is_of_level` indicates whether the problems refer to single levels.
    """
    if len(same_kind) == 1:
        (problem,) = same_kind
        place = ", ".join(name for name in (problem.group, problem.predictor) if name)
        level = problem.level + " " if is_of_level else ""
        detail = f" ({problem.detail})" if problem.detail else ""
        return f"{place}: {level}{what}{detail}"
    n_in_group: Counter[str] = Counter()
    # rank of each problem within its group; the first problem of every group is listed first
    rank_in_group = []
    for problem in same_kind:
        rank_in_group.append(n_in_group[problem.group])
        n_in_group[problem.group] += 1
    listed = [same_kind[k] for k in np.argsort(rank_in_group, kind="stable")[:SHOWN]]
    places = "; ".join(
        f"{problem.where}{f' ({problem.detail})' if problem.detail else ''}" for problem in listed
    )
    remainder = f"; and {len(same_kind) - SHOWN} more" if len(same_kind) > SHOWN else ""
    return (
        f"{len(same_kind)} places: {'a level ' if is_of_level else ''}{what}: {places}{remainder}"
    )
