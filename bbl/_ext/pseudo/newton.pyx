# Newton: the pseudo-likelihood problems of predictors with few parameters, one after the other, to machine precision.
"""Pseudo-likelihood fits by Newton's method, one site after the other; newton.h describes the algorithm.

A *site* is a predictor whose conditional distribution given the others, its *neighbours*, is fitted. Predictor j has
the *columns* ``start[j]`` to ``start[j + 1] - 1``, indicators of its non-reference levels; there are D columns in all.
Each row of ``theta`` belongs to a non-reference level of a site: the field in column 0, the coupling with column c in
column 1 + c. A site has q non-reference levels and C *site columns*: 0 for the constant, then the columns of its
neighbours. In `newton_site`, n_params is q C; `active`, row_start and `response` are written by list_active_columns;
`penalty` (C,) and `linear` (q C,), or NULL, are the site's entries of the arguments of `solve_sites`; Q (C, C) contains
the site's rows and columns of `metric`; and uniform_share is c / (W + c), the weight of the uniform distribution in
targets, with pseudocount c.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc

cdef extern from "newton.h" nogil:
    ctypedef struct newton_site:
        Py_ssize_t n, q, C, n_params
        const int32_t *active
        const Py_ssize_t *row_start
        const int32_t *response
        const double *weight
        double total, uniform_share
        const double *penalty
        const double *linear
        const double *Q
        Py_ssize_t exchanged
    void newton_exchange(const newton_site *s, double *x)
    int newton_solve(const newton_site *s, double tolerance, int itmax, double *x, double *scratch, double *value_out,
                     double *grad_norm_out, int32_t *n_iter_out)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t


cdef Py_ssize_t list_active_columns(const code_t[:, ::1] codes, const Py_ssize_t[::1] start, const uint8_t[:, ::1] mask,
                                    Py_ssize_t i, int32_t *site_column, int32_t *global_column, int32_t *active,
                                    Py_ssize_t *row_start, int32_t *response) noexcept nogil:
    """List the site columns that are 1 in each row, for the site i and its neighbours ``mask[i]``; return C.

    Writes `site_column` (D,), the site column of each column of a neighbour; `global_column` (C,), the column of each
    site column except 0, the constant; `active`, the site columns that are 1 in a row, row by row, each row starting
    with 0 for the constant; `row_start` (n + 1,), the start of each row in `active`; and `response` (n,), the codes of
    the site.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], j, k, c, n_active = 0
    cdef Py_ssize_t C = 1
    for j in range(m):
        if mask[i, j]:
            for c in range(start[j], start[j + 1]):
                global_column[C] = <int32_t> c
                site_column[c] = <int32_t> C
                C += 1
    for k in range(n):
        row_start[k] = n_active
        active[n_active] = 0
        n_active += 1
        for j in range(m):
            if mask[i, j] and codes[k, j]:
                active[n_active] = site_column[start[j] + codes[k, j] - 1]
                n_active += 1
        response[k] = <int32_t> codes[k, i]
    row_start[n] = n_active
    return C


cdef Py_ssize_t exchange_levels(const newton_site *s, int32_t *response) noexcept nogil:
    """Exchange level 0, if it never occurs, with the level of a row of the largest weight in `response`, in place.

    Return `exchanged` of the site.
    """
    cdef Py_ssize_t k, heaviest = 0
    cdef int32_t level
    for k in range(s.n):
        if response[k] == 0 and s.weight[k] > 0.0:
            return -1
        if s.weight[k] > s.weight[heaviest]:
            heaviest = k
    level = response[heaviest] if s.n else 0
    if level == 0:
        return -1
    for k in range(s.n):
        response[k] = 0 if response[k] == level else level if response[k] == 0 else response[k]
    return level - 1


cdef int solve_site(newton_site *s, Py_ssize_t first_row, const int32_t *global_column, double tolerance, int itmax,
                    double *x, double *scratch, double[:, ::1] theta, const double[:, ::1] linear, double *site_linear,
                    double *value, double *gradient_norm, int32_t *n_iter) noexcept nogil:
    """Minimise the objective of the site s over its rows first_row ... first_row + q - 1 of `theta`, in place.

    `linear` (with the shape of theta, or None) is as in `solve_sites`. `x`, `site_linear` (q C,) and `scratch` are
    working memory; `value`, `gradient_norm`, `n_iter` are written. Returns a solver_status.
    """
    cdef Py_ssize_t a, c
    cdef int status
    for a in range(s.q):
        x[a * s.C] = theta[first_row + a, 0]
        for c in range(1, s.C):
            x[a * s.C + c] = theta[first_row + a, 1 + global_column[c]]
    s.linear = NULL
    if linear is not None:
        for a in range(s.q):
            site_linear[a * s.C] = linear[first_row + a, 0]
            for c in range(1, s.C):
                site_linear[a * s.C + c] = linear[first_row + a, 1 + global_column[c]]
        s.linear = site_linear
    newton_exchange(s, x)
    status = newton_solve(s, tolerance, itmax, x, scratch, value, gradient_norm, n_iter)
    newton_exchange(s, x)
    for a in range(s.q):
        theta[first_row + a, 0] = x[a * s.C]
        for c in range(1, s.C):
            theta[first_row + a, 1 + global_column[c]] = x[a * s.C + c]
    return status


def solve_sites(const code_t[:, ::1] codes, const double[::1] weights, double total, const Py_ssize_t[::1] start,
                const uint8_t[:, ::1] mask, const int32_t[::1] sites, const double[::1] penalty,
                double prior_count, double tolerance, int itmax, double[:, ::1] theta, double[::1] value,
                double[::1] grad_norm, int32_t[::1] n_iter, int32_t[::1] status,
                const double[:, ::1] linear=None, const double[:, ::1] metric=None):
    """Minimise the penalised negative pseudo-log-likelihood of each of `sites` from `theta`, in place.

    Shapes: codes (n, m), weights (n,) with sum `total`, start (m + 1,), mask (n_sites, m) with 1 for the neighbours of
    each site and 0 on the diagonal, penalty (1 + D,) with ridge penalties of the fields and of the couplings with each
    column, theta (D_s, 1 + D), where D_s is the number of columns of all n_sites predictors, `sites` (any number,) with
    the predictors to fit. With a `prior_count` c each row's observed level has the target 1 - c/(total + c), and all
    levels share the rest. If `linear` (D_s, 1 + D) is given, ``sum(theta * linear)`` is subtracted from the objectives.
    If `metric` Q (1 + D, 1 + D) is given, the parameters x (q, C) of a site are penalised in the zero-sum gauge, in
    which they have mean 0 over levels, by ``tr(x' M x Q) / 2``, where ``M = I - 1 1'/(q + 1)`` and only the rows and
    columns of Q that the site uses are included. `value`, `grad_norm`, `n_iter` and `status` (a solver_status), with
    n_sites entries each, are written at the sites.
    """
    cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], D = start[m], t, i, j, k, C
    cdef Py_ssize_t max_params = 0, max_logits = 1, max_site_columns = 1  # p = q C, q and C of the largest site
    cdef newton_site s
    cdef int32_t *site_column
    cdef int32_t *global_column
    cdef int32_t *active
    cdef int32_t *response
    cdef Py_ssize_t *row_start
    cdef double *x
    cdef double *site_linear
    cdef double *site_penalty  # (C,): the entries of `penalty` for the site's columns
    cdef double *Q = NULL  # (C, C): rows and columns of `metric` for the site's columns
    for t in range(sites.shape[0]):
        i = sites[t]
        C = 1
        for j in range(m):
            if mask[i, j]:
                C += start[j + 1] - start[j]
        max_logits = max(max_logits, start[i + 1] - start[i])
        max_params = max(max_params, C * (start[i + 1] - start[i]))
        max_site_columns = max(max_site_columns, C)
    # one block of memory for site_column (D + 1), global_column (D + 1), active (n (m + 1)), response (n)
    site_column = <int32_t *> malloc(sizeof(int32_t) * <size_t> (2 * (D + 1) + n * (m + 1) + n))
    row_start = <Py_ssize_t *> malloc(sizeof(Py_ssize_t) * <size_t> (n + 1))
    # another for x (p), the scratch of newton_solve (2 p^2 + 3 p + q), site_linear (p), site_penalty (1 + D)
    x = <double *> malloc(sizeof(double) * <size_t> (2 * max_params * max_params + 5 * max_params + max_logits + 1 + D))
    if metric is not None:
        Q = <double *> malloc(sizeof(double) * <size_t> (max_site_columns * max_site_columns))
    try:
        if site_column == NULL or row_start == NULL or x == NULL or (metric is not None and Q == NULL):
            raise MemoryError
        global_column = site_column + D + 1
        active = global_column + D + 1
        response = active + n * (m + 1)
        site_linear = x + 2 * max_params * max_params + 4 * max_params + max_logits
        site_penalty = site_linear + max_params
        for t in range(sites.shape[0]):
            i = sites[t]
            with nogil:
                s.n, s.q = n, start[i + 1] - start[i]
                s.C = list_active_columns(codes, start, mask, i, site_column, global_column, active, row_start,
                                          response)
                s.n_params = s.q * s.C
                s.active, s.row_start, s.response, s.weight = active, row_start, response, &weights[0]
                s.exchanged = exchange_levels(&s, response)
                site_penalty[0] = penalty[0]
                for j in range(1, s.C):
                    site_penalty[j] = penalty[1 + global_column[j]]
                for j in range(s.C if metric is not None else 0):  # site column 0 is the constant, entry 0 of metric
                    for k in range(s.C):
                        Q[j * s.C + k] = metric[1 + global_column[j] if j else 0, 1 + global_column[k] if k else 0]
                s.total, s.uniform_share, s.penalty, s.Q = total, prior_count / (total + prior_count), site_penalty, Q
                # x + s.n_params: the scratch, after x
                status[i] = solve_site(&s, start[i], global_column, tolerance, itmax, x, x + s.n_params, theta,
                                       linear, site_linear, &value[i], &grad_norm[i], &n_iter[i])
            PyErr_CheckSignals()
    finally:
        free(site_column)
        free(row_start)
        free(x)
        free(Q)
