/* Data of a lane block while it is solved; pseudo_kernel.h includes this file after pseudo_lanes.h.

   For terms see pseudo_problem.h (which also defines pseudo_block, pseudo_lane and PSEUDO_MAX_PAIRS, the maximum number
   of curvature pairs), for names pseudo_kernel.h. */

/* Working arrays */
typedef struct {
    REAL *x, *g, *d;                /* (A, 1 + D, V) parameters, gradient, direction */
    REAL *x_trial, *g_trial;        /* (A, 1 + D, V) trial point of the line search and its gradient; also scratch */
    REAL *moment;                   /* (A, 1 + D, V) empirical moments of the site's levels with each column */
    REAL *S, *Y;                    /* (max_pairs, A, 1 + D, V) steps and gradient changes, a ring of curvature pairs */
    REAL *mask;                     /* (1 + D, V) 1 if the column has a parameter, otherwise 0 */
    REAL *planes;                   /* (A, plane_blocks, block_rows + 1, V), see pseudo_lanes.h */
    REAL *state_table;              /* (joint states of all composites, V) */
    REAL *chunk_tables;             /* tables of one chunk of composites for some logits, or subset tables */
    REAL *h, *sums;                 /* (A, V) fields, not centred; (3, 2 + A, V) sums, see logits_to_probabilities */
    REAL *rotation, *sigma, *trace; /* (A, A, V), (A, V), (V,): eigenvectors, eigenvalues, trace of S_i */
    REAL *scratch;                  /* (A, V) */
    const double *column_penalty;   /* (D,) penalties of each column's couplings, added to lambda; or NULL */
    int zero_sum;                   /* whether penalties are in the zero-sum gauge */
    float *left, *right;            /* (D_padded, V) factor and product of multiply_panels */
    float *site_correction;         /* (A, D, V) rows of p->metric.site_correction for the lanes' sites, if it exists */
} NAME(lane_memory);
#define lane_memory NAME(lane_memory)

/* Result of an evaluation in each lane: objective f, gradient norm, slope along the direction, and kappa, the ratio of
   the mean curvature sum_a p_a (1 - p_a) at the point, where p_a is the probability of level a, to the mean curvature
   without couplings */
typedef struct {
    REAL f[LANES], norm[LANES], slope[LANES], kappa[LANES];
} NAME(evaluation);
#define evaluation NAME(evaluation)

/* Curvature pairs (s, y) in the ring buffers S, Y: their number, the position of the newest, and rho = 1 / <s, y> for
   each, or 0 for a pair that must not be used */
typedef struct {
    ptrdiff_t count, newest;
    REAL rho[PSEUDO_MAX_PAIRS][LANES];
} NAME(pair_history);
#define pair_history NAME(pair_history)

/* State of the line search in each lane */
typedef struct {
    evaluation now, trial;                     /* results at x and at x_trial */
    pair_history history;
    REAL step[LANES], best_norm[LANES];        /* step along d; smallest gradient norm so far */
    double target_norm[LANES];                 /* gradient norm at which a lane stops */
    REAL scale[LANES];                         /* factor of the metric, used where blocks are solved together */
    int scale_is_doubtful[LANES];              /* whether `scale` must be recomputed: a step was refused or much too
                                                  short */
    int n_refused[LANES], n_stalled[LANES];    /* trial points refused at this x; successive steps without progress */
    WORD wants_direction[LANES], accepted[LANES];  /* masks: the lane needs a direction; has accepted its trial point */
    int n_stepping, any_wants_direction;       /* lanes that step; whether any lane needs a new direction */
    int by_slopes;                             /* whether the line search only compares slopes, not objectives */
} NAME(search_state);
#define search_state NAME(search_state)

/* A lane block with all data needed to solve it */
typedef struct {
    pseudo_block t;                            /* its sites and sizes */
    lane_memory w;                             /* its working arrays */
    search_state s;                            /* its line searches */
    pseudo_lane lane[LANES];                   /* result of each lane */
    void *memory;                              /* contains the arrays of t and w */
    int is_final[LANES];                       /* whether the lane's result is final */
#ifdef SINGLE
    pseudo_block exact_t;                      /* in mixed precision t and w in double precision, at the anchor, and */
    EXACT(lane_memory) exact;
    void *exact_memory;                        /* the memory of their arrays */
    double norm[LANES];                        /* gradient norm at the anchor */
    int n_no_progress[LANES];                  /* successive anchors that did not halve the norm */
    int n_waited;                              /* evaluations that lanes have waited for an anchor, over all lanes */
#endif
} NAME(lane_block);
#define lane_block NAME(lane_block)
