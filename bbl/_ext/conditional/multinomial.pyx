"""Penalised multinomial regression on dense functions of rows, by L-BFGS; see multinomial.h."""
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t

import numpy as np

cdef extern from "multinomial.h" nogil:
    ctypedef double (*multinomial_to_residuals)(Py_ssize_t n, Py_ssize_t K, const double *fixed_scores,
                                                double temperature, const double *b, const double *group_weights,
                                                const double *row_weight, double *residuals)
    Py_ssize_t MULTINOMIAL_ROWS
    multinomial_to_residuals multinomial_choose_width()
    double multinomial_dot(Py_ssize_t size, const double *a, const double *b)
    void multinomial_direction(Py_ssize_t size, Py_ssize_t capacity, Py_ssize_t n_pairs, Py_ssize_t newest,
                               const double *moves, const double *gradient_changes, const double *inverse_curvature,
                               const double *gradient, double *alpha, double *out)

ctypedef void (*gemm_t)(char *transa, char *transb, int *m, int *n, int *k, double *alpha, double *a, int *lda,
                        double *b, int *ldb, double *beta, double *c, int *ldc) noexcept nogil

cdef Py_ssize_t MAX_PAIRS = 10  # curvature pairs that L-BFGS keeps
cdef double MIN_DECREASE = 1e-4  # Armijo: least decrease of a step, as a share of step length times slope


cdef class Regression:
    """Objective ``-sum_kg w_kg ln softmax(T s_k + b + F_k A)_g + ridge/2 |A|^2 + offset_penalty/2 (|b|^2 + (ln T)^2)``.

    Minimised over the coefficients A (r, K) of r functions, the offsets b (K,) and ln T, for rows k and groups g. In
    memory A lies group by group, (K, r), as in multinomial.h.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Values F of the functions at the rows; Fortran order.
    group_weights : ndarray, shape (n, K)
        Weight w of each group at each row; the sum over all is 1.
    fixed_scores : ndarray, shape (n, K) or (0, K)
        Scores s of another model; with none, T stays 1.
    ridge : float
        Penalty of A; an infinite one leaves A at 0.
    offset_penalty : float
        Weak penalty of b and ln T.
    """

    cdef const double[::1, :] functions
    cdef const double[:, ::1] group_weights, fixed_scores  # (K, N), N rows with padding
    cdef double[::1] row_weight  # (N,)
    cdef double[:, ::1] residuals  # (K, N) scratch of `value`
    cdef double ridge, offset_penalty
    cdef gemm_t gemm  # BLAS dgemm: product of matrices
    cdef multinomial_to_residuals to_residuals

    def __cinit__(self, const double[::1, :] functions, const double[:, ::1] group_weights,
                  const double[:, ::1] fixed_scores, double ridge, double offset_penalty):
        from scipy.linalg.cython_blas import __pyx_capi__ as blas
        self.gemm = <gemm_t> PyCapsule_GetPointer(blas["dgemm"], PyCapsule_GetName(blas["dgemm"]))
        self.to_residuals = multinomial_choose_width()
        cdef Py_ssize_t n = group_weights.shape[0], n_added = (MULTINOMIAL_ROWS
                                                               - n % MULTINOMIAL_ROWS) % MULTINOMIAL_ROWS
        padding = ((0, n_added), (0, 0))  # rows of weight 0 at the end, which fill up the last vector
        self.functions = functions
        self.group_weights = np.ascontiguousarray(np.pad(group_weights, padding).T)
        scores = np.pad(fixed_scores, padding).T if fixed_scores.shape[0] else np.empty((0, 0))  # no scores: T stays 1
        self.fixed_scores = np.ascontiguousarray(scores)
        self.row_weight = np.sum(self.group_weights, axis=0)
        self.residuals = np.zeros((group_weights.shape[1], n + n_added))
        self.ridge, self.offset_penalty = ridge, offset_penalty

    cdef double value(self, const double[::1] x, double[::1] gradient_out) noexcept nogil:
        """Return the objective at x, laid out as in `minimise`, and write its gradient (K r + K + 1).

        N counts the rows and the padding; residuals (K, N) holds the linear predictors F A, then the residuals.
        """
        cdef int n = <int> self.functions.shape[0], r = <int> self.functions.shape[1]
        cdef int K = <int> self.residuals.shape[0], N = <int> self.residuals.shape[1]
        cdef Py_ssize_t k, g, n_coefficients = <Py_ssize_t> r * K
        cdef bint is_free = self.ridge < 1e300, has_scores = self.fixed_scores.shape[0] > 0
        # is_free: A is fitted, else 0; one, zero: BLAS takes all arguments by address
        cdef double temperature = exp(x[n_coefficients + K]) if has_scores else 1.0, one = 1.0, zero = 0.0, objective
        cdef double *residuals = &self.residuals[0, 0]
        cdef double *F = <double *> &self.functions[0, 0] if r else NULL
        cdef const double *fixed_scores = &self.fixed_scores[0, 0] if has_scores else NULL
        if is_free and r:
            # F A, which in BLAS's Fortran order is (N, K)
            self.gemm(b"N", b"N", &n, &K, &r, &one, F, &n, <double *> &x[0], &r, &zero, residuals, &N)
        else:
            for k in range(<Py_ssize_t> N * K):
                residuals[k] = 0.0
        objective = self.to_residuals(N, K, fixed_scores, temperature, &x[n_coefficients], &self.group_weights[0, 0],
                                      &self.row_weight[0], residuals)
        if is_free and r:
            # F' residuals, the gradient of A
            self.gemm(b"T", b"N", &r, &K, &n, &one, F, &n, residuals, &N, &zero, &gradient_out[0], &r)
            for k in range(n_coefficients):
                gradient_out[k] += self.ridge * x[k]
            objective += 0.5 * self.ridge * multinomial_dot(n_coefficients, &x[0], &x[0])
        else:
            for k in range(n_coefficients):
                gradient_out[k] = 0.0
        for g in range(K + 1):  # offsets and ln T
            gradient_out[n_coefficients + g] = self.offset_penalty * x[n_coefficients + g]
        for g in range(K):  # the gradient of b
            for k in range(N):
                gradient_out[n_coefficients + g] += residuals[g * N + k]
        if has_scores:  # the gradient of ln T
            gradient_out[n_coefficients + K] += temperature * multinomial_dot(<Py_ssize_t> N * K, residuals,
                                                                              fixed_scores)
        return objective + 0.5 * self.offset_penalty * multinomial_dot(K + 1, &x[n_coefficients], &x[n_coefficients])

    def minimise(self, double[::1] x, const double[::1] scale, double gtol, double ftol, Py_ssize_t max_iterations,
                 const int32_t[::1] stop):
        """Minimise from x (K r + K + 1), in place; return the objective, the largest gradient, the evaluations.

        x holds A group by group, b, and ln T. `scale`, of the same shape, are units in which the curvature is similar
        in all directions: the unknowns are scale times scaled unknowns, the scaled gradient is scale times the
        gradient. Stops when the largest component of the scaled gradient, which is returned, is at most `gtol`, when a
        step lowers the objective by at most `ftol`, when no trial step lowers it enough, after max_iterations, or when
        another thread makes stop[0] non-zero.
        """
        # gradient, trial_gradient and direction are in scaled unknowns, x and trial in the unknowns themselves
        cdef Py_ssize_t size = x.shape[0], k, n_pairs = 0, newest = MAX_PAIRS - 1, evaluations = 1, _attempt
        # rings of curvature pairs, of which the first is written to row 0, after `newest`; see multinomial_direction
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
                multinomial_direction(size, MAX_PAIRS, n_pairs, newest, &moves[0, 0], &gradient_changes[0, 0],
                                      &inverse_curvature[0], &gradient[0], &alpha[0], &direction[0])
                slope = multinomial_dot(size, &direction[0], &gradient[0])
                step, is_accepted = 1.0, False
                for _attempt in range(40):  # the step falls at least to half each time: to 1e-12
                    for k in range(size):
                        trial[k] = x[k] + step * scale[k] * direction[k]
                    trial_objective = self.value(trial, trial_gradient)
                    evaluations += 1
                    if trial_objective <= objective + MIN_DECREASE * step * slope:
                        is_accepted = True
                        break
                    # the lowest point of the parabola through both values and the slope, at 0.1 to 0.5 of the step
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
                curvature = multinomial_dot(size, &moves[newest, 0], &gradient_changes[newest, 0])
                if curvature > 1e-300:  # positive, and its inverse is finite
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
