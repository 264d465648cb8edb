"""The base class of engines: options, and a method from a sample and a layout to an EngineFit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from bbl.capabilities import ABSENT, NOT_COUNTS
from bbl.engines.engine_fit import EngineFit, Equations
from bbl.engines.traits import JointTraits, PosteriorTraits, Tuned
from bbl.engines.warm_starts import WarmStarts
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample

__all__ = ["Engine"]

NO_EQUATIONS = "Standard errors are there for methods that solve likelihood equations (such as 'pseudo' and 'naive')"
SHARED_ROWS = "The posterior of the pooled fit shares its rows with those of the groups"


@dataclass(frozen=True)
class Engine:
    """Options of an inference method, with the one method `path` that fits a group at a grid of settings.

    An engine says all that others may have to know of it; nobody else asks for its name or for an option of it.

    Attributes
    ----------
    name : str
        Name in the ENGINES table.
    order : int
        The highest order of a term that it can fit: 1 for fields alone (of whatever formula), 2 for pairs.
    order_reason : str
        Why it is no more, for the error.
    tuned : Tuned or None
        The option that crossVal varies.
    log_z : str
        The ln Z that goes with the method where the exact one is too costly.
    needs : {"each", "pairs", "neighbours"}
        What must be known together in some row, where values are missing: each predictor, each two predictors, or a
        predictor and all that it interacts with.
    weights : {"counts", "real"}
        Whether the weights of rows are how often each was observed, or may be any positive numbers: what is fitted is
        then the same for whole numbers and others, and standard errors and tests refuse the others.
    joint : JointTraits or None
        How it fits all groups at once, in place of `path`, if it does.
    collapses : bool
        Whether equal rows are put together, in a fixed order of states, before `path` sees them. An engine that takes
        nothing from rows but counts of levels and pairs gains nothing by it where these are exact.
    streams : bool
        Whether `path` goes over rows block by block, so that they may be a `StoredSample`, too many for memory.
    solves : bool
        Whether it solves likelihood equations, so that there are standard errors.
    samples : bool
        Whether `path` draws random numbers and takes its time: then it is handed `rng` and `progress` too.
    chooses : bool
        Whether it chooses the terms of each group itself; its fits then have a layout of their own.
    posterior : PosteriorTraits or None
        What it says of its posterior, if its fits have one.
    sized_by : tuple of str
        Options that memory grows with.
    classifier : dict
        Options that `BBLClassifier` sets where the user does not, so that any table can be fitted.
    """

    name: ClassVar[str]
    order: ClassVar[int] = 2
    order_reason: ClassVar[str] = ""
    tuned: ClassVar[Tuned | None] = None
    log_z: ClassVar[str] = "exact"
    needs: ClassVar[str] = "each"
    weights: ClassVar[str] = "counts"
    joint: ClassVar[JointTraits | None] = None
    collapses: ClassVar[bool] = True
    streams: ClassVar[bool] = False
    solves: ClassVar[bool] = False
    samples: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    posterior: ClassVar[PosteriorTraits | None] = None
    sized_by: ClassVar[tuple[str, ...]] = ()
    classifier: ClassVar[dict[str, Any]] = {}

    @property
    def penalised(self) -> bool:
        """Whether a penalty is in force, so that estimates are drawn towards zero."""
        return False

    @property
    def two_sided(self) -> bool:
        """Whether a coupling is kept as seen from either predictor, not as the mean of both."""
        return False

    @property
    def stops_early(self) -> bool:
        """Whether fits end before their optimum because an option asks for it."""
        return False

    @property
    def setting(self) -> float:
        """The value of the option that is tuned; nan if there is none, or more than one value."""
        value = float("nan") if self.tuned is None else getattr(self, self.tuned.option)
        return float("nan") if isinstance(value, tuple) else float(value)

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return what the fits of a call draw from, given the call's own generator."""
        return rng

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, each with the reason.

        The keys are those of `bbl.capabilities.CAPABILITIES`. Errors quote the reasons, and the guide lists them. Of an
        option that the method does not have it is `ABSENT`.
        """
        method = f"method={cls.name!r}"
        reasons: dict[str, str] = {}
        if cls.order == 2:
            reasons["third_order"] = cls.order_reason or "the model is pairwise"
        if not cls.streams:
            reasons["batches"] = reasons["missing_marginal_batches"] = f"{method} needs all rows in memory"
        elif cls.needs == "neighbours":
            reasons["missing_marginal_batches"] = f"missing='marginal' with {method} needs all rows in memory"
        if cls.weights == "counts":
            reasons["real_weights"] = NOT_COUNTS
        if cls.tuned is None:
            reasons["tuning"] = ABSENT
        if "gauge" not in {option.name for option in fields(cls)}:
            reasons["gauge"] = ABSENT
        if cls.joint:
            alone = f"{method} fits P(y|x) alone"
            models = ("no_response", "mlestimate", "bootstrap", "likelihood", "mcSample", "sample", "density")
            reasons |= dict.fromkeys(models, alone)
        if cls.chooses:
            reasons["mlestimate"] = f"{method} chooses its terms, which h and J of pairs do not hold"
            reasons["bootstrap"] = f"{method} chooses other terms from other rows, so that refits share no parameters"
        if cls.posterior:
            reasons |= dict.fromkeys(("tests", "composite_criteria"), f"{method} has a posterior, not tests")
            reasons["pooled"] = SHARED_ROWS
        elif not cls.solves:
            errors = ("standard_errors", "covariances", "tests", "pooled", "differences", "composite_criteria")
            reasons |= dict.fromkeys(errors, f"{NO_EQUATIONS}, not for {method}")
        if not (cls.posterior and cls.posterior.has_draws):
            reasons["draws"] = f"{method} has no draws from a posterior"
            if cls.posterior:
                reasons["covariances"] = f"{method} keeps the sd of each parameter, and no covariances"
        if not (cls.posterior and cls.posterior.keeps_history):
            reasons["history"] = f"{method} keeps no history"
        if cls.order == 1:
            reasons["plot_network"] = "The model has no interactions"
        return reasons

    def check_density(self, what: str) -> None:
        """Raise an OptionError if P(row | group) is not modelled, which `what` needs."""
        if self.joint:
            raise OptionError(
                f"{what} needs a model of the predictors, P(x|y), and {self.refusals()['density']}, of which only "
                "differences between groups mean anything. Take method='pseudo'; evaluate() tells how good "
                "predictions are.",
                argument="method",
            )

    def stepwise(self, sample: Any, layout: Layout) -> bool:
        """Return whether settings are best compared a few at a time, the strongest first, each starting from others.

        `sample` are the rows of all groups.
        """
        return False

    def variants(self) -> tuple[Engine, ...]:
        """Return the engines that are compared at each value of the tuned option: itself, or several."""
        return (self,)

    def held_out(self, sample: Sample, layout: Layout, K: int, folds: Folds) -> Callable[..., np.ndarray] | None:
        """Return what scores the rows that folds validate at a setting; None where each fold is fitted by itself.

        It is called with an engine out of `variants`, a value of the tuned option, and the rows (positions) that each
        fold validates; also with ``exactly``, whether the scores are to be calibrated and not just compared, and with
        ``workers``. It returns the class scores (N, K) fold by fold.
        """
        return None

    def widened(self, layout: Layout) -> Layout:
        """Return the layout of what predictions sum over: with its hidden units behind the predictors, if it has any.

        The ``state`` of a fit then has draws (chains, draws, size) of it by the name ``hidden``.
        """
        return layout

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout of the parameters that this engine fits to the rows of all groups."""
        return layout

    def check_equations(self) -> None:
        """Raise an OptionError if there are no `equations`, and so no standard errors."""
        reason = self.refusals().get("tests")
        if reason is not None:
            where = ": inference().table() and interactions() tell it" if self.posterior else ""
            raise OptionError(f"{reason}{where}.", argument="method")

    def equations(self, sample: Sample, layout: Layout) -> Equations:
        """Solve a group's likelihood equations again, for standard errors; see `check_equations`."""
        raise NotImplementedError

    def prepare(self, sample: Any, layout: Layout) -> Any:
        """Return the rows that this engine fits (augmented where its method says so)."""
        return sample

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes that a fit to `n` rows at several settings takes while it runs, besides its result."""
        return 0.0

    def stored_memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes that a fit to `n` rows that are read block by block takes (see `streams`)."""
        return self.memory(n, layout, settings)

    def path(self, sample: Sample, layout: Layout, values: Sequence[float] | None = None, workers: int = 1):
        """Fit one group at each of `values` of the tuned option; None for the engine's own setting.

        An engine that `samples` also takes ``rng``, a Generator that is this group's alone, and ``progress``, None or a
        function that is told of each share of the fit that is done, and in a few words how it goes.
        """
        raise NotImplementedError

    def compare(
        self, sample: Sample, layout: Layout, values: Sequence[float] | None, warm_starts: WarmStarts
    ) -> list[EngineFit]:
        """Fit one group at each of `values`, well enough to compare them.

        Parameters
        ----------
        warm_starts : WarmStarts
            Earlier comparisons on the same rows. Those of `values` that are among them are compared again, more
            exactly. It may be written to.
        """
        return self.path(sample, layout, values)

    def fit(self, sample: Any, layout: Layout, workers: int = 1, **told: Any) -> EngineFit:
        """Fit one group at the engine's own settings; an engine that `samples` also takes `rng` and `progress`."""
        return self.path(sample, layout, None, workers, **told)[0]

    def at(self, value: float) -> Engine:
        """Return the same engine with the tuned option set to `value`."""
        assert self.tuned is not None  # noqa: S101  # callers have its settings from there
        return replace(self, **{self.tuned.option: value})
