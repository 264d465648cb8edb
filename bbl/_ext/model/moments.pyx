"""Counts of levels and of pairs of levels in rows, and indicators of levels.

(a) The D *columns* are the non-reference levels of all m predictors; predictor i has the columns start[i] ... start[i +
    1] - 1 (none if it has one level). Stored as bits, a column has one bit per row. The count of a pair of columns is
    the population count of their conjunction, computed for words of 64 rows, and exact in integers.
(b) Words are processed in chunks, so that a chunk of all D columns stays in the L2 cache.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "popcount.h" nogil:
    int64_t popcount_and(const uint64_t *a, const uint64_t *b, Py_ssize_t words)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

ctypedef fused real_t:
    float
    double


cdef inline Py_ssize_t is_positive(int32_t code) noexcept nogil:
    """Return 1 if a code (>= 0) is above 0, otherwise 0, from the sign bit of -code: a branch would be mispredicted."""
    return <Py_ssize_t> (<uint32_t> (-code) >> 31)


cdef inline Py_ssize_t column_of(Py_ssize_t first, int32_t code) noexcept nogil:
    """Return the column of level `code` of a predictor whose columns start at `first`; `first` itself for level 0."""
    return first + code - is_positive(code)


def one_hot(const code_t[:, :] codes, const Py_ssize_t[::1] start, real_t[:, ::1] out):
    """Set `out` (n, D), initially 0, to 1 at [k, start[i] + a - 1] where ``codes[k, i] == a >= 1``.

    Shapes: codes (n, m), start (m + 1,).
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i
    with nogil:
        for k in range(n):
            for i in range(m):
                if start[i] < start[i + 1]:  # otherwise one level, without a column
                    # at level 0 this writes 0 to the first column
                    out[k, column_of(start[i], codes[k, i])] = <real_t> is_positive(codes[k, i])


def level_counts(const code_t[:, :] codes, const Py_ssize_t[::1] y, const double[::1] weights,
                 const uint8_t[:, :] missing, bint missing_is_level, const Py_ssize_t[::1] start,
                 double[:, ::1] counts):
    """Add the weight of each row k to counts[y[k], start[i] + codes[k, i]] for every predictor i.

    counts (K, all levels) has a column for each level, including reference levels (unlike in the other functions);
    predictor i has the columns from start[i] on. y (n,), the groups, and missing (n, m) can be None, for one group and
    no missing values. Missing values are not counted, or, if missing_is_level, counted as the last level. Rows are
    added in order, which fixes the rounding of the sums.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i, group = 0
    with nogil:
        for k in range(n):
            if y is not None:
                group = y[k]
            for i in range(m):
                if missing is None or not missing[k, i]:
                    counts[group, start[i] + codes[k, i]] += weights[k]
                elif missing_is_level:
                    counts[group, start[i + 1] - 1] += weights[k]


def pack(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, uint64_t[:, ::1] bits):
    """Set bit k of row ``start[i] + a - 1`` of `bits` (D, ceil(n/64)) where ``codes[k, i] == a >= 1``.

    Bit k of a row is bit ``k % 64`` of its word ``k // 64``. Shapes: codes (n, m), start (m + 1,).
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = bits.shape[0], first, k, i, c
    cdef uint64_t[::1] word = np.zeros(D, dtype=np.uint64)  # of 64 rows: their columns lie next to each other
    with nogil:
        for first in range(0, n, 64):
            for k in range(first, min(first + 64, n)):
                for i in range(m):
                    if start[i] < start[i + 1]:  # otherwise one level, without a column
                        word[column_of(start[i], codes[k, i])] |= <uint64_t> is_positive(codes[k, i]) << (k & 63)
            for c in range(D):
                bits[c, first >> 6] |= word[c]
                word[c] = 0


def shared_counts(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, double[:, ::1] counts, double weight=1.0):
    """Add to counts (D, D), for each pair of columns, the number of rows with both, times the rows' common `weight`.

    Shapes: codes (n, m), start (m + 1,).
    """
    bits = np.zeros((counts.shape[0], (codes.shape[0] + 63) // 64), dtype=np.uint64)
    pack(codes, start, bits)
    pair_counts(bits, counts, weight)


def pair_counts(const uint64_t[:, ::1] bits, double[:, ::1] counts, double weight):
    """Add to counts (D, D), for each pair of rows of bits (D, words), the number of common bits times `weight`.

    The diagonal contains the counts of a row with itself, the number of its bits.
    """
    cdef Py_ssize_t D = bits.shape[0], words = bits.shape[1], chunk_words, first_word, n_words, c, d
    cdef double shared  # number of common bits times the weight
    chunk_words = max(64, 65536 // max(D, 1))  # 512 KiB of all columns
    first_word = 0
    while first_word < words:
        n_words = min(chunk_words, words - first_word)
        with nogil:
            for c in range(D):
                for d in range(c, D):
                    shared = weight * popcount_and(&bits[c, first_word], &bits[d, first_word], n_words)
                    counts[c, d] += shared
                    if c != d:
                        counts[d, c] += shared
        first_word += n_words
        PyErr_CheckSignals()
