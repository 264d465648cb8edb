"""Comparison of the package with the stored outputs of R's bbl 1.0.0: rules in words, and measured differences."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

import bbl
import reference as oracle
from bbl.errors import ConvergenceWarning

RULES = {
    "exact": "Converged pseudo-likelihood is compared with the exact optimum stored with R's runs.",
    "closed": "Closed forms (mean field, naive Bayes, eq. 27) are R's numbers.",
    "distance": "R's converged run agrees within its own recorded distance from the exact optimum.",
    "oracle": "No converged value is stored by R: compared with the enumeration oracle at the exact optimum.",
    "weights": "R sums ln Z, logLik and lkh over rows without their weights: compared with the oracle, which weights.",
    "additive": "R divides the ln Z of additive mean-field fits by the number of predictors: compared with naive Bayes.",
    "partial": "R inverts C in full and leaves dropped pairs inside h and ln Z; here both keep the model's pairs only: "
    "J is R's, h and ln Z are the oracle's.",
    "extra row": "A predictor is constant at its reference level in a group: R's extra row repeats that level and does "
    "not help, ours takes another one; compared with the oracle, which with R's row gives R's number.",
    "one level": "A predictor with one level: R invents a second one; here it has no parameters.",
    "no optimum": "A level is absent from a group and lambdah = 0: no finite optimum. Coefficients are finite, a "
    "warning names the level, probabilities are R's up to what its tolerance leaves open.",
    "absent": "A level is absent from a group without prior count: R's field is -Inf; here it is finite and a warning "
    "names the level, its probability is zero all the same.",
    "NaN": "R's chi-square is NaN where a level is absent (0 ln 0); here 0 ln 0 = 0.",
    "naive": "mlestimate(naive=TRUE, method='mf') of R still uses eps; here it is naive Bayes.",
    "error": "What R refuses is refused.",
    "folds": "Folds are R's, row by row.",
    "scoring": "R's stored validation predictions are scored as pROC does.",
    "table": "The table of scores is R's; pseudo-likelihood within what R's tolerance leaves open.",
    "blocks": "Contiguous folds lose whole levels and lambdah = 0: the table has no converged value, and R's own moves "
    "by 0.04 with its tolerance.",
    "map": "The sampler visits the state of highest energy, whose energy is the enumerated one (R's is wrong).",
    "labels": "Predicted labels are R's.",
}


@dataclass(frozen=True)
class Check:
    """One measured difference: it has to be at most `tolerance`, under the rule of RULES named `rule`."""

    quantity: str
    difference: float
    tolerance: float
    rule: str

    @property
    def passed(self) -> bool:
        return bool(self.difference <= self.tolerance)


def gap(found, wanted) -> float:
    """Return the largest absolute difference; NaN only matches NaN, infinities only themselves."""
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    if found.shape != wanted.shape:
        return np.inf
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(found - wanted))
    return float(np.max(np.nan_to_num(off, nan=np.inf), initial=0.0))


def relative(found, wanted) -> float:
    """Return the largest difference relative to ``max(1, |wanted|)``."""
    wanted = np.asarray(wanted, dtype=float)
    scale = np.maximum(1.0, np.abs(wanted))
    return gap(np.asarray(found, dtype=float) / scale, wanted / scale)


def quietly(call, *args, **kwargs):
    """Return the result of a call and the text of the ConvergenceWarnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(*args, **kwargs)
    others = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    if others:
        raise AssertionError(f"unexpected warning: {others[0].message}")
    return result, [str(w.message) for w in caught]


def coefficients(fit, problem, g):
    """Return ``(h, J)`` of group number `g` (None for the pooled fit), read by label."""
    coef = fit.coef()
    label = None if g is None else problem.groups[g]
    h = coef.h0 if g is None else coef.h[label]
    J = coef.J0 if g is None else coef.J[label]
    fields = [h[n].loc[levels[1:]].to_numpy() for n, levels in zip(problem.names, problem.levels, strict=True)]
    tables = {
        (i, j): J[problem.names[i], problem.names[j]].loc[problem.levels[i][1:], problem.levels[j][1:]].to_numpy()
        for i, j in problem.pairs
    }
    return fields, tables


def model_gap(found, wanted) -> tuple[float, float]:
    """Return the largest differences of two models' fields and couplings."""
    (h1, J1), (h2, J2) = found, wanted
    if J1.keys() != J2.keys():
        return np.inf, np.inf
    return max(gap(a, b) for a, b in zip(h1, h2, strict=True)), max((gap(J1[p], J2[p]) for p in J1), default=0.0)


class Expected:
    """What a fit has to be: the oracle's model, ln Z and lkh of every group of a case, and the pooled model."""

    def __init__(self, case, problem, rows=None):
        rows = slice(None) if rows is None else rows
        x, y, w = problem.x[rows], problem.y[rows], problem.w[rows]
        self.problem, self.x, self.y, self.w = problem, x, y, w
        self.share = np.array([w[y == g].sum() for g in range(problem.K)]) / w.sum()
        self.models, self.lz, lkh = [], [], 0.0
        for g in range(problem.K):
            s = y == g
            h, J, lz, value = self.group(case, x[s], w[s])
            self.models.append((h, J))
            self.lz.append(lz)
            lkh += value * w[s].sum()
        self.lkh = lkh
        self.pooled = self.group(case, x, w)[:2]
        self.log_likelihood = float(np.sum(w * (self.energy(x)[np.arange(len(y)), y] - np.array(self.lz)[y])))

    def group(self, case, x, w):
        """Return ``h, J, ln Z`` and the objective per observation of one set of rows."""
        L, pairs = self.problem.L, self.problem.pairs
        if case.method == "pseudo" and pairs:
            fit = oracle.PseudoFit(x, w, L, pairs, case.lambda_, case.lambdah)
            return fit.h, fit.J, fit.log_z(case.half), fit.lkh
        prior = case.args.get("prior.count", 1.0) if case.method == "mf" else 0.0
        if pairs:
            h, J, lz, _ = oracle.mean_field(x, w, L, pairs, case.args.get("eps", 0.9), prior)
        else:
            h, J, lz = oracle.naive_bayes(x, w, L, prior)
        return h, J, lz, float(np.sum(w * (oracle.energy(h, J, x) - lz)) / w.sum())

    def energy(self, x):
        """Return the energies (n, K)."""
        return np.column_stack([oracle.energy(h, J, x) for h, J in self.models])

    def predict(self, x):
        """Return links and probabilities (n, K)."""
        return oracle.posterior(self.energy(x), self.lz, self.share)


def compare_labels(yhat, prob, groups) -> float:
    """Return how far below the highest probability the chosen label lies, at worst."""
    at = np.array([groups.index(v) for v in yhat])
    return float(np.max(prob.max(axis=1) - prob[np.arange(len(at)), at], initial=0.0))


def fit_case(case, data=None, formula=None, args=None):
    """Fit a formula case with R's arguments; return the results and the warnings."""
    data = case.data if data is None else data
    return quietly(bbl.bbl, formula or case.formula, data, case.weights, **case.keywords(args))


def raises(case) -> list[Check]:
    """Check that a case which R refuses is refused, naming the predictor."""
    try:
        fit_case(case)
    except bbl.errors.BBLError as error:
        named = str(error.column) in case.runs["default"]["error"]
        return [Check(f"error: {error}", 0.0 if named else 1.0, 0.0, "error")]
    return [Check("no error was raised", 1.0, 0.0, "error")]


def finite(fit) -> float:
    """Return how many coefficients are not finite."""
    return float(np.sum(~np.isfinite(fit.params.theta)))

