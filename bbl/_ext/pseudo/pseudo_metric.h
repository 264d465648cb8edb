/* Start metric of the optimiser; pseudo_kernel.h includes it after pseudo_evaluate.h.

   (a) It is the Hessian at the independent model, S_i (x) Cov + lambda, with S_i = diag(f_i) - f_i f_i' of the
       responding site and Cov the predictors' covariance; fields and couplings are decoupled by centring.
   (b) The responses are rotated by the eigenvectors of S_i. Cov enters by its leading eigenvectors and the mean of the
       others (Kronecker), in wide problems by its inverse (whole), or by its diagonal blocks, whose inverse is known in
       closed form (blocks).
   (c) S_i is multiplied by kappa, the ratio of the mean of sum_a p_a (1 - p_a) at the current point to that at
       independence: for a binary site the exact mean curvature.

   Conventions: as in pseudo_lanes.h; q is a vector of (A, P, V), P = 1 + D. */


/* q (A, P, V) to E' q (back = 0) or E q (back = 1), E (A, A, V) the eigenvectors of S_i in its columns */
TARGET static void NAME(rotate)(const pseudo_problem *p, const pseudo_task *t, const lane_memory *w, int back, REAL *q)
{
    const ptrdiff_t P = 1 + p->D, A = t->A, row = (back ? A : 1) * LANES, col = (back ? 1 : A) * LANES;
    ptrdiff_t a, b, c;
    for (c = 0; c < P; c++, q += LANES) {
        for (a = 0; a + 4 <= A; a += 4) {
            const REAL *E = w->rotation + a * row;
            vec v0 = vec_fill(0.0), v1 = v0, v2 = v0, v3 = v0;
            for (b = 0; b < A; b++, E += col) {
                const vec u = vec_load(q + b * P * LANES);
                v0 += vec_load(E) * u;
                v1 += vec_load(E + row) * u;
                v2 += vec_load(E + 2 * row) * u;
                v3 += vec_load(E + 3 * row) * u;
            }
            vec_store(w->columns + a * LANES, v0);
            vec_store(w->columns + (a + 1) * LANES, v1);
            vec_store(w->columns + (a + 2) * LANES, v2);
            vec_store(w->columns + (a + 3) * LANES, v3);
        }
        for (; a < A; a++) {
            vec v = vec_fill(0.0);
            for (b = 0; b < A; b++)
                v += vec_load(w->rotation + a * row + b * col) * vec_load(q + b * P * LANES);
            vec_store(w->columns + a * LANES, v);
        }
        for (a = 0; a < A; a++)
            vec_store(q + a * P * LANES, vec_load(w->columns + a * LANES));
    }
}

/* right[k] (8 * panels, V) = panels (panels, stride, 8)' times left[k] (depth, V), of two blocks at a time: what is read
   of a panel serves all blocks. Four rows of two blocks are as many sums as sixteen registers hold beside what is read;
   of eight rows some would go through memory, in 1.4 to 1.8 times the time. */
TARGET static void NAME(product)(const float *panel, ptrdiff_t stride, ptrdiff_t panels, ptrdiff_t depth, int count,
                                 float *const *left, float *const *right)
{
    ptrdiff_t k, c, r, u;
    int b;
    for (k = 0; k < panels; k++, panel += 8 * stride) {
        for (b = 0; b + 1 < count; b += 2)
            for (r = 0; r < 8; r += 4) {
                const float *rows = panel + r;
                vf s[4], z[4];
                for (u = 0; u < 4; u++)
                    s[u] = z[u] = (vf){0};
                for (c = 0; c < depth; c++) {
                    const vf v = NAME(loadf)(left[b] + c * LANES), w = NAME(loadf)(left[b + 1] + c * LANES);
                    for (u = 0; u < 4; u++) {
                        s[u] += v * rows[8 * c + u];
                        z[u] += w * rows[8 * c + u];
                    }
                }
                for (u = 0; u < 4; u++) {
                    NAME(storef)(right[b] + (8 * k + r + u) * LANES, s[u]);
                    NAME(storef)(right[b + 1] + (8 * k + r + u) * LANES, z[u]);
                }
            }
        for (; b < count; b++) {
            vf s[8];
            for (u = 0; u < 8; u++)
                s[u] = (vf){0};
            for (c = 0; c < depth; c++) {
                const vf v = NAME(loadf)(left[b] + c * LANES);
                for (u = 0; u < 8; u++)
                    s[u] += v * panel[8 * c + u];
            }
            for (u = 0; u < 8; u++)
                NAME(storef)(right[b] + (8 * k + u) * LANES, s[u]);
        }
    }
}

/* left (D, V) <- q (D, V) by its largest entry, which is returned: so small gradients do not underflow */
TARGET static vec NAME(narrow)(const pseudo_problem *p, const REAL *q, float *left)
{
    vec size = vec_fill(0.0);
    ptrdiff_t c;
    for (c = 0; c < p->D; c++)
        size = NAME(larger)(NAME(larger)(vec_load(q + c * LANES), -vec_load(q + c * LANES)), size);
    size = NAME(larger)(size, vec_fill(TINY));
    for (c = 0; c < p->D; c++)
        NAME(storef)(left + c * LANES, NARROW(vec_load(q + c * LANES) / size));
    return size;
}

/* Each q[k] (D, V) times (sigma Cov + lambda)^-1, Cov by its `rank` leading eigenvectors and `tail` for all others; the
   scratch of list[k] is used. In single precision: it is a metric, the gradient is not touched by its rounding. */
TARGET static void NAME(kronecker)(const pseudo_problem *p, int count, lane_block *const *list, const vec *sigma,
                                   REAL lambda, REAL *const *q)
{
    const ptrdiff_t rank = list[0]->t.rank;
    const REAL tail = (REAL)list[0]->t.tail;
    float *left[PSEUDO_PACK], *right[PSEUDO_PACK];
    vec size[PSEUDO_PACK];
    ptrdiff_t c, k;
    int b;
    for (b = 0; b < count; b++) {
        left[b] = list[b]->w.left;
        right[b] = list[b]->w.right;
        size[b] = NAME(narrow)(p, q[b], left[b]);
    }
    NAME(product)(p->metric.project, p->D, rank / 8, p->D, count, left, right);
    for (b = 0; b < count; b++) {
        const vec rest = vec_fill(1.0) / (sigma[b] * tail + lambda);
        for (k = 0; k < rank; k++) {
            const vec gain = vec_fill(1.0) / (sigma[b] * (REAL)p->metric.eigenvalue[k] + lambda) - rest;
            NAME(storef)(right[b] + k * LANES, NARROW(WIDEN(NAME(loadf)(right[b] + k * LANES)) * gain));
        }
    }
    NAME(product)(p->metric.expand, p->metric.D_padded, p->metric.D_padded / 8, rank, count, right, left);
    for (b = 0; b < count; b++) {
        const vec rest = vec_fill(1.0) / (sigma[b] * tail + lambda);
        for (c = 0; c < p->D; c++)
            vec_store(q[b] + c * LANES,
                  vec_load(q[b] + c * LANES) * rest + WIDEN(NAME(loadf)(left[b] + c * LANES)) * size[b]);
    }
}

/* The same in wide problems, with one product: (Cov + c)^-1 is taken as a (Cov + ridge)^-1 + b, c = lambda / sigma,
   which is exact where c = ridge and, beyond, for the least eigenvalue and the largest. Below the ridge, where b would
   be negative and small eigenvalues would count too much, c is the ridge. Columns of the site itself are no
   variables: what p->own makes of their part is taken off, and the inverse is that of all other columns. */
TARGET static void NAME(whole)(const pseudo_problem *p, int count, lane_block *const *list, const vec *sigma, REAL lambda,
                               REAL *const *q)
{
    const REAL ridge = (REAL)p->metric.ridge, low = (REAL)p->metric.lowest, high = (REAL)p->metric.highest;
    float *left[PSEUDO_PACK], *right[PSEUDO_PACK];
    vec size[PSEUDO_PACK];
    ptrdiff_t a, c;
    int b, v;
    for (b = 0; b < count; b++) {
        left[b] = list[b]->w.left;
        right[b] = list[b]->w.right;
        size[b] = NAME(narrow)(p, q[b], left[b]);
    }
    NAME(product)(p->metric.inverse, p->D, p->metric.D_padded / 8, p->D, count, left, right);
    for (b = 0; b < count; b++) {
        const pseudo_task *t = &list[b]->t;
        const vec own = NAME(larger)(lambda / sigma[b], vec_fill(ridge)), scale = (own + low) * (own + high) * sigma[b];
        const vec near = size[b] * ((ridge + low) * (ridge + high)) / scale, rest = (own - ridge) / scale;
        for (a = 0; a < t->A; a++) {
            const float *row = list[b]->w.own + a * p->D * LANES;
            float part[LANES];
            for (v = 0; v < LANES; v++)
                part[v] = t->site[v] < 0 || a > p->n_levels[t->site[v]] - 2
                    ? 0 : right[b][(p->start[t->site[v]] + a) * LANES + v];
            for (c = 0; c < p->D; c++)
                NAME(storef)(right[b] + c * LANES,
                             NAME(loadf)(right[b] + c * LANES) - NAME(loadf)(row + c * LANES) * NAME(loadf)(part));
        }
        for (c = 0; c < p->D; c++)
            vec_store(q[b] + c * LANES, WIDEN(NAME(loadf)(right[b] + c * LANES)) * near + vec_load(q[b] + c * LANES) * rest);
    }
}

/* The same with Cov taken as diag(mean) - mean mean' within each predictor and 0 between predictors */
TARGET static void NAME(blocks)(const pseudo_problem *p, const lane_memory *w, vec sigma, REAL ridge, REAL *q)
{
    const REAL least = (REAL)p->rows.least;
    ptrdiff_t j, c;
    for (j = 0; j < p->m; j++) {
        const REAL lambda = w->more ? ridge + (REAL)w->more[p->start[j]] : ridge;
        REAL *gain = w->table;  /* free between passes; it has a row for each level and more */
        vec dot = vec_fill(0.0), left = vec_fill(1.0);
        for (c = p->start[j]; c < p->start[j + 1]; c++) {
            const REAL mean = p->moments.mean[1 + c] > p->rows.least ? (REAL)p->moments.mean[1 + c] : least;
            const vec inverse = vec_fill(1.0) / (sigma * mean + lambda), v = vec_load(q + c * LANES) * inverse;
            dot += v * mean;
            left -= sigma * inverse * (mean * mean);
            vec_store(q + c * LANES, v);
            vec_store(gain + (c - p->start[j]) * LANES, inverse * mean);
        }
        dot *= sigma / NAME(larger)(left, vec_fill(least));
        for (c = p->start[j]; c < p->start[j + 1]; c++)
            vec_store(q + c * LANES, vec_load(q + c * LANES) + dot * vec_load(gain + (c - p->start[j]) * LANES));
    }
}

/* Each q[k] (A, P, V) <- start metric times q[k], of the blocks of a list that have A logits each */
TARGET static void NAME(precondition)(const pseudo_problem *p, int count, lane_block *const *list, REAL lambda,
                                      REAL lambdah, REAL *const *q)
{
    const ptrdiff_t P = 1 + p->D, A = list[0]->t.A;
    const int turn = A > 1 && A <= PSEUDO_ROTATED;
    vec sigma[PSEUDO_PACK];
    REAL *row[PSEUDO_PACK];
    ptrdiff_t a, c;
    int b;
    for (b = 0; b < count && turn; b++)
        NAME(rotate)(p, &list[b]->t, &list[b]->w, 0, q[b]);
    for (a = 0; a < A; a++) {
        for (b = 0; b < count; b++) {
            sigma[b] = vec_load(list[b]->w.sigma + a * LANES) * vec_load(list[b]->s.now.kappa);
            row[b] = q[b] + a * P * LANES;
            vec_store(row[b], vec_load(row[b]) / (sigma[b] + lambdah));
            row[b] += LANES;
            if (!(p->metric.expand || p->metric.inverse) || list[b]->w.more)
                NAME(blocks)(p, &list[b]->w, sigma[b], lambda, row[b]);
        }
        if (p->metric.inverse && !list[0]->w.more)
            NAME(whole)(p, count, list, sigma, lambda, row);
        else if (p->metric.expand && !list[0]->w.more)
            NAME(kronecker)(p, count, list, sigma, lambda, row);
    }
    for (b = 0; b < count; b++) {
        const REAL *live = list[b]->t.live;
        if (turn)
            NAME(rotate)(p, &list[b]->t, &list[b]->w, 1, q[b]);
        for (a = 0; a < A; a++)
            for (c = 0; c < P; c++) {
                REAL *at = q[b] + (a * P + c) * LANES;
                vec_store(at, vec_load(at) * vec_load(list[b]->w.mask + c * LANES) * vec_load(live + a * LANES));
            }
    }
}

/* <q, (sigma Cov + lambda)^-1 q> of q (D, V), with Cov as in `kronecker` or as in `blocks`; half the work of the product */
TARGET static vec NAME(form)(const pseudo_problem *p, const lane_block *at, vec sigma, REAL ridge, const REAL *q)
{
    const lane_memory *w = &at->w;
    const REAL least = (REAL)p->rows.least;
    vec sum = vec_fill(0.0);
    ptrdiff_t j, c, k;
    if (p->metric.expand && !w->more) {
        const vec size = NAME(narrow)(p, q, w->left), rest = vec_fill(1.0) / (sigma * (REAL)at->t.tail + ridge);
        NAME(product)(p->metric.project, p->D, at->t.rank / 8, p->D, 1, &w->left, &w->right);
        for (c = 0; c < p->D; c++) {
            const vec v = vec_load(q + c * LANES) / size;
            sum += v * v;
        }
        sum *= rest;
        for (k = 0; k < at->t.rank; k++) {
            const vec v = WIDEN(NAME(loadf)(w->right + k * LANES));
            sum += v * v * (vec_fill(1.0) / (sigma * (REAL)p->metric.eigenvalue[k] + ridge) - rest);
        }
        return sum * size * size;
    }
    for (j = 0; j < p->m; j++) {
        const REAL lambda = w->more ? ridge + (REAL)w->more[p->start[j]] : ridge;
        vec dot = vec_fill(0.0), left = vec_fill(1.0);
        for (c = p->start[j]; c < p->start[j + 1]; c++) {
            const REAL mean = p->moments.mean[1 + c] > p->rows.least ? (REAL)p->moments.mean[1 + c] : least;
            const vec inverse = vec_fill(1.0) / (sigma * mean + lambda), v = vec_load(q + c * LANES);
            sum += v * v * inverse;
            dot += v * inverse * mean;
            left -= sigma * inverse * (mean * mean);
        }
        sum += dot * dot * sigma / NAME(larger)(left, vec_fill(least));
    }
    return sum;
}

/* <q, start metric times q> of a vector q (A, P, V) that is zero where there are no parameters; q is destroyed */
TARGET static vec NAME(measure)(const pseudo_problem *p, lane_block *at, REAL lambda, REAL lambdah, REAL *q)
{
    const ptrdiff_t P = 1 + p->D, A = at->t.A;
    vec sum = vec_fill(0.0);
    ptrdiff_t a;
    if (A > 1 && A <= PSEUDO_ROTATED)
        NAME(rotate)(p, &at->t, &at->w, 0, q);
    for (a = 0; a < A; a++, q += P * LANES) {
        const vec sigma = vec_load(at->w.sigma + a * LANES) * vec_load(at->s.now.kappa), h = vec_load(q);
        sum += h * h / (sigma + lambdah) + NAME(form)(p, at, sigma, lambda, q + LANES);
    }
    return sum;
}
