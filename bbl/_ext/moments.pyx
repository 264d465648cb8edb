# Moments: how often each pair of non-reference levels occurs together, by population counts of bit columns.
"""Second moments of rows that share a weight.

(a) Each non-reference level is a column of n bits; the count of a pair of columns is the population count of
    their conjunction, 64 rows at a time, exact in integers.
(b) Words are taken in chunks such that the chunk of all D columns stays in the second-level cache.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

cdef extern from "popcount.h" nogil:
    int64_t popcount_and(const uint64_t *a, const uint64_t *b, Py_ssize_t words)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


def pack(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, uint64_t[:, ::1] bits):
    """Set bit k of row ``start[i] + a - 1`` of `bits` (D, ceil(n/64)) where ``codes[k, i] == a >= 1``."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], k, i
    with nogil:
        for k in range(n):
            for i in range(m):
                if codes[k, i]:
                    bits[start[i] + codes[k, i] - 1, k >> 6] |= (<uint64_t> 1) << (k & 63)


def pair_counts(const uint64_t[:, ::1] bits, double[:, ::1] counts, double weight=1.0):
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
