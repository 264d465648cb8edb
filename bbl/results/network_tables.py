"""Network tables: probabilities with their labels and standard errors, as properties that `NetworkResults` has."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.errors import OptionError
from bbl.networks.averaged import Averaged
from bbl.networks.parameters import standard_errors
from bbl.networks.predict import Network
from bbl.results.structure import only

__all__ = ["NetworkTables", "label_index"]


class NetworkTables:
    """What a fitted network says of its variables, in tables."""

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
        return pd.Series(values, index=pd.Index(self.structure.features, dtype=object).infer_objects())


def label_index(labels: tuple, name: Any) -> pd.Index:
    """Return labels, of any kind, as an index."""
    return pd.Index(labels, dtype=object, tupleize_cols=False, name=name).infer_objects()
