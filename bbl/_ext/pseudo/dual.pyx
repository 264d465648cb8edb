# Dual coordinate ascent: pseudo-likelihood fits of predictors with many levels, given all others (dual.h).
"""Pseudo-likelihood fits by dual coordinate ascent, for models with all pairs; dual.h describes the algorithm.

A *site* is a predictor whose conditional distribution given all others is fitted. A *column* is the indicator of a
non-reference level of a predictor; there are D columns in all.
"""
import numpy as np

from bbl._ext.signals cimport check_signals
from libc.stdint cimport int32_t, uint8_t, uint16_t

cdef extern from "dual.h" nogil:
    int DUAL_MAX_LOGITS
    int SOLVER_NO_MEMORY
    ctypedef struct dual_site:
        Py_ssize_t n, D, q, own
        const uint16_t *column
        const Py_ssize_t *row_start
        const uint8_t *response
        const double *share
        double uniform_share, lambda_ "lambda", lambdah, rho, tolerance
        int32_t max_epochs
        const int32_t *stop
        int (*check)() noexcept nogil
    ctypedef struct dual_result:
        double value, norm
        int32_t n_epochs, n_gradients, status
    ctypedef int (*dual_solver)(const dual_site *s, double *theta, dual_result *out) except -1 nogil
    dual_solver dual_choose(Py_ssize_t q, int single)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

MAX_LOGITS = DUAL_MAX_LOGITS  # maximum number of non-reference levels of a site
MAX_COLUMNS = 65535  # maximum D: columns are stored in 16 bits


cdef Py_ssize_t list_columns(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, uint16_t[::1] column,
                             Py_ssize_t[::1] row_start, uint8_t[:, ::1] responses) noexcept nogil:
    """List the columns that are 1 in each row, and transpose the codes (n, m) into `responses` (m, n).

    Returns a predictor with a code out of range, or -1.
    """
    cdef Py_ssize_t k, i, count = 0, bad = -1
    cdef int32_t code
    for k in range(codes.shape[0]):
        row_start[k] = count
        for i in range(codes.shape[1]):
            code = <int32_t> codes[k, i]
            if code < 0 or code > start[i + 1] - start[i]:
                bad = i
                code = 0
            responses[i, k] = <uint8_t> code
            if code:
                column[count] = <uint16_t> (start[i] + code - 1)
                count += 1
    row_start[codes.shape[0]] = count
    return bad


cdef class DualProblem:
    """The rows of a model with all pairs, for dual coordinate ascent.

    Parameters
    ----------
    codes : ndarray of uint8, uint16 or int32, shape (n, m)
    weights : ndarray, shape (n,)
        Must be positive.
    n_levels : ndarray of int, shape (m,)
        At most MAX_LOGITS + 1, with at most MAX_COLUMNS columns in all.
    prior_count : float
        Pseudocount c. The uniform distribution has the weight ``c / (W + c)`` in the targets, where W is the total
        weight.
    single : bool
        Whether to compute in single precision.
    """

    cdef Py_ssize_t n
    cdef uint16_t[::1] column
    cdef Py_ssize_t[::1] row_start, start
    cdef uint8_t[:, ::1] responses
    cdef double[::1] share
    cdef double uniform_share
    cdef bint single

    def __cinit__(self, codes, weights, n_levels, double prior_count, bint single):
        n, m = codes.shape
        levels = np.asarray(n_levels, dtype=np.intp)
        if not (n and len(weights) == n and len(levels) == m and m):
            raise ValueError("codes, weights and n_levels do not fit together")
        if not (np.isfinite(weights).all() and np.min(weights) > 0.0):
            raise ValueError("weights must be positive numbers")
        if levels.min() < 2 or levels.max() > MAX_LOGITS + 1 or levels.sum() - m > MAX_COLUMNS:
            raise ValueError(f"n_levels must lie between 2 and {MAX_LOGITS + 1}, with up to {MAX_COLUMNS} columns")
        self.start = np.concatenate(([0], np.cumsum(levels - 1)))
        self.n, self.single = n, single
        self.column = np.empty(max(1, np.count_nonzero(codes)), dtype=np.uint16)
        self.row_start, self.responses = np.empty(n + 1, dtype=np.intp), np.empty((m, n), dtype=np.uint8)
        total = np.sum(weights)
        self.share, self.uniform_share = np.asarray(weights, dtype=float) / total, prior_count / (total + prior_count)
        bad = self.read(codes)
        if bad >= 0:
            raise ValueError(f"predictor {bad} has a code outside 0..{levels[bad] - 1}")

    def read(self, const code_t[:, ::1] codes):
        """Store the codes (n, m); return a predictor with a code out of range, or -1."""
        return list_columns(codes, self.start, self.column, self.row_start, self.responses)

    def solve(self, Py_ssize_t site, double lambda_, double lambdah, double rho, double tolerance, int max_epochs,
              double[:, ::1] theta, double[::1] value, double[::1] grad_norm, int32_t[::1] n_iter,
              int32_t[::1] n_eval, int32_t[::1] status, const int32_t[::1] stop):
        """Minimise the objective of one site from its rows of `theta` (D, 1 + D), in place, without the GIL.

        - `lambda_` > 0, `lambdah`: penalties of couplings and fields; `rho`: strength of the proximal term for the
          fields; ``lambdah + rho`` must be positive.
        - `tolerance`: Euclidean norm of the gradient at which the site has converged; `max_epochs`: maximum number of
          visits to all rows.
        - `value`, `grad_norm`, `n_iter`, `n_eval`, `status` (m,): outputs, written at the site: objective, gradient
          norm, epochs, epochs and evaluations of the gradient, and a solver_status.
        - `stop` (1,): the run ends soon after another thread sets it to a non-zero number.

        Raises KeyboardInterrupt in the main thread.
        """
        cdef dual_site s
        cdef dual_result result
        cdef Py_ssize_t m = self.start.shape[0] - 1, D = self.start[m]
        cdef int code
        cdef dual_solver solver
        if not 0 <= site < m:
            raise ValueError(f"site must lie between 0 and {m - 1}, not {site}")
        if theta.shape[0] != D or theta.shape[1] != 1 + D:
            raise ValueError(f"theta must have shape ({D}, {1 + D})")
        if min(value.shape[0], grad_norm.shape[0], n_iter.shape[0], n_eval.shape[0], status.shape[0]) < m:
            raise ValueError(f"results need {m} entries")
        if not (lambda_ > 0.0 and lambdah >= 0.0 and rho >= 0.0 and lambdah + rho > 0.0 and stop.shape[0]):
            raise ValueError("penalties must be positive, and stop must have an entry")
        s.n, s.D, s.own, s.q = self.n, D, self.start[site], self.start[site + 1] - self.start[site]
        s.column, s.row_start, s.response = &self.column[0], &self.row_start[0], &self.responses[site, 0]
        s.share, s.uniform_share = &self.share[0], self.uniform_share
        s.lambda_, s.lambdah, s.rho, s.tolerance, s.max_epochs = lambda_, lambdah, rho, tolerance, max_epochs
        s.stop, s.check = &stop[0], check_signals
        result.value, result.norm = 0.0, 0.0
        solver = dual_choose(s.q, self.single)
        with nogil:
            code = solver(&s, &theta[s.own, 0], &result)  # raises at -1 (interrupted)
        if code == SOLVER_NO_MEMORY:
            raise MemoryError("no memory for the working arrays of dual coordinate ascent")
        value[site], grad_norm[site], status[site] = result.value, result.norm, result.status
        n_iter[site], n_eval[site] = result.n_epochs, result.n_epochs + result.n_gradients
