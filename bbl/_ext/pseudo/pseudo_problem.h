/* A pseudo-likelihood problem: its data structures, the memory that it owns, and the size of a lane block's working
   memory.

   Terms used in all pseudo*.h files, for n rows of m predictors with n_levels[i] levels each:
   - A *column* is the indicator of a non-reference level, D in all. Predictor j has the columns first_column[j] ...
     first_column[j + 1] - 1; moments.mean[1 + c] is the mean of column c.
   - A *site* is a predictor whose conditional distribution given the others is fitted. D_s is the number of columns of
     the sites.
   - A *lane block* consists of V = p->lanes sites that are fitted side by side, one in each lane of a vector; A is its
     number of logits, the largest n_levels[i] - 1 of its sites.
   - theta (D_s, 1 + D) has a row for each non-reference level of a site: the field, then the couplings with each
     column. Parameters x and gradients of a lane block are (A, P, V) with P = 1 + D, `size` numbers: for each logit,
     entry 0 is the centred field h' = h + <J, column means>, so that fields and couplings hardly interact, and entry 1
     + c is the coupling J with column c. In arrays (.., V) the lane is the last axis.
   - The *metric* of the optimiser is an approximate inverse Hessian, derived from S_i (A, A), the covariance of site
     i's own columns, and Cov (D, D), the covariance of all columns.
   - A *curvature pair* of L-BFGS is an accepted step s and the change y of the gradient along it.
   - A *composite* is a run of neighbouring predictors coded as one joint variable; its *joint state* is a number that
     represents all their levels, 0 if all are at the reference level. A *chunk* is a run of composites whose tables
     together fit into the L1 cache.
   - A *plane* contains one number for each row and lane; a *row block* is a run of block_rows rows whose plane fits
     into the L1 cache.
   - In mixed precision, an *anchor* is a point where the gradient is known in double precision; steps from it are taken
     in single precision. */
#ifndef PSEUDO_PROBLEM_H
#define PSEUDO_PROBLEM_H

#include "solver.h"
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In parentheses: the cases of `python -m benchmarks.run --suite fit` whose times depend on the value */
#define PSEUDO_MAX_PAIRS 10             /* curvature pairs kept by L-BFGS (all) */
#define PSEUDO_LONG_VECTOR 524288       /* L-BFGS keeps half as many for parameter vectors with more bytes (W4) */
#define PSEUDO_LEADING_PAIRS 3          /* pairs of such vectors if the metric has leading eigenvectors (family) */
#define PSEUDO_LEADING_RATIO 2.5        /* smallest ratio of largest to tail curvature to use these (family, W4) */
#define PSEUDO_EMPTY_SHARE 0.1          /* half rows that an empty level has in S_i if they are used (family) */
#define PSEUDO_LOGITS_AT_ONCE 3         /* logits computed in one pass over the row codes (W3, W4) */
#define PSEUDO_BLOCK_BYTES 32768        /* bytes of a plane's row block: an L1 cache (W1 to W4) */
#define PSEUDO_ALL_PLANES_BYTES 655360  /* bytes of all planes in memory at once: an L2 cache (W1 to W4) */
#define PSEUDO_MAX_ROTATED 40           /* maximum logits for which S_i is diagonalised; above, its diagonal is used */
#define PSEUDO_CHECK_EVERY 2e7          /* table look-ups between two checks for signals: about 10 ms */
#define PSEUDO_MAX_ALLOCATIONS 24       /* pieces of memory that a problem may own */
#define PSEUDO_MAX_LANES 16             /* lanes of the longest vector: 16 floats in 64 bytes */
#define PSEUDO_SUBSET_ROWS 6            /* rows whose subset sums form one table, see sum_rows_by_subsets (wide) */
#define PSEUDO_MAX_SKIPPED_SHARE 0.53   /* proportion of skipped states above which sorted rows are faster (W2, MNIST) */
#define PSEUDO_GROUP_ROWS 16            /* rows of a large group of sorted rows, a multiple of four (W1 to W4) */
#define PSEUDO_SKIP_SHARE 16            /* 1 / share of rows by which a skipped state is more frequent than state 0 */
#define PSEUDO_BLOCKS_PER_TASK 4        /* lane blocks solved together in wide problems (wide, W2, MNIST) */

/* The rows of a problem, equal rows merged */
typedef struct {
    ptrdiff_t n;
    double total;                /* W, the sum of the weights */
    double scale;                /* converts sums over rows to means: w/W for equal weights w, otherwise 1/W */
    double half_row;             /* 0.5 / W: the minimum share of an empty level */
    double uniform_share;        /* c / (W + c), pseudocount c: weight of the uniform distribution in targets */
    int equal_weights;           /* whether all weights are equal; sums over rows then omit them */
    double *weights;             /* (n,) */
} pseudo_rows;

/* The rows as codes of composites; n_blocks counts row blocks */
typedef struct {
    ptrdiff_t n_composites, n_chunks, n_blocks;
    ptrdiff_t block_rows;        /* rows per row block */
    ptrdiff_t n_padded;          /* n rounded up to a multiple of 8 */
    ptrdiff_t *first_predictor;  /* (n_composites + 1,) first predictor of each composite; last entry: m */
    ptrdiff_t *first_state;      /* (n_composites + 1,) first joint state of each composite, numbered over all */
    ptrdiff_t *first_composite;  /* (n_chunks + 1,) first composite of each chunk */
    uint16_t *codes;             /* for each chunk (n_padded, its composites): offset of a row's joint state in the
                                    chunk's tables, V times its number in the chunk */
    ptrdiff_t *skipped_state;    /* (n_composites,) the joint state whose rows are not in sorted_rows */
    uint16_t *sorted_rows;       /* rows of each row block grouped by each composite's state, see pseudo_sort_rows */
    ptrdiff_t *sorted_start;     /* (n_blocks, n_composites) positions in sorted_rows */
    uint16_t *subset_codes;      /* replaces sorted_rows in wide problems, otherwise NULL: see pseudo_encode_subsets */
    ptrdiff_t tables_at_once;    /* subset tables that fit into the L1 cache together */
} pseudo_composites;

/* Empirical moments of the columns, and the model without couplings */
typedef struct {
    ptrdiff_t D_counted;         /* columns of the first n_counted predictors, whose rows of `second` are filled */
    double *mean;                /* (1 + D,) weighted share of each column, mean[1 + c] for column c; mean[0] = 0 */
    double *second;              /* (D_counted, D) weighted shares of pairs of columns */
    double *independent_field;   /* (D,) field h of each column's level in the model without couplings */
} pseudo_second_moments;

/* The optimiser's metric: S_i times Cov, the covariance of all columns; see pseudo_metric.h */
typedef struct {
    int wide;                    /* whether the metric uses the inverse of Cov, which takes most of the time */
    int leading;                 /* whether it uses the few leading eigenvectors of Cov, where this is worthwhile */
    ptrdiff_t n_vectors;         /* eigenvectors in `project` and `expand`, a multiple of 8 */
    ptrdiff_t D_padded;          /* D rounded up to a multiple of 8 */
    double *sigma, *trace;       /* (D,) eigenvalues of S_i at site i's columns; (m,) trace of S_i */
    double *rotation;            /* eigenvectors of S_i, (A, A) for each site i, at rotation_start[i] */
    ptrdiff_t *rotation_start;   /* (m,) positions in `rotation` */
    const float *project;        /* (n_vectors / 8, D, 8) eigenvectors of Cov, eight side by side, or NULL */
    const float *expand;         /* (D_padded / 8, n_vectors, 8) the same, transposed, or NULL */
    const double *eigenvalue;    /* (D_padded,) of Cov, decreasing; beyond n_vectors the mean of all others */
    const float *inverse;        /* (D_padded / 8, D, 8) M = (Cov + ridge I)^-1, eight columns side by side, or NULL */
    const float *site_correction;  /* (D_s, D), with `inverse`: rows inv(M[i, i]) M[i, :] for each site's columns i */
    double ridge, lowest_eigenvalue, highest_eigenvalue;  /* the ridge in `inverse`; approximate eigenvalues of Cov */
} pseudo_metric_data;

/* The problem: shared by all lane blocks, and constant after preparation */
typedef struct {
    ptrdiff_t m, D, lanes, n_lane_blocks;  /* lanes: sites per lane block, V */
    ptrdiff_t n_sites;           /* the first n_sites predictors are sites; the others are only regressors */
    ptrdiff_t n_counted;         /* the first n_counted predictors have moments; 0: no moments are counted */
    size_t number_bytes;         /* 8, or 4 in single precision */
    ptrdiff_t blocks_per_task;   /* lane blocks that are solved together */
    int mixed;                   /* steps in single precision, gradients at anchors in double; see pseudo_pack.h */
    const int32_t *n_levels;     /* (m,) */
    const uint8_t *neighbours;   /* (n_sites, m) 1 if the site is regressed on the predictor */
    ptrdiff_t *first_column;     /* (m + 1,) first column of each predictor */
    ptrdiff_t *site_order;       /* (m,) sites in the order of the lanes, then the other predictors */
    pseudo_rows rows;
    pseudo_composites composites;
    pseudo_second_moments moments;
    pseudo_metric_data metric;
    void *owned[PSEUDO_MAX_ALLOCATIONS];  /* n_owned blocks of memory, freed by pseudo_free */
    int n_owned, failed;         /* failed: whether an allocation has failed */
    size_t bytes;                /* total size of all blocks in `owned` */
} pseudo_problem;

/* The sites of a lane block and the sizes of its arrays */
typedef struct {
    ptrdiff_t site[PSEUDO_MAX_LANES];  /* -1: no site in this lane */
    ptrdiff_t A, rank;           /* logits; number of leading eigenvectors of Cov used by the metric */
    ptrdiff_t plane_blocks;      /* row blocks whose planes are in memory at once */
    ptrdiff_t max_pairs;         /* curvature pairs of L-BFGS */
    double tail_eigenvalue;      /* replaces all eigenvalues of Cov beyond `rank` */
    uint8_t *needs_composite;    /* (n_composites,) whether it contains a neighbour of one of the sites */
    uint8_t *needs_chunk;        /* (n_chunks,) whether it contains such a composite */
    void *has_level;             /* (A, V) numbers: 1 if the lane's site has this level, otherwise 0 */
    float *anchor_prob;          /* (n_blocks, A, block_rows, V) probabilities at the anchor; NULL unless mixed */
} pseudo_block;

/* Result of one site: objective, norm of its gradient, accepted steps, evaluations, a solver_status */
typedef struct {
    double value, norm;
    int32_t n_iter, n_eval, status;
} pseudo_lane;

/* Terms that are added to the likelihood, and stopping criteria */
typedef struct {
    double lambda, lambdah;      /* ridge penalties of couplings and fields */
    double tolerance;            /* gradient norm at which a site has converged */
    const double *column_penalty;  /* (D,) added to lambda for the couplings with each column; or NULL */
    int zero_sum;                /* penalise fields and couplings in the zero-sum gauge; column_penalty is then NULL */
    const double *linear;        /* (D_s, 1 + D): <theta, linear> is subtracted from the objectives; or NULL */
    int32_t itmax;               /* maximum number of steps per site */
    const int32_t *stop;         /* non-zero if the run should end; or NULL */
    int (*check)(void);          /* called regularly; a non-zero result ends the run */
} pseudo_options;

/* Level codes of all predictors (m, n), in one of two types; needed only for the set-up */
typedef struct {
    uint8_t *narrow;             /* NULL if codes exceed 255 */
    uint16_t *wide;              /* NULL otherwise */
} pseudo_columns;

static inline ptrdiff_t pseudo_min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Number of rows in row block b */
static inline ptrdiff_t pseudo_block_size(const pseudo_problem *p, ptrdiff_t b)
{
    return pseudo_min(p->composites.block_rows, p->rows.n - b * p->composites.block_rows);
}

/* Number of subset tables for `rows` rows, rounded up to a multiple of four, since codes are read four at a time */
static inline ptrdiff_t pseudo_n_subset_tables(ptrdiff_t rows)
{
    return (rows + 4 * PSEUDO_SUBSET_ROWS - 1) / (4 * PSEUDO_SUBSET_ROWS) * 4;
}

/* Return the level code at `position`, which is i * n + k for predictor i in row k */
static inline uint16_t pseudo_read_code(pseudo_columns columns, ptrdiff_t position)
{
    return columns.narrow ? columns.narrow[position] : columns.wide[position];
}

/* Return memory for `count` zeroed items, owned by the problem, or NULL (with p->failed set) if there is none */
static void *pseudo_allocate(pseudo_problem *p, size_t count, size_t item_bytes)
{
    void *memory = calloc(count ? count : 1, item_bytes);
    if (!memory || p->n_owned == PSEUDO_MAX_ALLOCATIONS) {
        free(memory);
        p->failed = 1;
        return NULL;
    }
    p->owned[p->n_owned++] = memory;
    p->bytes += count * item_bytes;
    return memory;
}

/* Set `array` to `count` zeroed items owned by the problem, or to NULL, see pseudo_allocate */
#define PSEUDO_ALLOCATE(p, array, count) ((array) = pseudo_allocate(p, (size_t)(count), sizeof *(array)))

/* Free all memory owned by the problem */
static void pseudo_free(pseudo_problem *p)
{
    while (p->n_owned)
        free(p->owned[--p->n_owned]);
}

/* Number of row blocks whose planes, one for each of A logits, are in memory at once: as many as fit into the L2 cache,
   but at least two */
static ptrdiff_t pseudo_plane_blocks(const pseudo_problem *p, ptrdiff_t A)
{
    const ptrdiff_t n_fitting = PSEUDO_ALL_PLANES_BYTES / (A * PSEUDO_BLOCK_BYTES);
    return pseudo_min(n_fitting > 2 ? n_fitting : 2, p->composites.n_blocks);
}

/* Number of curvature pairs kept by L-BFGS for A logits: fewer for long vectors, for which a pair takes more time than
   the evaluations that it saves */
static ptrdiff_t pseudo_max_pairs(const pseudo_problem *p, ptrdiff_t A)
{
    const ptrdiff_t vector_bytes = A * (1 + p->D) * p->lanes * (ptrdiff_t)p->number_bytes;
    return vector_bytes <= PSEUDO_LONG_VECTOR ? PSEUDO_MAX_PAIRS
        : p->metric.leading ? PSEUDO_LEADING_PAIRS : PSEUDO_MAX_PAIRS / 2;
}

/* Upper bound of the working memory of a lane block with A logits, in numbers of its precision: the sum of the arrays
   allocated by allocate_lane_block, with V lanes and P entries in each row of parameters */
static size_t pseudo_task_numbers(const pseudo_problem *p, ptrdiff_t A)
{
    const pseudo_composites *composites = &p->composites;
    const size_t V = (size_t)p->lanes, P = (size_t)(1 + p->D);
    const size_t n_states = (size_t)composites->first_state[composites->n_composites];
    size_t chunk_states = 0, c;  /* largest number of joint states of a chunk */
    for (c = 0; c < (size_t)composites->n_chunks; c++) {
        const ptrdiff_t first = composites->first_composite[c], end = composites->first_composite[c + 1];
        const size_t states = (size_t)(composites->first_state[end] - composites->first_state[first]);
        chunk_states = states > chunk_states ? states : chunk_states;
    }
    if (p->metric.wide && chunk_states < (size_t)composites->tables_at_once << PSEUDO_SUBSET_ROWS)
        chunk_states = (size_t)composites->tables_at_once << PSEUDO_SUBSET_ROWS;
    /* 6: x, g, d, x_trial, g_trial, moment; 8 A + 8 bounds h, sigma, scratch, has_level (A each), sums (3 A + 6) and
       trace (1), times V */
    return (size_t)A * P * V * (size_t)(6 + 2 * pseudo_max_pairs(p, A)) + P * V  /* these, S and Y; mask */
        + (size_t)(A * pseudo_plane_blocks(p, A) * (composites->block_rows + 1)) * V + n_states * V  /* state_table */
        + PSEUDO_LOGITS_AT_ONCE * chunk_states * V  /* chunk_tables */
        + (size_t)A * V * (size_t)(8 + (A <= PSEUDO_MAX_ROTATED ? A : 0)) + 8 * V  /* these, rotation */
        /* left, right; site_correction */
        + (size_t)(2 * p->metric.D_padded) * V + (p->metric.wide ? (size_t)(A * p->D) * V + 16 : 0)
        + (size_t)(composites->n_composites + composites->n_chunks) + 32 * 16;  /* needs_*; arrays padded to 16 */
}
#endif
