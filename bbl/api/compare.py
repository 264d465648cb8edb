"""The public functions that compare fitted models: `anova` and `etable`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import pandas as pd

from bbl.checks import check_keywords
from bbl.report.model_table import ModelTable
from bbl.results.comparison import compare_fits
from bbl.results.comparisons.side_by_side import model_table
from bbl.results.model import ModelResults

__all__ = ["anova", "etable"]


@check_keywords
def anova(*fits: ModelResults | Mapping[Any, ModelResults]) -> pd.DataFrame:
    """Compare fitted models: information criteria, and a test of each model against the previous
    one.

    Parameters
    ----------
    *fits : fitted models, or one dict of them by name
        Models in any order, but usually from the smallest to the largest.

    Returns
    -------
    DataFrame
        One row per model: ``parameters``; the criteria ``logLik``, ``AIC``, ``BIC`` and ``clAIC``
        (the AIC of the pseudo-likelihood), missing if the method does not provide them; and the
        test against the previous model: ``ratio``, ``df``, ``p``, ``test``. Smaller AIC, BIC and
        clAIC are better. A model's criteria are missing if they are not comparable with the first
        model's, because the number of observations differs or the likelihood refers to different
        variables. For most models, the likelihood is the joint likelihood of the response and all
        predictors, so the models must have the same predictors. For `shooter`, it is the
        conditional likelihood of the response given the predictors.

    Notes
    -----
    The test compares two Boltzmann machines for the same predictors and rows; the larger model
    contains all terms of the smaller one. Both are fitted without a penalty, and ``ratio`` is twice
    the difference of their log-likelihoods.

    With ``method="ml"`` the likelihood is exact. Under the smaller model, the ratio has a
    chi-square distribution. Its degrees of freedom are the difference in the number of estimable
    parameters, which is smaller than the number of additional couplings if margins have empty
    cells. The test is reported only if there are enough rows, according to three rules. First,
    consider the terms of the larger model that share a predictor with an additional term: in the
    margin of each of them, at most a fifth of the expected counts are below 5, and none is below 1
    (Cochran 1954). Second, the margins of additional terms have no empty cells. Third, there are at
    least 15 rows per parameter of a predictor's distribution given the others. In simulations under
    the smaller model, a 5 % test then rejects between 4.6 % and 6.2 % of the tables.

    For pseudo-likelihood fits that differ in pairs of predictors, the ratio is a composite
    likelihood ratio. The pseudo-likelihood counts each pair twice, so the null distribution is not
    chi-square with ``df`` degrees of freedom but a weighted sum of chi-squares, with weights from
    the Godambe information (Kent 1982; Varin, Reid & Firth 2011).

    If there are too few rows for a ratio, or pseudo-likelihood fits differ in terms of three or
    more predictors, a Bonferroni test is reported instead and ``ratio`` is missing: the p-value is
    the smallest p-value of the additional terms in the larger model's ``inference().tests()``,
    multiplied by the number of these terms. If no term has a test, ``p`` is missing too, and
    ``test`` states the reason.

    With ``missing="marginal"``, ``logLik``, ``AIC`` and ``BIC`` use the known values of all rows,
    and ``clAIC`` uses the complete rows, which are the same for all formulas with the same
    predictors. No test is computed.

    References
    ----------
    Cochran WG (1954). Some methods for strengthening the common chi-square tests. Biometrics 10,
    417-451. Kent JT (1982). Robust properties of likelihood ratio tests. Biometrika 69, 19-27.
    Varin C, Reid N, Firth D (2011). An overview of composite likelihood methods. Statistica Sinica
    21, 5-42.

    Examples
    --------
    >>> import bbl
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, a, b = rng.integers(0, 2, (3, 1000))
    >>> data = {"y": y, "a": a, "b": np.where(rng.random(1000) < 0.2, a, b)}
    >>> fits = [bbl.bbl(formula, data) for formula in ("y ~ a + b", "y ~ a * b")]
    >>> bbl.anova(*fits)[["parameters", "ratio", "df", "p"]].round(4)
                           parameters    ratio  df    p
    (1) y ~ a + b, pseudo           4      NaN   0  NaN
    (2) y ~ a * b, pseudo           6  90.7663   2  0.0
    """
    # a single argument must be a dict of fits
    return compare_fits(fits[0] if len(fits) == 1 else cast(tuple[ModelResults, ...], fits))


@check_keywords
def etable(
    fits: ModelResults | Sequence[ModelResults] | Mapping[Any, ModelResults],
    of: str | tuple[Hashable, Hashable] | None = None,
    *,
    keep: Sequence[Any] | None = None,
    pairs: bool = True,
    stars: bool = True,
    digits: int = 3,
) -> ModelTable:
    """Tabulate the coefficients of fitted models, with standard errors and information criteria.

    Parameters
    ----------
    fits : fitted model, or a list or dict of them
        Models in a list are numbered. Networks and models without standard errors are also
        accepted.
    of : "group", "pooled" or (group, group), optional
        Estimates to show, as in `Inference.table`: each group's parameters, their differences from
        the pooled fit, or the differences between two groups. All models must have these two
        groups. The default is the second group minus the first if all models have standard errors
        and the same two groups, and otherwise each group's parameters.
    keep : sequence of predictor names, optional
        Predictors whose fields and mutual couplings are shown; all by default.
    pairs : bool, default True
        Whether to show couplings.
    stars : bool, default True
        Whether to mark p-values below 0.05, 0.01 and 0.001 with stars. Estimates without a p-value
        have no stars.
    digits : int, default 3
        Number of decimals.

    Returns
    -------
    ModelTable
        It is printed as text and shown as HTML in a notebook, limited to the first 60 coefficients.
        The full table is available as ``frame``, ``as_html()``, ``as_latex()`` and
        ``as_markdown()``.

    Raises
    ------
    OptionError, BBLTypeError
        If `of` is unknown or names a group that a model does not have, if `keep` names something
        other than a predictor, or if the models are not in a single list or dict.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fits = [bbl.bbl(f"Survived ~ Sex {sign} Age", titanic, "Freq") for sign in "+*"]
    >>> bbl.etable(fits, pairs=False)  # doctest: +ELLIPSIS
    Models of Survived
                                      (1)               (2)
    Yes - No: Sex=Male  -2.317*** (0.120) -2.433*** (0.127)
    Yes - No: Age=Child  0.880*** (0.197)    -0.564 (0.327)
    ...
    """
    return model_table(fits, of, keep, pairs, stars, digits)
