# Pseudo: the C side of the kernel, as pseudo.h and solver.h declare it.
from libc.stdint cimport int32_t, uint8_t, uint16_t


cdef extern from "solver.h" nogil:
    int SOLVER_RUNNING, SOLVER_CONVERGED, SOLVER_STUCK

cdef extern from "pseudo.h" nogil:
    int PSEUDO_PACK
    ctypedef struct pseudo_problem:
        Py_ssize_t n, m, D, lanes, n_tasks, n_sites, n_counted, D_padded, pack
        int mixed, wide, equal
        size_t real, bytes
        double total, scale, mix, ridge, lowest, highest
        const int32_t *n_levels
        const uint8_t *mask
        double *second
        double *mean
        double *field
        double *sigma
        Py_ssize_t *order
        const float *project
        const float *expand
        const double *eigenvalue
        const float *inverse
        const float *own
        Py_ssize_t *start
    ctypedef struct pseudo_lane:
        double value, norm
        int32_t n_iter, n_eval, status
    ctypedef struct pseudo_options:
        double lambda_ "lambda", lambdah, tolerance
        const double *more
        const double *linear
        int zero_sum
        int32_t itmax
        const int32_t *stop
        int (*check)() noexcept nogil
    ctypedef struct pseudo_columns:
        uint8_t *narrow
        uint16_t *wide
    int cpu_runs(int bytes)
    int pseudo_prepare(pseudo_problem *p, Py_ssize_t n, pseudo_columns columns, double *weights, Py_ssize_t most,
                       Py_ssize_t bytes)
    int pseudo_estimate(pseudo_problem *p, Py_ssize_t n, Py_ssize_t most, Py_ssize_t bytes, double *shared_out,
                        double *task_out)
    void pseudo_free(pseudo_problem *p)
    int pseudo_moments(pseudo_problem *p, Py_ssize_t task, pseudo_columns columns)
    int pseudo_solve(const pseudo_problem *p, Py_ssize_t task, const pseudo_options *o, double *theta,
                     pseudo_lane *lane_out) except -1
    int pseudo_objective(const pseudo_problem *p, Py_ssize_t task, const double *theta, double lambda_, double lambdah,
                         int zero_sum, const double *more, const double *linear, double *value_out,
                         double *gradient_out)
    int pseudo_normaliser(const pseudo_problem *p, Py_ssize_t task, const double *theta, double factor, double *sum_out)
