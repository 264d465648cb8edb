/* Passes over the rows for one lane block; pseudo_kernel.h includes this file after pseudo_logits.h.

   A *lane block* is V = LANES sites (predictors whose conditional distribution given the others is fitted), one in each
   lane of a vector: p the problem, t the block's sites and sizes. `vec` is a vector of V numbers REAL, NAME(f) the
   function f for this vector width and precision. Predictor j has the columns first_column[j] ... first_column[j + 1]
   - 1, indicators of its non-reference levels, D in all. A *composite* is a run of neighbouring predictors coded as one
   joint variable; its *joint state* is a number for their levels, 0 if all are at the reference level. A *chunk* is a
   run of composites whose tables fit the first-level cache together, a *row block* a run of block_rows rows.

   Shapes, lane last: planes (A, plane_blocks, block_rows + 1, V), one number for each logit, row and lane of the row
   blocks begin ... end - 1, the last row of each block always zero; parameters x and gradients g (A, 1 + D, V), column
   0 the field; fields h (A, V); tables (states, V). Offsets and strides count numbers.

   The rows of a row block were sorted by joint state, so that sum_rows_by_state keeps a state's sum in a register.
   Wide problems have few rows to a state and use sum_rows_by_subsets instead, unless most joint states are 0. */

#ifdef ANCHOR           /* vectors that are summed at once, so that additions need not wait for each other: */
#define SUMS 4          /* here a vector takes two registers */
#else
#define SUMS 8
#endif

/* Write the tables (states of the chunk, V) of summed couplings for chunk `chunk` from x (1 + D, V), one logit */
TARGET static void NAME(build_chunk_tables)(const pseudo_problem *p, ptrdiff_t chunk, const REAL *x, REAL *tables)
{
    const pseudo_composites *composites = &p->composites;
    ptrdiff_t c, j, b, s, n_states;  /* s < n_states: joint states of the predictors before j */
    for (c = composites->first_composite[chunk]; c < composites->first_composite[chunk + 1]; c++) {
        REAL *t = tables + (composites->first_state[c]
                            - composites->first_state[composites->first_composite[chunk]]) * LANES;
        vec_store(t, vec_fill(0.0));
        j = composites->first_predictor[c];
        for (n_states = 1; j < composites->first_predictor[c + 1]; n_states *= p->n_levels[j++])
            for (b = 1; b < p->n_levels[j]; b++) {
                const vec J = vec_load(x + (p->first_column[j] + b) * LANES);
                for (s = 0; s < n_states; s++)
                    vec_store(t + (b * n_states + s) * LANES, vec_load(t + s * LANES) + J);
            }
    }
}

/* add_table_entriesQ: add the table entries of `rows` rows (rounded up to R) to the planes of Q logits, which are
   plane_stride apart; the tables of the logits are table_stride apart. codes (rows, width) are offsets into the tables.
   With init (Q, V) the planes are overwritten, starting from init. */
#define ADD_TABLE_ENTRIES(Q, R)                                                                                        \
    TARGET static void NAME(add_table_entries##Q)(const REAL *table, ptrdiff_t table_stride, const uint16_t *codes,    \
                                                  ptrdiff_t width, ptrdiff_t rows, const REAL *init, REAL *plane,      \
                                                  ptrdiff_t plane_stride)                                              \
    {                                                                                                                  \
        ptrdiff_t r, c, q, u, e;                                                                                       \
        for (r = 0; r < rows; r += R, codes += R * width, plane += R * LANES) {                                        \
            vec s[R][Q];                                                                                               \
            for (q = 0; q < Q; q++)                                                                                    \
                for (u = 0; u < R; u++)                                                                                \
                    s[u][q] = vec_load(init ? init + q * LANES : plane + q * plane_stride + u * LANES);                \
            for (c = 0; c + 4 <= width; c += 4)                                                                        \
                for (u = 0; u < R; u++) {  /* one load brings four offsets: loads are what limits the loop */          \
                    uint64_t word;                                                                                     \
                    memcpy(&word, codes + u * width + c, 8);                                                           \
                    for (e = 0; e < 4; e++, word >>= 16)                                                               \
                        for (q = 0; q < Q; q++)                                                                        \
                            s[u][q] += vec_load(table + (uint16_t)word + q * table_stride);                            \
                }                                                                                                      \
            for (; c < width; c++)                                                                                     \
                _Pragma("GCC unroll 8") for (u = 0; u < R; u++)                                                        \
                    for (q = 0; q < Q; q++)                                                                            \
                        s[u][q] += vec_load(table + codes[u * width + c] + q * table_stride);                          \
            for (q = 0; q < Q; q++)                                                                                    \
                for (u = 0; u < R; u++)                                                                                \
                    vec_store(plane + q * plane_stride + u * LANES, s[u][q]);                                          \
        }                                                                                                              \
    }
ADD_TABLE_ENTRIES(1, SUMS)
ADD_TABLE_ENTRIES(2, 4)
ADD_TABLE_ENTRIES(3, 4)
#undef ADD_TABLE_ENTRIES

/* Write logits to the planes of row blocks begin ... end - 1: fields h plus summed couplings of x */
TARGET static void NAME(compute_logits)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin, ptrdiff_t end,
                                        const REAL *x, const REAL *h, REAL *tables, REAL *planes)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t logit_stride = (1 + p->D) * LANES, block_stride = (composites->block_rows + 1) * LANES;
    const ptrdiff_t plane_stride = t->plane_blocks * block_stride;
    ptrdiff_t a, Q, q, chunk, b;  /* Q logits are computed at once: a ... a + Q - 1 */
    for (a = 0; a < t->A; a += Q) {
        int initialised = 0;  /* whether the planes hold the fields; the last chunk adds them at the latest */
        Q = t->A - a == 4 ? 2 : t->A - a < PSEUDO_LOGITS_AT_ONCE ? t->A - a : PSEUDO_LOGITS_AT_ONCE;
        for (chunk = 0; chunk < composites->n_chunks; chunk++) {
            const ptrdiff_t *first = composites->first_composite, width = first[chunk + 1] - first[chunk];
            const ptrdiff_t table_stride =
                (composites->first_state[first[chunk + 1]] - composites->first_state[first[chunk]]) * LANES;
            if (!t->needs_chunk[chunk] && !(chunk == composites->n_chunks - 1 && !initialised))
                continue;
            for (q = 0; q < Q; q++)
                NAME(build_chunk_tables)(p, chunk, x + (a + q) * logit_stride, tables + q * table_stride);
            for (b = begin; b < end; b++) {
                const uint16_t *codes = composites->codes + composites->n_padded * composites->first_composite[chunk]
                    + b * composites->block_rows * width;
                const ptrdiff_t rows = pseudo_block_size(p, b);
                const REAL *init = initialised ? NULL : h + a * LANES;
                REAL *plane = planes + a * plane_stride + (b - begin) * block_stride;
                if (Q == 1)
                    NAME(add_table_entries1)(tables, table_stride, codes, width, rows, init, plane, plane_stride);
                else if (Q == 2)
                    NAME(add_table_entries2)(tables, table_stride, codes, width, rows, init, plane, plane_stride);
                else
                    NAME(add_table_entries3)(tables, table_stride, codes, width, rows, init, plane, plane_stride);
            }
            initialised = 1;
        }
    }
}

/* Replace the logits of row blocks begin ... end - 1 by probabilities times row weights, in place, and add to sums
   (2 + A, V): log normalisers, curvature sum_a p_a (1 - p_a), then p_a of each logit. `sums` has room for three such
   arrays: the totals, the sums over the current SUMMED rows, and the rounding errors of the totals (Kahan summation),
   without which single precision would lose digits over many rows. In single precision with t->anchor_prob, logits and
   probabilities are changes since the anchor; in double precision anchor_prob, if any, is written. */
TARGET static void NAME(logits_to_probabilities)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin,
                                                 ptrdiff_t end, int shift, REAL *planes, REAL *sums)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t block_stride = (composites->block_rows + 1) * LANES;
    const ptrdiff_t plane_stride = t->plane_blocks * block_stride, size = (2 + t->A) * LANES;
    REAL *piece_sums = sums + size, *rounding = piece_sums + size;
    ptrdiff_t b, k, r, piece_rows;
    for (b = begin; b < end; b++, planes += block_stride) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        const ptrdiff_t prob_stride = composites->block_rows * LANES;
        const double *weights = p->rows.equal_weights ? NULL : p->rows.weights + b * composites->block_rows;
        float *anchor_prob = t->anchor_prob ? t->anchor_prob + b * t->A * prob_stride : NULL;
        for (r = 0; r < rows; r += piece_rows) {
            const double *w = weights ? weights + r : NULL;
            REAL *row = planes + r * LANES;
            piece_rows = pseudo_min(SUMMED, rows - r);
#ifdef SINGLE
            if (anchor_prob)
                NAME(change_rows)(row, t->A, plane_stride, anchor_prob + r * LANES, prob_stride, w, piece_rows,
                                  piece_sums);
            else
#endif
            if (t->A == 1)
                NAME(logistic_rows)(row, w, piece_rows, shift, piece_sums);
            else
                NAME(softmax_rows)(row, t->A, plane_stride, t->has_level, w, piece_rows, shift, piece_sums);
            for (k = 0; k < size; k += LANES) {
                const vec sum = vec_load(sums + k), increment = vec_load(piece_sums + k) - vec_load(rounding + k);
                const vec total = sum + increment;
                vec_store(rounding + k, (total - sum) - increment);
                vec_store(sums + k, total);
            }
        }
#ifndef SINGLE
        for (k = 0; anchor_prob && k < t->A; k++)
            NAME(store_anchor_prob)(planes + k * plane_stride, weights, rows, anchor_prob + k * prob_stride);
#endif
    }
}

/* state_table (joint states of all composites, V) += sums over the rows of one plane by joint state, for the composites
   in needs_composite. pseudo_sort_rows describes the list that `entry` runs along. */
TARGET static void NAME(sum_rows_by_state)(const pseudo_problem *p, const uint8_t *needs_composite, ptrdiff_t begin,
                                           ptrdiff_t end, const REAL *plane, REAL *state_table)
{
    const pseudo_composites *composites = &p->composites;
    for (ptrdiff_t b = begin; b < end; b++, plane += (composites->block_rows + 1) * LANES)
        for (ptrdiff_t c = 0; c < composites->n_composites; c++) {
            const uint16_t *entry =
                composites->sorted_rows + composites->sorted_start[b * composites->n_composites + c];
            REAL *t = state_table + composites->first_state[c] * LANES;
            while (needs_composite[c] && *entry) {
                const ptrdiff_t n_fours = *entry++;
                for (ptrdiff_t k = *entry++; k > 0; k--) {
                    REAL *sum = t + *entry++;
                    vec v0 = vec_load(sum), v1 = vec_fill(0.0), v2 = v1, v3 = v1;
                    for (ptrdiff_t g = 0; g < n_fours; g++, entry += 4) {
                        uint64_t word;  /* one load brings four offsets: loads are what limits the loop */
                        memcpy(&word, entry, 8);
                        v0 += vec_load(plane + (uint16_t)word);
                        v1 += vec_load(plane + (uint16_t)(word >> 16));
                        v2 += vec_load(plane + (uint16_t)(word >> 32));
                        v3 += vec_load(plane + (uint16_t)(word >> 48));
                    }
                    vec_store(sum, (v0 + v1) + (v2 + v3));
                }
            }
        }
}

/* g (1 + D, V) columns 1 ... D += sums of the state table over the joint states in which the column's level occurs;
   the state table is overwritten */
TARGET static void NAME(sum_states_to_columns)(const pseudo_problem *p, const uint8_t *needs_composite,
                                               REAL *state_table, REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    ptrdiff_t c, j, b, s, n_states;
    for (c = 0; c < composites->n_composites; c++) {
        REAL *t = state_table + composites->first_state[c] * LANES;
        n_states = composites->first_state[c + 1] - composites->first_state[c];
        j = composites->first_predictor[c + 1] - 1;
        for (; j >= composites->first_predictor[c] && needs_composite[c]; j--) {
            n_states /= p->n_levels[j];  /* joint states of the predictors before j, over which j's levels are summed */
            for (b = 1; b < p->n_levels[j]; b++) {
                REAL *column = g + (p->first_column[j] + b) * LANES;
                vec sum = vec_load(column);
                for (s = 0; s < n_states; s++) {
                    const vec v = vec_load(t + (b * n_states + s) * LANES);
                    sum += v;
                    vec_store(t + s * LANES, vec_load(t + s * LANES) + v);
                }
                vec_store(column, sum);
            }
        }
    }
}

/* sums (D, V) += for each column the sum of one entry of each of `count` tables, a multiple of four; codes (D, width)
   are the entries' offsets */
TARGET static void NAME(add_subset_sums)(const REAL *tables, const uint16_t *codes, ptrdiff_t width, ptrdiff_t count,
                                         ptrdiff_t D, REAL *sums)
{
    for (ptrdiff_t c = 0; c < D; c += SUMS, codes += SUMS * width, sums += SUMS * LANES) {
        vec s[SUMS];
        for (ptrdiff_t u = 0; u < SUMS; u++)
            s[u] = vec_fill(0.0);  /* these tables are summed by themselves first, to lose fewer digits */
        for (ptrdiff_t k = 0; k < count; k += 4)
            for (ptrdiff_t u = 0; u < SUMS; u++) {
                uint64_t word;
                memcpy(&word, codes + u * width + k, 8);
                for (ptrdiff_t e = 0; e < 4; e++, word >>= 16)
                    s[u] += vec_load(tables + (uint16_t)word);
            }
        _Pragma("GCC unroll 8") for (ptrdiff_t u = 0; u < SUMS; u++)
            if (c + u < D)
                vec_store(sums + u * LANES, vec_load(sums + u * LANES) + s[u]);
    }
}

/* g (1 + D, V) columns 1 ... D += sums over the rows of one plane. A subset table (2^PSEUDO_SUBSET_ROWS, V) has the
   sums over all subsets of PSEUDO_SUBSET_ROWS rows; a column then costs one load and addition per table. */
TARGET static void NAME(sum_rows_by_subsets)(const pseudo_problem *p, ptrdiff_t begin, ptrdiff_t end, const REAL *plane,
                                             REAL *tables, REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t table_stride = LANES << PSEUDO_SUBSET_ROWS;
    /* tables that the first-level cache holds: an anchor has larger numbers than the kernel that the codes are for */
    const ptrdiff_t tables_in_cache = sizeof *tables > p->number_bytes ? 4 : composites->tables_at_once;
    ptrdiff_t b, k, u, s, first, width, group;  /* codes are stored for `width` tables from `first` on */
    for (b = begin; b < end; b++, plane += (composites->block_rows + 1) * LANES) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        const ptrdiff_t n_tables = pseudo_n_subset_tables(rows);
        const uint16_t *codes =
            composites->subset_codes + b * (composites->block_rows / PSEUDO_SUBSET_ROWS) * p->metric.D_padded;
        for (first = 0; first < n_tables; first += width, codes += width * p->metric.D_padded) {
            width = pseudo_min(composites->tables_at_once, n_tables - first);
            for (group = 0; group < width; group += tables_in_cache) {
                const ptrdiff_t count = pseudo_min(tables_in_cache, width - group);
                for (k = group; k < group + count; k++) {
                    const ptrdiff_t rows_left = rows - (first + k) * PSEUDO_SUBSET_ROWS;
                    const REAL *row = plane + (first + k) * PSEUDO_SUBSET_ROWS * LANES;
                    REAL *t = tables + k * table_stride;
                    vec_store(t, vec_fill(0.0));
                    for (u = 0; u < pseudo_min(PSEUDO_SUBSET_ROWS, rows_left); u++) {
                        const vec v = vec_load(row + u * LANES);
                        for (s = 0; s < (ptrdiff_t)1 << u; s++)
                            vec_store(t + (((ptrdiff_t)1 << u) + s) * LANES, vec_load(t + s * LANES) + v);
                    }
                }
                NAME(add_subset_sums)(tables, codes + group, width, count, p->D, g + LANES);
            }
        }
    }
}

/* g (A, 1 + D, V) columns 1 ... D += sums over the rows of the planes of row blocks begin ... end - 1 */
TARGET static void NAME(sum_rows_to_columns)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin,
                                             ptrdiff_t end, const REAL *planes, REAL *tables, REAL *state_table,
                                             REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t plane_stride = t->plane_blocks * (composites->block_rows + 1) * LANES;
    for (ptrdiff_t a = 0; a < t->A; a++, planes += plane_stride, g += (1 + p->D) * LANES) {
        if (composites->subset_codes) {
            NAME(sum_rows_by_subsets)(p, begin, end, planes, tables, g);
            continue;
        }
        memset(state_table, 0, (size_t)composites->first_state[composites->n_composites] * LANES * sizeof *state_table);
        NAME(sum_rows_by_state)(p, t->needs_composite, begin, end, planes, state_table);
        NAME(sum_states_to_columns)(p, t->needs_composite, state_table, g);
    }
}

/* Write sums (2 + A, V) over all rows, see logits_to_probabilities, and, unless g is NULL, g (A, 1 + D, V): weighted
   sums of p_a (column 0) and of p_a times each column */
TARGET static void NAME(pass_over_rows)(const pseudo_problem *p, const pseudo_block *t, const REAL *x, const REAL *h,
                                        int shift, REAL *tables, REAL *planes, REAL *state_table, REAL *sums, REAL *g)
{
    ptrdiff_t b, end, a;
    memset(sums, 0, (size_t)(3 * (2 + t->A)) * LANES * sizeof *sums);
    if (g)
        memset(g, 0, (size_t)(t->A * (1 + p->D)) * LANES * sizeof *g);
    for (b = 0; b < p->composites.n_blocks; b = end) {
        end = pseudo_min(b + t->plane_blocks, p->composites.n_blocks);
        NAME(compute_logits)(p, t, b, end, x, h, tables, planes);
        NAME(logits_to_probabilities)(p, t, b, end, shift, planes, sums);
        if (g)
            NAME(sum_rows_to_columns)(p, t, b, end, planes, tables, state_table, g);
    }
    for (a = 0; a < t->A && g; a++)
        vec_store(g + a * (1 + p->D) * LANES, vec_load(sums + (2 + a) * LANES));
}

/* Write sums and g as pass_over_rows does, for zero couplings: in closed form, without reading rows */
TARGET static void NAME(pass_without_couplings)(const pseudo_problem *p, const pseudo_block *t, const REAL *h,
                                                REAL *sums, REAL *g)
{
    const ptrdiff_t logit_stride = (1 + p->D) * LANES;
    const REAL *has_level = t->has_level, rows = (REAL)(1.0 / p->rows.scale);
    vec top = vec_fill(0.0), z, curve = vec_fill(0.0);
    for (ptrdiff_t a = 0; a < t->A; a++)
        top = NAME(larger)(vec_load(h + a * LANES), top);
    z = NAME(exp)(-top);
    for (ptrdiff_t a = 0; a < t->A; a++)
        z += NAME(exp)(vec_load(h + a * LANES) - top) * vec_load(has_level + a * LANES);
    for (ptrdiff_t a = 0; a < t->A; a++) {
        const vec prob = NAME(exp)(vec_load(h + a * LANES) - top) * vec_load(has_level + a * LANES) / z;
        curve += prob - prob * prob;
        vec_store(sums + (2 + a) * LANES, prob * rows);
        vec_store(g + a * logit_stride, prob * rows);
        for (ptrdiff_t c = 1; c <= p->D; c++)
            vec_store(g + a * logit_stride + c * LANES, prob * (rows * (REAL)p->moments.mean[c]));
    }
    vec_store(sums, (top + NAME(log)(z)) * rows);
    vec_store(sums + LANES, curve * rows);
#ifndef SINGLE
    for (ptrdiff_t k = 0; t->anchor_prob && k < p->composites.n_blocks * t->A * p->composites.block_rows; k++)
        NAME(storef)(t->anchor_prob + k * LANES,
                     NAME(compress)(vec_load(g + k / p->composites.block_rows % t->A * logit_stride) / vec_fill(rows)));
#endif
}
