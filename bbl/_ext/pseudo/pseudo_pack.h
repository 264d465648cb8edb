/* Minimising one or more lane blocks, also in mixed precision; pseudo_kernel.h includes this file after pseudo_task.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h. s.history contains the number of curvature pairs `count`,
   the position of the newest in the ring buffers w.S and w.Y, and rho, 0 for an unused pair. A lane is *free* if it has
   no site or its result is final (is_final), otherwise *running*; s.n_stepping lanes step, the other running lanes wait
   for an anchor. n_composites is the number of composites. s.now contains the objective f, the gradient norm and kappa,
   a mean curvature, at the block's point.

   (a) In wide problems blocks_per_task blocks are solved together, so that the metric is read once for all. As soon as
       the running lanes fit into fewer blocks, one block's lanes are moved to free lanes of the others.
   (b) Mixed precision. An *anchor* is a point in double precision, block->exact.x, with the exact gradient there and
       the probabilities of all rows in single precision. exact_t and exact are t and w in double precision, norm[v] is
       the gradient norm at the anchor, n_no_progress[v] counts successive anchors that did not halve it, and n_waited
       is the number of evaluations, over all lanes, for which lanes have waited for an anchor. Steps are taken in
       single precision, w.x = change since the anchor: only changes of logits, probabilities and gradient are computed,
       and they have the relative error of single precision however small they are. A lane whose gradient norm has
       decreased by the factor ANCHOR_RATIO waits until the block's point becomes the new anchor. A lane has converged
       if its gradient at an anchor is small enough. Curvature pairs remain valid. */

#ifdef SINGLE
#define ANCHOR_RATIO 3e-5  /* gradient norm, relative to the anchor's, at which a lane waits: precision of a float */
#define ANCHOR_COST 2      /* time of computing an anchor, in evaluations in float (`benchmarks.run --suite fit`: W2) */
#define MAX_NO_PROGRESS 5  /* a lane is stuck after so many successive anchors that do not halve the gradient norm */
#define MAX_RISE 1e-10     /* relative increase of the objective between anchors that is treated as rounding */
#define BELOW_TOLERANCE 0.9  /* fraction of the tolerance that steps aim for, so that the anchor's norm is below it */

/* Make the block's point, block->exact.x + w.x, the new anchor: write block->exact and the arrays of the
   single-precision block, and set the status of its lanes. A lane whose objective is higher than at the last anchor
   (because slopes in single precision were misleading) keeps that anchor and drops its curvature pairs. coupled = 0
   guarantees that all couplings are zero. */
TARGET static void NAME(refresh_anchor)(const pseudo_problem *p, lane_block *block, const pseudo_options *o,
                                        int coupled)
{
    const ptrdiff_t P = 1 + p->D, size = block->t.A * P * LANES;
    const lane_memory *w = &block->w;
    search_state *s = &block->s;
    EXACT(evaluation) exact;  /* results of the lanes; block->exact has the arrays */
    int v, is_worse[LANES], any_worse = 0;  /* whether the objective of each lane, or any lane, has increased */
    /* x_trial keeps the last anchor */
    memcpy(block->exact.x_trial, block->exact.x, (size_t)size * sizeof *block->exact.x);
    for (ptrdiff_t k = 0; k < size; k++)
        block->exact.x[k] += w->x[k];
    EXACT(evaluate)(p, &block->exact_t, &block->exact, block->exact.x, /* d */ NULL, coupled, o->lambda, o->lambdah,
                    block->exact.g, &exact);
    for (v = 0; v < LANES; v++) {
        const double value = block->lane[v].value;  /* at the last anchor; infinite before the first */
        is_worse[v] = !block->is_final[v] && !(exact.f[v] <= value + MAX_RISE * (1.0 + fabs(value)));
        any_worse |= is_worse[v];
        for (ptrdiff_t k = 0; k < PSEUDO_MAX_PAIRS && is_worse[v]; k++)
            s->history.rho[k][v] = 0;
    }
    if (any_worse) {
        for (ptrdiff_t k = 0; k < size; k++)
            block->exact.x[k] = is_worse[k % LANES] ? block->exact.x_trial[k] : block->exact.x[k];
        EXACT(evaluate)(p, &block->exact_t, &block->exact, block->exact.x, /* d */ NULL, coupled, o->lambda, o->lambdah,
                        block->exact.g, &exact);
    }
    memset(w->x, 0, (size_t)size * sizeof *w->x);  /* no change since the anchor */
    for (ptrdiff_t a = 0; a < block->t.A; a++) {
        const double *g = block->exact.g + a * P * LANES;
        REAL *moment = w->moment + a * P * LANES, *g_single = w->g + a * P * LANES;
        for (ptrdiff_t c = 0; c < P; c++)
            for (v = 0; v < LANES; v++) {
                /* the difference between the derivatives with respect to J for fixed h and for fixed h', as in g; h' is
                   centred */
                const double centring = c ? g[v] * block->exact.mask[c * LANES + v] * p->moments.mean[c] : 0.0;
                g_single[c * LANES + v] = (REAL)g[c * LANES + v];
                /* minus the gradient with respect to (h, J): `evaluate` subtracts `moment` from the change since the
                   anchor */
                moment[c * LANES + v] = (REAL)-(g[c * LANES + v] + centring);
            }
    }
    for (v = 0, s->n_stepping = 0; v < LANES; v++) {
        pseudo_lane *lane = &block->lane[v];
        if (block->is_final[v])
            continue;
        lane->n_eval++;
        if (lane->status != SOLVER_RUNNING)  /* the lane has waited for this anchor; its status is from its last step */
            block->n_no_progress[v] = exact.norm[v] > 0.5 * block->norm[v] ? block->n_no_progress[v] + 1 : 0;
        block->norm[v] = lane->norm = exact.norm[v];
        lane->value = exact.f[v];
        s->now.norm[v] = (REAL)exact.norm[v];
        s->now.kappa[v] = (REAL)exact.kappa[v];
        if (lane->status != SOLVER_ITMAX && lane->status != SOLVER_NOT_FINITE)  /* give stuck lanes another try */
            lane->status = NAME(status_at_start)(exact.f[v], exact.norm[v], o);
        if (lane->status == SOLVER_RUNNING && block->n_no_progress[v] >= MAX_NO_PROGRESS)
            lane->status = SOLVER_STUCK;
        block->is_final[v] = lane->status != SOLVER_RUNNING;
        s->target_norm[v] = BELOW_TOLERANCE * o->tolerance > ANCHOR_RATIO * exact.norm[v]
            ? BELOW_TOLERANCE * o->tolerance : ANCHOR_RATIO * exact.norm[v];
        s->step[v] = lane->status == SOLVER_RUNNING;  /* 0 in finished lanes */
        s->wants_direction[v] = lane->status == SOLVER_RUNNING ? (WORD)~(WORD)0 : 0;
        s->n_refused[v] = s->n_stalled[v] = 0;
        s->n_stepping += lane->status == SOLVER_RUNNING;
    }
    s->any_wants_direction = s->n_stepping > 0;
    block->n_waited = 0;
}

/* Set up a lane block in mixed precision at its initial point, block->exact.x, which is the first anchor; coupled = 0
   guarantees that all couplings are zero */
TARGET static void NAME(start_mixed)(const pseudo_problem *p, lane_block *block, const pseudo_options *o,
                                     int coupled)
{
    const ptrdiff_t size = block->t.A * (1 + p->D) * LANES;
    memset(&block->s, 0, sizeof block->s);
    memset(block->w.x, 0, (size_t)size * sizeof *block->w.x);
    memset(block->w.d, 0, (size_t)size * sizeof *block->w.d);
    block->s.by_slopes = 1;  /* the line search compares slopes: objectives are known only at anchors */
    for (int v = 0; v < LANES; v++) {
        memset(&block->lane[v], 0, sizeof block->lane[v]);
        block->lane[v].status = SOLVER_RUNNING;
        block->is_final[v] = block->t.site[v] < 0;
        block->s.scale[v] = 1;  /* of the metric */
        block->lane[v].value = block->norm[v] = HUGE_VAL;  /* so that the first anchor counts as an improvement */
        block->n_no_progress[v] = 0;
    }
    NAME(refresh_anchor)(p, block, o, coupled);
    for (int v = 0; v < LANES; v++)
        block->s.best_norm[v] = block->s.now.norm[v];
}

/* Count the waiting lanes of a lane block after an evaluation; return whether it should compute a new anchor: if lanes
   wait and have waited, on average over all lanes, for as many evaluations as an anchor costs, or if no lane steps */
static int NAME(anchor_is_due)(lane_block *block)
{
    int v, n_waiting = 0;  /* lanes that wait: not running, with a status that only an anchor makes final */
    for (v = 0; v < LANES; v++)
        n_waiting += !block->is_final[v] && block->lane[v].status != SOLVER_RUNNING;
    block->n_waited += n_waiting;  /* since the last anchor */
    return n_waiting && (block->n_waited >= ANCHOR_COST * LANES || !block->s.n_stepping);
}
#endif

/* Write the parameters of a lane block's sites to theta (D_s, P), with a row for each non-reference level of a site,
   and their results to lane_out (n_sites,) */
TARGET static void NAME(write_lanes)(const pseudo_problem *p, lane_block *block, double *theta, pseudo_lane *lane_out)
{
#ifdef SINGLE
    if (p->mixed) {
        for (ptrdiff_t k = 0; k < block->t.A * (1 + p->D) * LANES; k++)
            block->exact.x_trial[k] = block->exact.x[k] + block->w.x[k];
        EXACT(store_parameters)(p, &block->exact_t, &block->exact, block->exact.x_trial, /* are_parameters */ 1, theta);
    }
#endif
    if (!p->mixed)
        NAME(store_parameters)(p, &block->t, &block->w, block->w.x, /* are_parameters */ 1, theta);
    for (int v = 0; v < LANES; v++) {
        if (!p->mixed) {  /* otherwise refresh_anchor has set both */
            block->lane[v].value = block->s.now.f[v];
            block->lane[v].norm = block->s.now.norm[v];
        }
        if (block->t.site[v] >= 0)
            lane_out[block->t.site[v]] = block->lane[v];
    }
}

/* For move_lane: copy lane u of `from` (count, V) to lane v of `to` (count, V); and a field (V,) of the search state */
#define COPY_LANE(to, from, count)                                                                                     \
    for (ptrdiff_t k = 0; k < (count); k++)                                                                            \
        (to)[k * LANES + v] = (from)[k * LANES + u]
#define COPY(field) s_to->field[v] = s_from->field[u]

/* Move lane u of lane block `from` to lane v of lane block `to`, a free lane whose result has been written by
   write_lanes; both blocks have the same number of logits */
TARGET static void NAME(move_lane)(const pseudo_problem *p, lane_block *from, int u, lane_block *to, int v)
{
    const ptrdiff_t A = from->t.A, P = 1 + p->D, size = A * P * LANES, pairs = from->t.max_pairs;
    const search_state *s_from = &from->s;
    search_state *s_to = &to->s;
    COPY_LANE(to->w.x, from->w.x, A * P);
    COPY_LANE(to->w.g, from->w.g, A * P);
    COPY_LANE(to->w.d, from->w.d, A * P);
    COPY_LANE(to->w.moment, from->w.moment, A * P);
    COPY_LANE(to->w.mask, from->w.mask, P);
    COPY_LANE(to->w.sigma, from->w.sigma, A);
    COPY_LANE(to->w.trace, from->w.trace, 1);
    COPY_LANE((REAL *)to->t.has_level, (REAL *)from->t.has_level, A);
    if (p->metric.site_correction)
        COPY_LANE(to->w.site_correction, from->w.site_correction, A * p->D);
    if (A <= PSEUDO_MAX_ROTATED)
        COPY_LANE(to->w.rotation, from->w.rotation, A * A);
    for (ptrdiff_t age = 0; age < pairs; age++) {  /* the newest pair, of age 0, may be anywhere in either ring */
        const ptrdiff_t pair = (s_to->history.newest + pairs - age) % pairs;
        const ptrdiff_t pair_from = (s_from->history.newest + pairs - age) % pairs;
        s_to->history.rho[pair][v] = age < s_from->history.count ? s_from->history.rho[pair_from][u] : 0;
        COPY_LANE(to->w.S + pair * size, from->w.S + pair_from * size, A * P);
        COPY_LANE(to->w.Y + pair * size, from->w.Y + pair_from * size, A * P);
    }
    s_to->history.count = s_from->history.count > s_to->history.count ? s_from->history.count : s_to->history.count;
    COPY(now.f), COPY(now.norm), COPY(now.slope), COPY(now.kappa), COPY(step), COPY(best_norm), COPY(target_norm);
    COPY(scale), COPY(scale_is_doubtful), COPY(n_refused), COPY(n_stalled), COPY(wants_direction);
    s_to->any_wants_direction |= s_from->any_wants_direction;
    to->lane[v] = from->lane[u];
    s_to->n_stepping += to->lane[v].status == SOLVER_RUNNING;
    to->is_final[v] = 0;
    to->t.site[v] = from->t.site[u];
    for (ptrdiff_t k = 0; k < p->composites.n_composites; k++)
        to->t.needs_composite[k] |= from->t.needs_composite[k];
    for (ptrdiff_t k = 0; k < p->composites.n_chunks; k++)
        to->t.needs_chunk[k] |= from->t.needs_chunk[k];
#ifdef SINGLE
    if (p->mixed) {
        COPY_LANE(to->exact.x, from->exact.x, A * P);  /* only the exact arrays that `evaluate` reads */
        COPY_LANE(to->t.anchor_prob, from->t.anchor_prob, p->composites.n_blocks * A * p->composites.block_rows);
        COPY_LANE(to->exact.moment, from->exact.moment, A * P);
        COPY_LANE(to->exact.mask, from->exact.mask, P);
        COPY_LANE(to->exact.trace, from->exact.trace, 1);
        COPY_LANE((double *)to->exact_t.has_level, (double *)from->exact_t.has_level, A);
        for (ptrdiff_t k = 0; k < p->composites.n_composites; k++)
            to->exact_t.needs_composite[k] |= from->exact_t.needs_composite[k];
        for (ptrdiff_t k = 0; k < p->composites.n_chunks; k++)
            to->exact_t.needs_chunk[k] |= from->exact_t.needs_chunk[k];
        to->exact_t.site[v] = from->t.site[u];
        to->norm[v] = from->norm[u];
        to->n_no_progress[v] = from->n_no_progress[u];
    }
#endif
}
#undef COPY_LANE
#undef COPY

/* Return the number of lanes of a lane block without a final result */
static int NAME(count_running)(const lane_block *block)
{
    int v, count = 0;
    for (v = 0; v < LANES; v++)
        count += !block->is_final[v];
    return count;
}

/* Move the running lanes of the lane block with the fewest of them to free lanes of other blocks with the same number
   of logits and running lanes of their own, if all fit; first write the results that they replace to theta (D_s, P) and
   lane_out (n_sites,) */
TARGET static void NAME(compact_blocks)(const pseudo_problem *p, lane_block *blocks, int n_blocks, double *theta,
                                        pseudo_lane *lane_out)
{
    lane_block *from = NULL;
    int b, v, u = 0, n_free = 0;  /* u: next lane of `from` to move; n_free: free lanes of the other blocks */
    for (b = 0; b < n_blocks; b++)
        if (NAME(count_running)(&blocks[b]) && (!from || NAME(count_running)(&blocks[b]) < NAME(count_running)(from)))
            from = &blocks[b];
    for (b = 0; b < n_blocks && from; b++)
        if (&blocks[b] != from && NAME(count_running)(&blocks[b]) && blocks[b].t.A == from->t.A)
            n_free += LANES - NAME(count_running)(&blocks[b]);
    if (!from || n_free < NAME(count_running)(from))
        return;
    NAME(write_lanes)(p, from, theta, lane_out);
    for (b = 0; b < n_blocks; b++) {
        lane_block *to = &blocks[b];
        if (to == from || !NAME(count_running)(to) || to->t.A != from->t.A || NAME(count_running)(to) == LANES)
            continue;
        NAME(write_lanes)(p, to, theta, lane_out);
        for (v = 0; v < LANES; v++) {
            while (u < LANES && from->is_final[u])
                u++;
            if (to->is_final[v] && u < LANES)
                NAME(move_lane)(p, from, u++, to, v);
        }
    }
    for (v = 0; v < LANES; v++) {  /* `from` is now empty */
        from->is_final[v] = 1;
        from->t.site[v] = -1;
#ifdef SINGLE
        from->exact_t.site[v] = -1;
#endif
    }
    from->s.n_stepping = from->s.any_wants_direction = 0;
}

/* Minimise the objectives of n_blocks lane blocks from their initial points, set up by start_lanes or start_mixed;
   write the parameters of their sites to theta (D_s, P) and their results to lane_out (n_sites,). Returns a
   solver_code. */
TARGET static int NAME(minimise)(const pseudo_problem *p, lane_block *blocks, int n_blocks, const pseudo_options *o,
                                 double *theta, pseudo_lane *lane_out)
{
    const double share = NAME(zero_sum_share)(p, &blocks[0].w);
    /* share: fraction of a ridge penalty that remains in the zero-sum gauge, which subtracts the means of parameters
       over the levels: the mean of 1 - 1/L over the predictors; otherwise 1. For a coupling it is subtracted over both
       indices, for a field over one. lambda, lambdah are the penalties used by the metric, which does not depend on the
       gauge */
    const REAL lambda = (REAL)(o->lambda * share * share), lambdah = (REAL)(o->lambdah * share);
    double work = 0.0;  /* approximate number of table look-ups since the last check for signals */
    int b, v, n_stepping, stopped = 0;  /* stopped: 1 by o->stop, -1 by o->check */
    for (;;) {
        for (b = 0, n_stepping = 0; b < n_blocks; b++)
            n_stepping += blocks[b].s.n_stepping;
        if (!n_stepping || stopped)
            break;
        NAME(renew_directions)(p, blocks, n_blocks, lambda, lambdah);
        for (b = 0; b < n_blocks; b++) {
            if (!blocks[b].s.n_stepping)
                continue;
            NAME(step_along_directions)(p, &blocks[b], o);
#ifdef SINGLE
            if (p->mixed && NAME(anchor_is_due)(&blocks[b]))
                NAME(refresh_anchor)(p, &blocks[b], o, /* coupled */ 1);
#endif
            /* a lane that took its last step has also requested a direction: compute none if no lane continues */
            blocks[b].s.any_wants_direction &= blocks[b].s.n_stepping > 0;
            /* each logit of a row needs a look-up per composite; 8: its other cost, in look-ups */
            work += (double)p->rows.n * (double)(blocks[b].t.A * (p->composites.n_composites + 8));
        }
        if (n_blocks > 1)
            NAME(compact_blocks)(p, blocks, n_blocks, theta, lane_out);
        if (o->check && work > PSEUDO_CHECK_EVERY) {  /* for Ctrl-C; waits for the GIL, so not after every step */
            work = 0.0;
            stopped = -(o->check() != 0);
        }
        if (!stopped && o->stop && *(const volatile int32_t *)o->stop)  /* may be written by another thread */
            stopped = 1;
    }
    for (b = 0; b < n_blocks; b++) {
        for (v = 0; v < LANES; v++)  /* lanes that wait for an anchor keep the status of their last step */
            if (blocks[b].lane[v].status == SOLVER_RUNNING)
                blocks[b].lane[v].status = SOLVER_STOPPED;
        NAME(write_lanes)(p, &blocks[b], theta, lane_out);
    }
    return stopped < 0 ? SOLVER_INTERRUPTED : SOLVER_DONE;
}
