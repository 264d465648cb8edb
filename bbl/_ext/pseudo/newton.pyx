# Newton: the pseudo-likelihood problems of small predictors, one after the other, to machine precision; Hessians.
"""Pseudo-likelihood by Newton's method; the algorithm is described in newton.h."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free, malloc

cdef extern from "newton.h" nogil:
    ctypedef struct newton_site:
        Py_ssize_t n, q, P0, p
        const int32_t *active
        const Py_ssize_t *row_start
        const int32_t *response
        const double *weight
        double total, mix
        const double *penalty
        const double *linear
        const double *metric
    int newton_solve(const newton_site *s, double tolerance, int itmax, double *x, double *scratch, double *value_out,
                     double *grad_norm_out, int32_t *n_iter_out)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef Py_ssize_t collect(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, const uint8_t[:, ::1] mask,
                        Py_ssize_t i, int32_t *local, int32_t *columns, int32_t *active, Py_ssize_t *row_start,
                        int32_t *response) noexcept nogil:
    """List the neighbour columns of site `i` and the active columns of every row; return how many columns."""
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], j, k, c, at = 0
    cdef Py_ssize_t P0 = 1
    for j in range(m):
        if mask[i, j]:
            for c in range(start[j], start[j + 1]):
                columns[P0] = <int32_t> c
                local[c] = <int32_t> P0
                P0 += 1
    for k in range(n):
        row_start[k] = at
        active[at] = 0
        at += 1
        for j in range(m):
            if mask[i, j] and codes[k, j]:
                active[at] = local[start[j] + codes[k, j] - 1]
                at += 1
        response[k] = <int32_t> codes[k, i]
    row_start[n] = at
    return P0


cdef int solve(newton_site *s, Py_ssize_t first, const int32_t *columns, double tolerance, int itmax, double *x,
               double *scratch, double[:, ::1] theta, const double[:, ::1] linear, double *own, double *value,
               double *norm, int32_t *n_iter) noexcept nogil:
    """Copy one site's parameters out of `theta`, minimise, copy them back."""
    cdef Py_ssize_t a, c
    cdef int status
    for a in range(s.q):
        x[a * s.P0] = theta[first + a, 0]
        for c in range(1, s.P0):
            x[a * s.P0 + c] = theta[first + a, 1 + columns[c]]
    s.linear = NULL
    if linear is not None:
        for a in range(s.q):
            own[a * s.P0] = linear[first + a, 0]
            for c in range(1, s.P0):
                own[a * s.P0 + c] = linear[first + a, 1 + columns[c]]
        s.linear = own
    status = newton_solve(s, tolerance, itmax, x, scratch, value, norm, n_iter)
    for a in range(s.q):
        theta[first + a, 0] = x[a * s.P0]
        for c in range(1, s.P0):
            theta[first + a, 1 + columns[c]] = x[a * s.P0 + c]
    return status


def solve_sites(const code_t[:, ::1] codes, const double[::1] weights, double total, const Py_ssize_t[::1] start,
                const uint8_t[:, ::1] mask, const int32_t[::1] sites, const double[::1] penalty,
                double prior_count, double tolerance, int itmax, double[:, ::1] theta, double[::1] value,
                double[::1] grad_norm, int32_t[::1] n_iter, int32_t[::1] status,
                const double[:, ::1] linear=None, const double[:, ::1] metric=None):
    """Minimise the penalised pseudo-likelihood objective of each of `sites`, starting from and ending in `theta`.

    Shapes: codes (n, m), weights (n), start (m + 1), penalty (1 + D) of fields and of the couplings of each column,
    mask and theta with a row for each predictor that responds and each of its levels, (., m) and (., 1 + D). With a
    `prior_count` c each row's own level counts as 1 - c/(total + c), and all levels share the rest. The product of
    `theta` and `linear`, of its shape, is taken off the objectives, if it is given. A `metric` Q (1 + D, 1 + D) adds
    ``tr(x' M x Q) / 2`` for the parameters x of a site, a row for each level, with ``M = I - 1 1'/L``. value,
    grad_norm, n_iter and status are written at the sites.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = start[m], t, i, j, k, p, P0
    cdef Py_ssize_t largest = 0, widest = 1, most = 1
    cdef newton_site s
    cdef int32_t *ints
    cdef Py_ssize_t *row_start
    cdef double *x
    cdef double *own
    cdef double *slope
    cdef double *Q = NULL
    for t in range(sites.shape[0]):
        i = sites[t]
        P0 = 1
        for j in range(m):
            if mask[i, j]:
                P0 += start[j + 1] - start[j]
        widest = max(widest, start[i + 1] - start[i])
        largest = max(largest, P0 * (start[i + 1] - start[i]))
        most = max(most, P0)
    p = largest
    ints = <int32_t *> malloc(sizeof(int32_t) * <size_t> (2 * (D + 1) + n * (m + 1) + n))
    row_start = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (n + 1))
    x = <double *> malloc(sizeof(double) * <size_t> (2 * p * p + 5 * p + widest + 1 + D))
    if metric is not None:
        Q = <double *> malloc(sizeof(double) * <size_t> (most * most))
    try:
        if ints == NULL or row_start == NULL or x == NULL or (metric is not None and Q == NULL):
            raise MemoryError
        for t in range(sites.shape[0]):
            i = sites[t]
            with nogil:
                s.n, s.q = n, start[i + 1] - start[i]
                s.P0 = collect(codes, start, mask, i, ints, ints + D + 1, ints + 2 * (D + 1),
                               row_start, ints + 2 * (D + 1) + n * (m + 1))
                s.p = s.q * s.P0
                s.active, s.row_start = ints + 2 * (D + 1), row_start
                s.response, s.weight = ints + 2 * (D + 1) + n * (m + 1), &weights[0]
                slope = x + 2 * p * p + 4 * p + widest
                own = slope + p
                own[0] = penalty[0]
                for j in range(1, s.P0):
                    own[j] = penalty[1 + ints[D + 1 + j]]
                for j in range(s.P0 if metric is not None else 0):
                    for k in range(s.P0):
                        Q[j * s.P0 + k] = metric[1 + ints[D + 1 + j] if j else 0, 1 + ints[D + 1 + k] if k else 0]
                s.metric = Q
                s.total, s.mix, s.penalty = total, prior_count / (total + prior_count), own
                status[i] = solve(&s, start[i], ints + D + 1, tolerance, itmax, x, x + s.p, theta,
                                  linear, slope, &value[i], &grad_norm[i], &n_iter[i])
            PyErr_CheckSignals()
    finally:
        free(ints)
        free(row_start)
        free(x)
        free(Q)


def add_hessian(const double[:, :] near, const double[:, :] p, const double[::1] w, double[:, ::1] H):
    """Add the Hessian of one predictor's mean log normaliser over some rows to `H`, by the ones in each row.

    Parameters
    ----------
    near : ndarray of float, shape (n, c)
        What it is regressed on, the constant first: zeros and ones.
    p : ndarray of float, shape (n, q)
        Probabilities of its non-reference levels.
    w : ndarray of float, shape (n,)
        Weights.
    H : ndarray of float, shape (q c, q c)
        Block (a, b) gets the sum over rows of ``w (p_a 1[a = b] - p_a p_b)`` times the products of all columns.
    """
    cdef Py_ssize_t n = near.shape[0], c = near.shape[1], q = p.shape[1], pairs = q * (q + 1) // 2
    cdef Py_ssize_t a, b, k, t, u, s, ones
    cdef Py_ssize_t *on
    cdef double *weight
    cdef double *sums
    cdef double *to
    if p.shape[0] != n or w.shape[0] != n or H.shape[0] != q * c or H.shape[1] != q * c:
        raise ValueError("near, p, w and H do not fit together")
    on = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (c + 1))
    weight = <double *> malloc(sizeof(double) * <size_t> (pairs + 1))
    sums = <double *> calloc(<size_t> (c * (c + 1) // 2 * pairs + 1), sizeof(double))  # pairs of levels side by side
    try:
        if on == NULL or weight == NULL or sums == NULL:
            raise MemoryError
        with nogil:
            for k in range(n):
                ones = 0
                for t in range(c):
                    on[ones] = t
                    ones += near[k, t] != 0.0
                s = 0
                for a in range(q):
                    for b in range(a + 1):
                        weight[s] = w[k] * ((p[k, a] if a == b else 0.0) - p[k, a] * p[k, b])
                        s += 1
                for t in range(ones):
                    for u in range(t + 1):
                        to = sums + (on[t] * (on[t] + 1) // 2 + on[u]) * pairs
                        for s in range(pairs):
                            to[s] += weight[s]
            to = sums
            for t in range(c):
                for u in range(t + 1):
                    for a in range(q):
                        for b in range(a + 1):  # a block is symmetric, and stands on both sides of the diagonal
                            H[a * c + t, b * c + u] += to[0]
                            if u < t:
                                H[a * c + u, b * c + t] += to[0]
                            if b < a:
                                H[b * c + t, a * c + u] += to[0]
                            if b < a and u < t:
                                H[b * c + u, a * c + t] += to[0]
                            to += 1
    finally:
        free(on)
        free(weight)
        free(sums)
