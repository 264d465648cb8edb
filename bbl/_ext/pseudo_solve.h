/* Preconditioned L-BFGS of one lane block; pseudo_kernel.h includes it after pseudo_metric.h.

   (a) Variables: couplings J and centred fields h' = h + J . mean, so that fields and couplings hardly interact.
   (b) All lanes go in lockstep: one evaluation serves them all, and each lane has its own step, decision, history
       factors and status. A lane that is done gets step 0; one that must shorten its step keeps its direction and
       stores an empty pair.
   (c) A step is taken if it decreases f enough or, where the change is below rounding, if the slope at its end is
       smaller than at its start (f is convex, so the slope tells). */

typedef struct {
    REAL f[LANES], norm[LANES], slope[LANES], kappa[LANES];
} NAME(point);
#define point NAME(point)

/* Fields h (A, V) of the point x; shift = 0 where no logit can reach SAFE, so that exp may be taken as it is */
TARGET static void NAME(fields)(const pseudo_problem *p, const pseudo_task *t, const REAL *x, REAL *h, int *shift)
{
    const ptrdiff_t P = 1 + p->D;
    REAL bound[LANES];
    vec most = fill(0.0);
    ptrdiff_t a, j, c;
    for (a = 0; a < t->A; a++, x += P * LANES) {
        vec field = load(x), size = fill(0.0);
        for (j = 0; j < p->m; j++) {
            vec top = fill(0.0);
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
                const vec J = load(x + c * LANES);
                field -= J * (REAL)p->mean[c];
                top = NAME(larger)(NAME(larger)(J, -J), top);
            }
            size += top;
        }
        store(h + a * LANES, field);
        most = NAME(larger)(size + NAME(larger)(field, -field), most);
    }
    store(bound, most);
    for (a = 0, *shift = 0; a < LANES; a++)
        *shift |= !(bound[a] < SAFE);
}

/* Add what some columns are penalised beside lambda to the sums g of `pass`; returns its part of the objective */
TARGET static vec NAME(heavier)(const pseudo_problem *p, const pseudo_task *t, const work *w, const REAL *x, REAL *g)
{
    const ptrdiff_t far = (1 + p->D) * LANES;
    vec sum = fill(0.0);
    ptrdiff_t a, c;
    for (a = 0; a < t->A; a++, x += far, g += far)
        for (c = 1; c <= p->D; c++) {
            const vec J = load(x + c * LANES), pull = J * (REAL)w->more[c - 1];
            sum += J * pull;
            store(g + c * LANES, load(g + c * LANES) + pull * (REAL)(1.0 / p->scale));
        }
    return sum * (REAL)0.5;
}

/* Add the gradient of the penalties in the zero-sum gauge to the sums g of `pass`; returns their part of the objective.
   There J_ij(a, b) is less its means over a and over b, and h_i(a) + sum_j (mean of J_ij(a, b) over b) less its mean;
   level 0, whose parameters are zero, counts in all means. */
TARGET static vec NAME(gauged)(const pseudo_problem *p, const pseudo_task *t, const work *w, const REAL *x, REAL lambda,
                               REAL lambdah, REAL *g)
{
    const ptrdiff_t A = t->A, far = (1 + p->D) * LANES;
    const REAL *live = t->live, back = (REAL)(1.0 / p->scale);
    REAL *mean = w->columns, *field = w->sums + (2 + A) * LANES;  /* (A, V) each; the latter is free after `pass` */
    vec levels = fill(1.0), value = fill(0.0), all = fill(0.0);
    ptrdiff_t j, a, c;
    for (a = 0; a < A; a++) {
        levels += load(live + a * LANES);
        store(field + a * LANES, load(w->h + a * LANES));
    }
    for (j = 0; j < p->m; j++) {
        const REAL share = 1 / (REAL)p->n_levels[j];
        for (a = 0; a < A; a++) {
            vec sum = fill(0.0);
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++)
                sum += load(x + a * far + c * LANES);
            store(mean + a * LANES, sum * share);
            store(field + a * LANES, load(field + a * LANES) + sum * share);
        }
        for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
            vec sum = fill(0.0);
            for (a = 0; a < A; a++)
                sum += load(x + a * far + c * LANES) - load(mean + a * LANES);
            sum /= levels;
            for (a = 0; a < A; a++) {
                const vec J = load(x + a * far + c * LANES);
                const vec pull = (J - load(mean + a * LANES) - sum) * load(live + a * LANES) * lambda;
                value += J * pull;
                store(g + a * far + c * LANES, load(g + a * far + c * LANES) + pull * back);
            }
        }
    }
    for (a = 0; a < A; a++)
        all += load(field + a * LANES);
    all /= levels;
    for (a = 0; a < A; a++) {
        const vec own = load(field + a * LANES), pull = (own - all) * load(live + a * LANES) * lambdah;
        value += own * pull;
        store(g + a * far, load(g + a * far) + pull * back);
        for (j = 0; j < p->m; j++)
            for (c = p->start[j] + 1; c <= p->start[j + 1]; c++) {
                REAL *to = g + a * far + c * LANES;
                store(to, load(to) + pull * (back / (REAL)p->n_levels[j]));
            }
    }
    return value * (REAL)0.5;
}

/* Mean of the diagonal of I - 1 1'/L over the predictors: what the metric takes of a penalty in the zero-sum gauge */
static double NAME(share)(const pseudo_problem *p, const work *w)
{
    double sum = 0.0;
    ptrdiff_t j;
    for (j = 0; j < p->m && w->zero_sum; j++)
        sum += 1.0 - 1.0 / p->n_levels[j];
    return w->zero_sum ? sum / (double)p->m : 1.0;
}

/* Objective, its gradient g in (h', J) and, in the point, the norm of the gradient in (h, J) and the slope <g, d>.
   f = mean of log normalisers - <parameters, empirical moments> + penalties: the responses are not looked at again. */
TARGET static void NAME(evaluate)(const pseudo_problem *p, const pseudo_task *t, const work *w, const REAL *x,
                                  const REAL *d, int coupled, REAL lambda, REAL lambdah, REAL *g, point *out)
{
    const ptrdiff_t P = 1 + p->D, far = P * LANES;
    vec linear = fill(0.0), ridge = fill(0.0), ridge_h = fill(0.0), norm = fill(0.0), slope = fill(0.0);
    ptrdiff_t a, c;
    int shift;
    NAME(fields)(p, t, x, w->h, &shift);
    if (coupled)
        NAME(pass)(p, t, x, w->h, shift, w->tiles, w->planes, w->table, w->sums, g);
    else
        NAME(independent)(p, t, w->h, w->sums, g);
    if (w->more)
        linear -= NAME(heavier)(p, t, w, x, g);
    if (w->zero_sum) {
        linear -= NAME(gauged)(p, t, w, x, lambda, lambdah, g);
        lambda = lambdah = 0;
    }
    for (a = 0; a < t->A; a++, x += far, g += far) {
        const REAL *moment = w->moment + a * far;
        const vec h = load(w->h + a * LANES);
        const vec gh = (load(g) * (REAL)p->scale - load(moment)) * load(w->mask) + h * lambdah;
        linear += h * load(moment);
        ridge_h += h * h;
        norm += gh * gh;
        store(g, gh);
        if (d)
            slope += gh * load(d + a * far);
        for (c = 1; c < P; c++) {
            const vec J = load(x + c * LANES), mask = load(w->mask + c * LANES), M = load(moment + c * LANES);
            const vec raw = (load(g + c * LANES) * (REAL)p->scale - M) * mask + J * lambda;
            const vec centred = raw - gh * mask * (REAL)p->mean[c];
            linear += J * M;
            ridge += J * J;
            norm += raw * raw;
            store(g + c * LANES, centred);
            if (d)
                slope += centred * load(d + a * far + c * LANES);
        }
    }
    store(out->f, load(w->sums) * (REAL)p->scale - linear + ridge * (lambda / 2) + ridge_h * (lambdah / 2));
    store(out->slope, slope);
    store(out->kappa, NAME(larger)(load(w->sums + LANES) * (REAL)p->scale / load(w->spread), fill(1e-3)));
    store(out->norm, norm);
    for (a = 0; a < LANES; a++)
        out->norm[a] = (REAL)sqrt(out->norm[a]);
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

typedef struct {
    ptrdiff_t count, newest;
    REAL rho[PSEUDO_PAIRS][LANES];
} NAME(history);
#define history NAME(history)

/* q *= <s, y> / <y, H y> of the newest pair, H the start metric: its size in the direction that was just measured */
TARGET static void NAME(rescale)(const pseudo_problem *p, const pseudo_task *t, const work *w, const history *past,
                                 const REAL *kappa, REAL lambda, REAL lambdah, REAL *q)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    const REAL *S = w->S + past->newest * size, *Y = w->Y + past->newest * size;
    REAL sy[LANES], yhy[LANES];
    vec gamma;
    ptrdiff_t k;
    memcpy(w->xt, Y, (size_t)size * sizeof *Y);
    NAME(precondition)(p, t, w, kappa, lambda, lambdah, w->xt);
    store(sy, NAME(dot)(S, Y, size));
    store(yhy, NAME(dot)(w->xt, Y, size));
    for (k = 0; k < LANES; k++)
        sy[k] = past->rho[past->newest][k] > 0.0 && yhy[k] > 0.0 ? sy[k] / yhy[k] : 1;
    memcpy(&gamma, sy, sizeof gamma);
    for (k = 0; k < size; k += LANES)
        store(q + k, load(q + k) * gamma);
}

/* New directions d (and slopes) of the lanes in `renew`, from g; q is scratch */
TARGET static void NAME(direction)(const pseudo_problem *p, const pseudo_task *t, const work *w, const history *past,
                                   const REAL *kappa, REAL lambda, REAL lambdah, const WORD *renew, REAL *q,
                                   REAL *slope)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    REAL alpha[PSEUDO_PAIRS][LANES];
    words mask;
    vec s;
    ptrdiff_t k, at;
    memcpy(&mask, renew, sizeof mask);
    memcpy(q, w->g, (size_t)size * sizeof *q);
    at = past->newest;
    s = past->count ? NAME(dot)(q, w->S + at * size, size) : fill(0.0);
    for (k = 0; k < past->count; k++) {
        const ptrdiff_t older = (at + t->pairs - 1) % t->pairs;
        const vec factor = s * load(past->rho[at]);
        store(alpha[at], factor);
        s = NAME(add_dot)(q, -factor, w->Y + at * size, k + 1 < past->count ? w->S + older * size : NULL, size);
        at = older;
    }
    NAME(precondition)(p, t, w, kappa, lambda, lambdah, q);
    if (past->count)
        NAME(rescale)(p, t, w, past, kappa, lambda, lambdah, q);
    at = (at + 1) % t->pairs;
    s = past->count ? NAME(dot)(q, w->Y + at * size, size) : fill(0.0);
    for (k = 0; k < past->count; k++) {
        const ptrdiff_t newer = (at + 1) % t->pairs;
        const vec factor = load(alpha[at]) - s * load(past->rho[at]);
        s = NAME(add_dot)(q, factor, w->S + at * size, k + 1 < past->count ? w->Y + newer * size : NULL, size);
        at = newer;
    }
    s = fill(0.0);
    for (k = 0; k < size; k += LANES) {
        const vec n = NAME(choose)(mask, -load(q + k), load(w->d + k));
        s += n * load(w->g + k);
        store(w->d + k, n);
    }
    store(slope, s);
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
        const int good = product[k] > FLAT * sqrt(ss[k] * yy[k]) && product[k] > TINY;
        past->rho[past->newest][k] = good ? 1 / product[k] : 0;
    }
}

typedef struct {
    point now, trial;
    history past;
    REAL step[LANES], best[LANES];          /* step along d; smallest norm seen */
    int refused[LANES], stalled[LANES];       /* steps refused at this point; steps taken without progress */
    WORD renew[LANES], taken[LANES];      /* masks: lanes that need a new direction, that took the trial point */
    int running;                              /* lanes that are not done */
} NAME(search);
#define search NAME(search)

/* Is the trial point at `step` along the direction good enough? Otherwise shorten the step. */
static int NAME(decide)(search *s, int v)
{
    const double f = s->now.f[v], ft = s->trial.f[v], slope = s->now.slope[v], end = s->trial.slope[v];
    const double noise = NOISE * (1.0 + fabs(f));
    double cut = 0.1;
    if (isfinite(ft) && isfinite(s->trial.norm[v])) {
        if (ft <= f + 1e-4 * s->step[v] * slope || (ft <= f + noise && end <= -0.9 * slope)) {
            s->stalled[v] = ft > f - noise && s->trial.norm[v] > 0.9 * s->best[v] ? s->stalled[v] + 1 : 0;
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
        s->now.f[v] = s->trial.f[v];
        s->now.norm[v] = s->trial.norm[v];
        s->now.kappa[v] = s->trial.kappa[v];
        s->step[v] = 1.0;
        s->refused[v] = 0;
        lane->n_iter++;
        lane->status = s->now.norm[v] <= o->tolerance ? SOLVER_CONVERGED : s->stalled[v] >= 20 ? SOLVER_STUCK
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

/* Evaluate at the start point and set up the lanes */
TARGET static void NAME(begin)(const pseudo_problem *p, const pseudo_task *t, const work *w, const pseudo_options *o,
                               int coupled, search *s, pseudo_lane *lane)
{
    int v;
    memset(s, 0, sizeof *s);
    memset(w->d, 0, (size_t)(t->A * (1 + p->D)) * LANES * sizeof *w->d);
    NAME(evaluate)(p, t, w, w->x, NULL, coupled, (REAL)o->lambda, (REAL)o->lambdah, w->g, &s->now);
    for (v = 0; v < LANES; v++) {
        const REAL norm = s->now.norm[v];
        lane[v].n_iter = 0;
        lane[v].n_eval = 1;
        lane[v].status = t->site[v] < 0 ? SOLVER_CONVERGED
            : !isfinite(s->now.f[v]) || !isfinite(norm) ? SOLVER_NOT_FINITE
            : norm <= o->tolerance ? SOLVER_CONVERGED : o->itmax < 1 ? SOLVER_ITMAX : SOLVER_RUNNING;
        s->best[v] = norm;
        if (lane[v].status != SOLVER_RUNNING)
            continue;
        s->step[v] = 1.0;
        s->renew[v] = (WORD)~(WORD)0;
        s->running++;
    }
}

/* Minimise from the parameters in w->x; results per lane in lane (V,). Returns a solver_code. */
TARGET static int NAME(minimise)(const pseudo_problem *p, const pseudo_task *t, work *w, const pseudo_options *o,
                                 int coupled, pseudo_lane *lane)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    const double cost = (double)p->n * (double)(t->A * (p->n_composites + 8)), part = NAME(share)(p, w);
    const REAL lambda = (REAL)(o->lambda * part * part), lambdah = (REAL)(o->lambdah * part);
    double since = 0.0;
    search s;
    ptrdiff_t k;
    int v, fresh = 1, stopped = 0;
    NAME(begin)(p, t, w, o, coupled, &s, lane);
    while (s.running && !stopped) {
        if (fresh)
            NAME(direction)(p, t, w, &s.past, s.now.kappa, lambda, lambdah, s.renew, w->gt, s.now.slope);
        for (k = 0; k < size; k += LANES)
            store(w->xt + k, load(w->x + k) + load(s.step) * load(w->d + k));
        NAME(evaluate)(p, t, w, w->xt, w->d, 1, (REAL)o->lambda, (REAL)o->lambdah, w->gt, &s.trial);
        for (v = 0, s.running = 0, fresh = 0; v < LANES; v++) {
            s.taken[v] = s.renew[v] = 0;
            if (lane[v].status != SOLVER_RUNNING)
                continue;
            NAME(judge)(&s, o, &lane[v], v);
            fresh |= s.renew[v] != 0;
            if (lane[v].status != SOLVER_RUNNING) {
                s.step[v] = 0.0;
                s.renew[v] = 0;
            } else
                s.running++;
        }
        if (fresh)
            NAME(take)(p, t, w, &s.past, s.taken);
        since += cost;
        if (o->check && since > PSEUDO_CHECK) {  /* the check waits for Python's lock: not after every small step */
            since = 0.0;
            stopped = -(o->check() != 0);
        }
        if (o->stop && *(const volatile int32_t *)o->stop)
            stopped = 1;
    }
    for (v = 0; v < LANES; v++) {
        lane[v].value = s.now.f[v];
        lane[v].norm = s.now.norm[v];
        if (lane[v].status == SOLVER_RUNNING)
            lane[v].status = SOLVER_STOPPED;
    }
    return stopped < 0 ? SOLVER_INTERRUPTED : SOLVER_DONE;
}
