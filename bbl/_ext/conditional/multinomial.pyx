# Multinomial: penalised multinomial regression on dense functions of rows, by L-BFGS.
"""Weights of functions, offsets and a temperature that minimise a penalised log-loss; see multinomial.h."""
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t

import numpy as np

cdef extern from "multinomial.h" nogil:
    ctypedef double (*multinomial_residual)(Py_ssize_t n, Py_ssize_t K, const double *given, double heat,
                                            const double *b, const double *hits, const double *of_row,
                                            double *residual)
    Py_ssize_t MULTINOMIAL_ROWS
    multinomial_residual multinomial_choose()
    double multinomial_dot(Py_ssize_t size, const double *a, const double *b)
    void multinomial_direction(Py_ssize_t size, Py_ssize_t room, Py_ssize_t kept, Py_ssize_t last, const double *S,
                               const double *Y, const double *inverse, const double *gradient, double *alpha,
                               double *out)

ctypedef void (*gemm_t)(char *transa, char *transb, int *m, int *n, int *k, double *alpha, double *a, int *lda,
                        double *b, int *ldb, double *beta, double *c, int *ldc) noexcept nogil

cdef Py_ssize_t ROOM = 10  # moves that L-BFGS remembers
cdef double ENOUGH = 1e-4  # share of the decrease that the slope promises, which a step has to bring


cdef class Regression:
    """``-sum_k hits_k ln softmax(T s_k + b + F_k A) + ridge/2 |A|^2 + slight/2 (|b|^2 + (ln T)^2)`` of rows k.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Column by column in memory.
    hits : ndarray, shape (n, K)
        Weights of the groups at the rows; their sum is 1.
    given : ndarray, shape (n, K) or (0, K)
        Scores s; none leave T at 1.
    ridge, slight : float
        An infinite ridge leaves A at 0.
    """

    cdef const double[::1, :] functions
    cdef const double[:, ::1] hits, given
    cdef double[::1] of_row
    cdef double[:, ::1] residual
    cdef double ridge, slight
    cdef gemm_t gemm
    cdef multinomial_residual residuals

    def __cinit__(self, const double[::1, :] functions, const double[:, ::1] hits, const double[:, ::1] given,
                  double ridge, double slight):
        from scipy.linalg.cython_blas import __pyx_capi__ as blas
        self.gemm = <gemm_t> PyCapsule_GetPointer(blas["dgemm"], PyCapsule_GetName(blas["dgemm"]))
        self.residuals = multinomial_choose()
        cdef Py_ssize_t rows = hits.shape[0], more = (MULTINOMIAL_ROWS - rows % MULTINOMIAL_ROWS) % MULTINOMIAL_ROWS
        self.functions = functions
        self.hits = np.ascontiguousarray(np.pad(hits, ((0, more), (0, 0))).T)
        self.given = np.ascontiguousarray(np.pad(given, ((0, more), (0, 0))).T) if given.shape[0] else np.empty((0, 0))
        self.of_row = np.sum(self.hits, axis=0)
        self.residual = np.zeros((hits.shape[1], rows + more))
        self.ridge, self.slight = ridge, slight

    cdef double value(self, const double[::1] x, double[::1] gradient_out) noexcept nogil:
        """Return the objective at A, b and ln T, and write its gradient."""
        cdef int n = <int> self.functions.shape[0], r = <int> self.functions.shape[1]
        cdef int K = <int> self.residual.shape[0], N = <int> self.residual.shape[1]
        cdef Py_ssize_t k, g, most = <Py_ssize_t> r * K
        cdef bint free = self.ridge < 1e300, tempered = self.given.shape[0] > 0
        cdef double heat = exp(x[most + K]) if tempered else 1.0, one = 1.0, zero = 0.0, value
        cdef double *residual = &self.residual[0, 0]
        cdef double *F = <double *> &self.functions[0, 0] if r else NULL
        cdef const double *given = &self.given[0, 0] if tempered else NULL
        if free and r:
            self.gemm(b"N", b"N", &n, &K, &r, &one, F, &n, <double *> &x[0], &r, &zero, residual, &N)
        else:
            for k in range(<Py_ssize_t> N * K):
                residual[k] = 0.0
        value = self.residuals(N, K, given, heat, &x[most], &self.hits[0, 0], &self.of_row[0], residual)
        if free and r:
            self.gemm(b"T", b"N", &r, &K, &n, &one, F, &n, residual, &N, &zero, &gradient_out[0], &r)
            for k in range(most):
                gradient_out[k] += self.ridge * x[k]
            value += 0.5 * self.ridge * multinomial_dot(most, &x[0], &x[0])
        else:
            for k in range(most):
                gradient_out[k] = 0.0
        for g in range(K + 1):
            gradient_out[most + g] = self.slight * x[most + g]
        for g in range(K):
            for k in range(N):
                gradient_out[most + g] += residual[g * N + k]
        if tempered:
            gradient_out[most + K] += heat * multinomial_dot(<Py_ssize_t> N * K, residual, given)
        return value + 0.5 * self.slight * multinomial_dot(K + 1, &x[most], &x[most])

    def minimise(self, double[::1] x, const double[::1] scale, double gtol, double ftol, Py_ssize_t rounds,
                 const int32_t[::1] stop):
        """Move x (K r + K + 1) to the minimum; return objective, gradient, evaluations. x is A group by group, b, ln T.

        `scale` are the units in which all directions are about equally curved. It ends where the largest scaled
        gradient, which is what is returned, is at most `gtol`, or where a step gains less than `ftol`. A non-zero
        `stop` (1), from another thread, ends it early.
        """
        cdef Py_ssize_t size = x.shape[0], k, kept = 0, last = ROOM - 1, evaluations = 1, _spent
        cdef double[:, ::1] S = np.empty((ROOM, size)), Y = np.empty((ROOM, size))
        cdef double[::1] inverse = np.zeros(ROOM), alpha = np.zeros(ROOM), gradient = np.empty(size)
        cdef double[::1] move = np.empty(size), trial = np.empty(size), slope = np.empty(size)
        cdef double now, new = 0.0, promised, length, steepest = 0.0, curved
        cdef bint moved
        with nogil:
            now = self.value(x, gradient)
            for k in range(size):
                gradient[k] *= scale[k]
        for _ in range(rounds):
            PyErr_CheckSignals()
            if stop[0]:
                break
            with nogil:
                steepest = 0.0
                for k in range(size):
                    steepest = max(steepest, fabs(gradient[k]))
                if steepest <= gtol:
                    break
                multinomial_direction(size, ROOM, kept, last, &S[0, 0], &Y[0, 0], &inverse[0], &gradient[0], &alpha[0],
                                      &move[0])
                promised = multinomial_dot(size, &move[0], &gradient[0])
                length, moved = 1.0, False
                for _spent in range(40):
                    for k in range(size):
                        trial[k] = x[k] + length * scale[k] * move[k]
                    new = self.value(trial, slope)
                    evaluations += 1
                    if new <= now + ENOUGH * length * promised:
                        moved = True
                        break
                    # the lowest point of the parabola through both values and the slope
                    length *= min(0.5, max(0.1, -0.5 * length * promised / (new - now - length * promised)))
                if not moved:
                    break
                last = (last + 1) % ROOM
                for k in range(size):
                    slope[k] *= scale[k]
                    S[last, k] = length * move[k]
                    Y[last, k] = slope[k] - gradient[k]
                    x[k] = trial[k]
                    gradient[k] = slope[k]
                curved = multinomial_dot(size, &S[last, 0], &Y[last, 0])
                if curved > 1e-300:
                    inverse[last] = 1.0 / curved
                    kept = min(kept + 1, ROOM)
                else:  # of no use, and what was before may not be either
                    kept = 0
                promised, now = now - new, new
                if promised <= ftol:
                    steepest = 0.0
                    for k in range(size):
                        steepest = max(steepest, fabs(gradient[k]))
                    break
        return now, steepest, evaluations
