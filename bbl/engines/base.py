"""What every engine takes and gives: options in, a sample and a layout, an EngineFit out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["Engine", "EngineFit", "Note"]


class Note(NamedTuple):
    """What is to be said about a predictor in the warning that names it.

    Attributes
    ----------
    predictor : int
    level : int
        Code of the level that it is about; -1 for none.
    what : str
        What is wrong, and the remedy: the same text wherever it is the same thing, so that it is said once.
    detail : str
        Numbers of this case alone.
    """

    predictor: int
    level: int
    what: str
    detail: str = ""


@dataclass(frozen=True)
class EngineFit:
    """Result of one engine run on one group.

    Attributes
    ----------
    theta : ndarray, shape (layout.size,)
        Fields and couplings.
    lkh : float
        The maximised objective per observation, summed over predictors.
    site_theta : ndarray, shape (D, 1 + D), or None
        Unsymmetrised pseudo-likelihood solution: row (i, a) holds ``h_i(a)`` and all ``J_i(a; j, b)``.
    normaliser : callable, or None
        ``normaliser(half)``: eq. (31) on the rows that were fitted, where the engine's kernel has it at hand.
    mf_log_z : float, or None
        The mean-field ln Z of eq. (32), from the engine's own frequencies.
    grad_norm : ndarray, shape (m,)
        Norm of the gradient left at each predictor.
    n_iter : ndarray of int, shape (m,)
        Iterations that each predictor took.
    converged : ndarray of bool, shape (m,)
    notes : tuple of Note
        What is to be said about single predictors.
    unbounded : tuple of (int, int, int, int)
        For each predictor without a finite optimum, a parameter of it that grows without end: predictor, level code,
        and those of the predictor it is coupled to (-1 for a field).
    """

    theta: np.ndarray
    lkh: float
    site_theta: np.ndarray | None = None
    mf_log_z: float | None = None
    normaliser: Callable[[bool], float] | None = None
    grad_norm: np.ndarray = field(default_factory=lambda: np.zeros(0))
    n_iter: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
    converged: np.ndarray = field(default_factory=lambda: np.ones(0, dtype=bool))
    notes: tuple[Note, ...] = ()
    unbounded: tuple[tuple[int, int, int, int], ...] = ()

    def log_z(self, kind: str) -> float | None:
        """Return ln Z of this kind ("pseudo", "half" or "mf") where the engine has it at hand."""
        if kind == "mf":
            return self.mf_log_z
        return None if self.normaliser is None else self.normaliser(kind == "half")


@dataclass(frozen=True)
class Engine:
    """Options of an inference method, with the one method `path` that fits a group at a grid of settings.

    Attributes
    ----------
    name : str
        Name in the ENGINES table.
    tuned : str or None
        The option that crossVal varies.
    log_z : str
        The ln Z that goes with the method where the exact one is too costly.
    stepwise : bool
        Whether settings are best compared a few at a time, the strongest first, each starting from fits before it.
    order : int
        The most predictors in a term that the engine takes.
    """

    name: ClassVar[str]
    tuned: ClassVar[str | None] = None
    log_z: ClassVar[str] = "exact"
    stepwise: ClassVar[bool] = False
    order: ClassVar[int] = 2

    def restrict(self, layout: Layout) -> Layout:
        """Return the layout of the parameters that this engine fits."""
        return layout

    def prepare(self, sample: Sample, layout: Layout) -> Sample:
        """Return the rows that this engine fits (augmented where its method says so)."""
        return sample

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes that a fit to `n` rows at several settings takes while it runs, besides its result."""
        return 0.0

    def path(self, sample: Sample, layout: Layout, values: Sequence[float] | None = None, workers: int = 1):
        """Fit one group at each of `values` of the tuned option; None for the engine's own setting."""
        raise NotImplementedError

    def compare(
        self, sample: Sample, layout: Layout, values: Sequence[float] | None, trail: Mapping[float, np.ndarray]
    ) -> list[EngineFit]:
        """Fit one group at each of `values`, well enough to compare them.

        Parameters
        ----------
        trail : mapping of float to ndarray
            ``site_theta`` of earlier comparisons on the same rows, by their settings. Those of `values` that are
            among them are compared again, more exactly.
        """
        return self.path(sample, layout, values)

    def fit(self, sample: Sample, layout: Layout, workers: int = 1) -> EngineFit:
        """Fit one group at the engine's own settings."""
        return self.path(sample, layout, None, workers)[0]

    def at(self, value: float) -> Engine:
        """Return the same engine with the tuned option set to `value`."""
        return replace(self, **{self.tuned: value})  # type: ignore[arg-type]
