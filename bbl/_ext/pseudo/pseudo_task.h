/* Lane blocks: working memory, loading and storing of parameters; pseudo_kernel.h includes this file after
   pseudo_solve.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h; the arrays of w are described in pseudo_bundle.h.

   Fields of p: moments.second (D_counted, D) contains the shares of rows in both of two columns. metric.expand contains
   the n_vectors known eigenvectors of Cov, or is NULL; metric.leading is set if only leading eigenvectors are known.
   metric.eigenvalue (D_padded,) contains the eigenvalues of Cov in decreasing order; metric.sigma (D,) the eigenvalues
   of S_i at site i's columns, trace (m,) its trace, and rotation its eigenvectors from rotation_start[i] on. site_order
   (m,) lists the sites in the order of the lanes, neighbours (n_sites, m) is 1 if the site is regressed on the
   predictor, and rows.uniform_share is the weight of the uniform distribution in targets. */

/* Allocate the arrays of t and w in one block of memory; return it, or NULL if there is none. t->A, plane_blocks and
   max_pairs must be set; pseudo_task_numbers bounds the size. */
TARGET static REAL *NAME(allocate_lane_block)(const pseudo_problem *p, pseudo_block *t, lane_memory *w)
{
    const size_t V = LANES, P = (size_t)(1 + p->D), A = (size_t)t->A, vector = A * P * V;
    REAL *memory, *next;  /* next: start of the unused memory */
    memory = malloc((pseudo_task_numbers(p, t->A) + 16) * sizeof *memory);  /* 16: to align the first array */
    if (!memory)
        return NULL;
    next = (REAL *)(((uintptr_t)memory + 63) / 64 * 64);  /* a multiple of the longest vector and of a cache line */
#define ALLOT(field, size) (field = next, next += ((size) + 15) / 16 * 16)  /* array of `size` numbers */
    ALLOT(w->planes, A * (size_t)(t->plane_blocks * (p->composites.block_rows + 1)) * V);
    ALLOT(w->x, vector);
    ALLOT(w->g, vector);
    ALLOT(w->d, vector);
    ALLOT(w->x_trial, vector);
    ALLOT(w->g_trial, vector);
    ALLOT(w->moment, vector);
    ALLOT(w->S, vector * (size_t)t->max_pairs);
    ALLOT(w->Y, vector * (size_t)t->max_pairs);
    ALLOT(w->mask, P * V);
    ALLOT(w->state_table, (size_t)p->composites.first_state[p->composites.n_composites] * V);
    ALLOT(w->h, A * V);
    ALLOT(w->sums, 3 * (2 + A) * V);
    ALLOT(w->rotation, A <= PSEUDO_MAX_ROTATED ? A * A * V : 0);
    ALLOT(w->sigma, A * V);
    ALLOT(w->scratch, A * V);
    ALLOT(w->trace, V);
    ALLOT(t->has_level, A * V);
    /* floats and bytes; their sizes are converted to numbers of REALs */
    w->site_correction = (float *)next;
    next += p->metric.wide ? A * (size_t)p->D * V * sizeof(float) / sizeof(REAL) + 16 : 0;  /* not used otherwise */
    w->left = (float *)next;
    next += (size_t)p->metric.D_padded * V * sizeof(float) / sizeof(REAL);
    w->right = (float *)next;
    next += (size_t)p->metric.D_padded * V * sizeof(float) / sizeof(REAL);
    t->needs_composite = (uint8_t *)next;
    next += p->composites.n_composites / sizeof(REAL) + 1;
    t->needs_chunk = (uint8_t *)next;
    next += p->composites.n_chunks / sizeof(REAL) + 1;
    next = (REAL *)(((uintptr_t)next + 63) / 64 * 64);
    w->chunk_tables = next;  /* the remaining memory */
#undef ALLOT
    return memory;
}

/* Set t->rank, the number of leading eigenvectors of Cov used by the metric, and t->tail_eigenvalue, which replaces all
   other eigenvalues. The curvature along an eigenvector with eigenvalue e is max_sigma e + lambda, where max_sigma is
   the largest eigenvalue of S_i for a site of the block. If all eigenvectors are known, they are added, eight at a
   time, until the next one's curvature is close to the curvature at the mean of the others. If only leading ones are
   known (metric.leading), use all of them, or none if the largest curvature is already close to the tail's. */
TARGET static void NAME(choose_rank)(const pseudo_problem *p, pseudo_block *t, double max_sigma,
                                      double lambda)
{
    /* ratio of curvatures at which to stop, smaller if eigenvectors are cheap relative to rows: if lane blocks share
       them, or there are many rows per column (`benchmarks.run --suite fit`: W3) */
    const double near_ratio = p->blocks_per_task > 1 ? 1.4 : 16 * p->D <= p->rows.n ? 1.1 : 2.5;
    double tail_sum = 0.0;  /* of the eigenvalues from t->rank on */
    t->rank = 0;
    t->tail_eigenvalue = 0.0;
    if (!p->metric.expand)  /* no eigenvectors are known */
        return;
    if (p->metric.leading) {
        t->tail_eigenvalue = p->metric.eigenvalue[p->D - 1];  /* all entries beyond the leading ones are their mean */
        if (max_sigma * p->metric.eigenvalue[0] + lambda
            > PSEUDO_LEADING_RATIO * (max_sigma * t->tail_eigenvalue + lambda))
            t->rank = p->metric.n_vectors;
        return;
    }
    for (ptrdiff_t c = 0; c < p->D; c++)
        tail_sum += p->metric.eigenvalue[c];
    while (t->rank < p->D) {
        t->tail_eigenvalue = tail_sum / (double)(p->D - t->rank);
        if (max_sigma * p->metric.eigenvalue[t->rank] + lambda
            <= near_ratio * (max_sigma * t->tail_eigenvalue + lambda))
            break;
        for (ptrdiff_t c = t->rank; c < pseudo_min(t->rank + 8, p->D); c++)
            tail_sum -= p->metric.eigenvalue[c];
        t->rank += 8;
    }
    /* use the smallest eigenvalue without a tail, or if rounding has made the tail's mean smaller */
    if (t->rank >= p->D || t->tail_eigenvalue < p->metric.eigenvalue[p->D - 1])
        t->tail_eigenvalue = p->metric.eigenvalue[p->D - 1];
}

/* Set up lane block number block_number: t, and the sizes, zeros and eigenvalues in w; return its memory, or NULL if
   there is none. With for_moments = 1 the block may contain any predictor whose moments are counted, not only sites,
   and needs all composites. lambda is the penalty of the couplings, for choose_rank. */
TARGET static REAL *NAME(open_lane_block)(const pseudo_problem *p, ptrdiff_t block_number, int for_moments,
                                          double lambda, pseudo_block *t, lane_memory *w)
{
    REAL *memory, *has_level;
    double max_sigma = 0.0;  /* largest eigenvalue of S_i for a site of the block */
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t end = for_moments ? p->n_counted : p->n_sites;  /* of the predictors that may be in the block */
    t->A = 0;
    t->anchor_prob = NULL;  /* the caller sets these three if they are used */
    w->column_penalty = NULL;
    w->zero_sum = 0;
    for (ptrdiff_t v = 0; v < LANES; v++) {
        t->site[v] = block_number * LANES + v < end ? p->site_order[block_number * LANES + v] : -1;
        if (t->site[v] >= 0 && p->n_levels[t->site[v]] - 1 > t->A)
            t->A = p->n_levels[t->site[v]] - 1;
    }
    t->plane_blocks = pseudo_plane_blocks(p, t->A);
    t->max_pairs = pseudo_max_pairs(p, t->A);
    memory = NAME(allocate_lane_block)(p, t, w);
    if (!memory)
        return NULL;
    has_level = t->has_level;
    for (ptrdiff_t ch = 0; ch < composites->n_chunks; ch++) {
        t->needs_chunk[ch] = 0;  /* a composite is needed if one of its predictors j is a neighbour of a site */
        for (ptrdiff_t c = composites->first_composite[ch]; c < composites->first_composite[ch + 1]; c++) {
            t->needs_composite[c] = (uint8_t)for_moments;
            for (ptrdiff_t j = composites->first_predictor[c]; j < composites->first_predictor[c + 1]; j++)
                for (ptrdiff_t v = 0; v < LANES && !t->needs_composite[c]; v++)
                    t->needs_composite[c] = t->site[v] >= 0 && t->site[v] != j && p->neighbours[t->site[v] * p->m + j];
            t->needs_chunk[ch] |= t->needs_composite[c];
        }
    }
    for (ptrdiff_t a = 0; a < t->A; a++)
        for (ptrdiff_t c = 1; c <= t->plane_blocks; c++)  /* the row after each row block is zero, to pad lists */
            vec_store(w->planes + ((a * t->plane_blocks + c) * (composites->block_rows + 1) - 1) * LANES,
                      vec_fill(0.0));
    for (ptrdiff_t v = 0; v < LANES; v++)
        for (ptrdiff_t a = 0; a < t->A; a++) {
            const int exists = t->site[v] >= 0 && a < p->n_levels[t->site[v]] - 1;
            has_level[a * LANES + v] = (REAL)exists;
            /* eigenvalue a of S_i, or 1, a harmless divisor, if there is none */
            w->sigma[a * LANES + v] = exists ? (REAL)p->metric.sigma[p->first_column[t->site[v]] + a] : 1;
            max_sigma = exists && w->sigma[a * LANES + v] > max_sigma ? w->sigma[a * LANES + v] : max_sigma;
        }
    NAME(choose_rank)(p, t, max_sigma, lambda);
    return memory;
}

/* Load the sites' rows of theta (D_s, P) into w->x (A, P, V), with couplings multiplied by `factor`, and set w->mask,
   moment, trace, rotation and site_correction; return whether any coupling is non-zero. The moments belong to the
   targets, which are mixed with the uniform distribution by rows.uniform_share. `linear` (D_s, P), unless NULL, is
   added to them, since <theta, linear> is subtracted from the objective. Moments that are not counted are zero. */
TARGET static int NAME(load_parameters)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                        const double *theta, double factor, const double *linear)
{
    const ptrdiff_t P = 1 + p->D;
    int coupled = 0;  /* whether any coupling is non-zero */
    memset(w->x, 0, (size_t)(t->A * P) * LANES * sizeof *w->x);
    memset(w->moment, 0, (size_t)(t->A * P) * LANES * sizeof *w->moment);
    memset(w->mask, 0, (size_t)P * LANES * sizeof *w->mask);
    if (p->metric.site_correction)
        memset(w->site_correction, 0, (size_t)(t->A * p->D) * LANES * sizeof *w->site_correction);
    if (t->A <= PSEUDO_MAX_ROTATED)
        memset(w->rotation, 0, (size_t)(t->A * t->A) * LANES * sizeof *w->rotation);
    for (ptrdiff_t v = 0; v < LANES; v++) {
        const ptrdiff_t i = t->site[v], A = i < 0 ? 0 : p->n_levels[i] - 1;  /* site, -1 for none; its logits */
        const double uniform = 1.0 / (double)(A + 1);  /* probability of each level in the uniform distribution */
        w->trace[v] = i < 0 ? 1 : (REAL)p->metric.trace[i];
        if (i < 0)
            continue;
        w->mask[v] = 1.0;  /* the field is a parameter; couplings with columns of neighbours follow */
        for (ptrdiff_t j = 0; j < p->m; j++)
            if (j != i && p->neighbours[i * p->m + j])
                for (ptrdiff_t c = p->first_column[j]; c < p->first_column[j + 1]; c++)
                    w->mask[(1 + c) * LANES + v] = 1.0;
        for (ptrdiff_t a = 0; a < A; a++) {
            const ptrdiff_t row = p->first_column[i] + a;
            const double *theta_row = theta + row * P;
            const double *second = p->n_counted ? p->moments.second + row * p->D : NULL;  /* (D,) */
            REAL *x = w->x + a * P * LANES + v, *moment = w->moment + a * P * LANES + v;
            double h = theta_row[0];  /* the field, centred below */
            for (ptrdiff_t c = 1; c < P; c++)  /* entry c of a row is for column c - 1 */
                if (w->mask[c * LANES + v] != 0.0) {
                    x[c * LANES] = (REAL)(factor * theta_row[c]);
                    coupled |= theta_row[c] != 0.0;
                    h += x[c * LANES] * p->moments.mean[c];
                    if (second)
                        moment[c * LANES] = (REAL)(
                            second[c - 1] + p->rows.uniform_share * (uniform * p->moments.mean[c] - second[c - 1]));
                }
            x[0] = (REAL)h;
            if (second)
                moment[0] = (REAL)(
                    p->moments.mean[1 + row] + p->rows.uniform_share * (uniform - p->moments.mean[1 + row]));
            for (ptrdiff_t c = 0; c < P && linear; c++)
                moment[c * LANES] += (REAL)linear[row * P + c] * w->mask[c * LANES + v];
#ifndef ANCHOR  /* used only by the metric */
            for (ptrdiff_t c = 0; c < p->D && p->metric.site_correction; c++)
                w->site_correction[(a * p->D + c) * LANES + v] = p->metric.site_correction[row * p->D + c];
#endif
            for (ptrdiff_t b = 0; b < A && t->A <= PSEUDO_MAX_ROTATED; b++)
                w->rotation[(a * t->A + b) * LANES + v] =
                    (REAL)p->metric.rotation[p->metric.rotation_start[i] + a * A + b];
        }
    }
    return coupled;
}

/* Write x (A, P, V) to the sites' rows of theta_out (D_s, P): with are_parameters = 1 parameters, whose fields are
   uncentred; with 0 a gradient with respect to these, converted to one with respect to the uncentred parameters */
TARGET static void NAME(store_parameters)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                          const REAL *x, int are_parameters, double *theta_out)
{
    const ptrdiff_t P = 1 + p->D;
    for (ptrdiff_t v = 0; v < LANES; v++)
        for (ptrdiff_t a = 0; t->site[v] >= 0 && a < p->n_levels[t->site[v]] - 1; a++) {
            const REAL *x_row = x + a * P * LANES + v;
            double *theta_row = theta_out + (p->first_column[t->site[v]] + a) * P;
            theta_row[0] = x_row[0];
            for (ptrdiff_t c = 1; c < P; c++) {  /* x contains h' = h + sum_c J_c mean_c */
                theta_row[c] = x_row[c * LANES];
                if (are_parameters)  /* h = h' - sum_c J_c mean_c */
                    theta_row[0] -= theta_row[c] * p->moments.mean[c];
                else  /* chain rule: J_c also changes h' */
                    theta_row[c] += x_row[0] * p->moments.mean[c] * w->mask[c * LANES + v];
            }
        }
}
