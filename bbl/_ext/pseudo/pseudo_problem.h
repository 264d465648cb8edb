/* A pseudo-likelihood problem: what the set-up makes, what the kernels read, the memory that it owns and that a task
   takes. The design note and the conventions of all files pseudo*.h stand in pseudo.h. */
#ifndef PSEUDO_PROBLEM_H
#define PSEUDO_PROBLEM_H

#include "solver.h"
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
#define PSEUDO_ROWS 6           /* rows whose subsets of sums are a table in wide problems, */
#define PSEUDO_BARE 0.53        /* unless so many joint states are references, which sorted rows leave out (measured) */
#define PSEUDO_PACK 4           /* lane blocks that are solved together where the metric is what takes the time */

/* The rows of a problem, equal ones merged */
typedef struct {
    ptrdiff_t n;
    double total, scale, least;  /* W; weight/W or, where weights differ, 1/W; half a row */
    double mix;                  /* share of the uniform distribution in every target, c/(W + c) */
    int equal;                   /* all weights are equal */
    double *weights;             /* (n,) */
} pseudo_rows;

/* Neighbouring predictors that are read as one, chunks of these whose tables fit 16-bit offsets, and blocks of rows */
typedef struct {
    ptrdiff_t n_composites, n_chunks, n_blocks;
    ptrdiff_t block, n_padded;   /* rows of a block; rows of all blocks */
    ptrdiff_t *first;            /* (n_composites + 1,) first predictor of a composite */
    ptrdiff_t *states;           /* (n_composites + 1,) first joint state of a composite */
    ptrdiff_t *chunk;            /* (n_chunks + 1,) first composite of a chunk */
    uint16_t *codes;             /* per chunk (n_padded, its composites): offset in numbers into the chunk's tables */
    uint16_t *sorted;            /* rows of each block and composite by joint state, see pseudo_sort */
    ptrdiff_t *sorted_first;     /* (n_blocks, n_composites): where these rows begin */
    uint16_t *turned;            /* of wide problems in place of `sorted`, or NULL: codes of columns in PSEUDO_ROWS rows */
    ptrdiff_t n_turned;          /* at a time, per row block and so many of their tables (D_padded, tables) */
} pseudo_composites;

/* Empirical moments, and the model without couplings */
typedef struct {
    ptrdiff_t D_counted;         /* columns of the predictors whose rows of `second` are filled */
    double *mean;                /* (1 + D,) share of each column, mean[0] = 0 */
    double *second;              /* (D_counted, D) shares of pairs of columns */
    double *field;               /* (D,) h of the independent model */
} pseudo_second_moments;

/* The optimiser's metric: S_i, the covariance of a predictor's own levels, times the covariance of all columns */
typedef struct {
    int wide;                    /* the metric is all of the covariance, see pseudo_metric.h, and takes the most time */
    ptrdiff_t D_padded;
    double *sigma, *spread;      /* (D,) eigenvalues, (m,) trace of S_i */
    double *rotation;            /* (A, A) eigenvectors of S_i at turn[i] */
    ptrdiff_t *turn;             /* (m,) */
    const float *project;        /* (D_padded / 8, D, 8) eigenvectors of the covariance, NULL for the block metric */
    const float *expand;         /* (D_padded / 8, D_padded, 8) the same, transposed */
    const double *eigenvalue;    /* (D_padded,) largest first */
    const float *inverse;        /* of wide problems: (D_padded / 8, D, 8) (covariance + ridge)^-1; NULL elsewhere */
    const float *own;            /* (D_sites, D) it times the inverse of its block of the site; NULL elsewhere */
    double ridge, lowest, highest;  /* its ridge; the covariance's extreme eigenvalues, about */
} pseudo_metric_data;

typedef struct {
    ptrdiff_t m, D, lanes, n_tasks;
    ptrdiff_t n_sites;           /* the first predictors respond; the others are regressors only */
    ptrdiff_t n_counted;         /* the first predictors, whose rows of `second` are filled; 0: moments are not counted */
    size_t real;                 /* bytes of a number: 8, or 4 in single precision */
    ptrdiff_t pack;              /* lane blocks that are solved together */
    int mixed;                   /* steps in single precision, gradients at anchors in double; see pseudo_pack.h */
    const int32_t *n_levels;     /* (m,) */
    const uint8_t *mask;         /* (n_sites, m) what each site is regressed on */
    ptrdiff_t *start;            /* (m + 1,) */
    ptrdiff_t *order;            /* (m,) sites in the order of the lanes */
    pseudo_rows rows;
    pseudo_composites composites;
    pseudo_second_moments moments;
    pseudo_metric_data metric;
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
    float *base;             /* (n_blocks, A, block, V) probabilities at the anchor in mixed precision, or NULL */
} pseudo_task;

typedef struct {
    double value, norm;
    int32_t n_iter, n_eval, status;
} pseudo_lane;

typedef struct {
    double lambda, lambdah, tolerance;
    const double *more;   /* (D,) what the couplings of a column have beside lambda; may be NULL */
    int zero_sum;         /* penalties are of fields and couplings in the zero-sum gauge; without `more` */
    const double *linear; /* (D, 1 + D) as theta: <theta, linear> is taken off the objectives; may be NULL */
    int32_t itmax;
    const int32_t *stop;  /* ends the run where it becomes non-zero; may be NULL */
    int (*check)(void);   /* called from time to time; non-zero ends the run */
} pseudo_options;

static inline ptrdiff_t pseudo_min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Tables of the exchanged pass that so many rows need, in fours */
static inline ptrdiff_t pseudo_tables(ptrdiff_t rows) { return (rows + 4 * PSEUDO_ROWS - 1) / (4 * PSEUDO_ROWS) * 4; }

/* Codes of all predictors (m, n), in the narrower of two types; only set-up needs them */
typedef struct {
    uint8_t *narrow;  /* NULL where */
    uint16_t *wide;   /* codes exceed 255 */
} pseudo_columns;

static inline uint16_t pseudo_code(pseudo_columns from, ptrdiff_t at)
{
    return from.narrow ? from.narrow[at] : from.wide[at];
}

/* Zeroed memory that the problem owns; p->failed is set where there is none */
static void *pseudo_take(pseudo_problem *p, size_t count, size_t item)
{
    void *memory = calloc(count ? count : 1, item);
    if (!memory || p->n_owned == PSEUDO_OWNED) {
        free(memory);
        p->failed = 1;
        return NULL;
    }
    p->owned[p->n_owned++] = memory;
    p->bytes += count * item;
    return memory;
}

static void pseudo_free(pseudo_problem *p)
{
    while (p->n_owned)
        free(p->owned[--p->n_owned]);
}

/* Row blocks whose planes are held at once: what stays in the second-level cache, at least two blocks */
static ptrdiff_t pseudo_span(const pseudo_problem *p, ptrdiff_t A)
{
    const ptrdiff_t fit = PSEUDO_PLANES / (A * PSEUDO_BLOCK);
    return pseudo_min(fit > 2 ? fit : 2, p->composites.n_blocks);
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
    const size_t states = (size_t)p->composites.states[p->composites.n_composites];
    size_t tile = 0, c;
    for (c = 0; c < (size_t)p->composites.n_chunks; c++) {
        const size_t size = (size_t)(p->composites.states[p->composites.chunk[c + 1]] - p->composites.states[p->composites.chunk[c]]);
        tile = size > tile ? size : tile;
    }
    if (p->metric.wide && tile < (size_t)p->composites.n_turned << PSEUDO_ROWS)
        tile = (size_t)p->composites.n_turned << PSEUDO_ROWS;
    return (size_t)A * P * V * (size_t)(6 + 2 * pseudo_pairs(p, A)) + P * V
        + (size_t)(A * pseudo_span(p, A) * (p->composites.block + 1)) * V + states * V + PSEUDO_TILE * tile * V
        + (size_t)A * V * (size_t)(8 + (A <= PSEUDO_ROTATED ? A : 0)) + 8 * V
        + (size_t)(2 * p->metric.D_padded) * V + (p->metric.wide ? (size_t)(A * p->D) * V + 16 : 0)
        + (size_t)(p->composites.n_composites + p->composites.n_chunks) + 32 * 16;
}
#endif
