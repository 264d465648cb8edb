"""Rounds of boosting for class probabilities: a small step for each table of scores, along the cut with the largest
gain.

(a) There are n rows, m predictors and K groups. `p` (n, K) contains the probabilities of the groups in each row. The
    *score* of group k is ln p up to a constant, and a sum of tables over the levels of one or two predictors. `codes`
    (m, n) are the levels of the rows.
(b) The *sums* of a cell have 2 K + 1 entries, weighted sums over its rows: the gradients ``y_k - p_k`` of the
    log-likelihood (y_k is 1 for the observed group, otherwise 0), then the curvatures ``p_k (1 - p_k)``, and the
    weights. The *gain* of a part of the cells with the sums G, H is ``sum_k G_k^2 / (H_k + ridge)``; its *step* is
    ``rate G_k / (H_k + ridge)``, or 0 if its weight is below `least`.
(c) A *cut* divides the levels of a predictor into two parts: the levels below the cut in some order, and the others.
    Two cuts divide the cells of a pair into four parts. In a random round cuts are drawn at random; otherwise the cuts
    with the largest gain are used.
(d) A zero table takes its first step only if the gain of its cut exceeds `entry`; if `entry` is infinite, no cuts of
    zero tables are considered.
(e) Rows of weight 0 are not used for learning, but their probabilities are updated. `state` (4,) is the state of the
    random number generator.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int32_t, uint8_t, uint64_t

import numpy as np

cdef extern from "random.h" nogil:
    int32_t random_below(uint64_t *s, int32_t n)

cdef extern from "boosting.h" nogil:
    struct boosting_rows:
        Py_ssize_t n, K, width
        const Py_ssize_t *y
        const double *weights
        const double *observed
        double *p
    struct boosting_functions:
        void (*add)(const boosting_rows *rows, const int32_t *cell, Py_ssize_t copy_size, double *sums) noexcept nogil
        void (*change)(const boosting_rows *rows, const int32_t *cell, const uint8_t *part,
                       const double *factors) noexcept nogil
    Py_ssize_t BOOSTING_ALIGNMENT
    Py_ssize_t BOOSTING_COPIES
    Py_ssize_t boosting_width(Py_ssize_t K)
    boosting_functions boosting_choose_functions(Py_ssize_t width)

cdef Py_ssize_t FEW_CELLS = 16  # with at most this number of cells there are several tables of sums; see boosting.h

cdef struct Level:
    double slope  # gradient divided by curvature; levels are sorted by it
    int32_t level


cdef struct Rule:  # size and acceptance of steps; see (b) and (d)
    double rate
    double ridge
    double least
    double entry


cdef inline bint is_before(Level first, Level second) noexcept nogil:
    """Return whether a level precedes another one: by slope, then by level."""
    return first.slope < second.slope or (first.slope == second.slope and first.level < second.level)


cdef void sort_levels(Level *order, Py_ssize_t L) noexcept nogil:
    """Sort L levels by slope, ties by level, with Shell's sort: L is small and qsort has a large overhead."""
    cdef Py_ssize_t gap = 1, a, b
    cdef Level level
    while gap < L // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for a in range(gap, L):
            level = order[a]
            b = a
            while b >= gap and is_before(level, order[b - gap]):
                order[b] = order[b - gap]
                b -= gap
            order[b] = level
        gap //= 3


cdef double part_gain(const double *sums, Py_ssize_t K, Rule rule) noexcept nogil:
    """Return the gain of a part with `sums` (2 K + 1,), or 0 if its weight is too small for a step."""
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


def aligned_zeros(size):
    """Return zeros (size,) aligned to `BOOSTING_ALIGNMENT` bytes."""
    memory = np.zeros(8 * size + BOOSTING_ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % BOOSTING_ALIGNMENT
    return memory[start : start + 8 * size].view(np.float64)


cdef class BoostedRows:
    """The rows of a model and their probabilities, which are updated by steps; see boosting.h.

    Parameters
    ----------
    y, weights, p : ndarray
        See the module's docstring; p is copied.
    """

    cdef Py_ssize_t K
    cdef const Py_ssize_t[::1] y
    cdef const double[::1] weights
    cdef double[:, ::1] padded_p, observed, factors  # (n, width), (K, width), (4, width)
    cdef double[::1] memory  # sums of all rows in each cell
    # working arrays, for up to `most` cells: (most, 2 K + 1), (4, 2 K + 1), (4, K), (most,), and (most,) of type Level
    cdef Py_ssize_t most
    cdef double[:, ::1] sums, parts, steps
    cdef uint8_t[::1] part, levels
    cdef boosting_rows rows
    cdef boosting_functions functions

    def __cinit__(self, y, weights, p):
        n, K = p.shape
        width = boosting_width(K)
        self.K, self.y, self.weights = K, y, weights
        self.padded_p = aligned_zeros(n * width).reshape(n, width)
        self.observed = aligned_zeros(K * width).reshape(K, width)
        self.factors = aligned_zeros(4 * width).reshape(4, width)
        self.parts, self.steps = np.empty((4, 2 * K + 1)), np.empty((4, K))
        np.asarray(self.observed)[:, :K + 1] = np.column_stack([np.eye(K), np.ones(K)])
        self.p[:] = p
        self.rows = boosting_rows(n, K, width, &self.y[0], &self.weights[0], &self.observed[0, 0], &self.padded_p[0, 0])
        self.functions = boosting_choose_functions(width)

    @property
    def p(self):
        """Probabilities p (n, K) of the groups: a view."""
        return np.asarray(self.padded_p)[:, :self.K]

    def loss(self, const double[::1] weights):
        """Return the log-loss of the rows with the given weights (n,): the sum of -w ln p of the observed groups."""
        cdef Py_ssize_t r
        cdef double total = 0.0
        for r in range(self.rows.n):
            if weights[r] > 0.0:
                total -= weights[r] * log(self.padded_p[r, self.y[r]])
        return total

    cdef void reserve(self, Py_ssize_t most):
        """Allocate the working arrays for up to `most` cells, and the memory that `add` needs for them."""
        if most > self.most:
            self.memory = aligned_zeros(max(most, BOOSTING_COPIES * min(most, FEW_CELLS)) * 2 * self.rows.width)
            self.sums = np.empty((most, 2 * self.K + 1))
            self.part = np.empty(most, dtype=np.uint8)
            self.levels = np.empty(most * sizeof(Level), dtype=np.uint8)
            self.most = most

    cdef void add(self, const int32_t[::1] cell, Py_ssize_t n_cells, double[:, ::1] sums) noexcept nogil:
        """Set the `sums` (n_cells, 2 K + 1) of all cells; `cell` (n,) is the cell of each row."""
        cdef Py_ssize_t width = self.rows.width, size = n_cells * 2 * width, K = self.K, c, k, copy
        cdef bint has_copies = n_cells <= FEW_CELLS
        cdef double *table = &self.memory[0]
        self.memory[:BOOSTING_COPIES * size if has_copies else size] = 0.0
        self.functions.add(&self.rows, &cell[0], size if has_copies else 0, table)
        if has_copies:
            for copy in range(1, BOOSTING_COPIES):
                for k in range(size):
                    table[k] += table[copy * size + k]
        for c in range(n_cells):
            for k in range(K):
                sums[c, k] = table[k]
                sums[c, K + k] = table[width + k]
            sums[c, 2 * K] = table[K]
            table += 2 * width

    cdef void take_step(self, const int32_t[::1] cell, const uint8_t[::1] part, const double[:, ::1] steps,
                        double[:, ::1] table) noexcept nogil:
        """Add the steps (parts, K) to the cells of a table (cells, K), and update the probabilities of all rows.

        `cell` (n,) is the cell of each row, `part` (cells,) the part of each cell.
        """
        cdef Py_ssize_t k, c
        for c in range(steps.shape[0]):
            for k in range(self.K):
                self.factors[c, k] = exp(steps[c, k])
        for c in range(table.shape[0]):
            for k in range(self.K):
                table[c, k] += steps[part[c], k]
        self.functions.change(&self.rows, &cell[0], &part[0], &self.factors[0, 0])


cdef double cut_levels(const double[:, ::1] sums, Py_ssize_t L, Py_ssize_t K, Rule rule, bint at_random,
                       uint64_t *state, Level *order, double[:, ::1] parts, double[:, ::1] steps,
                       uint8_t[::1] part) noexcept nogil:
    """Cut the L levels of a predictor in two: set `part[:L]` and the two `steps[:2]` (2, K), and return the gain.

    The levels are sorted by their slopes for each group in turn; with two groups the first suffices. `order` (L,) and
    `parts[:2]` (2, 2 K + 1) are overwritten.
    """
    cdef Py_ssize_t g, a, b, k, cut
    cdef double best = 0.0, gain
    for g in range(K if K > 2 else 1):
        for a in range(L):
            order[a].level = <int32_t> a
            order[a].slope = sums[a, g] / (sums[a, K + g] + rule.ridge)
        sort_levels(order, L)
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
    """Replace the sums of each cell (a, b) of A B cells by the cumulative sums over cells up to a and up to b."""
    cdef Py_ssize_t a, b, k, W = sums.shape[1]
    for a in range(A):
        for b in range(1, B):
            for k in range(W):
                sums[a * B + b, k] += sums[a * B + b - 1, k]
    for a in range(B, A * B):  # all cells except the row of the first level a
        for k in range(W):
            sums[a, k] += sums[a - B, k]


cdef void set_parts(const double[:, ::1] sums, Py_ssize_t A, Py_ssize_t B, Py_ssize_t a, Py_ssize_t b,
                    double[:, ::1] parts) noexcept nogil:
    """Set the sums of the four parts (4, 2 K + 1) of the cuts after a and after b, given the `sums` from `add_up`."""
    cdef Py_ssize_t k
    for k in range(sums.shape[1]):
        parts[0, k] = sums[a * B + b, k]
        parts[1, k] = sums[a * B + B - 1, k] - parts[0, k]
        parts[2, k] = sums[(A - 1) * B + b, k] - parts[0, k]
        parts[3, k] = sums[A * B - 1, k] - parts[0, k] - parts[1, k] - parts[2, k]


cdef double cut_pair(const double[:, ::1] sums, Py_ssize_t A, Py_ssize_t B, Py_ssize_t K, Rule rule, bint at_random,
                     uint64_t *state, double[:, ::1] parts, Py_ssize_t *first_cut,
                     Py_ssize_t *second_cut) noexcept nogil:
    """Set the cuts of the two predictors, and return their gain, given the `sums` (A B, 2 K + 1) from `add_up`."""
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
    """Set the cell (n,) of each row in the table of the predictors i and j; j has B levels."""
    cdef Py_ssize_t r
    for r in range(codes.shape[1]):
        cell[r] = codes[i, r] * <int32_t> B + codes[j, r]


cdef Py_ssize_t largest_table(const Py_ssize_t[::1] n_levels, const Py_ssize_t[:, ::1] pairs) noexcept nogil:
    """Return the largest number of cells in the table of a pair."""
    cdef Py_ssize_t t, most = 0
    for t in range(pairs.shape[0]):
        most = max(most, n_levels[pairs[t, 0]] * n_levels[pairs[t, 1]])
    return most


def round_of_fields(BoostedRows rows, const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels, double rate,
                    double ridge, double least, double entry, bint at_random, uint64_t[::1] state,
                    double[:, ::1] tables):
    """Take a step for the table of each predictor in turn.

    `tables` (sum of n_levels, K) contains the tables of all predictors, concatenated; it is updated, and so is
    `rows.p`.
    """
    cdef Py_ssize_t K = rows.K, i, L, start = 0
    cdef Rule rule = Rule(rate, ridge, least, entry)
    cdef Py_ssize_t most = 0
    cdef double gain, needed
    for i in range(codes.shape[0]):
        most = max(most, n_levels[i])
    rows.reserve(most)
    for i in range(codes.shape[0]):
        L = n_levels[i]
        needed = rule.entry if is_zero(tables[start:start + L]) else 0.0
        if L > 1 and needed < INFINITY:
            with nogil:
                rows.add(codes[i], L, rows.sums)
                gain = cut_levels(rows.sums, L, K, rule, at_random, &state[0], <Level *> &rows.levels[0], rows.parts,
                                  rows.steps, rows.part)
                if gain > needed:
                    rows.take_step(codes[i], rows.part, rows.steps[:2], tables[start:start + L])
            PyErr_CheckSignals()
        start += L


def round_of_pairs(BoostedRows rows, const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels,
                   const Py_ssize_t[:, ::1] pairs, double rate, double ridge, double least, double entry,
                   bint at_random, uint64_t[::1] state, double[:, ::1] tables):
    """Take a step for the table of each of the `pairs` (pairs, 2) in turn, cut along the order of the codes.

    `tables` (cells, K) contains the tables of all pairs, concatenated; it is updated, and so is `rows.p`.
    """
    cdef Py_ssize_t K = rows.K, t, i, j, A, B, a, b, q, start = 0, first_cut = 0, second_cut = 0
    cdef Rule rule = Rule(rate, ridge, least, entry)
    cdef int32_t[::1] cell = np.empty(codes.shape[1], dtype=np.int32)
    cdef double gain, needed
    rows.reserve(largest_table(n_levels, pairs))
    for t in range(pairs.shape[0]):
        i, j = pairs[t, 0], pairs[t, 1]
        A, B = n_levels[i], n_levels[j]
        needed = rule.entry if is_zero(tables[start:start + A * B]) else 0.0
        if needed == INFINITY:
            start += A * B
            continue
        with nogil:
            set_cells(codes, i, j, B, cell)
            rows.add(cell, A * B, rows.sums)
            add_up(rows.sums, A, B)
            gain = cut_pair(rows.sums, A, B, K, rule, at_random, &state[0], rows.parts, &first_cut, &second_cut)
            if gain > needed:
                set_parts(rows.sums, A, B, first_cut, second_cut, rows.parts)
                for q in range(4):
                    set_step(&rows.steps[q, 0], &rows.parts[q, 0], K, rule)
                for a in range(A):
                    for b in range(B):
                        rows.part[a * B + b] = 2 * (a > first_cut) + (b > second_cut)
                rows.take_step(cell, rows.part, rows.steps, tables[start:start + A * B])
        PyErr_CheckSignals()
        start += A * B


def pair_gains(BoostedRows rows, const int32_t[:, ::1] codes, const Py_ssize_t[::1] n_levels,
               const Py_ssize_t[:, ::1] pairs, double ridge, double least, double[::1] gains):
    """Write the gain of the best cuts of each of the `pairs` (pairs, 2) to `gains` (pairs,)."""
    cdef Py_ssize_t K = rows.K, t, i, j, A, B, first_cut = 0, second_cut = 0
    cdef Rule rule = Rule(0.0, ridge, least, 0.0)
    cdef int32_t[::1] cell = np.empty(codes.shape[1], dtype=np.int32)
    rows.reserve(largest_table(n_levels, pairs))
    for t in range(pairs.shape[0]):
        i, j = pairs[t, 0], pairs[t, 1]
        A, B = n_levels[i], n_levels[j]
        with nogil:
            set_cells(codes, i, j, B, cell)
            rows.add(cell, A * B, rows.sums)
            add_up(rows.sums, A, B)
            gains[t] = cut_pair(rows.sums, A, B, K, rule, False, NULL, rows.parts, &first_cut, &second_cut)
        PyErr_CheckSignals()
