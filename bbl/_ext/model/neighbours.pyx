"""Numbers of similar rows: rows whose codes differ in few columns.

A row is compared with 64 others at a time, column by column, with one count of agreements for each: the compiler adds
all 64 by a few vector instructions. After every 32 columns it is given up if none of the 64 can be similar any more.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

ctypedef fused code_t:
    uint8_t
    int32_t

cdef enum:
    LANES = 64  # rows that a row is compared with at a time
    COLUMNS = 32  # columns between two looks at the counts, which do not overflow meanwhile
    TILE = 256  # rows that stay in the second-level cache while all blocks pass


cdef bint may_be_similar(const code_t *row, const code_t *block, Py_ssize_t m, int32_t max_differences,
                         int32_t *n_same) noexcept nogil:
    """Count the columns in which a row (m,) agrees with 64 others, `block` (m, 64); return 0 if none can be similar."""
    cdef code_t count[LANES]
    cdef Py_ssize_t first = 0, end, i, lane
    cdef int32_t most
    memset(n_same, 0, LANES * sizeof(int32_t))
    while first < m:
        end = min(m, first + COLUMNS)
        memset(count, 0, LANES * sizeof(code_t))
        for i in range(first, end):
            for lane in range(LANES):
                count[lane] += block[i * LANES + lane] == row[i]
        most = 0
        for lane in range(LANES):
            n_same[lane] += count[lane]
            most = max(most, n_same[lane])
        if end - most > max_differences:
            return False
        first = end
    return True


def count_neighbours(const code_t[:, ::1] rows, const code_t[:, :, ::1] blocks, const int64_t[::1] n_copies,
                     int32_t max_differences, int64_t[::1] n_neighbours, Py_ssize_t begin, Py_ssize_t end):
    """Add to n_neighbours (n,) the copies of rows that differ from another in at most max_differences columns.

    Of the pairs of rows those whose first row is one of begin..end - 1. `rows` (n, m) are distinct, n_copies (n,) their
    numbers; `blocks` (ceil(n / 64), m, 64) are the same rows, 64 to a block, with anything after the last.
    """
    cdef Py_ssize_t n = rows.shape[0], m = rows.shape[1], first, k, b, lane, j
    cdef int32_t n_same[LANES]
    for first in range(begin, end, TILE):
        with nogil:
            for b in range(first // LANES, blocks.shape[0]):
                for k in range(first, min(end, first + TILE, (b + 1) * LANES)):
                    if not may_be_similar(&rows[k, 0], &blocks[b, 0, 0], m, max_differences, n_same):
                        continue
                    for lane in range(LANES):
                        j = b * LANES + lane
                        if k < j < n and m - n_same[lane] <= max_differences:
                            n_neighbours[k] += n_copies[j]
                            n_neighbours[j] += n_copies[k]
        PyErr_CheckSignals()
