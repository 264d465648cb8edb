# Families: counts over a variable, its parents and the class, sums of table entries by row, and messages in forests.
"""Tables of the families of a Bayesian network classifier.

(a) All tables lie one after the other in one array (cells, K), the K classes of a cell side by side. The cell of
    family f in a row is ``start[f] + sum codes[scope[s]] * stride[s]`` over ``first[f] <= s < first[f + 1]``.
(b) A family counts in the rows in which all of its variables are known; `missing` of no rows means that all are.
(c) Rows go in blocks, after each of which an interrupt is taken.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, log
from libc.stdint cimport int32_t, uint8_t, uint16_t

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    CELLS = 1048576  # family cells of a block of rows

cdef double SMALL = 1e-100


cdef inline Py_ssize_t cell_of(const code_t *row, const uint8_t *gaps, const Py_ssize_t *scope,
                               const Py_ssize_t *stride, Py_ssize_t lo, Py_ssize_t hi, Py_ssize_t at) noexcept nogil:
    """Return the cell of a family in a row, or -1 if one of its variables is missing."""
    cdef Py_ssize_t s
    for s in range(lo, hi):
        if gaps != NULL and gaps[scope[s]]:
            return -1
        at += row[scope[s]] * stride[s]
    return at


cdef inline void add(double *into, const double *entry, Py_ssize_t K) noexcept nogil:
    """Add K entries to K sums; a loop over so few costs more than what it does."""
    cdef Py_ssize_t c
    into[0] += entry[0]
    if K > 1:
        into[1] += entry[1]
    if K > 2:
        into[2] += entry[2]
        for c in range(3, K):
            into[c] += entry[c]


def count(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const Py_ssize_t[::1] y,
          const double[::1] weights, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
          const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the weight of each row to `out` (cells, K) at its class and its cell of every family; ``y < 0``: unknown."""
    cdef Py_ssize_t n = codes.shape[0], F = start.shape[0], k, f, at, lo = 0, hi
    cdef Py_ssize_t block = max(1, CELLS // max(F, 1))
    cdef const uint8_t *gaps = NULL
    cdef bint gappy = missing.shape[0] > 0
    if not F or not scope.shape[0]:
        return
    while lo < n:
        hi = min(n, lo + block)
        with nogil:
            for k in range(lo, hi):
                if y[k] < 0:
                    continue
                if gappy:
                    gaps = &missing[k, 0]
                for f in range(F):
                    at = cell_of(&codes[k, 0], gaps, &scope[0], &stride[0], first[f], first[f + 1], start[f])
                    if at >= 0:
                        out[at, y[k]] += weights[k]
        lo = hi
        PyErr_CheckSignals()


cdef int add_cells(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double *values, bint to_cells,
                   Py_ssize_t K, const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope,
                   const Py_ssize_t[::1] stride, const Py_ssize_t[::1] start, double *out) except -1:
    """Add K `values` of each row to `out` at its cell of every family, or those of the cells to the rows."""
    cdef Py_ssize_t n = codes.shape[0], F = start.shape[0], k, f, at, lo = 0, hi
    cdef Py_ssize_t block = max(1, CELLS // max(F, 1))
    cdef const uint8_t *gaps = NULL
    cdef bint gappy = missing.shape[0] > 0
    while lo < n:
        hi = min(n, lo + block)
        with nogil:
            for k in range(lo, hi):
                if gappy:
                    gaps = &missing[k, 0]
                for f in range(F):
                    at = cell_of(&codes[k, 0], gaps, &scope[0], &stride[0], first[f], first[f + 1], start[f])
                    if at >= 0:
                        add(out + (at if to_cells else k) * K, values + (k if to_cells else at) * K, K)
        lo = hi
        PyErr_CheckSignals()
    return 0


def spread(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] values,
           const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
           const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add the `values` (n, K) of each row to `out` (cells, K) at its cell of every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:
        add_cells(codes, missing, &values[0, 0], True, out.shape[1], first, scope, stride, start, &out[0, 0])


def score(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
          const Py_ssize_t[::1] first, const Py_ssize_t[::1] scope, const Py_ssize_t[::1] stride,
          const Py_ssize_t[::1] start, double[:, ::1] out):
    """Add to each row of `out` (n, K) the entries of `table` (cells, K) at its cell of every family."""
    if start.shape[0] and scope.shape[0] and codes.shape[0]:
        add_cells(codes, missing, &table[0, 0], False, out.shape[1], first, scope, stride, start, &out[0, 0])


cdef void absorb(double *into, const double *sent, Py_ssize_t levels, Py_ssize_t K, bint fresh,
                 double *out) noexcept nogil:
    """Multiply a message (levels, K) into another, kept from underflow by scales whose logarithms go to `out` (K)."""
    cdef Py_ssize_t x, c
    cdef double top
    for x in range(levels * K):
        into[x] = sent[x] if fresh else into[x] * sent[x]
    for c in range(K):
        top = 0.0
        for x in range(levels):
            top = max(top, into[x * K + c])
        if top == 0.0:
            out[c] = -INFINITY
        elif top < SMALL:
            out[c] += log(top)
            for x in range(levels):
                into[x * K + c] /= top


def forest(const code_t[:, ::1] codes, const uint8_t[:, ::1] missing, const double[:, ::1] table,
           const Py_ssize_t[::1] order, const Py_ssize_t[::1] parent, const Py_ssize_t[::1] n_levels,
           const Py_ssize_t[::1] own, const Py_ssize_t[::1] above, const Py_ssize_t[::1] start,
           const Py_ssize_t[::1] context, const Py_ssize_t[::1] message, double[::1] scratch, uint8_t[::1] full,
           double[:, ::1] out):
    """Add to each row of `out` (n, K) the log of what its missing features sum to, in a forest, beside its known cells.

    `order` has every child before its parent; `parent` is -1 at a root. The cell of a feature in `table`, here of
    probabilities, is ``start + own * code + above * code of the parent``, plus `context` (n,), the same for all
    features of a row. `message` says where in `scratch` the message to each feature lies; `full` (m,) is scratch too.
    """
    cdef Py_ssize_t n = codes.shape[0], F = order.shape[0], K = out.shape[1], k, o, i, p, x, z, c, base, lo = 0, hi
    cdef Py_ssize_t block = max(1, CELLS // max(F, 1)), width = scratch.shape[0] // 2
    cdef double *sent = NULL
    cdef double *here
    cdef double total
    if not F:
        return
    sent = &scratch[width]
    while lo < n:
        hi = min(n, lo + block)
        with nogil:
            for k in range(lo, hi):
                for o in range(F):
                    full[order[o]] = 0
                for o in range(F):
                    i = order[o]
                    p = parent[i]
                    base = start[i] + context[k]
                    here = &scratch[message[i]]
                    if not missing[k, i]:
                        if p >= 0 and missing[k, p]:
                            base += own[i] * codes[k, i]
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = table[base + above[i] * z, c]
                            absorb(&scratch[message[p]], sent, n_levels[p], K, not full[p], &out[k, 0])
                            full[p] = 1
                    elif full[i]:  # without a message it sums to one
                        if p >= 0 and missing[k, p]:
                            for z in range(n_levels[p]):
                                for c in range(K):
                                    sent[z * K + c] = 0.0
                                for x in range(n_levels[i]):
                                    for c in range(K):
                                        sent[z * K + c] += (table[base + own[i] * x + above[i] * z, c]
                                                            * here[x * K + c])
                            absorb(&scratch[message[p]], sent, n_levels[p], K, not full[p], &out[k, 0])
                            full[p] = 1
                        else:
                            if p >= 0:
                                base += above[i] * codes[k, p]
                            for c in range(K):
                                total = 0.0
                                for x in range(n_levels[i]):
                                    total += table[base + own[i] * x, c] * here[x * K + c]
                                out[k, c] += log(total)
        lo = hi
        PyErr_CheckSignals()


def hits(const double[:, ::1] rest, const double[:, ::1] part, const Py_ssize_t[::1] y, const double[::1] weights,
         const Py_ssize_t[::1] fold, double tie, double[::1] out):
    """Add to `out` (folds) the weight of rows whose class is the first of the largest ``rest + part`` (n, K).

    Sums that differ by less than `tie`, or by less than `tie` of the largest one's size, are equal.
    """
    cdef Py_ssize_t n = rest.shape[0], K = rest.shape[1], k, c, best
    cdef double top
    with nogil:
        for k in range(n):
            top = rest[k, 0] + part[k, 0]
            for c in range(1, K):
                top = max(top, rest[k, c] + part[k, c])
            top -= tie * max(1.0, fabs(top))
            best = 0
            while best < K - 1 and rest[k, best] + part[k, best] < top:
                best += 1
            if best == y[k]:
                out[fold[k]] += weights[k]
