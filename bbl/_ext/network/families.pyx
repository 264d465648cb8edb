"""Tables of the families of a Bayesian network classifier with K classes: counts, and sums of their entries over rows.

(a) The *scope* of a *family* consists of a variable and its parents; a *cell* is a combination of their codes. The
    cells of all families are concatenated in arrays (cells, K). In family f, with the variables ``scope[s]`` for
    ``first[f] <= s < first[f + 1]``, a row is in the cell ``start[f] + sum of codes[scope[s]] * stride[s]``.
(b) A family skips the rows in which a variable of its scope is missing. `missing` (n, m) is 1 at missing codes, or has
    no rows if no value is missing. Shapes: codes (n, m) of n rows and m variables; first (families + 1,); scope and
    stride (first[families],); start (families,).
(c) Rows are processed in blocks; signals are checked after each block.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, log
from libc.stdint cimport int32_t, uint8_t, uint16_t

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    BLOCK_CELLS = 1048576  # rows times families in a block of rows: about the table look-ups between two checks

cdef double RESCALE_BELOW = 1e-100  # a message is rescaled if its largest entry is below this


cdef inline Py_ssize_t cell_of(const code_t *row, const uint8_t *is_missing, const Py_ssize_t *scope,
                               const Py_ssize_t *stride, Py_ssize_t first, Py_ssize_t end,
                               Py_ssize_t cell) noexcept nogil:
    """Return the cell of a row (m,) of codes in the family with the variables ``scope[first]`` ... ``scope[end - 1]``.

    Returns -1 if one of them is missing. `cell` is the start of the family; `is_missing` (m,) is 1 at missing codes, or
    NULL if no value is missing.
    """
    cdef Py_ssize_t s
    for s in range(first, end):
        if is_missing != NULL and is_missing[scope[s]]:
            return -1
        cell += row[scope[s]] * stride[s]
    return cell


cdef inline void add_entries(double *sums, const double *entries, Py_ssize_t K) noexcept nogil:
    """Add K entries to K sums; unrolled, because K is usually 1 or 2."""
    cdef Py_ssize_t c
    sums[0] += entries[0]
    if K > 1:
        sums[1] += entries[1]
    if K > 2:
        sums[2] += entries[2]
        for c in range(3, K):
            sums[c] += entries[c]


def add_counts(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const Py_ssize_t[::1] y,
               const double[::1] weights, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
               const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the weight of each row to out (cells, K) at its cell in every family and its class y; y < 0 is skipped.

    Shapes: y, weights (n,); for the others see the module's docstring.
    """
    cdef Py_ssize_t n = codes.shape[0], F = start.shape[0], k, f, cell, first_row = 0, end_row
    cdef Py_ssize_t block = max(1, BLOCK_CELLS // max(F, 1))
    cdef const uint8_t *is_missing = NULL
    cdef bint any_missing = missing.shape[0] > 0
    if not F or not scope.shape[0]:  # &scope[0] below needs an entry
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


def add_level_counts(const int32_t[:, ::1] positions, const Py_ssize_t[::1] cells, const double[::1] weights,
                     double[:, ::1] out):
    """Add the weight of each row to out (cells, S) at its cell and at the position of its level of every variable.

    `positions` (n, m) are the positions of the levels among the S levels of all variables; cells, weights (n,).
    """
    cdef Py_ssize_t n = positions.shape[0], m = positions.shape[1], k, i, first_row = 0, end_row
    cdef Py_ssize_t block = max(1, BLOCK_CELLS // max(m, 1))
    while first_row < n:
        end_row = min(n, first_row + block)
        with nogil:
            for k in range(first_row, end_row):
                for i in range(m):
                    out[cells[k], positions[k, i]] += weights[k]
        first_row = end_row
        PyErr_CheckSignals()


cdef int add_cells(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double *values, bint to_cells,
                   Py_ssize_t K, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
                   const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double *out) except -1:
    """Add values of rows to `out` at their cells in all families, or, unless `to_cells`, values of cells to rows.

    With `to_cells`, values is (n, K) and out (cells, K); otherwise values is (cells, K) and out (n, K). Returns 0, or
    raises KeyboardInterrupt after Ctrl-C.
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


def add_to_cells(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] values,
                 const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
                 const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the values (n, K) of each row to out (cells, K) at its cell in every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:  # otherwise there is nothing to add and no &values[0, 0]
        add_cells(codes, missing, &values[0, 0], True, out.shape[1], first, scope, stride, start, &out[0, 0])


def add_from_cells(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
                   const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
                   const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add to each row of out (n, K) the entries of table (cells, K) at its cell in every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:  # otherwise there is nothing to add and no &table[0, 0]
        add_cells(codes, missing, &table[0, 0], False, out.shape[1], first, scope, stride, start, &out[0, 0])


cdef void multiply_message(double *product, const double *message, Py_ssize_t levels, Py_ssize_t K, bint is_first,
                           double *log_scale) noexcept nogil:
    """Multiply a message (levels, K) into the product (levels, K) of previous messages, or copy it if `is_first`.

    To prevent underflow, a column of the product (one class) is divided by its largest entry if that is small. The log
    of the entry is added to log_scale (K,), which becomes -inf if the entry is 0.
    """
    cdef Py_ssize_t level, c
    cdef double largest
    for level in range(levels * K):  # all entries (level, class), flattened
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


def add_forest_sums(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
                    const Py_ssize_t[::1] order, const Py_ssize_t[::1] parent, const Py_ssize_t[::1] n_levels,
                    const Py_ssize_t[::1] stride, const Py_ssize_t[::1] parent_stride, const Py_ssize_t[::1] start,
                    const Py_ssize_t[::1] first_cell, const Py_ssize_t[::1] message_start, double[::1] scratch,
                    uint8_t[::1] has_message, double[:, ::1] out):
    """Add to out (n, K) the log-probabilities of each row, marginalised over its missing features.

    Each feature has at most one feature as a parent. The features therefore form a forest, and messages are sent from
    children to parents (belief propagation). A family without a missing variable adds nothing here: `add_from_cells`
    has added its log-probability. order (m,) lists the features i, every child before its parent p = parent[i], which
    is -1 at a root; x and z are levels of i and p. table (cells, K) contains probabilities: the cell of feature i is
    ``start[i] + stride[i] * its code + parent_stride[i] * code of p + first_cell[k]``, where start, stride and
    parent_stride are (m,). A context is a level of an additional variable; if each context has its own tables of all
    families, first_cell (n,) is the start of the tables for row k, otherwise it is 0. The first half of scratch
    contains, at message_start[i], the product of the messages (n_levels[i], K) from the children of i; the second half
    contains the message that is being sent. has_message (m,) is scratch: whether i has received a message in this row.
    """
    cdef Py_ssize_t n = codes.shape[0], F = order.shape[0], K = out.shape[1], k, position, i, p, x, z, c, cell
    cdef Py_ssize_t first_row = 0, end_row, block = max(1, BLOCK_CELLS // max(F, 1)), half = scratch.shape[0] // 2
    cdef double *sent = NULL  # the message to p, (n_levels[p], K)
    cdef double *received  # product of the messages received by i, (n_levels[i], K)
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
                        if p >= 0 and missing[k, p]:  # i sends P(its code | z) for each level z of p
                            cell += stride[i] * codes[k, i]
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = table[cell + parent_stride[i] * z, c]
                            multiply_message(&scratch[message_start[p]], sent, n_levels[p], K, not has_message[p],
                                             &out[k, 0])
                            has_message[p] = 1
                    elif has_message[i]:  # otherwise the probabilities of i sum to 1
                        if p >= 0 and missing[k, p]:  # i sends the sum over x of P(x | z) times the messages to i
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = 0.0
                                for x in range(n_levels[i]):
                                    for c in range(K):
                                        sent[z * K + c] += (table[cell + stride[i] * x + parent_stride[i] * z, c]
                                                            * received[x * K + c])
                            multiply_message(&scratch[message_start[p]], sent, n_levels[p], K, not has_message[p],
                                             &out[k, 0])
                            has_message[p] = 1
                        else:  # p is known or i is a root: the sum over x is a factor of the row's probability
                            if p >= 0:
                                cell += parent_stride[i] * codes[k, p]
                            for c in range(K):
                                total = 0.0
                                for x in range(n_levels[i]):
                                    total += table[cell + stride[i] * x, c] * received[x * K + c]
                                out[k, c] += log(total)
        first_row = end_row
        PyErr_CheckSignals()


def add_correct(const double[:, ::1] unchanged, const double[:, ::1] changed, const Py_ssize_t[::1] y,
                const double[::1] weights, const Py_ssize_t[::1] fold, double tie, double[::1] out):
    """Add to out (folds,) the weight of the rows of each fold whose class y is predicted correctly from their class
    scores.

    The scores are ``unchanged + changed``, (n, K) each: the sums of the terms that a change of the network keeps, and
    of the terms that it adds. y, weights and fold are (n,). The first class with the largest score is predicted; scores
    within `tie` of the largest, absolutely or relative to its size, are treated as equal to it.
    """
    cdef Py_ssize_t n = unchanged.shape[0], K = unchanged.shape[1], k, c, predicted
    cdef double threshold  # first the largest score, then the smallest score treated as equal to it
    with nogil:
        for k in range(n):
            threshold = unchanged[k, 0] + changed[k, 0]
            for c in range(1, K):
                threshold = max(threshold, unchanged[k, c] + changed[k, c])
            threshold -= tie * max(1.0, fabs(threshold))
            predicted = 0
            while predicted < K - 1 and unchanged[k, predicted] + changed[k, predicted] < threshold:
                predicted += 1
            if predicted == y[k]:
                out[fold[k]] += weights[k]
