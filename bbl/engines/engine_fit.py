"""Results of engines: a fit, notes for warnings, and the likelihood equations that were solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout

__all__ = ["EngineFit", "Equations", "JointFit", "Limit", "NoProgress", "Note", "Unpenalised"]


class Note(NamedTuple):
    """A problem of a fit, for the warning that tells of it.

    Attributes
    ----------
    predictor : int
        The predictor that has the problem; -1 for the fit as a whole.
    level : int
        Code of the level; -1 for none.
    what : str
        The problem and its remedy: equal problems have equal texts, so that a warning says each
        once.
    detail : str
        Figures of this problem.
    """

    predictor: int
    level: int
    what: str
    detail: str = ""


class NoProgress(Exception):
    """The rounds of a fit to rows in a file make no progress, and there is no memory for a larger
    sample of them.

    `norm` is the gradient norm of `predictor`, `rows` the size of the sample, `n` the number of
    rows in the file.
    """

    def __init__(self, predictor: int, norm: float, rows: int, n: int):
        super().__init__(predictor, norm, rows, n)
        self.predictor = predictor
        self.norm = norm
        self.rows = rows
        self.n = n


@dataclass(frozen=True)
class EngineFit:
    """Result of one engine run on one group.

    Attributes
    ----------
    theta : ndarray, shape (layout.size,)
        Fields and couplings in the reference gauge: those of reference levels are zero and not
        stored.
    lkh : float
        The maximised objective per observation, summed over predictors.
    site_theta : ndarray, shape (layout.D, 1 + D), or None
        Unsymmetrised pseudo-likelihood solution: row (i, a) holds ``h_i(a)`` and all ``J_i(a; j,
        b)``, with terms of three predictors and more also ``J_i(a; j, b, k, c)``, for the D columns
        of the regressors of predictor i (see `bbl.model.regressors.Regressors`).
    normaliser : callable, or None
        ``normaliser(half)`` returns ln Z by eq. (31) on the fitted rows; with `half`, couplings of
        k predictors have the factor 1/k. None if the kernel has not computed it.
    mf_log_z : float, or None
        The mean-field ln Z of eq. (32), from the frequencies that the engine uses.
    grad_norm : ndarray, shape (m,)
        Norm of the gradient left at each predictor; empty, as `n_iter`, if the engine does not
        iterate.
    n_iter : ndarray of int, shape (m,)
        Iterations that each predictor took.
    converged : ndarray of bool, shape (m,)
    notes : tuple of Note
        Problems of the fit, for warnings.
    unbounded : tuple of tuples of int
        For each predictor without a finite optimum, one of its parameters that grow without end:
        predictor, level code, then predictor and level code of each predictor that it is coupled to
        (none for a field).
    remedy : str
        What gives the parameters in `unbounded` a finite optimum, for warnings.
    sd : ndarray, shape (layout.size,), or None
        Posterior standard deviations of `theta`, which then is the posterior mean.
    draws : ndarray, shape (chains, draws, layout.size), or None
        Draws from the posterior.
    rank : int, or None
        Number of parameters that the rows determine; None for all.
    layout : Layout, or None
        Layout of `theta`, if the engine chose the terms (`Engine.chooses`).
    state : dict of str to ndarray
        Other arrays that the engine needs later to answer questions about this fit; stored in model
        files.
    history : dict of str to ndarray
        Course of the fit: columns of equal length, the first of them the iteration.
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
    remedy: str = "lambda_ > 0"
    sd: np.ndarray | None = None
    draws: np.ndarray | None = None
    rank: int | None = None
    layout: Layout | None = None
    state: dict[str, np.ndarray] = field(default_factory=dict)
    history: dict[str, np.ndarray] = field(default_factory=dict)

    def log_z(self, kind: str) -> float | None:
        """Return the ln Z of this `kind` if the engine has computed it, else None.

        ``"pseudo"`` is eq. (31), ``"half"`` the same with couplings of k predictors times 1/k,
        ``"mf"`` is eq. (32).
        """
        if kind == "mf":
            return self.mf_log_z
        return None if self.normaliser is None else self.normaliser(kind == "half")


class Equations(NamedTuple):
    """Solution of a group's likelihood equations, one set for each predictor, from which standard
    errors follow.

    Attributes
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution, as in `EngineFit`.
    lambda_ : float or tuple of float
        Penalty of the couplings in the equations, or one for each order.
    lambdah : float
        Penalty of the fields.
    rows : Sample or StoredSample
        The rows that were fitted.
    prior_count : float
        Pseudocount of the pseudo-likelihood, see `PseudoLikelihood`.
    zero_sum : bool
        Whether the penalties are of fields and couplings in the zero-sum gauge.
    """

    site_theta: np.ndarray
    lambda_: float | tuple[float, ...]
    lambdah: float
    rows: Any
    prior_count: float = 0.0
    zero_sum: bool = False


class Unpenalised(NamedTuple):
    """Estimates of a group without any penalty.

    Attributes
    ----------
    theta : ndarray, shape (layout.size,)
    determined : ndarray of bool, shape (layout.size,)
        Whether the rows determine each parameter, with a finite value.
    influence : RowInfluence
    """

    theta: np.ndarray
    determined: np.ndarray
    influence: RowInfluence


class Limit(NamedTuple):
    """What the rows, or the coding of levels in order, determine of a group that is fitted together
    with others.

    Attributes
    ----------
    rank : int
        Number of coefficients that are determined. The constant is one of them only if there is no
        penalty.
    unbounded : tuple of tuples of int
        As in `EngineFit`.
    notes : tuple of Note
        As in `EngineFit`.
    """

    rank: int
    unbounded: tuple[tuple[int, ...], ...]
    notes: tuple[Note, ...]


class JointFit(NamedTuple):
    """A fit of all K groups together, to P(group | row).

    The class scores of a row are its energies under `theta`, plus `constant`, plus `temperature`
    times the scores by the generative fit that the joint fit started from.

    Attributes
    ----------
    theta : ndarray, shape (K, layout.size)
        In the reference gauge.
    constant : ndarray, shape (K,)
    temperature : float
    loss : float
        Log-loss of the training rows without the penalty; with minibatches, at the time when each
        row was used.
    gradient : float
        Largest component of the gradient with respect to scaled unknowns; nan if it was not
        computed.
    evaluations : int
        Number of evaluations of the objective over all rows.
    converged : bool
        Whether the gradient is below the tolerance.
    limits : sequence of K Limit, or None
        What the rows leave open in each group; None for penalised fits, which have a finite
        optimum, unless levels in order share parameters.
    """

    theta: np.ndarray
    constant: np.ndarray
    temperature: float
    loss: float
    gradient: float
    evaluations: int
    converged: bool
    limits: Sequence[Limit] | None = None
