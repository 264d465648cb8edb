# # Pseudo: the C side of the kernel; see pseudo_problem.h for the fields and pseudo.h for the functions.
from libc.stdint cimport int32_t, uint8_t, uint16_t


cdef extern from "solver.h" nogil:
    int SOLVER_RUNNING, SOLVER_CONVERGED, SOLVER_ITMAX, SOLVER_STUCK

cdef extern from "pseudo.h" nogil:
    int PSEUDO_BLOCKS_PER_TASK
    ctypedef struct pseudo_rows:
        Py_ssize_t n
        double total, scale, uniform_share
        int equal_weights
    ctypedef struct pseudo_second_moments:
        double *mean
        double *second
        double *independent_field
    ctypedef struct pseudo_metric_data:
        int wide, leading
        Py_ssize_t D_padded, n_vectors
        double *sigma
        const float *project
        const float *expand
        const double *eigenvalue
        const float *inverse
        const float *site_correction
        double ridge, lowest_eigenvalue, highest_eigenvalue
    ctypedef struct pseudo_problem:
        Py_ssize_t m, D, lanes, n_lane_blocks, n_sites, n_counted, blocks_per_task
        int mixed
        size_t number_bytes, bytes
        const int32_t *n_levels
        const uint8_t *neighbours
        Py_ssize_t *site_order
        Py_ssize_t *first_column
        pseudo_rows rows
        pseudo_second_moments moments
        pseudo_metric_data metric
    ctypedef struct pseudo_lane:
        double value, norm
        int32_t n_iter, n_eval, status
    ctypedef struct pseudo_options:
        double lambda_ "lambda", lambdah, tolerance
        const double *column_penalty
        const double *linear
        int zero_sum
        int32_t itmax
        const int32_t *stop
        int (*check)() noexcept nogil
    ctypedef struct pseudo_columns:
        uint8_t *narrow
        uint16_t *wide
    int cpu_runs(int bytes)
    int pseudo_prepare(pseudo_problem *p, Py_ssize_t n, pseudo_columns columns, double *weights, Py_ssize_t max_states,
                       Py_ssize_t table_bytes)
    int pseudo_estimate(pseudo_problem *p, Py_ssize_t n, Py_ssize_t max_states, Py_ssize_t table_bytes,
                        double *shared_out, double *task_out)
    void pseudo_free(pseudo_problem *p)
    int pseudo_count_moments(pseudo_problem *p, Py_ssize_t block, pseudo_columns columns)
    int pseudo_solve(const pseudo_problem *p, Py_ssize_t task, const pseudo_options *o, double *theta,
                     pseudo_lane *lane_out) except -1
    int pseudo_evaluate_objective(const pseudo_problem *p, Py_ssize_t block, const double *theta, double lambda_,
                                  double lambdah, int zero_sum, const double *column_penalty, const double *linear,
                                  double *value_out, double *gradient_out)
    int pseudo_add_normalisers(const pseudo_problem *p, Py_ssize_t block, const double *theta, double factor,
                               double *sum_out)
