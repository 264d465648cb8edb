"""Results of engines: fits, notes for warnings, and solved likelihood equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout

__all__ = ["EngineFit", "Equations", "JointFit", "Limit", "NoProgress", "Note", "Unpenalised"]


class Note(NamedTuple):
    """A problem with a fit, which is reported in a warning.

    Attributes
    ----------
    predictor : int
        The affected predictor, or -1 if the problem concerns the whole fit.
    level : int
        Code of the affected level; -1 if there is none.
    what : str
        The problem. The same problem always has the same text, so a warning reports it only once.
    detail : str
        Details of this occurrence of the problem.
    hint : str
        A sentence that suggests a remedy; empty if there is none.
    """

    predictor: int
    level: int
    what: str
    detail: str = ""
    hint: str = ""


class NoProgress(Exception):
    """Raised if a fit to rows in a file makes no progress and a larger sample exceeds the memory.

    `norm` is the gradient norm of `predictor`, `rows` is the size of the sample in memory, and `n`
    is the number of rows in the file.
    """

    def __init__(self, predictor: int, norm: float, rows: int, n: int):
        super().__init__(predictor, norm, rows, n)
        self.predictor = predictor
        self.norm = norm
        self.rows = rows
        self.n = n


@dataclass(frozen=True)
class EngineFit:
    """Result of fitting one group with an engine.

    Attributes
    ----------
    theta : ndarray, shape (layout.size,)
        Fields and couplings in the reference gauge; parameters of reference levels are zero and not
        stored.
    lkh : float
        Maximum of the objective per observation, summed over predictors.
    site_theta : ndarray, shape (layout.D, 1 + D), or None
        Pseudo-likelihood solution before symmetrisation. Row (i, a) contains ``h_i(a)`` and all
        ``J_i(a; j, b)``, and with higher-order terms also ``J_i(a; j, b, k, c)``. The D columns of
        the couplings correspond to the regressors of predictor i (see
        `bbl.model.regressors.Regressors`).
    normaliser : callable, or None
        ``normaliser(half)`` returns ln Z from the training rows by eq. (31); with `half`, couplings
        of k predictors are multiplied by 1/k. None if unavailable.
    mf_log_z : float, or None
        The mean-field ln Z of eq. (32), computed from the frequencies used by the engine.
    grad_norm : ndarray, shape (m,)
        Norm of each predictor's final gradient. Both this array and `n_iter` are empty if the
        engine does not iterate.
    n_iter : ndarray of int, shape (m,)
        Number of iterations for each predictor.
    converged : ndarray of bool, shape (m,)
    notes : tuple of Note
        Problems with the fit, for warnings.
    unbounded : tuple of tuples of int
        One diverging parameter for each predictor that has no finite optimum. The numbers are the
        predictor and its level code, followed, for a coupling, by the other predictors and their
        level codes.
    remedy : str
        First part of a sentence that explains how to make the optimum of the `unbounded` parameters
        finite.
    sd : ndarray, shape (layout.size,), or None
        Posterior standard deviations of `theta`, which is then the posterior mean.
    draws : ndarray, shape (chains, draws, layout.size), or None
        Draws from the posterior.
    rank : int, or None
        Number of parameters that are determined by the data; None if all of them are.
    layout : Layout, or None
        Layout of `theta`, if the engine selected the terms (`Engine.chooses`).
    state : dict of str to ndarray
        Other arrays that later method calls use. They are stored in model files.
    history : dict of str to ndarray
        Progress of the fit, as columns of equal length. The first column is the iteration.
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
    unbounded: tuple[tuple[int, ...], ...] = ()
    remedy: str = "Set lambda_ > 0"
    sd: np.ndarray | None = None
    draws: np.ndarray | None = None
    rank: int | None = None
    layout: Layout | None = None
    state: dict[str, np.ndarray] = field(default_factory=dict)
    history: dict[str, np.ndarray] = field(default_factory=dict)

    def renumbered(self, number: np.ndarray) -> EngineFit:
        """Return a copy whose `notes` and `unbounded` refer to predictor i as ``number[i]``."""
        notes = []
        for plain_note in self.notes:
            note = Note(*plain_note)  # also accepts plain tuples without the detail or the hint
            predictor = int(number[note.predictor]) if note.predictor >= 0 else note.predictor
            notes.append(note._replace(predictor=predictor))
        # a parameter alternates predictors and levels: (i, a) or (i, a, j, b, ...)
        unbounded = tuple(
            tuple(int(number[v]) if k % 2 == 0 else v for k, v in enumerate(parameter))
            for parameter in self.unbounded
        )
        return replace(self, notes=tuple(notes), unbounded=unbounded)

    def of_predictors(self, predictors: np.ndarray, layout: Layout) -> EngineFit:
        """Extend a fit of some `predictors` to all predictors of a layout.

        The fit does not contain parameters of the other predictors.
        """
        converged = np.ones(layout.m, dtype=bool)
        converged[predictors] = self.converged
        by_predictor: dict[str, Any] = {"converged": converged}
        for name in ("grad_norm", "n_iter"):
            values = getattr(self, name)
            if len(values):  # empty if the engine does not iterate
                by_predictor[name] = np.zeros(layout.m, dtype=values.dtype)
                by_predictor[name][predictors] = values
        if self.layout is not None:
            terms = [predictors[terms] for terms in self.layout.terms]
            by_predictor["layout"] = layout.with_terms(terms)
        return replace(self.renumbered(predictors), **by_predictor)

    def log_z(self, kind: str) -> float | None:
        """Return ln Z of this `kind`, or None if the engine has not computed it.

        ``"pseudo"`` is eq. (31), ``"half"`` is the same equation with couplings of k predictors
        multiplied by 1/k, and ``"mf"`` is eq. (32).
        """
        if kind == "mf":
            return self.mf_log_z
        return None if self.normaliser is None else self.normaliser(kind == "half")


class Equations(NamedTuple):
    """Solution of a group's likelihood equations, which are used for standard errors.

    There is one set of equations for each predictor.

    Attributes
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Solution before symmetrisation, as in `EngineFit`.
    lambda_ : float or tuple of float
        Penalty on the couplings, or one penalty for each order.
    lambdah : float
        Penalty on the fields.
    rows : Sample or StoredSample
        The rows that were fitted.
    prior_count : float
        Pseudocount of the pseudo-likelihood; see `PseudoLikelihood`.
    zero_sum : bool
        Whether the penalties apply to fields and couplings in the zero-sum gauge.
    """

    site_theta: np.ndarray
    lambda_: float | tuple[float, ...]
    lambdah: float
    rows: Any
    prior_count: float = 0.0
    zero_sum: bool = False


class Unpenalised(NamedTuple):
    """Unpenalised estimates for a group.

    Attributes
    ----------
    theta : ndarray, shape (layout.size,)
    determined : ndarray of bool, shape (layout.size,)
        Whether each parameter has a finite value that is determined by the data.
    influence : RowInfluence
    """

    theta: np.ndarray
    determined: np.ndarray
    influence: RowInfluence


class LikelihoodMaximum(NamedTuple):
    """The unpenalised maximum of the likelihood of a group.

    Attributes
    ----------
    log_likelihood : float
        Log-likelihood of all rows.
    rank : int
        Number of free parameters.
    theta : ndarray, shape (layout.size,)
    """

    log_likelihood: float
    rank: int
    theta: np.ndarray


class Limit(NamedTuple):
    """The identified and unidentified coefficients of a group in a joint fit.

    Coefficients may be unidentified because the rows do not determine them, or because ordered
    levels have common parameters.

    Attributes
    ----------
    rank : int
        Number of identified coefficients. The constant is included only in unpenalised fits.
    unbounded : tuple of tuples of int
        As in `EngineFit`.
    notes : tuple of Note
        As in `EngineFit`.
    remedy : str
        As in `EngineFit`.
    """

    rank: int
    unbounded: tuple[tuple[int, ...], ...]
    notes: tuple[Note, ...]
    remedy: str = "Use ridge='firth', whose estimates are finite and have intervals, or ridge='cv'"


class JointFit(NamedTuple):
    """A joint fit of P(group | row) for all K groups.

    The class scores of a row are its energies under `theta`, plus `constant`, plus `temperature`
    times its scores in the generative fit that the joint fit started from.

    Attributes
    ----------
    theta : ndarray, shape (K, layout.size)
        Parameters in the reference gauge.
    constant : ndarray, shape (K,)
    temperature : float
    loss : float
        Log-loss of the training rows, excluding the penalty. With minibatches, the loss of a row is
        evaluated when the row is visited.
    gradient : float
        Largest component of the gradient with respect to scaled unknowns; nan if it was not
        computed.
    evaluations : int
        Number of evaluations of the objective over all rows.
    converged : bool
        Whether the gradient is below the tolerance.
    limits : sequence of K Limit, or None
        Identified coefficients of each group. None for penalised fits, which have a finite optimum,
        unless ordered levels have common parameters.
    """

    theta: np.ndarray
    constant: np.ndarray
    temperature: float
    loss: float
    gradient: float
    evaluations: int
    converged: bool
    limits: Sequence[Limit] | None = None
