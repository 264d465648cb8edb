/* Preconditioned L-BFGS of lane blocks; pseudo_kernel.h includes this file after pseudo_metric.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h; is_final[v] is whether the result of lane v is final.

   Arrays of w: parameters x, gradient g, direction d, trial point x_trial and its gradient g_trial are (A, 1 + D, V),
   `size` numbers. A curvature pair is an accepted step, a row of the ring buffer S (max_pairs, A, 1 + D, V), and the
   change y of the gradient along it, the same row of Y. s.history contains the number of pairs (count), the row of the
   newest, and rho (max_pairs, V) = 1 / <step, y>, 0 for an unused pair. s.now and s.trial contain, at x and x_trial and
   for each lane, the objective f, the norm of the gradient, its slope along d, and kappa, the mean curvature relative
   to that without couplings. In the metric H (pseudo_metric.h) lambda and lambdah are the ridge penalties of couplings
   and fields. TINY, NOISE and FLAT (pseudo_logits.h) are the smallest safe number and the rounding errors of the
   objective and of a cosine.

   (a) The lanes of a block are evaluated together, each at its own trial point, but decisions and statuses are
       separate. A finished lane has step 0; a lane that must shorten its step keeps its direction and stores an unused
       pair.
   (b) A trial point is accepted if it decreases the objective f enough or, if the decrease is below rounding, if the
       slope along the direction has decreased (f is convex). In mixed precision (by_slopes) only slopes are compared.
   (c) Several blocks can be solved together (count > 1): the metric, which takes most of the time, is then read once
       for all. */

#define ARMIJO 1e-4           /* fraction of the predicted decrease that a step must achieve (Nocedal & Wright, 3.1) */
#define SLOPE_SHRUNK 0.9      /* largest upward slope at an accepted trial point, relative to the slope at x, */
#define SLOPE_HALVED 0.5      /* and the same if only slopes are compared */
#define SHORT_STEP 0.4        /* relative downward slope left at an accepted point if the step was much too short */
#define NORM_PROGRESS 0.9     /* a step above this gradient norm, relative to the best so far, makes no progress */
#define MAX_STALLED 20        /* successive steps without progress until a lane is stuck, in double precision; */
#define MAX_STALLED_SINGLE 60 /* in single precision, whose rounding of the objective hides more progress; */
#define MAX_STALLED_SLOPES 100  /* and if only slopes are compared, which are less informative */
#define RESTART_AFTER 12      /* number of refused trial points after which the pairs are dropped */
#define MAX_REFUSED 40        /* number of refused trial points, including the restart, after which a lane is stuck */

/* Return the fraction of a ridge penalty that remains if it applies in the zero-sum gauge: the mean over predictors of
   1 - 1/L; otherwise 1. The metric does not depend on the gauge and uses the penalties times this fraction. */
static double NAME(zero_sum_share)(const pseudo_problem *p, const lane_memory *w)
{
    double sum = 0.0;
    for (ptrdiff_t j = 0; j < p->m && w->zero_sum; j++)
        sum += 1.0 - 1.0 / p->n_levels[j];
    return w->zero_sum ? sum / (double)p->m : 1.0;
}

/* Return <u, v> of two vectors of `size` numbers, lane by lane, shape (V,) */
TARGET static vec NAME(dot)(const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec sum = vec_fill(0.0), sum2 = vec_fill(0.0);  /* two sums, so that additions need not wait for each other */
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size; k += 2 * LANES) {
        sum += vec_load(u + k) * vec_load(v + k);
        sum2 += vec_load(u + k + LANES) * vec_load(v + k + LANES);
    }
    for (; k < size; k += LANES)
        sum += vec_load(u + k) * vec_load(v + k);
    return sum + sum2;
}

/* Add factor (V,) * u to q, `size` numbers each; return <q, v> of the new q, shape (V,), or 0 if v is NULL */
TARGET static vec NAME(add_dot)(REAL *q, vec factor, const REAL *u, const REAL *v, ptrdiff_t size)
{
    vec sum = vec_fill(0.0), sum2 = vec_fill(0.0);  /* two sums, as in `dot` */
    ptrdiff_t k;
    for (k = 0; k + 2 * LANES <= size && v; k += 2 * LANES) {
        const vec new_q = vec_load(q + k) + factor * vec_load(u + k);
        const vec new_q2 = vec_load(q + k + LANES) + factor * vec_load(u + k + LANES);
        sum += new_q * vec_load(v + k);
        sum2 += new_q2 * vec_load(v + k + LANES);
        vec_store(q + k, new_q);
        vec_store(q + k + LANES, new_q2);
    }
    for (; k < size; k += LANES) {
        const vec new_q = vec_load(q + k) + factor * vec_load(u + k);
        if (v)
            sum += new_q * vec_load(v + k);
        vec_store(q + k, new_q);
    }
    return sum + sum2;
}

/* Multiply q, the metric H times a vector, by <step, y> / <y, H y> of the newest pair in each lane, or by 1 if that
   pair is unused, so that H has the curvature of the last step. w.x_trial is overwritten. */
TARGET static void NAME(scale_by_newest_pair)(const pseudo_problem *p, lane_block *block, REAL lambda, REAL lambdah,
                                              REAL *q)
{
    const ptrdiff_t size = block->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &block->w;
    const pair_history *history = &block->s.history;
    const REAL *S = w->S + history->newest * size, *Y = w->Y + history->newest * size;
    REAL scale[LANES], yhy[LANES];  /* yhy: <y, H y> */
    vec factor;
    memcpy(w->x_trial, Y, (size_t)size * sizeof *Y);  /* a copy, since the quadratic form overwrites it */
    vec_store(scale, NAME(dot)(S, Y, size));  /* <step, y>, to be divided by <y, H y> */
    vec_store(yhy, NAME(metric_quadratic_form)(p, block, lambda, lambdah, w->x_trial));
    for (ptrdiff_t k = 0; k < LANES; k++)
        scale[k] = history->rho[history->newest][k] > 0.0 && yhy[k] > 0.0 ? scale[k] / yhy[k] : 1;
    factor = vec_load(scale);
    for (ptrdiff_t k = 0; k < size; k += LANES)
        vec_store(q + k, vec_load(q + k) * factor);
}

/* Multiply w.g_trial of each of `count` blocks, the metric H times a vector, by s.scale (V,). Only in lanes where
   s.scale_is_doubtful (a step was refused or much too short) is the scale first recomputed as in scale_by_newest_pair,
   since that needs another pass of the metric. w.x_trial of such blocks is overwritten. */
TARGET static void NAME(scale_doubtful_lanes)(const pseudo_problem *p, int count, lane_block *const *blocks,
                                              REAL lambda, REAL lambdah)
{
    lane_block *doubtful[PSEUDO_BLOCKS_PER_TASK];  /* the n_doubtful blocks in which some lane needs a new scale */
    REAL *hy[PSEUDO_BLOCKS_PER_TASK];              /* for each of these, y of the newest pair, then H y */
    int b, v, n_doubtful = 0;
    for (b = 0; b < count; b++) {
        const ptrdiff_t size = blocks[b]->t.A * (1 + p->D) * LANES;
        const search_state *s = &blocks[b]->s;
        int any_doubtful = 0;
        for (v = 0; v < LANES; v++)
            any_doubtful |= s->scale_is_doubtful[v] && s->history.rho[s->history.newest][v] > 0;
        if (!any_doubtful || !s->history.count)
            continue;
        hy[n_doubtful] = blocks[b]->w.x_trial;
        memcpy(hy[n_doubtful], blocks[b]->w.Y + s->history.newest * size, (size_t)size * sizeof(REAL));
        doubtful[n_doubtful++] = blocks[b];
    }
    if (n_doubtful)
        NAME(apply_metric)(p, n_doubtful, doubtful, lambda, lambdah, hy);
    for (b = 0; b < n_doubtful; b++) {
        const ptrdiff_t size = doubtful[b]->t.A * (1 + p->D) * LANES;
        search_state *s = &doubtful[b]->s;
        REAL yhy[LANES];  /* <y, H y> */
        vec_store(yhy, NAME(dot)(doubtful[b]->w.Y + s->history.newest * size, hy[b], size));
        for (v = 0; v < LANES; v++)
            if (s->scale_is_doubtful[v] && s->history.rho[s->history.newest][v] > 0 && yhy[v] > 0)
                s->scale[v] = 1 / (s->history.rho[s->history.newest][v] * yhy[v]);  /* <step, y> / <y, H y> */
    }
    for (b = 0; b < count; b++) {
        const vec scale = vec_load(blocks[b]->s.scale);
        for (ptrdiff_t k = 0; k < blocks[b]->t.A * (1 + p->D) * LANES; k += LANES)
            vec_store(blocks[b]->w.g_trial + k, vec_load(blocks[b]->w.g_trial + k) * scale);
        memset(blocks[b]->s.scale_is_doubtful, 0, sizeof blocks[b]->s.scale_is_doubtful);
    }
}

/* First loop of the two-loop recursion of L-BFGS (Nocedal 1980), newest pair first: start with q = gradient, subtract
   alpha y for each pair, with alpha = rho <step, q>, and leave q in w.g_trial; write the factors alpha (max_pairs,
   V) */
TARGET static void NAME(two_loop_backward)(const pseudo_problem *p, lane_block *block, REAL alpha[][LANES])
{
    const ptrdiff_t size = block->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &block->w;
    const pair_history *history = &block->s.history;
    REAL *q = w->g_trial;
    ptrdiff_t k, pair = history->newest;
    vec step_q;  /* <step, q> of the current pair */
    memcpy(q, w->g, (size_t)size * sizeof *q);
    step_q = history->count ? NAME(dot)(q, w->S + pair * size, size) : vec_fill(0.0);
    for (k = 0; k < history->count; k++) {
        const ptrdiff_t older = (pair + block->t.max_pairs - 1) % block->t.max_pairs;
        const vec factor = step_q * vec_load(history->rho[pair]);
        vec_store(alpha[pair], factor);
        step_q = NAME(add_dot)(q, -factor, w->Y + pair * size,
                               k + 1 < history->count ? w->S + older * size : NULL, size);
        pair = older;
    }
}

/* Second loop of the recursion, oldest pair first: to q = w.g_trial, the metric times the result of the first loop, add
   (alpha - rho <y, q>) times the step of each pair. Write -q as the direction w.d of the lanes in the mask
   s.wants_direction, and the slope s.now.slope = <d, gradient> of all lanes. */
TARGET static void NAME(two_loop_forward)(const pseudo_problem *p, lane_block *block, REAL alpha[][LANES])
{
    const ptrdiff_t size = block->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &block->w;
    const pair_history *history = &block->s.history;
    REAL *q = w->g_trial;
    ptrdiff_t k, pair = (history->newest + block->t.max_pairs - history->count + 1) % block->t.max_pairs;
    const words mask = NAME(load_words)(block->s.wants_direction);
    /* <y, q> of the current pair; finally the slope <d, gradient> */
    vec inner = history->count ? NAME(dot)(q, w->Y + pair * size, size) : vec_fill(0.0);
    for (k = 0; k < history->count; k++) {
        const ptrdiff_t newer = (pair + 1) % block->t.max_pairs;
        const vec factor = vec_load(alpha[pair]) - inner * vec_load(history->rho[pair]);
        inner = NAME(add_dot)(q, factor, w->S + pair * size, k + 1 < history->count ? w->Y + newer * size : NULL, size);
        pair = newer;
    }
    inner = vec_fill(0.0);
    for (k = 0; k < size; k += LANES) {
        const vec d = NAME(choose)(mask, -vec_load(q + k), vec_load(w->d + k));
        inner += d * vec_load(w->g + k);
        vec_store(w->d + k, d);
    }
    vec_store(block->s.now.slope, inner);
}

/* Compute new directions w.d for those of `count` lane blocks with s.any_wants_direction; blocks with the same number
   of logits share one pass of the metric. If several blocks form a task (blocks_per_task > 1) the metric is scaled only
   in doubtful lanes, otherwise by the newest pair each time. */
TARGET static void NAME(renew_directions)(const pseudo_problem *p, lane_block *blocks, int count, REAL lambda,
                                          REAL lambdah)
{
    /* for each of the n_sharing blocks that share the pass: factors of the two loops, w.g_trial, the block */
    REAL alpha[PSEUDO_BLOCKS_PER_TASK][PSEUDO_MAX_PAIRS][LANES], *q[PSEUDO_BLOCKS_PER_TASK];
    lane_block *sharing[PSEUDO_BLOCKS_PER_TASK];
    int b, k, n_sharing;
    for (b = 0; b < count; b++) {
        if (!blocks[b].s.any_wants_direction)
            continue;
        for (k = b, n_sharing = 0; k < count; k++)
            if (blocks[k].s.any_wants_direction && blocks[k].t.A == blocks[b].t.A) {
                NAME(two_loop_backward)(p, &blocks[k], alpha[n_sharing]);
                q[n_sharing] = blocks[k].w.g_trial;
                sharing[n_sharing++] = &blocks[k];
            }
        NAME(apply_metric)(p, n_sharing, sharing, lambda, lambdah, q);
        if (p->blocks_per_task > 1)
            NAME(scale_doubtful_lanes)(p, n_sharing, sharing, lambda, lambdah);
        for (k = 0; k < n_sharing; k++) {
            if (sharing[k]->s.history.count && p->blocks_per_task == 1)
                NAME(scale_by_newest_pair)(p, sharing[k], lambda, lambdah, q[k]);
            NAME(two_loop_forward)(p, sharing[k], alpha[k]);
            sharing[k]->s.any_wants_direction = 0;  /* so that the outer loop skips this block */
        }
    }
}

/* Move x and g to the trial point in the lanes of the mask `accepted` (V,) and store the step and the change y of the
   gradient as the newest pair. The pair is unused, rho = 0, in other lanes and where the curvature <step, y> is not
   positive: below the rounding error FLAT as a cosine, or below TINY. */
TARGET static void NAME(store_pair)(const pseudo_problem *p, const pseudo_block *t, const lane_memory *w,
                                    pair_history *history, const WORD *accepted)
{
    const ptrdiff_t size = t->A * (1 + p->D) * LANES;
    REAL *S, *Y, sy[LANES], ss[LANES], yy[LANES];  /* <step, y>, |step|^2, |y|^2 */
    vec sum_sy = vec_fill(0.0), sum_ss = vec_fill(0.0), sum_yy = vec_fill(0.0);
    const words mask = NAME(load_words)(accepted);
    history->newest = (history->newest + 1) % t->max_pairs;
    if (history->count < t->max_pairs)
        history->count++;
    S = w->S + history->newest * size;
    Y = w->Y + history->newest * size;
    for (ptrdiff_t k = 0; k < size; k += LANES) {
        const vec x = vec_load(w->x + k), g = vec_load(w->g + k);
        const vec x_new = NAME(choose)(mask, vec_load(w->x_trial + k), x);
        const vec g_new = NAME(choose)(mask, vec_load(w->g_trial + k), g);
        const vec step = x_new - x, y = g_new - g;
        sum_sy += step * y;
        sum_ss += step * step;
        sum_yy += y * y;
        vec_store(S + k, step);
        vec_store(Y + k, y);
        vec_store(w->x + k, x_new);
        vec_store(w->g + k, g_new);
    }
    vec_store(sy, sum_sy);
    vec_store(ss, sum_ss);
    vec_store(yy, sum_yy);
    for (ptrdiff_t k = 0; k < LANES; k++) {
        const int usable = sy[k] > FLAT * sqrt((double)ss[k] * yy[k]) && sy[k] > TINY;
        history->rho[history->newest][k] = usable ? 1 / sy[k] : 0;
    }
}

/* Line search of lane v after an evaluation at its trial point, see (b): return 1 if the point is accepted, otherwise
   shorten s->step[v], the step along d, and return 0. s->n_stalled[v] counts successive steps without progress,
   s->best_norm[v] is the smallest gradient norm so far, s->n_refused[v] counts refused trial points at this x. Slopes
   are negative if f decreases along d: slope < 0 at x, slope_trial > 0 beyond the minimum. */
static int NAME(line_search_lane)(search_state *s, int v)
{
    const double f = s->now.f[v], f_trial = s->trial.f[v], slope = s->now.slope[v], slope_trial = s->trial.slope[v];
    const double noise = NOISE * (1.0 + fabs(f));
    double shrink = 0.1;  /* factor of the step; this value if the trial point is not finite */
    if (isfinite(f_trial) && isfinite(s->trial.norm[v])) {
        if (s->by_slopes ? slope_trial <= -SLOPE_HALVED * slope
                         : f_trial <= f + ARMIJO * s->step[v] * slope
                           || (f_trial <= f + noise && slope_trial <= -SLOPE_SHRUNK * slope)) {
            const int stalled =  /* neither the norm nor the objective (not available with by_slopes) has improved */
                (s->by_slopes || f_trial > f - noise) && s->trial.norm[v] > NORM_PROGRESS * s->best_norm[v];
            s->n_stalled[v] = stalled ? s->n_stalled[v] + 1 : 0;
            if (!stalled)  /* otherwise the best norm is kept, so that slow but steady progress counts */
                s->best_norm[v] = s->trial.norm[v] < s->best_norm[v] ? s->trial.norm[v] : s->best_norm[v];
            return 1;
        }
        shrink = slope_trial > slope ? slope / (slope - slope_trial) : 0.5;  /* to where the interpolated slope is 0 */
        shrink = shrink < 0.1 ? 0.1 : shrink > 0.6 ? 0.6 : shrink;
    }
    s->step[v] = (REAL)(s->step[v] * shrink);
    s->n_refused[v]++;
    return 0;
}

/* Decide on the trial point of lane v: accept it, shorten the step, or, after RESTART_AFTER refused points or if the
   direction does not descend (slope not below 0, or NaN), drop all pairs, so that the next direction is the metric's.
   Set the lane's status; s->target_norm[v] is the gradient norm at which it stops. */
static void NAME(accept_or_shorten)(search_state *s, const pseudo_options *o, pseudo_lane *lane, int v)
{
    lane->n_eval++;
    if (s->now.slope[v] < 0.0 && NAME(line_search_lane)(s, v)) {
        s->accepted[v] = s->wants_direction[v] = (WORD)~(WORD)0;  /* all bits set */
        /* a refused point or a slope that is still steep: the step had the wrong length */
        s->scale_is_doubtful[v] = s->n_refused[v] || s->trial.slope[v] < SHORT_STEP * s->now.slope[v];
        s->now.f[v] = s->trial.f[v];
        s->now.norm[v] = s->trial.norm[v];
        s->now.kappa[v] = s->trial.kappa[v];
        s->step[v] = 1.0;
        s->n_refused[v] = 0;
        lane->n_iter++;
        lane->status = s->now.norm[v] <= s->target_norm[v] ? SOLVER_CONVERGED
            : s->n_stalled[v] >= (s->by_slopes ? MAX_STALLED_SLOPES  /* sizeof tells single precision */
                                  : sizeof(REAL) == sizeof(float) ? MAX_STALLED_SINGLE : MAX_STALLED) ? SOLVER_STUCK
            : lane->n_iter >= o->itmax ? SOLVER_ITMAX : SOLVER_RUNNING;
    } else if (!(s->now.slope[v] < 0.0) || s->n_refused[v] == RESTART_AFTER) {
        for (int k = 0; k < PSEUDO_MAX_PAIRS; k++)  /* only in this lane, so the pairs stay in the ring buffer */
            s->history.rho[k][v] = 0.0;
        /* above RESTART_AFTER, so that refused points cause no second restart here; a direction that does not descend
           counts as one refused point, so that MAX_REFUSED ends repetitions */
        s->n_refused[v] = s->n_refused[v] < RESTART_AFTER ? RESTART_AFTER + 1 : s->n_refused[v] + 1;
        s->step[v] = 1.0;
        s->wants_direction[v] = (WORD)~(WORD)0;
    }
    if (s->n_refused[v] > MAX_REFUSED)
        lane->status = isfinite(s->trial.f[v]) ? SOLVER_STUCK : SOLVER_NOT_FINITE;
}

/* Return the solver_status of a lane at its initial point, given its objective `value` and gradient norm; o contains
   the norm `tolerance` at which it has converged and `itmax`, the maximum number of steps */
static int32_t NAME(status_at_start)(double value, double norm, const pseudo_options *o)
{
    return !isfinite(value) || !isfinite(norm) ? SOLVER_NOT_FINITE
        : norm <= o->tolerance ? SOLVER_CONVERGED : o->itmax < 1 ? SOLVER_ITMAX : SOLVER_RUNNING;
}

/* Evaluate a lane block at its initial point w.x and set up the line searches and results of its lanes; coupled = 0
   guarantees that all couplings are zero */
TARGET static void NAME(start_lanes)(const pseudo_problem *p, lane_block *block, const pseudo_options *o, int coupled)
{
    search_state *s = &block->s;
    const lane_memory *w = &block->w;
    memset(s, 0, sizeof *s);
    memset(w->d, 0, (size_t)(block->t.A * (1 + p->D)) * LANES * sizeof *w->d);  /* lanes that never step keep d = 0 */
    NAME(evaluate)(p, &block->t, w, w->x, /* d */ NULL, coupled, (REAL)o->lambda, (REAL)o->lambdah, w->g, &s->now);
    for (int v = 0; v < LANES; v++) {
        block->lane[v].n_iter = 0;
        block->lane[v].n_eval = 1;  /* the evaluation above */
        block->lane[v].status =
            block->t.site[v] < 0 ? SOLVER_CONVERGED : NAME(status_at_start)(s->now.f[v], s->now.norm[v], o);
        s->best_norm[v] = s->now.norm[v];
        s->target_norm[v] = o->tolerance;
        block->is_final[v] = block->lane[v].status != SOLVER_RUNNING;
        if (block->is_final[v])
            continue;
        s->step[v] = s->scale[v] = 1.0;
        s->wants_direction[v] = (WORD)~(WORD)0;
        s->n_stepping++;
    }
    s->any_wants_direction = s->n_stepping > 0;
}

/* Evaluate a lane block at x + step d; each lane accepts this trial point, and the block stores its curvature pair, or
   shortens its step */
TARGET static void NAME(step_along_directions)(const pseudo_problem *p, lane_block *block, const pseudo_options *o)
{
    const ptrdiff_t size = block->t.A * (1 + p->D) * LANES;
    const lane_memory *w = &block->w;
    search_state *s = &block->s;
    int v;
    for (ptrdiff_t k = 0; k < size; k += LANES)
        vec_store(w->x_trial + k, vec_load(w->x + k) + vec_load(s->step) * vec_load(w->d + k));
    NAME(evaluate)(p, &block->t, w, w->x_trial, w->d, /* coupled */ 1, (REAL)o->lambda, (REAL)o->lambdah, w->g_trial,
                   &s->trial);
    for (v = 0, s->n_stepping = 0; v < LANES; v++) {
        s->accepted[v] = s->wants_direction[v] = 0;
        if (s->step[v] == 0)  /* the lane has finished, waits for an anchor, or has no site */
            continue;
        NAME(accept_or_shorten)(s, o, &block->lane[v], v);
        s->any_wants_direction |= s->wants_direction[v] != 0;
        if (block->lane[v].status != SOLVER_RUNNING) {
            block->is_final[v] = !s->by_slopes;  /* in mixed precision the next anchor decides */
            s->step[v] = 0.0;
            s->wants_direction[v] = 0;
        } else
            s->n_stepping++;
    }
    /* set if a lane has accepted (even if it has finished) or restarts; if lanes only restart, no pair is usable */
    if (s->any_wants_direction)
        NAME(store_pair)(p, &block->t, w, &s->history, s->accepted);
}
