# Conditional likelihood: P(group | row) of many rows, fitted by minibatches of rows.
"""Fields and couplings of all groups at once, by Nesterov's method on minibatches; see conditional.h."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t

import numpy as np

cdef extern from "conditional.h" nogil:
    ctypedef struct conditional_model:
        Py_ssize_t D, K, m, n_pairs
        const Py_ssize_t *start
        const Py_ssize_t *first
        const Py_ssize_t *second
        const double *means
        double scale[2]
        float *J
        float *V
        float *S
        double *u
        double *v
        double *h
        double *s
        double *b
        double *vb
        double *r0
        double *shift
        float *rounded
        float *taken
        float *row
    ctypedef struct conditional_batch:
        Py_ssize_t n
        Py_ssize_t *on
        Py_ssize_t *first
        Py_ssize_t *below
        Py_ssize_t *at
        Py_ssize_t *row
        float *values
        double *residual
    double conditional_residuals(const conditional_model *c, const conditional_batch *r, const Py_ssize_t *which,
                                 const double *given, const Py_ssize_t *y, const double *weights, double scale)
    void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *sums)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef double list_columns(const conditional_model *c, conditional_batch *r, const code_t[:, ::1] codes,
                         const double[::1] weights, const Py_ssize_t[::1] order, Py_ssize_t lo,
                         Py_ssize_t hi) noexcept nogil:
    """Make the rows order[lo..hi) a batch, as lists of their non-reference columns; return the sum of their weights."""
    cdef Py_ssize_t k, i, e = 0
    cdef double total = 0.0
    for k in range(lo, hi):
        total += weights[order[k]]
        for i in range(c.m):
            if codes[order[k], i]:
                r.on[e] = c.start[i] + codes[order[k], i] - 1
                e += 1
        r.first[k - lo + 1] = e
    r.n = hi - lo
    return total


cdef class Climber:
    """Fields and couplings of K groups on their way to the maximum of the conditional likelihood.

    Parameters
    ----------
    start : ndarray of intp, shape (m + 1,)
        First column of each predictor among the D non-reference levels.
    pairs : ndarray of intp, shape (2, P)
        First and second predictor of each pair, ``i < j``.
    means : ndarray, shape (D,)
    K : int
    scale : (float, float)
        Factors of single levels and of products in the kernel.

    Attributes
    ----------
    h : ndarray, shape (D, K)
        Fields in the reference gauge.
    J : ndarray of float32, shape (D, D, K), or (0, 0, K) without pairs
        Couplings; of two columns the first is the smaller one. Single precision halves what a step reads and writes,
        which is what it costs; rates end at zero, so that rounding does not add up.
    b, shift : ndarray, shape (K,)
        Offsets, and what centring adds to them: their sum is the score of the row of reference levels.
    """

    cdef conditional_model c
    cdef readonly object J, h, b, shift
    cdef object kept
    cdef double[::1] sums

    def __cinit__(self, const Py_ssize_t[::1] start, const Py_ssize_t[:, ::1] pairs, const double[::1] means,
                  Py_ssize_t K, scale):
        cdef Py_ssize_t m = start.shape[0] - 1, D = means.shape[0], P = pairs.shape[1], side = D if P else 0
        cdef float[:, :, ::1] J = np.zeros((side, side, K), np.float32), V = np.zeros((side, side, K), np.float32)
        cdef float[:, :, ::1] S = np.zeros((side, side, K), np.float32)
        cdef double[:, ::1] u = np.zeros((D, K)), v = np.zeros((D, K)), h = np.zeros((D, K)), s = np.zeros((D, K))
        cdef double[::1] b = np.zeros(K), vb = np.zeros(K), r0 = np.zeros(K), shift = np.zeros(K)
        cdef float[:, ::1] rounded = np.zeros((D, K), np.float32), taken = np.zeros((D, K), np.float32)
        cdef float[:, ::1] row = np.zeros((2, K), np.float32)
        self.kept = (start, pairs, means, V, S, u, v, s, vb, r0, rounded, taken, row)
        self.J, self.h = np.asarray(J), np.asarray(h)
        self.b, self.shift = np.asarray(b), np.asarray(shift)
        self.sums = np.zeros(K)
        self.c.D, self.c.K, self.c.m, self.c.n_pairs = D, K, m, P
        self.c.start, self.c.means = &start[0], &means[0]
        self.c.scale[0], self.c.scale[1] = scale
        if P:
            self.c.first, self.c.second = &pairs[0, 0], &pairs[1, 0]
            self.c.J, self.c.V, self.c.S = &J[0, 0, 0], &V[0, 0, 0], &S[0, 0, 0]
        self.c.u, self.c.v, self.c.h, self.c.s = &u[0, 0], &v[0, 0], &h[0, 0], &s[0, 0]
        self.c.b, self.c.vb, self.c.r0, self.c.shift = &b[0], &vb[0], &r0[0], &shift[0]
        self.c.rounded, self.c.taken, self.c.row = &rounded[0, 0], &taken[0, 0], &row[0, 0]

    cdef object allocate(self, conditional_batch *r, Py_ssize_t most):
        """Point a batch at arrays for that many rows; return what keeps them alive."""
        cdef Py_ssize_t m = self.c.m, K = self.c.K
        cdef Py_ssize_t[::1] on = np.empty(most * m, np.intp), first = np.zeros(most + 1, np.intp)
        cdef Py_ssize_t[::1] below = np.empty(self.c.D + 1, np.intp)
        cdef Py_ssize_t[::1] at = np.empty(most * m, np.intp), row = np.empty(most * m, np.intp)
        cdef float[::1] values = np.empty(most * K, np.float32)
        cdef double[::1] residual = np.empty(most * K)
        r.on, r.first, r.below, r.at, r.row = &on[0], &first[0], &below[0], &at[0], &row[0]
        r.values, r.residual = &values[0], &residual[0]
        return on, first, below, at, row, values, residual

    def residual_sums(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
                      const double[:, ::1] given, Py_ssize_t batch, double[:, :, ::1] pairs_out,
                      double[:, ::1] levels_out, double[::1] total_out, double[:, ::1] residuals_out):
        """Return the log-loss of all rows at h, J, b and shift, and write the sums of their residuals.

        `weights` (n,) sum to 1; `given` as in `epoch`. A residual is ``weight (P(g | row) - 1[y = g])``: it is summed
        over the rows that have both levels of a pair (D, D, K), of which the first column is the smaller one, over
        those that have a level (D, K), and over all (K,). Each row's is written to `residuals_out` (n, K), or (0, K)
        for none. Pairs of a `batch` of rows are summed in single precision, batches in double.
        """
        cdef Py_ssize_t n = codes.shape[0], K = self.c.K, cells = pairs_out.size, lo = 0, hi, k
        cdef Py_ssize_t[::1] order = np.arange(n, dtype=np.intp)
        cdef conditional_batch r
        cdef double loss = 0.0
        cdef bint each = residuals_out.shape[0] > 0
        _scratch = self.allocate(&r, min(n, batch))
        pairs_out[:], levels_out[:], total_out[:] = 0.0, 0.0, 0.0
        while lo < n:
            hi = min(n, lo + batch)
            with nogil:
                list_columns(&self.c, &r, codes, weights, order, lo, hi)
                loss += conditional_residuals(&self.c, &r, &order[lo], &given[0, 0] if given.shape[0] else NULL, &y[0],
                                              &weights[0], 1.0)
                for k in range(cells):
                    (&pairs_out[0, 0, 0])[k] += self.c.S[k]
                    self.c.S[k] = 0.0
                if each:
                    for k in range((hi - lo) * K):
                        (&residuals_out[lo, 0])[k] = r.residual[k]
            lo = hi
            PyErr_CheckSignals()
        for k in range(self.c.D * K):
            (&levels_out[0, 0])[k] = self.c.s[k]
            self.c.s[k] = 0.0
        for k in range(K):
            total_out[k] = self.c.r0[k]
            self.c.r0[k] = 0.0
        return loss

    def epoch(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
              const double[:, ::1] given, const Py_ssize_t[::1] order, Py_ssize_t batch, double rate, double last,
              double momentum, double ridge):
        """Take all rows once in this `order`, `batch` of them a step, the rate falling linearly to `last`.

        `codes` (n, m), groups `y` (n,), `weights` (n,) of mean 1, and scores `given` (n, K) or (0, K) for none. Returns
        the mean log-loss of the rows as they came.
        """
        cdef Py_ssize_t n = order.shape[0], lo = 0, hi
        cdef conditional_batch r
        cdef double loss = 0.0, total, now
        _scratch = self.allocate(&r, min(n, batch))
        while lo < n:
            hi = min(n, lo + batch)
            with nogil:
                total = list_columns(&self.c, &r, codes, weights, order, lo, hi)
                loss += total * conditional_residuals(&self.c, &r, &order[lo], &given[0, 0] if given.shape[0] else NULL,
                                                      &y[0], &weights[0], 1.0 / total)
                now = rate + (last - rate) * lo / n
                conditional_step(&self.c, now, momentum, ridge, &self.sums[0])
            lo = hi
            PyErr_CheckSignals()
        return loss / n
