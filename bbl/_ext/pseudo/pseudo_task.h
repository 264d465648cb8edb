/* Lane blocks: their working memory, and parameters in and out. */

/* Allocate the working memory of a lane block in one piece; return it, or NULL without memory */
TARGET static REAL *NAME(allocate_lane_block)(const pseudo_problem *p, pseudo_block *t, lane_memory *w)
{
    const size_t V = LANES, P = (size_t)(1 + p->D), A = (size_t)t->A, vector = A * P * V;
    REAL *memory, *at;
    memory = malloc((pseudo_task_numbers(p, t->A) + 16) * sizeof *memory);
    if (!memory)
        return NULL;
    at = (REAL *)(((uintptr_t)memory + 63) / 64 * 64);
#define PSEUDO_TAKE(field, size) (field = at, at += ((size) + 15) / 16 * 16)
    PSEUDO_TAKE(w->planes, A * (size_t)(t->plane_blocks * (p->composites.block_rows + 1)) * V);
    PSEUDO_TAKE(w->x, vector);
    PSEUDO_TAKE(w->g, vector);
    PSEUDO_TAKE(w->d, vector);
    PSEUDO_TAKE(w->x_trial, vector);
    PSEUDO_TAKE(w->g_trial, vector);
    PSEUDO_TAKE(w->moment, vector);
    PSEUDO_TAKE(w->S, vector * (size_t)t->max_pairs);
    PSEUDO_TAKE(w->Y, vector * (size_t)t->max_pairs);
    PSEUDO_TAKE(w->mask, P * V);
    PSEUDO_TAKE(w->state_table, (size_t)p->composites.first_state[p->composites.n_composites] * V);
    PSEUDO_TAKE(w->h, A * V);
    PSEUDO_TAKE(w->sums, 3 * (2 + A) * V);
    PSEUDO_TAKE(w->rotation, A <= PSEUDO_MAX_ROTATED ? A * A * V : 0);
    PSEUDO_TAKE(w->sigma, A * V);
    PSEUDO_TAKE(w->scratch, A * V);
    PSEUDO_TAKE(w->trace, V);
    PSEUDO_TAKE(t->has_level, A * V);
    w->site_correction = (float *)at;
    at += p->metric.wide ? A * (size_t)p->D * V * sizeof(float) / sizeof(REAL) + 16 : 0;
    w->left = (float *)at;
    at += (size_t)p->metric.D_padded * V * sizeof(float) / sizeof(REAL);
    w->right = (float *)at;
    at += (size_t)p->metric.D_padded * V * sizeof(float) / sizeof(REAL);
    t->needs_composite = (uint8_t *)at;
    at += p->composites.n_composites / sizeof(REAL) + 1;
    t->needs_chunk = (uint8_t *)at;
    at += p->composites.n_chunks / sizeof(REAL) + 1;
    at = (REAL *)(((uintptr_t)at + 63) / 64 * 64);
    w->chunk_tables = at;
#undef PSEUDO_TAKE
    return memory;
}

/* Choose how many leading eigenvectors the metric uses: until the largest of the others is near their mean. `top` is the
   largest eigenvalue of S_i over the sites. */
TARGET static void NAME(choose_rank)(const pseudo_problem *p, pseudo_block *t, double top, double lambda)
{
    const double near = p->blocks_per_task > 1 ? 1.4 : 16 * p->D <= p->rows.n ? 1.1 : 2.5;  /* less where eigenvectors cost little */
    double rest = 0.0;
    ptrdiff_t c;
    t->rank = 0;
    t->tail_eigenvalue = 0.0;
    if (!p->metric.expand)
        return;
    for (c = 0; c < p->D; c++)
        rest += p->metric.eigenvalue[c];
    while (t->rank < p->D) {
        t->tail_eigenvalue = rest / (double)(p->D - t->rank);
        if (top * p->metric.eigenvalue[t->rank] + lambda <= near * (top * t->tail_eigenvalue + lambda))
            break;
        for (c = t->rank; c < pseudo_min(t->rank + 8, p->D); c++)
            rest -= p->metric.eigenvalue[c];
        t->rank += 8;
    }
    if (t->rank >= p->D || t->tail_eigenvalue < p->metric.eigenvalue[p->D - 1])
        t->tail_eigenvalue = p->metric.eigenvalue[p->D - 1];
}

/* Set up lane block `number`: its sites, the composites that they need (all with `everything`), and its memory, which is
   returned */
TARGET static REAL *NAME(open_lane_block)(const pseudo_problem *p, ptrdiff_t number, int everything, double lambda,
                                          pseudo_block *t, lane_memory *w)
{
    REAL *memory, *live;
    double top = 0.0;
    const ptrdiff_t end = everything ? p->n_counted : p->n_sites;
    ptrdiff_t v, c, j, ch, a;
    t->A = 0;
    t->anchor_prob = NULL;
    w->column_penalty = NULL;
    w->zero_sum = 0;
    for (v = 0; v < LANES; v++) {
        t->site[v] = number * LANES + v < end ? p->site_order[number * LANES + v] : -1;
        if (t->site[v] >= 0 && p->n_levels[t->site[v]] - 1 > t->A)
            t->A = p->n_levels[t->site[v]] - 1;
    }
    t->plane_blocks = pseudo_plane_blocks(p, t->A);
    t->max_pairs = pseudo_max_pairs(p, t->A);
    memory = NAME(allocate_lane_block)(p, t, w);
    if (!memory)
        return NULL;
    live = t->has_level;
    for (ch = 0; ch < p->composites.n_chunks; ch++)
        for (t->needs_chunk[ch] = 0, c = p->composites.first_composite[ch]; c < p->composites.first_composite[ch + 1]; c++) {
            t->needs_composite[c] = (uint8_t)everything;
            for (j = p->composites.first_predictor[c]; j < p->composites.first_predictor[c + 1]; j++)
                for (v = 0; v < LANES && !t->needs_composite[c]; v++)
                    t->needs_composite[c] = t->site[v] >= 0 && t->site[v] != j && p->neighbours[t->site[v] * p->m + j];
            t->needs_chunk[ch] |= t->needs_composite[c];
        }
    for (a = 0; a < t->A; a++)  /* the zero row of every block */
        for (c = 1; c <= t->plane_blocks; c++)
            vec_store(w->planes + ((a * t->plane_blocks + c) * (p->composites.block_rows + 1) - 1) * LANES, vec_fill(0.0));
    for (v = 0; v < LANES; v++)
        for (a = 0; a < t->A; a++) {
            const int is = t->site[v] >= 0 && a < p->n_levels[t->site[v]] - 1;
            live[a * LANES + v] = (REAL)is;
            w->sigma[a * LANES + v] = is ? (REAL)p->metric.sigma[p->first_column[t->site[v]] + a] : 1;
            top = is && w->sigma[a * LANES + v] > top ? w->sigma[a * LANES + v] : top;
        }
    NAME(choose_rank)(p, t, top, lambda);
    return memory;
}

/* Load parameters theta into x (couplings times `factor`, fields centred), and mask, moments and metric of the sites;
   return whether any coupling is non-zero. The linear term of the objective adds to the moments; moments that are not
   counted are zero. */
TARGET static int NAME(load_parameters)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                        const double *theta, double factor, const double *linear)
{
    const ptrdiff_t P = 1 + p->D;
    ptrdiff_t v, a, b, c, j;
    int coupled = 0;
    memset(w->x, 0, (size_t)(t->A * P) * LANES * sizeof *w->x);
    memset(w->moment, 0, (size_t)(t->A * P) * LANES * sizeof *w->moment);
    memset(w->mask, 0, (size_t)P * LANES * sizeof *w->mask);
    if (p->metric.site_correction)
        memset(w->site_correction, 0, (size_t)(t->A * p->D) * LANES * sizeof *w->site_correction);
    if (t->A <= PSEUDO_MAX_ROTATED)
        memset(w->rotation, 0, (size_t)(t->A * t->A) * LANES * sizeof *w->rotation);
    for (v = 0; v < LANES; v++) {
        const ptrdiff_t i = t->site[v], A = i < 0 ? 0 : p->n_levels[i] - 1;
        const double level = 1.0 / (double)(A + 1);
        w->trace[v] = i < 0 ? 1 : (REAL)p->metric.trace[i];
        if (i < 0)
            continue;
        w->mask[v] = 1.0;
        for (j = 0; j < p->m; j++)
            if (j != i && p->neighbours[i * p->m + j])
                for (c = p->first_column[j]; c < p->first_column[j + 1]; c++)
                    w->mask[(1 + c) * LANES + v] = 1.0;
        for (a = 0; a < A; a++) {
            const ptrdiff_t row = p->first_column[i] + a;
            const double *from = theta + row * P, *second = p->n_counted ? p->moments.second + row * p->D : NULL;
            REAL *x = w->x + a * P * LANES + v, *moment = w->moment + a * P * LANES + v;
            double h = from[0];
            for (c = 1; c < P; c++)
                if (w->mask[c * LANES + v] != 0.0) {
                    x[c * LANES] = (REAL)(factor * from[c]);
                    coupled |= from[c] != 0.0;
                    h += x[c * LANES] * p->moments.mean[c];
                    if (second)
                        moment[c * LANES] = (REAL)(second[c - 1] + p->rows.uniform_share * (level * p->moments.mean[c] - second[c - 1]));
                }
            x[0] = (REAL)h;
            if (second)
                moment[0] = (REAL)(p->moments.mean[1 + row] + p->rows.uniform_share * (level - p->moments.mean[1 + row]));
            for (c = 0; c < P && linear; c++)
                moment[c * LANES] += (REAL)linear[row * P + c] * w->mask[c * LANES + v];
#ifndef ANCHOR
            for (c = 0; c < p->D && p->metric.site_correction; c++)
                w->site_correction[(a * p->D + c) * LANES + v] = p->metric.site_correction[row * p->D + c];
#endif
            for (b = 0; b < A && t->A <= PSEUDO_MAX_ROTATED; b++)
                w->rotation[(a * t->A + b) * LANES + v] = (REAL)p->metric.rotation[p->metric.rotation_start[i] + a * A + b];
        }
    }
    return coupled;
}

/* Store vectors (A, 1 + D, V) of centred fields and couplings as rows of theta: parameters, or a gradient */
TARGET static void NAME(store_parameters)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                          const REAL *x, int parameters, double *theta_out)
{
    const ptrdiff_t P = 1 + p->D;
    ptrdiff_t v, a, c;
    for (v = 0; v < LANES; v++)
        for (a = 0; t->site[v] >= 0 && a < p->n_levels[t->site[v]] - 1; a++) {
            const REAL *from = x + a * P * LANES + v;
            double *to = theta_out + (p->first_column[t->site[v]] + a) * P;
            to[0] = from[0];
            for (c = 1; c < P; c++) {
                to[c] = from[c * LANES];
                if (parameters)
                    to[0] -= to[c] * p->moments.mean[c];
                else
                    to[c] += from[0] * p->moments.mean[c] * w->mask[c * LANES + v];
            }
        }
}
