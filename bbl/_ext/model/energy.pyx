"""Energies of encoded rows, E(x) = sum_i h_i(x_i) + sum_{i<j} J_ij(x_i, x_j) + higher terms, under K models at once.

(a) Reference levels (code 0) contribute nothing, so a row is represented by the list of its *columns*. The D columns
    are the non-reference levels of all m predictors; predictor i has the columns from start[i] on.
(b) The couplings of all K models for a pair of columns are contiguous, ``J[c, d, :]`` with ``c < d``: one pass over the
    pairs of a row computes all models, and the inner loop over models is vectorised.
(c) Terms of three or more predictors are looked up in their tables, where the K values of a cell are contiguous.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t

cdef extern from "energy.h" nogil:
    void energy_row(const double *h, const double *J, const Py_ssize_t *columns, Py_ssize_t n_columns, Py_ssize_t D,
                    Py_ssize_t K, double *energy_out)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    CHUNK_ROWS = 2048  # rows between two checks for signals


def energies(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, const double[:, ::1] h,
             const double[:, :, ::1] J, Py_ssize_t[::1] columns, double[:, ::1] out):
    """Write the energies of codes (n, m) under K models, h (D, K) and J (D, D, K), to out (n, K).

    J of shape (0, 0, K) means no couplings. columns (m,) is scratch for the columns of a row.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = h.shape[0], K = h.shape[1]
    cdef Py_ssize_t k, i, n_columns, first_row = 0, end_row
    cdef const double *couplings = &J[0, 0, 0] if J.shape[0] else NULL
    while first_row < n:
        end_row = min(n, first_row + CHUNK_ROWS)
        with nogil:
            for k in range(first_row, end_row):
                n_columns = 0
                for i in range(m):
                    if codes[k, i]:
                        columns[n_columns] = start[i] + codes[k, i] - 1
                        n_columns += 1
                energy_row(&h[0, 0], couplings, &columns[0], n_columns, D, K, &out[k, 0])
        first_row = end_row
        PyErr_CheckSignals()


def add_terms(const code_t[:, ::1] codes, const int32_t[:, ::1] members, const Py_ssize_t[:, ::1] stride,
              const Py_ssize_t[::1] first, const double[:, ::1] values, double[:, ::1] out):
    """Add the values of T terms of three or more predictors at codes (n, m) to the energies out (n, K).

    members[t] (T, order) contains the predictors of a term, padded with -1. values (cells, K) contains a table for each
    term; the cell of the levels a is ``first[t] + sum of (a - 1) * stride[t]``, with first (T,) and stride (T, order).
    A term is 0 if one of its predictors is at level 0.
    """
    cdef Py_ssize_t n = codes.shape[0], T = members.shape[0], K = values.shape[1]
    cdef Py_ssize_t k, first_row = 0, end_row
    while first_row < n and T:
        end_row = min(n, first_row + CHUNK_ROWS)
        with nogil:
            for k in range(first_row, end_row):
                add_terms_of_row(codes, k, members, stride, first, values, K, out)
        first_row = end_row
        PyErr_CheckSignals()


cdef inline void add_terms_of_row(const code_t[:, ::1] codes, Py_ssize_t k, const int32_t[:, ::1] members,
                                  const Py_ssize_t[:, ::1] stride, const Py_ssize_t[::1] first,
                                  const double[:, ::1] values, Py_ssize_t K, double[:, ::1] out) noexcept nogil:
    """Add the values of all terms at row k of codes to out[k], as in `add_terms`."""
    cdef Py_ssize_t t, member, model, cell, code  # code: level of the current predictor; if it is 0, the term is 0
    for t in range(members.shape[0]):
        cell, code = first[t], 1  # 1, or any positive number: no predictor at level 0 so far
        for member in range(members.shape[1]):
            if members[t, member] < 0:
                break
            code = codes[k, members[t, member]]
            if code == 0:
                break
            cell += (code - 1) * stride[t, member]
        if code:
            for model in range(K):
                out[k, model] += values[cell, model]
