"""The public function `graphs`: graphical models of a table, with their weights and the probability
of each edge.

A *graph* joins variables by edges; its model has all interactions of variables that are joined
pairwise. `GraphScores` hold for G graphs and the E pairs of variables `pairs` (E, 2): `edges` (G,
E), whether a graph joins a pair, and `log_likelihood` and `n_parameters`, each (G,). They leave out
the graphs that were not fitted, whose weight is 0; `n_graphs` counts all that were compared.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bbl.api.training_data import encode_data, refuse_batches
from bbl.boltzmann.graphs.decomposable import greedy_graphs
from bbl.boltzmann.graphs.exhaustive import all_graphs
from bbl.boltzmann.graphs.scores import GraphScores, Margins
from bbl.checks import check_keywords, choice, integer
from bbl.design.design import EncodingRules
from bbl.design.formula import write_formula
from bbl.design.table_types import TableLike, Weights
from bbl.engines import EXACT
from bbl.errors import DataError
from bbl.parallel import progress_bar
from bbl.results.comparisons.graphs import GraphsResults

__all__ = ["graphs"]

MAX_VARIABLES = 6  # variables up to which all graphs are compared: 32,768 of six
# cells of their table up to which all graphs are compared: those that are not decomposable take it
MAX_STATES = 2**14


@check_keywords
def graphs(
    data: TableLike,
    weights: Weights | None = None,
    criterion: str = "bic",
    top: int = 20,
    *,
    missing: str = "raise",
    verbose: int = 1,
) -> GraphsResults:
    """Compare graphical models of a table: which variables are joined, and how sure is each edge?

    Two variables that are not joined are independent given all others.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        All columns but the weights are variables; a response is one of them.
    weights : column name or array of length n, optional
        Integer frequencies.
    criterion : {"bic", "aic"}, default "bic"
        Criterion of the weights ``exp(-criterion / 2)`` of graphs.
    top : int, default 20
        Number of best graphs in ``table``.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing values are an error; or their rows are dropped; or they are a level of their own.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    GraphsResults
        ``table``, ``edges``, ``formula``, ``plot()``.

    Raises
    ------
    DataError, LevelError, OptionError, BBLTypeError
        The message names the column or argument and suggests a remedy.

    Notes
    -----
    *Up to six variables* (and 16,384 cells of their table) all graphs are compared, 32,768 of six.
    Each has its exact maximum of the likelihood. A variable whose neighbours are all joined is
    split off, again and again; the likelihood then has a factor in closed form, from the margins of
    these variables. A decomposable graph is split up completely. The remainder of any other graph,
    such as a cycle of four, is fitted once for all graphs that have it: by proportional fitting, or
    by Newton's method if proportional fitting has not converged after 400 rounds. Graphs without a
    weight are not fitted. These are not among the best, and their criterion would exceed the least
    one by more than 100 even with the likelihood of a larger graph that contains them.

    *With more variables or cells*, only decomposable graphs are compared, by a greedy search. It
    starts without edges, and adds or drops the edge that lowers the criterion the most, until none
    does. Weights and probabilities then refer to the graphs that were compared on the way; other
    graphs have none.

    The weights of ``"bic"`` approximate posterior probabilities of graphs that are equally likely
    before. The criterion counts all parameters of a graph. ``fit.bic`` does not count parameters
    that have no estimate because cells are empty; without these, large graphs would look too good
    in sparse tables.

    References
    ----------
    Lauritzen SL (1996). Graphical Models. Oxford, chapter 4. Madigan D, Raftery AE (1994). Model
    selection and accounting for model uncertainty in graphical models using Occam's window. Journal
    of the American Statistical Association 89, 1535-1546.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> found = bbl.graphs(titanic, weights="Freq", top=2)
    >>> found.formula
    '~ Class*Sex*Survived + Class*Age*Survived'
    >>> found.table[["edges", "parameters", "BIC", "weight"]].round(3)
       edges  parameters        BIC  weight
    0      5          23  10502.279     1.0
    1      4          19  10526.282     0.0
    """
    choice("criterion", criterion, ("bic", "aic"))
    choice("missing", missing, ("raise", "drop", "level"))
    n_best = integer("top", top, 1)
    refuse_batches(data, "graphs", "data")
    # one_sided: no response; without sums_out, an error of missing values does not advise
    # missing="marginal"
    rules = EncodingRules(sums_out=False, one_sided=True)
    encoded = encode_data("~ .", data, weights, rules=rules, missing=missing)
    names = encoded.design.labels.names
    n_levels = encoded.design.n_levels
    if len(names) < 2:
        raise DataError(
            f"graphs needs at least two variables, but the data has only one, {names[0]!r}.",
            argument="data",
        )
    margins = Margins(encoded.rows, n_levels)
    penalty = float(np.log(encoded.rows.total)) if criterion == "bic" else 2.0  # of a parameter
    is_small = len(names) <= MAX_VARIABLES and np.prod(n_levels.astype(float)) <= MAX_STATES
    with progress_bar(1 if is_small else None, "graphs", verbose) as progress:
        # EXACT: maximum likelihood, for graphs that are not decomposable
        scores = (
            all_graphs(margins, EXACT, penalty, n_best, progress)
            if is_small
            else greedy_graphs(margins, penalty, progress)
        )
    return _graphs_results(scores, names, penalty, criterion.upper(), n_best)


def _graphs_results(
    scores: GraphScores, names: tuple, penalty: float, criterion_name: str, n_best: int
) -> GraphsResults:
    """Return the `n_best` graphs with their weights, and the edges with their probabilities, as
    frames.

    `penalty` is that of a parameter in the criterion, whose column is called `criterion_name`.
    """
    criterion = scores.criterion(penalty)  # (G,)
    weights = np.exp(-0.5 * (criterion - criterion.min()))
    weights /= weights.sum()
    best_graphs = np.argsort(criterion, kind="stable")[:n_best]
    table = pd.DataFrame(
        {
            "formula": [
                _graph_formula(names, scores.pairs[has_edge])
                for has_edge in scores.edges[best_graphs]
            ],
            "edges": scores.edges[best_graphs].sum(axis=1),
            "parameters": scores.n_parameters[best_graphs].astype(np.int64),
            "logLik": scores.log_likelihood[best_graphs],
            criterion_name: criterion[best_graphs],
            "weight": weights[best_graphs],
        }
    )
    # of each edge; rounding may give a little more than 1
    probability = np.minimum(weights @ scores.edges, 1.0)
    most_probable_first = np.argsort(-probability, kind="stable")
    edge_ends = [[names[i] for i in scores.pairs[most_probable_first, end]] for end in (0, 1)]
    edges = pd.DataFrame(
        {
            "variable": edge_ends[0],
            "variable2": edge_ends[1],
            "probability": probability[most_probable_first],
        }
    )
    return GraphsResults(table, edges, scores.n_graphs, scores.is_exhaustive, tuple(names))


def _graph_formula(names: tuple, pairs: np.ndarray) -> str:
    """Return the formula of a graph, whose terms are all sets of variables that are joined
    pairwise.

    `pairs` (edges, 2) are the joined pairs, as positions in `names`.
    """
    joined_pairs = {(int(i), int(j)) for i, j in pairs}
    newest_terms: list[tuple[int, ...]] = list(joined_pairs)
    terms = newest_terms.copy()
    # extend the terms found last by one variable, all of whose pairs are joined
    while newest_terms:
        newest_terms = [
            (*term, variable)
            for term in newest_terms
            for variable in range(term[-1] + 1, len(names))
            if all((i, variable) in joined_pairs for i in term)
        ]
        terms += newest_terms
    return write_formula(None, names, terms).text
