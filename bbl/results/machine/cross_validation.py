"""The method `crossVal` of fitted Boltzmann machines: cross-validation on the training rows."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from bbl.boltzmann.cross_fit import (
    Judging,
    cross_fit,
    make_crossval_folds,
    pop_grid,
    rows_of_last_fold,
    score_name,
)
from bbl.boltzmann.job import FitData, FitSpec
from bbl.checks import flag, generator, near_match
from bbl.crossval import Scored
from bbl.engines import Engine
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.support import Support
from bbl.parallel import n_workers, progress_bar
from bbl.report.text import argument_texts
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.cv import CVResults, cv_results
from bbl.results.machine.machine import MachineResults
from bbl.results.model import ModelResults
from bbl.rows.folds import Folds, splitter_folds

__all__ = ["CrossValArguments", "CrossValidationMixin", "stored_data", "validated_positions"]


class CrossValArguments:
    """Validated arguments of the `crossVal` methods, where they are documented.

    Attributes
    ----------
    workers : int
    rng : Generator
    """

    def __init__(
        self,
        nfold: int,
        use_auc: bool,
        score: str | None,
        cv: Any,
        shuffle: bool,
        seed: int | np.random.Generator | None,
        refit: bool,
        n_jobs: int | None,
    ):
        self._nfold = nfold
        self._use_auc = flag("use_auc", use_auc)
        self._score = score
        self._cv = cv
        self._shuffle = flag("shuffle", shuffle)
        flag("refit", refit)
        self.workers = n_workers(n_jobs)
        self.rng = generator(seed)

    def score_name(self, data: FitData) -> str:
        """Return the name of the score."""
        return score_name(self._score, self._use_auc, data.K, data.design.classes)

    def folds(self, fit: ModelResults, data: FitData) -> Folds:
        """Assign a fit's training rows to folds."""
        cv = self._cv
        if cv is None:
            return make_crossval_folds(data, self._nfold, self.rng if self._shuffle else None)
        if isinstance(cv, int | np.integer):
            raise OptionError(
                f"cv={cv} is not a splitter.", hint=f"Use nfold={cv}.", argument="cv", value=cv
            )
        frame = fit.model_frame
        if data.design.classes:
            frame = frame.drop(columns=fit.labels.response)
        rows = data.rows
        return splitter_folds(cv, frame, np.asarray(rows.response), rows.weights)


def stored_data(
    fit: ModelResults, arguments: str, engine: Engine, support: Support | None = None
) -> FitData:
    """Return the training rows of a fit and the layout for the engine, with the terms of the
    formula and structural zeros.

    Raises a DataError if the fit has no rows, with a hint that contains `arguments` of
    `bbl.crossVal`.
    """
    if fit.training is None:
        raise DataError(
            "crossVal() refits the model to its training rows, but this fit does not contain them: "
            "it was saved without them, or fitted to data read in batches.",
            hint=f"Call bbl.crossVal({arguments}), or save models with store_data=True.",
        )
    design = fit.design
    layout = engine.layout_of(design, design.coupling_terms, support)
    return FitData(
        fit.training,
        layout,
        len(fit.labels.groups),
        fit.labels,
        design=design,
        index=fit._index(),
        survey=getattr(fit, "survey", None),  # averages do not have one
    )


def validated_positions(scored: Scored, folds: Folds) -> list[np.ndarray]:
    """Return the positions of each fold's held-out rows among the training rows."""
    return [scored.rows[scored.fold == fold] for fold in range(len(folds))]


def _with_options(engine: Engine, options: dict[str, Any]) -> Engine:
    """Return the engine with changed options, or raise a BBLTypeError for unknown options."""
    names = [field.name for field in fields(engine)]
    for name in options:
        if name not in names:
            raise BBLTypeError(
                f"{name!r} is not an option of method={engine.name!r}.",
                hint=f"{near_match(name, names)}Pass one of {', '.join(names)}, or an argument of "
                "crossVal.",
                argument=name,
            )
    return replace(engine, **options) if options else engine


class CrossValidationMixin(MachineResults):
    """Cross-validation of a fit with its training rows, formula and options."""

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
        **options: Any,
    ) -> CVResults:
        """Cross-validate the fit on its training rows (see `bbl.crossVal`).

        The rows, formula, weights or sampling design, method and options of the fit are used.

        Parameters
        ----------
        nfold, use_auc, score, shuffle, seed, refit, n_jobs, verbose
            As in `bbl.crossVal`.
        cv : scikit-learn splitter or iterable of (train, validation) row positions, optional
            As in `bbl.crossVal`; positions refer to the rows of `model_frame`, and a splitter
            receives these rows.
        **options
            Options of the method that replace the options of the fit. With a grid of ``lambda_``,
            ``eps`` or another tuned option, all its values are compared. Without a grid, only the
            setting of the fit is evaluated.

        Returns
        -------
        CVResults
            The same as for `bbl.crossVal`, except that `CVResults.folds` contains positions in
            `model_frame`.

        Raises
        ------
        DataError
            If the fit has no training rows.
        OptionError, BBLTypeError
            If an argument or an option of the method is unknown or out of range.

        Warns
        -----
        ConvergenceWarning, DataWarning
            As in `bbl.crossVal`.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method="mf")
        >>> fit.crossVal(eps=[0, 0.5, 0.9], shuffle=True, seed=1, verbose=0).regstar
        0.5
        """
        asked = CrossValArguments(nfold, use_auc, score, cv, shuffle, seed, refit, n_jobs)
        # such as ", eps = 0.5"
        shown_options = "".join(f", {argument}" for argument in argument_texts(options))
        settings = pop_grid(type(self.engine), options)
        engine = _with_options(self.engine, options)
        data = stored_data(
            self,
            f"formula={self.formula!r}, data=...",
            engine,
            self.estimate.parameters.layout.support,
        )
        folds = asked.folds(self, data)
        kind = self.estimate.log_z_kind
        # a method that selects terms may select different ones in each fold; one that fits P(y | x)
        # has no ln Z
        asks_auto = kind == "none" or (kind == "exact" and self.engine.chooses)
        relevance = self.estimate.relevance
        spec = FitSpec(
            engine,
            "auto" if asks_auto else kind,
            self._calibration(),
            None if relevance is None else relevance.level,
            asked.workers,
            asked.rng,
            location=self._location_model,
        )
        ordered = cv is None and not shuffle and data.survey is None
        judging = Judging(asked.score_name(data), refit, ordered, stacklevel=2)
        with progress_bar(len(folds), "crossVal", verbose) as progress:
            found = cross_fit(data, spec, settings, folds, judging, progress)
        model_data = data if refit else rows_of_last_fold(data, folds)
        model = replace(
            self,
            call=f"crossVal({self.call}{shown_options})",
            training=model_data.training,
            index=model_data.index,
            survey=model_data.survey,
            engine=found.engine,
            estimate=found.estimate,
            tuning=None,
            _stored=None,
        )
        if isinstance(model, ClassifierResults):
            model = replace(model, _stored_loss=found.loss)  # type: ignore[call-arg]
        positions = validated_positions(found.validated, folds)
        return cv_results(found, judging.score, spec.calibrate, positions, model)

    def _calibration(self) -> str:
        """Return the fit's calibration as a value of the argument `calibrate`."""
        calibration = self.estimate.calibration
        if calibration is None:
            return "none"
        return "offset" if calibration.temperature == 1.0 else "temperature"
