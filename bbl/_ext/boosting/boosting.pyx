"""Rounds of boosting for class probabilities: a small step of each table of scores, along the cut that gains most.

(a) There are n rows, m predictors, K groups. `p` (n, K) are the probabilities of the groups in each row. The *score* of
group k is ln p up to a constant; it is the sum of tables over the levels of one predictor or of two. `codes` (m, n) are
the levels of the rows.
(b) The *sums* of a cell have 2 K + 1 entries, over the rows in it, each times its weight w: of the gradients ``y_k -
p_k`` of the log-likelihood (y_k is 1 for the observed group, else 0), then of the curvatures ``p_k (1 - p_k)``, and of
the weights. The *gain* of a part of the cells with the sums G, H is ``sum_k G_k^2 / (H_k + ridge)``; its *step* is
``rate G_k / (H_k + ridge)``, and 0 if its weight is below `least`.
(c) A *cut* parts the levels of a predictor in two, those below the cut in some order and the others; two cuts part the
cells of a pair in four. In a random round the cuts are drawn, else they are those of the largest gain.
(d) A table that is zero takes its first step only if the gain of its cut is above `entry`; if that is infinite, no cut
of such tables is looked for.
(e) Rows of weight 0 are not learnt from, but their probabilities are kept up. `state` are the four words of the random
numbers.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, exp
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport qsort

import numpy as np

cdef extern from "random.h" nogil:
    int32_t random_below(uint64_t *s, int32_t n)

cdef double LEAST_P = 1e-290  # probabilities are kept above, so that they and their logarithms stay finite

cdef struct Level:
    double slope  # gradient divided by curvature, by which levels are put in order
    int32_t level


cdef struct Rule:  # how large steps are, and which are taken; see (b) and (d)
    double rate
    double ridge
    double least
    double entry


cdef int compare_levels(const void *a, const void *b) noexcept nogil:
    """Return the order of two levels by slope, and of equal ones by level, for qsort."""
    cdef const Level *first = <const Level *> a
    cdef const Level *second = <const Level *> b
    if first.slope != second.slope:
        return -1 if first.slope < second.slope else 1
    return -1 if first.level < second.level else 1


cdef double part_gain(const double *sums, Py_ssize_t K, Rule rule) noexcept nogil:
    """Return the gain of a part with `sums` (2 K + 1,); 0 if its weight is too small for a step."""
    cdef Py_ssize_t k
    cdef double gain = 0.0
    if sums[2 * K] < rule.least:
        return 0.0
    for k in range(K):
        gain += sums[k] * sums[k] / (sums[K + k] + rule.ridge)
    return gain


cdef void set_step(double *step, const double *sums, Py_ssize_t K, Rule rule) noexcept nogil:
    """Set the step (K,) of a part with `sums` (2 K + 1,)."""
    cdef Py_ssize_t k
    for k in range(K):
        step[k] = rule.rate * sums[k] / (sums[K + k] + rule.ridge) if sums[2 * K] >= rule.least else 0.0


cdef bint is_zero(const double[:, ::1] table) noexcept nogil:
    """Return whether all entries of a table are zero."""
    cdef Py_ssize_t c, k
    for c in range(table.shape[0]):
        for k in range(table.shape[1]):
            if table[c, k] != 0.0:
                return False
    return True


cdef inline void add_rows_of(const int32_t *cell, const Py_ssize_t *y, const double *weights, const double *p,
                             Py_ssize_t n, Py_ssize_t K, double *sums) noexcept nogil:
    """Add all rows to the `sums` (cells, 2 K + 1) of their cells, `cell` (n,)."""
    cdef Py_ssize_t r, k
    cdef double *into
    cdef double w, wp
    for r in range(n):
        w = weights[r]
        if w > 0.0:
            into = sums + cell[r] * (2 * K + 1)
            for k in range(K):
                wp = w * p[r * K + k]
                into[k] -= wp
                into[K + k] += wp * (1.0 - p[r * K + k])
            into[y[r]] += w
            into[2 * K] += w


cdef void add_rows(const int32_t[::1] cell, const Py_ssize_t[::1] y, const double[::1] weights, const double[:, ::1] p,
                   double[:, ::1] sums) noexcept nogil:
    """Call `add_rows_of`; with a constant K the compiler writes its inner loop out."""
    cdef Py_ssize_t n = p.shape[0], K = p.shape[1]
    if K == 2:
        add_rows_of(&cell[0], &y[0], &weights[0], &p[0, 0], n, 2, &sums[0, 0])
    elif K == 3:
        add_rows_of(&cell[0], &y[0], &weights[0], &p[0, 0], n, 3, &sums[0, 0])
    else:
        add_rows_of(&cell[0], &y[0], &weights[0], &p[0, 0], n, K, &sums[0, 0])


cdef inline void change_rows_of(const int32_t *cell, const uint8_t *part, const double *factors, Py_ssize_t n,
                                Py_ssize_t K, double *p) noexcept nogil:
    """Multiply the probabilities of each row by the factors (parts, K) of its part, and normalise them."""
    cdef Py_ssize_t r, k
    cdef const double *factor
    cdef double total
    for r in range(n):
        factor = factors + part[cell[r]] * K
        total = 0.0
        for k in range(K):
            p[r * K + k] *= factor[k]
            total += p[r * K + k]
        total = 1.0 / total
        for k in range(K):
            p[r * K + k] = max(p[r * K + k] * total, LEAST_P)


cdef void take_step(const int32_t[::1] cell, const uint8_t[::1] part, const double[:, ::1] steps, double[:, ::1] table,
                    double[:, ::1] factors, double[:, ::1] p) noexcept nogil:
    """Add the steps (parts, K) to the cells of a table (cells, K), and change the probabilities of all rows.

    `part` (cells,) is the part of each cell; `factors` (parts, K) is overwritten.
    """
    cdef Py_ssize_t n = p.shape[0], K = p.shape[1], k, c
    for c in range(steps.shape[0]):
        for k in range(K):
            factors[c, k] = exp(steps[c, k])
    for c in range(table.shape[0]):
        for k in range(K):
            table[c, k] += steps[part[c], k]
    if K == 2:
        change_rows_of(&cell[0], &part[0], &factors[0, 0], n, 2, &p[0, 0])
    elif K == 3:
        change_rows_of(&cell[0], &part[0], &factors[0, 0], n, 3, &p[0, 0])
    else:
        change_rows_of(&cell[0], &part[0], &factors[0, 0], n, K, &p[0, 0])


cdef double cut_levels(const double[:, ::1] sums, Py_ssize_t L, Py_ssize_t K, Rule rule, bint at_random,
                       uint64_t *state, Level *order, double[:, ::1] parts, double[:, ::1] steps,
                       uint8_t[::1] part) noexcept nogil:
    """Cut the L levels of a predictor in two: set `part` (L,) and `steps` (2, K), and return the gain.

    The levels are ordered by their slopes for one group after the other; with two groups the first is enough. `order`
    (L,) and `parts` (2, 2 K + 1) are overwritten.
    """
    cdef Py_ssize_t g, a, b, k, cut
    cdef double best = 0.0, gain
    for g in range(K if K > 2 else 1):
        for a in range(L):
            order[a].level = <int32_t> a
            order[a].slope = sums[a, g] / (sums[a, K + g] + rule.ridge)
        qsort(order, L, sizeof(Level), compare_levels)
        parts[:2] = 0.0
        for a in range(L):
            for k in range(2 * K + 1):
                parts[1, k] += sums[a, k]
        cut = random_below(state, <int32_t> (L - 1)) if at_random else -1
        for a in range(L - 1):  # the levels up to a are below the cut
            for k in range(2 * K + 1):
                parts[0, k] += sums[order[a].level, k]
                parts[1, k] -= sums[order[a].level, k]
            if cut >= 0 and a != cut:
                continue
            gain = part_gain(&parts[0, 0], K, rule) + part_gain(&parts[1, 0], K, rule)
            if gain > best:
                best = gain
                for b in range(L):
                    part[order[b].level] = b > a
                set_step(&steps[0, 0], &parts[0, 0], K, rule)
                set_step(&steps[1, 0], &parts[1, 0], K, rule)
    return best


cdef void add_up(double[:, ::1] sums, Py_ssize_t A, Py_ssize_t B) noexcept nogil:
    """Replace the sums of each cell (a, b) of A B cells by those of all cells up to a and up to b."""
    cdef Py_ssize_t a, b, k, W = sums.shape[1]
    for a in range(A):
        for b in range(1, B):
            for k in range(W):
                sums[a * B + b, k] += sums[a * B + b - 1, k]
    for a in range(B, A * B):  # all cells but those of the first level a
        for k in range(W):
            sums[a, k] += sums[a - B, k]


cdef void set_parts(const double[:, ::1] sums, Py_ssize_t A, Py_ssize_t B, Py_ssize_t a, Py_ssize_t b,
                    double[:, ::1] parts) noexcept nogil:
    """Set the sums of the four parts (4, 2 K + 1) of the cuts after a and after b; `sums` are those of `add_up`."""
    cdef Py_ssize_t k
    for k in range(sums.shape[1]):
        parts[0, k] = sums[a * B + b, k]
        parts[1, k] = sums[a * B + B - 1, k] - parts[0, k]
        parts[2, k] = sums[(A - 1) * B + b, k] - parts[0, k]
        parts[3, k] = sums[A * B - 1, k] - parts[0, k] - parts[1, k] - parts[2, k]


cdef double cut_pair(const double[:, ::1] sums, Py_ssize_t A, Py_ssize_t B, Py_ssize_t K, Rule rule, bint at_random,
                     uint64_t *state, double[:, ::1] parts, Py_ssize_t *first_cut,
                     Py_ssize_t *second_cut) noexcept nogil:
    """Set the cuts of the two predictors, and return their gain; `sums` (A B, 2 K + 1) are those of `add_up`."""
    cdef Py_ssize_t a, b, q, a_from = 0, a_to = A - 1, b_from = 0, b_to = B - 1
    cdef double best = 0.0, gain
    if at_random:
        a_from = random_below(state, <int32_t> (A - 1))
        b_from = random_below(state, <int32_t> (B - 1))
        a_to, b_to = a_from + 1, b_from + 1
    for a in range(a_from, a_to):
        for b in range(b_from, b_to):
            set_parts(sums, A, B, a, b, parts)
            gain = 0.0
            for q in range(4):
                gain += part_gain(&parts[q, 0], K, rule)
            if gain > best:
                best = gain
                first_cut[0] = a
                second_cut[0] = b
    return best


cdef void set_cells(const int32_t[:, ::1] codes, Py_ssize_t i, Py_ssize_t j, Py_ssize_t B,
                    int32_t[::1] cell) noexcept nogil:
    """Set the cell (n,) of each row in the table of the predictors i and j, which has B levels."""
    cdef Py_ssize_t r
    for r in range(codes.shape[1]):
        cell[r] = codes[i, r] * <int32_t> B + codes[j, r]


def round_of_fields(const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels, const Py_ssize_t[::1] y,
                    const double[::1] weights, double rate, double ridge, double least, double entry, bint at_random,
                    uint64_t[::1] state, double[:, ::1] p, double[:, ::1] tables):
    """Take a step of the table of each predictor in turn.

    `tables` (sum of n_levels, K) are those of all predictors, one after the other; they and `p` are changed.
    """
    cdef Py_ssize_t K = p.shape[1], i, L, start = 0
    cdef Rule rule = Rule(rate, ridge, least, entry)
    cdef Py_ssize_t most = np.max(n_levels)
    cdef double[:, ::1] sums = np.empty((most, 2 * K + 1)), parts = np.empty((2, 2 * K + 1))
    cdef double[:, ::1] steps = np.zeros((2, K)), factors = np.empty((2, K))
    cdef uint8_t[::1] part = np.empty(most, dtype=np.uint8)
    cdef uint8_t[::1] memory = np.empty(most * sizeof(Level), dtype=np.uint8)
    cdef Level *order = <Level *> &memory[0]
    cdef double gain, needed
    for i in range(codes.shape[0]):
        L = n_levels[i]
        needed = rule.entry if is_zero(tables[start:start + L]) else 0.0
        if L > 1 and needed < INFINITY:
            with nogil:
                sums[:L] = 0.0
                add_rows(codes[i], y, weights, p, sums)
                gain = cut_levels(sums, L, K, rule, at_random, &state[0], order, parts, steps, part)
                if gain > needed:
                    take_step(codes[i], part, steps, tables[start:start + L], factors, p)
            PyErr_CheckSignals()
        start += L


def round_of_pairs(const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels, const Py_ssize_t[:, ::1] pairs,
                   const Py_ssize_t[::1] y, const double[::1] weights, double rate, double ridge, double least,
                   double entry, bint at_random, uint64_t[::1] state, double[:, ::1] p, double[:, ::1] tables):
    """Take a step of the table of each of the `pairs` (pairs, 2) in turn, cut along the order of the codes.

    `tables` (cells, K) are those of all pairs, one after the other; they and `p` are changed.
    """
    cdef Py_ssize_t K = p.shape[1], t, i, j, A, B, a, b, q, start = 0, first_cut = 0, second_cut = 0
    cdef Rule rule = Rule(rate, ridge, least, entry)
    cdef Py_ssize_t most = np.max(np.prod(np.asarray(n_levels)[np.asarray(pairs)], axis=1))
    cdef double[:, ::1] sums = np.empty((most, 2 * K + 1)), parts = np.empty((4, 2 * K + 1))
    cdef double[:, ::1] steps = np.zeros((4, K)), factors = np.empty((4, K))
    cdef uint8_t[::1] part = np.empty(most, dtype=np.uint8)
    cdef int32_t[::1] cell = np.empty(codes.shape[1], dtype=np.int32)
    cdef double gain, needed
    for t in range(pairs.shape[0]):
        i, j = pairs[t, 0], pairs[t, 1]
        A, B = n_levels[i], n_levels[j]
        needed = rule.entry if is_zero(tables[start:start + A * B]) else 0.0
        if needed == INFINITY:
            start += A * B
            continue
        with nogil:
            set_cells(codes, i, j, B, cell)
            sums[:A * B] = 0.0
            add_rows(cell, y, weights, p, sums)
            add_up(sums, A, B)
            gain = cut_pair(sums, A, B, K, rule, at_random, &state[0], parts, &first_cut, &second_cut)
            if gain > needed:
                set_parts(sums, A, B, first_cut, second_cut, parts)
                for q in range(4):
                    set_step(&steps[q, 0], &parts[q, 0], K, rule)
                for a in range(A):
                    for b in range(B):
                        part[a * B + b] = 2 * (a > first_cut) + (b > second_cut)
                take_step(cell, part, steps, tables[start:start + A * B], factors, p)
        PyErr_CheckSignals()
        start += A * B


def pair_gains(const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels, const Py_ssize_t[:, ::1] pairs,
               const Py_ssize_t[::1] y, const double[::1] weights, double ridge, double least,
               const double[:, ::1] p, double[::1] gains):
    """Set `gains` (pairs,) to the gain of the best cuts of each of the `pairs` (pairs, 2)."""
    cdef Py_ssize_t K = p.shape[1], t, i, j, A, B, first_cut = 0, second_cut = 0
    cdef Rule rule = Rule(0.0, ridge, least, 0.0)
    cdef Py_ssize_t most = np.max(np.prod(np.asarray(n_levels)[np.asarray(pairs)], axis=1))
    cdef double[:, ::1] sums = np.empty((most, 2 * K + 1)), parts = np.empty((4, 2 * K + 1))
    cdef int32_t[::1] cell = np.empty(codes.shape[1], dtype=np.int32)
    for t in range(pairs.shape[0]):
        i, j = pairs[t, 0], pairs[t, 1]
        A, B = n_levels[i], n_levels[j]
        with nogil:
            set_cells(codes, i, j, B, cell)
            sums[:A * B] = 0.0
            add_rows(cell, y, weights, p, sums)
            add_up(sums, A, B)
            gains[t] = cut_pair(sums, A, B, K, rule, False, NULL, parts, &first_cut, &second_cut)
        PyErr_CheckSignals()
