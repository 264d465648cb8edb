"""The public function `graphs`: graphical models of a table, their weights, and edge probabilities.

A *graph* joins variables by edges; its model contains the interactions of all sets of variables in
which each pair is joined. `GraphScores` describes the G graphs that were fitted; `n_graphs` also
counts graphs that were compared without a fit because their weight is 0.
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

MAX_VARIABLES = 6  # compare all graphs for up to this many variables: 32,768 graphs for six
# and for up to this many cells of the table; graphs that are not decomposable need all cells
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
    """Compare the graphical models of a table, and compute the probability of each edge.

    Two variables without an edge are independent given all others.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        All columns except the weights are variables, including a response if there is one.
    weights : column name or array of length n, optional
        Integer frequencies.
    criterion : {"bic", "aic"}, default "bic"
        Criterion for the graphs' weights ``exp(-criterion / 2)``.
    top : int, default 20
        Number of graphs in ``table``, best first.
    missing : {"raise", "drop", "level"}, default "raise"
        "raise": raise an error for missing values; "drop": drop their rows; "level": treat them as
        a separate level.
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
    With *up to six variables* (and 16,384 cells), all graphs are compared: 32,768 graphs of six
    variables. The maximum of each graph's likelihood is exact. A variable is split off if all its
    neighbours are joined with each other, and this is repeated; the likelihood's factor for such a
    variable has a closed form, computed from margins. In a decomposable graph, all variables are
    split off. The remainder of any other graph, such as a cycle of four variables, is fitted once
    for all graphs that have the same remainder. The fit uses iterative proportional fitting, or
    Newton's method if this has not converged after 400 rounds. Graphs of negligible weight are not
    fitted. Their criterion would exceed the smallest one by more than 100 even if their likelihood
    were as large as that of a larger graph that contains them.

    *With more variables or cells*, only decomposable graphs are compared, by a greedy search. It
    starts without edges, and adds or drops the edge that decreases the criterion most, until no
    step decreases the criterion any more. Weights and probabilities then refer to the graphs
    compared during the search; other graphs have weight 0.

    With ``"bic"``, the weights approximate posterior probabilities of the graphs under equal prior
    probabilities. The criterion counts all parameters of a graph. In contrast, ``fit.bic`` does not
    count parameters that are not estimable because of empty cells. Counting only estimable
    parameters here would favour large graphs in sparse tables.

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
    # one_sided: the formula has no response; sums_out=False: the error about missing values does
    # not suggest missing="marginal"
    rules = EncodingRules(sums_out=False, one_sided=True)
    encoded = encode_data("~ .", data, weights, rules=rules, missing=missing)
    names = encoded.design.labels.names
    n_levels = encoded.design.n_levels
    if len(names) < 2:
        raise DataError(
            f"graphs requires at least two variables, but the data has only one, {names[0]!r}.",
            argument="data",
        )
    margins = Margins(encoded.rows, n_levels)
    penalty = float(np.log(encoded.rows.total)) if criterion == "bic" else 2.0  # per parameter
    is_small = len(names) <= MAX_VARIABLES and np.prod(n_levels.astype(float)) <= MAX_STATES
    with progress_bar(1 if is_small else None, "graphs", verbose) as progress:
        # EXACT: maximum likelihood for graphs that are not decomposable
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

    `penalty` is the penalty per parameter, and `criterion_name` is the name of the criterion's
    column.
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
    # edge probabilities, which may slightly exceed 1 because of rounding errors
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
    """Return the formula of a graph: its terms are all sets of variables in which each pair is
    joined.

    `pairs` (edges, 2) contains the positions in `names` of the joined variables.
    """
    joined_pairs = {(int(i), int(j)) for i, j in pairs}
    newest_terms: list[tuple[int, ...]] = list(joined_pairs)
    terms = newest_terms.copy()
    # extend the terms found last by one variable that is joined to all variables in the term
    while newest_terms:
        newest_terms = [
            (*term, variable)
            for term in newest_terms
            for variable in range(term[-1] + 1, len(names))
            if all((i, variable) in joined_pairs for i in term)
        ]
        terms += newest_terms
    return write_formula(None, names, terms).text
