"""Numbers of similar rows, that is, rows whose codes differ in few columns.

A row is compared with blocks of 64 other rows, column by column, with a count of agreements for each of them: the
compiler adds all 64 by a few vector instructions. After every 32 columns the block is abandoned if none of its rows can
still be similar.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

ctypedef fused code_t:
    uint8_t
    int32_t

cdef enum:
    LANES = 64  # rows per block
    COLUMNS_PER_CHECK = 32  # columns between two checks of the counts: fewer than an 8-bit count can hold
    TILE_ROWS = 256  # rows that stay in the L2 cache while they are compared with all blocks


cdef bint may_be_similar(const code_t *row, const code_t *block, Py_ssize_t m, int32_t max_differences,
                         int32_t *n_same) noexcept nogil:
    """Write to n_same (64,) the number of columns in which a row (m,) agrees with each of the 64 rows of a `block` (m,
    64).

    Returns True if all columns were compared. Returns False, with counts of the first columns only, as soon as all 64
    rows differ in more than max_differences columns.
    """
    cdef code_t count[LANES]  # agreements in the columns first ... end - 1
    cdef Py_ssize_t first = 0, end, i, lane
    cdef int32_t most_same  # largest number of agreements of the 64 rows so far
    memset(n_same, 0, LANES * sizeof(int32_t))
    while first < m:
        end = min(m, first + COLUMNS_PER_CHECK)
        memset(count, 0, LANES * sizeof(code_t))
        for i in range(first, end):
            for lane in range(LANES):
                count[lane] += block[i * LANES + lane] == row[i]
        most_same = 0
        for lane in range(LANES):
            n_same[lane] += count[lane]
            most_same = max(most_same, n_same[lane])
        if end - most_same > max_differences:
            return False
        first = end
    return True


def count_neighbours(const code_t[:, ::1] rows, const code_t[:, :, ::1] blocks, const int64_t[::1] n_copies,
                     int32_t max_differences, int64_t[::1] n_neighbours, Py_ssize_t begin, Py_ssize_t end):
    """Add to n_neighbours (n,), for each row, the number of rows that differ from it in 1 to max_differences columns.

    `rows` (n, m) are distinct, and each counts n_copies (n,) times. Only pairs of rows k < j with k in begin ... end -
    1 are compared, each once for both rows. `blocks` (ceil(n / 64), m, 64) contains the same rows, transposed, 64 per
    block; entries after the last row are arbitrary.
    """
    cdef Py_ssize_t n = rows.shape[0], m = rows.shape[1], first_row, k, b, lane, j
    cdef int32_t n_same[LANES]
    for first_row in range(begin, end, TILE_ROWS):
        with nogil:
            for b in range(first_row // LANES, blocks.shape[0]):  # blocks that contain rows j > k
                for k in range(first_row, min(end, first_row + TILE_ROWS, (b + 1) * LANES)):
                    if not may_be_similar(&rows[k, 0], &blocks[b, 0, 0], m, max_differences, n_same):
                        continue
                    for lane in range(LANES):
                        j = b * LANES + lane
                        if k < j < n and m - n_same[lane] <= max_differences:
                            n_neighbours[k] += n_copies[j]
                            n_neighbours[j] += n_copies[k]
        PyErr_CheckSignals()
