/* Objective and gradient of one lane block; pseudo_kernel.h includes this file after pseudo_bundle.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h. The objective of a site is the mean log normaliser -
   <parameters, empirical moments> + penalties: the responses themselves are not read again. Gradients g are sums over
   rows until `evaluate` multiplies them by p->rows.scale.

   Arrays of w and t, lane last:
   mask (1 + D, V)       1 if the lane's site has this entry of x as a parameter, otherwise 0; the same for all logits.
                         Entries of x without a parameter are 0; logits that a site lacks have probability 0.
   moment (A, 1 + D, V)  empirical moments: share of rows in the site's level a + 1 (entry 0), and also in column c
                         (entry 1 + c), plus the coefficients of a linear term that is subtracted from the objective
   h (A, V)              fields h, not centred
   sums (2 + A, V)       sums over rows: log normaliser, curvature sum_a p_a (1 - p_a), probability p_a of each logit a;
                         followed by two arrays of the same size, used by pass_over_rows and free afterwards
   trace (V,)            mean curvature sum_a p_a (1 - p_a) of the model without couplings
   zero_sum              whether the penalties lambda and lambdah apply in the zero-sum gauge, in which parameters have
                         mean 0 over levels, see add_zero_sum_penalty
   t->has_level (A, V)   1 if the lane's site has level a + 1, otherwise 0; smaller sites have fewer than A levels
   chunk_tables, planes, state_table, scratch: working memory

   Mixed precision in single precision: x and the sums of p_a are changes since the anchor, and `moment` is minus the
   gradient there, with respect to h and J, penalties included. The same formula, sums * rows.scale - moment + lambda x,
   is then the change of the gradient plus the gradient at the anchor, since penalties have gradients linear in x. Log
   normalisers are 0; the objective is not used, since the line search compares slopes. */

/* Write the fields h (A, V) = h' - <J, column means> of x, and *shift: 1 if logits must be shifted before exp. It is 0
   if exp cannot overflow, because |h| plus the largest |J| of each predictor, an upper bound of |logit|, is below SAFE
   (pseudo_logits.h) */
TARGET static void NAME(uncentre_fields)(const pseudo_problem *p, const pseudo_block *t, const REAL *x, REAL *h,
                                         int *shift)
{
    const ptrdiff_t P = 1 + p->D;
    REAL bound[LANES];  /* of |logit| in each lane */
    vec max_logit = vec_fill(0.0);
    ptrdiff_t a, j, c;
    for (a = 0; a < t->A; a++, x += P * LANES) {
        vec field = vec_load(x), coupling_bound = vec_fill(0.0);  /* sum over predictors of the largest |J| */
        for (j = 0; j < p->m; j++) {
            vec max_coupling = vec_fill(0.0);
            for (c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {  /* entry of x, after the field's */
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
    for (a = 0, *shift = 0; a < LANES; a++)  /* a is a lane here */
        *shift |= !(bound[a] < SAFE);  /* also if the bound is NaN */
}

/* Return sum_c column_penalty[c]/2 J_c^2 over all logits, shape (V,), a penalty in addition to lambda; add its
   gradient, divided by rows.scale, to g (A, 1 + D, V) */
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

/* Return the penalty lambda/2 |J~|^2 + lambdah/2 |h~|^2, shape (V,); add its gradient, divided by rows.scale, to g (A,
   1 + D, V). J~, h~ are the parameters in the zero-sum gauge: J~_ij(a, b) is J_ij(a, b) minus its means over a and over
   b; h~_i(a) is h_i(a) + sum_j (mean of J_ij(a, b) over b), minus its mean over a. Level 0, with parameters of zero, is
   included in all means. `evaluate` later sets entries of the gradient without a parameter to 0. */
TARGET static vec NAME(add_zero_sum_penalty)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                             const REAL *x, REAL lambda, REAL lambdah, REAL *g)
{
    const ptrdiff_t A = t->A, logit_stride = (1 + p->D) * LANES;
    const REAL *has_level = t->has_level, unscale = (REAL)(1.0 / p->rows.scale);
    REAL *mean_b = w->scratch,                  /* (A, V) means over b of J_ij(a, b), for one predictor j at a time */
        *field = w->sums + (2 + A) * LANES;     /* (A, V) h + sum_j mean_b, h~ plus its mean; after the sums in use */
    vec n_levels = vec_fill(1.0), penalty = vec_fill(0.0), mean_field = vec_fill(0.0);  /* levels of each lane's site */
    for (ptrdiff_t a = 0; a < A; a++) {
        n_levels += vec_load(has_level + a * LANES);
        vec_store(field + a * LANES, vec_load(w->h + a * LANES));
    }
    for (ptrdiff_t j = 0; j < p->m; j++) {  /* entry c of x is column c - 1; j may be the site, with J = 0 */
        const REAL inverse_L = 1 / (REAL)p->n_levels[j];
        for (ptrdiff_t a = 0; a < A; a++) {
            vec sum = vec_fill(0.0);
            for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++)
                sum += vec_load(x + a * logit_stride + c * LANES);
            vec_store(mean_b + a * LANES, sum * inverse_L);
            vec_store(field + a * LANES, vec_load(field + a * LANES) + sum * inverse_L);
        }
        for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {
            vec mean_a = vec_fill(0.0);  /* over a of J_ij(a, b) - mean_b, for the level b of column c */
            for (ptrdiff_t a = 0; a < A; a++)
                mean_a += vec_load(x + a * logit_stride + c * LANES) - vec_load(mean_b + a * LANES);
            mean_a /= n_levels;
            for (ptrdiff_t a = 0; a < A; a++) {
                const vec J = vec_load(x + a * logit_stride + c * LANES);
                const vec slope =
                    (J - vec_load(mean_b + a * LANES) - mean_a) * vec_load(has_level + a * LANES) * lambda;
                penalty += J * slope;  /* <J, J~> = |J~|^2, as J~ is a projection of J */
                vec_store(g + a * logit_stride + c * LANES,
                          vec_load(g + a * logit_stride + c * LANES) + slope * unscale);
            }
        }
    }
    for (ptrdiff_t a = 0; a < A; a++)
        mean_field += vec_load(field + a * LANES);
    mean_field /= n_levels;
    for (ptrdiff_t a = 0; a < A; a++) {
        const vec field_a = vec_load(field + a * LANES);
        const vec slope = (field_a - mean_field) * vec_load(has_level + a * LANES) * lambdah;
        penalty += field_a * slope;
        vec_store(g + a * logit_stride, vec_load(g + a * logit_stride) + slope * unscale);
        for (ptrdiff_t j = 0; j < p->m; j++)  /* h~ contains each coupling with j, times 1 / L_j */
            for (ptrdiff_t c = p->first_column[j] + 1; c <= p->first_column[j + 1]; c++) {
                REAL *g_J = g + a * logit_stride + c * LANES;
                vec_store(g_J, vec_load(g_J) + slope * (unscale / (REAL)p->n_levels[j]));
            }
    }
    return penalty * (REAL)0.5;
}

/* Evaluate the objective at x (A, 1 + D, V). Write its gradient g (A, 1 + D, V) with respect to (h', J) and, to *out,
   for each lane: the objective, the norm of the gradient with respect to (h, J), the slope <g, d> along a direction d
   (A, 1 + D, V) (0 if d is NULL), and kappa, the mean curvature sum_a p_a (1 - p_a) divided by the mean curvature
   without couplings. lambda, lambdah are the ridge penalties of couplings and fields; w->column_penalty (D,), unless
   NULL, is added to lambda for each column. coupled = 0 guarantees that all couplings are zero. */
TARGET static void NAME(evaluate)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w, const REAL *x,
                                  const REAL *d, int coupled, REAL lambda, REAL lambdah, REAL *g, evaluation *out)
{
    const ptrdiff_t P = 1 + p->D, logit_stride = P * LANES;
    vec subtracted = vec_fill(0.0),  /* from f: <(h, J), moment>, minus column and zero-sum penalties (added to f) */
        ridge = vec_fill(0.0), ridge_h = vec_fill(0.0);  /* |J|^2, |h|^2 */
    vec norm = vec_fill(0.0), slope = vec_fill(0.0), kappa;
    int shift;
    NAME(uncentre_fields)(p, t, x, w->h, &shift);
    if (coupled)  /* g: sums over rows of p_a (entry 0), and of p_a times column c (entry 1 + c) */
        NAME(pass_over_rows)(p, t, x, w->h, shift, w->chunk_tables, w->planes, w->state_table, w->sums, g);
    else
        NAME(pass_without_couplings)(p, t, w->h, w->sums, g);
    if (w->column_penalty)
        subtracted -= NAME(add_column_penalty)(p, t, w, x, g);
    if (w->zero_sum) {
        subtracted -= NAME(add_zero_sum_penalty)(p, t, w, x, lambda, lambdah, g);
        lambda = lambdah = 0;  /* these penalties are already included */
    }
    for (ptrdiff_t a = 0; a < t->A; a++, x += logit_stride, g += logit_stride) {
        const REAL *moment = w->moment + a * logit_stride;
        const vec h = vec_load(w->h + a * LANES);
        const vec g_h = (vec_load(g) * (REAL)p->rows.scale - vec_load(moment)) * vec_load(w->mask) + h * lambdah;
        subtracted += h * vec_load(moment);
        ridge_h += h * h;
        norm += g_h * g_h;
        vec_store(g, g_h);
        if (d)
            slope += g_h * vec_load(d + a * logit_stride);
        for (ptrdiff_t c = 1; c < P; c++) {
            const vec J = vec_load(x + c * LANES), mask = vec_load(w->mask + c * LANES);
            const vec moment_c = vec_load(moment + c * LANES);
            /* derivative with respect to J for fixed h, then for fixed h' = h + <J, column means> (chain rule) */
            const vec g_J = (vec_load(g + c * LANES) * (REAL)p->rows.scale - moment_c) * mask + J * lambda;
            const vec g_centred = g_J - g_h * mask * (REAL)p->moments.mean[c];
            subtracted += J * moment_c;
            ridge += J * J;
            norm += g_J * g_J;
            vec_store(g + c * LANES, g_centred);
            if (d)
                slope += g_centred * vec_load(d + a * logit_stride + c * LANES);
        }
    }
    vec_store(out->f,  /* w->sums starts with the log normalisers */
              vec_load(w->sums) * (REAL)p->rows.scale - subtracted + ridge * (lambda / 2) + ridge_h * (lambdah / 2));
    vec_store(out->slope, slope);
    kappa = vec_load(w->sums + LANES) * (REAL)p->rows.scale / vec_load(w->trace);
    vec_store(out->kappa, NAME(larger)(kappa, vec_fill(1e-3)));  /* positive, since the metric divides by it */
    vec_store(out->norm, norm);
    for (ptrdiff_t a = 0; a < LANES; a++)  /* a is a lane here */
        out->norm[a] = (REAL)sqrt(out->norm[a]);
}
