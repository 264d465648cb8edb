"""Tables of the families of a Bayesian network classifier with K classes.

(a) A family is a variable with its parents, its scope; a cell is one combination of their codes. The cells of all
    families lie one after the other in arrays (cells, K). A row has, in family f, the cell ``start[f] + sum over s
    of codes[scope[s]] * stride[s]``, s running over ``first[f] <= s < first[f + 1]``.
(b) A row with a missing variable of the scope is skipped by the family. `missing` (n, m) is 1 at missing codes, or has
    no rows if none is missing. Shapes: codes (n, m); first (families + 1,); start (families,).
(c) Rows are taken in blocks, with a check for signals after each block.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, log
from libc.stdint cimport int32_t, uint8_t, uint16_t

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    BLOCK_CELLS = 1048576  # rows times families in a block of rows

cdef double RESCALE_BELOW = 1e-100  # largest entry below which a message is rescaled


cdef inline Py_ssize_t cell_of(const code_t *row, const uint8_t *is_missing, const Py_ssize_t *scope,
                               const Py_ssize_t *stride, Py_ssize_t first, Py_ssize_t end,
                               Py_ssize_t cell) noexcept nogil:
    """Return `cell`, the start of a family, moved to the cell of a row; -1 if a variable of the scope is missing."""
    cdef Py_ssize_t s
    for s in range(first, end):
        if is_missing != NULL and is_missing[scope[s]]:
            return -1
        cell += row[scope[s]] * stride[s]
    return cell


cdef inline void add_entries(double *sums, const double *entries, Py_ssize_t K) noexcept nogil:
    """Add K entries to K sums; unrolled, because K is mostly 1 or 2."""
    cdef Py_ssize_t c
    sums[0] += entries[0]
    if K > 1:
        sums[1] += entries[1]
    if K > 2:
        sums[2] += entries[2]
        for c in range(3, K):
            sums[c] += entries[c]


def count(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const Py_ssize_t[::1] y,
          const double[::1] weights, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
          const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the weight of each row to out[cell, class] for its cell in every family; rows with y < 0 are skipped."""
    cdef Py_ssize_t n = codes.shape[0], F = start.shape[0], k, f, cell, first_row = 0, end_row
    cdef Py_ssize_t block = max(1, BLOCK_CELLS // max(F, 1))
    cdef const uint8_t *is_missing = NULL
    cdef bint any_missing = missing.shape[0] > 0
    if not F or not scope.shape[0]:
        return
    while first_row < n:
        end_row = min(n, first_row + block)
        with nogil:
            for k in range(first_row, end_row):
                if y[k] < 0:
                    continue
                if any_missing:
                    is_missing = &missing[k, 0]
                for f in range(F):
                    cell = cell_of(&codes[k, 0], is_missing, &scope[0], &stride[0], first[f], first[f + 1], start[f])
                    if cell >= 0:
                        out[cell, y[k]] += weights[k]
        first_row = end_row
        PyErr_CheckSignals()


cdef int add_cells(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double *values, bint to_cells,
                   Py_ssize_t K, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
                   const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double *out) except -1:
    """Add values of rows to `out` at their cells in all families, or, unless `to_cells`, values of cells to rows.

    values is (n, K) and out (cells, K) if `to_cells`, else values is (cells, K) and out (n, K).
    """
    cdef Py_ssize_t n = codes.shape[0], F = start.shape[0], k, f, cell, first_row = 0, end_row
    cdef Py_ssize_t block = max(1, BLOCK_CELLS // max(F, 1))
    cdef const uint8_t *is_missing = NULL
    cdef bint any_missing = missing.shape[0] > 0
    while first_row < n:
        end_row = min(n, first_row + block)
        with nogil:
            for k in range(first_row, end_row):
                if any_missing:
                    is_missing = &missing[k, 0]
                for f in range(F):
                    cell = cell_of(&codes[k, 0], is_missing, &scope[0], &stride[0], first[f], first[f + 1], start[f])
                    if cell >= 0:
                        add_entries(out + (cell if to_cells else k) * K, values + (k if to_cells else cell) * K, K)
        first_row = end_row
        PyErr_CheckSignals()
    return 0


def spread(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] values,
           const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
           const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the values (n, K) of each row to out (cells, K) at its cell in every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:
        add_cells(codes, missing, &values[0, 0], True, out.shape[1], first, scope, stride, start, &out[0, 0])


def score(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
          const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
          const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add to each row of out (n, K) the entries of table (cells, K) at its cell in every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:
        add_cells(codes, missing, &table[0, 0], False, out.shape[1], first, scope, stride, start, &out[0, 0])


cdef void absorb(double *product, const double *message, Py_ssize_t levels, Py_ssize_t K, bint is_first,
                 double *log_scale) noexcept nogil:
    """Multiply a message into the product (levels, K) of messages, or copy it if `is_first`.

    Against underflow, columns are divided by their largest entry if it is small; its log is added to log_scale (K).
    """
    cdef Py_ssize_t level, c
    cdef double largest
    for level in range(levels * K):
        product[level] = message[level] if is_first else product[level] * message[level]
    for c in range(K):
        largest = 0.0
        for level in range(levels):
            largest = max(largest, product[level * K + c])
        if largest == 0.0:
            log_scale[c] = -INFINITY
        elif largest < RESCALE_BELOW:
            log_scale[c] += log(largest)
            for level in range(levels):
                product[level * K + c] /= largest


def forest(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
           const Py_ssize_t[::1] order, const Py_ssize_t[::1] parent, const Py_ssize_t[::1] n_levels,
           const Py_ssize_t[::1] stride, const Py_ssize_t[::1] parent_stride, const Py_ssize_t[::1] start,
           const Py_ssize_t[::1] first_cell, const Py_ssize_t[::1] message_start, double[::1] scratch,
           uint8_t[::1] has_message, double[:, ::1] out):
    """Add to each row of out (n, K) the log of its sum over missing features, where a feature has at most one parent.

    Families without missing variables are left to `score`. order lists the features i, every child before its parent p
    (-1 at a root); x and z are their levels. table holds probabilities: the cell of a feature is ``start + stride *
    code + parent_stride * code of the parent + first_cell``, first_cell (n,) being the start of the row's tables. The
    first half of scratch holds, at message_start[i], the product of the messages (n_levels, K) of the children of i;
    the second half holds the message that is being sent. has_message (m,) is scratch.
    """
    cdef Py_ssize_t n = codes.shape[0], F = order.shape[0], K = out.shape[1], k, position, i, p, x, z, c, cell
    cdef Py_ssize_t first_row = 0, end_row, block = max(1, BLOCK_CELLS // max(F, 1)), half = scratch.shape[0] // 2
    cdef double *sent = NULL
    cdef double *received
    cdef double total
    if not F:
        return
    sent = &scratch[half]
    while first_row < n:
        end_row = min(n, first_row + block)
        with nogil:
            for k in range(first_row, end_row):
                for position in range(F):
                    has_message[order[position]] = 0
                for position in range(F):
                    i = order[position]
                    p = parent[i]
                    cell = start[i] + first_cell[k]
                    received = &scratch[message_start[i]]
                    if not missing[k, i]:
                        if p >= 0 and missing[k, p]:
                            cell += stride[i] * codes[k, i]
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = table[cell + parent_stride[i] * z, c]
                            absorb(&scratch[message_start[p]], sent, n_levels[p], K, not has_message[p], &out[k, 0])
                            has_message[p] = 1
                    elif has_message[i]:  # without a message, its probabilities sum to 1
                        if p >= 0 and missing[k, p]:
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = 0.0
                                for x in range(n_levels[i]):
                                    for c in range(K):
                                        sent[z * K + c] += (table[cell + stride[i] * x + parent_stride[i] * z, c]
                                                            * received[x * K + c])
                            absorb(&scratch[message_start[p]], sent, n_levels[p], K, not has_message[p], &out[k, 0])
                            has_message[p] = 1
                        else:
                            if p >= 0:
                                cell += parent_stride[i] * codes[k, p]
                            for c in range(K):
                                total = 0.0
                                for x in range(n_levels[i]):
                                    total += table[cell + stride[i] * x, c] * received[x * K + c]
                                out[k, c] += log(total)
        first_row = end_row
        PyErr_CheckSignals()


def hits(const double[:, ::1] unchanged, const double[:, ::1] changed, const Py_ssize_t[::1] y,
         const double[::1] weights, const Py_ssize_t[::1] fold, double tie, double[::1] out):
    """Add to out (folds,) the weight of the rows whose class y is the first largest of ``unchanged + changed`` (n, K).

    Scores within `tie` of the largest, absolutely or relative to its size, count as equal to it.
    """
    cdef Py_ssize_t n = unchanged.shape[0], K = unchanged.shape[1], k, c, predicted
    cdef double largest
    with nogil:
        for k in range(n):
            largest = unchanged[k, 0] + changed[k, 0]
            for c in range(1, K):
                largest = max(largest, unchanged[k, c] + changed[k, c])
            largest -= tie * max(1.0, fabs(largest))
            predicted = 0
            while predicted < K - 1 and unchanged[k, predicted] + changed[k, predicted] < largest:
                predicted += 1
            if predicted == y[k]:
                out[fold[k]] += weights[k]
