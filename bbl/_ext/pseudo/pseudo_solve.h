/* Preconditioned L-BFGS of lane blocks; pseudo_kernel.h includes it after pseudo_metric.h.

   (a) Several blocks may go together: the metric, which then takes most of the time, is read once for all.
   (b) All lanes of a block go in lockstep: one evaluation serves them all, and each lane has its own step, decision, history
       factors and status. A lane that is done gets step 0; one that must shorten its step keeps its direction and
       stores an empty pair.
   (c) A step is taken if it decreases f enough or, where the change is below rounding, if the slope at its end is
       smaller than at its start (f is convex, so the slope tells). In mixed precision the slopes alone are looked at. */

/* Mean of the diagonal of I - 1 1'/L over the predictors: what the metric takes of a penalty in the zero-sum gauge */
static double NAME(share)(const pseudo_problem *p, const work *w)
{
    double sum = 0.0;
    ptrdiff_t j;
    for (j = 0; j < p->m && w->zero_sum; j++)
        sum += 1.0 - 1.0 / p->n_levels[j];
    return w->zero_sum ? sum / (double)p->m : 1.0;
}

TARGET static vec NAME(dot)(const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec s = fill(0.0), s2 = fill(0.0);
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size; k += 2 * LANES) {
        s += load(u + k) * load(v + k);
        s2 += load(u + k + LANES) * load(v + k + LANES);
    }
    for (; k < size; k += LANES)
        s += load(u + k) * load(v + k);
    return s + s2;
}

/* q += factor * u; returns <q, v> for the next step of the recursion (v may be NULL) */
TARGET static vec NAME(add_dot)(REAL *q, vec factor, const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec s = fill(0.0), s2 = fill(0.0);
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size && v; k += 2 * LANES) {
        const vec n = load(q + k) + factor * load(u + k), n2 = load(q + k + LANES) + factor * load(u + k + LANES);
        s += n * load(v + k);
        s2 += n2 * load(v + k + LANES);
        store(q + k, n);
        store(q + k + LANES, n2);
    }
    for (; k < size; k += LANES) {
        const vec n = load(q + k) + factor * load(u + k);
        if (v)
            s += n * load(v + k);
        store(q + k, n);
    }
    return s + s2;
}


/* q *= <s, y> / <y, H y> of the newest pair, H the start metric: its size in the direction that was just measured */
TARGET static void NAME(rescale)(const pseudo_problem *p, bundle *at, REAL lambda, REAL lambdah, REAL *q)
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const work *w = &at->w;
    const history *past = &at->s.past;
    const REAL *S = w->S + past->newest * size, *Y = w->Y + past->newest * size;
    REAL sy[LANES], yhy[LANES];
    vec gamma;
    ptrdiff_t k;
    memcpy(w->xt, Y, (size_t)size * sizeof *Y);
    store(sy, NAME(dot)(S, Y, size));
    store(yhy, NAME(measure)(p, at, lambda, lambdah, w->xt));
    for (k = 0; k < LANES; k++)
        sy[k] = past->rho[past->newest][k] > 0.0 && yhy[k] > 0.0 ? sy[k] / yhy[k] : 1;
    memcpy(&gamma, sy, sizeof gamma);
    for (k = 0; k < size; k += LANES)
        store(q + k, load(q + k) * gamma);
}

/* The same of a block of several, q = `list[k]->w.gt`, where a step left doubts: what is measured then is kept */
TARGET static void NAME(regauge)(const pseudo_problem *p, int count, bundle *const *list, REAL lambda, REAL lambdah)
{
    bundle *some[PSEUDO_PACK];
    REAL *q[PSEUDO_PACK];
    int b, v, few = 0;
    ptrdiff_t k;
    for (b = 0; b < count; b++) {
        const ptrdiff_t size = list[b]->t.A * (1 + p->D) * LANES;
        const search *s = &list[b]->s;
        int doubt = 0;
        for (v = 0; v < LANES; v++)
            doubt |= s->doubt[v] && s->past.rho[s->past.newest][v] > 0;
        if (!doubt || !s->past.count)
            continue;
        q[few] = list[b]->w.xt;
        memcpy(q[few], list[b]->w.Y + s->past.newest * size, (size_t)size * sizeof(REAL));
        some[few++] = list[b];
    }
    if (few)
        NAME(precondition)(p, few, some, lambda, lambdah, q);
    for (b = 0; b < few; b++) {
        const ptrdiff_t size = some[b]->t.A * (1 + p->D) * LANES;
        search *s = &some[b]->s;
        REAL yhy[LANES];
        store(yhy, NAME(dot)(some[b]->w.Y + s->past.newest * size, q[b], size));
        for (v = 0; v < LANES; v++)
            if (s->doubt[v] && s->past.rho[s->past.newest][v] > 0 && yhy[v] > 0)
                s->scale[v] = 1 / (s->past.rho[s->past.newest][v] * yhy[v]);
    }
    for (b = 0; b < count; b++) {
        const vec scale = load(list[b]->s.scale);
        for (k = 0; k < list[b]->t.A * (1 + p->D) * LANES; k += LANES)
            store(list[b]->w.gt + k, load(list[b]->w.gt + k) * scale);
        memset(list[b]->s.doubt, 0, sizeof list[b]->s.doubt);
    }
}

/* First half of the recursion: q, scratch, from the gradient, and what each pair takes of it */
TARGET static void NAME(unwind)(const pseudo_problem *p, bundle *at, REAL alpha[][LANES])
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const work *w = &at->w;
    const history *past = &at->s.past;
    REAL *q = w->gt;
    ptrdiff_t k, pair = past->newest;
    vec s;
    memcpy(q, w->g, (size_t)size * sizeof *q);
    s = past->count ? NAME(dot)(q, w->S + pair * size, size) : fill(0.0);
    for (k = 0; k < past->count; k++) {
        const ptrdiff_t older = (pair + at->t.pairs - 1) % at->t.pairs;
        const vec factor = s * load(past->rho[pair]);
        store(alpha[pair], factor);
        s = NAME(add_dot)(q, -factor, w->Y + pair * size, k + 1 < past->count ? w->S + older * size : NULL, size);
        pair = older;
    }
}

/* Second half: new directions d (and slopes) of the lanes in `renew` */
TARGET static void NAME(wind)(const pseudo_problem *p, bundle *at, REAL alpha[][LANES])
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const work *w = &at->w;
    const history *past = &at->s.past;
    REAL *q = w->gt;
    ptrdiff_t k, pair = (past->newest + at->t.pairs - past->count + 1) % at->t.pairs;
    words mask;
    vec s;
    memcpy(&mask, at->s.renew, sizeof mask);
    s = past->count ? NAME(dot)(q, w->Y + pair * size, size) : fill(0.0);
    for (k = 0; k < past->count; k++) {
        const ptrdiff_t newer = (pair + 1) % at->t.pairs;
        const vec factor = load(alpha[pair]) - s * load(past->rho[pair]);
        s = NAME(add_dot)(q, factor, w->S + pair * size, k + 1 < past->count ? w->Y + newer * size : NULL, size);
        pair = newer;
    }
    s = fill(0.0);
    for (k = 0; k < size; k += LANES) {
        const vec n = NAME(choose)(mask, -load(q + k), load(w->d + k));
        s += n * load(w->g + k);
        store(w->d + k, n);
    }
    store(at->s.now.slope, s);
}

/* New directions of the blocks that want some, those with equally many logits together */
TARGET static void NAME(directions)(const pseudo_problem *p, bundle *blocks, int count, REAL lambda, REAL lambdah)
{
    REAL alpha[PSEUDO_PACK][PSEUDO_PAIRS][LANES], *q[PSEUDO_PACK];
    bundle *list[PSEUDO_PACK];
    int b, k, some;
    for (b = 0; b < count; b++) {
        if (!blocks[b].s.fresh)
            continue;
        for (k = b, some = 0; k < count; k++)
            if (blocks[k].s.fresh && blocks[k].t.A == blocks[b].t.A) {
                NAME(unwind)(p, &blocks[k], alpha[some]);
                q[some] = blocks[k].w.gt;
                list[some++] = &blocks[k];
            }
        NAME(precondition)(p, some, list, lambda, lambdah, q);
        if (p->pack > 1)
            NAME(regauge)(p, some, list, lambda, lambdah);
        for (k = 0; k < some; k++) {
            if (list[k]->s.past.count && p->pack == 1)
                NAME(rescale)(p, list[k], lambda, lambdah, q[k]);
            NAME(wind)(p, list[k], alpha[k]);
            list[k]->s.fresh = 0;
        }
    }
}

/* Take the trial point in the lanes of `taken`, and store its pair; empty pairs in the other lanes */
TARGET static void NAME(take)(const pseudo_problem *p, const pseudo_task *t, const work *w, history *past,
                              const WORD *taken)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    REAL *S, *Y, product[LANES], ss[LANES], yy[LANES];
    vec sy = fill(0.0), s2 = fill(0.0), y2 = fill(0.0);
    words mask;
    ptrdiff_t k;
    memcpy(&mask, taken, sizeof mask);
    past->newest = (past->newest + 1) % t->pairs;
    if (past->count < t->pairs)
        past->count++;
    S = w->S + past->newest * size;
    Y = w->Y + past->newest * size;
    for (k = 0; k < size; k += LANES) {
        const vec x = load(w->x + k), g = load(w->g + k);
        const vec xn = NAME(choose)(mask, load(w->xt + k), x), gn = NAME(choose)(mask, load(w->gt + k), g);
        const vec s = xn - x, y = gn - g;
        sy += s * y;
        s2 += s * s;
        y2 += y * y;
        store(S + k, s);
        store(Y + k, y);
        store(w->x + k, xn);
        store(w->g + k, gn);
    }
    store(product, sy);
    store(ss, s2);
    store(yy, y2);
    for (k = 0; k < LANES; k++) {
        const int good = product[k] > FLAT * sqrt((double)ss[k] * yy[k]) && product[k] > TINY;
        past->rho[past->newest][k] = good ? 1 / product[k] : 0;
    }
}


/* Is the trial point at `step` along the direction good enough? Otherwise shorten the step. */
static int NAME(decide)(search *s, int v)
{
    const double f = s->now.f[v], ft = s->trial.f[v], slope = s->now.slope[v], end = s->trial.slope[v];
    const double noise = NOISE * (1.0 + fabs(f));
    double cut = 0.1;
    if (isfinite(ft) && isfinite(s->trial.norm[v])) {
        if (s->slopes ? end <= -0.5 * slope
                      : ft <= f + 1e-4 * s->step[v] * slope || (ft <= f + noise && end <= -0.9 * slope)) {
            s->stalled[v] = (s->slopes || ft > f - noise) && s->trial.norm[v] > 0.9 * s->best[v] ? s->stalled[v] + 1 : 0;
            s->best[v] = s->trial.norm[v] < s->best[v] ? s->trial.norm[v] : s->best[v];
            return 1;
        }
        cut = end > slope ? slope / (slope - end) : 0.5;  /* where the slope would be zero were it linear */
        cut = cut < 0.1 ? 0.1 : cut > 0.6 ? 0.6 : cut;
    }
    s->step[v] = (REAL)(s->step[v] * cut);
    s->refused[v]++;
    return 0;
}

/* One lane after an evaluation: take the trial point, shorten the step or start anew; sets the lane's status */
static void NAME(judge)(search *s, const pseudo_options *o, pseudo_lane *lane, int v)
{
    int k;
    lane->n_eval++;
    if (s->now.slope[v] < 0.0 && NAME(decide)(s, v)) {
        s->taken[v] = s->renew[v] = (WORD)~(WORD)0;
        s->doubt[v] = s->refused[v] || s->trial.slope[v] < 0.4 * s->now.slope[v];
        s->now.f[v] = s->trial.f[v];
        s->now.norm[v] = s->trial.norm[v];
        s->now.kappa[v] = s->trial.kappa[v];
        s->step[v] = 1.0;
        s->refused[v] = 0;
        lane->n_iter++;
        lane->status = s->now.norm[v] <= s->goal[v] ? SOLVER_CONVERGED
            : s->stalled[v] >= (s->slopes ? 100 : 20) ? SOLVER_STUCK
            : lane->n_iter >= o->itmax ? SOLVER_ITMAX : SOLVER_RUNNING;
    } else if (!(s->now.slope[v] < 0.0) || s->refused[v] == 12) {  /* forget the past, begin again from the metric */
        for (k = 0; k < PSEUDO_PAIRS; k++)
            s->past.rho[k][v] = 0.0;
        s->refused[v] = s->refused[v] < 12 ? 13 : s->refused[v] + 1;
        s->step[v] = 1.0;
        s->renew[v] = (WORD)~(WORD)0;
    }
    if (s->refused[v] > 40)
        lane->status = isfinite(s->trial.f[v]) ? SOLVER_STUCK : SOLVER_NOT_FINITE;
}

/* What a lane's norm and objective at its start say of it */
static int32_t NAME(first_status)(double value, double norm, const pseudo_options *o)
{
    return !isfinite(value) || !isfinite(norm) ? SOLVER_NOT_FINITE
        : norm <= o->tolerance ? SOLVER_CONVERGED : o->itmax < 1 ? SOLVER_ITMAX : SOLVER_RUNNING;
}

/* Evaluate at the start point and set up the lanes */
TARGET static void NAME(begin)(const pseudo_problem *p, bundle *at, const pseudo_options *o, int coupled)
{
    search *s = &at->s;
    const work *w = &at->w;
    int v;
    memset(s, 0, sizeof *s);
    memset(w->d, 0, (size_t)(at->t.A * (1 + p->D)) * LANES * sizeof *w->d);
    NAME(evaluate)(p, &at->t, w, w->x, NULL, coupled, (REAL)o->lambda, (REAL)o->lambdah, w->g, &s->now);
    for (v = 0; v < LANES; v++) {
        at->lane[v].n_iter = 0;
        at->lane[v].n_eval = 1;
        at->lane[v].status =
            at->t.site[v] < 0 ? SOLVER_CONVERGED : NAME(first_status)(s->now.f[v], s->now.norm[v], o);
        s->best[v] = s->now.norm[v];
        s->goal[v] = o->tolerance;
        at->done[v] = at->lane[v].status != SOLVER_RUNNING;
        if (at->done[v])
            continue;
        s->step[v] = s->scale[v] = 1.0;
        s->renew[v] = (WORD)~(WORD)0;
        s->running++;
    }
    s->fresh = s->running > 0;
}

/* Go along the directions of a block, and judge where they lead */
TARGET static void NAME(advance)(const pseudo_problem *p, bundle *at, const pseudo_options *o)
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    const work *w = &at->w;
    search *s = &at->s;
    ptrdiff_t k;
    int v;
    for (k = 0; k < size; k += LANES)
        store(w->xt + k, load(w->x + k) + load(s->step) * load(w->d + k));
    NAME(evaluate)(p, &at->t, w, w->xt, w->d, 1, (REAL)o->lambda, (REAL)o->lambdah, w->gt, &s->trial);
    for (v = 0, s->running = 0; v < LANES; v++) {
        s->taken[v] = s->renew[v] = 0;
        if (s->step[v] == 0)
            continue;
        NAME(judge)(s, o, &at->lane[v], v);
        s->fresh |= s->renew[v] != 0;
        if (at->lane[v].status != SOLVER_RUNNING) {
            at->done[v] = !s->slopes;  /* with slopes alone an anchor has the last word */
            s->step[v] = 0.0;
            s->renew[v] = 0;
        } else
            s->running++;
    }
    if (s->fresh)
        NAME(take)(p, &at->t, w, &s->past, s->taken);
}
