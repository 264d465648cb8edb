"""Survey sampling designs: `survey` creates a `SurveyDesign`, which reads the columns of the
sampling design from a table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bbl.checks import check_keywords, choice, flag, generator, integer, real, reals
from bbl.design.frames import Frame
from bbl.design.survey_arguments import check_replicates, column_name, column_names
from bbl.design.weights import check_weights
from bbl.errors import DataError, Hint, OptionError
from bbl.stats.survey.plan import LONELY, SamplingPlan
from bbl.stats.survey.replicates import KINDS, Replicates, default_scales, make_replicates
from bbl.stats.survey.sample import SurveySample

__all__ = ["SurveyDesign", "survey"]

N_BOOTSTRAP = 500  # default number of replicates; Wolter (2007), section 5.3


@dataclass(frozen=True)
class SurveyDesign:
    """The sampling design of a table with N rows; its attributes are the arguments of
    `bbl.survey`.
    """

    weights: Hashable
    strata: tuple[Hashable, ...] = ()
    cluster: tuple[Hashable, ...] = ()
    fpc: tuple[Hashable, ...] = ()
    replicates: tuple[Hashable, ...] = ()
    type: str | None = None
    # number of replicates to draw with type="bootstrap", if `replicates` is a number; 0 for the
    # default
    n_replicates: int = 0
    scale: float | None = None
    rscales: tuple[float, ...] | None = None
    mse: bool = False
    rho: float = 0.0
    lonely: str = "error"
    nested: bool = True
    domain: Hashable = None
    seed: int | np.random.Generator | None = 0

    @property
    def columns(self) -> tuple[Hashable, ...]:
        """Names of all columns of the design."""
        domain = () if self.domain is None else (self.domain,)
        return (self.weights, *self.strata, *self.cluster, *self.fpc, *self.replicates, *domain)

    def read(self, frame: Frame) -> tuple[np.ndarray, SurveySample]:
        """Return the weights (N,) of a table's rows, which are 0 outside the domain, and the design
        of these rows.

        Raises
        ------
        DataError
            If a column is absent or has missing values, weights are not positive, a cluster is in
            two strata, a stratum has a single cluster, or population sizes differ within a stratum
            or are smaller than the sample.
        """
        weights = self._read_positive(frame, self.weights, "weights")
        strata = self._read_codes(frame, self.strata, np.zeros((frame.n, 0), dtype=np.intp))
        labels = self._read_labels(frame, self.strata, strata)
        clusters: list[np.ndarray] = []
        # outer_codes (N, k): equal names in rows with different codes are different clusters.
        # `nested` only applies to the first stage; names of later units are always nested within
        # the outer cluster.
        outer_codes = strata[:, None] if self.nested else np.zeros((frame.n, 0), dtype=np.intp)
        for name in self.cluster:
            stage_codes = self._read_codes(frame, (name,), outer_codes)
            outer_codes = np.column_stack([outer_codes, stage_codes])
            clusters.append(stage_codes)
        if clusters and not self.nested:
            self._check_nested(frame, strata, clusters[0])
        population = (
            tuple(self._read_positive(frame, name, "populations") for name in self.fpc) or None
        )
        # without clusters, each row is a separate cluster
        plan = SamplingPlan(
            weights,
            strata,
            tuple(clusters) or (np.arange(frame.n),),
            population,
            lonely=self.lonely,
        )
        self._check_plan(plan, labels)
        rows = np.arange(frame.n)
        if self.domain is not None:
            in_domain = self._read_domain(frame)
            weights = np.where(in_domain, weights, 0.0)
            rows = np.flatnonzero(in_domain)
        return weights, SurveySample(plan, self._make_replicates(frame, plan, labels), rows)

    def _find(self, frame: Frame, name: Hashable) -> pd.Series:
        """Return a column of the table, or raise a DataError that also states the number of other
        absent columns.
        """
        if not frame.has(name):
            absent_names = [column for column in self.columns if not frame.has(column)]
            count_text = (
                f" In all, {len(absent_names)} columns of the design are missing from the data."
                if len(absent_names) > 1
                else ""
            )
            try:
                frame.column(name)
            except DataError as error:
                raise DataError(
                    f"{error.message}{count_text}",
                    column=name,
                    argument="design",
                    hint=error.hint,
                ) from None
        return frame.column(name)

    def _read_positive(self, frame: Frame, name: Hashable, what: str) -> np.ndarray:
        """Return a column of positive numbers as floats (N,); `what` describes them in messages."""
        shown = f"{what} in column {name!r}"
        values = check_weights(self._find(frame, name), frame.n, shown, whole=False, positive=True)
        if not values.all():
            row = int((values == 0.0).argmax())
            raise DataError(
                f"{shown} must be positive, but row {row} has 0. Rows that were not sampled do "
                f"not belong in the data.",
                column=name,
                argument="design",
                hint=(
                    "Leave this row out. To analyse a subpopulation, pass a column of True and "
                    "False as domain."
                ),
            )
        return values

    def _read_codes(
        self, frame: Frame, names: tuple[Hashable, ...], outer: np.ndarray
    ) -> np.ndarray:
        """Number the distinct combinations of column values within the codes `outer` (N, k).

        `outer` contains the codes of strata or outer clusters (none if k = 0); equal values in
        different strata or clusters receive different numbers. Return the number for each row (N,),
        counted from 0.
        """
        code_columns = [*outer.T]
        for name in names:
            column = self._find(frame, name)
            codes, _ = pd.factorize(column, sort=False)
            if (codes < 0).any():
                raise DataError(
                    f"column {name!r} of the design is missing in row "
                    f"{int((codes < 0).argmax())}. Every sampled row belongs to a stratum and a "
                    f"cluster.",
                    column=name,
                    argument="design",
                    hint="Fill in the missing values, or leave these rows out.",
                )
            code_columns.append(codes)
        if not code_columns:  # no strata: all rows are one stratum
            return np.zeros(frame.n, dtype=np.intp)
        combined_codes = code_columns[0].astype(np.int64)
        # renumber each time, so that the products do not become too large
        for codes in code_columns[1:]:
            combined_codes = pd.factorize(combined_codes * (int(codes.max(initial=0)) + 1) + codes)[
                0
            ]
        return pd.factorize(combined_codes)[0].astype(np.intp)

    def _read_labels(
        self, frame: Frame, names: tuple[Hashable, ...], codes: np.ndarray
    ) -> list[str]:
        """Return a label for each number in `codes` (N,), the result of `_read_codes`: the column
        values joined by colons.
        """
        columns = [self._find(frame, name) for name in names]
        # position of the first row of each number
        first_rows = np.unique(codes, return_index=True)[1]
        return [":".join(str(column.iloc[k]) for column in columns) for k in first_rows]

    def _check_nested(self, frame: Frame, strata: np.ndarray, clusters: np.ndarray) -> None:
        """Raise a DataError if a cluster is in two strata; `strata` and `clusters` contain codes
        (N,).
        """
        pairs = pd.DataFrame({"cluster": clusters, "stratum": strata}).drop_duplicates()
        repeated_clusters = pairs["cluster"][pairs["cluster"].duplicated()]
        if len(repeated_clusters):
            rows = np.flatnonzero(clusters == repeated_clusters.iloc[0])
            # positions in `rows`, one for each stratum
            _, firsts = np.unique(strata[rows], return_index=True)
            labels = [
                ":".join(str(self._find(frame, name).iloc[rows[k]]) for name in self.strata)
                for k in firsts[:2]
            ]
            name = str(self._find(frame, self.cluster[0]).iloc[rows[0]])
            raise DataError(
                f"cluster {name!r} of column {self.cluster[0]!r} is in the strata {labels[0]!r} "
                f"and {labels[1]!r}, but clusters are nested within strata.",
                column=self.cluster[0],
                argument="nested",
                hint="If cluster names are reused in different strata, pass nested=True.",
            )

    def _check_plan(self, plan: SamplingPlan, labels: list[str]) -> None:
        """Raise a DataError if population sizes are inconsistent, or if a stratum has a single
        cluster.

        `labels` contains the names of the strata, by number.
        """
        uneven = plan.uneven_stage
        if uneven is not None:
            # stage k, and two rows of the stratum (k = 0) or of the stage k - 1 cluster from which
            # it samples
            k, row, other = uneven
            place = (
                f"cluster of {self.cluster[k - 1]!r}"
                if k
                else "stratum"
                if self.strata
                else "design"
            )
            values = plan.population[k][[row, other]]  # type: ignore[index]
            raise DataError(
                f"column {self.fpc[k]!r} has {values[0]:g} in row {row} and {values[1]:g} in row "
                f"{other} of the same {place}. It must contain the number of units in the "
                "population.",
                column=self.fpc[k],
                argument="fpc",
                hint=f"Use the same number in all rows of a {place}.",
            )
        oversampled = plan.oversampled_stage
        if oversampled is not None:
            k, row = oversampled  # number of the stage, and a row
            population = plan.population[k][row]  # type: ignore[index]
            raise DataError(
                f"column {self.fpc[k]!r} has the population size {population:g} in row {row}, but "
                "more units were sampled there.",
                column=self.fpc[k],
                argument="fpc",
                hint=(
                    "Pass the number of units (clusters, or rows) that the stratum or cluster "
                    "contains in the population, not proportions or weights."
                ),
            )
        stage, numbers = plan.lonely_strata  # strata for stage 0, and clusters for later stages
        if self.lonely == "error" and len(numbers) and not self.replicates:
            self._refuse_lonely(
                stage, [labels[h] for h in numbers] if stage == 0 else numbers.tolist()
            )

    def _refuse_lonely(self, stage: int, sampled_once: list) -> None:
        """Raise a DataError about strata, or clusters at a later stage, with a single sampled unit.

        `sampled_once` contains the labels of strata if `stage` is 0, and otherwise the cluster
        numbers of that stage.
        """
        noun = "cluster" if len(self.cluster) > stage else "row"
        if stage == 0 and not self.strata:
            remedy = (
                "If rows were sampled individually, omit the cluster argument."
                if self.cluster
                else "Add more rows."
            )
            raise DataError(
                f"the design has only one {noun}, so no variance can be estimated.",
                argument="cluster",
                hint=remedy,
            )
        choices = (
            "lonely='adjust' (deviation from the mean of all strata), 'average' (mean variance of "
            "the other strata) or 'remove' (no variance)"
        )
        is_one = len(sampled_once) == 1
        subject = f"{'stratum' if is_one else 'strata'} {', '.join(map(repr, sampled_once[:5]))}"
        singular, plural = "stratum", "strata"
        subject += f" and {len(sampled_once) - 5} more" if len(sampled_once) > 5 else ""
        if stage:
            count = "one cluster" if is_one else f"{len(sampled_once):,} clusters"
            # a choice is not needed, because 'average' means no variance in later stages
            subject = f"{count} of column {self.cluster[stage - 1]!r}"
            singular, plural = "cluster", "clusters"
            choices = "lonely='remove' (no variance)"
        predicate = f"has only one {noun}" if is_one else f"have only one {noun} each"
        pronoun = "it" if is_one else "them"
        merge = f"Merge {pronoun} with {'a similar ' + singular if is_one else 'similar ' + plural}"
        raise DataError(
            f"{subject} {predicate}, so the variance within {pronoun} cannot be estimated.",
            argument="lonely",
            hint=Hint(f"{merge}, or pass {choices}.", command_line=f"{merge}."),
        )

    def _read_domain(self, frame: Frame) -> np.ndarray:
        """Return a mask of the rows in the domain, shape (N,)."""
        column = self._find(frame, self.domain)
        if column.isna().any() or not column.isin([True, False]).all():
            raise DataError(
                f"domain={self.domain!r} must be a column of True and False without missing "
                "values.",
                column=self.domain,
                argument="domain",
                hint="Create one, for example data.assign(domain=data['age'] >= 18).",
                value=self.domain,
            )
        in_domain = column.to_numpy(dtype=bool)
        if not in_domain.any():
            raise DataError(
                f"the domain column {self.domain!r} is False in every row.", argument="domain"
            )
        return in_domain

    def _make_replicates(
        self, frame: Frame, plan: SamplingPlan, labels: list[str]
    ) -> Replicates | None:
        """Return the replicates, which are read from columns or created, or None if the design has
        no replicate type.

        `labels` contains the names of the strata, by number.
        """
        if self.type is None:
            return None
        if self.replicates:
            columns = [
                check_weights(
                    self._find(frame, name),
                    frame.n,
                    f"replicate weights in column {name!r}",
                    whole=False,
                )
                for name in self.replicates
            ]
            scale = self.scale
            rscales = self.rscales
            # the factors of JKn depend on the strata of the replicates, so `survey` requires
            # rscales
            if self.type != "JKn":
                default_scale, default_rscales = default_scales(self.type, len(columns), self.rho)
                scale = default_scale if scale is None else scale
                rscales = tuple(default_rscales) if rscales is None else rscales
            # None is only possible for JKn in a design that was not created by `survey`
            rscales = (1.0,) * len(columns) if rscales is None else rscales
            scale = 1.0 if scale is None else scale
            return Replicates(np.column_stack(columns), scale, np.array(rscales), mse=self.mse)
        # number of clusters sampled from each stratum; [1] contains the position of one row of each
        # cluster
        n_drawn = np.bincount(plan.strata[np.unique(plan.clusters[0], return_index=True)[1]])
        if self.type == "JK1" and len(n_drawn) > 1:
            raise OptionError(
                "type='JK1' is for designs without strata.",
                argument="type",
                hint="Use type='JKn'.",
            )
        if self.type in ("BRR", "Fay") and (n_drawn != 2).any():
            h = int((n_drawn != 2).argmax())
            raise OptionError(
                f"type={self.type!r} requires two clusters in each stratum, but {labels[h]!r} has "
                f"{n_drawn[h]}.",
                argument="type",
                hint="Use type='JKn'.",
                value=self.type,
            )
        if (n_drawn < 2).any():
            raise DataError(
                f"stratum {labels[int((n_drawn < 2).argmax())]!r} has only one cluster, so no "
                "replicate can omit it.",
                argument="type",
                hint=(
                    "Merge it with a similar stratum, or omit the type argument to use linearised "
                    "covariances."
                ),
            )
        replicates = make_replicates(
            plan, self.type, self.n_replicates or N_BOOTSTRAP, self.rho, generator(self.seed)
        )
        return Replicates(replicates.weights, replicates.scale, replicates.rscales, mse=self.mse)


@check_keywords  # unknown keywords raise an error
def survey(
    weights: Hashable,
    strata: Hashable | Sequence[Hashable] | None = None,
    cluster: Hashable | Sequence[Hashable] | None = None,
    fpc: Hashable | Sequence[Hashable] | None = None,
    *,
    replicates: Sequence[Hashable] | int | None = None,
    type: str | None = None,  # noqa: A002  # the word of R's package
    scale: float | None = None,
    rscales: Sequence[float] | None = None,
    mse: bool = False,
    rho: float = 0.0,
    lonely: str = "error",
    nested: bool = True,
    domain: Hashable = None,
    seed: int | np.random.Generator | None = 0,
) -> SurveyDesign:
    """Specify a sampling design for the argument `design` of `bbl` and `crossVal`.

    Estimates are the same as with real-valued weights. Standard errors, intervals and tests account
    for clusters, strata, and finite population corrections.

    Parameters
    ----------
    weights : column name
        Positive sampling weights, inversely proportional to the selection probabilities.
    strata : column name or list of column names, optional
        Strata from which clusters were sampled. With several columns, strata are the combinations
        of their values.
    cluster : column name or list of column names, optional
        Clusters (primary sampling units), followed by the units sampled within them at later
        stages. By default, each row is a separate cluster.
    fpc : column name or list of column names, optional
        For each stage, the population size (number of units) of the stratum or cluster. By default,
        sampling is assumed to be with replacement, and stages after the first do not contribute to
        the variance. Population sizes cannot be combined with ``type="BRR"`` or ``"Fay"``.
    replicates : list of column names, or int, optional
        Columns of replicate weights, already multiplied by the sampling weights, or the number of
        replicates to draw with ``type="bootstrap"`` (default: 500). If columns are listed, the
        clusters are unknown, and rows are assigned to cross-validation folds individually.
    type : {"JK1", "JKn", "BRR", "Fay", "bootstrap"}, optional
        Type of replicates, which are created unless `replicates` lists columns. By default,
        covariances are computed by linearisation.
    scale, rscales : float and sequence of floats, optional
        Factors that multiply the squared deviations: one for all replicates, and one for each
        replicate. The defaults depend on `type`.
    mse : bool, default False
        Whether deviations are computed from the full-sample estimate instead of the mean of the
        replicates.
    rho : float, default 0.0
        Factor by which ``type="Fay"`` multiplies the weights of one half-sample, between 0 and
        0.999.
    lonely : {"error", "adjust", "remove", "average"}, default "error"
        How strata with a single cluster are handled. "error": raise an error. "adjust": use the
        deviation from the mean of all strata. "remove": such strata do not contribute to the
        variance. "average": use the mean variance of the other strata, or NaN if there are none; a
        single unit sampled at a later stage does not contribute.
    nested : bool, default True
        Whether cluster names are nested within strata. If False, a cluster that occurs in two
        strata raises an error.
    domain : column name, optional
        Boolean column; only rows with True are analysed, using the design of all rows.
    seed : int, numpy.random.Generator or None, default 0
        Random seed for ``type="bootstrap"``.

    Returns
    -------
    SurveyDesign

    Raises
    ------
    OptionError
        If arguments are incompatible.

    References
    ----------
    Lumley T (2010). Complex Surveys: A Guide to Analysis Using R. Wiley.

    Examples
    --------
    >>> import bbl
    >>> design = bbl.survey(weights="weight", strata="region", cluster="village")
    >>> design.columns
    ('weight', 'region', 'village')
    """
    columns = {
        name: column_names(name, value)
        for name, value in (("strata", strata), ("cluster", cluster), ("fpc", fpc))
    }
    n_replicates = 0
    if isinstance(replicates, int | np.integer):
        n_replicates = integer("replicates", replicates, 2)
        replicates = None
        if type != "bootstrap":
            raise OptionError(
                "A number of replicates can only be given with type='bootstrap'.",
                argument="replicates",
                hint="Set type='bootstrap', or list the columns of replicates.",
            )
    columns["replicates"] = column_names("replicates", replicates)
    if type is not None:
        choice("type", type, KINDS)
    factors = (
        None
        if rscales is None
        else tuple(reals("rscales", rscales, lambda name, v: real(name, v, 0.0)).tolist())
    )
    design = SurveyDesign(
        weights=column_name("weights", weights),
        **columns,
        type=type,
        n_replicates=n_replicates,
        scale=None if scale is None else real("scale", scale, 0.0, open_low=True),
        rscales=factors,
        mse=flag("mse", mse),
        # less than 1 because squared deviations are divided by (1 - rho)^2
        rho=real("rho", rho, 0.0, 0.999),
        lonely=choice("lonely", lonely, LONELY),
        nested=flag("nested", nested),
        domain=None if domain is None else column_name("domain", domain),
        seed=seed,
    )
    _check_together(design)
    return design


def _check_together(design: SurveyDesign) -> None:
    """Raise an OptionError if arguments are incompatible."""
    n_stages = max(1, len(design.cluster))
    if design.fpc and len(design.fpc) != n_stages:
        raise OptionError(
            f"fpc lists {len(design.fpc)} columns, but the number of stages is {n_stages}.",
            argument="fpc",
            hint="List one column for each stage, or omit the fpc argument.",
        )
    if design.fpc and design.type in ("BRR", "Fay") and not design.replicates:
        raise OptionError(
            f"type={design.type!r} does not support fpc, because each replicate uses half of the "
            "clusters, regardless of the sampling fraction.",
            argument="fpc",
            hint="Omit the fpc argument, or use type='JKn' or 'bootstrap', which support it.",
            value=design.type,
        )
    # without a type, `check_replicates` raises a different error below
    if (
        design.replicates
        and design.type is not None
        and (design.cluster or design.strata or design.fpc)
    ):
        raise OptionError(
            "Replicate weights already reflect the clusters and strata.",
            argument="replicates",
            hint="Pass either replicates with weights, or strata, cluster and fpc.",
        )
    check_replicates(
        len(design.replicates), design.type, design.scale, design.rscales, design.mse, design.rho
    )
