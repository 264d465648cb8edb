# Energy: E(x) = sum_i h_i(x_i) + sum_{i<j} J_ij(x_i, x_j) + ... of many rows under several models at once.
"""Energies of encoded rows.

(a) Reference levels add nothing, so a row is the list of its non-reference columns among the D.
(b) The couplings of all K models to a pair of columns lie side by side, ``J[c, d, :]`` with ``c < d``, so one
    pass over the pairs of a row serves all models and the inner loop over models is a vector.
(c) Terms of three predictors and more are looked up one by one, the K values of a cell side by side.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t

cdef extern from "energy.h" nogil:
    void energy_row(const double *h, const double *J, const Py_ssize_t *on, Py_ssize_t n_on, Py_ssize_t D, Py_ssize_t K,
                    double *energy_out)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    ROWS = 2048


def energies(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, const double[:, ::1] h,
             const double[:, :, ::1] J, Py_ssize_t[::1] scratch, double[:, ::1] out):
    """Write the energies of `codes` (n, m) under K models, ``h`` (D, K) and ``J`` (D, D, K), into `out` (n, K).

    `J` of shape (0, 0, K) stands for no couplings; `scratch` has m entries.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = h.shape[0], K = h.shape[1]
    cdef Py_ssize_t k, i, n_on, lo = 0, hi
    cdef const double *couplings = &J[0, 0, 0] if J.shape[0] else NULL
    while lo < n:
        hi = min(n, lo + ROWS)
        with nogil:
            for k in range(lo, hi):
                n_on = 0
                for i in range(m):
                    if codes[k, i]:
                        scratch[n_on] = start[i] + codes[k, i] - 1
                        n_on += 1
                energy_row(&h[0, 0], couplings, &scratch[0], n_on, D, K, &out[k, 0])
        lo = hi
        PyErr_CheckSignals()


def add_terms(const code_t[:, ::1] codes, const int32_t[:, ::1] members, const Py_ssize_t[:, ::1] stride,
              const Py_ssize_t[::1] first, const double[:, ::1] values, double[:, ::1] out):
    """Add what terms of three predictors and more give to the energies of `codes` (n, m) to `out` (n, K).

    ``members``, ``stride`` (T, k) and ``first`` (T,) say where the cells of each term lie in ``values`` (cells, K), see
    `bbl.model.higher.Higher`.
    """
    cdef Py_ssize_t n = codes.shape[0], T = members.shape[0], K = values.shape[1]
    cdef Py_ssize_t k, lo = 0, hi
    while lo < n and T:
        hi = min(n, lo + ROWS)
        with nogil:
            for k in range(lo, hi):
                add_row(codes, k, members, stride, first, values, K, out)
        lo = hi
        PyErr_CheckSignals()


cdef inline void add_row(const code_t[:, ::1] codes, Py_ssize_t k, const int32_t[:, ::1] members,
                         const Py_ssize_t[:, ::1] stride, const Py_ssize_t[::1] first, const double[:, ::1] values,
                         Py_ssize_t K, double[:, ::1] out) noexcept nogil:
    cdef Py_ssize_t t, a, g, at, code
    for t in range(members.shape[0]):
        at, code = first[t], 1
        for a in range(members.shape[1]):
            if members[t, a] < 0:
                break
            code = codes[k, members[t, a]]
            if code == 0:
                break
            at += (code - 1) * stride[t, a]
        if code:
            for g in range(K):
                out[k, g] += values[at, g]
