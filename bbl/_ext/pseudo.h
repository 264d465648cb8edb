/* Pseudo-likelihood of one group: the problem, its preparation and the choice of the vector width at run time.

   For every site i, f_i = -(1/W) sum_k w_k ln P_i(x_i^k | rest) + lambdah/2 |h_i|^2 + lambda/2 |J_i|^2 is minimised on
   its own (Woo & Wang, eqs. 10-15); parameters of level 0 are zero.

   (a) Lanes are sites. A lane block of V sites is one work item: it reads the shared, constant problem and writes its
       own rows of the result, so any number of threads gives the same bits.
   (b) Composites. Neighbouring predictors are merged; the table of a composite's summed couplings is built by one
       addition per joint state, and a row then costs one load-add per composite, not per predictor.
   (c) Rows are stored as 16-bit offsets into these tables (forward), and sorted by joint state inside blocks that fit
       the first-level cache (backward), once for all sites, penalties and iterations.
   (d) Moments. The gradient is model expectation minus empirical moment; the moments <1[x_i = a] 1[x_j = b]> of all
       pairs are counted once. They also give the predictors' covariance, whose eigenvectors are the optimiser's metric.
   (e) Few joint states: equal rows are merged and their weights added.
   (f) pseudo_lanes.h (objective), pseudo_metric.h and pseudo_solve.h (optimiser) and pseudo_task.h (lane blocks) are
       included, by pseudo_kernel.h, once per vector width and precision, with names of their own; nothing is global.
       In single precision a vector has twice the lanes; the problem itself is the same.

   Conventions: n rows, m predictors, L_i levels, D = sum(L_i - 1) non-reference columns, start[i] the first of
   predictor i, V lanes, A the largest L_i - 1 of a lane block; theta (D, 1 + D): row (i, a), column 0 = h_i(a), column
   1 + (j, b) = J_i(a; j, b). */
#ifndef BBL_PSEUDO_H
#define BBL_PSEUDO_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PSEUDO_PAIRS 10         /* pairs that L-BFGS remembers, */
#define PSEUDO_LONG 524288      /* half as many where a vector has more bytes than this */
#define PSEUDO_TILE 3           /* logits that the forward pass takes at once */
#define PSEUDO_BLOCK 32768      /* bytes of one plane's row block, */
#define PSEUDO_PLANES 655360    /* of all planes that are held at once */
#define PSEUDO_ROTATED 40       /* up to so many logits the responses are rotated by the eigenvectors of S_i */
#define PSEUDO_CHECK 2e7        /* load-adds between two looks at pending signals: about 10 ms */
#define PSEUDO_OWNED 24
#define PSEUDO_MOST_LANES 16

typedef struct {
    ptrdiff_t n, m, D, lanes, n_tasks;
    size_t real;                 /* bytes of a number: 8, or 4 in single precision */
    ptrdiff_t n_composites, n_chunks, n_blocks, block, n_padded, D_padded;
    double total, scale, least;  /* W; weight/W or, where weights differ, 1/W; half a row */
    int equal;                   /* all weights are equal */
    const int32_t *n_levels;     /* (m,) */
    const uint8_t *mask;         /* (m, m) which predictors interact */
    ptrdiff_t *start;            /* (m + 1,) */
    ptrdiff_t *order;            /* (m,) sites in the order of the lanes */
    ptrdiff_t *first;            /* (n_composites + 1,) first predictor of a composite */
    ptrdiff_t *states;           /* (n_composites + 1,) first joint state of a composite */
    ptrdiff_t *chunk;            /* (n_chunks + 1,) first composite of a chunk */
    uint16_t *codes;             /* per chunk (n_padded, its composites): offset in numbers into the chunk's tables */
    uint16_t *sorted;            /* rows of each block and composite by joint state, see pseudo_sort */
    ptrdiff_t *sorted_first;     /* (n_blocks, n_composites): where these rows begin */
    double *weights;             /* (n,) */
    double *mean;                /* (1 + D,) share of each column, mean[0] = 0 */
    double *second;              /* (D, D) shares of pairs of columns */
    double *field;               /* (D,) h of the independent model */
    double *sigma, *spread;      /* (D,) eigenvalues, (m,) trace of S_i */
    double *rotation;            /* (A, A) eigenvectors of S_i at turn[i] */
    ptrdiff_t *turn;             /* (m,) */
    const float *project;        /* (D_padded / 8, D, 8) eigenvectors of the covariance, NULL for the block metric */
    const float *expand;         /* (D_padded / 8, D_padded, 8) the same, transposed */
    const double *eigenvalue;    /* (D_padded,) largest first */
    void *owned[PSEUDO_OWNED];
    int n_owned, failed;
    size_t bytes;
} pseudo_problem;

typedef struct {
    ptrdiff_t site[PSEUDO_MOST_LANES];  /* -1: no site in this lane */
    ptrdiff_t A, rank, span, pairs;  /* logits; leading eigenvectors; row blocks in the planes; pairs remembered */
    double tail;
    uint8_t *on, *chunk_on;  /* (n_composites,), (n_chunks,): has a neighbour of one of the sites */
    void *live;              /* (A, V) 1 where the site has this level */
} pseudo_task;

typedef struct {
    double value, norm;
    int32_t n_iter, n_eval, status;
} pseudo_lane;

typedef struct {
    double lambda, lambdah, tolerance;
    int32_t itmax;
    const int32_t *stop;  /* ends the run where it becomes non-zero; may be NULL */
    int (*check)(void);   /* called from time to time; non-zero ends the run */
} pseudo_options;

static inline ptrdiff_t pseudo_min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Codes of all predictors (m, n), in the narrower of two types; only set-up needs them */
typedef struct {
    uint8_t *narrow;  /* NULL where */
    uint16_t *wide;   /* codes exceed 255 */
} pseudo_columns;

static inline uint16_t pseudo_code(pseudo_columns from, ptrdiff_t at)
{
    return from.narrow ? from.narrow[at] : from.wide[at];
}

#include "pseudo_prepare.h"

/* Row blocks whose planes are held at once: what stays in the second-level cache, at least two blocks */
static ptrdiff_t pseudo_span(const pseudo_problem *p, ptrdiff_t A)
{
    const ptrdiff_t fit = PSEUDO_PLANES / (A * PSEUDO_BLOCK);
    return pseudo_min(fit > 2 ? fit : 2, p->n_blocks);
}

/* Long vectors cost more to remember than the saved evaluations bring */
static ptrdiff_t pseudo_pairs(const pseudo_problem *p, ptrdiff_t A)
{
    return A * (1 + p->D) * p->lanes * (ptrdiff_t)p->real > PSEUDO_LONG ? PSEUDO_PAIRS / 2 : PSEUDO_PAIRS;
}

/* Working memory of a lane block in numbers of its precision */
static size_t pseudo_task_numbers(const pseudo_problem *p, ptrdiff_t A)
{
    const size_t V = (size_t)p->lanes, P = (size_t)(1 + p->D);
    const size_t states = (size_t)p->states[p->n_composites];
    size_t tile = 0, c;
    for (c = 0; c < (size_t)p->n_chunks; c++) {
        const size_t size = (size_t)(p->states[p->chunk[c + 1]] - p->states[p->chunk[c]]);
        tile = size > tile ? size : tile;
    }
    return (size_t)A * P * V * (size_t)(6 + 2 * pseudo_pairs(p, A)) + P * V
        + (size_t)(A * pseudo_span(p, A) * (p->block + 1)) * V + states * V + PSEUDO_TILE * tile * V
        + (size_t)A * V * (size_t)(8 + (A <= PSEUDO_ROTATED ? A : 0)) + 8 * V
        + (size_t)(2 * p->D_padded) * V + (size_t)(p->n_composites + p->n_chunks) + 32 * 16;
}

/* Bytes of a prepared problem (the most during set-up) and of the working memory of one task, without preparing it.
   p has m, lanes and n_levels. Returns -1 without memory for the estimate itself. */
static int pseudo_estimate(pseudo_problem *p, ptrdiff_t n, ptrdiff_t most, ptrdiff_t bytes, double *shared,
                           double *task)
{
    ptrdiff_t i, A = 1, c;
    double sorted = 0.0, small, D;
    p->first = pseudo_take(p, (size_t)p->m + 1, sizeof *p->first);
    p->states = pseudo_take(p, (size_t)p->m + 1, sizeof *p->states);
    p->chunk = pseudo_take(p, (size_t)p->m + 1, sizeof *p->chunk);
    if (p->failed)
        return -1;
    for (i = 0, p->D = 0; i < p->m; i++) {
        p->D += p->n_levels[i] - 1;
        A = p->n_levels[i] - 1 > A ? p->n_levels[i] - 1 : A;
    }
    pseudo_size(p, n);
    pseudo_merge(p, most, bytes);
    for (c = 0; c < p->n_composites; c++)
        sorted += (double)p->n_blocks * (double)pseudo_sorted_bound(p->block, p->states[c + 1] - p->states[c]);
    D = (double)p->D;
    for (i = 0, small = 2048.0; i < p->m; i++)
        small += 8.0 + (p->n_levels[i] - 1 <= PSEUDO_ROTATED ? pow(p->n_levels[i] - 1, 2.0) : 0.0);
    small += 4.0 * D + (double)(p->n_blocks * p->n_composites);
    *shared = 2.0 * ((double)(n + 4) * (double)(p->m + p->n_composites) + sorted);
    *shared += 8.0 * (D * D + 3.0 * (double)n + small);
    *task = (double)p->real * (double)pseudo_task_numbers(p, A);
    return 0;
}

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define PSEUDO_X86 1
#define LANES 8
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define NAME(x) pseudo8_##x
#include "pseudo_kernel.h"
#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define NAME(x) pseudo16f_##x
#define PSEUDO_SINGLE
#include "pseudo_kernel.h"
#define LANES 4
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) pseudo4_##x
#include "pseudo_kernel.h"
#define LANES 8
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(x) pseudo8f_##x
#define PSEUDO_SINGLE
#include "pseudo_kernel.h"
#endif
#if defined(__GNUC__)
#define PSEUDO_VECTORS 1
#define LANES 2
#define TARGET
#define NAME(x) pseudo2_##x
#include "pseudo_kernel.h"
#define LANES 4
#define TARGET
#define NAME(x) pseudo4f_##x
#define PSEUDO_SINGLE
#include "pseudo_kernel.h"
#endif
#define LANES 1
#define TARGET
#define NAME(x) pseudo1_##x
#include "pseudo_kernel.h"
#define LANES 1
#define TARGET
#define NAME(x) pseudo1f_##x
#define PSEUDO_SINGLE
#include "pseudo_kernel.h"

/* Can this processor run vectors of so many doubles (twice as many floats, but for 1)? */
static int pseudo_has(int lanes)
{
#ifdef PSEUDO_X86
    __builtin_cpu_init();
    if (lanes == 8)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (lanes == 4)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef PSEUDO_VECTORS
    if (lanes == 2)
        return 1;
#endif
    return lanes == 1;
}

/* Bytes of a vector choose the kernel; a plain number is a kernel of its own */
#ifdef PSEUDO_X86
#define PSEUDO_WIDE(wide, middle, list) \
    p->lanes * (ptrdiff_t)p->real == 64 ? wide list : p->lanes * (ptrdiff_t)p->real == 32 ? middle list :
#else
#define PSEUDO_WIDE(wide, middle, list)
#endif
#ifdef PSEUDO_VECTORS
#define PSEUDO_NARROW(narrow, list) p->lanes * (ptrdiff_t)p->real == 16 ? narrow list :
#else
#define PSEUDO_NARROW(narrow, list)
#endif
#define PSEUDO_SINGLES(name, list) \
    (PSEUDO_WIDE(pseudo16f_##name, pseudo8f_##name, list) PSEUDO_NARROW(pseudo4f_##name, list) pseudo1f_##name list)
#define PSEUDO_DOUBLES(name, list) \
    (PSEUDO_WIDE(pseudo8_##name, pseudo4_##name, list) PSEUDO_NARROW(pseudo2_##name, list) pseudo1_##name list)
#define PSEUDO_CALL(name, list) \
    (p->real == sizeof(float) ? PSEUDO_SINGLES(name, list) : PSEUDO_DOUBLES(name, list))

/* Second moments of the columns of the sites of one task with all others, from the columns (m, n) of codes */
static int pseudo_moments(pseudo_problem *p, ptrdiff_t task, pseudo_columns columns)
{
    return PSEUDO_CALL(moments, (p, task, columns));
}

/* Minimise the objectives of one task's sites from theta (D, 1 + D) and write the optimum back; results (m,) at the
   sites. Returns 0, -1 where the check wants to stop, -2 without memory. */
static int pseudo_solve(const pseudo_problem *p, ptrdiff_t task, const pseudo_options *o, double *theta,
                        pseudo_lane *lane)
{
    return PSEUDO_CALL(solve, (p, task, o, theta, lane));
}

/* Objectives (at the sites) and their gradients (D, 1 + D) in the rows of one task */
static int pseudo_objective(const pseudo_problem *p, ptrdiff_t task, const double *theta, double lambda, double lambdah,
                            double *value, double *gradient)
{
    return PSEUDO_CALL(objective, (p, task, theta, lambda, lambdah, value, gradient));
}

/* Mean of the log normalisers with couplings times `factor`, summed over the task's sites */
static int pseudo_normaliser(const pseudo_problem *p, ptrdiff_t task, const double *theta, double factor, double *sum)
{
    return PSEUDO_CALL(normaliser, (p, task, theta, factor, sum));
}
#endif
