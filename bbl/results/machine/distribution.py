"""Methods of fitted Boltzmann machines for log-probabilities, samples and completion of rows.

Below, n, m and K are the numbers of rows, predictors and groups. Predictor i has L_i levels, and D
is the total number of non-reference levels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bbl.boltzmann.mixture import sample_mixture
from bbl.boltzmann.reconstruction import reconstruct as reconstruct_cells
from bbl.boltzmann.reconstruction import reconstruct_jointly
from bbl.boltzmann.structural_zeros import refuse_impossible_rows
from bbl.capabilities import WITH_ZEROS
from bbl.checks import check_keywords, choice, generator, integer
from bbl.design.decisions import check_shares
from bbl.design.frames import to_frame
from bbl.design.weights import refuse_weights
from bbl.errors import DataError, OptionError
from bbl.model.clamped import MARGINS
from bbl.model.location import Location
from bbl.model.states import sample_groups
from bbl.parallel import n_workers, progress_bar
from bbl.report.machine.tables import category_frame, filled_frame, level_columns
from bbl.results.machine.machine import MachineResults
from bbl.results.model import model_frame
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities, with_priors

__all__ = ["DistributionMixin"]


def _parse_mask(
    mask: pd.DataFrame | ArrayLike | None, shape: tuple[int, ...], names: tuple
) -> np.ndarray:
    """Return `mask`, the cells to be treated as missing, as a bool array with `shape` (n, m).

    If it is None, no cells are masked. Columns of a DataFrame are matched to the predictor `names`,
    and predictors without a column are not masked. Raises a DataError for an invalid shape, column
    or type.
    """
    if mask is None:
        return np.zeros(shape, dtype=bool)
    if isinstance(mask, pd.DataFrame):
        extra_columns = [name for name in mask.columns if name not in names]
        if extra_columns:
            raise DataError(
                f"mask has the column {extra_columns[0]!r}, which is not a predictor.",
                argument="mask",
            )
        mask = mask.reindex(columns=pd.Index(names, tupleize_cols=False), fill_value=False)
    try:
        mask_array = np.asarray(mask)
    except ValueError:  # rows of different lengths
        mask_array = np.empty(0, dtype=object)  # has the wrong shape, which is reported below
    if mask_array.shape != shape or mask_array.dtype.kind != "b":
        raise DataError(
            f"mask must be an array of True and False with {shape[0]} rows and one column for "
            f"each of {shape[1]} predictors; got shape {mask_array.shape} and type "
            f"{mask_array.dtype}.",
            argument="mask",
        )
    return mask_array


class DistributionMixin(MachineResults):
    """Log-probabilities, samples and completion of rows under a fitted Boltzmann machine."""

    @check_keywords
    def score_samples(self, newdata: object = None, unseen: str = "raise") -> pd.Series:
        """Return the log-probability of each row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the columns of the predictors; other columns are ignored. If None, the
            training rows are used.
        unseen : {"raise", "ignore"}, default "raise"
            Whether to raise an error for an unknown level, or to average over the predictor in that
            row.

        Returns
        -------
        Series
            With the same index as `newdata`. With classes, the values are ``ln sum_y P(y) P(x|y)``,
            regardless of the response of the row. P(y) is taken from the `priors` of the model, or
            the class proportions in the training rows. Missing values are treated as in `predict`.

        Raises
        ------
        DataError, LevelError
            If a column is missing, a value is unknown, or a value is missing although the fit does
            not allow it; the message names the column or value.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.score_samples(titanic.head(2)).round(3).tolist()
        [-5.196, -5.492]
        """
        # raises an OptionError if P(row | group) is not modelled
        self.engine.check_density("score_samples()")
        choice("unseen", unseen, ("raise", "ignore"))
        # `missing` (n, m) marks missing cells, `dropped` (n,) rows without a prediction; either may
        # be None
        codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
        estimate = replace(self.estimate, class_prior=self._population_shares)
        # `_averaged` computes energies (n, K)
        log_p = estimate.log_density(self._averaged, codes, missing)
        if dropped is not None:
            log_p[dropped] = np.nan
        return pd.Series(log_p, index=row_labels, name="log_prob")

    @check_keywords
    def pnll(self, newdata: object = None, weights: Hashable | ArrayLike = None) -> float:
        """Return the mean negative log pseudo-likelihood of a row, ``-sum_i ln P(x_i | the other
        predictors)``.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists, optional
            Rows with the predictors and, if the model has one, the response, because probabilities
            are computed from the model of the row's group. If None, the training rows are used.
        weights : column name or array of length n, optional
            Frequencies of `newdata`. By default, the column that contained the training weights,
            such as ``"Freq"`` after ``weights="Freq"``, if `newdata` has it; otherwise all rows
            have equal weight.

        Returns
        -------
        float
            Smaller is better. ln Z is not required, so models of any size can be compared. A
            missing predictor is averaged over in the conditional probabilities of the others, and
            its own term is omitted from the sum.

        Raises
        ------
        DataError, LevelError
            If a column is missing, a value is unknown, or a value is missing although the fit does
            not allow it; the message names the column or value.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> round(fit.pnll(), 4)
        1.6632
        """
        self.engine.check_density(
            "pnll()"
        )  # raises an OptionError if P(row | group) is not modelled
        if newdata is None:
            # raises an error if weights are given: training rows have their own
            refuse_weights(weights)
            rows = self._rows(takes_newdata=True)
            # y (n,) is each row's group
            codes = rows.codes
            missing = rows.missing
            y = rows.response
            frequencies = rows.weights
        else:
            newdata = to_frame(newdata, "newdata")
            codes, missing = self.design.encode(newdata)
            y = self.design.encode_response(newdata)  # raises an error for a missing response
            frequencies, _ = self.design.weigh(newdata, weights)
            if (dropped := self.design.dropped(newdata)) is not None:
                frequencies = np.where(dropped, 0.0, frequencies)
        if not frequencies.sum():
            raise DataError(
                "newdata has no rows with positive weight.",
                argument="newdata",
                hint="Give at least one row a positive weight.",
            )
        return self.estimate.pnll(codes, missing, y, frequencies)

    @check_keywords
    def sample(
        self,
        n: int = 1,
        *,
        seed: int | np.random.Generator | None = None,
        groups: Mapping | ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Draw rows from the model.

        Parameters
        ----------
        n : int, default 1
            Number of rows.
        seed : int or numpy.random.Generator, optional
        groups : mapping or Series by group, or sequence of length K, optional
            Probabilities of the groups, up to a common factor; by default the model's `priors`, or
            the class proportions in the training rows. A sequence is only allowed if the groups
            have a declared order or are numbers or booleans.

        Returns
        -------
        DataFrame
            The response, if any, and the predictors, as categories. With up to 2**20 states, the
            rows are exact independent draws. With more states, they are generated by Gibbs sampling
            (see `bbl.sample_xi`).

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.sample(2, seed=1)
          Survived Class   Sex    Age
        0       No   2nd  Male  Adult
        1      Yes  Crew  Male  Adult
        """
        self.engine.check_density(
            "sample()"
        )  # raises an OptionError if P(row | group) is not modelled
        labels = self.labels
        shares = (
            self._population_shares
            if groups is None
            else check_shares("groups", groups, self.design.response)
        )
        n_rows = integer("n", n, 0)
        # codes (n, m) of the levels, y (n,) of the groups
        if self._hidden is not None:
            codes, y = sample_mixture(self._hidden, shares, n_rows, generator(seed))
        else:
            rng = generator(seed)
            parameters = self._categorical.estimate.parameters
            codes, y = sample_groups(parameters.layout, parameters.theta, n_rows, shares, rng)
            if self.estimate.location is not None:
                return self._with_numbers(codes, y, rng)
        # by name: (codes, levels) of a categorical column
        response = {labels.response: (y, labels.groups)} if self.design.classes else {}
        predictors = dict(zip(labels.names, zip(codes.T, labels.levels, strict=True), strict=True))
        return category_frame(response | predictors, pd.RangeIndex(len(y)))

    def _with_numbers(
        self, levels: np.ndarray, y: np.ndarray, rng: np.random.Generator
    ) -> pd.DataFrame:
        """Return sampled rows as a frame.

        The groups are `y` (n,), and numeric predictors are drawn given the `levels` of the others.
        """
        location = cast(Location, self.estimate.location)
        is_number = location.model.is_number
        codes = np.zeros((len(y), len(is_number)))
        codes[:, ~is_number] = levels
        codes[:, is_number] = location.draw(codes, y, rng)
        return model_frame(self.design, Sample(codes, np.ones(len(y)), y), pd.RangeIndex(len(y)))

    @check_keywords
    def reconstruct(
        self,
        newdata: object,
        mask: pd.DataFrame | ArrayLike | None = None,
        *,
        method: str = "auto",
        type: str = "prob",
        seed: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
        verbose: int = 1,
    ) -> pd.DataFrame:
        """Return the probabilities of missing values given the known values in the same row.

        Parameters
        ----------
        newdata : DataFrame (pandas, polars), pyarrow Table or dict of lists
            Rows with the predictors' columns. A row with a known response is completed by the model
            of its group. Other rows are completed by the models of all groups, weighted by the
            group probabilities given the known predictors and the `priors` of the model or the
            class proportions in the training rows.
        mask : DataFrame or array of bool, shape (n, m), optional
            Cells to be treated as missing; columns in the order of the predictors, or by name.
        method : {"auto", "exact", "gibbs", "mf"}, default "auto"
            Given the other predictors, the missing predictors of a row form a smaller Boltzmann
            machine. Its probabilities are computed by variable elimination ("exact"), Gibbs
            sampling ("gibbs"; 32 chains of 200 sweeps, averaging conditional probabilities over
            1,280 states), or damped mean field ("mf"). "auto" uses "exact" if it is fast and
            "gibbs" otherwise.
        type : {"prob", "class", "joint"}, default "prob"
            "prob": probabilities of all levels. "class": the most probable level of each cell
            separately. "joint": the most probable combination of levels of all missing cells of a
            row, and of its group if this is also missing. It is found exactly by max-product
            elimination, regardless of `method`.
        seed : int or numpy.random.Generator, default 0
            Seed for Gibbs sampling.
        n_jobs : int, optional
            Number of threads; results do not depend on it.
        verbose : int, default 1
            0 hides the progress bar.

        Returns
        -------
        DataFrame
            With the same index as `newdata`. For "prob", the columns are predictor and level, and
            known values have probabilities 1 and 0. For "class" and "joint", the columns are the
            predictors, as categories. Missing values are completed regardless of how the fit treats
            missing values. The level created by ``missing="level"`` has probability 0. If all other
            levels are impossible under the model, they have equal probabilities.

        Raises
        ------
        DataError, LevelError
            If columns are missing or levels are unknown; the message names them.
        OptionError
            If exact sums or the search for the joint completion would require more than 3e7 table
            cells for a row; with "joint", also for models with hidden units or structural zeros.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> passengers = {"Class": ["1st"], "Sex": [None], "Age": ["Child"], "Survived": ["Yes"]}
        >>> fit.reconstruct(passengers, verbose=0)["Sex"].round(3)
        level  Female  Male
        0        0.61  0.39
        """
        self.engine.check_density("reconstruct()")
        if self.estimate.location is not None:
            raise OptionError(
                "reconstruct() fills in levels, but this model has numeric predictors.",
                argument="numeric",
                hint="Bin the numeric predictors with bbl.bin() before you fit.",
            )
        choice("method", method, MARGINS)
        choice("type", type, ("prob", "class", "joint"))
        if type == "joint" and (
            self._hidden is not None or self.estimate.parameters.layout.support is not None
        ):
            raise OptionError(
                "type='joint' is not available with hidden units or structural zeros.",
                argument="type",
                hint="Use type='class', which fills in each cell separately.",
            )
        rng = generator(seed)
        workers = n_workers(n_jobs)
        labels = self.labels
        newdata = to_frame(newdata, "newdata")
        # missing cells are marked regardless of the policy
        codes, missing = self.design.encode(newdata, missing="marginal")
        is_unknown = np.zeros(codes.shape, dtype=bool) if missing is None else missing
        is_unknown = is_unknown | _parse_mask(mask, codes.shape, labels.names)
        # structural zeros: some cells cannot occur
        if (support := self.estimate.parameters.layout.support) is not None:
            if method in ("gibbs", "mf"):
                # `WITH_ZEROS`: reasons why features are unavailable with structural zeros, keyed by
                # their names in the manual's table
                reason = WITH_ZEROS['`reconstruct(method="gibbs")` and `"mf"`']
                raise OptionError(
                    f"method={method!r}: {reason}.",
                    argument="method",
                    hint="Use method='exact'.",
                    value=method,
                )
            refuse_impossible_rows(
                support, labels, codes, is_unknown, self.design.known_groups(newdata)
            )
        layout = self.estimate.parameters.layout
        theta = self.estimate.parameters.theta
        posterior = self._group_probabilities(newdata, codes, is_unknown)
        cells = (codes, is_unknown)
        if (draws := self._hidden) is not None:
            # each draw of each group is a model, and the units are unknown in all rows
            layout = draws.layout
            theta = draws.theta.reshape(-1, layout.size)
            posterior = draws.draw_probabilities(posterior, codes, is_unknown)
            cells = draws.with_units(codes, is_unknown)
        if type == "joint":
            allowed = [  # levels with which a cell may be filled
                np.array([kind != "missing" for kind in factor.kinds])
                for factor in self.design.predictors
            ]
            filled_codes = reconstruct_jointly(layout, theta, posterior, *cells, allowed)
            one_hot_tables = [
                np.eye(len(levels))[column]
                for levels, column in zip(allowed, filled_codes.T, strict=True)
            ]
            return filled_frame(labels, one_hot_tables, newdata.index, best=True)
        with progress_bar(None, "reconstruct", verbose) as step:
            probabilities = reconstruct_cells(  # (n, D) of the non-reference levels
                layout, theta, posterior, *cells, method, rng, workers, step
            )
        # (n, L_i) of each predictor; its columns of `probabilities` are start[i]:start[i + 1]
        tables = level_columns(probabilities, self.estimate.parameters.layout.start)
        for i, factor in enumerate(self.design.predictors):
            # `kinds` (L_i,): type of each level, such as "number"; "missing" can only be the last
            # level, and is never filled in
            if "missing" in factor.kinds:
                filled = is_unknown[:, i]
                regular_p = tables[i][filled, :-1]
                total = regular_p.sum(axis=1, keepdims=True)
                # where all regular levels are impossible
                equal_p = np.full_like(regular_p, 1.0 / regular_p.shape[1])
                tables[i][filled, -1] = 0.0
                tables[i][filled, :-1] = np.divide(regular_p, total, out=equal_p, where=total > 0.0)
        return filled_frame(labels, tables, newdata.index, type == "class")

    def _group_probabilities(
        self, newdata: object, codes: np.ndarray, is_unknown: np.ndarray
    ) -> np.ndarray:
        """Return the group probabilities (n, K) of rows.

        A known group has probability 1. In other rows, the probabilities are P(group | known cells)
        with the priors of the model; `is_unknown` (n, m) marks the other cells.
        """
        groups = self.design.known_groups(newdata)  # -1 where the response is missing
        # rows of the identity matrix; rows with unknown groups are replaced below
        probabilities = np.eye(len(self.labels.groups))[np.maximum(groups, 0)]
        if (rows_without_group := np.flatnonzero(groups < 0)).size:
            scores = self._class_scores(codes[rows_without_group], is_unknown[rows_without_group])
            # class scores use the proportions in the training rows, which are replaced here
            log_p = log_probabilities(
                with_priors(scores, self.class_shares, self._population_shares)
            )
            probabilities[rows_without_group] = np.exp(log_p)
        return probabilities
