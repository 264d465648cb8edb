/* Objective and gradient of one lane block in all its parameters; pseudo_kernel.h includes it after pseudo_bundle.h.

   Variables: couplings J and centred fields h' = h + J . mean, so that fields and couplings hardly interact. */

/* Fields h (A, V) of the point x; shift = 0 where no logit can reach SAFE, so that exp may be taken as it is */
TARGET static void NAME(fields)(const pseudo_problem *p, const pseudo_task *t, const REAL *x, REAL *h, int *shift)
{
    const ptrdiff_t P = 1 + p->D;
    REAL bound[LANES];
    vec most = vec_fill(0.0);
    ptrdiff_t a, j, c;
    for (a = 0; a < t->A; a++, x += P * LANES) {
        vec field = vec_load(x), size = vec_fill(0.0);
        for (j = 0; j < p->m; j++) {
            vec top = vec_fill(0.0);
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
                const vec J = vec_load(x + c * LANES);
                field -= J * (REAL)p->moments.mean[c];
                top = NAME(larger)(NAME(larger)(J, -J), top);
            }
            size += top;
        }
        vec_store(h + a * LANES, field);
        most = NAME(larger)(size + NAME(larger)(field, -field), most);
    }
    vec_store(bound, most);
    for (a = 0, *shift = 0; a < LANES; a++)
        *shift |= !(bound[a] < SAFE);
}

/* Add the gradient of the penalties of single columns (w->more, beside lambda) to the sums g of `pass`; return their part
   of the objective, shape (V,) */
TARGET static vec NAME(add_column_penalty)(const pseudo_problem *p, const pseudo_task *t, const lane_memory *w,
                                        const REAL *x, REAL *g)
{
    const ptrdiff_t far = (1 + p->D) * LANES;
    vec sum = vec_fill(0.0);
    ptrdiff_t a, c;
    for (a = 0; a < t->A; a++, x += far, g += far)
        for (c = 1; c <= p->D; c++) {
            const vec J = vec_load(x + c * LANES), pull = J * (REAL)w->more[c - 1];
            sum += J * pull;
            vec_store(g + c * LANES, vec_load(g + c * LANES) + pull * (REAL)(1.0 / p->rows.scale));
        }
    return sum * (REAL)0.5;
}

/* Add the gradient of the penalties in the zero-sum gauge to the sums g of `pass`; returns their part of the objective.
   There J_ij(a, b) is less its means over a and over b, and h_i(a) + sum_j (mean of J_ij(a, b) over b) less its mean;
   level 0, whose parameters are zero, counts in all means. */
TARGET static vec NAME(add_zero_sum_penalty)(const pseudo_problem *p, const pseudo_task *t, const lane_memory *w,
                                          const REAL *x, REAL lambda,
                               REAL lambdah, REAL *g)
{
    const ptrdiff_t A = t->A, far = (1 + p->D) * LANES;
    const REAL *live = t->live, back = (REAL)(1.0 / p->rows.scale);
    REAL *mean = w->columns, *field = w->sums + (2 + A) * LANES;  /* (A, V) each; the latter is free after `pass` */
    vec levels = vec_fill(1.0), value = vec_fill(0.0), mean_field = vec_fill(0.0);
    ptrdiff_t j, a, c;
    for (a = 0; a < A; a++) {
        levels += vec_load(live + a * LANES);
        vec_store(field + a * LANES, vec_load(w->h + a * LANES));
    }
    for (j = 0; j < p->m; j++) {
        const REAL share = 1 / (REAL)p->n_levels[j];
        for (a = 0; a < A; a++) {
            vec sum = vec_fill(0.0);
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++)
                sum += vec_load(x + a * far + c * LANES);
            vec_store(mean + a * LANES, sum * share);
            vec_store(field + a * LANES, vec_load(field + a * LANES) + sum * share);
        }
        for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
            vec sum = vec_fill(0.0);
            for (a = 0; a < A; a++)
                sum += vec_load(x + a * far + c * LANES) - vec_load(mean + a * LANES);
            sum /= levels;
            for (a = 0; a < A; a++) {
                const vec J = vec_load(x + a * far + c * LANES);
                const vec pull = (J - vec_load(mean + a * LANES) - sum) * vec_load(live + a * LANES) * lambda;
                value += J * pull;
                vec_store(g + a * far + c * LANES, vec_load(g + a * far + c * LANES) + pull * back);
            }
        }
    }
    for (a = 0; a < A; a++)
        mean_field += vec_load(field + a * LANES);
    mean_field /= levels;
    for (a = 0; a < A; a++) {
        const vec gauged_field = vec_load(field + a * LANES);
        const vec pull = (gauged_field - mean_field) * vec_load(live + a * LANES) * lambdah;
        value += gauged_field * pull;
        vec_store(g + a * far, vec_load(g + a * far) + pull * back);
        for (j = 0; j < p->m; j++)
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
                REAL *to = g + a * far + c * LANES;
                vec_store(to, vec_load(to) + pull * (back / (REAL)p->n_levels[j]));
            }
    }
    return value * (REAL)0.5;
}

/* Objective, its gradient g in (h', J) and, in the point, the norm of the gradient in (h, J) and the slope <g, d>.
   f = mean of log normalisers - <parameters, empirical moments> + penalties: the responses are not looked at again. */
TARGET static void NAME(evaluate)(const pseudo_problem *p, const pseudo_task *t, const lane_memory *w, const REAL *x,
                                  const REAL *d, int coupled, REAL lambda, REAL lambdah, REAL *g, evaluation *out)
{
    const ptrdiff_t P = 1 + p->D, far = P * LANES;
    vec linear = vec_fill(0.0), ridge = vec_fill(0.0), ridge_h = vec_fill(0.0), norm = vec_fill(0.0), slope = vec_fill(0.0);
    ptrdiff_t a, c;
    int shift;
    NAME(fields)(p, t, x, w->h, &shift);
    if (coupled)
        NAME(pass)(p, t, x, w->h, shift, w->tiles, w->planes, w->table, w->sums, g);
    else
        NAME(independent)(p, t, w->h, w->sums, g);
    if (w->more)
        linear -= NAME(add_column_penalty)(p, t, w, x, g);
    if (w->zero_sum) {
        linear -= NAME(add_zero_sum_penalty)(p, t, w, x, lambda, lambdah, g);
        lambda = lambdah = 0;
    }
    for (a = 0; a < t->A; a++, x += far, g += far) {
        const REAL *moment = w->moment + a * far;
        const vec h = vec_load(w->h + a * LANES);
        const vec gh = (vec_load(g) * (REAL)p->rows.scale - vec_load(moment)) * vec_load(w->mask) + h * lambdah;
        linear += h * vec_load(moment);
        ridge_h += h * h;
        norm += gh * gh;
        vec_store(g, gh);
        if (d)
            slope += gh * vec_load(d + a * far);
        for (c = 1; c < P; c++) {
            const vec J = vec_load(x + c * LANES), mask = vec_load(w->mask + c * LANES), M = vec_load(moment + c * LANES);
            const vec raw = (vec_load(g + c * LANES) * (REAL)p->rows.scale - M) * mask + J * lambda;
            const vec centred = raw - gh * mask * (REAL)p->moments.mean[c];
            linear += J * M;
            ridge += J * J;
            norm += raw * raw;
            vec_store(g + c * LANES, centred);
            if (d)
                slope += centred * vec_load(d + a * far + c * LANES);
        }
    }
    vec_store(out->f, vec_load(w->sums) * (REAL)p->rows.scale - linear + ridge * (lambda / 2) + ridge_h * (lambdah / 2));
    vec_store(out->slope, slope);
    vec_store(out->kappa, NAME(larger)(vec_load(w->sums + LANES) * (REAL)p->rows.scale / vec_load(w->spread), vec_fill(1e-3)));
    vec_store(out->norm, norm);
    for (a = 0; a < LANES; a++)
        out->norm[a] = (REAL)sqrt(out->norm[a]);
}
