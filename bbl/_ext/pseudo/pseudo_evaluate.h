/* Objective and gradient of one lane block; pseudo_kernel.h includes this file after pseudo_bundle.h.

   A *lane block* is V = LANES sites (predictors whose conditional distribution given the others is fitted), one in each
   lane of a vector: p the problem, t the block's sites and sizes, w its arrays. `vec` is a vector of V numbers REAL,
   NAME(f) the function f for this vector width and precision. A is the number of logits, D that of columns, indicators
   of the non-reference levels of all predictors: predictor j has the columns first_column[j] ... first_column[j + 1]
   - 1. Parameters x (A, 1 + D, V): in column 0 the centred field h' = h + <J, column means>, so that fields and
   couplings hardly interact, in column 1 + c the coupling J to column c. The objective of a site is the mean log
   normaliser - <parameters, empirical moments> + penalties: the responses themselves are not read again. */

/* Write the fields h (A, V) of x, uncentred, and *shift: 0 if every |logit| is below SAFE, so exp cannot overflow */
TARGET static void NAME(uncentre_fields)(const pseudo_problem *p, const pseudo_block *t, const REAL *x, REAL *h,
                                         int *shift)
{
    const ptrdiff_t P = 1 + p->D;
    REAL bound[LANES];
    vec max_logit = vec_fill(0.0);
    ptrdiff_t a, j, c;
    for (a = 0; a < t->A; a++, x += P * LANES) {
        vec field = vec_load(x), coupling_bound = vec_fill(0.0);  /* sum over predictors of the largest |J| */
        for (j = 0; j < p->m; j++) {
            vec max_coupling = vec_fill(0.0);
            for (c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {
                const vec J = vec_load(x + c * LANES);
                field -= J * (REAL)p->moments.mean[c];
                max_coupling = NAME(larger)(NAME(larger)(J, -J), max_coupling);
            }
            coupling_bound += max_coupling;
        }
        vec_store(h + a * LANES, field);
        max_logit = NAME(larger)(coupling_bound + NAME(larger)(field, -field), max_logit);
    }
    vec_store(bound, max_logit);
    for (a = 0, *shift = 0; a < LANES; a++)
        *shift |= !(bound[a] < SAFE);
}

/* Add the gradient of the ridge penalties w->column_penalty (D,), divided by rows.scale, to the couplings' entries of
   g (A, 1 + D, V); return the penalty, shape (V,) */
TARGET static vec NAME(add_column_penalty)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                           const REAL *x, REAL *g)
{
    const ptrdiff_t logit_stride = (1 + p->D) * LANES;
    vec sum = vec_fill(0.0);
    for (ptrdiff_t a = 0; a < t->A; a++, x += logit_stride, g += logit_stride)
        for (ptrdiff_t c = 1; c <= p->D; c++) {
            const vec J = vec_load(x + c * LANES), slope = J * (REAL)w->column_penalty[c - 1];
            sum += J * slope;
            vec_store(g + c * LANES, vec_load(g + c * LANES) + slope * (REAL)(1.0 / p->rows.scale));
        }
    return sum * (REAL)0.5;
}

/* Add the gradient of lambda/2 |J~|^2 + lambdah/2 |h~|^2, divided by rows.scale, to g (A, 1 + D, V); return this
   penalty, shape (V,). J~, h~ are the parameters in the zero-sum gauge: J~_ij(a, b) is J_ij(a, b) less its means over a
   and over b; h~_i(a) is h_i(a) + sum_j (mean of J_ij(a, b) over b), less its mean over a. Level 0, whose parameters
   are zero, counts in all means. */
TARGET static vec NAME(add_zero_sum_penalty)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                             const REAL *x, REAL lambda, REAL lambdah, REAL *g)
{
    const ptrdiff_t A = t->A, logit_stride = (1 + p->D) * LANES;
    const REAL *has_level = t->has_level, unscale = (REAL)(1.0 / p->rows.scale);
    REAL *mean = w->scratch, *field = w->sums + (2 + A) * LANES;  /* (A, V) each; the latter is free after a pass */
    vec n_levels = vec_fill(1.0), penalty = vec_fill(0.0), mean_field = vec_fill(0.0);
    for (ptrdiff_t a = 0; a < A; a++) {
        n_levels += vec_load(has_level + a * LANES);
        vec_store(field + a * LANES, vec_load(w->h + a * LANES));
    }
    for (ptrdiff_t j = 0; j < p->m; j++) {
        const REAL share = 1 / (REAL)p->n_levels[j];
        for (ptrdiff_t a = 0; a < A; a++) {
            vec sum = vec_fill(0.0);
            for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++)
                sum += vec_load(x + a * logit_stride + c * LANES);
            vec_store(mean + a * LANES, sum * share);
            vec_store(field + a * LANES, vec_load(field + a * LANES) + sum * share);
        }
        for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {
            vec sum = vec_fill(0.0);
            for (ptrdiff_t a = 0; a < A; a++)
                sum += vec_load(x + a * logit_stride + c * LANES) - vec_load(mean + a * LANES);
            sum /= n_levels;
            for (ptrdiff_t a = 0; a < A; a++) {
                const vec J = vec_load(x + a * logit_stride + c * LANES);
                const vec slope = (J - vec_load(mean + a * LANES) - sum) * vec_load(has_level + a * LANES) * lambda;
                penalty += J * slope;
                vec_store(g + a * logit_stride + c * LANES,
                          vec_load(g + a * logit_stride + c * LANES) + slope * unscale);
            }
        }
    }
    for (ptrdiff_t a = 0; a < A; a++)
        mean_field += vec_load(field + a * LANES);
    mean_field /= n_levels;
    for (ptrdiff_t a = 0; a < A; a++) {
        const vec gauged_field = vec_load(field + a * LANES);
        const vec slope = (gauged_field - mean_field) * vec_load(has_level + a * LANES) * lambdah;
        penalty += gauged_field * slope;
        vec_store(g + a * logit_stride, vec_load(g + a * logit_stride) + slope * unscale);
        for (ptrdiff_t j = 0; j < p->m; j++)
            for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {
                REAL *g_J = g + a * logit_stride + c * LANES;
                vec_store(g_J, vec_load(g_J) + slope * (unscale / (REAL)p->n_levels[j]));
            }
    }
    return penalty * (REAL)0.5;
}

/* Evaluate the objective at x (A, 1 + D, V): write its gradient g in (h', J) and, to *out, per lane: the objective, the
   norm of the gradient in (h, J), the slope <g, d> (0 if d is NULL) and the curvature ratio kappa. coupled = 0 promises
   that all couplings are zero. */
TARGET static void NAME(evaluate)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w, const REAL *x,
                                  const REAL *d, int coupled, REAL lambda, REAL lambdah, REAL *g, evaluation *out)
{
    const ptrdiff_t P = 1 + p->D, logit_stride = P * LANES;
    vec linear = vec_fill(0.0), ridge = vec_fill(0.0), ridge_h = vec_fill(0.0);  /* <x, moments>; |J|^2; |h|^2 */
    vec norm = vec_fill(0.0), slope = vec_fill(0.0), kappa;
    int shift;
    NAME(uncentre_fields)(p, t, x, w->h, &shift);
    if (coupled)
        NAME(pass_over_rows)(p, t, x, w->h, shift, w->chunk_tables, w->planes, w->state_table, w->sums, g);
    else
        NAME(pass_without_couplings)(p, t, w->h, w->sums, g);
    if (w->column_penalty)
        linear -= NAME(add_column_penalty)(p, t, w, x, g);
    if (w->zero_sum) {
        linear -= NAME(add_zero_sum_penalty)(p, t, w, x, lambda, lambdah, g);
        lambda = lambdah = 0;
    }
    for (ptrdiff_t a = 0; a < t->A; a++, x += logit_stride, g += logit_stride) {
        const REAL *moment = w->moment + a * logit_stride;
        const vec h = vec_load(w->h + a * LANES);
        const vec g_h = (vec_load(g) * (REAL)p->rows.scale - vec_load(moment)) * vec_load(w->mask) + h * lambdah;
        linear += h * vec_load(moment);
        ridge_h += h * h;
        norm += g_h * g_h;
        vec_store(g, g_h);
        if (d)
            slope += g_h * vec_load(d + a * logit_stride);
        for (ptrdiff_t c = 1; c < P; c++) {
            const vec J = vec_load(x + c * LANES), mask = vec_load(w->mask + c * LANES);
            const vec M = vec_load(moment + c * LANES);
            const vec g_J = (vec_load(g + c * LANES) * (REAL)p->rows.scale - M) * mask + J * lambda;
            const vec g_centred = g_J - g_h * mask * (REAL)p->moments.mean[c];
            linear += J * M;
            ridge += J * J;
            norm += g_J * g_J;
            vec_store(g + c * LANES, g_centred);
            if (d)
                slope += g_centred * vec_load(d + a * logit_stride + c * LANES);
        }
    }
    vec_store(out->f,
              vec_load(w->sums) * (REAL)p->rows.scale - linear + ridge * (lambda / 2) + ridge_h * (lambdah / 2));
    vec_store(out->slope, slope);
    kappa = vec_load(w->sums + LANES) * (REAL)p->rows.scale / vec_load(w->trace);
    vec_store(out->kappa, NAME(larger)(kappa, vec_fill(1e-3)));  /* kept from 0, by which the metric would divide */
    vec_store(out->norm, norm);
    for (ptrdiff_t a = 0; a < LANES; a++)
        out->norm[a] = (REAL)sqrt(out->norm[a]);
}
