"""DensityResults: fitted Boltzmann machines without a response, which describe the distribution of
rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from bbl.checks import check_keywords, real
from bbl.errors import ClassError
from bbl.report.explore.score_model import ScoreModel
from bbl.report.machine.summary import Summary, density_summary
from bbl.report.page import Part
from bbl.report.text import label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.archive import unpack
from bbl.results.machine.facts import fit_facts, render_fit
from bbl.results.machine.fitted_machine import FittedMachine
from bbl.results.machine.report_parts import machine_parts, summary_notes
from bbl.results.machine.score_sum import machine_scores

__all__ = ["DensityResults"]

# public methods and properties of classifiers; those missing from this class raise a ClassError
CLASSIFIER_NAMES = frozenset(name for name in dir(ClassifierResults) if not name.startswith("_"))


@final
@dataclass(frozen=True, repr=False)
class DensityResults(FittedMachine):
    """Fitted Boltzmann machine without a response, as returned by `bbl.bbl`.

    Models with classes (`BBLResults`) have the same methods and, in addition, the methods of
    classifiers.

    Attributes
    ----------
    call, design, training, index, engine, estimate, tuning, survey
        As in `BBLResults`, with a single group.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("~ .^2", titanic, weights="Freq")
    >>> fit.score_samples(titanic.head(2)).round(3).tolist()
    [-7.769, -5.679]
    >>> fit.sample(3, seed=1).shape
    (3, 4)
    >>> fit.reconstruct(
    ...     {"Class": ["1st"], "Sex": ["Female"], "Age": ["Adult"], "Survived": [None]},
    ...     type="class",
    ... )
      Class     Sex    Age Survived
    0   1st  Female  Adult      Yes
    """

    _kind = "density"

    def _model_parts(self) -> list[Part]:
        return machine_parts(self)

    def _score_model(self) -> ScoreModel:
        names = [label_text(name) for name in self.labels.names]
        return machine_scores(self.estimate, names, self.labels.centers)

    def _summary_notes(self) -> list[str]:
        return summary_notes(self)

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> Self:
        """Return the model from the content of a file, as stored by `_pack`: a dict of names and
        options, and a dict of arrays.
        """
        return cls(**unpack(meta, arrays, classes=False))

    def __getattr__(self, name: str) -> Any:
        """Raise a ClassError for methods of classifiers, and otherwise an AttributeError.

        Python calls this method only if the object does not have the attribute.
        """
        if name in CLASSIFIER_NAMES:
            raise ClassError(
                f"{name} requires classes, but {self.formula!r} has no response.",
                argument="formula",
                hint=(
                    "Use a formula with a response, such as 'y ~ .'. Use score_samples() for the "
                    "log-density of rows, and reconstruct() for missing values."
                ),
            )
        return super().__getattr__(name)  # type: ignore[misc]  # hidden from type checkers

    @property
    def _population_shares(self) -> np.ndarray:
        """Class proportion (1,) of the only group, which is 1."""
        return self.class_shares

    @check_keywords
    def summary(self, prior_count: float = 0.0) -> Summary:
        """Summarise the fit: key statistics, levels of the predictors, and tests of fields and
        couplings.

        Parameters
        ----------
        prior_count : float, default 0.0
            Pseudocount for each predictor in the table of level proportions, divided equally among
            its levels.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("~ Sex * Survived", titanic, weights="Freq")
        >>> list(fit.summary().tables)  # doctest: +NORMALIZE_WHITESPACE
        ['fit', 'levels', 'level proportions', 'Tests of the fields, h = 0',
         'Tests of the couplings, J = 0']
        """
        pseudocount = real("prior_count", prior_count, 0.0)
        # `_counts` has an array (1, L_i) of weighted level counts for each predictor
        counts = [predictor_counts[0] for predictor_counts in self._counts]
        # `_sections` are the tables of tests of fields and couplings
        return density_summary(
            self.call, self.labels, counts, pseudocount, fit_facts(self), self._sections
        )

    def __repr__(self) -> str:
        return render_fit(self)

    def _evaluation_parts(self, newdata: object, weights: Hashable | ArrayLike) -> list[Part]:
        """Return an empty list of sections, because a model without classes makes no
        predictions.
        """
        return []
