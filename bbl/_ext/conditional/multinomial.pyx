"""Penalised multinomial regression on dense functions of rows, by L-BFGS; see multinomial.h."""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t

import numpy as np

cdef extern from "multinomial.h" nogil:
    struct multinomial_products:
        Py_ssize_t number_bytes
    struct multinomial_rows:
        Py_ssize_t n_panels, K, r
        multinomial_products products
        const void *functions
        const double *group_weights
        const double *row_weight
        const double *fixed_scores
        const char *is_empty
        double *residuals
        char *rounded
        char *rounded_A
        char *sums
    struct multinomial_functions:
        double (*loss)(const multinomial_rows *rows, const double *A, const double *b, double temperature,
                       double *gradient_A, double *gradient_b) noexcept nogil
        double (*dot)(Py_ssize_t size, const double *a, const double *b) noexcept nogil
        void (*direction)(Py_ssize_t size, Py_ssize_t capacity, Py_ssize_t n_pairs, Py_ssize_t newest,
                          const double *moves, const double *gradient_changes, const double *inverse_curvature,
                          const double *gradient, double *alpha, double *out) noexcept nogil
        multinomial_products double_products, single_products
    Py_ssize_t PANEL_BYTES, BLOCK, MAX_VECTOR_BYTES
    multinomial_functions multinomial_choose_width()

cdef Py_ssize_t MAX_PAIRS = 10  # number of curvature pairs kept by L-BFGS
cdef double MIN_DECREASE = 1e-4  # Armijo: minimum decrease per step, relative to step length times slope


def aligned_zeros(shape, dtype=np.float64):
    """Return zeros aligned to 64 bytes, so that no vector crosses a cache line."""
    size, number_bytes = int(np.prod(shape)), np.dtype(dtype).itemsize
    numbers = np.zeros(size + 64 // number_bytes, dtype=dtype)
    first = -numbers.ctypes.data % 64 // number_bytes
    return numbers[first : first + size].reshape(shape)


def to_panels(numbers, panel_rows, dtype=np.float64):
    """Return numbers of rows (n, ...) in panels, (panels, ..., panel_rows); the last panel is padded with zeros."""
    n, n_full = len(numbers), len(numbers) // panel_rows
    n_panels = n_full + (n > n_full * panel_rows)
    out = aligned_zeros((n_panels, *numbers.shape[1:], panel_rows), dtype)
    full = np.moveaxis(out[:n_full], -1, 1)  # (panels, rows per panel, ...)
    full[...] = numbers[: n_full * panel_rows].reshape(full.shape)
    if n_full < n_panels:
        np.moveaxis(out[n_full], -1, 0)[: n - n_full * panel_rows] = numbers[n_full * panel_rows :]
    return out


cdef class Panels:
    """Functions evaluated at the rows, arranged for `Regression`; several regressions can share them.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
    precision : {"double", "single"}
        Precision of the products with functions. In single precision, losses and gradients have errors of about 1e-6
        and take half the time.
    """

    cdef Py_ssize_t n_panels, r, panel_rows
    cdef bint is_single
    cdef const char[::1] functions  # the bytes of (panels, r, panel_rows) numbers

    def __cinit__(self, functions, precision="double"):
        self.is_single = precision == "single"
        dtype = np.dtype(np.float32 if self.is_single else np.float64)
        self.panel_rows = PANEL_BYTES // dtype.itemsize
        panels = to_panels(functions, self.panel_rows, dtype)
        self.n_panels, self.r = panels.shape[0], panels.shape[1]
        self.functions = panels.reshape(-1).view(np.int8)


cdef class Regression:
    """Objective ``-sum_kg w_kg ln softmax(T s_k + b + F_k A)_g + ridge/2 |A|^2 + offset_penalty/2 (|b|^2 + (ln T)^2)``.

    The objective is minimised over the coefficients A (r, K) of r functions, the offsets b (K,) and ln T, for rows k
    and groups g. In memory A is stored group by group, (K, r), as in multinomial.h.

    Parameters
    ----------
    functions : Panels
        Values F of the functions in the rows.
    group_weights : ndarray, shape (n, K)
        Weight w of each group in each row; all weights sum to 1.
    fixed_scores : ndarray, shape (n, K) or (0, K)
        Scores s of another model; without any, T is fixed at 1.
    ridge : float
        Penalty of A; if it is infinite, A is fixed at 0.
    offset_penalty : float
        Weak penalty of b and ln T.
    """

    cdef Panels functions
    cdef const double[:, :, ::1] group_weights, fixed_scores  # (panels, K, panel_rows)
    cdef const double[:, ::1] row_weight  # (panels, panel_rows)
    cdef const char[::1] is_empty  # (panels,)
    cdef double[::1] residuals  # scratch, like all arrays of bytes
    cdef char[::1] rounded, rounded_A, sums
    cdef double ridge, offset_penalty
    cdef Py_ssize_t r
    cdef multinomial_rows rows
    cdef multinomial_functions width  # for the widest vectors

    def __cinit__(self, Panels functions, group_weights, fixed_scores, double ridge, double offset_penalty):
        cdef bint is_free = ridge < 1e300  # otherwise A is fixed at 0
        cdef Py_ssize_t K = group_weights.shape[1], n_panels = functions.n_panels, number_bytes
        cdef Py_ssize_t panel_rows = functions.panel_rows
        self.functions, self.r = functions, functions.r
        self.group_weights = to_panels(group_weights, panel_rows)
        self.row_weight = np.sum(self.group_weights, axis=1)
        self.is_empty = np.logical_not(np.any(self.row_weight, axis=1)).view(np.int8)
        cdef Py_ssize_t fitted = self.r if is_free else 0
        self.ridge, self.offset_penalty, self.width = ridge, offset_penalty, multinomial_choose_width()
        self.rows.products = self.width.single_products if functions.is_single else self.width.double_products
        number_bytes = self.rows.products.number_bytes
        self.rows.n_panels, self.rows.K, self.rows.r = n_panels, K, fitted
        self.residuals = aligned_zeros(K * panel_rows)
        # one more number than needed, so that no array is empty
        self.rounded = aligned_zeros(BLOCK * K * PANEL_BYTES + 1, np.int8)
        self.rounded_A = aligned_zeros((K * fitted + 1) * number_bytes, np.int8)
        self.sums = aligned_zeros(K * fitted * MAX_VECTOR_BYTES + 1, np.int8)
        self.rows.rounded, self.rows.rounded_A, self.rows.sums = &self.rounded[0], &self.rounded_A[0], &self.sums[0]
        self.rows.fixed_scores = NULL
        if not n_panels:
            return
        self.rows.group_weights, self.rows.row_weight = &self.group_weights[0, 0, 0], &self.row_weight[0, 0]
        self.rows.is_empty, self.rows.residuals = &self.is_empty[0], &self.residuals[0]
        if fixed_scores.shape[0]:
            self.fixed_scores = to_panels(fixed_scores, panel_rows)
            self.rows.fixed_scores = &self.fixed_scores[0, 0, 0]
        if fitted:
            self.rows.functions = &functions.functions[0]

    cdef double value(self, const double[::1] x, double[::1] gradient_out) noexcept nogil:
        """Return the objective at x, arranged as in `minimise`, and write its gradient (K r + K + 1)."""
        cdef Py_ssize_t K = self.rows.K, k, n_coefficients = K * self.r, n_fitted = K * self.rows.r
        cdef double temperature = exp(x[n_coefficients + K]) if self.rows.fixed_scores != NULL else 1.0, objective
        objective = self.width.loss(&self.rows, &x[0], &x[n_coefficients], temperature, &gradient_out[0],
                                    &gradient_out[n_coefficients])
        for k in range(n_fitted):
            gradient_out[k] += self.ridge * x[k]
        for k in range(n_fitted, n_coefficients):  # A is fixed at 0
            gradient_out[k] = 0.0
        for k in range(n_coefficients, n_coefficients + K + 1):  # offsets and ln T
            gradient_out[k] += self.offset_penalty * x[k]
        if n_fitted:
            objective += 0.5 * self.ridge * self.width.dot(n_coefficients, &x[0], &x[0])
        return objective + 0.5 * self.offset_penalty * self.width.dot(K + 1, &x[n_coefficients], &x[n_coefficients])

    def minimise(self, double[::1] x, const double[::1] scale, double gtol, double ftol, Py_ssize_t max_iterations,
                 const int32_t[::1] stop):
        """Minimise from x (K r + K + 1), in place; return the objective, the largest gradient and the number of
        evaluations.

        x contains A group by group, b, and ln T. `scale`, of the same shape, contains units in which the curvature is
        similar in all directions: the unknowns are scale times scaled unknowns, and the scaled gradient is scale times
        the gradient. Stops when the largest component of the scaled gradient, which is returned, is at most `gtol`;
        when a step reduces the objective by at most `ftol`; when no trial step reduces it enough; after max_iterations;
        or when another thread sets stop[0] to a non-zero value.
        """
        # gradient, trial_gradient and direction are with respect to scaled unknowns; x and trial contain the unknowns
        cdef Py_ssize_t size = x.shape[0], k, n_pairs = 0, newest = MAX_PAIRS - 1, evaluations = 1, _attempt
        # ring buffers of curvature pairs; the first pair is written to row 0, after `newest`; see `direction` in
        # multinomial_rows.h
        cdef double[:, ::1] moves = np.empty((MAX_PAIRS, size)), gradient_changes = np.empty((MAX_PAIRS, size))
        cdef double[::1] inverse_curvature = np.zeros(MAX_PAIRS), alpha = np.zeros(MAX_PAIRS), gradient = np.empty(size)
        cdef double[::1] direction = np.empty(size), trial = np.empty(size), trial_gradient = np.empty(size)
        cdef double objective, trial_objective = 0.0, decrease, slope, step, largest_gradient = 0.0, curvature
        cdef bint is_accepted
        with nogil:
            objective = self.value(x, gradient)
            for k in range(size):
                gradient[k] *= scale[k]
        for _ in range(max_iterations):
            PyErr_CheckSignals()
            if stop[0]:
                break
            with nogil:
                largest_gradient = 0.0
                for k in range(size):
                    largest_gradient = max(largest_gradient, fabs(gradient[k]))
                if largest_gradient <= gtol:
                    break
                self.width.direction(size, MAX_PAIRS, n_pairs, newest, &moves[0, 0], &gradient_changes[0, 0],
                                     &inverse_curvature[0], &gradient[0], &alpha[0], &direction[0])
                slope = self.width.dot(size, &direction[0], &gradient[0])
                step, is_accepted = 1.0, False
                for _attempt in range(40):  # the step is at least halved each time, down to 1e-12
                    for k in range(size):
                        trial[k] = x[k] + step * scale[k] * direction[k]
                    trial_objective = self.value(trial, trial_gradient)
                    evaluations += 1
                    if trial_objective <= objective + MIN_DECREASE * step * slope:
                        is_accepted = True
                        break
                    # the minimum of the parabola through both values and the slope, limited to 0.1 to 0.5 of the step
                    step *= min(0.5, max(0.1, -0.5 * step * slope / (trial_objective - objective - step * slope)))
                if not is_accepted:
                    break
                newest = (newest + 1) % MAX_PAIRS
                for k in range(size):
                    trial_gradient[k] *= scale[k]
                    moves[newest, k] = step * direction[k]
                    gradient_changes[newest, k] = trial_gradient[k] - gradient[k]
                    x[k] = trial[k]
                    gradient[k] = trial_gradient[k]
                curvature = self.width.dot(size, &moves[newest, 0], &gradient_changes[newest, 0])
                if curvature > 1e-300:  # positive, with a finite inverse
                    inverse_curvature[newest] = 1.0 / curvature
                    n_pairs = min(n_pairs + 1, MAX_PAIRS)
                else:  # the objective is not convex here: discard all pairs
                    n_pairs = 0
                decrease, objective = objective - trial_objective, trial_objective
                if decrease <= ftol:
                    largest_gradient = 0.0
                    for k in range(size):
                        largest_gradient = max(largest_gradient, fabs(gradient[k]))
                    break
        return objective, largest_gradient, evaluations
