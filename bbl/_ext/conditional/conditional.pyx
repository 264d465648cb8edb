"""Fields and couplings that maximise P(group | row), by Nesterov's method on minibatches; see conditional.h."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t

import numpy as np

cdef extern from "conditional.h" nogil:
    ctypedef struct conditional_model:
        Py_ssize_t D, K, m, n_pairs
        const Py_ssize_t *start
        const Py_ssize_t *first_predictor
        const Py_ssize_t *second_predictor
        const double *means
        double kernel_factors[2]
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
        float *rounded_sums
        float *h_decrease
        float *scratch
    ctypedef struct conditional_batch:
        Py_ssize_t n
        Py_ssize_t *columns
        Py_ssize_t *row_start
        Py_ssize_t *column_start
        Py_ssize_t *entry_index
        Py_ssize_t *entry_row
        float *values
        double *residual
    double conditional_residuals(const conditional_model *c, const conditional_batch *batch,
                                 const Py_ssize_t *row_index, const double *fixed_scores, const Py_ssize_t *y,
                                 const double *weights, double weight_factor)
    void conditional_step(const conditional_model *c, double rate, double momentum, double ridge, double *scratch)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef double list_columns(const conditional_model *c, conditional_batch *batch, const code_t[:, ::1] codes,
                         const double[::1] weights, const Py_ssize_t[::1] order, Py_ssize_t first,
                         Py_ssize_t end) noexcept nogil:
    """List the columns of the rows order[first..end) in `batch`; return the sum of the rows' weights.

    The columns of a row are its non-reference levels, numbered over all predictors. The columns of the k-th row are
    written to ``batch.columns[row_start[k] : row_start[k + 1]]``.
    """
    cdef Py_ssize_t k, i, n_entries = 0
    cdef double weight_sum = 0.0
    for k in range(first, end):
        weight_sum += weights[order[k]]
        for i in range(c.m):
            if codes[order[k], i]:
                batch.columns[n_entries] = c.start[i] + codes[order[k], i] - 1
                n_entries += 1
        batch.row_start[k - first + 1] = n_entries  # row_start[0] is always 0
    batch.n = end - first
    return weight_sum


cdef class Climber:
    """Fields and couplings of K groups, optimised to maximise the conditional likelihood.

    All are initially zero. A *column* is a non-reference level of a predictor; m predictors have D columns.

    Parameters
    ----------
    start : ndarray of intp, shape (m + 1,)
        First column of each predictor, then D.
    pairs : ndarray of intp, shape (2, P)
        First and second predictor, ``i < j``, of each of the P pairs.
    means : ndarray, shape (D,)
        Means of the indicators of the columns.
    K : int
        Number of groups.
    kernel_factors : (float, float)
        Weights of fields and couplings in the penalised norm; the gradients of fields and couplings are multiplied by
        them.

    Attributes
    ----------
    h : ndarray, shape (D, K)
        Fields in the reference gauge.
    J : ndarray of float32, shape (D, D, K), or (0, 0, K) without pairs
        Couplings of columns [c][d], c < d. Single precision halves the memory traffic, which dominates the cost of a
        step; since rates decrease to zero, rounding errors do not accumulate.
    b, shift : ndarray, shape (K,)
        Offsets; b + shift is the score of the row of reference levels.
    """

    cdef conditional_model c  # addresses and sizes of all arrays, for the functions in C
    cdef readonly object J, h, b, shift
    cdef object owners  # arrays that `c` points into, kept alive
    cdef double[::1] step_scratch  # (K,), for conditional_step

    def __cinit__(self, const Py_ssize_t[::1] start, const Py_ssize_t[:, ::1] pairs, const double[::1] means,
                  Py_ssize_t K, kernel_factors):
        cdef Py_ssize_t m = start.shape[0] - 1, D = means.shape[0], P = pairs.shape[1], side = D if P else 0
        cdef float[:, :, ::1] J = np.zeros((side, side, K), np.float32)
        cdef float[:, :, ::1] J_velocity = np.zeros((side, side, K), np.float32)
        cdef float[:, :, ::1] pair_sums = np.zeros((side, side, K), np.float32)
        cdef double[:, ::1] u = np.zeros((D, K)), u_velocity = np.zeros((D, K))
        cdef double[:, ::1] h = np.zeros((D, K)), level_sums = np.zeros((D, K))
        cdef double[::1] b = np.zeros(K), b_velocity = np.zeros(K), total_sums = np.zeros(K), shift = np.zeros(K)
        cdef float[:, ::1] rounded_sums = np.zeros((D, K), np.float32), h_decrease = np.zeros((D, K), np.float32)
        cdef float[:, ::1] scratch = np.zeros((2, K), np.float32)
        self.owners = (start, pairs, means, J_velocity, pair_sums, u, u_velocity, level_sums, b_velocity, total_sums,
                       rounded_sums, h_decrease, scratch)
        self.J, self.h = np.asarray(J), np.asarray(h)
        self.b, self.shift = np.asarray(b), np.asarray(shift)
        self.step_scratch = np.zeros(K)
        self.c.D, self.c.K, self.c.m, self.c.n_pairs = D, K, m, P
        self.c.start, self.c.means = &start[0], &means[0]
        self.c.kernel_factors[0], self.c.kernel_factors[1] = kernel_factors
        if P:
            self.c.first_predictor, self.c.second_predictor = &pairs[0, 0], &pairs[1, 0]
            self.c.J, self.c.J_velocity = &J[0, 0, 0], &J_velocity[0, 0, 0]
            self.c.pair_sums = &pair_sums[0, 0, 0]
        self.c.u, self.c.u_velocity = &u[0, 0], &u_velocity[0, 0]
        self.c.h, self.c.level_sums = &h[0, 0], &level_sums[0, 0]
        self.c.b, self.c.b_velocity, self.c.total_sums, self.c.shift = &b[0], &b_velocity[0], &total_sums[0], &shift[0]
        self.c.rounded_sums, self.c.h_decrease, self.c.scratch = &rounded_sums[0, 0], &h_decrease[0, 0], &scratch[0, 0]

    cdef object allocate(self, conditional_batch *batch, Py_ssize_t max_rows):
        """Allocate a batch of up to max_rows rows; return its arrays, which the caller must keep while using the batch.
        """
        cdef Py_ssize_t m = self.c.m, K = self.c.K
        cdef Py_ssize_t[::1] columns = np.empty(max_rows * m, np.intp), row_start = np.zeros(max_rows + 1, np.intp)
        cdef Py_ssize_t[::1] column_start = np.empty(self.c.D + 1, np.intp)
        cdef Py_ssize_t[::1] entry_index = np.empty(max_rows * m, np.intp), entry_row = np.empty(max_rows * m, np.intp)
        cdef float[::1] values = np.empty(max_rows * K, np.float32)
        cdef double[::1] residual = np.empty(max_rows * K)
        batch.columns, batch.row_start, batch.column_start = &columns[0], &row_start[0], &column_start[0]
        batch.entry_index, batch.entry_row = &entry_index[0], &entry_row[0]
        batch.values, batch.residual = &values[0], &residual[0]
        return columns, row_start, column_start, entry_index, entry_row, values, residual

    def residual_sums(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
                      const double[:, ::1] fixed_scores, Py_ssize_t batch_size, double[:, :, ::1] pairs_out,
                      double[:, ::1] levels_out, double[::1] total_out, double[:, ::1] residuals_out):
        """Return the log-loss of all rows at h, J, b and shift, and write sums of their residuals.

        The residual of a row, (K,), is its weight times the difference between P(group | row) and the indicator of its
        group. Arguments are as in `epoch`, but `weights` sum to 1. pairs_out (D, D, K), first column < second, receives
        the sums over rows that have both columns, levels_out (D, K) the sums over rows that have a column, total_out
        (K,) the sums over all rows. residuals_out receives each row's residual if it is (n, K); it can be (0, K).
        pairs_out is summed in single precision within batches and in double precision over batches.
        """
        cdef Py_ssize_t n = codes.shape[0], K = self.c.K, n_cells = pairs_out.size, first = 0, end, k
        cdef Py_ssize_t[::1] order = np.arange(n, dtype=np.intp)
        cdef conditional_batch batch
        cdef const double *fixed_pointer = &fixed_scores[0, 0] if fixed_scores.shape[0] else NULL
        cdef double loss = 0.0
        cdef bint keep_residuals = residuals_out.shape[0] > 0
        _arrays = self.allocate(&batch, min(n, batch_size))  # keeps the memory of `batch` alive
        pairs_out[:], levels_out[:], total_out[:] = 0.0, 0.0, 0.0
        while first < n:
            end = min(n, first + batch_size)
            with nogil:
                list_columns(&self.c, &batch, codes, weights, order, first, end)
                loss += conditional_residuals(&self.c, &batch, &order[first], fixed_pointer, &y[0], &weights[0], 1.0)
                for k in range(n_cells):  # 0 without pairs; both arrays are flattened
                    (&pairs_out[0, 0, 0])[k] += self.c.pair_sums[k]
                    self.c.pair_sums[k] = 0.0
                if keep_residuals:
                    for k in range((end - first) * K):
                        (&residuals_out[first, 0])[k] = batch.residual[k]
            first = end
            PyErr_CheckSignals()
        for k in range(self.c.D * K):  # these sums are over all batches
            (&levels_out[0, 0])[k] = self.c.level_sums[k]
            self.c.level_sums[k] = 0.0
        for k in range(K):
            total_out[k] = self.c.total_sums[k]
            self.c.total_sums[k] = 0.0
        return loss

    def epoch(self, const code_t[:, ::1] codes, const Py_ssize_t[::1] y, const double[::1] weights,
              const double[:, ::1] fixed_scores, const Py_ssize_t[::1] order, Py_ssize_t batch_size, double rate,
              double final_rate, double momentum, double ridge):
        """Visit the rows `order` once, with a step every batch_size rows; return their mean log-loss at the time of the
        visit.

        Shapes: level codes (n, m), groups y (n,), weights (n,) with mean 1, fixed_scores (n, K) of another model, which
        are added to the scores, or (0, K). The step size decreases linearly from `rate` to `final_rate`. `momentum` is
        the fraction of its velocity that a parameter keeps in each step, `ridge` the penalty of fields and couplings.
        """
        cdef Py_ssize_t n = order.shape[0], first = 0, end
        cdef conditional_batch batch
        cdef const double *fixed_pointer = &fixed_scores[0, 0] if fixed_scores.shape[0] else NULL
        cdef double loss = 0.0, weight_sum, current_rate
        _arrays = self.allocate(&batch, min(n, batch_size))  # keeps the memory of `batch` alive
        while first < n:
            end = min(n, first + batch_size)
            with nogil:
                weight_sum = list_columns(&self.c, &batch, codes, weights, order, first, end)
                # weights sum to 1 over the batch, so that the step follows the gradient of the batch's mean loss
                loss += weight_sum * conditional_residuals(&self.c, &batch, &order[first], fixed_pointer, &y[0],
                                                           &weights[0], 1.0 / weight_sum)
                current_rate = rate + (final_rate - rate) * first / n
                conditional_step(&self.c, current_rate, momentum, ridge, &self.step_scratch[0])
            first = end
            PyErr_CheckSignals()
        return loss / n
