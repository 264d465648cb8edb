/* Lane blocks that are solved together, and mixed precision; pseudo_kernel.h includes it after pseudo_task.h.

   (a) Wide problems, whose metric is all of the covariance, are solved some blocks at a time (p->blocks_per_task), so that it is
       read once for all. Sites differ in how many steps they need: as soon as the lanes that are not
       done fit into fewer blocks, those of one block move into the others, with all that is known of them.
   (b) Mixed precision. An anchor is a point in double precision, with the exact gradient there and the probabilities
       of all rows in single. Steps are taken in single precision from it: of the logits, the probabilities and the
       gradient only the changes since the anchor are computed, whose relative error is that of single precision
       however small they are. A lane whose gradient has shrunk by ANCHOR_RATIO waits until the
       point becomes the new anchor. A lane is done when its gradient at an anchor is. Pairs of steps and gradient
       changes stay valid.

   Conventions: as in pseudo_lanes.h; in mixed precision x is the change since the anchor, `exact.x`. */

#ifdef SINGLE
#define ANCHOR_RATIO 3e-5  /* share of the norm at an anchor at which a lane waits for the next: digits of single precision */
#define ANCHOR_COST 2      /* of an anchor, in evaluations in single precision */
#define MAX_NO_PROGRESS 5  /* anchors in a row that do not halve the norm, after which a lane is stuck */
#define MAX_RISE 1e-10     /* relative rise of the objective from anchor to anchor that is rounding */

/* Make the current point the anchor, and set the status of its lanes. A lane whose objective is higher than at the last
   anchor (slopes in single precision misled it) keeps that anchor and drops its pairs. */
TARGET static void NAME(refresh_anchor)(const pseudo_problem *p, lane_block *at, const pseudo_options *o, int coupled)
{
    const ptrdiff_t P = 1 + p->D, size = at->t.A * P * LANES;
    const lane_memory *w = &at->w;
    search_state *s = &at->s;
    EXACT(evaluation) here;
    ptrdiff_t a, c, k;
    int v, worse[LANES], back = 0;
    memcpy(at->exact.x_trial, at->exact.x, (size_t)size * sizeof *at->exact.x);
    for (k = 0; k < size; k++)
        at->exact.x[k] += w->x[k];
    EXACT(evaluate)(p, &at->exact_t, &at->exact, at->exact.x, NULL, coupled, o->lambda, o->lambdah, at->exact.g, &here);
    for (v = 0; v < LANES; v++) {
        const double value = at->lane[v].value;
        worse[v] = !at->is_final[v] && !(here.f[v] <= value + MAX_RISE * (1.0 + fabs(value)));
        back |= worse[v];
        for (k = 0; k < PSEUDO_MAX_PAIRS && worse[v]; k++)
            s->history.rho[k][v] = 0;
    }
    if (back) {
        for (k = 0; k < size; k++)
            at->exact.x[k] = worse[k % LANES] ? at->exact.x_trial[k] : at->exact.x[k];
        EXACT(evaluate)(p, &at->exact_t, &at->exact, at->exact.x, NULL, coupled, o->lambda, o->lambdah, at->exact.g,
                        &here);
    }
    memset(w->x, 0, (size_t)size * sizeof *w->x);
    for (a = 0; a < at->t.A; a++) {
        const double *g = at->exact.g + a * P * LANES;
        REAL *pull = w->moment + a * P * LANES, *own = w->g + a * P * LANES;
        for (c = 0; c < P; c++)
            for (v = 0; v < LANES; v++) {
                const double shared = c ? g[v] * at->exact.mask[c * LANES + v] * p->moments.mean[c] : 0.0;
                own[c * LANES + v] = (REAL)g[c * LANES + v];
                pull[c * LANES + v] = (REAL)-(g[c * LANES + v] + shared);
            }
    }
    for (v = 0, s->n_stepping = 0; v < LANES; v++) {
        pseudo_lane *lane = &at->lane[v];
        if (at->is_final[v])
            continue;
        lane->n_eval++;
        if (lane->status != SOLVER_RUNNING)
            at->n_no_progress[v] = here.norm[v] > 0.5 * at->norm[v] ? at->n_no_progress[v] + 1 : 0;
        at->norm[v] = lane->norm = here.norm[v];
        lane->value = here.f[v];
        s->now.norm[v] = (REAL)here.norm[v];
        s->now.kappa[v] = (REAL)here.kappa[v];
        if (lane->status != SOLVER_ITMAX && lane->status != SOLVER_NOT_FINITE)  /* stuck lanes have another try */
            lane->status = NAME(first_status)(here.f[v], here.norm[v], o);
        if (lane->status == SOLVER_RUNNING && at->n_no_progress[v] >= MAX_NO_PROGRESS)
            lane->status = SOLVER_STUCK;
        at->is_final[v] = lane->status != SOLVER_RUNNING;
        s->target_norm[v] = 0.9 * o->tolerance > ANCHOR_RATIO * here.norm[v] ? 0.9 * o->tolerance : ANCHOR_RATIO * here.norm[v];
        s->step[v] = lane->status == SOLVER_RUNNING;
        s->wants_direction[v] = lane->status == SOLVER_RUNNING ? (WORD)~(WORD)0 : 0;
        s->n_refused[v] = s->n_stalled[v] = 0;
        s->n_stepping += lane->status == SOLVER_RUNNING;
    }
    s->any_wants_direction = s->n_stepping > 0;
    at->n_waited = 0;
}

/* Start a block in mixed precision: its start point is the first anchor */
TARGET static void NAME(start_from_single)(const pseudo_problem *p, lane_block *at, const pseudo_options *o,
                                           int coupled)
{
    const ptrdiff_t size = at->t.A * (1 + p->D) * LANES;
    int v;
    memset(&at->s, 0, sizeof at->s);
    memset(at->w.x, 0, (size_t)size * sizeof *at->w.x);
    memset(at->w.d, 0, (size_t)size * sizeof *at->w.d);
    at->s.by_slopes = 1;
    for (v = 0; v < LANES; v++) {
        memset(&at->lane[v], 0, sizeof at->lane[v]);
        at->lane[v].status = SOLVER_RUNNING;
        at->is_final[v] = at->t.site[v] < 0;
        at->s.scale[v] = 1;
        at->lane[v].value = at->norm[v] = HUGE_VAL;
        at->n_no_progress[v] = 0;
    }
    NAME(refresh_anchor)(p, at, o, coupled);
    for (v = 0; v < LANES; v++)
        at->s.best_norm[v] = at->s.now.norm[v];
}

/* Whether a block should take a new anchor: the evaluations that waiting lanes missed cost as much as an anchor, or no
   lane steps any more */
static int NAME(anchor_is_due)(lane_block *at)
{
    int v, waiting = 0;
    for (v = 0; v < LANES; v++)
        waiting += !at->is_final[v] && at->lane[v].status != SOLVER_RUNNING;
    at->n_waited += waiting;
    return waiting && (at->n_waited >= ANCHOR_COST * LANES || !at->s.n_stepping);
}
#endif

/* Write parameters and reports of the lanes of a block */
TARGET static void NAME(write_lanes)(const pseudo_problem *p, lane_block *at, double *theta, pseudo_lane *lane_out)
{
    ptrdiff_t k;
    int v;
#ifdef SINGLE
    if (p->mixed) {
        for (k = 0; k < at->t.A * (1 + p->D) * LANES; k++)
            at->exact.x_trial[k] = at->exact.x[k] + at->w.x[k];
        EXACT(store_parameters)(p, &at->exact_t, &at->exact, at->exact.x_trial, 1, theta);
    }
#endif
    if (!p->mixed)
        NAME(store_parameters)(p, &at->t, &at->w, at->w.x, 1, theta);
    for (v = 0; v < LANES; v++) {
        if (!p->mixed) {
            at->lane[v].value = at->s.now.f[v];
            at->lane[v].norm = at->s.now.norm[v];
        }
        if (at->t.site[v] >= 0)
            lane_out[at->t.site[v]] = at->lane[v];
    }
    (void)k;
}

/* to (count, V) lane v <- from (count, V) lane u */
#define PSEUDO_LANE(to, from, count) \
    for (k = 0; k < (count); k++)                                                                                      \
        (to)[k * LANES + v] = (from)[k * LANES + u]

/* Move lane u of one block to lane v of another with as many logits, whose result is final and written */
TARGET static void NAME(move_lane)(const pseudo_problem *p, lane_block *from, int u, lane_block *to, int v)
{
    const ptrdiff_t A = from->t.A, P = 1 + p->D, size = A * P * LANES, pairs = from->t.max_pairs;
    const search_state *s = &from->s;
    search_state *r = &to->s;
    ptrdiff_t k, age;
    PSEUDO_LANE(to->w.x, from->w.x, A * P);
    PSEUDO_LANE(to->w.g, from->w.g, A * P);
    PSEUDO_LANE(to->w.d, from->w.d, A * P);
    PSEUDO_LANE(to->w.moment, from->w.moment, A * P);
    PSEUDO_LANE(to->w.mask, from->w.mask, P);
    PSEUDO_LANE(to->w.sigma, from->w.sigma, A);
    PSEUDO_LANE(to->w.trace, from->w.trace, 1);
    PSEUDO_LANE((REAL *)to->t.has_level, (REAL *)from->t.has_level, A);
    if (p->metric.site_correction)
        PSEUDO_LANE(to->w.site_correction, from->w.site_correction, A * p->D);
    if (A <= PSEUDO_MAX_ROTATED)
        PSEUDO_LANE(to->w.rotation, from->w.rotation, A * A);
    for (age = 0; age < pairs; age++) {
        const ptrdiff_t at = (r->history.newest + pairs - age) % pairs, old = (s->history.newest + pairs - age) % pairs;
        r->history.rho[at][v] = age < s->history.count ? s->history.rho[old][u] : 0;
        PSEUDO_LANE(to->w.S + at * size, from->w.S + old * size, A * P);
        PSEUDO_LANE(to->w.Y + at * size, from->w.Y + old * size, A * P);
    }
    r->history.count = s->history.count > r->history.count ? s->history.count : r->history.count;
    r->now.f[v] = s->now.f[u];
    r->now.norm[v] = s->now.norm[u];
    r->now.slope[v] = s->now.slope[u];
    r->now.kappa[v] = s->now.kappa[u];
    r->step[v] = s->step[u];
    r->best_norm[v] = s->best_norm[u];
    r->scale[v] = s->scale[u];
    r->scale_is_doubtful[v] = s->scale_is_doubtful[u];
    r->target_norm[v] = s->target_norm[u];
    r->n_refused[v] = s->n_refused[u];
    r->n_stalled[v] = s->n_stalled[u];
    r->wants_direction[v] = s->wants_direction[u];
    r->any_wants_direction |= s->any_wants_direction;
    to->lane[v] = from->lane[u];
    r->n_stepping += to->lane[v].status == SOLVER_RUNNING;
    to->is_final[v] = 0;
    to->t.site[v] = from->t.site[u];
    for (k = 0; k < p->composites.n_composites; k++)
        to->t.needs_composite[k] |= from->t.needs_composite[k];
    for (k = 0; k < p->composites.n_chunks; k++)
        to->t.needs_chunk[k] |= from->t.needs_chunk[k];
#ifdef SINGLE
    if (p->mixed) {
        PSEUDO_LANE(to->exact.x, from->exact.x, A * P);
        PSEUDO_LANE(to->t.anchor_prob, from->t.anchor_prob, p->composites.n_blocks * A * p->composites.block_rows);
        PSEUDO_LANE(to->exact.moment, from->exact.moment, A * P);
        PSEUDO_LANE(to->exact.mask, from->exact.mask, P);
        PSEUDO_LANE(to->exact.trace, from->exact.trace, 1);
        PSEUDO_LANE((double *)to->exact_t.has_level, (double *)from->exact_t.has_level, A);
        for (k = 0; k < p->composites.n_composites; k++)
            to->exact_t.needs_composite[k] |= from->exact_t.needs_composite[k];
        for (k = 0; k < p->composites.n_chunks; k++)
            to->exact_t.needs_chunk[k] |= from->exact_t.needs_chunk[k];
        to->exact_t.site[v] = from->t.site[u];
        to->norm[v] = from->norm[u];
        to->n_no_progress[v] = from->n_no_progress[u];
    }
#endif
}
#undef PSEUDO_LANE

/* Lanes of a block whose report is not final */
static int NAME(n_running)(const lane_block *at)
{
    int v, count = 0;
    for (v = 0; v < LANES; v++)
        count += !at->is_final[v];
    return count;
}

/* Move the unfinished lanes of the block with fewest of them into free lanes of other blocks, if all fit */
TARGET static void NAME(compact_blocks)(const pseudo_problem *p, lane_block *blocks, int count, double *theta,
                                        pseudo_lane *lane_out)
{
    lane_block *from = NULL;
    int b, v, u = 0, room = 0;
    for (b = 0; b < count; b++)
        if (NAME(n_running)(&blocks[b]) && (!from || NAME(n_running)(&blocks[b]) < NAME(n_running)(from)))
            from = &blocks[b];
    for (b = 0; b < count && from; b++)
        if (&blocks[b] != from && NAME(n_running)(&blocks[b]) && blocks[b].t.A == from->t.A)
            room += LANES - NAME(n_running)(&blocks[b]);
    if (!from || room < NAME(n_running)(from))
        return;
    NAME(write_lanes)(p, from, theta, lane_out);
    for (b = 0; b < count; b++) {
        lane_block *to = &blocks[b];
        if (to == from || !NAME(n_running)(to) || to->t.A != from->t.A || NAME(n_running)(to) == LANES)
            continue;
        NAME(write_lanes)(p, to, theta, lane_out);
        for (v = 0; v < LANES; v++) {
            while (u < LANES && from->is_final[u])
                u++;
            if (to->is_final[v] && u < LANES)
                NAME(move_lane)(p, from, u++, to, v);
        }
    }
    for (v = 0; v < LANES; v++) {
        from->is_final[v] = 1;
        from->t.site[v] = -1;
#ifdef SINGLE
        from->exact_t.site[v] = -1;
#endif
    }
    from->s.n_stepping = from->s.any_wants_direction = 0;
}

/* Minimise from the parameters of the blocks; writes theta and lane_out (m,). Returns a solver_code. */
TARGET static int NAME(minimise)(const pseudo_problem *p, lane_block *blocks, int count, const pseudo_options *o,
                                 double *theta, pseudo_lane *lane_out)
{
    const double part = NAME(zero_sum_share)(p, &blocks[0].w);
    const REAL lambda = (REAL)(o->lambda * part * part), lambdah = (REAL)(o->lambdah * part);
    double since = 0.0;
    int b, v, running, stopped = 0;
    for (;;) {
        for (b = 0, running = 0; b < count; b++)
            running += blocks[b].s.n_stepping;
        if (!running || stopped)
            break;
        NAME(renew_directions)(p, blocks, count, lambda, lambdah);
        for (b = 0; b < count; b++) {
            if (!blocks[b].s.n_stepping)
                continue;
            NAME(step_along_directions)(p, &blocks[b], o);
#ifdef SINGLE
            if (p->mixed && NAME(anchor_is_due)(&blocks[b]))
                NAME(refresh_anchor)(p, &blocks[b], o, 1);
#endif
            blocks[b].s.any_wants_direction &= blocks[b].s.n_stepping > 0;
            since += (double)p->rows.n * (double)(blocks[b].t.A * (p->composites.n_composites + 8));
        }
        if (count > 1)
            NAME(compact_blocks)(p, blocks, count, theta, lane_out);
        if (o->check && since > PSEUDO_CHECK_EVERY) {  /* the check waits for Python's lock: not after every small step */
            since = 0.0;
            stopped = -(o->check() != 0);
        }
        if (o->stop && *(const volatile int32_t *)o->stop)
            stopped = 1;
    }
    for (b = 0; b < count; b++) {
        for (v = 0; v < LANES; v++)
            if (blocks[b].lane[v].status == SOLVER_RUNNING)
                blocks[b].lane[v].status = SOLVER_STOPPED;
        NAME(write_lanes)(p, &blocks[b], theta, lane_out);
    }
    return stopped < 0 ? SOLVER_INTERRUPTED : SOLVER_DONE;
}
