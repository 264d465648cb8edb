# Moments: counts of levels, levels as indicators, and how often each pair occurs together, by population counts.
"""First moments of rows, levels as indicators, and second moments of rows that share a weight.

(a) Each non-reference level is a column of n bits; the count of a pair of columns is the population count of
    their conjunction, 64 rows at a time, exact in integers.
(b) Words are taken in chunks such that the chunk of all D columns stays in the second-level cache.
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


cdef inline Py_ssize_t positive(int32_t code) noexcept nogil:
    """Return 1 for a code above 0, without a branch: which are cannot be foreseen."""
    return <Py_ssize_t> (<uint32_t> (-code) >> 31)


cdef inline Py_ssize_t column(Py_ssize_t first, int32_t code) noexcept nogil:
    """Return the column of a level; of a reference level the first one, where 0 is written."""
    return first + code - positive(code)


def one_hot(const code_t[:, :] codes, const Py_ssize_t[::1] start, real_t[:, ::1] out):
    """Write 1 to `out` (n, D) at column ``start[i] + a - 1`` of row k where ``codes[k, i] == a >= 1``."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i
    with nogil:
        for k in range(n):
            for i in range(m):
                if start[i] < start[i + 1]:
                    out[k, column(start[i], codes[k, i])] = <real_t> positive(codes[k, i])


def level_counts(const code_t[:, :] codes, const Py_ssize_t[::1] y, const double[::1] weights,
                 const uint8_t[:, :] missing, bint gaps, const Py_ssize_t[::1] start, double[:, ::1] counts):
    """Add the rows' weights to `counts` (K, all levels), those of group y and level a of predictor i at start[i] + a.

    Row after row, which is the order of sums that the results are known by. `y` and `missing` may be None; missing
    values are not counted, or with `gaps` as the last level.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i, group = 0
    with nogil:
        for k in range(n):
            if y is not None:
                group = y[k]
            for i in range(m):
                if missing is None or not missing[k, i]:
                    counts[group, start[i] + codes[k, i]] += weights[k]
                elif gaps:
                    counts[group, start[i + 1] - 1] += weights[k]


def pack(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, uint64_t[:, ::1] bits):
    """Set bit k of row ``start[i] + a - 1`` of `bits` (D, ceil(n/64)) where ``codes[k, i] == a >= 1``."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i
    with nogil:
        for k in range(n):
            for i in range(m):
                if start[i] < start[i + 1]:
                    bits[column(start[i], codes[k, i]), k >> 6] |= <uint64_t> positive(codes[k, i]) << (k & 63)


def shared_counts(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, double[:, ::1] counts, double weight=1.0):
    """Add to `counts` (D, D) how often each two levels occur together in rows of one `weight`."""
    bits = np.zeros((counts.shape[0], (codes.shape[0] + 63) // 64), dtype=np.uint64)
    pack(codes, start, bits)
    pair_counts(bits, counts, weight)


def pair_counts(const uint64_t[:, ::1] bits, double[:, ::1] counts, double weight):
    """Add to `counts` (D, D) how many bits each pair of rows of `bits` shares, times `weight`."""
    cdef Py_ssize_t D = bits.shape[0], words = bits.shape[1], chunk, lo, size, i, j
    cdef double shared
    chunk = max(64, 65536 // max(D, 1))
    lo = 0
    while lo < words:
        size = min(chunk, words - lo)
        with nogil:
            for i in range(D):
                for j in range(i, D):
                    shared = weight * popcount_and(&bits[i, lo], &bits[j, lo], size)
                    counts[i, j] += shared
                    if i != j:
                        counts[j, i] += shared
        lo += size
        PyErr_CheckSignals()
