/* The optimiser's metric, an approximate inverse Hessian; pseudo_kernel.h includes this file after pseudo_evaluate.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h; blocks[b], b < count, are lane blocks that are solved
   together. A vector q (A, P, V) contains, for each logit, the entry of the field, then the entries of the couplings
   with each column. Arrays of w: sigma (A, V) and rotation (A, A, V), eigenvalues and eigenvectors of S_i; mask (P, V),
   1 if there is a parameter; left, right (D_padded, V) floats, factor and product of multiply_panels; scratch (A, V).
   t->has_level (A, V) is 1 if the lane's site has the logit.

   (a) The Hessian at zero couplings is S_i (x) Cov plus penalties: S_i = diag(f_i) - f_i f_i' (A, A) with the level
       frequencies f_i of site i, Cov (D, D) the covariance of the columns. Centring has decoupled the fields. S_i is
       multiplied by kappa, the mean of sum_a p_a (1 - p_a) at the point divided by its mean at zero couplings, which is
       the exact mean curvature for a binary site. lambda, lambdah are the penalties of couplings and fields.
   (b) rotate_logits transforms to the eigenvectors of S_i, with eigenvalues sigma_a. What remains for each logit a is a
       system with the matrix sigma_a Cov + lambda. It is solved by the eigenvectors of Cov, in wide problems by an
       inverse of Cov, or with the diagonal blocks of Cov only (solve_by_eigenvectors, solve_by_inverse,
       solve_by_predictor). If only leading eigenvectors are known, all other eigenvalues are replaced by their mean.

   Fields of p->metric: project and expand are the panels of the transposed eigenvectors of Cov and of the eigenvectors,
   or NULL; eigenvalue (D_padded,) contains its eigenvalues in decreasing order; inverse contains the panels of M = (Cov
   + ridge)^-1, or NULL; lowest_eigenvalue and highest_eigenvalue are estimates for Cov. n_vectors eigenvectors are
   known, the depth of `expand`; the metric uses the first t->rank of them, and t->tail_eigenvalue for all other
   eigenvalues. p->rows.half_row is the share of half a row.

   Panels: a matrix (8 K, depth) stored as (K, depth, 8), so that eight of its rows are read at a time. All matrix
   products are in single precision: they only determine a search direction; the gradient itself is not rounded. */

/* Replace q (A, P, V) by E' q (back = 0) or E q (back = 1), products over the logits; the columns of E = w->rotation
   (A, A, V) are the eigenvectors of S_i for each lane's site */
TARGET static void NAME(rotate_logits)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w, int back,
                                       REAL *q)
{
    const ptrdiff_t P = 1 + p->D, A = t->A;
    const ptrdiff_t row = (back ? A : 1) * LANES, col = (back ? 1 : A) * LANES;  /* strides of E or E' */
    ptrdiff_t a, b, c;
    for (c = 0; c < P; c++, q += LANES) {
        for (a = 0; a + 4 <= A; a += 4) {  /* four entries of the product at a time, so that q is read less often */
            const REAL *E = w->rotation + a * row;
            vec v0 = vec_fill(0.0), v1 = v0, v2 = v0, v3 = v0;
            for (b = 0; b < A; b++, E += col) {
                const vec u = vec_load(q + b * P * LANES);
                v0 += vec_load(E) * u;
                v1 += vec_load(E + row) * u;
                v2 += vec_load(E + 2 * row) * u;
                v3 += vec_load(E + 3 * row) * u;
            }
            vec_store(w->scratch + a * LANES, v0);
            vec_store(w->scratch + (a + 1) * LANES, v1);
            vec_store(w->scratch + (a + 2) * LANES, v2);
            vec_store(w->scratch + (a + 3) * LANES, v3);
        }
        for (; a < A; a++) {
            vec v = vec_fill(0.0);
            for (b = 0; b < A; b++)
                v += vec_load(w->rotation + a * row + b * col) * vec_load(q + b * P * LANES);
            vec_store(w->scratch + a * LANES, v);
        }
        for (a = 0; a < A; a++)
            vec_store(q + a * P * LANES, vec_load(w->scratch + a * LANES));
    }
}

/* Write product[b] (8 n_panels, V) = matrix times factor[b] (depth, V) for lane blocks b < count. `panel` (n_panels,
   stride, 8) contains the matrix in panels; their first `depth` <= stride columns are used. Lane blocks are processed
   in pairs, so that a panel is read once for two. Four rows of two blocks need as many sums as fit into sixteen
   registers in addition to the factors; with eight rows some would be spilled to memory, which takes 1.4 to 1.8 times
   as long (`benchmarks.run --suite fit`: wide). */
TARGET static void NAME(multiply_panels)(const float *panel, ptrdiff_t stride, ptrdiff_t n_panels, ptrdiff_t depth,
                                         int count, float *const *factor, float *const *product)
{
    int b;
    for (ptrdiff_t k = 0; k < n_panels; k++, panel += 8 * stride) {
        for (b = 0; b + 1 < count; b += 2)
            for (ptrdiff_t r = 0; r < 8; r += 4) {
                const float *rows = panel + r;
                vf sum[4], sum2[4];  /* for rows r + u, for block b and for block b + 1 */
                for (ptrdiff_t u = 0; u < 4; u++)
                    sum[u] = sum2[u] = (vf){0};
                for (ptrdiff_t c = 0; c < depth; c++) {
                    const vf v = NAME(loadf)(factor[b] + c * LANES), v2 = NAME(loadf)(factor[b + 1] + c * LANES);
                    for (ptrdiff_t u = 0; u < 4; u++) {
                        sum[u] += v * rows[8 * c + u];
                        sum2[u] += v2 * rows[8 * c + u];
                    }
                }
                for (ptrdiff_t u = 0; u < 4; u++) {
                    NAME(storef)(product[b] + (8 * k + r + u) * LANES, sum[u]);
                    NAME(storef)(product[b + 1] + (8 * k + r + u) * LANES, sum2[u]);
                }
            }
        for (; b < count; b++) {  /* the last block if their number is odd */
            vf sum[8];
            for (ptrdiff_t u = 0; u < 8; u++)
                sum[u] = (vf){0};
            for (ptrdiff_t c = 0; c < depth; c++) {
                const vf v = NAME(loadf)(factor[b] + c * LANES);
                for (ptrdiff_t u = 0; u < 8; u++)
                    sum[u] += v * panel[8 * c + u];
            }
            for (ptrdiff_t u = 0; u < 8; u++)
                NAME(storef)(product[b] + (8 * k + u) * LANES, sum[u]);
        }
    }
}

/* Return the largest |entry| of q (D, V) in each lane, shape (V,); write q divided by it to scaled (D, V) in single
   precision, so that small gradients do not underflow */
TARGET static vec NAME(scale_to_float)(const pseudo_problem *p, const REAL *q, float *scaled)
{
    vec largest = vec_fill(0.0);
    for (ptrdiff_t c = 0; c < p->D; c++)
        largest = NAME(larger)(NAME(larger)(vec_load(q + c * LANES), -vec_load(q + c * LANES)), largest);
    largest = NAME(larger)(largest, vec_fill(TINY));  /* nonzero even if q is 0 */
    for (ptrdiff_t c = 0; c < p->D; c++)
        NAME(storef)(scaled + c * LANES, NARROW(vec_load(q + c * LANES) / largest));
    return largest;
}

/* Return whether the metric uses eigenvectors of Cov for the couplings of lane block `block`. It does not if
   p->metric.expand is NULL (none are known); if penalties differ between columns, since Cov plus such penalties has
   different eigenvectors; or if only leading ones are known (metric.leading) but choose_rank has set rank 0. */
static int NAME(uses_eigenvectors)(const pseudo_problem *p, const lane_block *block)
{
    return p->metric.expand && !block->w.column_penalty && !(p->metric.leading && !block->t.rank);
}

/* Multiply q[b] (D, V), couplings of one logit of blocks[b], by (sigma[b] Cov + lambda)^-1 in place. Cov is
   approximated by its `rank` leading eigenvectors v_k with eigenvalues e_k, and tail_eigenvalue for all others: with
   gain(e) = 1 / (sigma e + lambda), q becomes gain(tail) q + sum_k (gain(e_k) - gain(tail)) v_k <v_k, q>. */
TARGET static void NAME(solve_by_eigenvectors)(const pseudo_problem *p, int count, lane_block *const *blocks,
                                               const vec *sigma, REAL lambda, REAL *const *q)
{
    const ptrdiff_t rank = blocks[0]->t.rank;
    const REAL tail = (REAL)blocks[0]->t.tail_eigenvalue;
    float *left[PSEUDO_BLOCKS_PER_TASK], *right[PSEUDO_BLOCKS_PER_TASK];
    vec largest[PSEUDO_BLOCKS_PER_TASK];  /* the largest |entry| of q[b], the divisor of left[b] */
    for (int b = 0; b < count; b++) {
        left[b] = blocks[b]->w.left;
        right[b] = blocks[b]->w.right;
        largest[b] = NAME(scale_to_float)(p, q[b], left[b]);
    }
    NAME(multiply_panels)(p->metric.project, p->D, rank / 8, p->D, count, left, right);  /* right: <v_k, q> */
    for (int b = 0; b < count; b++) {
        const vec tail_gain = vec_fill(1.0) / (sigma[b] * tail + lambda);
        for (ptrdiff_t k = 0; k < rank; k++) {
            const vec gain = vec_fill(1.0) / (sigma[b] * (REAL)p->metric.eigenvalue[k] + lambda) - tail_gain;
            NAME(storef)(right[b] + k * LANES, NARROW(WIDEN(NAME(loadf)(right[b] + k * LANES)) * gain));
        }
    }
    NAME(multiply_panels)(p->metric.expand, p->metric.n_vectors, p->metric.D_padded / 8, rank, count, right, left);
    for (int b = 0; b < count; b++) {
        const vec tail_gain = vec_fill(1.0) / (sigma[b] * tail + lambda);
        for (ptrdiff_t c = 0; c < p->D; c++)
            vec_store(q[b] + c * LANES,
                      vec_load(q[b] + c * LANES) * tail_gain + WIDEN(NAME(loadf)(left[b] + c * LANES)) * largest[b]);
    }
}

/* Multiply q[b] (D, V), couplings of one logit of blocks[b], by approximately (sigma[b] Cov + lambda)^-1 in place,
   using the inverse M = (Cov + ridge)^-1. With c = lambda / sigma, (Cov + c)^-1 is approximated by alpha M + beta,
   where alpha and beta are chosen to be exact for the lowest and the highest eigenvalue: alpha = (ridge + lowest)
   (ridge + highest) / z and beta = (c - ridge) / z with z = (c + lowest) (c + highest); c is at least the ridge, since
   otherwise beta would be negative and small eigenvalues would get too much weight. The columns B of the site itself
   are not variables: subtracting site_correction' (M q)_B from M q, where site_correction contains the rows inv(M_BB)
   M_B:, gives the product with the inverse for all other columns. */
TARGET static void NAME(solve_by_inverse)(const pseudo_problem *p, int count, lane_block *const *blocks,
                                          const vec *sigma, REAL lambda, REAL *const *q)
{
    const REAL ridge = (REAL)p->metric.ridge;
    const REAL lowest = (REAL)p->metric.lowest_eigenvalue, highest = (REAL)p->metric.highest_eigenvalue;
    float *left[PSEUDO_BLOCKS_PER_TASK], *right[PSEUDO_BLOCKS_PER_TASK];
    vec largest[PSEUDO_BLOCKS_PER_TASK];  /* the largest |entry| of q[b], the divisor of left[b] */
    for (int b = 0; b < count; b++) {
        left[b] = blocks[b]->w.left;
        right[b] = blocks[b]->w.right;
        largest[b] = NAME(scale_to_float)(p, q[b], left[b]);
    }
    NAME(multiply_panels)(p->metric.inverse, p->D, p->metric.D_padded / 8, p->D, count, left, right);
    for (int b = 0; b < count; b++) {
        const pseudo_block *t = &blocks[b]->t;
        const vec c = NAME(larger)(lambda / sigma[b], vec_fill(ridge));
        /* alpha and beta are divided by sigma, since (sigma Cov + lambda)^-1 = (Cov + c)^-1 / sigma, and alpha is
           multiplied by `largest`, the divisor of the factor of M */
        const vec scale = (c + lowest) * (c + highest) * sigma[b];
        const vec alpha = largest[b] * ((ridge + lowest) * (ridge + highest)) / scale, beta = (c - ridge) / scale;
        for (ptrdiff_t a = 0; a < t->A; a++) {
            const float *correction = blocks[b]->w.site_correction + a * p->D * LANES;
            /* (M q) at column a of each lane's site, unchanged by the corrections of smaller a: row a of
               site_correction is 1 at column a and 0 at the site's other columns, since inv(M_BB) M_BB = I */
            float site_product[LANES];
            for (int v = 0; v < LANES; v++)
                site_product[v] = t->site[v] < 0 || a > p->n_levels[t->site[v]] - 2  /* no such column */
                    ? 0 : right[b][(p->first_column[t->site[v]] + a) * LANES + v];
            for (ptrdiff_t k = 0; k < p->D; k++)
                NAME(storef)(right[b] + k * LANES,
                             NAME(loadf)(right[b] + k * LANES)
                                 - NAME(loadf)(correction + k * LANES) * NAME(loadf)(site_product));
        }
        for (ptrdiff_t k = 0; k < p->D; k++)
            vec_store(q[b] + k * LANES,
                      WIDEN(NAME(loadf)(right[b] + k * LANES)) * alpha + vec_load(q[b] + k * LANES) * beta);
    }
}

/* Multiply q (D, V), couplings of one logit, by (sigma Cov + lambda)^-1 in place, lambda = penalty + column_penalty.
   Cov is approximated by diag(f) - f f' within each predictor, where f are its columns' means, and by 0 between
   predictors. With B = sigma diag(f) + lambda the result is, by the Sherman-Morrison formula, B^-1 q + B^-1 f sigma <f,
   B^-1 q> / (1 - sigma <f, B^-1 f>), in the code v, dot and denominator. */
TARGET static void NAME(solve_by_predictor)(const pseudo_problem *p, const lane_memory *w, vec sigma, REAL penalty,
                                            REAL *q)
{
    const REAL half_row = (REAL)p->rows.half_row;  /* smallest mean, used for an empty level */
    for (ptrdiff_t j = 0; j < p->m; j++) {
        /* column_penalty is equal within a predictor */
        const REAL lambda = w->column_penalty ? penalty + (REAL)w->column_penalty[p->first_column[j]] : penalty;
        /* f / (sigma f + lambda) of each column, in memory that is unused between passes and has a row for each
           level */
        REAL *gain = w->state_table;
        vec dot = vec_fill(0.0), denominator = vec_fill(1.0);
        for (ptrdiff_t c = p->first_column[j]; c < p->first_column[j + 1]; c++) {
            const REAL f = p->moments.mean[1 + c] > p->rows.half_row ? (REAL)p->moments.mean[1 + c] : half_row;
            const vec inverse = vec_fill(1.0) / (sigma * f + lambda), v = vec_load(q + c * LANES) * inverse;
            dot += v * f;
            denominator -= sigma * inverse * (f * f);
            vec_store(q + c * LANES, v);
            vec_store(gain + (c - p->first_column[j]) * LANES, inverse * f);
        }
        /* the denominator is approximately the share of level 0, or larger */
        dot *= sigma / NAME(larger)(denominator, vec_fill(half_row));
        for (ptrdiff_t c = p->first_column[j]; c < p->first_column[j + 1]; c++)
            vec_store(q + c * LANES,
                      vec_load(q + c * LANES) + dot * vec_load(gain + (c - p->first_column[j]) * LANES));
    }
}

/* Multiply each q[b] (A, P, V) by the metric of blocks[b], b < count, in place; all blocks have A logits. Entries that
   are not parameters become 0. lambda, lambdah are the ridge penalties of couplings and fields; w.column_penalty (D,),
   unless NULL, is added to lambda for each column. */
TARGET static void NAME(apply_metric)(const pseudo_problem *p, int count, lane_block *const *blocks, REAL lambda,
                                      REAL lambdah, REAL *const *q)
{
    const ptrdiff_t P = 1 + p->D, A = blocks[0]->t.A;
    const int rotated = A > 1 && A <= PSEUDO_MAX_ROTATED;  /* one logit needs no rotation; many are not rotated */
    vec sigma[PSEUDO_BLOCKS_PER_TASK];  /* eigenvalues of kappa S_i for logit a, (V,) each */
    REAL *couplings[PSEUDO_BLOCKS_PER_TASK];  /* of logit a, (D, V) each */
    for (int b = 0; b < count && rotated; b++)
        NAME(rotate_logits)(p, &blocks[b]->t, &blocks[b]->w, /* back */ 0, q[b]);
    for (ptrdiff_t a = 0; a < A; a++) {
        for (int b = 0; b < count; b++) {
            sigma[b] = vec_load(blocks[b]->w.sigma + a * LANES) * vec_load(blocks[b]->s.now.kappa);
            couplings[b] = q[b] + a * P * LANES;
            vec_store(couplings[b], vec_load(couplings[b]) / (sigma[b] + lambdah));  /* the field */
            couplings[b] += LANES;
            /* column_penalty also rules out the inverse */
            if (!(NAME(uses_eigenvectors)(p, blocks[b]) || p->metric.inverse) || blocks[b]->w.column_penalty)
                NAME(solve_by_predictor)(p, &blocks[b]->w, sigma[b], lambda, couplings[b]);
        }
        if (p->metric.inverse && !blocks[0]->w.column_penalty)
            NAME(solve_by_inverse)(p, count, blocks, sigma, lambda, couplings);
        else if (NAME(uses_eigenvectors)(p, blocks[0]))
            NAME(solve_by_eigenvectors)(p, count, blocks, sigma, lambda, couplings);
    }
    for (int b = 0; b < count; b++) {  /* back from the eigenvectors; set entries without a parameter to zero */
        const REAL *has_level = blocks[b]->t.has_level;
        if (rotated)
            NAME(rotate_logits)(p, &blocks[b]->t, &blocks[b]->w, /* back */ 1, q[b]);
        for (ptrdiff_t a = 0; a < A; a++)
            for (ptrdiff_t c = 0; c < P; c++) {
                REAL *entry = q[b] + (a * P + c) * LANES;
                vec_store(entry,
                          vec_load(entry) * vec_load(blocks[b]->w.mask + c * LANES) * vec_load(has_level + a * LANES));
            }
    }
}

/* Return the quadratic form <q, (sigma Cov + lambda)^-1 q>, lambda = penalty + column_penalty, shape (V,), for q (D,
   V), couplings of one logit. Cov is approximated as in solve_by_eigenvectors or solve_by_predictor; this takes half
   the time of multiplying q by the matrix. Not for blocks that are solved together: only these may use the inverse of
   Cov. */
TARGET static vec NAME(quadratic_form_of_logit)(const pseudo_problem *p, const lane_block *block, vec sigma,
                                                REAL penalty, const REAL *q)
{
    const lane_memory *w = &block->w;
    const REAL half_row = (REAL)p->rows.half_row;  /* smallest mean, used for an empty level */
    vec sum = vec_fill(0.0);
    if (NAME(uses_eigenvectors)(p, block)) {
        const vec largest = NAME(scale_to_float)(p, q, w->left);
        const vec tail_gain = vec_fill(1.0) / (sigma * (REAL)block->t.tail_eigenvalue + penalty);
        NAME(multiply_panels)(p->metric.project, p->D, block->t.rank / 8, p->D, 1, &w->left, &w->right);
        for (ptrdiff_t c = 0; c < p->D; c++) {
            const vec v = vec_load(q + c * LANES) / largest;
            sum += v * v;
        }
        sum *= tail_gain;
        for (ptrdiff_t k = 0; k < block->t.rank; k++) {
            const vec v = WIDEN(NAME(loadf)(w->right + k * LANES));
            sum += v * v * (vec_fill(1.0) / (sigma * (REAL)p->metric.eigenvalue[k] + penalty) - tail_gain);
        }
        return sum * largest * largest;
    }
    for (ptrdiff_t j = 0; j < p->m; j++) {
        /* column_penalty is equal within a predictor */
        const REAL lambda = w->column_penalty ? penalty + (REAL)w->column_penalty[p->first_column[j]] : penalty;
        vec dot = vec_fill(0.0), denominator = vec_fill(1.0);
        for (ptrdiff_t c = p->first_column[j]; c < p->first_column[j + 1]; c++) {
            const REAL f = p->moments.mean[1 + c] > p->rows.half_row ? (REAL)p->moments.mean[1 + c] : half_row;
            const vec inverse = vec_fill(1.0) / (sigma * f + lambda), v = vec_load(q + c * LANES);
            sum += v * v * inverse;
            dot += v * inverse * f;
            denominator -= sigma * inverse * (f * f);
        }
        /* the denominator is approximately the share of level 0, or larger */
        sum += dot * dot * sigma / NAME(larger)(denominator, vec_fill(half_row));
    }
    return sum;
}

/* Return the quadratic form <q, metric times q>, shape (V,), for q (A, P, V) that is zero in entries without a
   parameter; q is overwritten */
TARGET static vec NAME(metric_quadratic_form)(const pseudo_problem *p, lane_block *block, REAL lambda, REAL lambdah,
                                              REAL *q)
{
    const ptrdiff_t P = 1 + p->D, A = block->t.A;
    vec sum = vec_fill(0.0);
    if (A > 1 && A <= PSEUDO_MAX_ROTATED)
        NAME(rotate_logits)(p, &block->t, &block->w, /* back */ 0, q);
    for (ptrdiff_t a = 0; a < A; a++, q += P * LANES) {
        const vec sigma = vec_load(block->w.sigma + a * LANES) * vec_load(block->s.now.kappa), h = vec_load(q);
        sum += h * h / (sigma + lambdah) + NAME(quadratic_form_of_logit)(p, block, sigma, lambda, q + LANES);
    }
    return sum;
}
