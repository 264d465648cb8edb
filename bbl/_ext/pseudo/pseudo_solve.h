/* Preconditioned L-BFGS of lane blocks; pseudo_kernel.h includes it after pseudo_metric.h.

   (a) Several blocks may go together: the metric, which then takes most of the time, is read once for all.
   (b) All lanes of a block go in lockstep: one evaluation serves them all, and each lane has its own step, decision, history
       factors and status. A lane that is done gets step 0; one that must shorten its step keeps its direction and
       stores an empty pair.
   (c) A step is taken if it decreases f enough or, where the change is below rounding, if the slope at its end is
       smaller than at its start (f is convex, so the slope tells). In mixed precision the slopes alone are looked at. */

/* Factor of a zero-sum penalty in the metric: the mean diagonal of I - 1 1'/L over the predictors; 1 in the other gauge */
static double NAME(zero_sum_share)(const pseudo_problem *p, const lane_memory *w)
{
    double sum = 0.0;
    ptrdiff_t j;
    for (j = 0; j < p->m && w->zero_sum; j++)
        sum += 1.0 - 1.0 / p->n_levels[j];
    return w->zero_sum ? sum / (double)p->m : 1.0;
}

TARGET static vec NAME(dot)(const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec s = vec_fill(0.0), s2 = vec_fill(0.0);
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size; k += 2 * LANES) {
        s += vec_load(u + k) * vec_load(v + k);
        s2 += vec_load(u + k + LANES) * vec_load(v + k + LANES);
    }
    for (; k < size; k += LANES)
        s += vec_load(u + k) * vec_load(v + k);
    return s + s2;
}

/* q += factor * u; returns <q, v> for the next step of the recursion (v may be NULL) */
TARGET static vec NAME(add_dot)(REAL *q, vec factor, const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec s = vec_fill(0.0), s2 = vec_fill(0.0);
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size && v; k += 2 * LANES) {
        const vec n = vec_load(q + k) + factor * vec_load(u + k), n2 = vec_load(q + k + LANES) + factor * vec_load(u + k + LANES);
        s += n * vec_load(v + k);
        s2 += n2 * vec_load(v + k + LANES);
        vec_store(q + k, n);
        vec_store(q + k + LANES, n2);
    }
    for (; k < size; k += LANES) {
        const vec n = vec_load(q + k) + factor * vec_load(u + k);
        if (v)
            s += n * vec_load(v + k);
        vec_store(q + k, n);
    }
    return s + s2;
}


/* Scale of the start metric H: q *= <s, y> / <y, H y> of the newest pair (s, y) */
TARGET static void NAME(scale_by_newest_pair)(const pseudo_problem *p, lane_block *at, REAL lambda, REAL lambdah,
                                              REAL *q)
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &at->w;
    const pair_history *history = &at->s.history;
    const REAL *S = w->S + history->newest * size, *Y = w->Y + history->newest * size;
    REAL sy[LANES], yhy[LANES];
    vec gamma;
    ptrdiff_t k;
    memcpy(w->x_trial, Y, (size_t)size * sizeof *Y);
    vec_store(sy, NAME(dot)(S, Y, size));
    vec_store(yhy, NAME(metric_form)(p, at, lambda, lambdah, w->x_trial));
    for (k = 0; k < LANES; k++)
        sy[k] = history->rho[history->newest][k] > 0.0 && yhy[k] > 0.0 ? sy[k] / yhy[k] : 1;
    memcpy(&gamma, sy, sizeof gamma);
    for (k = 0; k < size; k += LANES)
        vec_store(q + k, vec_load(q + k) * gamma);
}

/* The same for several blocks, q = `list[k]->w.g_trial`. The factor of a lane is measured again only where its last step was
   refused or far too short, and is kept otherwise. */
TARGET static void NAME(scale_doubtful_lanes)(const pseudo_problem *p, int count, lane_block *const *list, REAL lambda,
                                              REAL lambdah)
{
    lane_block *some[PSEUDO_BLOCKS_PER_TASK];
    REAL *q[PSEUDO_BLOCKS_PER_TASK];
    int b, v, few = 0;
    ptrdiff_t k;
    for (b = 0; b < count; b++) {
        const ptrdiff_t size = list[b]->t.A * (1 + p->D) * LANES;
        const search_state *s = &list[b]->s;
        int doubt = 0;
        for (v = 0; v < LANES; v++)
            doubt |= s->scale_is_doubtful[v] && s->history.rho[s->history.newest][v] > 0;
        if (!doubt || !s->history.count)
            continue;
        q[few] = list[b]->w.x_trial;
        memcpy(q[few], list[b]->w.Y + s->history.newest * size, (size_t)size * sizeof(REAL));
        some[few++] = list[b];
    }
    if (few)
        NAME(apply_metric)(p, few, some, lambda, lambdah, q);
    for (b = 0; b < few; b++) {
        const ptrdiff_t size = some[b]->t.A * (1 + p->D) * LANES;
        search_state *s = &some[b]->s;
        REAL yhy[LANES];
        vec_store(yhy, NAME(dot)(some[b]->w.Y + s->history.newest * size, q[b], size));
        for (v = 0; v < LANES; v++)
            if (s->scale_is_doubtful[v] && s->history.rho[s->history.newest][v] > 0 && yhy[v] > 0)
                s->scale[v] = 1 / (s->history.rho[s->history.newest][v] * yhy[v]);
    }
    for (b = 0; b < count; b++) {
        const vec scale = vec_load(list[b]->s.scale);
        for (k = 0; k < list[b]->t.A * (1 + p->D) * LANES; k += LANES)
            vec_store(list[b]->w.g_trial + k, vec_load(list[b]->w.g_trial + k) * scale);
        memset(list[b]->s.scale_is_doubtful, 0, sizeof list[b]->s.scale_is_doubtful);
    }
}

/* First loop of the two-loop recursion (Nocedal 1980): q from the gradient, and the factor alpha of each pair */
TARGET static void NAME(two_loop_backward)(const pseudo_problem *p, lane_block *at, REAL alpha[][LANES])
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &at->w;
    const pair_history *history = &at->s.history;
    REAL *q = w->g_trial;
    ptrdiff_t k, pair = history->newest;
    vec s;
    memcpy(q, w->g, (size_t)size * sizeof *q);
    s = history->count ? NAME(dot)(q, w->S + pair * size, size) : vec_fill(0.0);
    for (k = 0; k < history->count; k++) {
        const ptrdiff_t older = (pair + at->t.max_pairs - 1) % at->t.max_pairs;
        const vec factor = s * vec_load(history->rho[pair]);
        vec_store(alpha[pair], factor);
        s = NAME(add_dot)(q, -factor, w->Y + pair * size, k + 1 < history->count ? w->S + older * size : NULL, size);
        pair = older;
    }
}

/* Second loop: new directions d, and slopes along them, of the lanes in `wants_direction` */
TARGET static void NAME(two_loop_forward)(const pseudo_problem *p, lane_block *at, REAL alpha[][LANES])
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &at->w;
    const pair_history *history = &at->s.history;
    REAL *q = w->g_trial;
    ptrdiff_t k, pair = (history->newest + at->t.max_pairs - history->count + 1) % at->t.max_pairs;
    words mask;
    vec s;
    memcpy(&mask, at->s.wants_direction, sizeof mask);
    s = history->count ? NAME(dot)(q, w->Y + pair * size, size) : vec_fill(0.0);
    for (k = 0; k < history->count; k++) {
        const ptrdiff_t newer = (pair + 1) % at->t.max_pairs;
        const vec factor = vec_load(alpha[pair]) - s * vec_load(history->rho[pair]);
        s = NAME(add_dot)(q, factor, w->S + pair * size, k + 1 < history->count ? w->Y + newer * size : NULL, size);
        pair = newer;
    }
    s = vec_fill(0.0);
    for (k = 0; k < size; k += LANES) {
        const vec n = NAME(choose)(mask, -vec_load(q + k), vec_load(w->d + k));
        s += n * vec_load(w->g + k);
        vec_store(w->d + k, n);
    }
    vec_store(at->s.now.slope, s);
}

/* New directions of the blocks that need some; blocks with equally many logits share one pass of the metric */
TARGET static void NAME(renew_directions)(const pseudo_problem *p, lane_block *blocks, int count, REAL lambda,
                                          REAL lambdah)
{
    REAL alpha[PSEUDO_BLOCKS_PER_TASK][PSEUDO_MAX_PAIRS][LANES], *q[PSEUDO_BLOCKS_PER_TASK];
    lane_block *list[PSEUDO_BLOCKS_PER_TASK];
    int b, k, some;
    for (b = 0; b < count; b++) {
        if (!blocks[b].s.any_wants_direction)
            continue;
        for (k = b, some = 0; k < count; k++)
            if (blocks[k].s.any_wants_direction && blocks[k].t.A == blocks[b].t.A) {
                NAME(two_loop_backward)(p, &blocks[k], alpha[some]);
                q[some] = blocks[k].w.g_trial;
                list[some++] = &blocks[k];
            }
        NAME(apply_metric)(p, some, list, lambda, lambdah, q);
        if (p->blocks_per_task > 1)
            NAME(scale_doubtful_lanes)(p, some, list, lambda, lambdah);
        for (k = 0; k < some; k++) {
            if (list[k]->s.history.count && p->blocks_per_task == 1)
                NAME(scale_by_newest_pair)(p, list[k], lambda, lambdah, q[k]);
            NAME(two_loop_forward)(p, list[k], alpha[k]);
            list[k]->s.any_wants_direction = 0;
        }
    }
}

/* Move to the trial point in the lanes of `accepted` and store the pair (s, y); other lanes store an empty pair */
TARGET static void NAME(store_pair)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                    pair_history *history, const WORD *taken)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    REAL *S, *Y, product[LANES], ss[LANES], yy[LANES];
    vec sy = vec_fill(0.0), s2 = vec_fill(0.0), y2 = vec_fill(0.0);
    words mask;
    ptrdiff_t k;
    memcpy(&mask, taken, sizeof mask);
    history->newest = (history->newest + 1) % t->max_pairs;
    if (history->count < t->max_pairs)
        history->count++;
    S = w->S + history->newest * size;
    Y = w->Y + history->newest * size;
    for (k = 0; k < size; k += LANES) {
        const vec x = vec_load(w->x + k), g = vec_load(w->g + k);
        const vec xn = NAME(choose)(mask, vec_load(w->x_trial + k), x), gn = NAME(choose)(mask, vec_load(w->g_trial + k), g);
        const vec s = xn - x, y = gn - g;
        sy += s * y;
        s2 += s * s;
        y2 += y * y;
        vec_store(S + k, s);
        vec_store(Y + k, y);
        vec_store(w->x + k, xn);
        vec_store(w->g + k, gn);
    }
    vec_store(product, sy);
    vec_store(ss, s2);
    vec_store(yy, y2);
    for (k = 0; k < LANES; k++) {
        const int good = product[k] > FLAT * sqrt((double)ss[k] * yy[k]) && product[k] > TINY;
        history->rho[history->newest][k] = good ? 1 / product[k] : 0;
    }
}


/* Line search of one lane: return 1 if the trial point is accepted; otherwise shorten the step and return 0 */
static int NAME(line_search_lane)(search_state *s, int v)
{
    const double f = s->now.f[v], ft = s->trial.f[v], slope = s->now.slope[v], end = s->trial.slope[v];
    const double noise = NOISE * (1.0 + fabs(f));
    double shrink = 0.1;
    if (isfinite(ft) && isfinite(s->trial.norm[v])) {
        if (s->by_slopes ? end <= -0.5 * slope
                      : ft <= f + 1e-4 * s->step[v] * slope || (ft <= f + noise && end <= -0.9 * slope)) {
            s->n_stalled[v] = (s->by_slopes || ft > f - noise) && s->trial.norm[v] > 0.9 * s->best_norm[v] ? s->n_stalled[v] + 1 : 0;
            s->best_norm[v] = s->trial.norm[v] < s->best_norm[v] ? s->trial.norm[v] : s->best_norm[v];
            return 1;
        }
        shrink = end > slope ? slope / (slope - end) : 0.5;  /* to the zero of the slope by linear interpolation */
        shrink = shrink < 0.1 ? 0.1 : shrink > 0.6 ? 0.6 : shrink;
    }
    s->step[v] = (REAL)(s->step[v] * shrink);
    s->n_refused[v]++;
    return 0;
}

/* One lane after an evaluation: accept the trial point, shorten the step, or restart from the metric; sets the status */
static void NAME(accept_or_shorten)(search_state *s, const pseudo_options *o, pseudo_lane *lane, int v)
{
    int k;
    lane->n_eval++;
    if (s->now.slope[v] < 0.0 && NAME(line_search_lane)(s, v)) {
        s->accepted[v] = s->wants_direction[v] = (WORD)~(WORD)0;
        s->scale_is_doubtful[v] = s->n_refused[v] || s->trial.slope[v] < 0.4 * s->now.slope[v];
        s->now.f[v] = s->trial.f[v];
        s->now.norm[v] = s->trial.norm[v];
        s->now.kappa[v] = s->trial.kappa[v];
        s->step[v] = 1.0;
        s->n_refused[v] = 0;
        lane->n_iter++;
        lane->status = s->now.norm[v] <= s->target_norm[v] ? SOLVER_CONVERGED
            : s->n_stalled[v] >= (s->by_slopes ? 100 : 20) ? SOLVER_STUCK
            : lane->n_iter >= o->itmax ? SOLVER_ITMAX : SOLVER_RUNNING;
    } else if (!(s->now.slope[v] < 0.0) || s->n_refused[v] == 12) {  /* drop all pairs, restart from the metric */
        for (k = 0; k < PSEUDO_MAX_PAIRS; k++)
            s->history.rho[k][v] = 0.0;
        s->n_refused[v] = s->n_refused[v] < 12 ? 13 : s->n_refused[v] + 1;
        s->step[v] = 1.0;
        s->wants_direction[v] = (WORD)~(WORD)0;
    }
    if (s->n_refused[v] > 40)
        lane->status = isfinite(s->trial.f[v]) ? SOLVER_STUCK : SOLVER_NOT_FINITE;
}

/* Status of a lane at its start point, from its gradient norm and objective */
static int32_t NAME(first_status)(double value, double norm, const pseudo_options *o)
{
    return !isfinite(value) || !isfinite(norm) ? SOLVER_NOT_FINITE
        : norm <= o->tolerance ? SOLVER_CONVERGED : o->itmax < 1 ? SOLVER_ITMAX : SOLVER_RUNNING;
}

/* Evaluate at the start point and set up the lanes */
TARGET static void NAME(start_lanes)(const pseudo_problem *p, lane_block *at, const pseudo_options *o, int coupled)
{
    search_state *s = &at->s;
    const lane_memory *w = &at->w;
    int v;
    memset(s, 0, sizeof *s);
    memset(w->d, 0, (size_t)(at->t.A * (1 + p->D)) * LANES * sizeof *w->d);
    NAME(evaluate)(p, &at->t, w, w->x, NULL, coupled, (REAL)o->lambda, (REAL)o->lambdah, w->g, &s->now);
    for (v = 0; v < LANES; v++) {
        at->lane[v].n_iter = 0;
        at->lane[v].n_eval = 1;
        at->lane[v].status =
            at->t.site[v] < 0 ? SOLVER_CONVERGED : NAME(first_status)(s->now.f[v], s->now.norm[v], o);
        s->best_norm[v] = s->now.norm[v];
        s->target_norm[v] = o->tolerance;
        at->is_final[v] = at->lane[v].status != SOLVER_RUNNING;
        if (at->is_final[v])
            continue;
        s->step[v] = s->scale[v] = 1.0;
        s->wants_direction[v] = (WORD)~(WORD)0;
        s->n_stepping++;
    }
    s->any_wants_direction = s->n_stepping > 0;
}

/* Evaluate the trial points of a block along its directions; each lane accepts its point or shortens its step */
TARGET static void NAME(step_along_directions)(const pseudo_problem *p, lane_block *at, const pseudo_options *o)
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &at->w;
    search_state *s = &at->s;
    ptrdiff_t k;
    int v;
    for (k = 0; k < size; k += LANES)
        vec_store(w->x_trial + k, vec_load(w->x + k) + vec_load(s->step) * vec_load(w->d + k));
    NAME(evaluate)(p, &at->t, w, w->x_trial, w->d, 1, (REAL)o->lambda, (REAL)o->lambdah, w->g_trial, &s->trial);
    for (v = 0, s->n_stepping = 0; v < LANES; v++) {
        s->accepted[v] = s->wants_direction[v] = 0;
        if (s->step[v] == 0)
            continue;
        NAME(accept_or_shorten)(s, o, &at->lane[v], v);
        s->any_wants_direction |= s->wants_direction[v] != 0;
        if (at->lane[v].status != SOLVER_RUNNING) {
            at->is_final[v] = !s->by_slopes;  /* with slopes alone an anchor has the last word */
            s->step[v] = 0.0;
            s->wants_direction[v] = 0;
        } else
            s->n_stepping++;
    }
    if (s->any_wants_direction)
        NAME(store_pair)(p, &at->t, w, &s->history, s->accepted);
}
