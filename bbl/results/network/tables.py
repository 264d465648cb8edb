"""Mixin of `NetworkResults`: probability tables with labels, their standard errors, and the facts of the summary.

MANB, WANBIA and AWNB are variants of the estimates: averaged over feature subsets, or with weighted features.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.information import conditional_information
from bbl.bayesnet.parameters import standard_errors
from bbl.bayesnet.predict import Network
from bbl.errors import OptionError
from bbl.names import label_index
from bbl.report.text import missing_text
from bbl.results.network.structure import Structure, require_single

__all__ = ["NetworkTables"]


class NetworkTables:
    """Probability tables, feature weights and summary facts of a fitted network; `self` is a `NetworkResults`."""

    @cached_property
    def params(self: Any) -> dict[Hashable, Any]:
        """Probability table of each variable: one row for each configuration of its parents, one column for each level.

        For an average, a dict of these tables for each member.
        """
        if isinstance(self.network, Averaged):
            networks = zip(self.members, self.network.members, strict=True)
            return {name: self._frames(network, network.theta) for name, network in networks}
        return self._frames(self.network, self.network.theta)

    @cached_property
    def params_se(self: Any) -> dict[Hashable, pd.DataFrame]:
        """Standard errors of `params`: standard deviations of the Dirichlet posterior; nan where there are none."""
        require_single(self.structure, "standard errors")
        network = self.network
        assert isinstance(network, Network)  # noqa: S101  # a Structure has a single Network
        if self._errors is None:
            raise OptionError(
                "Tables that were averaged or weighted (MANB, WANBIA, AWNB) have no Dirichlet posterior, so they have "
                "no standard errors; fit without manb_prior, wanbia, awnb_trees and awnb_bootstrap."
            )
        frames = self._frames(network, self._errors[0])
        frames[self.labels.response].iloc[0] = self._errors[1]
        return frames

    @cached_property
    def _errors(self: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Standard errors of all tables (cells, K) and of the class probabilities (K,); None if there are none."""
        if self.stored_errors is not None or not self.recipe.plain or isinstance(self.network, Averaged):
            return self.stored_errors
        return standard_errors(self.network, self._rows(), self.recipe.smooth)

    def _frames(self: Any, network: Network, cell_values: np.ndarray) -> dict[Hashable, pd.DataFrame]:
        """Return one number per cell (cells, K) as a table for each feature, and the class probabilities.

        Rows are the joint levels of feature parents and class, columns the levels of the feature.
        """
        frames = {}
        labels = self.labels
        for f, (i, parents) in enumerate(network.dag.families):
            table = np.moveaxis(network.families.table(cell_values, f), -2, -1)
            names = [*(labels.names[p] for p in parents), labels.response]
            levels = [*(labels.levels[p] for p in parents), labels.groups]
            columns = label_index(labels.levels[i], labels.names[i])
            index = label_index(levels[0], names[0]) if not parents else pd.MultiIndex.from_product(levels, names=names)
            frames[labels.names[i]] = pd.DataFrame(table.reshape(-1, table.shape[-1]), index, columns)
        frames[labels.response] = pd.DataFrame(
            network.prior[None].copy(), columns=label_index(labels.groups, labels.response)
        )
        return frames

    @property
    def manb_arc_posterior(self: Any) -> pd.Series | None:
        """Posterior probability of the arc from the class to each feature (MANB); None in other fits."""
        return self._by_feature(self.arc_posterior, True)

    @property
    def awnb_weights(self: Any) -> pd.Series | None:
        """Weight of each feature from decision trees (AWNB); None in other fits."""
        return self._by_feature(self.feature_weights, self.recipe.awnb is not None)

    @property
    def wanbia_weights(self: Any) -> pd.Series | None:
        """Weight of each feature by conditional likelihood (WANBIA); None in other fits."""
        return self._by_feature(self.feature_weights, self.recipe.wanbia is not False)

    def _by_feature(self: Any, values: np.ndarray | None, is_of_method: bool) -> pd.Series | None:
        """Return values (m,) labelled by feature; None if there are none, or if another method estimated them."""
        if values is None or not is_of_method:
            return None
        return pd.Series(values, index=label_index(self.structure.features))

    def _facts(self: Any) -> dict[str, Any]:
        """Return the key figures of the summary by title."""
        log_lik, recipe, incomplete = self.logLik(), self.recipe, self.design.incomplete
        method = (
            f"averaged over subsets of features (MANB), prior {recipe.manb_prior:.4g}"
            if recipe.manb_prior is not None
            else "weighted by conditional likelihood (WANBIA)"
            if recipe.wanbia is True
            else "weighted as given"
            if recipe.wanbia is not False
            else f"weighted by {recipe.awnb[0]} trees (AWNB)"
            if recipe.awnb is not None
            else "Dirichlet"
        )
        facts: dict[str, Any] = {"Learner": self.structure.learner or "given by hand"}
        if isinstance(self.structure, Structure):
            facts["Arcs"] = self.structure.narcs
        else:
            facts["Networks"] = len(self.structure.dags)
        if self.structure.score_log:
            facts["Accuracy in the search"] = ", ".join(f"{s:.4g}" for s in self.structure.score_log)
        return facts | {
            "Parameters": f"{self.nparams}, {method}, smooth = {recipe.smooth:.7g}",
            "Observations": self.nobs(),
            **({"Missing values": missing_text(self.design.missing, incomplete)} if incomplete else {}),
            "Log-likelihood": float(log_lik),
            "AIC": self.aic,
            "BIC": self.bic,
            **self._priors_facts(),
        }

    def _feature_facts(self: Any) -> pd.DataFrame:
        """Return a row for each feature: number of levels, parents, information about the class, weight."""
        labels, counts = self.labels, self._counts
        position = {name: i for i, name in enumerate(labels.names)}
        features = self.structure.features
        n_levels = [len(labels.levels[position[x]]) for x in features]
        table = pd.DataFrame({"levels": n_levels}, index=label_index(features))
        if isinstance(self.structure, Structure):
            families = self.structure.feature_families
            table["feature parents"] = [", ".join(map(str, families[x][1:])) or "-" for x in features]
        # mutual information of feature and class, from their table of counts (K, L)
        table["information"] = [conditional_information(counts[position[x]][:, :, None]) for x in features]
        if self.arc_posterior is not None:
            table["arc posterior"] = self.arc_posterior
        if self.feature_weights is not None:
            table["weight"] = self.feature_weights
        return table
