/* Entry points of the kernel for one vector width and precision: objective, normaliser, moments, solve.

   Conventions: as in pseudo.h; `number` is a lane block or, for `solve`, a pack of lane blocks. Each returns a
   solver_code. */

/* Objectives (at the sites) and gradients (D, 1 + D) of the sites of one lane block */
TARGET static int NAME(objective)(const pseudo_problem *p, ptrdiff_t number, const double *theta, double lambda,
                                  double lambdah, int zero_sum, const double *more, const double *linear,
                                  double *value_out, double *gradient_out)
{
    pseudo_task t;
    evaluation at;
    lane_memory w;
    int v;
    REAL *memory = NAME(task_open)(p, number, 0, lambda, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    w.more = more;
    w.zero_sum = zero_sum;
    NAME(load_parameters)(p, &t, &w, theta, 1.0, linear);
    NAME(evaluate)(p, &t, &w, w.x, NULL, 1, (REAL)lambda, (REAL)lambdah, w.g, &at);
    NAME(store_parameters)(p, &t, &w, w.g, 0, gradient_out);
    for (v = 0; v < LANES; v++)
        if (t.site[v] >= 0)
            value_out[t.site[v]] = at.f[v];
    free(memory);
    return SOLVER_DONE;
}

/* Mean of the log normalisers, couplings times `factor`, summed over the sites of one lane block */
TARGET static int NAME(normaliser)(const pseudo_problem *p, ptrdiff_t number, const double *theta, double factor,
                                   double *sum_out)
{
    pseudo_task t;
    lane_memory w;
    int v, shift;
    REAL *memory = NAME(task_open)(p, number, 0, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    NAME(load_parameters)(p, &t, &w, theta, factor, NULL);
    NAME(fields)(p, &t, w.x, w.h, &shift);
    NAME(pass)(p, &t, w.x, w.h, shift, w.tiles, w.planes, w.table, w.sums, NULL);
    for (v = 0; v < LANES; v++)
        if (t.site[v] >= 0)
            *sum_out += w.sums[v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

/* Second moments of the columns of one lane block with all others, into p->moments.second */
TARGET static int NAME(moments)(pseudo_problem *p, ptrdiff_t number, pseudo_columns columns)
{
    const ptrdiff_t stride = (p->composites.block + 1) * LANES;
    pseudo_task t;
    lane_memory w;
    ptrdiff_t v, a, c, k, b, end;
    REAL *memory = NAME(task_open)(p, number, 1, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    memset(w.g, 0, (size_t)(t.A * (1 + p->D)) * LANES * sizeof *w.g);
    for (b = 0; b < p->composites.n_blocks; b = end) {
        end = pseudo_min(b + t.span, p->composites.n_blocks);
        memset(w.planes, 0, (size_t)(t.A * t.span * stride) * sizeof *w.planes);
        for (v = 0; v < LANES; v++)
            for (k = b * p->composites.block; t.site[v] >= 0 && k < pseudo_min(end * p->composites.block, p->rows.n); k++) {
                const ptrdiff_t code = pseudo_code(columns, t.site[v] * p->rows.n + k), row = k - b * p->composites.block;
                if (code)
                    w.planes[((code - 1) * t.span + row / p->composites.block) * stride + (row % p->composites.block) * LANES + v] =
                        p->rows.equal ? 1 : (REAL)p->rows.weights[k];
            }
        NAME(reduce)(p, &t, b, end, w.planes, w.tiles, w.table, w.g);
    }
    for (v = 0; v < LANES; v++)
        for (a = 0; t.site[v] >= 0 && a < p->n_levels[t.site[v]] - 1; a++)
            for (c = 0; c < p->D; c++)
                p->moments.second[(p->start[t.site[v]] + a) * p->D + c] = w.g[(a * (1 + p->D) + 1 + c) * LANES + v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

#ifndef ANCHOR
/* Solve the sites of some lane blocks from theta, in place */
TARGET static int NAME(solve)(const pseudo_problem *p, ptrdiff_t number, const pseudo_options *o, double *theta,
                              pseudo_lane *lane_out)
{
    const int count = (int)pseudo_min(p->pack, p->n_tasks - number * p->pack);
    lane_block *blocks = calloc((size_t)count, sizeof *blocks);
    int b, coupled, most = 0, status = blocks ? SOLVER_DONE : SOLVER_NO_MEMORY;
    for (b = 0; b < count && status == SOLVER_DONE; b++) {
        lane_block *at = &blocks[b];
        at->memory = NAME(task_open)(p, number * p->pack + b, 0, o->lambda, &at->t, &at->w);
#ifdef SINGLE
        if (p->mixed && at->memory) {
            at->exact_memory = EXACT(task_open)(p, number * p->pack + b, 0, o->lambda, &at->exact_t, &at->exact);
            at->t.base = at->exact_t.base = malloc((size_t)(p->composites.n_blocks * p->composites.block * at->t.A * LANES) * sizeof(float));
            at->exact.more = o->more;
            at->exact.zero_sum = o->zero_sum;
        }
        if (p->mixed && (!at->exact_memory || !at->t.base))
            status = SOLVER_NO_MEMORY;
#endif
        if (!at->memory)
            status = SOLVER_NO_MEMORY;
        at->w.more = o->more;
        at->w.zero_sum = o->zero_sum;
        most = at->t.rank > blocks[most].t.rank ? b : most;
    }
    for (b = 0; b < count && status == SOLVER_DONE; b++) {
        lane_block *at = &blocks[b];
        at->t.rank = blocks[most].t.rank;
        at->t.tail = blocks[most].t.tail;
        if (count > 1)  /* lanes that move bring pairs that the others do not have */
            memset(at->w.S, 0, (size_t)(2 * at->t.pairs * at->t.A * (1 + p->D)) * LANES * sizeof *at->w.S);
        coupled = NAME(load_parameters)(p, &at->t, &at->w, theta, 1.0, o->linear);
#ifdef SINGLE
        if (p->mixed) {
            EXACT(load_parameters)(p, &at->exact_t, &at->exact, theta, 1.0, o->linear);
            NAME(start_from_single)(p, at, o, coupled);
            continue;
        }
#endif
        NAME(start_lanes)(p, at, o, coupled);
    }
    if (status == SOLVER_DONE)
        status = NAME(minimise)(p, blocks, count, o, theta, lane_out);
    for (b = 0; b < count && blocks; b++) {
        free(blocks[b].memory);
#ifdef SINGLE
        free(blocks[b].exact_memory);
        free(blocks[b].t.base);
#endif
    }
    free(blocks);
    return status;
}
#endif
