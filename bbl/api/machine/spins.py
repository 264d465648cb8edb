"""The public functions `to_spins` and `from_spins`, which convert between levels and spins of -1
and 1; equation numbers are those of Woo & Wang (2022).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.checks import check_keywords
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.regressors import pair_matrix
from bbl.report.text import label_index, label_text
from bbl.results.machine.cv import CVResults
from bbl.results.machine.draws import GroupParameters
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.spins import SpinParameters

__all__ = ["from_spins", "to_spins"]

LARGER = "Merge its levels into two with bbl.bin or bbl.lump, or leave it out of the formula."


@check_keywords
def to_spins(
    model: MachineResults | CVResults | GroupParameters, group: Hashable = None
) -> SpinParameters:
    """Convert a machine of two-level predictors to spins, as in the R package BoltzMM.

    Parameters
    ----------
    model : BBLResults, DensityResults, CVResults, GroupParameters or MLEstimate
        A fitted model, or the parameters of one group. All predictors must have two levels.
    group : label, optional
        The group, for a model with a response.

    Returns
    -------
    SpinParameters
        ``b`` and ``M`` of ``P(s) ~ exp(s'Ms / 2 + b's)``, where each spin is -1 at the reference
        level of its predictor and 1 at the other level (eq. 8): ``M_ij = J_ij / 4`` and ``b_i = h_i
        / 2 + sum_j J_ij / 4`` (eq. 9).

    Raises
    ------
    OptionError
        If a predictor does not have two levels, `group` is missing or unknown, or the model has
        hidden units or interactions of three or more predictors.
    BBLTypeError
        If `model` has a different type.

    See Also
    --------
    bbl.from_spins : The inverse conversion.

    References
    ----------
    Jones AT, Nguyen HD, Bagnall JJ (2019). BoltzMM: Boltzmann Machines with MM Algorithms. R
    package version 0.1.4.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Sex * Age", titanic, weights="Freq")
    >>> spins = bbl.to_spins(fit, "Yes")
    >>> spins.b.round(3).to_dict()
    {'Sex': 0.026, 'Age': -1.22}
    """
    if isinstance(model, CVResults):
        model = model.model  # type: ignore[assignment]  # checked below
    if isinstance(model, GroupParameters):
        if group is not None:
            raise OptionError(
                "These are the parameters of a single group, so there are no groups to choose "
                "from.",
                hint="Omit the group argument.",
                argument="group",
            )
        names: tuple = tuple(range(len(model.h)))
        widths = [len(h) for h in model.h]
        fields, J = _of_tables(model, _checked(names, widths))
    elif isinstance(model, MachineResults):
        layout = model.estimate.parameters.layout
        model.engine.check_density("to_spins")
        if layout.order > 2 or model._hidden is not None:
            what = "hidden units" if model._hidden is not None else "terms of three predictors"
            raise OptionError(
                f"Spin models have only fields and pairwise couplings, but this fit has {what}.",
                hint="Use a formula with pairs only, such as '~ .^2', without hidden units.",
                argument="model",
            )
        names = model.labels.names
        _checked(names, np.diff(layout.start).tolist())
        fields, J = pair_matrix(
            layout, model.estimate.parameters.theta[_group_position(model, group)]
        )
    else:
        raise BBLTypeError(
            f"model must be a fitted Boltzmann machine or its parameters; got "
            f"{type(model).__name__}.",
            hint="Pass the result of bbl(), crossVal(), mlestimate() or randompar().",
            argument="model",
        )
    index = label_index(names)
    # energy of spins: substitute x = (1 + s) / 2 in sum h x + sum J x x
    return SpinParameters(
        b=pd.Series(0.5 * fields + 0.25 * J.sum(axis=1), index=index, name="b"),
        M=pd.DataFrame(0.25 * J, index=index, columns=index),
        constant=float(0.5 * fields.sum() + 0.125 * J.sum()),
    )


@check_keywords
def from_spins(b: ArrayLike, M: ArrayLike) -> GroupParameters:
    """Convert spin parameters to fields and couplings of two-level predictors (inverse of
    `to_spins`).

    Parameters
    ----------
    b : array_like, shape (m,)
        Fields of the spins, for example from the R package BoltzMM.
    M : array_like, shape (m, m)
        Symmetric couplings; the diagonal only adds a constant and is ignored.

    Returns
    -------
    GroupParameters
        ``J_ij = 4 M_ij`` and ``h_i = 2 b_i - 2 sum_j M_ij``, for `sample_xi` and `randomsamp`.

    Raises
    ------
    DataError
        If shapes are inconsistent, numbers are not finite, or `M` is not symmetric.

    Examples
    --------
    >>> import bbl
    >>> par = bbl.from_spins([0.5, 0.0], [[0.0, 1.0], [1.0, 0.0]])
    >>> [h.tolist() for h in par.h], par.J[0, 1].tolist()
    ([[-1.0], [-2.0]], [[4.0]])
    >>> bbl.to_spins(par).b.tolist()
    [0.5, 0.0]
    """
    try:
        fields = np.asarray(b, dtype=float)
        couplings = np.array(M, dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            "b and M must be numeric arrays.",
            hint="Pass arrays of shapes (m,) and (m, m).",
            argument="b",
        ) from None
    m = len(fields) if fields.ndim == 1 else 0
    if not m or couplings.shape != (m, m):
        raise DataError(
            f"b has shape {fields.shape} and M has shape {couplings.shape}.",
            hint="Pass b with shape (m,) and M with shape (m, m).",
            argument="M",
        )
    if not (np.isfinite(fields).all() and np.isfinite(couplings).all()):
        raise DataError("b or M contains non-finite values.", hint="Replace them.", argument="M")
    if not np.allclose(couplings, couplings.T, rtol=1e-10, atol=1e-12):
        raise DataError(
            "M is not symmetric.",
            hint="To use both triangles of M, pass (M + M.T) / 2.",
            argument="M",
        )
    np.fill_diagonal(couplings, 0.0)
    couplings = 0.5 * (couplings + couplings.T)
    h = 2.0 * fields - 2.0 * couplings.sum(axis=1)
    return GroupParameters._from_matrix(Layout(np.full(m, 2)), h, 4.0 * couplings)


def _checked(names: tuple, widths: list[int]) -> int:
    """Return the number of predictors; raise an error unless each has two levels."""
    for name, width in zip(names, widths, strict=True):
        if width != 1:
            raise OptionError(
                f"Spins have two levels, but the predictor {label_text(name)!r} has {width + 1}.",
                hint=LARGER,
                column=name,
                value=width + 1,
            )
    return len(names)


def _of_tables(par: GroupParameters, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return fields (m,) and symmetric couplings (m, m) from tables; the two estimates of each
    coupling are averaged (eq. 18).
    """
    J = np.zeros((m, m))
    for term, table in (par.J or {}).items():
        if len(term) > 2:
            raise OptionError(
                "Spin models have only fields and pairwise couplings, but J contains the term "
                f"{term}.",
                hint="Leave out terms that involve three or more predictors.",
                argument="model",
            )
        J[term] = float(np.asarray(table).item())
    # a table that is given in only one order applies to both orders
    only_one = (J != 0.0) & (J.T == 0.0)
    J = np.where(only_one.T, J.T, J)
    return np.concatenate([np.asarray(h, dtype=float) for h in par.h]), 0.5 * (J + J.T)


def _group_position(fit: MachineResults, group: Hashable) -> int:
    """Return the position of `group` among the groups of a fit, or 0 if there is a single group."""
    groups = list(fit.labels.groups)
    if group is None and len(groups) == 1:
        return 0
    if group not in groups:
        problem = "group is missing" if group is None else f"group={group!r} is not a group"
        raise OptionError(
            f"{problem}: the fit has {len(groups)} groups.",
            hint=f"Pass one of {', '.join(map(repr, groups[:5]))}.",
            argument="group",
            value=group,
        )
    return groups.index(group)
