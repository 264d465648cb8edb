# # Pseudo-likelihood: the conditional models of all predictors given the others, fitted by vectorised L-BFGS
# (pseudo*.h).
"""Pseudo-likelihood of one group of encoded rows (Woo & Wang 2022, section 2.2); for the algorithm see pseudo.h.

A *site* is a predictor whose conditional distribution given the others is fitted. A *column* is the indicator of a
non-reference level of a predictor: D columns in all, of which the first D_s belong to sites. *Lanes* are the numbers of
a vector, with one site in each; a *lane block* consists of the sites of one vector, a *task* of one or more lane blocks
that are solved together. The *metric* of the optimiser is an approximate inverse Hessian, derived from the covariance
of the columns.
"""
import threading

import numpy as np

from bbl._ext.model.moments import shared_counts
from bbl._ext.pseudo.plan import (
    WIDE_COLUMNS, check_problem, choose_lanes, composite_sizes, kronecker_metric, kronecker_pays, leading_metric,
    leading_pays, read_columns, share_of_neighbours, wide_metric,
)

from bbl._ext.signals cimport check_signals
from cpython.exc cimport PyErr_CheckSignals as raise_signals
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef enum:
    FEW_LEVELS = 8  # mean columns per predictor up to which pairs are counted by bits (`benchmarks.run`: W1, W3)

CONVERGED, ITMAX, STUCK = SOLVER_CONVERGED, SOLVER_ITMAX, SOLVER_STUCK


cdef void set_precision(pseudo_problem *p, str precision, bint has_covariance):
    """Set whether p is wide or in mixed precision, the bytes of its numbers, and the number of lane blocks per task.

    p is wide (and mixed, not double) if the metric uses a covariance, `has_covariance`, of > WIDE_COLUMNS columns.
    """
    if precision not in ("double", "mixed", "single"):
        raise ValueError(f'precision must be "double", "mixed" or "single", not {precision!r}')
    p.metric.wide = has_covariance and p.D > WIDE_COLUMNS
    p.mixed = precision == "mixed" or precision == "double" and p.metric.wide
    p.number_bytes = 4 if p.mixed or precision == "single" else 8
    p.blocks_per_task = PSEUDO_BLOCKS_PER_TASK if p.metric.wide or p.mixed else 1


def memory_estimate(Py_ssize_t n, n_levels, width=None, precision="double", sites=None):
    """Return the bytes of a prepared problem of `n` rows, and of each task that is solved at the same time.

    `n_levels` (m,) are the numbers of levels of the predictors; for `width` and `precision` see `PseudoProblem`;
    `sites` is the number of sites, the first predictors (default: all). The two floats are upper bounds and exclude the
    caller's arrays.
    """
    levels = np.ascontiguousarray(n_levels, dtype=np.int32)
    cdef const int32_t[::1] level_view = levels
    cdef pseudo_problem p
    cdef double shared, task  # bytes of the problem and of a task
    memset(&p, 0, sizeof(p))
    p.m, p.n_levels = len(levels), &level_view[0]
    p.n_sites = p.m if sites is None else sites
    max_states, table_bytes = composite_sizes(n, levels[:p.n_sites])
    p.D = int(levels.sum()) - p.m
    has_covariance = kronecker_pays(n, levels, p.D, 1.0)  # 1.0: all predictors are neighbours, the most memory
    set_precision(&p, precision, has_covariance)
    p.n_counted = p.m if has_covariance else p.n_sites  # predictors with moments: all if the covariance is used
    p.lanes = choose_lanes(levels, width, p.number_bytes)
    try:
        if pseudo_estimate(&p, n, max_states, table_bytes, &shared, &task):
            raise MemoryError
    finally:
        pseudo_free(&p)
    # computing the metric takes at most five matrices (D, D) of doubles, or 250 vectors (D,)
    shared += 40.0 * p.D * p.D if has_covariance else 2000.0 * p.D if leading_pays(levels, p.D, 1.0) else 0.0
    return shared, task


cdef class PseudoProblem:
    """The pseudo-likelihood problem of one group: its rows prepared for the kernel, shared by all tasks.

    For every site i, ``-(1/W) sum_k w_k ln P_i(x_i^k | rest) + lambdah/2 |h_i|^2 + lambda/2 |J_i|^2`` is minimised
    separately (Woo & Wang, eqs. 10-15). Parameters are ``theta`` (D_s, 1 + D): in row (i, a) column 0 is h_i(a), and
    column 1 + start[j] + b - 1 is J_i(a; j, b), where start[j] is the first column of predictor j. The site's own
    columns and the columns of predictors that are not its neighbours are 0. The first n_sites predictors are sites. The
    others, joint levels of several predictors in terms of order 3 and more, are only regressors.

    A task writes its own rows of ``theta`` and its own entries of the other results, so tasks can run in several
    threads at once, with bitwise identical results for any order and number of threads. The set-up, or in wide problems
    the first solve with a penalty, calls LAPACK; limit BLAS to one thread for bitwise identical results under any
    machine load.

    Parameters
    ----------
    codes : ndarray of uint8, uint16 or int32, shape (n, m), C order
        Levels of the predictors; can be read-only.
    weights : array_like of float, shape (n,)
        Positive row weights.
    n_levels : array_like of int, shape (m,)
        Number of levels of each predictor, from 2 to 65535.
    mask : array_like of bool, shape (n_sites, m)
        Whether each site is regressed on each predictor (its neighbours); the diagonal is ignored.
    width : {"avx512", "avx2", "sse2", "plain"}, optional
        Vector instructions; by default the widest of this processor. Results differ by rounding.
    precision : {"double", "mixed", "single"}, default "double"
        In single precision vectors contain twice as many sites; gradient norms end near 1e-5. In mixed precision steps
        are in single and decisive gradients in double precision, as are final norms; wide problems in "double" are
        solved in this way.
    prior_count : float, default 0.0
        Pseudocount c: the target of a row is 1 - c/(W + c) for the observed level, and all levels share the rest.
    counted : bool, default True
        Whether moments of the rows are counted. Otherwise objectives consist only of the mean log normalisers, as for
        one batch of rows in a larger table whose moments are counted elsewhere, and nothing can be minimised.

    Attributes
    ----------
    n_tasks, lanes : int
        Number of tasks; maximum number of sites per task.
    order : ndarray of intp, shape (n_sites,)
        The sites in the order of the tasks.
    nbytes : int
        Memory of the problem, without the metric's eigenvectors or inverse.
    metric : str
        What the metric is based on: the "inverse" of the columns' covariance, its eigenvectors ("kronecker"), the
        "leading" eigenvectors, or the "blocks" of each predictor's own columns.

    Raises
    ------
    ValueError
        If shapes do not match, a code is out of range, or a weight is not a positive number.

    Examples
    --------
    >>> codes = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], dtype=np.uint8)
    >>> problem = PseudoProblem(codes, [1.0, 3.0, 2.0, 2.0], [2, 2], ~np.eye(2, dtype=bool))
    >>> theta = problem.start()
    >>> result = problem.solve(0, 0.1, 0.0, 1e-8, 100, theta)
    >>> bool(result["grad_norm"].max() < 1e-8)
    True
    """
    cdef pseudo_problem p  # for its fields see pseudo_problem.h
    cdef tuple owners  # owners of the memory that p points to: levels (m,), neighbours, eigenvectors and eigenvalues
    cdef tuple wide_metric_for  # a penalty lambda_, then the results of wide_metric for it; initially (None,)
    cdef object lock  # protects wide_metric_for
    cdef Py_ssize_t D_s  # number of columns of the sites

    def __cinit__(self, codes, weights, n_levels, mask, width=None, precision="double", double prior_count=0.0,
                  bint counted=True):
        cdef const int32_t[::1] levels = np.array(n_levels, dtype=np.int32)
        cdef double[::1] row_weights = np.array(weights, dtype=np.float64)
        cdef const uint8_t[:, ::1] neighbours
        cdef uint8_t[:, ::1] byte_codes
        cdef uint16_t[:, ::1] short_codes
        cdef pseudo_columns columns
        cdef Py_ssize_t n = codes.shape[0], m = codes.shape[1], t, bad_predictor, max_states, table_bytes, n_sites
        cdef int failed = 0  # a solver_code
        memset(&self.p, 0, sizeof(pseudo_problem))
        neighbours = np.array(mask, dtype=bool).view(np.uint8)
        n_sites = neighbours.shape[0]
        check_problem(codes, row_weights, levels, neighbours)
        columns.narrow, columns.wide = NULL, NULL  # codes of 8 or 16 bits; the other is NULL
        if np.max(levels) <= 256:
            byte_codes = np.empty((m, n), dtype=np.uint8)
            columns.narrow = &byte_codes[0, 0]
            bad_predictor = read_columns(codes, levels, byte_codes)  # a predictor with a code out of range, or -1
        else:
            short_codes = np.empty((m, n), dtype=np.uint16)
            columns.wide = &short_codes[0, 0]
            bad_predictor = read_columns(codes, levels, short_codes)
        if bad_predictor >= 0:
            raise ValueError(f"predictor {bad_predictor} has a code outside 0..{levels[bad_predictor] - 1}")
        self.owners, self.D_s = (levels, neighbours), int(np.sum(levels[:n_sites])) - n_sites
        self.p.m, self.p.n_levels, self.p.neighbours = m, &levels[0], &neighbours[0, 0]
        self.p.D = int(np.sum(levels)) - m
        max_states, table_bytes = composite_sizes(n, np.asarray(levels)[:n_sites])  # of a composite, and of its tables
        density = share_of_neighbours(np.asarray(neighbours))  # among all pairs of predictors
        has_covariance = counted and kronecker_pays(n, np.asarray(levels), self.p.D, density)
        set_precision(&self.p, precision, has_covariance)
        self.p.metric.leading = counted and n_sites == m and leading_pays(levels, self.p.D, density)
        self.p.lanes = choose_lanes(np.asarray(levels), width, self.p.number_bytes)
        # n_counted predictors have moments: all for the covariance, the sites for the gradient
        self.p.n_sites, self.p.n_counted = n_sites, m if has_covariance else n_sites if counted else 0
        with nogil:
            failed = pseudo_prepare(&self.p, n, columns, &row_weights[0], max_states, table_bytes)
        codes_have_equal_weights = self.p.rows.equal_weights and self.p.rows.n == n  # no rows were merged
        if not failed and codes_have_equal_weights and self.p.n_counted == m and self.p.D <= FEW_LEVELS * m:
            pair_shares = self.second_and_mean()[0]  # a view, filled in place
            shared_counts(codes, np.asarray(<Py_ssize_t[:m + 1]> self.p.first_column), pair_shares)
            pair_shares *= self.p.rows.scale  # convert counts of rows to shares
        else:
            for t in range((self.p.n_counted + self.p.lanes - 1) // self.p.lanes):  # lane blocks
                raise_signals()
                with nogil:
                    failed = failed or pseudo_count_moments(&self.p, t, columns)
        if failed:
            raise MemoryError("no memory for the pseudo-likelihood problem")
        self.p.rows.uniform_share = prior_count / (self.p.rows.total + prior_count)
        self.lock, self.wide_metric_for = threading.Lock(), (None,)
        if self.p.metric.leading or has_covariance and not self.p.metric.wide:  # wide ones are inverted in `solve`
            self.decompose()

    def __dealloc__(self):
        pseudo_free(&self.p)

    cdef tuple second_and_mean(self):
        """Return views of the second moments (D, D) of all columns, which must be counted, and of their means (D,)."""
        return (np.asarray(<double[:self.p.D, :self.p.D]> self.p.moments.second),
                np.asarray(<double[:self.p.D]> (self.p.moments.mean + 1)))  # mean[1 + c] is the mean of column c

    cdef covariance(self):
        """Return the covariance of the predictors' columns, shape (D, D)."""
        second, mean = self.second_and_mean()
        covariance = np.multiply.outer(mean, mean)
        return np.subtract(second, covariance, out=covariance)

    cdef tuple invert(self, double lambda_):
        """Return (lambda_, panels, site_correction, ridge, lowest, highest): lambda_, then the results of wide_metric.
        """
        start, levels = np.asarray(<Py_ssize_t[:self.p.n_sites]> self.p.first_column), np.asarray(self.owners[0])
        with self.lock:  # the first thread computes it, the others wait
            if self.wide_metric_for[0] != lambda_:  # the penalty has changed
                # sigma: at the columns of each site, the eigenvalues of the covariance of these columns
                ridge = lambda_ / np.max(<double[:self.D_s]> self.p.metric.sigma)
                self.wide_metric_for = (lambda_, *wide_metric(self.covariance, lambda_, ridge, self.D_s, start,
                                                              levels[:self.p.n_sites], self.p.metric.D_padded))
            return self.wide_metric_for

    cdef decompose(self):
        """Set the metric's eigenvectors and eigenvalues of the covariance: all, or the leading ones if worthwhile."""
        cdef float[:, :, ::1] project, expand
        cdef double[::1] eigenvalue
        eigensystem = (leading_metric(*self.second_and_mean(), self.p.metric.D_padded) if self.p.metric.leading
                       else kronecker_metric(self.covariance(), self.p.metric.D_padded))
        if eigensystem is None:  # leading eigenvectors are not worthwhile: use each predictor's own columns
            self.p.metric.leading = 0
            return
        project, expand, eigenvalue = eigensystem
        self.p.metric.n_vectors = 8 * project.shape[0]  # panels of eight
        self.owners += (project, expand, eigenvalue)
        self.p.metric.project, self.p.metric.expand = &project[0, 0, 0], &expand[0, 0, 0]
        self.p.metric.eigenvalue = &eigenvalue[0]

    @property
    def n_tasks(self):
        return (self.p.n_lane_blocks + self.p.blocks_per_task - 1) // self.p.blocks_per_task

    @property
    def lanes(self):
        return self.p.lanes * self.p.blocks_per_task

    @property
    def order(self):
        return np.array(<Py_ssize_t[:self.p.n_sites]> self.p.site_order)

    @property
    def nbytes(self):
        return self.p.bytes

    @property
    def metric(self):
        decomposed = "leading" if self.p.metric.leading else "kronecker"
        return "inverse" if self.p.metric.wide else "blocks" if self.p.metric.expand == NULL else decomposed

    cdef check_shapes(self, const double[:, ::1] theta, const double[::1] more=None,
                      const double[:, ::1] linear=None):
        """Raise ValueError unless `theta` and `linear`, if given, are (D_s, 1 + D) and `more`, if given, (D,)."""
        if theta.shape[0] != self.D_s or theta.shape[1] != 1 + self.p.D:
            raise ValueError(f"theta must have shape ({self.D_s}, {1 + self.p.D})")
        if linear is not None and (linear.shape[0] != self.D_s or linear.shape[1] != 1 + self.p.D):
            raise ValueError(f"linear must have shape ({self.D_s}, {1 + self.p.D})")
        if more is not None and more.shape[0] != self.p.D:
            raise ValueError(f"more needs {self.p.D} entries")

    def start(self, theta=None):
        """Return `theta` (D_s, 1 + D), a new array unless given, with ``h_i(a) = ln f_i(a)/f_i(0)`` and zero couplings.

        f_i(a) is the frequency of level a; an empty level counts as half a row.
        """
        cdef double[:, ::1] theta_view
        cdef Py_ssize_t c
        if theta is None:
            theta = np.empty((self.D_s, 1 + self.p.D))
        theta_view = theta
        self.check_shapes(theta_view)
        theta_view[:, :] = 0.0
        for c in range(self.D_s):
            theta_view[c, 0] = self.p.moments.independent_field[c]
        return theta

    def solve(self, Py_ssize_t task, double lambda_, double lambdah, double tolerance, int itmax,
              double[:, ::1] theta, double[::1] grad_norm=None, int32_t[::1] n_iter=None, int32_t[::1] n_eval=None,
              int32_t[::1] status=None, double[::1] value=None, const int32_t[::1] stop=None,
              const double[::1] more=None, const double[:, ::1] linear=None, bint zero_sum=False):
        """Minimise the objectives of one task's sites from `theta`, in place, without the GIL.

        - `task`: 0 .. n_tasks - 1; `theta` (D_s, 1 + D): start point and result.
        - `lambda_`, `lambdah`: penalties of couplings and fields.
        - `tolerance`: Euclidean norm of the gradient at which a site has converged; `itmax`: maximum number of
          iterations per site.
        - `grad_norm`, `value`, `n_iter`, `n_eval`, `status` (n_sites,): outputs, written at the task's sites, new
          arrays by default: gradient norm, objective, iterations, evaluations, and 0 converged, 1 `itmax` reached, 2 no
          further progress, 3 not finite, 4 stopped. They are returned as a dict, by name.
        - `stop` (1,): the run ends soon after another thread sets it to a non-zero number.
        - `more` (D,): penalties added to `lambda_` for the couplings with each column, equal within a predictor.
        - `linear` (D_s, 1 + D): ``sum(linear * theta)`` is subtracted from the objectives.
        - `zero_sum`: penalise parameters in the zero-sum gauge (minus their means over levels) instead; not with
          `more`.

        Raises KeyboardInterrupt in the main thread; `theta` then contains the best parameters so far.
        """
        cdef pseudo_problem p = self.p  # a copy: other threads may solve with other penalties and metrics
        cdef const float[:, :, ::1] panels
        cdef const float[:, ::1] site_correction
        cdef pseudo_options o
        cdef pseudo_lane *lane  # (m,) results of the sites
        cdef Py_ssize_t i, m = self.p.n_sites  # number of sites, not of all predictors
        cdef int code  # a solver_code
        self.check_shapes(theta, more, linear)
        if not self.p.n_counted:
            raise ValueError("a problem without moments (counted=False) has nothing to minimise")
        grad_norm = np.zeros(m) if grad_norm is None else grad_norm
        value = np.zeros(m) if value is None else value
        n_iter = np.zeros(m, dtype=np.int32) if n_iter is None else n_iter
        n_eval = np.zeros(m, dtype=np.int32) if n_eval is None else n_eval
        status = np.zeros(m, dtype=np.int32) if status is None else status
        if not 0 <= task < self.n_tasks:
            raise ValueError(f"task must lie between 0 and {self.n_tasks - 1}, not {task}")
        if min(grad_norm.shape[0], value.shape[0], n_iter.shape[0], n_eval.shape[0], status.shape[0]) < m:
            raise ValueError(f"results need {m} entries")
        if stop is not None and stop.shape[0] < 1:
            raise ValueError("stop must have an entry")
        o.lambda_, o.lambdah, o.tolerance, o.itmax = lambda_, lambdah, tolerance, itmax
        o.stop = &stop[0] if stop is not None else NULL
        o.column_penalty = &more[0] if more is not None else NULL
        o.linear = &linear[0, 0] if linear is not None else NULL
        o.zero_sum = zero_sum
        o.check = check_signals
        # without a penalty and with fewer rows than columns, some parameters are undetermined: rounding errors would
        # move them
        if p.metric.wide and (lambda_ > 0.0 or p.rows.n > p.D):
            _, panels, site_correction, p.metric.ridge, p.metric.lowest_eigenvalue, p.metric.highest_eigenvalue = (
                self.invert(lambda_)
            )
            p.metric.inverse, p.metric.site_correction = &panels[0, 0, 0], &site_correction[0, 0]
        lane = <pseudo_lane *> malloc(<size_t> m * sizeof(pseudo_lane))
        if lane == NULL:
            raise MemoryError
        for i in range(m):
            lane[i].status = SOLVER_RUNNING  # remains so at the sites of other tasks
        try:
            with nogil:
                code = pseudo_solve(&p, task, &o, &theta[0, 0], lane)  # raises at -1 (interrupted): see pseudo.pxd
            if code:
                raise MemoryError("no memory for the working arrays of a pseudo-likelihood task")
            for i in range(m):
                if lane[i].status != SOLVER_RUNNING:
                    grad_norm[i], value[i] = lane[i].norm, lane[i].value
                    n_iter[i], n_eval[i], status[i] = lane[i].n_iter, lane[i].n_eval, lane[i].status
        finally:
            free(lane)
        return {"grad_norm": np.asarray(grad_norm), "n_iter": np.asarray(n_iter), "n_eval": np.asarray(n_eval),
                "status": np.asarray(status), "value": np.asarray(value)}

    def objective(self, const double[:, ::1] theta, double lambda_, double lambdah, const double[::1] more=None,
                  const double[:, ::1] linear=None, tasks=None, bint zero_sum=False):
        """Return the objectives (n_sites,) and their gradients (D_s, 1 + D) at `theta`; for the arguments see `solve`.

        With `tasks`, only the sites of these tasks are evaluated; other entries are 0.
        """
        cdef double[::1] value = np.zeros(self.p.n_sites)
        cdef double[:, ::1] gradient = np.zeros((self.D_s, 1 + self.p.D))
        cdef const double *column_penalty = &more[0] if more is not None else NULL
        cdef const double *linear_pointer = &linear[0, 0] if linear is not None else NULL
        cdef Py_ssize_t t, block
        cdef int failed = 0
        self.check_shapes(theta, more, linear)
        for t in range(self.n_tasks) if tasks is None else tasks:
            if not 0 <= t < self.n_tasks:
                raise ValueError(f"tasks must lie between 0 and {self.n_tasks - 1}, not {t}")
            for block in range(t * self.p.blocks_per_task, min((t + 1) * self.p.blocks_per_task, self.p.n_lane_blocks)):
                raise_signals()
                with nogil:
                    failed |= pseudo_evaluate_objective(&self.p, block, &theta[0, 0], lambda_, lambdah, zero_sum,
                                                        column_penalty, linear_pointer, &value[0], &gradient[0, 0])
        if failed:
            raise MemoryError("no memory for the working arrays of a pseudo-likelihood task")
        return np.asarray(value), np.asarray(gradient)

    def log_normaliser(self, const double[:, ::1] theta, bint half=False):
        """Return ``(1/W) sum_k w_k sum_i ln sum_x exp(h_i(x) + c sum_j J_i(x; j, x_j^k))``, c = 1/2 if `half` else 1.

        Equation (31) of Woo & Wang (2022) with row weights w_k of sum W; the paper's default is c = 1.
        """
        cdef double total = 0.0, factor = 0.5 if half else 1.0
        cdef Py_ssize_t t
        cdef int failed = 0
        self.check_shapes(theta)
        for t in range(self.p.n_lane_blocks):
            raise_signals()
            with nogil:
                failed |= pseudo_add_normalisers(&self.p, t, &theta[0, 0], factor, &total)
        if failed:
            raise MemoryError("no memory for the working arrays of a pseudo-likelihood task")
        return total
