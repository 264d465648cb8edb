/* Entry points of the kernel for one vector width and precision: objective, normaliser, moments, solve.

   Conventions: as in pseudo.h; `number` is a lane block or, for `solve`, a pack of lane blocks. Each returns a
   solver_code. */

/* Objectives (at the sites) and gradients (D, 1 + D) of the sites of one lane block */
TARGET static int NAME(objective)(const pseudo_problem *p, ptrdiff_t number, const double *theta, double lambda,
                                  double lambdah, int zero_sum, const double *more, const double *linear,
                                  double *value_out, double *gradient_out)
{
    pseudo_block t;
    evaluation at;
    lane_memory w;
    int v;
    REAL *memory = NAME(open_lane_block)(p, number, 0, lambda, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    w.column_penalty = more;
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
    pseudo_block t;
    lane_memory w;
    int v, shift;
    REAL *memory = NAME(open_lane_block)(p, number, 0, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    NAME(load_parameters)(p, &t, &w, theta, factor, NULL);
    NAME(uncentre_fields)(p, &t, w.x, w.h, &shift);
    NAME(pass_over_rows)(p, &t, w.x, w.h, shift, w.chunk_tables, w.planes, w.state_table, w.sums, NULL);
    for (v = 0; v < LANES; v++)
        if (t.site[v] >= 0)
            *sum_out += w.sums[v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

/* Second moments of the columns of one lane block with all others, into p->moments.second */
TARGET static int NAME(moments)(pseudo_problem *p, ptrdiff_t number, pseudo_columns columns)
{
    const ptrdiff_t stride = (p->composites.block_rows + 1) * LANES;
    pseudo_block t;
    lane_memory w;
    ptrdiff_t v, a, c, k, b, end;
    REAL *memory = NAME(open_lane_block)(p, number, 1, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    memset(w.g, 0, (size_t)(t.A * (1 + p->D)) * LANES * sizeof *w.g);
    for (b = 0; b < p->composites.n_blocks; b = end) {
        end = pseudo_min(b + t.plane_blocks, p->composites.n_blocks);
        memset(w.planes, 0, (size_t)(t.A * t.plane_blocks * stride) * sizeof *w.planes);
        for (v = 0; v < LANES; v++)
            for (k = b * p->composites.block_rows; t.site[v] >= 0 && k < pseudo_min(end * p->composites.block_rows, p->rows.n); k++) {
                const ptrdiff_t code = pseudo_read_code(columns, t.site[v] * p->rows.n + k), row = k - b * p->composites.block_rows;
                if (code)
                    w.planes[((code - 1) * t.plane_blocks + row / p->composites.block_rows) * stride + (row % p->composites.block_rows) * LANES + v] =
                        p->rows.equal_weights ? 1 : (REAL)p->rows.weights[k];
            }
        NAME(sum_rows_to_columns)(p, &t, b, end, w.planes, w.chunk_tables, w.state_table, w.g);
    }
    for (v = 0; v < LANES; v++)
        for (a = 0; t.site[v] >= 0 && a < p->n_levels[t.site[v]] - 1; a++)
            for (c = 0; c < p->D; c++)
                p->moments.second[(p->first_column[t.site[v]] + a) * p->D + c] = w.g[(a * (1 + p->D) + 1 + c) * LANES + v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

#ifndef ANCHOR
/* Solve the sites of some lane blocks from theta, in place */
TARGET static int NAME(solve)(const pseudo_problem *p, ptrdiff_t number, const pseudo_options *o, double *theta,
                              pseudo_lane *lane_out)
{
    const int count = (int)pseudo_min(p->blocks_per_task, p->n_lane_blocks - number * p->blocks_per_task);
    lane_block *blocks = calloc((size_t)count, sizeof *blocks);
    int b, coupled, most = 0, status = blocks ? SOLVER_DONE : SOLVER_NO_MEMORY;
    for (b = 0; b < count && status == SOLVER_DONE; b++) {
        lane_block *at = &blocks[b];
        at->memory = NAME(open_lane_block)(p, number * p->blocks_per_task + b, 0, o->lambda, &at->t, &at->w);
#ifdef SINGLE
        if (p->mixed && at->memory) {
            at->exact_memory = EXACT(open_lane_block)(p, number * p->blocks_per_task + b, 0, o->lambda, &at->exact_t, &at->exact);
            at->t.anchor_prob = at->exact_t.anchor_prob = malloc((size_t)(p->composites.n_blocks * p->composites.block_rows * at->t.A * LANES) * sizeof(float));
            at->exact.column_penalty = o->column_penalty;
            at->exact.zero_sum = o->zero_sum;
        }
        if (p->mixed && (!at->exact_memory || !at->t.anchor_prob))
            status = SOLVER_NO_MEMORY;
#endif
        if (!at->memory)
            status = SOLVER_NO_MEMORY;
        at->w.column_penalty = o->column_penalty;
        at->w.zero_sum = o->zero_sum;
        most = at->t.rank > blocks[most].t.rank ? b : most;
    }
    for (b = 0; b < count && status == SOLVER_DONE; b++) {
        lane_block *at = &blocks[b];
        at->t.rank = blocks[most].t.rank;
        at->t.tail_eigenvalue = blocks[most].t.tail_eigenvalue;
        if (count > 1)  /* lanes that move bring pairs that the others do not have */
            memset(at->w.S, 0, (size_t)(2 * at->t.max_pairs * at->t.A * (1 + p->D)) * LANES * sizeof *at->w.S);
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
        free(blocks[b].t.anchor_prob);
#endif
    }
    free(blocks);
    return status;
}
#endif
