/* Pseudo-likelihood of one group of rows: the design of the kernel, and selection of the vector width at run time.

   For every site i (a predictor whose conditional distribution given the others is fitted), the function f_i = -(1/W)
   sum_k w_k ln P_i(x_i^k | rest) + lambdah/2 |h_i|^2 + lambda/2 |J_i|^2 is minimised separately (Woo & Wang 2022, eqs.
   10-15); parameters of level 0 are zero. Alternatively, parameters are penalised in the zero-sum gauge.

   (a) Lanes. A *lane block* consists of V sites, one in each lane of a vector. It reads the shared, constant problem
       and writes its own rows of the result, so results are bitwise identical for any number of threads.
   (b) Composites. Neighbouring predictors are coded as one joint variable. A table of the summed couplings of each
       joint state is built by one addition per state, and a row then costs one load and addition per composite.
   (c) Rows are stored as 16-bit offsets into these tables, and sorted by joint state within row blocks that fit into
       the L1 cache, once for all sites, penalties and iterations.
   (d) Moments. The gradient is the model expectation minus the empirical moment; the moments <1[x_i = a] 1[x_j = b]> of
       all pairs are counted once. They also determine the covariance of the columns, from which the optimiser's metric
       is derived. A term <theta, linear> that is subtracted from the objective is added to the moments. A problem that
       is part of a larger table counts no moments: only its log normalisers and their gradients are summed over the
       parts.
   (e) If there are few joint states of all predictors, equal rows are merged and their weights added.
   (f) The first predictors are sites. The others, joint levels of several predictors (terms of order 3 and more), are
       only regressors.
   (g) pseudo_kernel.h, which lists its parts, is included once for each vector width and precision, with its own names;
       it uses no globals. In single precision a vector has twice as many lanes; the problem itself is the same.
   (h) Mixed precision: steps are taken in single precision, and gradients that decide are computed in double precision;
       see pseudo_pack.h.

   For terms and symbols see pseudo_problem.h. Arrays named *_out are only written or added to; other arrays that are
   not const are changed in place. */
#ifndef PSEUDO_H
#define PSEUDO_H

#include "cpu.h"
#include "pseudo_prepare.h"
#include "pseudo_problem.h"

/* Write upper bounds of the bytes of a prepared problem of n rows (*shared_out, at any time of the set-up) and of the
   working memory of one task (*task_out), without preparing it. p contains m, n_sites, n_counted, lanes, number_bytes,
   n_levels, mixed and metric.wide; composites have up to max_states joint states, and tables that are used together
   take up to table_bytes. The caller frees the memory allocated here by pseudo_free. Returns a solver_code. */
static int pseudo_estimate(pseudo_problem *p, ptrdiff_t n, ptrdiff_t max_states, ptrdiff_t table_bytes,
                           double *shared_out, double *task_out)
{
    pseudo_composites *composites = &p->composites;
    ptrdiff_t i, A = 1, c;
    double code_entries = 0.0, n_small, D;  /* entries of sorted_rows or subset_codes; numbers in all small arrays */
    PSEUDO_ALLOCATE(p, composites->first_predictor, p->m + 1);
    PSEUDO_ALLOCATE(p, composites->first_state, p->m + 1);
    PSEUDO_ALLOCATE(p, composites->first_composite, p->m + 1);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    for (i = 0, p->D = 0; i < p->m; i++) {
        p->D += p->n_levels[i] - 1;
        p->moments.D_counted = i < p->n_counted ? p->D : p->moments.D_counted;  /* columns of counted predictors */
        A = i < p->n_counted && p->n_levels[i] - 1 > A ? p->n_levels[i] - 1 : A;
    }
    pseudo_set_sizes(p, n);  /* n_blocks, block_rows, D_padded, n_lane_blocks */
    pseudo_form_composites(p, max_states, table_bytes);
    for (c = 0; c < composites->n_composites; c++) {
        const ptrdiff_t n_states = composites->first_state[c + 1] - composites->first_state[c];
        code_entries += (double)composites->n_blocks * (double)pseudo_sorted_bound(composites->block_rows, n_states);
    }
    if (p->metric.wide)
        code_entries = fmax(code_entries, (double)(composites->n_blocks * (composites->block_rows / PSEUDO_SUBSET_ROWS)
                                                   * p->metric.D_padded));
    D = (double)p->D;
    /* 2048: a margin; for each site its rotation and 8 numbers, for the 8 arrays (m,) of pseudo_prepare; below 4 arrays
       (D,), for mean, sigma and independent_field, and sorted_start */
    for (i = 0, n_small = 2048.0; i < p->n_sites; i++)
        n_small += 8.0 + (p->n_levels[i] - 1 <= PSEUDO_MAX_ROTATED ? pow(p->n_levels[i] - 1, 2.0) : 0.0);
    n_small += 4.0 * D + (double)(composites->n_blocks * composites->n_composites);
    /* 2 bytes: level codes, codes of composites (at most m, padded by up to 7 rows, hence by 4 rows of both kinds), and
       sorted_rows or subset_codes; 8 bytes: moments, weights and their copies, small arrays */
    *shared_out = 2.0 * ((double)(n + 4) * (double)(p->m + composites->n_composites) + code_entries);
    *shared_out += 8.0 * ((double)p->moments.D_counted * D + 3.0 * (double)n + n_small + 2.0 * (double)p->m);
    *task_out = (double)p->number_bytes * (double)pseudo_task_numbers(p, A);
    /* 3: includes a block in double precision, twice as large, but its S and Y (2 numbers of 8 bytes, 4 number_bytes)
       are never accessed; and anchor_prob */
    if (p->mixed) {
        *task_out *= 3.0;
        *task_out -= 4.0 * (double)p->number_bytes * (double)(pseudo_max_pairs(p, A) * A * (1 + p->D) * p->lanes);
        *task_out += (double)(composites->n_blocks * composites->block_rows * A * p->lanes) * sizeof(float);
    }
    *task_out *= (double)p->blocks_per_task;
    return SOLVER_DONE;
}

/* Kernels by vector: 64, 32 and 16 bytes, or a plain number. The functions of each have its prefix, NAME, which ends in
   f_ in single precision. In mixed precision, a kernel with ANCHOR evaluates, in double precision, as many lanes as the
   kernel in single precision has, which calls it by EXACT. */
#ifdef CPU_X86
#define LANES 8
#define TARGET CPU_64_BYTES
#define NAME(x) pseudo8_##x
#include "pseudo_kernel.h"
#define LANES 16
#define TARGET CPU_64_BYTES
#define NAME(x) pseudo16_##x
#define ANCHOR
#include "pseudo_kernel.h"
#define LANES 16
#define TARGET CPU_64_BYTES
#define NAME(x) pseudo16f_##x
#define EXACT(x) pseudo16_##x
#define SINGLE
#include "pseudo_kernel.h"
#define LANES 4
#define TARGET CPU_32_BYTES
#define NAME(x) pseudo4_##x
#include "pseudo_kernel.h"
#define LANES 8
#define TARGET CPU_32_BYTES
#define NAME(x) pseudo8d_##x
#define ANCHOR
#include "pseudo_kernel.h"
#define LANES 8
#define TARGET CPU_32_BYTES
#define NAME(x) pseudo8f_##x
#define EXACT(x) pseudo8d_##x
#define SINGLE
#include "pseudo_kernel.h"
#endif
#ifdef CPU_VECTORS
#define LANES 2
#define TARGET
#define NAME(x) pseudo2_##x
#include "pseudo_kernel.h"
#define LANES 4
#define TARGET
#define NAME(x) pseudo4d_##x
#define ANCHOR
#include "pseudo_kernel.h"
#define LANES 4
#define TARGET
#define NAME(x) pseudo4f_##x
#define EXACT(x) pseudo4d_##x
#define SINGLE
#include "pseudo_kernel.h"
#endif
#define LANES 1
#define TARGET
#define NAME(x) pseudo1_##x
#include "pseudo_kernel.h"
#define LANES 1
#define TARGET
#define NAME(x) pseudo1f_##x
#define EXACT(x) pseudo1_##x
#define SINGLE
#include "pseudo_kernel.h"

/* Call the kernel function `name` with the arguments `list` (in parentheses), in the kernel for vectors of p->lanes
   numbers of p->number_bytes bytes: PSEUDO_SINGLES and PSEUDO_DOUBLES in single or double precision, PSEUDO_EXACT in
   double precision if steps are in single precision, PSEUDO_CALL in the best precision of the problem. PSEUDO_WIDE and
   PSEUDO_NARROW are links `condition ? call :` of a chain of conditional expressions, empty if this processor or
   compiler has no such vectors; the kernel of plain numbers ends the chain. */
#ifdef CPU_X86
#define PSEUDO_WIDE(wide, middle, list)                      \
    p->lanes * (ptrdiff_t)p->number_bytes == 64 ? wide list  \
    : p->lanes * (ptrdiff_t)p->number_bytes == 32 ? middle list :
#else
#define PSEUDO_WIDE(wide, middle, list)
#endif
#ifdef CPU_VECTORS
#define PSEUDO_NARROW(narrow, list) p->lanes * (ptrdiff_t)p->number_bytes == 16 ? narrow list :
#else
#define PSEUDO_NARROW(narrow, list)
#endif
#define PSEUDO_SINGLES(name, list) \
    (PSEUDO_WIDE(pseudo16f_##name, pseudo8f_##name, list) PSEUDO_NARROW(pseudo4f_##name, list) pseudo1f_##name list)
#define PSEUDO_DOUBLES(name, list) \
    (PSEUDO_WIDE(pseudo8_##name, pseudo4_##name, list) PSEUDO_NARROW(pseudo2_##name, list) pseudo1_##name list)
#define PSEUDO_EXACT(name, list) \
    (PSEUDO_WIDE(pseudo16_##name, pseudo8d_##name, list) PSEUDO_NARROW(pseudo4d_##name, list) pseudo1_##name list)
#define PSEUDO_CALL(name, list) \
    (p->mixed ? PSEUDO_EXACT(name, list) : p->number_bytes == sizeof(float) ? PSEUDO_SINGLES(name, list) \
                                                                            : PSEUDO_DOUBLES(name, list))

/* Write the weighted shares of pairs of columns, the first of a predictor in lane block `block`, the second of any
   predictor, to p->moments.second (D_counted, D); columns (m, n) are the level codes. Returns a solver_code, like all
   functions below; pseudo_entry.h contains them for one vector width. */
static int pseudo_count_moments(pseudo_problem *p, ptrdiff_t block, pseudo_columns columns)
{
    return PSEUDO_CALL(count_moments, (p, block, columns));
}

/* Minimise the objectives of the sites of task `task`, which consists of up to blocks_per_task lane blocks, from theta
   (D_s, 1 + D), in place; write the results of these sites to lane_out (n_sites,). In mixed precision this runs the
   kernel in single precision, which calls the other one. */
static int pseudo_solve(const pseudo_problem *p, ptrdiff_t task, const pseudo_options *o, double *theta,
                        pseudo_lane *lane_out)
{
    return p->number_bytes == sizeof(float) ? PSEUDO_SINGLES(solve, (p, task, o, theta, lane_out))
                                            : PSEUDO_DOUBLES(solve, (p, task, o, theta, lane_out));
}

/* Write the objectives value_out (n_sites,) and gradients gradient_out (D_s, 1 + D) of lane block `block` at theta. The
   objective contains lambda/2 |J|^2 + lambdah/2 |h|^2, with zero_sum for parameters minus their means over levels;
   column_penalty (D,), or NULL, is added to lambda for the couplings with each column; <theta, linear>, with linear
   (D_s, 1 + D) or NULL, is subtracted. */
static int pseudo_evaluate_objective(const pseudo_problem *p, ptrdiff_t block, const double *theta, double lambda,
                                     double lambdah, int zero_sum, const double *column_penalty, const double *linear,
                                     double *value_out, double *gradient_out)
{
    return PSEUDO_CALL(evaluate_objective, (p, block, theta, lambda, lambdah, zero_sum, column_penalty, linear,
                                            value_out, gradient_out));
}

/* Add the log normalisers of the sites of lane block `block`, means over the rows, to *sum_out, at theta (D_s, 1 + D)
   with its couplings multiplied by `factor` */
static int pseudo_add_normalisers(const pseudo_problem *p, ptrdiff_t block, const double *theta, double factor,
                                  double *sum_out)
{
    return PSEUDO_CALL(add_normalisers, (p, block, theta, factor, sum_out));
}
#endif
