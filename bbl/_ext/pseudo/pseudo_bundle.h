/* What a lane block holds while it is solved; pseudo_kernel.h includes this file after pseudo_lanes.h.

   A *lane block* is V = LANES sites (predictors whose conditional distribution given the others is fitted) that are
   solved side by side, one in each lane of a vector. A is its number of logits, D the number of columns (indicators of
   non-reference levels of all predictors). Parameters x (A, 1 + D, V): column 0 of logit a is the centred field
   h(a) + sum_c J(a; c) mean_c, column 1 + c the coupling J(a; c). Arrays (.., V) have the lane last. S_i (A, A) is the
   covariance of the own columns of a lane's site i. A *curvature pair* of L-BFGS is a step s and the change y of the
   gradient along it; its *metric* is an approximate inverse Hessian. In mixed precision an *anchor* is a point where
   the gradient is known in double precision, from which steps are taken in single precision. REAL is the number of this
   kernel, WORD an unsigned integer of its size; EXACT(f) is the name of f in double precision, where steps are in
   single. pseudo_problem.h defines pseudo_block, pseudo_lane and PSEUDO_MAX_PAIRS, the most curvature pairs. */

/* Working arrays */
typedef struct {
    REAL *x, *g, *d;                /* (A, 1 + D, V) parameters, gradient, direction */
    REAL *x_trial, *g_trial;        /* (A, 1 + D, V) trial point of the line search and its gradient; also scratch */
    REAL *moment;                   /* (A, 1 + D, V) empirical moments of the site's levels with each column */
    REAL *S, *Y;                    /* (max_pairs, A, 1 + D, V) steps and gradient changes, a ring of curvature pairs */
    REAL *mask;                     /* (1 + D, V) 1 where the column has a parameter, else 0 */
    REAL *planes;                   /* (A, plane_blocks, block_rows + 1, V), see pseudo_lanes.h */
    REAL *state_table;              /* (joint states of all composites, V) */
    REAL *chunk_tables;             /* tables of one chunk of composites for some logits, or subset tables */
    REAL *h, *sums;                 /* (A, V) fields, not centred; (3, 2 + A, V) sums, see logits_to_probabilities */
    REAL *rotation, *sigma, *trace; /* (A, A, V), (A, V), (V,): eigenvectors, eigenvalues, trace of S_i */
    REAL *scratch;                  /* (A, V) */
    const double *column_penalty;   /* (D,) penalties of each column's couplings, added to lambda; or NULL */
    int zero_sum;                   /* penalties are in the zero-sum gauge */
    float *left, *right;            /* (D_padded, V) factor and product of multiply_panels */
    float *site_correction;         /* (A, D, V) rows of p->metric.site_correction of the lanes' sites, if it exists */
} NAME(lane_memory);
#define lane_memory NAME(lane_memory)

/* Result of an evaluation in each lane: objective f, gradient norm, slope along the direction, and ratio kappa of the
   mean curvature sum_a p_a (1 - p_a), p_a the probability of level a, at the point to that without couplings */
typedef struct {
    REAL f[LANES], norm[LANES], slope[LANES], kappa[LANES];
} NAME(evaluation);
#define evaluation NAME(evaluation)

/* Curvature pairs (s, y) in the ring S, Y: their number, the position of the newest, and rho = 1 / <s, y> of each, or 0
   for a pair that is not to be used */
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
    int scale_is_doubtful[LANES];              /* whether `scale` is to be computed anew: a step was refused or much
                                                  too short */
    int n_refused[LANES], n_stalled[LANES];    /* trial points refused at this x; successive steps without progress */
    WORD wants_direction[LANES], accepted[LANES];  /* masks: the lane needs a direction; it accepted its trial point */
    int n_stepping, any_wants_direction;       /* lanes that step; whether any lane needs a new direction */
    int by_slopes;                             /* the line search compares slopes alone, not objectives */
} NAME(search_state);
#define search_state NAME(search_state)

/* A lane block with all that is needed to solve it */
typedef struct {
    pseudo_block t;                            /* its sites and sizes */
    lane_memory w;                             /* its working arrays */
    search_state s;                            /* its line searches */
    pseudo_lane lane[LANES];                   /* result of each lane */
    void *memory;                              /* holds the arrays of t and w */
    int is_final[LANES];                       /* whether the lane's result is final */
#ifdef SINGLE
    pseudo_block exact_t;                      /* in mixed precision t and w in double precision, at the anchor, and */
    EXACT(lane_memory) exact;
    void *exact_memory;                        /* the memory of their arrays */
    double norm[LANES];                        /* gradient norm at the anchor */
    int n_no_progress[LANES];                  /* successive anchors that did not halve the norm */
    int n_waited;                              /* evaluations that lanes spent waiting for an anchor, over all lanes */
#endif
} NAME(lane_block);
#define lane_block NAME(lane_block)
