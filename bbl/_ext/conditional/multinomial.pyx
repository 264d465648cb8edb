"""Penalised multinomial regression on dense functions of rows, by L-BFGS; see multinomial.h."""
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t

import numpy as np

cdef extern from "multinomial.h" nogil:
    ctypedef double (*multinomial_residual)(Py_ssize_t n, Py_ssize_t K, const double *given_scores, double heat,
                                            const double *b, const double *hits, const double *row_weight,
                                            double *residual)
    Py_ssize_t MULTINOMIAL_ROWS
    multinomial_residual multinomial_choose()
    double multinomial_dot(Py_ssize_t size, const double *a, const double *b)
    void multinomial_direction(Py_ssize_t size, Py_ssize_t capacity, Py_ssize_t n_pairs, Py_ssize_t last,
                               const double *S, const double *Y, const double *inverse, const double *gradient,
                               double *alpha, double *out)

ctypedef void (*gemm_t)(char *transa, char *transb, int *m, int *n, int *k, double *alpha, double *a, int *lda,
                        double *b, int *ldb, double *beta, double *c, int *ldc) noexcept nogil

cdef Py_ssize_t MEMORY = 10  # moves that L-BFGS keeps
cdef double MIN_DECREASE = 1e-4  # Armijo: least decrease of a step, as a share of step length times slope


cdef class Regression:
    """Objective ``-sum_kg hits_kg ln softmax(T s_k + b + F_k A)_g + ridge/2 |A|^2 + slight/2 (|b|^2 + (ln T)^2)``.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Values F of r functions at the rows k; Fortran order.
    hits : ndarray, shape (n, K)
        Weight of each group at each row; the sum over all is 1.
    given_scores : ndarray, shape (n, K) or (0, K)
        Scores s; with none, T stays 1.
    ridge, slight : float
        Penalties of A, and weak ones of b and ln T; an infinite ridge leaves A at 0.
    """

    cdef const double[::1, :] functions
    cdef const double[:, ::1] hits, given_scores
    cdef double[::1] row_weight
    cdef double[:, ::1] residual
    cdef double ridge, slight
    cdef gemm_t gemm
    cdef multinomial_residual residuals

    def __cinit__(self, const double[::1, :] functions, const double[:, ::1] hits, const double[:, ::1] given_scores,
                  double ridge, double slight):
        from scipy.linalg.cython_blas import __pyx_capi__ as blas
        self.gemm = <gemm_t> PyCapsule_GetPointer(blas["dgemm"], PyCapsule_GetName(blas["dgemm"]))
        self.residuals = multinomial_choose()
        cdef Py_ssize_t n = hits.shape[0], n_added = (MULTINOMIAL_ROWS - n % MULTINOMIAL_ROWS) % MULTINOMIAL_ROWS
        padding = ((0, n_added), (0, 0))
        self.functions = functions
        self.hits = np.ascontiguousarray(np.pad(hits, padding).T)
        scores = np.pad(given_scores, padding).T if given_scores.shape[0] else np.empty((0, 0))
        self.given_scores = np.ascontiguousarray(scores)
        self.row_weight = np.sum(self.hits, axis=0)
        self.residual = np.zeros((hits.shape[1], n + n_added))
        self.ridge, self.slight = ridge, slight

    cdef double value(self, const double[::1] x, double[::1] gradient_out) noexcept nogil:
        """Return the objective at x, laid out as in `minimise`, and write its gradient.

        N counts the rows and the padding; heat is T; residual (K, N) holds the linear predictors, then the residuals.
        """
        cdef int n = <int> self.functions.shape[0], r = <int> self.functions.shape[1]
        cdef int K = <int> self.residual.shape[0], N = <int> self.residual.shape[1]
        cdef Py_ssize_t k, g, n_coefficients = <Py_ssize_t> r * K
        cdef bint has_coefficients = self.ridge < 1e300, has_scores = self.given_scores.shape[0] > 0
        cdef double heat = exp(x[n_coefficients + K]) if has_scores else 1.0, one = 1.0, zero = 0.0, objective
        cdef double *residual = &self.residual[0, 0]
        cdef double *F = <double *> &self.functions[0, 0] if r else NULL
        cdef const double *given_scores = &self.given_scores[0, 0] if has_scores else NULL
        if has_coefficients and r:
            self.gemm(b"N", b"N", &n, &K, &r, &one, F, &n, <double *> &x[0], &r, &zero, residual, &N)
        else:
            for k in range(<Py_ssize_t> N * K):
                residual[k] = 0.0
        objective = self.residuals(N, K, given_scores, heat, &x[n_coefficients], &self.hits[0, 0], &self.row_weight[0],
                                   residual)
        if has_coefficients and r:
            self.gemm(b"T", b"N", &r, &K, &n, &one, F, &n, residual, &N, &zero, &gradient_out[0], &r)
            for k in range(n_coefficients):
                gradient_out[k] += self.ridge * x[k]
            objective += 0.5 * self.ridge * multinomial_dot(n_coefficients, &x[0], &x[0])
        else:
            for k in range(n_coefficients):
                gradient_out[k] = 0.0
        for g in range(K + 1):
            gradient_out[n_coefficients + g] = self.slight * x[n_coefficients + g]
        for g in range(K):
            for k in range(N):
                gradient_out[n_coefficients + g] += residual[g * N + k]
        if has_scores:
            gradient_out[n_coefficients + K] += heat * multinomial_dot(<Py_ssize_t> N * K, residual, given_scores)
        return objective + 0.5 * self.slight * multinomial_dot(K + 1, &x[n_coefficients], &x[n_coefficients])

    def minimise(self, double[::1] x, const double[::1] scale, double gtol, double ftol, Py_ssize_t max_iterations,
                 const int32_t[::1] stop):
        """Minimise from x (K r + K + 1), in place; return objective, largest scaled gradient, evaluations.

        x holds A group by group, b, and ln T. `scale`, of the same shape, are units in which the curvature is similar
        in all directions. Stops when the largest scaled gradient is at most `gtol`, when a step gains at most `ftol`,
        after max_iterations, or when another thread makes stop[0] non-zero.
        """
        cdef Py_ssize_t size = x.shape[0], k, n_pairs = 0, newest = MEMORY - 1, evaluations = 1, _attempt
        cdef double[:, ::1] S = np.empty((MEMORY, size)), Y = np.empty((MEMORY, size))
        cdef double[::1] inverse = np.zeros(MEMORY), alpha = np.zeros(MEMORY), gradient = np.empty(size)
        cdef double[::1] direction = np.empty(size), trial = np.empty(size), trial_gradient = np.empty(size)
        cdef double objective, trial_objective = 0.0, gain, slope, step, largest = 0.0, curvature
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
                largest = 0.0
                for k in range(size):
                    largest = max(largest, fabs(gradient[k]))
                if largest <= gtol:
                    break
                multinomial_direction(size, MEMORY, n_pairs, newest, &S[0, 0], &Y[0, 0], &inverse[0], &gradient[0],
                                      &alpha[0], &direction[0])
                slope = multinomial_dot(size, &direction[0], &gradient[0])
                step, is_accepted = 1.0, False
                for _attempt in range(40):
                    for k in range(size):
                        trial[k] = x[k] + step * scale[k] * direction[k]
                    trial_objective = self.value(trial, trial_gradient)
                    evaluations += 1
                    if trial_objective <= objective + MIN_DECREASE * step * slope:
                        is_accepted = True
                        break
                    # the lowest point of the parabola through both values and the slope
                    step *= min(0.5, max(0.1, -0.5 * step * slope / (trial_objective - objective - step * slope)))
                if not is_accepted:
                    break
                newest = (newest + 1) % MEMORY
                for k in range(size):
                    trial_gradient[k] *= scale[k]
                    S[newest, k] = step * direction[k]
                    Y[newest, k] = trial_gradient[k] - gradient[k]
                    x[k] = trial[k]
                    gradient[k] = trial_gradient[k]
                curvature = multinomial_dot(size, &S[newest, 0], &Y[newest, 0])
                if curvature > 1e-300:
                    inverse[newest] = 1.0 / curvature
                    n_pairs = min(n_pairs + 1, MEMORY)
                else:  # the objective is not convex here: discard all pairs
                    n_pairs = 0
                gain, objective = objective - trial_objective, trial_objective
                if gain <= ftol:
                    largest = 0.0
                    for k in range(size):
                        largest = max(largest, fabs(gradient[k]))
                    break
        return objective, largest, evaluations
