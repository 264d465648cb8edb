/* Pseudo-likelihood of one group: the problem, its preparation and the choice of the vector width at run time.

   For every site i, f_i = -(1/W) sum_k w_k ln P_i(x_i^k | rest) + lambdah/2 |h_i|^2 + lambda/2 |J_i|^2 is minimised on
   its own (Woo & Wang, eqs. 10-15); parameters of level 0 are zero. The penalties may be of the zero-sum gauge instead.

   (a) Lanes are sites. A lane block of V sites is one work item: it reads the shared, constant problem and writes its
       own rows of the result, so any number of threads gives the same bits.
   (b) Composites. Neighbouring predictors are merged; the table of a composite's summed couplings is built by one
       addition per joint state, and a row then costs one load-add per composite, not per predictor.
   (c) Rows are stored as 16-bit offsets into these tables (forward), and sorted by joint state inside blocks that fit
       the first-level cache (backward), once for all sites, penalties and iterations.
   (d) Moments. The gradient is model expectation minus empirical moment; the moments <1[x_i = a] 1[x_j = b]> of all
       pairs are counted once. They also give the predictors' covariance, whose eigenvectors are the optimiser's metric.
       A linear term <theta, linear> that is taken off every objective adds to them. Of a problem that is one block of
       more rows they are not counted: log normalisers and their gradients alone are what sums over blocks.
   (e) Few joint states: equal rows are merged and their weights added.
   (f) Sites are the first predictors. Further ones, joint levels of several (terms of order 3 and more), are what sites
       are regressed on, and do not respond themselves.
   (g) pseudo_kernel.h, which has a table of its parts, is included once per vector width and precision, with names of
       its own; nothing is global. In single precision a vector has twice the lanes; the problem itself is the same.
   (h) Mixed precision: steps in single precision, gradients where it counts in double; see pseudo_pack.h.

   Conventions of all files pseudo*.h: n rows, m predictors, L_i levels, D = sum(L_i - 1) non-reference columns,
   start[i] the first of predictor i, V lanes, A the largest L_i - 1 of a lane block; theta (D, 1 + D): row (i, a),
   column 0 = h_i(a), column 1 + (j, b) = J_i(a; j, b); it has the rows of the sites. Vectors of lanes have the lane last. What a function writes
   without reading it first, or only adds to, is called *_out; what it changes in place is not const. */
#ifndef PSEUDO_H
#define PSEUDO_H

#include "cpu.h"
#include "pseudo_prepare.h"
#include "pseudo_problem.h"

/* Bytes of a prepared problem (the most during set-up) and of the working memory of one task, without preparing it.
   p has m, n_sites, n_counted, lanes and n_levels. Returns a solver_code. */
static int pseudo_estimate(pseudo_problem *p, ptrdiff_t n, ptrdiff_t most, ptrdiff_t bytes, double *shared_out,
                           double *task_out)
{
    ptrdiff_t i, A = 1, c;
    double sorted = 0.0, small, D;
    p->composites.first_predictor = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_predictor);
    p->composites.first_state = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_state);
    p->composites.first_composite = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_composite);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    for (i = 0, p->D = 0; i < p->m; i++) {
        p->D += p->n_levels[i] - 1;
        p->moments.D_counted = i < p->n_counted ? p->D : p->moments.D_counted;
        A = i < p->n_counted && p->n_levels[i] - 1 > A ? p->n_levels[i] - 1 : A;
    }
    pseudo_set_sizes(p, n);
    pseudo_form_composites(p, most, bytes);
    for (c = 0; c < p->composites.n_composites; c++)
        sorted += (double)p->composites.n_blocks * (double)pseudo_sorted_bound(p->composites.block_rows, p->composites.first_state[c + 1] - p->composites.first_state[c]);
    if (p->metric.wide)
        sorted = fmax(sorted, (double)(p->composites.n_blocks * (p->composites.block_rows / PSEUDO_SUBSET_ROWS) * p->metric.D_padded));
    D = (double)p->D;
    for (i = 0, small = 2048.0; i < p->n_sites; i++)
        small += 8.0 + (p->n_levels[i] - 1 <= PSEUDO_MAX_ROTATED ? pow(p->n_levels[i] - 1, 2.0) : 0.0);
    small += 4.0 * D + (double)(p->composites.n_blocks * p->composites.n_composites);
    *shared_out = 2.0 * ((double)(n + 4) * (double)(p->m + p->composites.n_composites) + sorted);
    *shared_out += 8.0 * ((double)p->moments.D_counted * D + 3.0 * (double)n + small + 2.0 * (double)p->m);
    *task_out = (double)p->number_bytes * (double)pseudo_task_numbers(p, A);
    if (p->mixed) {  /* as many lanes of twice the bytes, whose pairs are never written; probabilities at an anchor */
        *task_out *= 3.0;
        *task_out -= 4.0 * (double)p->number_bytes * (double)(pseudo_max_pairs(p, A) * A * (1 + p->D) * p->lanes);
        *task_out += (double)(p->composites.n_blocks * p->composites.block_rows * A * p->lanes) * sizeof(float);
    }
    *task_out *= (double)p->blocks_per_task;
    return SOLVER_DONE;
}

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

/* Bytes of a vector choose the kernel; a plain number is a kernel of its own */
#ifdef CPU_X86
#define PSEUDO_WIDE(wide, middle, list) \
    p->lanes * (ptrdiff_t)p->number_bytes == 64 ? wide list : p->lanes * (ptrdiff_t)p->number_bytes == 32 ? middle list :
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

/* Second moments of the columns of the sites of one task with all others, from the columns (m, n) of codes */
static int pseudo_moments(pseudo_problem *p, ptrdiff_t task, pseudo_columns columns)
{
    return PSEUDO_CALL(moments, (p, task, columns));
}

/* Minimise the objectives of one task's sites from theta (D, 1 + D) and write the optimum back; results (m,) at the
   sites. Returns a solver_code. */
static int pseudo_solve(const pseudo_problem *p, ptrdiff_t task, const pseudo_options *o, double *theta,
                        pseudo_lane *lane_out)
{
    return p->number_bytes == sizeof(float) ? PSEUDO_SINGLES(solve, (p, task, o, theta, lane_out))
                                    : PSEUDO_DOUBLES(solve, (p, task, o, theta, lane_out));
}

/* Objectives (at the sites) and their gradients (D, 1 + D) in the rows of one task */
static int pseudo_objective(const pseudo_problem *p, ptrdiff_t task, const double *theta, double lambda, double lambdah,
                            int zero_sum, const double *more, const double *linear, double *value_out,
                            double *gradient_out)
{
    return PSEUDO_CALL(objective, (p, task, theta, lambda, lambdah, zero_sum, more, linear, value_out, gradient_out));
}

/* Mean of the log normalisers with couplings times `factor`, summed over the task's sites */
static int pseudo_normaliser(const pseudo_problem *p, ptrdiff_t task, const double *theta, double factor,
                             double *sum_out)
{
    return PSEUDO_CALL(normaliser, (p, task, theta, factor, sum_out));
}
#endif
