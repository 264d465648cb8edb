"""The public functions `bicluster`, for two-way clustering of a table, and `du_process`, for random
partitions.

A *cell* is the crossing of a row and a column of the table, and a *block* is the crossing of a row
group and a column group.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.api.training_data import data_arguments
from bbl.biclustering.cells import Cells
from bbl.biclustering.du import du_draws
from bbl.biclustering.mcmc import MIXED
from bbl.biclustering.methods import Prototype, make_method
from bbl.checks import arguments, check_keywords, generator, integer
from bbl.design.table_types import TableLike, Weights
from bbl.design.twoway import TwoWay
from bbl.errors import BBLTypeError, ConvergenceWarning, OptionError
from bbl.parallel import n_workers, progress_bar
from bbl.report.text import call_text
from bbl.results.bicluster.bicluster import BiclusterResults

__all__ = ["bicluster", "du_process"]

MAX_ITEMS = 2**24  # maximum number of items in a partition


def bicluster(
    formula: str | None,
    data: TableLike | ArrayLike,
    groups: tuple[int, int] | None = None,
    method: str = "prototype",
    *,
    weights: Weights | None = None,
    seed: int | np.random.Generator | None = 0,
    n_init: int = 10,
    n_jobs: int | None = None,
    verbose: int = 1,
    **options: Any,
) -> BiclusterResults:
    """Group the rows and columns of a table so that the cells within a block are similar; cells may
    be missing.

    Parameters
    ----------
    formula : str or None
        ``"rating ~ user*movie"`` for a long table: the response, the row factor and the column
        factor. Missing cells are pairs of levels without a row or with a missing response; the
        responses of repeated pairs are averaged. ``"~ user*movie"`` for the presence or absence of
        pairs (``method="mcmc"``). None if `data` is a matrix.
    data : DataFrame (pandas, polars), pyarrow Table, dict of lists; or a matrix (no formula)
        Missing cells of a matrix are nan.
    groups : (int, int), optional
        Numbers of row groups and column groups. If None, both numbers are chosen: by the integrated
        completed likelihood on a grid (``"prototype"``), by the fitness (``"genetic"``), or by the
        posterior (``"mcmc"``).
    method : {"prototype", "genetic", "mcmc"}, default "prototype"
        "prototype": block prototypes, for numeric and categorical data. "genetic": a genetic
        algorithm, for ordinal ratings in small tables. "mcmc": Markov chains that sample from the
        posterior, for data that record which user rated which item.
    weights : column name or array of length n, optional
        Integer frequencies of the rows of `data`; a row of weight w counts as w identical rows.
    seed : int, numpy.random.Generator or None, default 0
        None uses fresh entropy.
    n_init : int, default 10
        Number of random starts, populations or chains.
    n_jobs : int, optional
        Number of threads; None or -1 uses all cores. Results do not depend on it.
    verbose : int, default 1
        0 hides the progress bar.
    **options
        Options of the method. `Prototype`: ``metric`` ("squared", "levels", "pearson"), ``move``
        ("all", "one"), ``start`` ("kmeans", "hierarchical", "random"), ``empty`` ("reseed",
        "drop"), ``fill``, ``prior_count``, ``max_iter``, ``max_groups``. `Genetic`: ``scale``,
        ``sigma``, ``penalty`` ("bic", "thesis" or a number), ``mean`` ("block", "mle"),
        ``population``, ``generations``, ``crossover``, ``mutation``, ``elitism``, ``refine``.
        `Mcmc`: ``draws``, ``warmup``, ``thin``, ``alpha``, ``sigma``, ``step``, ``popularity``,
        ``loss`` ("vi", "binder"). See `bbl.biclustering.methods`.

    Returns
    -------
    BiclusterResults

    Raises
    ------
    FormulaError, DataError, OptionError, BBLTypeError
        The message names the column or argument and suggests a remedy. Examples: a row or column
        without observed cells, fewer rows than groups, infinite values, a constant response, an
        unknown option.

    Warns
    -----
    DataWarning
        If the chosen number of groups is the largest that was tried.
    ConvergenceWarning
        If chains have not mixed (split R-hat above 1.1), or groups were still changing after
        `max_iter` iterations.

    Notes
    -----
    In a matrix, a row of weight w counts as w copies of the row, which are all in the same group.

    References
    ----------
    Li J (2014). Biclustering methods and a Bayesian approach to fitting Boltzmann machines in
    statistical learning. Thesis, Iowa State University, chapters 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> import bbl
    >>> table = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
    >>> table[0, 0] = np.nan
    >>> fit = bbl.bicluster(None, table, groups=(2, 2))
    >>> fit.row_groups.tolist(), fit.column_groups.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1])
    >>> fit.block_means.to_numpy().tolist()
    [[1.0, 4.0], [2.0, 5.0]]
    """
    rng = generator(seed)
    workers = n_workers(n_jobs)
    n_init = integer("n_init", n_init, 1)
    # this function's argument names, for the error message about an unknown option
    biclusterer = make_method(method, options, arguments(bicluster))
    table, entries = TwoWay.from_data(formula, data, weights, biclusterer.response)
    # entries: row, column, value and weight of each observed cell
    cells = Cells.from_entries(*entries, table.shape)
    n_groups = None if groups is None else _checked_groups(groups, table.shape)
    # number of categories of a cell; 1 for numeric cells
    n_levels = (
        1 if table.levels is None or biclusterer.response != "levels" else len(table.levels.levels)
    )
    with progress_bar(
        biclusterer.steps(n_init, n_groups, table.shape), "bicluster", verbose
    ) as progress:
        clustering = biclusterer.fit(cells, n_groups, n_init, rng, workers, progress, n_levels)
    call_string = _call_string(formula, data, weights, n_groups, method, options)
    fit = BiclusterResults._from_found(call_string, table, biclusterer, cells, clustering)
    _warn_unconverged(fit)
    return fit


@check_keywords
def du_process(
    start: int | ArrayLike,
    draws: int = 1000,
    *,
    thin: int = 1,
    seed: int | np.random.Generator | None = 0,
) -> np.ndarray:
    """Draw partitions of items by the Du process, whose stationary distribution is uniform.

    At each step, one item is chosen at random and moves. If it is alone in its group, it moves to
    another group; otherwise, it moves to another group or forms a new one. All these destinations
    are equally probable.

    Parameters
    ----------
    start : int or array_like of length n
        Either the number of items, if each starts in its own group, or the initial group of
        each item, with any labels.
    draws : int, default 1000
        Number of partitions to draw.
    thin : int, default 1
        Number of steps between partitions, and before the first one.
    seed : int, numpy.random.Generator or None, default 0
        None uses fresh entropy.

    Returns
    -------
    ndarray of int32, shape (draws, n)
        The group of each item: 0, 1, ... in order of first appearance.

    Raises
    ------
    OptionError, BBLTypeError
        If an argument is out of range, or `start` has no items.

    Notes
    -----
    The transition matrix is symmetric, so all partitions of the items are equally probable in the
    long run, and a Metropolis algorithm with this proposal does not need a Hastings ratio. With two
    items, the process is periodic. ``bicluster(..., method="genetic")`` uses this process for its
    mutations, and ``method="mcmc"`` for its proposals. Any partition of n items can be reached in
    about n steps, so discard the first draws, which still depend on `start`.

    References
    ----------
    Li J (2014). Biclustering methods and a Bayesian approach to fitting Boltzmann machines in
    statistical learning. Thesis, Iowa State University, appendix A, after Du (2014).

    Examples
    --------
    The five partitions of three items, each about equally frequent:

    >>> import numpy as np
    >>> import bbl
    >>> draws = bbl.du_process(3, 5000)
    >>> partitions, counts = np.unique(draws, axis=0, return_counts=True)
    >>> partitions.tolist()
    [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]]
    >>> bool(abs(counts / 5000 - 0.2).max() < 0.03)
    True
    """
    rng = generator(seed)
    n_draws = integer("draws", draws, 1)
    steps = integer("thin", thin, 1)
    if np.ndim(start) == 0:
        labels = np.arange(integer("start", start, 1, MAX_ITEMS))
    else:
        given = np.asarray(start)
        if given.ndim != 1 or not len(given):
            raise OptionError(
                f"start has the shape {given.shape}.",
                argument="start",
                hint="Pass the number of items, or the group of each item.",
            )
        labels = pd.factorize(given, use_na_sentinel=False)[0]
    return du_draws(labels, n_draws, steps, rng)


def _warn_unconverged(fit: BiclusterResults) -> None:
    """Warn if chains have not mixed, or if groups were still changing in the last iteration of the
    prototype method.
    """
    if fit.converged:
        return
    # method "genetic" has no warning, because the length of its runs is fixed
    if fit.posterior is not None:
        rhat = fit.posterior.rhat  # Series by name of the traced quantity
        warnings.warn(
            ConvergenceWarning(
                f"The chains have not mixed: the split R-hat of {rhat.idxmax()} is "
                f"{rhat.max():.3f}, above {MIXED}.",
                hint="Increase warmup, draws or thin.",
            ),
            stacklevel=3,
        )
    elif isinstance(fit.method, Prototype):
        warnings.warn(
            ConvergenceWarning(
                f"The groups were still changing after {fit.n_iter} iterations.",
                hint="Increase max_iter.",
            ),
            stacklevel=3,
        )


def _call_string(
    formula: str | None,
    data: object,
    weights: Weights | None,
    groups: tuple[int, int] | None,
    method: str,
    options: dict,
) -> str:
    """Return the printed form of the call, without options whose values are arrays."""
    call_arguments: dict[str, Any] = {} if formula is None else {"formula": formula}
    call_arguments |= data_arguments(data, weights)
    if groups is not None:
        call_arguments["groups"] = groups
    if method != "prototype":
        call_arguments["method"] = method
    scalar_options = {
        name: value
        for name, value in options.items()
        if isinstance(value, str | int | float | tuple)
    }
    return call_text("bicluster", {**call_arguments, **scalar_options})


def _checked_groups(groups: object, shape: tuple[int, int]) -> tuple[int, int]:
    """Check that a table of this `shape` has enough rows and columns, and return the numbers of row
    groups and column groups.
    """
    if not isinstance(groups, tuple | list | np.ndarray) or len(groups) != 2:
        raise BBLTypeError(
            f"groups must be a pair (row groups, column groups); got {groups!r}.",
            argument="groups",
            value=groups,
        )
    n_groups = integer("groups", groups[0], 1), integer("groups", groups[1], 1)
    for n_of_axis, axis_name, axis_length in zip(n_groups, ("rows", "columns"), shape, strict=True):
        if n_of_axis > axis_length:
            raise OptionError(
                f"groups={n_groups} specifies {n_of_axis} groups, but there are only "
                f"{axis_length} {axis_name}.",
                argument="groups",
            )
    return n_groups
