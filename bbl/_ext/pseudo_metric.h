/* Start metric of the optimiser; pseudo_kernel.h includes it after pseudo_lanes.h.

   (a) It is the Hessian at the independent model, S_i (x) Cov + lambda, with S_i = diag(f_i) - f_i f_i' of the
       responding site and Cov the predictors' covariance; fields and couplings are decoupled by centring.
   (b) The responses are rotated by the eigenvectors of S_i. Cov enters by its leading eigenvectors and the mean of the
       others (Kronecker), or by its diagonal blocks, whose inverse is known in closed form (blocks).
   (c) S_i is multiplied by kappa, the ratio of the mean of sum_a p_a (1 - p_a) at the current point to that at
       independence: for a binary site the exact mean curvature.

   Conventions: as in pseudo_lanes.h; q is a vector of (A, P, V), P = 1 + D. */

typedef struct {
    REAL *x, *g, *d, *xt, *gt, *moment;  /* (A, 1 + D, V) point, gradient, direction, trial point and its gradient */
    REAL *S, *Y;                         /* (pairs, A, 1 + D, V) steps and gradient changes */
    REAL *mask;                          /* (1 + D, V) 1 where the column is a parameter */
    REAL *planes, *table, *tiles;        /* see pseudo_lanes.h */
    REAL *h, *sums;                        /* (A, V), (2, 2 + A, V) */
    REAL *rotation, *sigma, *spread;     /* (A, A, V), (A, V), (V,) S_i: eigenvectors, eigenvalues, trace */
    REAL *columns;                       /* (A, V) scratch */
    const double *more;                  /* (D,) penalties beside lambda, or NULL */
    int zero_sum;                        /* penalties in the zero-sum gauge */
    float *left, *right;                   /* (D_padded, V) scratch */
} NAME(work);
#define work NAME(work)

/* q (A, P, V) to E' q (back = 0) or E q (back = 1), E (A, A, V) the eigenvectors of S_i in its columns */
TARGET static void NAME(rotate)(const pseudo_problem *p, const pseudo_task *t, const work *w, int back, REAL *q)
{
    const ptrdiff_t P = 1 + p->D, A = t->A, row = (back ? A : 1) * LANES, col = (back ? 1 : A) * LANES;
    ptrdiff_t a, b, c;
    for (c = 0; c < P; c++, q += LANES) {
        for (a = 0; a + 4 <= A; a += 4) {
            const REAL *E = w->rotation + a * row;
            vec v0 = fill(0.0), v1 = v0, v2 = v0, v3 = v0;
            for (b = 0; b < A; b++, E += col) {
                const vec u = load(q + b * P * LANES);
                v0 += load(E) * u;
                v1 += load(E + row) * u;
                v2 += load(E + 2 * row) * u;
                v3 += load(E + 3 * row) * u;
            }
            store(w->columns + a * LANES, v0);
            store(w->columns + (a + 1) * LANES, v1);
            store(w->columns + (a + 2) * LANES, v2);
            store(w->columns + (a + 3) * LANES, v3);
        }
        for (; a < A; a++) {
            vec v = fill(0.0);
            for (b = 0; b < A; b++)
                v += load(w->rotation + a * row + b * col) * load(q + b * P * LANES);
            store(w->columns + a * LANES, v);
        }
        for (a = 0; a < A; a++)
            store(q + a * P * LANES, load(w->columns + a * LANES));
    }
}

#if LANES > 1
typedef float NAME(vf) __attribute__((vector_size(4 * LANES)));
#define NARROW(v) __builtin_convertvector(v, vf)
#define WIDEN(v) __builtin_convertvector(v, vec)
#else
typedef float NAME(vf);
#define NARROW(v) ((float)(v))
#define WIDEN(v) ((REAL)(v))
#endif
#define vf NAME(vf)
TARGET static inline vf NAME(loadf)(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
TARGET static inline void NAME(storef)(float *p, vf v) { memcpy(p, &v, sizeof v); }

/* out (8 * panels, V) = panels (panels, stride, 8)' times in (depth, V), 8 rows at a time; a panel is read in order */
TARGET static void NAME(product)(const float *panel, ptrdiff_t stride, ptrdiff_t panels, ptrdiff_t depth,
                                 const float *in, float *out)
{
    ptrdiff_t k, c, u;
    for (k = 0; k < panels; k++, panel += 8 * stride, out += 8 * LANES) {
        vf s[8];
        for (u = 0; u < 8; u++)
            s[u] = (vf){0};
        for (c = 0; c < depth; c++) {
            const vf v = NAME(loadf)(in + c * LANES);
            for (u = 0; u < 8; u++)
                s[u] += v * panel[8 * c + u];
        }
        for (u = 0; u < 8; u++)
            NAME(storef)(out + u * LANES, s[u]);
    }
}

/* q (D, V) times (sigma Cov + lambda)^-1, Cov by its `rank` leading eigenvectors and `tail` for all others.
   In single precision: it is a metric, the gradient is not touched by its rounding. */
TARGET static void NAME(kronecker)(const pseudo_problem *p, const work *w, ptrdiff_t rank, REAL tail, vec sigma,
                                   REAL lambda, REAL *q)
{
    const vec rest = fill(1.0) / (sigma * tail + lambda);
    vec size = fill(0.0);
    ptrdiff_t c, k;
    for (c = 0; c < p->D; c++)
        size = NAME(larger)(NAME(larger)(load(q + c * LANES), -load(q + c * LANES)), size);
    size = NAME(larger)(size, fill(TINY));
    for (c = 0; c < p->D; c++)  /* scaled, so that small gradients do not underflow */
        NAME(storef)(w->left + c * LANES, NARROW(load(q + c * LANES) / size));
    NAME(product)(p->project, p->D, rank / 8, p->D, w->left, w->right);
    for (k = 0; k < rank; k++) {
        const vec gain = fill(1.0) / (sigma * (REAL)p->eigenvalue[k] + lambda) - rest;
        NAME(storef)(w->right + k * LANES, NARROW(WIDEN(NAME(loadf)(w->right + k * LANES)) * gain));
    }
    NAME(product)(p->expand, p->D_padded, p->D_padded / 8, rank, w->right, w->left);
    for (c = 0; c < p->D; c++)
        store(q + c * LANES, load(q + c * LANES) * rest + WIDEN(NAME(loadf)(w->left + c * LANES)) * size);
}

/* The same with Cov taken as diag(mean) - mean mean' within each predictor and 0 between predictors */
TARGET static void NAME(blocks)(const pseudo_problem *p, const work *w, vec sigma, REAL ridge, REAL *q)
{
    const REAL least = (REAL)p->least;
    ptrdiff_t j, c;
    for (j = 0; j < p->m; j++) {
        const REAL lambda = w->more ? ridge + (REAL)w->more[p->start[j]] : ridge;
        REAL *gain = w->table;  /* free between passes; it has a row for each level and more */
        vec dot = fill(0.0), left = fill(1.0);
        for (c = p->start[j]; c < p->start[j + 1]; c++) {
            const REAL mean = p->mean[1 + c] > p->least ? (REAL)p->mean[1 + c] : least;
            const vec inverse = fill(1.0) / (sigma * mean + lambda), v = load(q + c * LANES) * inverse;
            dot += v * mean;
            left -= sigma * inverse * (mean * mean);
            store(q + c * LANES, v);
            store(gain + (c - p->start[j]) * LANES, inverse * mean);
        }
        dot *= sigma / NAME(larger)(left, fill(least));
        for (c = p->start[j]; c < p->start[j + 1]; c++)
            store(q + c * LANES, load(q + c * LANES) + dot * load(gain + (c - p->start[j]) * LANES));
    }
}

/* q (A, P, V) <- start metric times q */
TARGET static void NAME(precondition)(const pseudo_problem *p, const pseudo_task *t, const work *w, const REAL *kappa,
                                      REAL lambda, REAL lambdah, REAL *q)
{
    const ptrdiff_t P = 1 + p->D;
    const REAL *live = t->live;
    const int turn = t->A > 1 && t->A <= PSEUDO_ROTATED;
    ptrdiff_t a, c;
    if (turn)
        NAME(rotate)(p, t, w, 0, q);
    for (a = 0; a < t->A; a++) {
        const vec sigma = load(w->sigma + a * LANES) * load(kappa);
        REAL *row = q + a * P * LANES;
        store(row, load(row) / (sigma + lambdah));
        if (p->expand && !w->more)
            NAME(kronecker)(p, w, t->rank, (REAL)t->tail, sigma, lambda, row + LANES);
        else
            NAME(blocks)(p, w, sigma, lambda, row + LANES);
    }
    if (turn)
        NAME(rotate)(p, t, w, 1, q);
    for (a = 0; a < t->A; a++)
        for (c = 0; c < P; c++) {
            REAL *at = q + (a * P + c) * LANES;
            store(at, load(at) * load(w->mask + c * LANES) * load(live + a * LANES));
        }
}
