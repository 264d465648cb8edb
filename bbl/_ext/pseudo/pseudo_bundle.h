/* What a lane block holds while it is solved; pseudo_kernel.h includes this file after pseudo_lanes.h.

   A *lane block* is V = LANES sites (predictors whose conditional distribution given the others is fitted) that are
   solved side by side, one in each lane of a vector. A is its number of logits, D the number of columns (indicators of
   non-reference levels of all predictors). Parameters x (A, 1 + D, V): column 0 of logit a is the centred field
   h(a) + sum_c J(a; c) mean_c, column 1 + c the coupling J(a; c). Arrays (.., V) have the lane last. */

/* Working arrays */
typedef struct {
    REAL *x, *g, *d;                /* (A, 1 + D, V) parameters, gradient, direction */
    REAL *x_trial, *g_trial;        /* (A, 1 + D, V) trial point of the line search and its gradient; also scratch */
    REAL *moment;                   /* (A, 1 + D, V) empirical moments of the site's levels with each column */
    REAL *S, *Y;                    /* (max_pairs, A, 1 + D, V) steps and gradient changes, a ring of curvature pairs */
    REAL *mask;                     /* (1 + D, V) 1 where the column has a parameter, else 0 */
    REAL *planes;                   /* (A, plane_blocks, block_rows + 1, V), see pseudo_lanes.h */
    REAL *state_table;              /* (joint states of all composites, V) */
    REAL *chunk_tables;             /* tables of one chunk for some logits, or subset tables */
    REAL *h, *sums;                 /* (A, V) fields; (3, 2 + A, V) sums over rows, see logits_to_probabilities */
    REAL *rotation, *sigma, *trace; /* (A, A, V), (A, V), (V,): eigenvectors, eigenvalues, trace of S_i, the covariance
                                       of the site's own columns */
    REAL *scratch;                  /* (A, V) */
    const double *column_penalty;   /* (D,) penalties beside lambda, or NULL */
    int zero_sum;                   /* penalties are in the zero-sum gauge */
    float *left, *right;            /* (D_padded, V) factor and product of multiply_panels */
    float *site_correction;         /* (A, D, V) rows of p->metric.site_correction of the lanes' sites, if it exists */
} NAME(lane_memory);
#define lane_memory NAME(lane_memory)

/* Objective, gradient norm, slope along the direction, and ratio kappa of the mean curvature sum_a p_a (1 - p_a) at the
   point to that of the model without couplings */
typedef struct {
    REAL f[LANES], norm[LANES], slope[LANES], kappa[LANES];
} NAME(evaluation);
#define evaluation NAME(evaluation)

/* Curvature pairs (s, y) in the ring S, Y: how many, the newest one's place, and 1 / <s, y>, 0 for an unused pair */
typedef struct {
    ptrdiff_t count, newest;
    REAL rho[PSEUDO_MAX_PAIRS][LANES];
} NAME(pair_history);
#define pair_history NAME(pair_history)

/* State of the line search in each lane */
typedef struct {
    evaluation now, trial;                     /* at x, at x_trial */
    pair_history history;
    REAL step[LANES], best_norm[LANES];        /* step along d; smallest gradient norm so far */
    double target_norm[LANES];                 /* gradient norm at which a lane stops */
    REAL scale[LANES];                         /* factor of the metric, where blocks are solved together */
    int scale_is_doubtful[LANES];              /* compute `scale` again: a step was refused, or far too short */
    int n_refused[LANES], n_stalled[LANES];    /* steps refused at this point; accepted steps without progress */
    WORD wants_direction[LANES], accepted[LANES];  /* masks: the lane needs a direction; it accepted its trial point */
    int n_stepping, any_wants_direction;       /* lanes that step; whether any lane needs a new direction */
    int by_slopes;                             /* the line search uses slopes alone */
} NAME(search_state);
#define search_state NAME(search_state)

typedef struct {
    pseudo_block t;
    lane_memory w;
    search_state s;
    pseudo_lane lane[LANES];                   /* result of each lane */
    void *memory;                              /* holds the arrays of t and w */
    int is_final[LANES];                       /* whether the lane's result is final */
#ifdef SINGLE
    pseudo_block exact_t;                /* in mixed precision: the block in double precision, at its anchor */
    EXACT(lane_memory) exact;
    void *exact_memory;
    double norm[LANES];                        /* gradient norm at the anchor */
    int n_no_progress[LANES];                  /* successive anchors that did not halve the norm */
    int n_waited;                              /* sum over lanes of evaluations spent waiting for an anchor */
#endif
} NAME(lane_block);
#define lane_block NAME(lane_block)
