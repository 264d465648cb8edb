/* What a lane block holds while it is solved; pseudo_kernel.h includes it after pseudo_lanes.h.

   Conventions: as in pseudo_lanes.h. */

typedef struct {
    REAL *x, *g, *d, *xt, *gt, *moment;  /* (A, 1 + D, V) point, gradient, direction, trial point and its gradient */
    REAL *S, *Y;                         /* (pairs, A, 1 + D, V) steps and gradient changes */
    REAL *mask;                          /* (1 + D, V) 1 where the column is a parameter */
    REAL *planes, *table, *tiles;        /* see pseudo_lanes.h */
    REAL *h, *sums;                        /* (A, V), (3, 2 + A, V) */
    REAL *rotation, *sigma, *spread;     /* (A, A, V), (A, V), (V,) S_i: eigenvectors, eigenvalues, trace */
    REAL *columns;                       /* (A, V) scratch */
    const double *more;                  /* (D,) penalties beside lambda, or NULL */
    int zero_sum;                        /* penalties in the zero-sum gauge */
    float *left, *right;                   /* (D_padded, V) scratch */
    float *own;                            /* (A, D, V) rows of p->own of the lanes' sites, where there is one */
} NAME(lane_memory);
#define lane_memory NAME(lane_memory)

typedef struct {
    REAL f[LANES], norm[LANES], slope[LANES], kappa[LANES];
} NAME(evaluation);
#define evaluation NAME(evaluation)

typedef struct {
    ptrdiff_t count, newest;
    REAL rho[PSEUDO_PAIRS][LANES];
} NAME(pair_history);
#define pair_history NAME(pair_history)

typedef struct {
    evaluation now, trial;
    pair_history past;
    REAL step[LANES], best_norm[LANES];        /* step along d; smallest gradient norm so far */
    double target_norm[LANES];                   /* gradient norm at which a lane stops */
    REAL scale[LANES];                    /* of the start metric, where blocks are solved together */
    int scale_is_doubtful[LANES];                     /* whether to measure `scale` again: a step was refused, or far too short */
    int n_refused[LANES], n_stalled[LANES];   /* steps refused at this point; accepted steps without progress */
    WORD wants_direction[LANES], accepted[LANES];      /* masks: lanes that need a new direction, that accepted the trial point */
    int n_stepping, any_wants_direction;                   /* lanes that step; whether any lane needs a new direction */
    int by_slopes;                           /* the line search uses slopes alone */
} NAME(search_state);
#define search_state NAME(search_state)

typedef struct {
    pseudo_task t;
    lane_memory w;
    search_state s;
    pseudo_lane lane[LANES];
    void *memory;
    int is_final[LANES];                      /* whether the report of a lane is final */
#ifdef SINGLE
    pseudo_task exact_t;                  /* in mixed precision, see pseudo_pack.h */
    EXACT(lane_memory) exact;
    void *exact_memory;
    double norm[LANES];                   /* of the gradient at the anchor */
    int n_no_progress[LANES], waited;                /* anchors without progress; evaluations that waiting lanes missed */
#endif
} NAME(lane_block);
#define lane_block NAME(lane_block)
