"""GraphsResults: weighted graphical models and the probability of each edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import pandas as pd

from bbl.checks import check_keywords
from bbl.report.machine.plot_graphs import plot_edges
from bbl.report.markup import Section
from bbl.report.notebook import Notebook, first_rows
from bbl.report.text import table_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GraphsResults"]


@final
@dataclass(frozen=True, repr=False)
class GraphsResults(Notebook):
    """Graphical models of a table, as returned by `bbl.graphs`.

    Attributes
    ----------
    table : DataFrame
        The best graphs, in decreasing order of weight: ``formula``, for
        ``bbl.bbl(formula, data, method="ml")``; the number of ``edges``; ``parameters``;
        ``logLik``; the criterion, ``BIC`` or ``AIC``; and ``weight``, which sums to 1 over all
        compared graphs.
    edges : DataFrame
        A row for each pair of variables, most probable first: ``variable``, ``variable2``, and
        ``probability``, the total weight of the graphs that contain the edge.
    n_graphs : int
        Number of graphs that were compared.
    is_exhaustive : bool
        Whether all graphs were compared. If not, a greedy search selected them, and the
        probabilities refer only to these graphs.
    variables : tuple
        Names, in the order of the table.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> result = bbl.graphs(titanic[["Sex", "Age", "Survived", "Freq"]], weights="Freq")
    >>> result.formula, result.n_graphs, result.is_exhaustive
    ('~ Sex*Age*Survived', 8, True)
    >>> result.edges.round(3)
      variable variable2  probability
    0      Sex  Survived        1.000
    1      Sex       Age        0.995
    2      Age  Survived        0.968
    """

    table: pd.DataFrame
    edges: pd.DataFrame
    n_graphs: int
    is_exhaustive: bool
    variables: tuple[Any, ...]

    @property
    def formula(self) -> str:
        """Formula of the best graph."""
        return str(self.table["formula"].iloc[0])

    @check_keywords
    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph of the variables; the width and colour of an edge indicate its
        probability.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        matplotlib Axes
            Edges with a probability below 5 % are not drawn, and edges below 50 % are dashed.

        Examples
        --------
        >>> import matplotlib.pyplot as plt
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> result = bbl.graphs(titanic[["Sex", "Age", "Survived", "Freq"]], weights="Freq")
        >>> axis = result.plot()
        >>> plt.close()
        """
        position = {name: i for i, name in enumerate(self.variables)}
        # the two ends of each edge, as positions in `variables`, (edges, 2)
        node_pairs = self.edges[["variable", "variable2"]].map(position.__getitem__).to_numpy()
        return plot_edges(self.variables, node_pairs, self.edges["probability"].to_numpy(), ax)

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the text lines and tables for display in notebooks."""
        return "", [
            first_rows(self.table, self._title(), source=".table"),
            first_rows(self.edges, "Edges", source=".edges"),
        ]

    def _title(self) -> str:
        """Return the title of the table, with the numbers of listed and compared graphs."""
        count = (
            f"all {self.n_graphs:,} graphs"
            if self.is_exhaustive
            else f"{self.n_graphs:,} graphs found by the search"
        )
        noun = "the best" if len(self.table) == 1 else f"the {len(self.table)} best"
        return f"{noun.capitalize()} of {count}"

    def __repr__(self) -> str:
        return f"{self._title()}\n\n{table_text(self.table)}\n\nEdges\n\n{table_text(self.edges)}"
