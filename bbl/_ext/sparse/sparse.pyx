# Sparse: multinomial logistic regression on products of predictors, by coordinate descent over terms.
"""Sums over the terms of a sparse regression, and descent over them.

(a) A term is a row of `codes` (T, n), its state in every row of the data, and a table (states, d) of its d features in
    each of its states, all tables one after the other: that of term t begins at ``cell[t]``. No matrix of features is
    ever made. Its weights, (d, q) for q contrasts of the classes, begin at row ``at[t]`` of `theta`.
(b) What there is for every row and contrast has shape (q, n): the link f, its slope dF/df and, in `descend`, the slope
    of the quadratic model. The curvature (n,) is one number a row: exact for two classes, for more a bound.
(c) A term of two states, such as any product of binary predictors, takes the loops over bytes of sparse.h.
"""
from libc.math cimport exp, fabs, log, sqrt
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc

cdef extern from "sparse.h" nogil:
    ctypedef struct sparse_loops:
        double (*sum)(const uint8_t *on, const double *z, Py_ssize_t n) noexcept nogil
        double (*add)(const uint8_t *on, const double *curve, double low, double step, double *z,
                      Py_ssize_t n) noexcept nogil
    sparse_loops sparse_pick()
    double sparse_total(const double *z, Py_ssize_t n)

ctypedef fused code_t:
    uint8_t
    uint16_t

cdef enum:
    SMALL = 64  # columns up to which the curvature of a term is bounded by its matrix


cdef void state_sums(const code_t *code, const double *z, Py_ssize_t n, Py_ssize_t S, double whole,
                     const sparse_loops *loops, double *out) noexcept nogil:
    """Write to `out` (S) the sum of `z` (n) over the rows of every state; `whole` is that over all rows."""
    cdef Py_ssize_t i, s
    if code_t is uint8_t:
        if S == 2:
            out[1] = loops.sum(code, z, n)
            out[0] = whole - out[1]
            return
    for s in range(S):
        out[s] = 0.0
    for i in range(n):
        out[code[i]] += z[i]


cdef void project(const double *sums, const double *table, Py_ssize_t S, Py_ssize_t d, Py_ssize_t q, Py_ssize_t c,
                  double *out) noexcept nogil:
    """Write to column c of `out` (d, q) the sums over states (S) times the table (S, d)."""
    cdef Py_ssize_t s, a
    for a in range(d):
        out[a * q + c] = 0.0
    for s in range(S):
        for a in range(d):
            out[a * q + c] += sums[s] * table[s * d + a]


def slopes(const double[:, ::1] link, const Py_ssize_t[::1] y, const double[::1] weights,
           const double[:, ::1] contrasts, double[:, ::1] slope_out, double[::1] curve_out):
    """Return the weighted loss at `link` (q, n); write its slope (q, n) and a bound of its curvature (n,).

    ``contrasts`` (K, q) turn a row's link into K scores, of which it has the softmax as probabilities.
    """
    cdef Py_ssize_t n = link.shape[1], q = link.shape[0], K = contrasts.shape[0], i, c, k
    cdef double loss = 0.0, top, whole, p, widest, right
    cdef double *score = <double *> malloc(sizeof(double) * <size_t> K)
    if score == NULL:
        raise MemoryError
    with nogil:
        for i in range(n):
            top = -1e300
            for k in range(K):
                score[k] = 0.0
                for c in range(q):
                    score[k] += contrasts[k, c] * link[c, i]
                top = max(top, score[k])
            whole = 0.0
            right = top - score[y[i]]
            for k in range(K):
                score[k] = exp(score[k] - top)
                whole += score[k]
            loss += weights[i] * (right + log(whole))
            widest = 0.0
            for c in range(q):
                slope_out[c, i] = -contrasts[y[i], c]
            for k in range(K):
                p = score[k] / whole
                widest = max(widest, p * (whole - score[k]) / whole)
                for c in range(q):
                    slope_out[c, i] += p * contrasts[k, c]
            for c in range(q):
                slope_out[c, i] *= weights[i]
            curve_out[i] = weights[i] * widest
    free(score)
    return loss


def gradients(const code_t[:, ::1] codes, const Py_ssize_t[::1] states, const double[::1] table,
              const Py_ssize_t[::1] cell, const Py_ssize_t[::1] at, const double[:, ::1] slope,
              double[:, ::1] out):
    """Write the gradient (D, q) in the weights of all terms, from the slope (q, n)."""
    cdef Py_ssize_t T = codes.shape[0], n = codes.shape[1], q = slope.shape[0], t, c, most = 2
    cdef sparse_loops loops = sparse_pick()
    cdef double *sums
    cdef double whole
    if not T or not n:
        return
    for t in range(T):
        most = max(most, states[t])
    sums = <double *> malloc(sizeof(double) * <size_t> most)
    if sums == NULL:
        raise MemoryError
    with nogil:
        for c in range(q):
            whole = sparse_total(&slope[c, 0], n)
            for t in range(T):
                state_sums(&codes[t, 0], &slope[c, 0], n, states[t], whole, &loops, sums)
                project(sums, &table[cell[t]], states[t], at[t + 1] - at[t], q, c, &out[at[t], 0])
    free(sums)


def add_terms(const code_t[:, ::1] codes, const Py_ssize_t[::1] states, const double[::1] table,
              const Py_ssize_t[::1] cell, const Py_ssize_t[::1] at, const double[:, ::1] theta,
              double[:, ::1] out):
    """Add to the link `out` (q, n) what all terms give with the weights `theta` (D, q)."""
    cdef Py_ssize_t T = codes.shape[0], n = codes.shape[1], q = theta.shape[1], t, c, i, a, s, d, most = 2
    cdef double *value
    cdef const code_t *code
    cdef double *f
    cdef bint any_weight
    if not T or not n:
        return
    for t in range(T):
        most = max(most, states[t])
    value = <double *> malloc(sizeof(double) * <size_t> most)
    if value == NULL:
        raise MemoryError
    with nogil:
        for t in range(T):
            d = at[t + 1] - at[t]
            code = &codes[t, 0]
            for c in range(q):
                any_weight = False
                for a in range(d):
                    any_weight = any_weight or theta[at[t] + a, c] != 0.0
                if not any_weight:
                    continue
                for s in range(states[t]):
                    value[s] = 0.0
                    for a in range(d):
                        value[s] += table[cell[t] + s * d + a] * theta[at[t] + a, c]
                f = &out[c, 0]
                for i in range(n):
                    f[i] += value[code[i]]
    free(value)


cdef double steepest(const double *sums, const double *table, Py_ssize_t S, Py_ssize_t d) noexcept nogil:
    """Bound the curvature of a term's features from that of its states (S); exact for one feature."""
    cdef Py_ssize_t s, a, b
    cdef double entry, row, widest = 0.0, most = 0.0
    for s in range(S):
        most = max(most, sums[s])
    most *= S  # the features of all states, once each, have the Gram matrix S times the identity
    if d > SMALL:
        return most
    for a in range(d):
        row = 0.0
        for b in range(d):
            entry = 0.0
            for s in range(S):
                entry += sums[s] * table[s * d + a] * table[s * d + b]
            row += fabs(entry)
        widest = max(widest, row)
    return min(most, widest)


cdef double shrink(double *weight, const double *slope, double curve, double penalty, Py_ssize_t size,
                   double *step) noexcept nogil:
    """Take the step of one group of `size` weights under its norm's penalty; return the length of the step."""
    cdef Py_ssize_t a
    cdef double norm = 0.0, keep, new, length = 0.0
    for a in range(size):
        new = curve * weight[a] - slope[a]
        norm += new * new
    norm = sqrt(norm)
    keep = 0.0 if norm <= penalty else (1.0 - penalty / norm) / curve
    for a in range(size):
        new = keep * (curve * weight[a] - slope[a]) if keep else 0.0
        step[a] = new - weight[a]
        weight[a] = new
        length += step[a] * step[a]
    return sqrt(length)


cdef double visit(const code_t *code, Py_ssize_t n, Py_ssize_t S, Py_ssize_t d, Py_ssize_t q, const double *table,
                  double penalty, bint group, double bound, const double *curve, double *z, double *whole,
                  double *theta, double *scratch, const sparse_loops *loops) noexcept nogil:
    """Take the steps of one term; return the largest remaining slope that they leave, in units of the penalty.

    scratch: sums (S), slope (d q), step (d q). `whole` (q) holds the sums of z over all rows.
    """
    cdef double *sums = scratch
    cdef double *slope = sums + S
    cdef double *step = slope + d * q
    cdef Py_ssize_t c, a, s, i
    cdef double change = 0.0
    for c in range(q):
        state_sums(code, z + c * n, n, S, whole[c], loops, sums)
        project(sums, table, S, d, q, c, slope)
    if group:
        change = bound * shrink(theta, slope, bound, penalty, d * q, step)
    else:
        for a in range(d):
            change = max(change, bound * shrink(theta + a * q, slope + a * q, bound, penalty, q, step + a * q))
    if change == 0.0:
        return 0.0
    for c in range(q):
        for s in range(S):
            sums[s] = 0.0
            for a in range(d):
                sums[s] += table[s * d + a] * step[a * q + c]
        if code_t is uint8_t:
            if S == 2:
                whole[c] = loops.add(code, curve, sums[0], sums[1] - sums[0], z + c * n, n)
                continue
        for i in range(n):
            z[c * n + i] += curve[i] * sums[code[i]]
        whole[c] = sparse_total(z + c * n, n)
    return change / penalty


def descend(const code_t[:, ::1] codes, const Py_ssize_t[::1] states, const double[::1] table,
            const Py_ssize_t[::1] cell, const Py_ssize_t[::1] at, const double[::1] penalty, bint group,
            const double[::1] curve, double limit, double tolerance, int itmax, const int32_t[::1] stop,
            double[:, ::1] z, double[:, ::1] theta, double[::1] intercept):
    """Minimise the quadratic model plus the penalties over all terms, in place; return the number of sweeps.

    `z` (q, n) is its slope. Sweeps over all terms and sweeps over those with weights alternate until no step of one of
    the former would change a gradient by more than `tolerance` of its penalty. The intercept stays within `limit`.
    """
    cdef Py_ssize_t T = codes.shape[0], n = codes.shape[1], q = z.shape[0], t, c, a, i, d, most = 1, wide = 1
    cdef sparse_loops loops = sparse_pick()
    cdef double change, new, step, least = 1e300, flat = sparse_total(&curve[0], n)
    cdef int sweep = 0
    cdef bint everything = True, live
    cdef double *bound
    cdef double *whole
    cdef double *scratch
    for t in range(T):
        most = max(most, states[t])
        wide = max(wide, at[t + 1] - at[t])
        least = min(least, penalty[t])
    if not T:
        least = flat
    bound = <double *> malloc(sizeof(double) * <size_t> (T + q + most + 2 * wide * q))
    if bound == NULL:
        raise MemoryError
    whole = bound + T
    scratch = whole + q
    with nogil:
        for t in range(T):
            d = at[t + 1] - at[t]
            state_sums(&codes[t, 0], &curve[0], n, states[t], flat, &loops, scratch)
            bound[t] = max(1e-300, steepest(scratch, &table[cell[t]], states[t], d))
        for c in range(q):
            whole[c] = sparse_total(&z[c, 0], n)
        while sweep < itmax and not stop[0]:
            sweep += 1
            change = 0.0
            for c in range(q):
                new = min(limit, max(-limit, intercept[c] - whole[c] / max(flat, 1e-300)))
                step = new - intercept[c]
                intercept[c] = new
                if step != 0.0:
                    for i in range(n):
                        z[c, i] += step * curve[i]
                    whole[c] = sparse_total(&z[c, 0], n)
                    change = max(change, fabs(step) * flat / least)
            for t in range(T):
                d = at[t + 1] - at[t]
                if not everything:
                    live = False
                    for a in range(at[t], at[t + 1]):
                        for c in range(q):
                            live = live or theta[a, c] != 0.0
                    if not live:
                        continue
                change = max(change, visit(&codes[t, 0], n, states[t], d, q, &table[cell[t]], penalty[t], group,
                                           bound[t], &curve[0], &z[0, 0], whole, &theta[at[t], 0], scratch, &loops))
            if change <= tolerance:
                if everything:
                    break
                everything = True
            else:
                everything = False
    free(bound)
    return sweep


def descend_gram(const double[:, ::1] hessian, const Py_ssize_t[::1] at, const double[::1] penalty, bint group,
                 double tolerance, int itmax, const int32_t[::1] stop, double[:, ::1] slope, double[:, ::1] theta):
    """Minimise the quadratic model plus the penalties as `descend` does, from its Hessian; return the number of sweeps.

    `hessian` (D q, D q) and `slope` (D, q), that of the model, are of all features; a term of penalty 0, such as the
    intercept, is free. Few features of many rows cost less this way, and for more than two classes it is exact.
    """
    cdef Py_ssize_t T = penalty.shape[0], D = theta.shape[0], q = theta.shape[1], t, a, b, lo, hi, wide = 1, size
    cdef double change, row, widest, least = 1e300, moved
    cdef int sweep = 0
    cdef bint everything = True, live
    cdef double *bound
    cdef double *step
    cdef double *weight = &theta[0, 0]
    cdef double *pull = &slope[0, 0]
    for t in range(T):
        wide = max(wide, at[t + 1] - at[t])
        if penalty[t] > 0:
            least = min(least, penalty[t])
    bound = <double *> malloc(sizeof(double) * <size_t> (T + wide * q))
    if bound == NULL:
        raise MemoryError
    step = bound + T
    with nogil:
        for t in range(T):
            lo, hi, widest = at[t] * q, at[t + 1] * q, 1e-300
            for a in range(lo, hi):
                row = 0.0
                for b in range(lo, hi):
                    row += fabs(hessian[a, b])
                widest = max(widest, row)
            bound[t] = widest
        while sweep < itmax and not stop[0]:
            sweep += 1
            change = 0.0
            for t in range(T):
                lo, hi = at[t] * q, at[t + 1] * q
                if not everything:
                    live = False
                    for a in range(lo, hi):
                        live = live or weight[a] != 0.0
                    if not live:
                        continue
                size = hi - lo if group else q
                moved = 0.0
                a = lo
                while a < hi:
                    moved = max(moved, shrink(weight + a, pull + a, bound[t], penalty[t], size, step + a - lo))
                    a += size
                if moved == 0.0:
                    continue
                change = max(change, moved * bound[t] / (penalty[t] if penalty[t] > 0 else least))
                for a in range(lo, hi):
                    if step[a - lo] != 0.0:
                        for b in range(D * q):
                            pull[b] += hessian[a, b] * step[a - lo]
            if change <= tolerance:
                if everything:
                    break
                everything = True
            else:
                everything = False
    free(bound)
    return sweep
