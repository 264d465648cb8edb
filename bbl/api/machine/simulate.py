"""The public functions for random data and parameters: `mcSample`, `sample_xi`, `randompar`,
`randomsamp`.

The numbers of predictors, groups and non-reference levels are m, K and D; predictor i has L_i
levels, and theta is the flat vector of fields h and couplings J.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, flag
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.memory import check_memory
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.regressors import to_matrix
from bbl.model.states import random_parameters, sample_groups, sample_states
from bbl.report.text import distinct_names
from bbl.results.machine.cv import CVResults
from bbl.results.machine.draws import GroupParameters, SampleResults, tables_memory
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.monte_carlo import ChainOptions, sample_chains

__all__ = ["mcSample", "randompar", "randomsamp", "sample_xi"]

# lists of levels, by predictor name or in order
PredictorLevels: TypeAlias = Mapping[Any, Sequence[Any]] | Sequence[Sequence[Any]]


@check_keywords
def mcSample(
    fit: MachineResults | CVResults,
    nsteps: int = 1000,
    *,
    nchains: int = 64,
    draws: bool = False,
    thin: int = 1,
    seed: int | np.random.Generator | None = None,
    verbose: int = 1,
) -> SampleResults:
    """Sample the predictors of each response group by Gibbs sampling, and report the most probable
    of the sampled states.

    Parameters
    ----------
    fit : BBLResults, DensityResults or CVResults
    nsteps : int, default 1000
        Number of sweeps over all predictors.
    nchains : int, default 64
        Number of independent chains; running all of them takes about as long as running one.
    draws : bool, default False
        Whether to return draws from the second half of the sweeps.
    thin : int, default 1
        Number of sweeps per returned draw.
    seed : int or numpy.random.Generator, optional
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    SampleResults
        ``xmax`` (predictors by groups), ``emax`` (its energy, the exponent of P(x)), ``rhat``,
        ``ess``, ``draws``.

    Raises
    ------
    OptionError, BBLTypeError
        If an argument is out of range.

    Warns
    -----
    ConvergenceWarning
        If draws were requested (at least 20 per chain and 100 in total) and split R-hat exceeds 1.1
        in a group.

    Notes
    -----
    If the model has hidden units, they are sampled together with the predictors and then dropped.
    Draws come from the distribution evaluated by `BBLResults.score_samples`, averaged over the
    posterior draws. If all states of predictors and hidden units can be enumerated, draws are exact
    and independent.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> bbl.mcSample(fit, nsteps=100, seed=1).xmax
              No    Yes
    Class   Crew   Crew
    Sex     Male   Male
    Age    Adult  Adult
    """
    model: object = fit.model if isinstance(fit, CVResults) else fit
    if not isinstance(model, MachineResults):
        raise BBLTypeError(
            "fit must be a result of bbl() or crossVal() with a single method; got "
            f"{type(model).__name__}.",
            argument="fit",
        )
    return sample_chains(model, ChainOptions(nsteps, nchains, draws, thin, seed, verbose))


def _read_predictors(predictors: PredictorLevels | None) -> tuple[list, list[list]]:
    """Return the names of `predictors` and their lists of levels; unnamed predictors are called x1,
    x2, ...
    """
    if isinstance(predictors, Mapping):
        names = list(predictors)
        levels = [list(predictor_levels) for predictor_levels in predictors.values()]
    elif isinstance(predictors, Sequence) and not isinstance(predictors, str):
        levels = [list(predictor_levels) for predictor_levels in predictors]
        names = [f"x{i + 1}" for i in range(len(levels))]
    else:
        raise BBLTypeError(
            "predictors must be a list of lists of levels, or a dict that maps names to lists of "
            f"levels; got {type(predictors).__name__}.",
            argument="predictors",
        )
    if not levels:
        raise OptionError(
            "predictors is empty.",
            argument="predictors",
            hint="Pass at least one list of levels.",
        )
    for name, predictor_levels in zip(names, levels, strict=True):
        if len(predictor_levels) < 2 or len(set(predictor_levels)) < len(predictor_levels):
            raise OptionError(
                f"predictor {name!r} must have at least two distinct levels; got "
                f"{predictor_levels!r}.",
                column=name,
                value=predictor_levels,
            )
    return names, levels


def _parameter_vector(layout: Layout, par: GroupParameters, argument: str) -> np.ndarray:
    """Return ``par.h`` (list of arrays) and ``par.J`` (dict of terms to arrays) as a parameter
    vector (size,).

    `argument` is the name of `par` in error messages.
    """
    theta = np.zeros(layout.size)
    try:  # the DataError below reports wrong types and shapes of any kind
        if len(par.h) != layout.m:
            raise ValueError
        for i, h in enumerate(par.h):
            layout.table(theta, i)[...] = np.asarray(h, dtype=float)
        for term, table in (par.J or {}).items():
            layout.table(theta, *term)[...] = np.asarray(table, dtype=float)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError):
        raise DataError(
            f"{argument} does not match the predictors: h must contain one array of L_i - 1 fields "
            "for each predictor, and J must map each pair (i, j) to an array of shape "
            "(L_i - 1, L_j - 1), and likewise for terms of three or more predictors.",
            argument=argument,
        ) from None
    return theta


def _make_layout(levels: list[list], parameters: Sequence[GroupParameters | None]) -> Layout:
    """Return a layout with all pairs, and with the valid terms of three or more predictors in the
    groups' ``J``.
    """
    n_levels = [len(predictor_levels) for predictor_levels in levels]
    # parameters without J raise an error elsewhere
    terms = {
        term
        for par in parameters
        for term in (getattr(par, "J", None) or {})
        if isinstance(term, tuple)
    }
    higher_terms = {
        term
        for term in terms
        if len(term) > 2
        and len(set(term)) == len(term)
        and all(isinstance(i, int | np.integer) and 0 <= i < len(levels) for i in term)
    }
    # (P, 2); a layout accepts arrays of terms of one order, or single terms
    pairs = Layout(n_levels).pairs
    return Layout(n_levels, [pairs, *sorted(higher_terms)]) if higher_terms else Layout(n_levels)


@check_keywords
def randompar(
    predictors: PredictorLevels,
    distr: str = "unif",
    h0: float = 0.0,
    dh: float = 1.0,
    J0: float = 0.0,
    dJ: float = 1.0,
    *,
    seed: int | np.random.Generator | None = None,
) -> GroupParameters:
    """Draw random fields and couplings for a single group.

    Parameters
    ----------
    predictors : list of level lists, or dict of names to level lists
    distr : {"unif", "norm"}, default "unif"
        "unif": uniform between ``h0 - dh`` and ``h0 + dh`` for fields, and between ``J0 - dJ`` and
        ``J0 + dJ`` for couplings. "norm": normal with means ``h0`` and ``J0`` and standard
        deviations ``dh`` and ``dJ``.
    h0, dh, J0, dJ : float
        Parameters of `distr` for fields and couplings.
    seed : int or numpy.random.Generator, optional

    Returns
    -------
    GroupParameters
        ``.h`` and ``.J``.

    Examples
    --------
    >>> par = randompar([[0, 1, 2]] * 5, seed=1)
    >>> len(par.h), par.J[0, 1].shape
    (5, (2, 2))
    """
    _, levels = _read_predictors(predictors)
    layout = Layout([len(predictor_levels) for predictor_levels in levels])
    check_memory(
        tables_memory(layout), f"Tables of {layout.D} non-reference levels", "Use fewer predictors."
    )
    # parameters of the only group
    theta = random_parameters(layout, distr, h0, dh, J0, dJ, seed)[0]
    h, J = to_matrix(layout, theta)
    return GroupParameters._from_matrix(layout, h, J)


@check_keywords
def sample_xi(
    nsample: int = 1,
    predictors: PredictorLevels | None = None,
    h: list[np.ndarray] | None = None,
    J: dict[tuple[int, ...], np.ndarray] | None = None,
    *,
    code_out: bool = False,
    seed: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Draw rows of predictors from a Boltzmann machine with ``P(x) ~ exp(sum h + sum J)``.

    Parameters
    ----------
    nsample : int, default 1
    predictors : list of level lists, or dict of names to level lists
    h : list of arrays, shape (L_i - 1,)
        Fields.
    J : dict of (i, j) to arrays, shape (L_i - 1, L_j - 1), optional
        Couplings; omitted pairs are zero. Terms of three or more predictors have keys such as ``(i,
        j, k)`` and arrays (L_i - 1, L_j - 1, L_k - 1).
    code_out : bool, default False
        Whether to return integer codes instead of levels.
    seed : int or numpy.random.Generator, optional

    Returns
    -------
    DataFrame
        One column per predictor. Draws are exact and independent if there are at most 2**20 states;
        otherwise, they are obtained by Gibbs sampling.

    Examples
    --------
    >>> predictors = [[0, 1, 2]] * 5
    >>> par = randompar(predictors, seed=1)
    >>> sample_xi(100, predictors, par.h, par.J, code_out=True, seed=2).shape
    (100, 5)
    """
    names, levels = _read_predictors(predictors)
    par = GroupParameters([] if h is None else h, {} if J is None else J)
    layout = _make_layout(levels, [par])
    fields, couplings, higher_terms = split(layout, _parameter_vector(layout, par, "h, J"))
    codes = sample_states(fields, couplings, layout.n_levels, nsample, seed, more=higher_terms)
    return _decode_rows(codes, names, levels, flag("code_out", code_out))


def _decode_rows(
    codes: np.ndarray, names: list, levels: list[list], code_out: bool
) -> pd.DataFrame:
    """Return codes (n, m) as a frame with one column per predictor: codes if `code_out`, otherwise
    levels.
    """
    columns = {
        name: codes[:, i].astype(np.int64)
        if code_out
        else pd.Index(levels[i]).take(codes[:, i].astype(np.intp))
        for i, name in enumerate(names)
    }
    return pd.DataFrame(columns)


@check_keywords
def randomsamp(
    predictors: PredictorLevels,
    response: Sequence[Any],
    prob: Sequence[float] | Mapping[Any, float] | pd.Series | None = None,
    par: Sequence[GroupParameters | None] | Mapping[Any, GroupParameters] | None = None,
    nsample: int = 100,
    *,
    seed: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Draw rows of predictors and response from Boltzmann machines with given parameters.

    Parameters
    ----------
    predictors : list of level lists, or dict of names to level lists
    response : sequence of length K
        The response groups.
    prob : sequence of length K, or dict (or Series) of group to probability, optional
        Probabilities of the groups; equal by default.
    par : sequence of K GroupParameters, or dict of group to GroupParameters
        Fields and couplings of each group, as `randompar` returns them.
    nsample : int, default 100
        Number of rows; the group of each row is drawn independently.
    seed : int or numpy.random.Generator, optional

    Returns
    -------
    DataFrame
        Columns ``y`` (``y_`` if a predictor is called y) and the predictors, with rows in random
        order.

    Examples
    --------
    >>> predictors = [list("acgt")] * 4
    >>> par = [randompar(predictors, seed=1), randompar(predictors, seed=2)]
    >>> randomsamp(predictors, ["case", "ctrl"], par=par, nsample=3, seed=3)
          y x1 x2 x3 x4
    0  case  g  c  g  a
    1  case  a  c  t  t
    2  ctrl  g  a  g  c
    """
    names, levels = _read_predictors(predictors)
    groups = list(response)
    if len(set(groups)) < len(groups):
        raise OptionError(
            f"response contains a duplicate group: {groups!r}.",
            argument="response",
            hint="Name each group once.",
        )
    if isinstance(prob, Mapping | pd.Series):
        absent = [group for group in groups if group not in prob]
        if absent:
            raise OptionError(
                f"prob must contain one entry for each group, but it has none for {absent[0]!r}.",
                argument="prob",
            )
        prob = [prob[group] for group in groups]
    if isinstance(par, Mapping):
        par = [par.get(group) for group in groups]
    if not isinstance(par, Sequence) or len(par) != len(groups) or not groups:
        raise OptionError(
            f"par must contain one set of parameters for each of the {len(groups)} groups.",
            argument="par",
        )
    layout = _make_layout(levels, par)
    # None raises a DataError below
    par_by_group = zip(groups, cast(Sequence[GroupParameters], par), strict=True)
    theta = np.array(
        [
            _parameter_vector(layout, group_par, f"par of group {group!r}")
            for group, group_par in par_by_group
        ]
    )
    codes, y = sample_groups(layout, theta, nsample, prob, seed)
    frame = _decode_rows(codes, names, levels, code_out=False)
    # "y", or "y_" if a predictor has that name
    frame.insert(0, distinct_names([*names, "y"])[-1], pd.Index(groups).take(y))
    return frame
