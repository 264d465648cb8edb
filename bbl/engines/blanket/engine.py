"""Engine `MarkovBlanket`: fields and couplings derived from a Bayesian network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bbl.checks import real
from bbl.engines.base import NEED_ERRORS, Engine
from bbl.engines.blanket.families import Families
from bbl.engines.blanket.search import RESPONSE, climb
from bbl.engines.engine_fit import JointFit, Limit
from bbl.engines.score_tables import add_table
from bbl.engines.traits import JointTraits, OutOfFoldScores, Tuned
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.metrics import falling_order, log_loss, log_probabilities

__all__ = ["MarkovBlanket"]

# maximum number of predictors in the network: only the most informative are included
MAX_PREDICTORS = 100
# ends the message "method='blanket' ..."
NO_ERRORS = "selects a network from the rows, and standard errors would ignore this selection"


@dataclass(frozen=True)
class MarkovBlanket(Engine):
    """Fields and couplings derived from the Markov blanket of the response in a Bayesian network.

    A network of the response y and all predictors is learnt by hill climbing, with at most two
    parents for each variable. P(y|x) then depends only on the Markov blanket of y: its parents, its
    children, and the children's other parents. Up to its normaliser, ``ln P(y|x)`` is ``ln P(y |
    parents)`` plus the sum of ``ln P(x_i | y, other parent)`` over the children of y. These terms
    are fields and pair couplings. All other parameters are zero. P(x|y) is not modelled, so row
    likelihoods and ln Z are not available, and missing values cannot be marginalised.

    Parameters
    ----------
    iss : float, default 10.0
        Imaginary sample size: the weight of the Dirichlet prior on each probability table,
        expressed as a number of rows. Larger values lead to networks with more arcs.

    Raises
    ------
    OptionError
        If `iss` is not positive and finite.

    Notes
    -----
    Networks are scored by BDeu (Buntine 1991; Heckerman, Geiger & Chickering 1995), and probability
    tables are estimated by posterior means. If the response has no parents, its distribution is
    estimated by the class proportions. Only pairs in the formula can have couplings. If there are
    more than 100 predictors, only the most informative ones are used.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2", titanic, "Freq", method=bbl.MarkovBlanket(iss=10.0), verbose=0
    ... )
    >>> round(fit.score(), 3)
    0.789
    """

    iss: float = 10.0
    name = "blanket"
    loads = True
    tuned = Tuned(
        "iss",
        "iss",
        r"$\alpha$",
        r"Imaginary sample size $\alpha$",
        (1.0, 3.0, 10.0, 30.0, 100.0),
        simpler="smaller",
        logarithmic=True,
    )
    log_z = "half"

    def __post_init__(self):
        object.__setattr__(self, "iss", real("iss", self.iss, 0.0, open_low=True))

    @property
    def penalised(self) -> bool:
        """Always True, because the priors shrink estimates towards equal probabilities."""
        return True

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        reasons = super().refusals()
        method = f"method={cls.name!r}"
        return reasons | {
            "relevance": f"{method} selects predictors automatically",
            **dict.fromkeys(NEED_ERRORS, f"{method} {NO_ERRORS}"),
        }

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, for the counts in `Families` and two copies of the codes.

        Codes have shape (n, M). If S is the total number of levels, the counts have shape (L_i, S)
        for each variable i, and (L_i, L_j, S) with a parent j. The size of the counts is doubled to
        allow for parents that are discarded later. `settings` has no effect.
        """
        M = min(layout.m, MAX_PREDICTORS) + 1
        # the M predictors with most levels; one of them represents the response
        S = float(np.sort(layout.n_levels)[-M:].sum())
        # S / M: mean number of levels of a parent
        return 12.0 * n * M + 24.0 * S**2 * (1.0 + S / M)

    def fit_groups(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        values: Sequence[float] | None,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
        start: np.ndarray | None = None,
    ) -> list[JointFit]:
        """Return a fit of all groups for each imaginary sample size; see `JointTraits`.

        `oof_scores`, `rng` and `start` are not used, because fits are deterministic and do not
        start from another fit.
        """
        check_memory(
            self.memory(sample.n, layout),
            f"A network of {layout.m} predictors with {layout.D + layout.m} levels",
            "Use fewer predictors, or merge rare levels.",
        )
        # variables of the network: variable 0 is the response, the others are the most informative
        # predictors
        predictors = _informative_predictors(sample, layout.n_levels, K)
        families = Families(
            np.column_stack([sample.response, sample.codes[:, predictors]]),
            sample.weights,
            np.append(K, layout.n_levels[predictors]),
        )
        interacts = np.zeros((len(predictors) + 1,) * 2, dtype=bool)
        interacts[1:, 1:] = layout.mask[np.ix_(predictors, predictors)]
        sizes = [self.iss] if values is None else [float(value) for value in values]
        return [
            self._fit_network(sample, layout, families, interacts, predictors, size)
            for size in sizes
        ]

    def _fit_network(
        self,
        sample: Sample,
        layout: Layout,
        families: Families,
        interacts: np.ndarray,
        predictors: np.ndarray,
        sample_size: float,
    ) -> JointFit:
        """Return the fit at one imaginary `sample_size`.

        Variable k > 0 is the predictor ``predictors[k - 1]``. The class score of y is ``ln P(y |
        parents)`` plus ``ln P(x_i | y, other parent)`` for its children i. The first axis of each
        of these tables is y, and the others are up to two predictors. `interacts` is the same as in
        `climb`.
        """
        parents = climb(families, interacts, sample_size)
        K = int(families.n_levels[RESPONSE])
        # used: mask of the parameters that occur in a table
        theta = np.zeros((K, layout.size))
        constant = np.zeros(K)
        used = np.zeros(layout.size, dtype=bool)
        tables = [(parents[RESPONSE], _response_table(families, parents[RESPONSE], sample_size))]
        for i, parents_of_i in enumerate(parents):
            if RESPONSE in parents_of_i:  # a child
                other_parents = tuple(k for k in parents_of_i if k != RESPONSE)
                log_p = families.log_probabilities(i, (RESPONSE, *other_parents), sample_size)
                tables.append(((i, *other_parents), np.moveaxis(log_p, 1, 0)))
        scores = np.zeros((K, sample.n))  # for the training rows
        for variables, table in tables:
            levels: tuple[Any, ...] = (slice(None), *(families.codes[:, k] for k in variables))
            scores += table[levels].reshape(K, -1)
            add_table(
                layout, theta, constant, [int(predictors[k - 1]) for k in variables], table, used
            )
        loss = log_loss(log_probabilities(scores.T), sample.response, sample.weights)
        limits = [Limit(int(used.sum()), unbounded=(), notes=())] * K
        # a closed form has no gradient and no iterations
        return JointFit(
            theta,
            constant,
            temperature=1.0,
            loss=loss,
            gradient=np.nan,
            evaluations=0,
            converged=True,
            limits=limits,
        )

    joint: ClassVar[JointTraits] = JointTraits(fit_groups)


def _informative_predictors(sample: Sample, n_levels: np.ndarray, K: int) -> np.ndarray:
    """Return the `MAX_PREDICTORS` most informative predictors, in decreasing order.

    The criterion is the mutual information with the response, minus its bias under independence,
    ``(L - 1)(K - 1) / 2n``. Sorting the variables in this way makes the search independent of the
    order of columns.
    """
    information = np.empty(len(n_levels))
    for i, L in enumerate(n_levels):
        joint = np.bincount(
            sample.response * int(L) + sample.codes[:, i], sample.weights, K * int(L)
        ).reshape(K, -1)
        expected = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0) / sample.total
        occurs = joint > 0.0
        # n times the mutual information
        total_information = float(joint[occurs] @ np.log(joint[occurs] / expected[occurs]))
        information[i] = (total_information - 0.5 * (L - 1) * (K - 1)) / sample.total
    return falling_order(information)[:MAX_PREDICTORS]


def _response_table(families: Families, parents: tuple[int, ...], sample_size: float) -> np.ndarray:
    """Return ln P(y | parents), shape (K, L_i, ...), or the log class proportions for no parents.

    The weight `sample_size` of the prior is spread evenly over the levels of the parents. At each
    level, this weight is divided among the classes according to their proportions. The entries of
    groups without rows are 0 instead of -inf.
    """
    counts = families.count_family(RESPONSE, *parents)
    shares = families.count_family(RESPONSE) / families.weights.sum()
    n_parent_levels = counts[0].size
    smoothed = counts + np.multiply.outer(
        shares, np.full(counts.shape[1:], sample_size / n_parent_levels)
    )
    p = smoothed / smoothed.sum(axis=0)
    return np.log(np.where(p > 0.0, p, 1.0))
