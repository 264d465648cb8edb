"""Network tables: probabilities with their labels and standard errors, and facts, which `NetworkResults` has."""

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
from bbl.results.network.structure import Structure, only

__all__ = ["NetworkTables"]


class NetworkTables:
    """Tables of the probabilities of a fitted network."""

    @cached_property
    def params(self: Any) -> dict[Hashable, Any]:
        """Probabilities by variable: one row for each configuration of its parents, one column for each level.

        Of an average, a dict of these for each member.
        """
        if isinstance(self.network, Averaged):
            names = self.members
            return {name: self._frames(m, m.theta) for name, m in zip(names, self.network.members, strict=True)}
        return self._frames(self.network, self.network.theta)

    @cached_property
    def params_se(self: Any) -> dict[Hashable, pd.DataFrame]:
        """Standard errors of `params`: standard deviations of their Dirichlet posterior; missing where it has none."""
        only(self.structure, "standard errors")
        network = self.network
        assert isinstance(network, Network)  # noqa: S101  # as its structure
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
        if self.stored_errors is not None or not self.recipe.plain or isinstance(self.network, Averaged):
            return self.stored_errors
        return standard_errors(self.network, self._rows(), self.recipe.smooth)

    def _frames(self: Any, network: Network, flat: np.ndarray) -> dict[Hashable, pd.DataFrame]:
        out = {}
        labels = self.labels
        for f, (i, parents) in enumerate(network.dag.families):
            table = np.moveaxis(network.families.table(flat, f), -2, -1)
            names = [*(labels.names[p] for p in parents), labels.response]
            levels = [*(labels.levels[p] for p in parents), labels.groups]
            columns = label_index(labels.levels[i], labels.names[i])
            index = label_index(levels[0], names[0]) if not parents else pd.MultiIndex.from_product(levels, names=names)
            out[labels.names[i]] = pd.DataFrame(table.reshape(-1, table.shape[-1]), index, columns)
        out[labels.response] = pd.DataFrame(
            network.prior[None].copy(), columns=label_index(labels.groups, labels.response)
        )
        return out

    @property
    def manb_arc_posterior(self: Any) -> pd.Series | None:
        """Posterior probability of the arc from the class to each feature (MANB); None of other fits."""
        return self._by_feature(self.arc_posterior, True)

    @property
    def awnb_weights(self: Any) -> pd.Series | None:
        """Weight of each feature by trees (AWNB); None of other fits."""
        return self._by_feature(self.feature_weights, self.recipe.awnb is not None)

    @property
    def wanbia_weights(self: Any) -> pd.Series | None:
        """Weight of each feature by conditional likelihood (WANBIA); None of other fits."""
        return self._by_feature(self.feature_weights, self.recipe.wanbia is not False)

    def _by_feature(self: Any, values: np.ndarray | None, there: bool) -> pd.Series | None:
        if values is None or not there:
            return None
        return pd.Series(values, index=label_index(self.structure.features))

    def _facts(self: Any) -> dict[str, Any]:
        log_lik, recipe = self.logLik(), self.recipe
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
            **(
                {"Missing values": missing_text(self.design.missing, self.design.incomplete)}
                if self.design.incomplete
                else {}
            ),
            "Log-likelihood": float(log_lik),
            "AIC": self.aic,
            "BIC": self.bic,
            **self._priors_facts(),
        }

    def _feature_facts(self: Any) -> pd.DataFrame:
        """Return, for each feature in the order of the model, its levels, parents and what the fit says of it."""
        labels, counts = self.labels, self._counts
        at = {name: i for i, name in enumerate(labels.names)}
        features = self.structure.features
        table = pd.DataFrame({"levels": [len(labels.levels[at[x]]) for x in features]}, index=label_index(features))
        if isinstance(self.structure, Structure):
            families = self.structure.feature_families
            table["feature parents"] = [", ".join(map(str, families[x][1:])) or "-" for x in features]
        table["information"] = [_information(counts[at[x]]) for x in features]
        if self.arc_posterior is not None:
            table["arc posterior"] = self.arc_posterior
        if self.feature_weights is not None:
            table["weight"] = self.feature_weights
        return table


def _information(counts: np.ndarray) -> float:
    """Return the mutual information of a feature with the class from their table (K, L)."""
    return conditional_information(counts[:, :, None])
