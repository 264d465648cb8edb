"""Fields and couplings that maximise P(group | row), by Nesterov's method on minibatches; see conditional.h."""
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
        float *J_velocity
        float *pair_sums
        double *u
        double *u_velocity
        double *h
        double *level_sums
        double *b
        double *b_velocity
        double *total_sums
        double *shift
        float *level_sums_f
        float *h_drop
        float *scratch
    ctypedef struct conditional_batch:
        Py_ssize_t n
        Py_ssize_t *columns
        Py_ssize_t *row_start
        Py_ssize_t *column_start
        Py_ssize_t *entry_at
        Py_ssize_t *entry_row
        float *values
        double *residual
    double conditional_residuals(const conditional_model *c, const conditional_batch *batch,
                                 const Py_ssize_t *row_index, const double *given_scores, const Py_ssize_t *y,
                                 const double *weights, double scale)
    void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *scratch)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef double list_columns(const conditional_model *c, conditional_batch *batch, const code_t[:, ::1] codes,
                         const double[::1] weights, const Py_ssize_t[::1] order, Py_ssize_t lo,
                         Py_ssize_t hi) noexcept nogil:
    """List the columns of the rows order[lo..hi) in a batch; return the sum of the rows' weights."""
    cdef Py_ssize_t k, i, e = 0
    cdef double weight_sum = 0.0
    for k in range(lo, hi):
        weight_sum += weights[order[k]]
        for i in range(c.m):
            if codes[order[k], i]:
                batch.columns[e] = c.start[i] + codes[order[k], i] - 1
                e += 1
        batch.row_start[k - lo + 1] = e
    batch.n = hi - lo
    return weight_sum


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
        Factors of the gradients of fields and of couplings.

    Attributes
    ----------
    h : ndarray, shape (D, K)
        Fields in the reference gauge.
    J : ndarray of float32, shape (D, D, K), or (0, 0, K) without pairs
        Couplings of columns [c][d], c < d. Single precision halves the memory traffic of a step, which is the cost of
        a step; rates end at zero, so that rounding errors do not accumulate.
    b, shift : ndarray, shape (K,)
        Offsets; b + shift is the score of the row of reference levels.
    """

    cdef conditional_model c
    cdef readonly object J, h, b, shift
    cdef object owners  # arrays that `c` points into
    cdef double[::1] step_scratch  # (K,)

    def __cinit__(self, const Py_ssize_t[::1] start, const Py_ssize_t[:, ::1] pairs, const double[::1] means,
                  Py_ssize_t K, scale):
        cdef Py_ssize_t m = start.shape[0] - 1, D = means.shape[0], P = pairs.shape[1], side = D if P else 0
        cdef float[:, :, ::1] J = np.zeros((side, side, K), np.float32)
        cdef float[:, :, ::1] J_velocity = np.zeros((side, side, K), np.float32)
        cdef float[:, :, ::1] pair_sums = np.zeros((side, side, K), np.float32)
        cdef double[:, ::1] u = np.zeros((D, K)), u_velocity = np.zeros((D, K))
        cdef double[:, ::1] h = np.zeros((D, K)), level_sums = np.zeros((D, K))
        cdef double[::1] b = np.zeros(K), b_velocity = np.zeros(K), total_sums = np.zeros(K), shift = np.zeros(K)
        cdef float[:, ::1] level_sums_f = np.zeros((D, K), np.float32), h_drop = np.zeros((D, K), np.float32)
        cdef float[:, ::1] scratch = np.zeros((2, K), np.float32)
        self.owners = (start, pairs, means, J_velocity, pair_sums, u, u_velocity, level_sums, b_velocity, total_sums,
                       level_sums_f, h_drop, scratch)
        self.J, self.h = np.asarray(J), np.asarray(h)
        self.b, self.shift = np.asarray(b), np.asarray(shift)
        self.step_scratch = np.zeros(K)
        self.c.D, self.c.K, self.c.m, self.c.n_pairs = D, K, m, P
        self.c.start, self.c.means = &start[0], &means[0]
        self.c.scale[0], self.c.scale[1] = scale
        if P:
            self.c.first, self.c.second = &pairs[0, 0], &pairs[1, 0]
            self.c.J, self.c.J_velocity = &J[0, 0, 0], &J_velocity[0, 0, 0]
            self.c.pair_sums = &pair_sums[0, 0, 0]
        self.c.u, self.c.u_velocity = &u[0, 0], &u_velocity[0, 0]
        self.c.h, self.c.level_sums = &h[0, 0], &level_sums[0, 0]
        self.c.b, self.c.b_velocity, self.c.total_sums, self.c.shift = &b[0], &b_velocity[0], &total_sums[0], &shift[0]
        self.c.level_sums_f, self.c.h_drop, self.c.scratch = &level_sums_f[0, 0], &h_drop[0, 0], &scratch[0, 0]

    cdef object allocate(self, conditional_batch *batch, Py_ssize_t max_rows):
        """Allocate a batch of up to max_rows rows; return its arrays, which the caller must keep."""
        cdef Py_ssize_t m = self.c.m, K = self.c.K
        cdef Py_ssize_t[::1] columns = np.empty(max_rows * m, np.intp), row_start = np.zeros(max_rows + 1, np.intp)
        cdef Py_ssize_t[::1] column_start = np.empty(self.c.D + 1, np.intp)
        cdef Py_ssize_t[::1] entry_at = np.empty(max_rows * m, np.intp), entry_row = np.empty(max_rows * m, np.intp)
        cdef float[::1] values = np.empty(max_rows * K, np.float32)
        cdef double[::1] residual = np.empty(max_rows * K)
        batch.columns, batch.row_start, batch.column_start = &columns[0], &row_start[0], &column_start[0]
        batch.entry_at, batch.entry_row = &entry_at[0], &entry_row[0]
        batch.values, batch.residual = &values[0], &residual[0]
        return columns, row_start, column_start, entry_at, entry_row, values, residual

    def residual_sums(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
                      const double[:, ::1] given_scores, Py_ssize_t batch_size, double[:, :, ::1] pairs_out,
                      double[:, ::1] levels_out, double[::1] total_out, double[:, ::1] residuals_out):
        """Return the log-loss of all rows at h, J, b and shift, and write sums of their residuals.

        Arguments as in `epoch`, but `weights` sum to 1. pairs_out (D, D, K), first column < second, sums the residuals
        over the rows that have both columns, levels_out (D, K) over the rows that have a column, total_out (K,) over
        all rows. residuals_out is (n, K) for the residual of each row, or (0, K). pairs_out is summed in single
        precision within the batches, in double over them.
        """
        cdef Py_ssize_t n = codes.shape[0], K = self.c.K, n_cells = pairs_out.size, first = 0, end, k
        cdef Py_ssize_t[::1] order = np.arange(n, dtype=np.intp)
        cdef conditional_batch batch
        cdef const double *given = &given_scores[0, 0] if given_scores.shape[0] else NULL
        cdef double loss = 0.0
        cdef bint keep_residuals = residuals_out.shape[0] > 0
        _arrays = self.allocate(&batch, min(n, batch_size))
        pairs_out[:], levels_out[:], total_out[:] = 0.0, 0.0, 0.0
        while first < n:
            end = min(n, first + batch_size)
            with nogil:
                list_columns(&self.c, &batch, codes, weights, order, first, end)
                loss += conditional_residuals(&self.c, &batch, &order[first], given, &y[0], &weights[0], 1.0)
                for k in range(n_cells):
                    (&pairs_out[0, 0, 0])[k] += self.c.pair_sums[k]
                    self.c.pair_sums[k] = 0.0
                if keep_residuals:
                    for k in range((end - first) * K):
                        (&residuals_out[first, 0])[k] = batch.residual[k]
            first = end
            PyErr_CheckSignals()
        for k in range(self.c.D * K):
            (&levels_out[0, 0])[k] = self.c.level_sums[k]
            self.c.level_sums[k] = 0.0
        for k in range(K):
            total_out[k] = self.c.total_sums[k]
            self.c.total_sums[k] = 0.0
        return loss

    def epoch(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
              const double[:, ::1] given_scores, const Py_ssize_t[::1] order, Py_ssize_t batch_size, double rate,
              double final_rate, double momentum, double ridge):
        """Visit the rows `order` once, with a step every batch_size rows; return their mean log-loss when visited.

        Shapes: codes (n, m), groups y (n,), weights (n,) of mean 1, given_scores (n, K), added to scores, or (0, K).
        The step size falls linearly from `rate` to `final_rate`.
        """
        cdef Py_ssize_t n = order.shape[0], first = 0, end
        cdef conditional_batch batch
        cdef const double *given = &given_scores[0, 0] if given_scores.shape[0] else NULL
        cdef double loss = 0.0, weight_sum, current_rate
        _arrays = self.allocate(&batch, min(n, batch_size))
        while first < n:
            end = min(n, first + batch_size)
            with nogil:
                weight_sum = list_columns(&self.c, &batch, codes, weights, order, first, end)
                loss += weight_sum * conditional_residuals(&self.c, &batch, &order[first], given, &y[0], &weights[0],
                                                           1.0 / weight_sum)
                current_rate = rate + (final_rate - rate) * first / n
                conditional_step(&self.c, current_rate, momentum, ridge, &self.step_scratch[0])
            first = end
            PyErr_CheckSignals()
        return loss / n
