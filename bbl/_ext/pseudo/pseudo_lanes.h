/* Passes over the rows for one lane block; pseudo_kernel.h includes this file after pseudo_logits.h.

   For terms see pseudo_problem.h, for names pseudo_kernel.h.

   Shapes, lane last: planes (A, plane_blocks, block_rows + 1, V), one number for each logit, row and lane of the row
   blocks begin ... end - 1, where the last row of each block is always zero; parameters x and gradients g (A, 1 + D,
   V), with the field in column 0; fields h (A, V); tables (joint states, V). Offsets and strides count numbers.
   t->needs_composite is 1 for composites, needs_chunk for chunks, that contain a neighbour of one of the block's sites;
   others have no couplings.

   Arrays of p->composites: composite c has the predictors first_predictor[c] ... first_predictor[c + 1] - 1 and the
   joint states first_state[c] ... first_state[c + 1] - 1, numbered over all composites; chunk `chunk` has the
   composites first_composite[chunk] ... first_composite[chunk + 1] - 1. codes contains, for each chunk and each of
   n_padded rows, the offset of each composite's joint state in the chunk's tables. p->rows.scale is 1 / n if all rows
   have equal weights, otherwise 1 / W, where W is the sum of the weights.

   The rows of a row block are grouped by joint state, so that sum_rows_by_state adds many rows to a state's sum at once,
   and the rows of each composite's most frequent state are skipped. Wide problems have few rows per state and use
   sum_rows_by_subsets instead, unless most joint states are skipped. */

/* SUMS: vectors that are summed at once, so that additions need not wait for each other */
#ifdef ANCHOR
#define SUMS 4  /* here a vector takes two registers */
#else
#define SUMS 8
#endif

/* Write the tables (joint states of the chunk `chunk`, V): for each state the sum of the couplings with its levels,
   from x (1 + D, V), the parameters of one logit */
TARGET static void NAME(build_chunk_tables)(const pseudo_problem *p, ptrdiff_t chunk, const REAL *x, REAL *tables)
{
    const pseudo_composites *composites = &p->composites;
    ptrdiff_t c, j, b, s, n_states;  /* level b of predictor j; s < n_states: joint states of the predictors before j */
    for (c = composites->first_composite[chunk]; c < composites->first_composite[chunk + 1]; c++) {
        REAL *table = tables + (composites->first_state[c]
                            - composites->first_state[composites->first_composite[chunk]]) * LANES;
        vec_store(table, vec_fill(0.0));
        j = composites->first_predictor[c];
        for (n_states = 1; j < composites->first_predictor[c + 1]; n_states *= p->n_levels[j++])
            for (b = 1; b < p->n_levels[j]; b++) {  /* level b of j in state s is the state b n_states + s */
                const vec J = vec_load(x + (p->first_column[j] + b) * LANES);
                for (s = 0; s < n_states; s++)
                    vec_store(table + (b * n_states + s) * LANES, vec_load(table + s * LANES) + J);
            }
    }
}

/* add_table_entriesQ: add, in each of `rows` rows (rounded up to a multiple of R, which is unrolled), the entries of
   one chunk's tables to the planes of Q logits, which are plane_stride apart; the tables of the logits are table_stride
   apart. codes (rows, width) are offsets into the tables. If init (Q, V) is given, the planes are overwritten, starting
   from init; if it is NULL, entries are added to them. In the code s[u][q] is the sum of row r + u and logit q, c is a
   composite, and e one of the four offsets of a word. */
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

/* Write the logits of the rows of row blocks begin ... end - 1 to `planes`: the fields h plus the couplings in x with
   the levels of the row; `tables` is scratch for the tables of one chunk, for each of the logits computed at once */
TARGET static void NAME(compute_logits)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin, ptrdiff_t end,
                                        const REAL *x, const REAL *h, REAL *tables, REAL *planes)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t logit_stride = (1 + p->D) * LANES, block_stride = (composites->block_rows + 1) * LANES;
    const ptrdiff_t plane_stride = t->plane_blocks * block_stride;
    ptrdiff_t a, Q, q, chunk, b;  /* Q logits are computed at once: a ... a + Q - 1 */
    for (a = 0; a < t->A; a += Q) {
        int initialised = 0;  /* whether the planes contain the fields */
        /* up to PSEUDO_LOGITS_AT_ONCE; the last four are computed as 2 and 2, not 3 and 1 */
        Q = t->A - a == 4 ? 2 : t->A - a < PSEUDO_LOGITS_AT_ONCE ? t->A - a : PSEUDO_LOGITS_AT_ONCE;
        for (chunk = 0; chunk < composites->n_chunks; chunk++) {
            /* width: number of composites of the chunk, and of codes per row */
            const ptrdiff_t *first = composites->first_composite, width = first[chunk + 1] - first[chunk];
            const ptrdiff_t table_stride =
                (composites->first_state[first[chunk + 1]] - composites->first_state[first[chunk]]) * LANES;
            /* a chunk without neighbours contributes nothing, but the last one must still write the fields */
            if (!t->needs_chunk[chunk] && !(chunk == composites->n_chunks - 1 && !initialised))
                continue;
            for (q = 0; q < Q; q++)
                NAME(build_chunk_tables)(p, chunk, x + (a + q) * logit_stride, tables + q * table_stride);
            for (b = begin; b < end; b++) {
                /* codes of this chunk and row block, (rows, width) */
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

/* Replace the logits in the planes of row blocks begin ... end - 1 by probabilities times row weights, in place, and
   add to sums (2 + A, V): log normalisers, curvature sum_a p_a (1 - p_a), then p_a of each logit. `sums` has space for
   three such arrays: the totals, the sums over a segment of SUM_ROWS rows, and the rounding errors of the totals (Kahan
   summation), without which single precision would lose digits over many rows. In mixed precision, the kernel in double
   precision writes the probabilities at the anchor to t->anchor_prob if it is not NULL; in single precision, logits and
   probabilities are changes since the anchor. For `shift` see pseudo_logits.h. */
TARGET static void NAME(logits_to_probabilities)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin,
                                                 ptrdiff_t end, int shift, REAL *planes, REAL *sums)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t block_stride = (composites->block_rows + 1) * LANES;
    const ptrdiff_t plane_stride = t->plane_blocks * block_stride, size = (2 + t->A) * LANES;
    REAL *piece_sums = sums + size, *rounding = piece_sums + size;
    ptrdiff_t b, k, r, piece_rows;  /* block, number in sums (or logit), first row of the segment, its rows */
    for (b = begin; b < end; b++, planes += block_stride) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        const ptrdiff_t prob_stride = composites->block_rows * LANES;  /* anchor_prob has no additional row of zeros */
        const double *weights = p->rows.equal_weights ? NULL : p->rows.weights + b * composites->block_rows;
        float *anchor_prob = t->anchor_prob ? t->anchor_prob + b * t->A * prob_stride : NULL;
        for (r = 0; r < rows; r += piece_rows) {
            const double *w = weights ? weights + r : NULL;
            REAL *row = planes + r * LANES;
            piece_rows = pseudo_min(SUM_ROWS, rows - r);
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

/* Return the sum of four rows of a plane; the four offsets are at `entry` */
TARGET static inline vec NAME(sum_four_rows)(const REAL *plane, const uint16_t *entry)
{
    uint64_t word;  /* one load brings four offsets: loads are what limits the loop */
    memcpy(&word, entry, 8);
    return (vec_load(plane + (uint16_t)word) + vec_load(plane + (uint16_t)(word >> 16)))
        + (vec_load(plane + (uint16_t)(word >> 32)) + vec_load(plane + (uint16_t)(word >> 48)));
}

/* Add to state_table (joint states of all composites, V), at each joint state of a composite in needs_composite, the
   numbers of one plane (row blocks begin ... end - 1) in the rows with this state, except for skipped states. `entry`
   traverses the list described at pseudo_sort_rows. */
TARGET static void NAME(sum_rows_by_state)(const pseudo_problem *p, const uint8_t *needs_composite, ptrdiff_t begin,
                                           ptrdiff_t end, const REAL *plane, REAL *state_table)
{
    const pseudo_composites *composites = &p->composites;
    for (ptrdiff_t b = begin; b < end; b++, plane += (composites->block_rows + 1) * LANES)
        for (ptrdiff_t c = 0; c < composites->n_composites; c++) {
            const uint16_t *entry =
                composites->sorted_rows + composites->sorted_start[b * composites->n_composites + c];
            REAL *table = state_table + composites->first_state[c] * LANES;
            if (!needs_composite[c])
                continue;
            for (ptrdiff_t n_groups = *entry++; n_groups > 0; n_groups--, entry += 1 + PSEUDO_GROUP_ROWS) {
                vec v[4];
                for (ptrdiff_t u = 0; u < 4; u++)
                    v[u] = vec_fill(0.0);
                for (ptrdiff_t r = 1; r <= PSEUDO_GROUP_ROWS; r += 4) {
                    uint64_t word;  /* as in sum_four_rows */
                    memcpy(&word, entry + r, 8);
                    for (ptrdiff_t u = 0; u < 4; u++, word >>= 16)
                        v[u] += vec_load(plane + (uint16_t)word);
                }
                vec_store(table + *entry, vec_load(table + *entry) + ((v[0] + v[1]) + (v[2] + v[3])));
            }
            for (ptrdiff_t n_groups = *entry++; n_groups > 0; n_groups--, entry += 5)
                vec_store(table + *entry, vec_load(table + *entry) + NAME(sum_four_rows)(plane, entry + 1));
        }
}

/* Write to state_table (joint states of all composites, V), at the skipped state of each composite in needs_composite
   unless it is state 0, which is not needed, the sum of one plane (row blocks begin ... end - 1) over its rows: the sum
   over all rows minus the sums at all other states. In comparison with adding its rows, this rounds at the size of
   the sum over all rows, as the mean of all probabilities does. */
TARGET static void NAME(sum_skipped_states)(const pseudo_problem *p, const uint8_t *needs_composite, ptrdiff_t begin,
                                            ptrdiff_t end, const REAL *plane, REAL *state_table)
{
    const pseudo_composites *composites = &p->composites;
    vec total = vec_fill(0.0);
    int any = 0;
    for (ptrdiff_t c = 0; c < composites->n_composites; c++)
        any |= needs_composite[c] && composites->skipped_state[c];
    for (ptrdiff_t b = begin; b < end && any; b++, plane += (composites->block_rows + 1) * LANES) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        vec v[4];
        for (ptrdiff_t u = 0; u < 4; u++)
            v[u] = vec_fill(0.0);
        for (ptrdiff_t r = 0; r < rows / 4 * 4; r += 4)
            for (ptrdiff_t u = 0; u < 4; u++)
                v[u] += vec_load(plane + (r + u) * LANES);
        for (ptrdiff_t r = rows / 4 * 4; r < rows; r++)
            v[0] += vec_load(plane + r * LANES);
        total += (v[0] + v[1]) + (v[2] + v[3]);
    }
    for (ptrdiff_t c = 0; c < composites->n_composites; c++) {
        REAL *table = state_table + composites->first_state[c] * LANES;
        const ptrdiff_t n_states = composites->first_state[c + 1] - composites->first_state[c];
        vec others = vec_fill(0.0), others2 = others;
        if (!needs_composite[c] || !composites->skipped_state[c])
            continue;
        for (ptrdiff_t s = 0; s < n_states / 2 * 2; s += 2) {  /* the skipped state's sum is still 0 */
            others += vec_load(table + s * LANES);
            others2 += vec_load(table + (s + 1) * LANES);
        }
        if (n_states % 2)
            others += vec_load(table + (n_states - 1) * LANES);
        vec_store(table + composites->skipped_state[c] * LANES, total - (others + others2));
    }
}

/* Add to entry 1 + c of g (1 + D, V), for each column c of a composite in needs_composite, the numbers of state_table
   (joint states, V) at the states in which the column's level occurs. The state table is overwritten: the predictors of
   a composite are processed from the last to the first, and each is summed over its levels once its columns are
   complete. */
TARGET static void NAME(sum_states_to_columns)(const pseudo_problem *p, const uint8_t *needs_composite,
                                               REAL *state_table, REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    ptrdiff_t c, j, b, s, n_states;  /* level b of predictor j, joint state s of the predictors before j */
    for (c = 0; c < composites->n_composites; c++) {
        REAL *table = state_table + composites->first_state[c] * LANES;
        n_states = composites->first_state[c + 1] - composites->first_state[c];
        j = composites->first_predictor[c + 1] - 1;
        for (; j >= composites->first_predictor[c] && needs_composite[c]; j--) {
            n_states /= p->n_levels[j];  /* states of the predictors before j, after summing over the levels of j */
            for (b = 1; b < p->n_levels[j]; b++) {
                REAL *column = g + (p->first_column[j] + b) * LANES;
                vec sum = vec_load(column);
                for (s = 0; s < n_states; s++) {
                    const vec v = vec_load(table + (b * n_states + s) * LANES);
                    sum += v;
                    vec_store(table + s * LANES, vec_load(table + s * LANES) + v);
                }
                vec_store(column, sum);
            }
        }
    }
}

/* Add to sums (D, V), for each column, one entry of each of n_tables subset tables (a multiple of four), at the offsets
   codes (D, width); only the first n_tables of each column are used */
TARGET static void NAME(add_subset_sums)(const REAL *tables, const uint16_t *codes, ptrdiff_t width,
                                         ptrdiff_t n_tables, ptrdiff_t D, REAL *sums)
{
    for (ptrdiff_t c = 0; c < D; c += SUMS, codes += SUMS * width, sums += SUMS * LANES) {
        vec s[SUMS];  /* for columns c + u; codes are padded, so that u may exceed D */
        for (ptrdiff_t u = 0; u < SUMS; u++)
            s[u] = vec_fill(0.0);  /* these tables are summed separately first, to lose fewer digits */
        for (ptrdiff_t k = 0; k < n_tables; k += 4)
            for (ptrdiff_t u = 0; u < SUMS; u++) {
                uint64_t word;  /* four offsets */
                memcpy(&word, codes + u * width + k, 8);
                for (ptrdiff_t e = 0; e < 4; e++, word >>= 16)
                    s[u] += vec_load(tables + (uint16_t)word);
            }
        _Pragma("GCC unroll 8") for (ptrdiff_t u = 0; u < SUMS; u++)
            if (c + u < D)
                vec_store(sums + u * LANES, vec_load(sums + u * LANES) + s[u]);
    }
}

/* Add to entry 1 + c of g (1 + D, V), for each column c, the numbers of one plane (row blocks begin ... end - 1) in the
   rows where the column is 1. A *subset table* (2^PSEUDO_SUBSET_ROWS, V) contains the sums over all subsets of
   PSEUDO_SUBSET_ROWS rows, so that a column costs one load and addition per table. `tables` is scratch for them; the
   offsets are written by pseudo_encode_subsets. */
TARGET static void NAME(sum_rows_by_subsets)(const pseudo_problem *p, ptrdiff_t begin, ptrdiff_t end, const REAL *plane,
                                             REAL *tables, REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t table_stride = LANES << PSEUDO_SUBSET_ROWS;
    /* tables that fit into the L1 cache; 4 for an anchor, whose numbers are larger than those assumed for
       tables_at_once, a multiple of 4 */
    const ptrdiff_t tables_in_cache = sizeof *tables > p->number_bytes ? 4 : composites->tables_at_once;
    /* codes are stored for `width` tables at a time, from table `first` of the row block on. Of these a group that fits
       into the cache, from number `group` on, is built and used at once. k: table, relative to `first`; u: one of its
       rows; s: subset of the rows before u */
    ptrdiff_t b, k, u, s, first, width, group;
    for (b = begin; b < end; b++, plane += (composites->block_rows + 1) * LANES) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        const ptrdiff_t n_tables = pseudo_n_subset_tables(rows);
        const uint16_t *codes =  /* space in each row block for all of block_rows rows */
            composites->subset_codes + b * (composites->block_rows / PSEUDO_SUBSET_ROWS) * p->metric.D_padded;
        for (first = 0; first < n_tables; first += width, codes += width * p->metric.D_padded) {
            width = pseudo_min(composites->tables_at_once, n_tables - first);
            for (group = 0; group < width; group += tables_in_cache) {
                const ptrdiff_t group_tables = pseudo_min(tables_in_cache, width - group);
                for (k = group; k < group + group_tables; k++) {
                    const ptrdiff_t rows_left = rows - (first + k) * PSEUDO_SUBSET_ROWS;
                    const REAL *row = plane + (first + k) * PSEUDO_SUBSET_ROWS * LANES;
                    REAL *table = tables + k * table_stride;
                    vec_store(table, vec_fill(0.0));  /* if bit u of an index is set, row u is in the subset */
                    for (u = 0; u < pseudo_min(PSEUDO_SUBSET_ROWS, rows_left); u++) {
                        const vec v = vec_load(row + u * LANES);
                        for (s = 0; s < (ptrdiff_t)1 << u; s++)
                            vec_store(table + (((ptrdiff_t)1 << u) + s) * LANES, vec_load(table + s * LANES) + v);
                    }
                }
                /* the offsets in `codes` are relative to `tables`, table `first`; g + LANES: after the field */
                NAME(add_subset_sums)(tables, codes + group, width, group_tables, p->D, g + LANES);
            }
        }
    }
}

/* Add to g (A, 1 + D, V), for each logit, and at 1 + c for each column c, the numbers of the logit's plane in the rows
   of row blocks begin ... end - 1 where the column is 1. `tables` and state_table are scratch. */
TARGET static void NAME(sum_rows_to_columns)(const pseudo_problem *p, const pseudo_block *t, ptrdiff_t begin,
                                             ptrdiff_t end, const REAL *planes, REAL *tables, REAL *state_table,
                                             REAL *g)
{
    const pseudo_composites *composites = &p->composites;
    const ptrdiff_t plane_stride = t->plane_blocks * (composites->block_rows + 1) * LANES;
    for (ptrdiff_t a = 0; a < t->A; a++, planes += plane_stride, g += (1 + p->D) * LANES) {
        if (composites->subset_codes) {  /* a wide problem; otherwise rows are sorted by state */
            NAME(sum_rows_by_subsets)(p, begin, end, planes, tables, g);
            continue;
        }
        memset(state_table, 0, (size_t)composites->first_state[composites->n_composites] * LANES * sizeof *state_table);
        NAME(sum_rows_by_state)(p, t->needs_composite, begin, end, planes, state_table);
        NAME(sum_skipped_states)(p, t->needs_composite, begin, end, planes, state_table);
        NAME(sum_states_to_columns)(p, t->needs_composite, state_table, g);
    }
}

/* Compute the probabilities p_a of all rows at parameters x with fields h: write sums (2 + A, V) over the rows (see
   logits_to_probabilities) and, unless g is NULL, the weighted sums of p_a (entry 0) and of p_a times each column to g
   (A, 1 + D, V). tables, planes and state_table are scratch; for `shift` see pseudo_logits.h. */
TARGET static void NAME(pass_over_rows)(const pseudo_problem *p, const pseudo_block *t, const REAL *x, const REAL *h,
                                        int shift, REAL *tables, REAL *planes, REAL *state_table, REAL *sums, REAL *g)
{
    ptrdiff_t b, end, a;  /* the planes of row blocks b ... end - 1 are in memory at once */
    memset(sums, 0, (size_t)(3 * (2 + t->A)) * LANES * sizeof *sums);  /* three arrays, as above */
    if (g)
        memset(g, 0, (size_t)(t->A * (1 + p->D)) * LANES * sizeof *g);
    for (b = 0; b < p->composites.n_blocks; b = end) {
        end = pseudo_min(b + t->plane_blocks, p->composites.n_blocks);
        NAME(compute_logits)(p, t, b, end, x, h, tables, planes);
        NAME(logits_to_probabilities)(p, t, b, end, shift, planes, sums);
        if (g)
            NAME(sum_rows_to_columns)(p, t, b, end, planes, tables, state_table, g);
    }
    for (a = 0; a < t->A && g; a++)  /* entry 0 of g: sum of p_a */
        vec_store(g + a * (1 + p->D) * LANES, vec_load(sums + (2 + a) * LANES));
}

/* Write sums (2 + A, V) and g (A, 1 + D, V) as pass_over_rows does, for fields h and zero couplings: all rows have the
   same probabilities, so no row is read. p->moments.mean[c] is the mean of column c - 1. */
TARGET static void NAME(pass_without_couplings)(const pseudo_problem *p, const pseudo_block *t, const REAL *h,
                                                REAL *sums, REAL *g)
{
    const ptrdiff_t logit_stride = (1 + p->D) * LANES;
    const REAL *has_level = t->has_level, n_rows = (REAL)(1.0 / p->rows.scale);  /* rows, or W if weights differ */
    vec max_logit = vec_fill(0.0), z, curve = vec_fill(0.0);
    for (ptrdiff_t a = 0; a < t->A; a++)
        max_logit = NAME(larger)(vec_load(h + a * LANES), max_logit);
    z = NAME(exp)(-max_logit);
    for (ptrdiff_t a = 0; a < t->A; a++)
        z += NAME(exp)(vec_load(h + a * LANES) - max_logit) * vec_load(has_level + a * LANES);
    for (ptrdiff_t a = 0; a < t->A; a++) {
        const vec prob =
            NAME(exp)(vec_load(h + a * LANES) - max_logit) * vec_load(has_level + a * LANES) / z;
        curve += prob - prob * prob;
        vec_store(sums + (2 + a) * LANES, prob * n_rows);
        vec_store(g + a * logit_stride, prob * n_rows);
        for (ptrdiff_t c = 1; c <= p->D; c++)
            vec_store(g + a * logit_stride + c * LANES, prob * (n_rows * (REAL)p->moments.mean[c]));
    }
    vec_store(sums, (max_logit + NAME(log)(z)) * n_rows);
    vec_store(sums + LANES, curve * n_rows);
#ifndef SINGLE  /* anchor_prob (row blocks, A, block_rows, V): the same probability of logit a in every row */
    for (ptrdiff_t k = 0; t->anchor_prob && k < p->composites.n_blocks * t->A * p->composites.block_rows; k++)
        NAME(storef)(t->anchor_prob + k * LANES,
                     NAME(compress)(
                         vec_load(g + k / p->composites.block_rows % t->A * logit_stride) / vec_fill(n_rows)));
#endif
}
