"""Likelihood ratio test of nested Boltzmann machines. In the table of `bbl.anova`, error messages
follow the words "no test" and a colon. The criteria that they mention are the columns AIC, BIC and
clAIC of this table.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bbl.boltzmann.inference.exact_ratio import smaller_layout
from bbl.boltzmann.inference.nested import (
    RatioTest,
    TermTests,
    nested_test,
    tied_terms,
    zero_contrasts,
)
from bbl.boltzmann.inference.significance import Kind
from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.report.text import label_text
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.nested_numbers import differ_in_numbers, number_ratio_test
from bbl.results.model import ModelResults
from bbl.rows.sample import Sample
from bbl.stats.survey.sample import have_same_design

__all__ = ["machine_ratio_test"]

Scores = tuple[np.ndarray | None, ...]


def machine_ratio_test(fit: MachineResults, other: ModelResults) -> dict[str, float | int | str]:
    """Return the test of two nested fits: ``df``, ``test`` (its name, or the reason why it is
    missing), ``ratio`` and ``p``.

    ``ratio`` is omitted if terms are tested separately; ``ratio`` and ``p`` are omitted if there is
    no test. Raises a DataError or OptionError if the fits are not nested, have different complete
    rows, are not both Boltzmann machines, or do not have likelihood equations.
    """
    if isinstance(other, MachineResults):
        if differ_in_numbers(fit, other):
            return number_ratio_test(fit, other)
        # the distributions of the numbers given the others cancel
        fit = fit._categorical
        other = other._categorical
    # joint fits with a penalty have no test, as `_order_nested` reports
    if fit.engine.joint and fit.engine.has_tests:
        return _conditional_ratio_test(fit, other)
    large, is_shared, small_scores = _order_nested(fit, other)
    if large._kept is not None and not large._kept.is_complete:
        return _wald_test(large, is_shared, small_scores)
    rows = large._testable_rows()  # raises for weights that are not counts
    if rows.missing is not None:
        raise DataError(
            "with missing values, models with different terms use different rows.",
            hint="Compare the criteria.",
        )
    group_samples = [  # for each group (its rows, their sampling design or None)
        (rows.group(y), None if large.survey is None else large.survey.of_group(rows.response == y))
        for y in range(len(large.labels.groups))
    ]
    result = nested_test(
        group_samples,
        large.estimate.parameters.layout,
        large.estimate.parameters.theta,
        is_shared,
        large.engine,
        small_scores,
    )
    # a RatioTest is one test of all terms missing from the smaller model; otherwise terms are
    # tested one by one
    if isinstance(result, RatioTest):
        _check_has_p_value(result.p)
        test_name = (
            "likelihood ratio" if large.engine.has_likelihood else "composite likelihood ratio"
        )
        test_name += "" if large.survey is None else ", Rao-Scott"
        return {"ratio": result.statistic, "df": result.df, "p": result.p, "test": test_name}
    if np.isnan(result.p):
        return {"df": result.df, "test": f"no test: {_refused_terms_text(large.labels, result)}"}
    test_text = (
        "test of one term"
        if result.tested == 1
        else f"smallest p of {result.tested} tests of terms, Bonferroni-corrected"
    )
    return {"df": result.df, "p": result.p, "test": test_text + _sparse_text(large.labels, result)}


def _wald_test(
    large: MachineResults, is_shared: np.ndarray, small_scores: Scores | None
) -> dict[str, float | int | str]:
    """Return a joint Wald test of the couplings that are not in the smaller fit.

    This test is used if only a random sample of the rows is available. `is_shared` (T,) marks the
    terms of the smaller fit, and `small_scores` contains its level scores.
    """
    from scipy.special import chdtrc

    layout = large.estimate.parameters.layout
    small_layout = smaller_layout(layout, is_shared, small_scores)
    tied = set(tied_terms(layout, small_layout))
    is_kept_scope = np.concatenate([np.ones(layout.m, dtype=bool), is_shared])
    is_kept_scope &= [scope not in tied for scope in layout.scopes]
    is_tested = ~np.repeat(is_kept_scope, np.diff(layout.cuts))
    inference = large._inference
    contrasts = zero_contrasts(layout, small_layout, np.flatnonzero(is_tested))
    statistic, df, refused = inference._joint_wald_test(is_tested, contrasts)
    if refused:
        g, position = refused[0]
        t = int(np.searchsorted(layout.cuts, position, side="right")) - 1
        term = ":".join(label_text(large.labels.names[i]) for i in layout.scopes[t])
        group = label_text(large.labels.groups[g])
        reason = inference.verdicts().iloc[g * layout.size + position]
        return {
            "df": len(large.labels.groups) * contrasts.shape[1],
            "test": f"no test: {term} in {group}, {reason}",
        }
    return {"df": df, "p": float(chdtrc(df, statistic)), "test": "Wald"}


def _sparse_text(labels: Labels, tests: TermTests) -> str:
    """Return the reason why the exact likelihood ratio is unreliable, as the end of a sentence.

    The result is empty if all margins have enough rows. ``tests.sparse`` describes a margin with
    too few rows by its predictors ``scope`` and its ``group``.
    """
    if tests.sparse is None:
        return ""
    scope = tests.sparse.scope
    names = " x ".join(label_text(labels.names[i]) for i in scope)
    reason = f"parameters of {names}" if len(scope) == 1 else f"cells of {names}"
    group = f" in {label_text(labels.groups[tests.sparse.group])}" if len(labels.groups) > 1 else ""
    return f", because there are too few rows for a likelihood ratio of the {reason}{group}"


def _conditional_ratio_test(
    one: MachineResults, other: ModelResults
) -> dict[str, float | int | str]:
    """Return the likelihood ratio test of two joint fits. The larger fit may have more predictors.

    Degrees of freedom are the difference in the number of parameters. Parameters that separate
    groups are counted, because they increase the likelihood. Parameters of levels that never occur
    are not counted. Raises a DataError or OptionError if the fits are not nested.
    """
    from scipy.stats import chi2

    if (
        not isinstance(other, MachineResults)
        or not other.engine.joint
        or not other.engine.has_tests
    ):
        raise OptionError(
            "only one of the models was fitted by maximising P(y|x), so their likelihoods "
            "are on different scales."
        )
    term_sets = [  # of each fit: names of the predictors of each term, including single predictors
        {
            frozenset(fit.labels.names[i] for i in scope)
            for scope in fit.estimate.parameters.layout.scopes
        }
        for fit in (one, other)
    ]
    large, small = (one, other) if len(term_sets[0]) >= len(term_sets[1]) else (other, one)
    # models of adjacent logits are nominal ones with all steps equal
    tests_steps = _logits(one) != _logits(other)
    if tests_steps:
        large, small = _order_by_logits(one, other)
        small_set, large_set = term_sets if small is one else term_sets[::-1]
        if not small_set <= large_set:
            raise DataError(
                "the models are not nested: the one with adjacent logits has terms that the other "
                "does not have.",
                hint="Compare the criteria.",
            )
    elif not (term_sets[0] < term_sets[1] or term_sets[1] < term_sets[0]):
        relation = (
            "have the same terms"
            if term_sets[0] == term_sets[1]
            else "are not nested: each has terms that the other does not have"
        )
        raise DataError(f"the models {relation}.", hint="Compare the criteria.")
    large._testable_rows()  # raises for weights that are not counts
    if not have_same_design(large.survey, small.survey):
        raise DataError("the models were fitted with different sampling designs.")
    if large.engine.has_profiles != small.engine.has_profiles:
        raise DataError(
            "only one of the models was fitted with Firth's penalty.",
            hint="Fit both models with the same ridge.",
        )
    columns_in_large = [large.labels.names.index(name) for name in small.labels.names]
    if not _have_same_rows(small, large, columns_in_large):
        raise DataError("the models were fitted to different rows, groups or levels.")
    df = large.n_parameters - small.n_parameters
    ratio = 2.0 * (large._log_likelihood - small._log_likelihood)
    if df < 1:
        raise DataError(
            "for these rows, the larger model has no additional parameters: its other terms are "
            "redundant, or have levels that never occur together."
        )
    if tests_steps:
        return {
            "ratio": ratio,
            "df": df,
            "p": float(chi2.sf(max(ratio, 0.0), df)),
            "test": "likelihood ratio",
        }
    layout = large.estimate.parameters.layout
    # terms of the smaller fit, as in `term_sets`
    small_terms = {
        frozenset(small.labels.names[i] for i in scope)
        for scope in small.estimate.parameters.layout.scopes
    }
    is_kept = [
        frozenset(large.labels.names[i] for i in scope) in small_terms for scope in layout.scopes
    ]
    # (size,): parameters that are not in the smaller fit
    is_dropped = ~np.repeat(is_kept, np.diff(layout.cuts))
    if large.engine.has_profiles:
        ratio = large._inference._joint_tests.influence.penalised_ratio(is_dropped)
        return {
            "ratio": ratio,
            "df": df,
            "p": float(chi2.sf(ratio, df)),
            "test": "penalised likelihood ratio",
        }
    if large.survey is not None:
        # Rao & Scott (1984): the ratio's distribution under the design depends on the covariance of
        # these parameters
        small_coefficients = _in_larger_layout(small, large, columns_in_large)
        test = large._inference._joint_tests.corrected_ratio(
            ratio, is_dropped, df, small_coefficients
        )
        _check_has_p_value(test.p)
        return {
            "ratio": test.statistic,
            "df": df,
            "p": test.p,
            "test": "likelihood ratio, Rao-Scott",
        }
    # max: a negative ratio is rounding, or a fit that stopped before its maximum
    return {
        "ratio": ratio,
        "df": df,
        "p": float(chi2.sf(max(ratio, 0.0), df)),
        "test": "likelihood ratio",
    }


def _logits(fit: MachineResults) -> str:
    """Return the kind of logits of a joint fit, which specifies how the order of the groups is used
    (see `bbl.Conditional`).
    """
    return str(getattr(fit.engine, "logits", "nominal"))


def _order_by_logits(
    one: MachineResults, other: MachineResults
) -> tuple[MachineResults, MachineResults]:
    """Return the fit with nominal logits and the fit with adjacent logits.

    Raises a DataError or OptionError if one of the fits uses different logits.
    """
    by_logits = {_logits(fit): fit for fit in (one, other)}
    if "cumulative" in by_logits:
        raise DataError(
            "a model with cumulative logits is not nested in a model with other logits, so "
            "compare AIC or BIC."
        )
    large = by_logits["nominal"]
    if large.engine.has_profiles:
        raise OptionError(
            "only one of the models has Firth's penalty.",
            hint="Fit both models with ridge=0.",
        )
    if large.survey is not None:
        raise OptionError(
            "equal steps cannot be tested under a sampling design.", hint="Compare the criteria."
        )
    return large, by_logits["adjacent"]


def _in_larger_layout(
    small: MachineResults, large: MachineResults, columns_in_large: list[int]
) -> np.ndarray:
    """Return the coefficients (K, 1 + size) of a joint fit in the layout of a larger fit.

    Parameters that are not in the smaller fit are 0. `columns_in_large` contains the positions of
    its predictors in the larger fit.
    """
    coefficients = small._inference._joint_tests.influence.coefficients
    small_layout = small.estimate.parameters.layout
    large_layout = large.estimate.parameters.layout
    out = np.zeros((len(coefficients), 1 + large_layout.size))
    out[:, 0] = coefficients[:, 0]
    for scope in small_layout.scopes:
        table = small_layout.table(coefficients[:, 1:], *scope)
        large_table = large_layout.table(
            np.arange(large_layout.size), *(columns_in_large[i] for i in scope)
        )
        out[:, 1 + large_table.ravel()] = table.reshape(len(coefficients), -1)
    return out


def _check_has_p_value(p: float) -> None:
    """Raise a DataError if the p-value of the Rao-Scott test is not available."""
    if np.isnan(p):
        raise DataError(
            "the sampling design has too few clusters or replicates for a test.",
            hint="Compare the criteria.",
        )


def _refused_terms_text(labels: Labels, tests: TermTests) -> str:
    """Describe the first term without a test, its group and the reason, and the number of other
    terms without a test.
    """
    group, scope, kind = tests.refused[0]
    term = ":".join(label_text(labels.names[i]) for i in scope)
    n_more = len(tests.refused) - 1
    # EXACT: some parameters have exact tests, but the whole term has none because there are too
    # few rows
    reason = (Kind.FEW if kind == Kind.EXACT else kind).text
    return f"{term} in {label_text(labels.groups[group])}, {reason}" + (
        f"; and {n_more} more" if n_more else ""
    )


def _order_nested(
    one: MachineResults, other: ModelResults
) -> tuple[MachineResults, np.ndarray, Scores | None]:
    """Return the larger of two nested fits, a mask (T,) of its terms that are in the smaller fit,
    and the level scores of the smaller fit in the form used by `Layout`.

    Raises a DataError or an OptionError if the fits are not nested or cannot be compared.
    """
    one.engine.check_equations()  # raises an OptionError if the method has no tests
    if not isinstance(other, MachineResults):
        raise OptionError("the test requires Boltzmann machines.")
    other.engine.check_equations()
    n_terms = (
        len(one.estimate.parameters.layout.scopes),
        len(other.estimate.parameters.layout.scopes),
    )
    # of fits with the same number of terms, the one with more parameters: fewer level scores
    keys = [(n, fit.n_parameters) for n, fit in zip(n_terms, (one, other), strict=True)]
    large, small = (one, other) if keys[0] >= keys[1] else (other, one)
    names = large.labels.names
    small_names = small.labels.names
    if set(names) != set(small_names):
        unshared = next(
            name for name in (*names, *small_names) if (name in names) != (name in small_names)
        )
        raise DataError(
            f"{unshared!r} is a predictor of only one model, and likelihoods of different "
            "predictors are not comparable.",
            hint="Test the predictor in summary().",
        )
    # predictors of `small` in the order of `large`
    small_columns = [small_names.index(name) for name in names]
    if not have_same_design(large.survey, small.survey):
        raise DataError("the models were fitted with different sampling designs.")
    if not _have_same_rows(large, small, small_columns):
        raise DataError("the models were fitted to different rows, groups or levels.")
    if not _have_same_zeros(large, small, small_columns):
        raise DataError(
            "the models have different structural zeros, so they describe different cells."
        )
    # positions in `large` by position in `small`; terms as sets of positions in `large`
    large_columns = {small_column: i for i, small_column in enumerate(small_columns)}
    large_terms = [
        frozenset(scope) for scope in large.estimate.parameters.layout.scopes[len(names) :]
    ]
    small_terms = {
        frozenset(large_columns[i] for i in scope)
        for scope in small.estimate.parameters.layout.scopes[len(names) :]
    }
    small_scores = _scores_in_order(small, small_columns)
    has_fewer_parameters = small_terms < set(large_terms) or not _have_same_scores(
        _scores_in_order(large, list(range(len(names)))), small_scores, large_terms
    )
    if not small_terms <= set(large_terms) or not has_fewer_parameters:
        # with no terms (default=2) also "pairs"
        noun = "pairs" if max(map(len, small_terms | set(large_terms)), default=2) < 3 else "terms"
        is_same = small_terms == set(large_terms)
        relation = (
            f"have the same {noun}"
            if is_same
            else f"are not nested: each has {noun} that the other does not have"
        )
        raise DataError(f"the models {relation}.", hint="Compare the criteria.")
    if not _is_scored_like(large, small_scores, small_terms):
        raise DataError(
            "the models are not nested: they have different level scores.",
            hint="Compare the criteria.",
        )
    return large, np.array([term in small_terms for term in large_terms], dtype=bool), small_scores


def _scores_in_order(fit: MachineResults, columns: list[int]) -> Scores | None:
    """Return the level scores of a fit's predictors in the order `columns`."""
    scores = fit.estimate.parameters.layout.scores
    return None if scores is None else tuple(scores[i] for i in columns)


def _have_same_scores(
    scores: Scores | None, other: Scores | None, terms: Iterable[frozenset[int]]
) -> bool:
    """Return whether two models have the same level scores for all predictors in some terms."""
    return all(
        _equal_scores(None if scores is None else scores[i], None if other is None else other[i])
        for i in frozenset().union(*terms)
    )


def _equal_scores(scores: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Return whether the level scores of a predictor are equal, or both absent, in two models."""
    if scores is None or other is None:
        return scores is other
    return bool(np.allclose(scores, other, rtol=1e-12, atol=0.0, equal_nan=True))


def _is_scored_like(
    large: MachineResults, small_scores: Scores | None, terms: Iterable[frozenset[int]]
) -> bool:
    """Return whether all predictors in some terms that have level scores in `large` have the same
    scores in the smaller fit.
    """
    scores = large.estimate.parameters.layout.scores
    return scores is None or all(
        scores[i] is None
        or _equal_scores(scores[i], None if small_scores is None else small_scores[i])
        for i in frozenset().union(*terms)
    )


def _have_same_zeros(
    large: MachineResults, small: MachineResults, small_columns: list[int]
) -> bool:
    """Return whether two fits have the same structural zeros.

    `small_columns` contains the positions in `small` of the predictors of `large`.
    """
    # which cells can occur; None if all can
    support = large.estimate.parameters.layout.support
    small_support = small.estimate.parameters.layout.support
    return support == (None if small_support is None else small_support.permuted(small_columns))


def _have_same_rows(fit: MachineResults, other: MachineResults, other_columns: list[int]) -> bool:
    """Return whether two fits have the same groups, levels and weighted rows for the predictors of
    `fit`.

    `other_columns` contains the positions of these predictors in `other`.
    """
    labels = fit.labels
    other_labels = other.labels
    if labels.response != other_labels.response or labels.groups != other_labels.groups:
        return False
    if labels.levels != tuple(other_labels.levels[i] for i in other_columns):
        return False
    kept = [model._kept for model in (fit, other)]
    if any(rows is not None and not rows.is_complete for rows in kept):
        # of samples, only the counts of levels are those of all rows
        return fit.nobs() == other.nobs() and all(
            np.array_equal(counts, other._counts[k])
            for counts, k in zip(fit._counts, other_columns, strict=True)
        )
    rows = fit._all_rows()
    other_rows = other._all_rows()
    n_levels = fit.design.n_levels
    codes = np.ascontiguousarray(other_rows.codes[:, other_columns])
    missing = (
        None
        if other_rows.missing is None
        else np.ascontiguousarray(other_rows.missing[:, other_columns])
    )
    reordered_sample = Sample(codes, other_rows.weights, other_rows.y, missing)
    # rows of a group, with equal rows merged in a fixed order, in both fits
    group_pairs = (  # a generator, so that only one group's merged rows are in memory
        [sample.group(y).collapsed(n_levels) for sample in (rows, reordered_sample)]
        for y in range(len(labels.groups))
    )
    # masks of missing cells are not compared: if both fits have missing values, the caller later
    # reports the missing test
    return all(
        np.array_equal(fit_group.codes, other_group.codes)
        and np.array_equal(fit_group.weights, other_group.weights)
        and (fit_group.missing is None) == (other_group.missing is None)
        for fit_group, other_group in group_pairs
    )
