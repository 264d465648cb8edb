# Pseudo-likelihood: every predictor's conditional model given the others, by vectorised L-BFGS (C kernels pseudo*.h).
"""Pseudo-likelihood of one group of encoded rows; the algorithm is described in pseudo.h."""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from "pseudo.h" nogil:
    ctypedef struct pseudo_problem:
        Py_ssize_t n, m, D, lanes, n_tasks, n_composites, D_padded
        const int32_t *n_levels
        const uint8_t *mask
        double *second
        double *mean
        double *field
        const float *project
        const float *expand
        const double *eigenvalue
        size_t bytes
    ctypedef struct pseudo_lane:
        double value, norm
        int32_t n_iter, n_eval, status
    ctypedef struct pseudo_options:
        double lambda_ "lambda", lambdah, tolerance
        int32_t itmax
        const int32_t *stop
        int (*check)() noexcept nogil
    int pseudo_has(int lanes)
    int pseudo_prepare(pseudo_problem *p, Py_ssize_t n, uint16_t *columns, double *weights, Py_ssize_t most,
                       Py_ssize_t bytes)
    void pseudo_free(pseudo_problem *p)
    size_t pseudo_task_doubles(const pseudo_problem *p, Py_ssize_t A)
    int pseudo_moments(pseudo_problem *p, Py_ssize_t task, const uint16_t *columns)
    int pseudo_solve(const pseudo_problem *p, Py_ssize_t task, const pseudo_options *o, double *theta,
                     pseudo_lane *lane) except -1
    int pseudo_objective(const pseudo_problem *p, Py_ssize_t task, const double *theta, double lambda_, double lambdah,
                         double *value, double *gradient)
    int pseudo_normaliser(const pseudo_problem *p, Py_ssize_t task, const double *theta, double factor, double *total)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

LANES = {"avx512": 8, "avx2": 4, "sse2": 2, "plain": 1}


cdef int check_signals() noexcept nogil:
    """Let a pending Ctrl-C raise; the error stays set for the caller of `pseudo_solve`."""
    with gil:
        return raise_signals()


cdef int raise_signals() noexcept:
    return PyErr_CheckSignals_raw()


cdef extern from "Python.h":
    int PyErr_CheckSignals_raw "PyErr_CheckSignals"()


cdef Py_ssize_t transpose(const code_t[:, ::1] codes, const int32_t *n_levels, uint16_t *columns) noexcept nogil:
    """Copy the codes to columns (m, n); return the first predictor with a code out of range, or -1."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i
    for k in range(n):
        for i in range(m):
            if codes[k, i] < 0 or codes[k, i] >= n_levels[i]:
                return i
            columns[i * n + k] = <uint16_t> codes[k, i]
    return -1


def widths():
    """Return the names of the vector widths that this processor runs, widest first."""
    return tuple(name for name, lanes in LANES.items() if pseudo_has(lanes))


cdef class PseudoProblem:
    cdef pseudo_problem p
    cdef object _n_levels, _mask, _metric
    cdef const int32_t[::1] levels_view
    cdef const uint8_t[:, ::1] mask_view

    def __cinit__(self):
        memset(&self.p, 0, sizeof(pseudo_problem))

    def __dealloc__(self):
        pseudo_free(&self.p)

    def __init__(self, codes, weights, n_levels, mask, width=None, most=0, nbytes=0, metric="auto"):
        self._n_levels = np.ascontiguousarray(n_levels, dtype=np.int32).copy()
        self._mask = np.ascontiguousarray(mask, dtype=bool).view(np.uint8).copy()
        cdef double[::1] own = np.array(weights, dtype=np.float64)
        self.levels_view = self._n_levels
        self.mask_view = self._mask
        cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], bad = -1, t
        self.p.m = m
        self.p.lanes = LANES[width or widths()[0]]
        self.p.n_levels = &self.levels_view[0]
        self.p.mask = &self.mask_view[0, 0]
        cdef uint16_t[:, ::1] columns = np.empty((m, n), dtype=np.uint16)
        bad = self._read(codes, columns)
        if bad >= 0:
            raise ValueError(f"predictor {bad} has a code outside of its levels")
        top = int(self._n_levels.max())
        most = most or (64 if top == 2 else 16)
        nbytes = nbytes or 36864 // min(top - 1, 3)
        if pseudo_prepare(&self.p, n, &columns[0, 0], &own[0], most, nbytes):
            raise MemoryError
        for t in range(self.p.n_tasks):
            pseudo_moments(&self.p, t, &columns[0, 0])
        if metric == "kron" or (metric == "auto" and (self.p.D <= n // 8 or top == 2)):
            self._decompose()

    def _read(self, codes, uint16_t[:, ::1] columns):
        if codes.dtype == np.uint8:
            return self._transpose_u8(codes, columns)
        if codes.dtype == np.uint16:
            return self._transpose_u16(codes, columns)
        return self._transpose_i32(codes, columns)

    def _transpose_u8(self, const uint8_t[:, ::1] codes, uint16_t[:, ::1] columns):
        return transpose(codes, self.p.n_levels, &columns[0, 0])

    def _transpose_u16(self, const uint16_t[:, ::1] codes, uint16_t[:, ::1] columns):
        return transpose(codes, self.p.n_levels, &columns[0, 0])

    def _transpose_i32(self, const int32_t[:, ::1] codes, uint16_t[:, ::1] columns):
        return transpose(codes, self.p.n_levels, &columns[0, 0])

    def _decompose(self):
        D, padded = self.p.D, self.p.D_padded
        second = np.asarray(<double[:D, :D]> self.p.second)
        mean = np.asarray(<double[:D]> (self.p.mean + 1))
        value, vector = np.linalg.eigh(second - np.outer(mean, mean))
        value = value[::-1].clip(1e-7 * value.mean() + 1e-300)
        full = np.zeros((padded, padded), dtype=np.float32)
        full[:D, :D] = vector[:, ::-1]
        cdef float[:, :, ::1] project = np.ascontiguousarray(full[:D].reshape(D, padded // 8, 8).transpose(1, 0, 2))
        cdef float[:, :, ::1] expand = np.ascontiguousarray(full.reshape(padded // 8, 8, padded).transpose(0, 2, 1))
        cdef double[::1] eigen = np.concatenate((value, np.full(padded - D, value[-1])))
        self._metric = (project, expand, eigen)
        self.p.project, self.p.expand, self.p.eigenvalue = &project[0, 0, 0], &expand[0, 0, 0], &eigen[0]

    @property
    def n_tasks(self):
        return self.p.n_tasks

    def solve(self, Py_ssize_t task, double lambda_, double lambdah, double tolerance, int itmax,
              double[:, ::1] theta, double[::1] grad_norm, int32_t[::1] n_iter, int32_t[::1] n_eval, int32_t[::1] status,
              double[::1] value, const int32_t[::1] stop=None):
        cdef pseudo_options o
        cdef int code
        cdef Py_ssize_t i
        cdef pseudo_lane *lane = <pseudo_lane *> malloc(<size_t> self.p.m * sizeof(pseudo_lane))
        o.lambda_, o.lambdah, o.tolerance, o.itmax = lambda_, lambdah, tolerance, itmax
        o.stop = &stop[0] if stop is not None else NULL
        o.check = check_signals
        for i in range(self.p.m):
            lane[i].status = -1
        try:
            with nogil:
                code = pseudo_solve(&self.p, task, &o, &theta[0, 0], lane)
        finally:
            for i in range(self.p.m):
                if lane[i].status >= 0:
                    value[i], grad_norm[i], status[i] = lane[i].value, lane[i].norm, lane[i].status
                    n_iter[i], n_eval[i] = lane[i].n_iter, lane[i].n_eval
            free(lane)

    def objective(self, const double[:, ::1] theta, double lambda_, double lambdah):
        cdef double[::1] value = np.zeros(self.p.m)
        cdef double[:, ::1] gradient = np.zeros((self.p.D, 1 + self.p.D))
        cdef Py_ssize_t t
        for t in range(self.p.n_tasks):
            pseudo_objective(&self.p, t, &theta[0, 0], lambda_, lambdah, &value[0], &gradient[0, 0])
        return np.asarray(value), np.asarray(gradient)

    def start(self, double[:, ::1] theta):
        cdef Py_ssize_t c
        theta[:] = 0.0
        for c in range(self.p.D):
            theta[c, 0] = self.p.field[c]
