/* Entry points of the kernel for one vector width and precision; pseudo_kernel.h includes this file last.

   For terms see pseudo_problem.h, for names pseudo_kernel.h. All functions return a solver_code.

   Functions called here: open_lane_block sets up t and w and returns their memory; with for_moments = 1 the block
   contains predictors whose moments are counted, which need not be sites. load_parameters sets w.x and w.moment from
   theta; store_parameters writes x or g back to such rows. uncentre_fields writes w.h, the fields, and `shift`, whether
   exp of logits could overflow. pass_over_rows leaves the sums of log normalisers in w.sums (V,). start_lanes, or
   start_mixed, evaluates the initial point of a lane block; minimise takes the steps. In mixed precision exact_t and
   exact are t and w of the block in double precision, and anchor_prob contains the probabilities of all rows at an
   anchor. */

/* Write the objectives value_out (n_sites,) and gradients gradient_out (D_s, 1 + D) of lane block `block` at theta. The
   objective contains lambda/2 |J|^2 + lambdah/2 |h|^2, with zero_sum for parameters minus their means over levels;
   column_penalty (D,), or NULL, is added to lambda for the couplings with each column; <theta, linear>, with linear
   (D_s, 1 + D) or NULL, is subtracted. */
TARGET static int NAME(evaluate_objective)(const pseudo_problem *p, ptrdiff_t block, const double *theta, double lambda,
                                           double lambdah, int zero_sum, const double *column_penalty,
                                           const double *linear, double *value_out, double *gradient_out)
{
    pseudo_block t;
    evaluation result;
    lane_memory w;
    REAL *memory = NAME(open_lane_block)(p, block, /* for_moments */ 0, lambda, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    w.column_penalty = column_penalty;
    w.zero_sum = zero_sum;
    NAME(load_parameters)(p, &t, &w, theta, 1.0, linear);
    NAME(evaluate)(p, &t, &w, w.x, /* d */ NULL, /* coupled */ 1, (REAL)lambda, (REAL)lambdah, w.g, &result);
    NAME(store_parameters)(p, &t, &w, w.g, /* are_parameters */ 0, gradient_out);
    for (int v = 0; v < LANES; v++)
        if (t.site[v] >= 0)
            value_out[t.site[v]] = result.f[v];
    free(memory);
    return SOLVER_DONE;
}

/* Add the log normalisers of the sites of lane block `block`, means over the rows, to *sum_out, at theta with its
   couplings multiplied by `factor` */
TARGET static int NAME(add_normalisers)(const pseudo_problem *p, ptrdiff_t block, const double *theta, double factor,
                                        double *sum_out)
{
    pseudo_block t;
    lane_memory w;
    int v, shift;
    REAL *memory = NAME(open_lane_block)(p, block, /* for_moments */ 0, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    NAME(load_parameters)(p, &t, &w, theta, factor, NULL);
    NAME(uncentre_fields)(p, &t, w.x, w.h, &shift);
    NAME(pass_over_rows)(p, &t, w.x, w.h, shift, w.chunk_tables, w.planes, w.state_table, w.sums, /* g */ NULL);
    for (v = 0; v < LANES; v++)
        if (t.site[v] >= 0)
            *sum_out += w.sums[v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

/* Write the weighted shares of pairs of columns, the first of a predictor in lane block `block`, the second of any
   predictor, to p->moments.second (D_counted, D), with a row for each column of a predictor whose moments are counted.
   The planes contain weighted indicators of the levels of the block's predictors instead of probabilities; their sums
   over the rows in which a column is 1, which sum_rows_to_columns adds to w.g, are the pair counts. columns (m, n) are
   the level codes. */
TARGET static int NAME(count_moments)(pseudo_problem *p, ptrdiff_t block, pseudo_columns columns)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t block_stride = (composites->block_rows + 1) * LANES;
    pseudo_block t;
    lane_memory w;
    ptrdiff_t v, a, c, k, b, end;  /* the planes of row blocks b ... end - 1 are in memory at once */
    REAL *memory = NAME(open_lane_block)(p, block, /* for_moments */ 1, 0.0, &t, &w);
    if (!memory)
        return SOLVER_NO_MEMORY;
    memset(w.g, 0, (size_t)(t.A * (1 + p->D)) * LANES * sizeof *w.g);
    for (b = 0; b < composites->n_blocks; b = end) {
        end = pseudo_min(b + t.plane_blocks, composites->n_blocks);
        memset(w.planes, 0, (size_t)(t.A * t.plane_blocks * block_stride) * sizeof *w.planes);
        for (v = 0; v < LANES; v++)
            for (k = b * composites->block_rows;
                 t.site[v] >= 0 && k < pseudo_min(end * composites->block_rows, p->rows.n); k++) {
                const ptrdiff_t code = pseudo_read_code(columns, t.site[v] * p->rows.n + k);
                const ptrdiff_t row = k - b * composites->block_rows;  /* relative to the first of these blocks */
                if (code)
                    /* plane of the level, row block, row in it, lane */
                    w.planes[((code - 1) * t.plane_blocks + row / composites->block_rows) * block_stride
                             + (row % composites->block_rows) * LANES + v] =
                        p->rows.equal_weights ? 1 : (REAL)p->rows.weights[k];  /* equal weights are in rows.scale */
            }
        NAME(sum_rows_to_columns)(p, &t, b, end, w.planes, w.chunk_tables, w.state_table, w.g);
    }
    for (v = 0; v < LANES; v++)
        for (a = 0; t.site[v] >= 0 && a < p->n_levels[t.site[v]] - 1; a++)
            for (c = 0; c < p->D; c++)
                p->moments.second[(p->first_column[t.site[v]] + a) * p->D + c] =
                    w.g[(a * (1 + p->D) + 1 + c) * LANES + v] * p->rows.scale;
    free(memory);
    return SOLVER_DONE;
}

#ifndef ANCHOR
/* Minimise the objectives of the sites of task `task`, that is, of up to blocks_per_task lane blocks, from theta, in
   place; write their results to lane_out (n_sites,) */
TARGET static int NAME(solve)(const pseudo_problem *p, ptrdiff_t task, const pseudo_options *o, double *theta,
                              pseudo_lane *lane_out)
{
    const int n_blocks = (int)pseudo_min(p->blocks_per_task, p->n_lane_blocks - task * p->blocks_per_task);
    lane_block *blocks = calloc((size_t)n_blocks, sizeof *blocks);
    /* coupled: not all couplings of theta are 0; top: the block with the largest rank (eigenvectors used by the
       metric) */
    int b, coupled, top = 0, status = blocks ? SOLVER_DONE : SOLVER_NO_MEMORY;
    for (b = 0; b < n_blocks && status == SOLVER_DONE; b++) {
        lane_block *block = &blocks[b];
        block->memory = NAME(open_lane_block)(p, task * p->blocks_per_task + b, /* for_moments */ 0, o->lambda,
                                               &block->t, &block->w);
#ifdef SINGLE
        if (p->mixed && block->memory) {
            block->exact_memory = EXACT(open_lane_block)(p, task * p->blocks_per_task + b, /* for_moments */ 0,
                                                         o->lambda, &block->exact_t, &block->exact);
            block->t.anchor_prob = block->exact_t.anchor_prob = malloc(
                (size_t)(p->composites.n_blocks * p->composites.block_rows * block->t.A * LANES) * sizeof(float));
            block->exact.column_penalty = o->column_penalty;
            block->exact.zero_sum = o->zero_sum;
        }
        if (p->mixed && (!block->exact_memory || !block->t.anchor_prob))
            status = SOLVER_NO_MEMORY;
#endif
        if (!block->memory)
            status = SOLVER_NO_MEMORY;
        block->w.column_penalty = o->column_penalty;
        block->w.zero_sum = o->zero_sum;
        top = block->t.rank > blocks[top].t.rank ? b : top;
    }
    for (b = 0; b < n_blocks && status == SOLVER_DONE; b++) {
        lane_block *block = &blocks[b];
        block->t.rank = blocks[top].t.rank;  /* the same for all, since they share one pass of the metric */
        block->t.tail_eigenvalue = blocks[top].t.tail_eigenvalue;  /* of the eigenvectors beyond `rank` */
        if (n_blocks > 1) {  /* a lane added by move_lane may have more pairs than this block has stored */
            const size_t size = (size_t)(block->t.max_pairs * block->t.A * (1 + p->D)) * LANES;
            memset(block->w.S, 0, size * sizeof *block->w.S);
            memset(block->w.Y, 0, size * sizeof *block->w.Y);
        }
        coupled = NAME(load_parameters)(p, &block->t, &block->w, theta, 1.0, o->linear);
#ifdef SINGLE
        if (p->mixed) {
            EXACT(load_parameters)(p, &block->exact_t, &block->exact, theta, 1.0, o->linear);
            NAME(start_mixed)(p, block, o, coupled);
            continue;
        }
#endif
        NAME(start_lanes)(p, block, o, coupled);
    }
    if (status == SOLVER_DONE)
        status = NAME(minimise)(p, blocks, n_blocks, o, theta, lane_out);
    for (b = 0; b < n_blocks && blocks; b++) {
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
