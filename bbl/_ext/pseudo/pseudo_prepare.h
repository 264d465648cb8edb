/* Preparation of a pseudo-likelihood problem p: merged rows, composites, row codes, sorted rows.

   For terms see pseudo_problem.h. V = p->lanes numbers are processed side by side: offsets into tables and planes count
   numbers, V for each state and each row. `columns` (m, n) are the level codes of all predictors, in columns.narrow as
   uint8_t or, if that is NULL, in columns.wide as uint16_t. Composite c has the predictors first_predictor[c] ...
   first_predictor[c + 1] - 1 and the joint states first_state[c] ... first_state[c + 1] - 1, numbered over all
   composites; chunk k has the composites first_composite[k] ... first_composite[k + 1] - 1. */
#ifndef PSEUDO_PREPARE_H
#define PSEUDO_PREPARE_H

#include "pseudo_spread.h"

/* Merge equal rows, in place, if there are at most n / 2 joint states of all predictors, so that at least half of the
   rows are removed; return the new number of rows. columns (m, n) become (m, rows), and weights (n,) of merged rows are
   added. */
static ptrdiff_t pseudo_merge_equal_rows(ptrdiff_t n, ptrdiff_t m, const int32_t *n_levels, pseudo_columns columns,
                                         double *weights)
{
    ptrdiff_t n_states = 1, i, k, s, rows = 0;
    double *state_weight;  /* (n_states,) total weight of the rows in each joint state s */
    for (i = 0; i < m; i++) {
        n_states *= n_levels[i];
        if (n_states > n / 2)
            return n;
    }
    state_weight = calloc((size_t)n_states, sizeof *state_weight);
    if (!state_weight)  /* merging is optional */
        return n;
    for (k = 0; k < n; k++) {
        for (i = m - 1, s = 0; i >= 0; i--)
            s = s * n_levels[i] + pseudo_read_code(columns, i * n + k);
        state_weight[s] += weights[k];
    }
    for (s = 0; s < n_states; s++)
        if (state_weight[s] > 0.0) {
            ptrdiff_t rest = s;  /* joint state of the predictors from i on */
            for (i = 0; i < m; i++, rest /= n_levels[i - 1])  /* i has already advanced when rest is divided */
                if (columns.narrow)
                    columns.narrow[i * n + rows] = (uint8_t)(rest % n_levels[i]);
                else
                    columns.wide[i * n + rows] = (uint16_t)(rest % n_levels[i]);
            weights[rows++] = state_weight[s];
        }
    for (i = 1; i < m; i++)  /* from (m, n) to (m, rows) */
        if (columns.narrow)
            memmove(columns.narrow + i * rows, columns.narrow + i * n, (size_t)rows);
        else
            memmove(columns.wide + i * rows, columns.wide + i * n, (size_t)rows * sizeof *columns.wide);
    free(state_weight);
    return rows;
}

/* Set the fields of p->rows from its weights: total W, equal_weights, half_row = 0.5 / W, and scale, which converts
   sums over rows (unweighted if all weights are equal) to means. Set moments.mean, (1 + D,), with the weighted share of
   column c at 1 + c, if moments are counted (n_counted > 0) */
static void pseudo_count_levels(pseudo_problem *p, pseudo_columns columns)
{
    p->rows.total = 0.0;
    p->rows.equal_weights = 1;
    for (ptrdiff_t k = 0; k < p->rows.n; k++) {
        p->rows.total += p->rows.weights[k];
        p->rows.equal_weights &= p->rows.weights[k] == p->rows.weights[0];
    }
    p->rows.scale = (p->rows.equal_weights ? p->rows.weights[0] : 1.0) / p->rows.total;
    p->rows.half_row = 0.5 / p->rows.total;
    for (ptrdiff_t i = 0; i < p->m && p->n_counted; i++) {
        double *mean = p->moments.mean + p->first_column[i];  /* mean[a] for level a >= 1 */
        if (p->rows.equal_weights && p->n_levels[i] == 2) {  /* the share of rows, which takes a tenth of the time */
            ptrdiff_t ones = 0;
            for (ptrdiff_t k = 0; k < p->rows.n; k++)
                ones += pseudo_read_code(columns, i * p->rows.n + k);
            mean[1] = (double)ones / (double)p->rows.n;
        } else {
            for (ptrdiff_t k = 0; k < p->rows.n; k++)
                if (pseudo_read_code(columns, i * p->rows.n + k))
                    mean[pseudo_read_code(columns, i * p->rows.n + k)] += p->rows.weights[k];
            for (ptrdiff_t a = 1; a < p->n_levels[i]; a++)
                mean[a] /= p->rows.total;
        }
    }
}

/* Form composites of up to max_states joint states, and chunks of composites whose tables for one logit take up to
   table_bytes together. A predictor with more levels forms a composite by itself, and a composite with larger tables a
   chunk by itself. The counts n_composites and n_chunks must initially be 0. */
static void pseudo_form_composites(pseudo_problem *p, ptrdiff_t max_states, ptrdiff_t table_bytes)
{
    pseudo_composites *composites = &p->composites;
    /* n_states: joint states of the predictors of a composite so far */
    ptrdiff_t *first_predictor = composites->first_predictor, *first_state = composites->first_state, i, c,
              n_states = 1;
    const ptrdiff_t chunk_states = table_bytes / (ptrdiff_t)(p->number_bytes * (size_t)p->lanes);
    /* number of subset tables (see pseudo_encode_subsets) that fit into table_bytes: a multiple of four, and at least
       four. Each has 2^PSEUDO_SUBSET_ROWS entries, as large as the entry of a joint state */
    const ptrdiff_t n_tables = (chunk_states >> PSEUDO_SUBSET_ROWS) / 4 * 4;
    composites->tables_at_once = n_tables > 4 ? n_tables : 4;
    for (i = 0; i < p->m; i++) {
        /* if predictor i does not fit into the current composite, which is not empty, close it and begin the next with
           i */
        if (i > first_predictor[composites->n_composites] && n_states * p->n_levels[i] > max_states) {
            first_state[composites->n_composites + 1] = first_state[composites->n_composites] + n_states;
            first_predictor[++composites->n_composites] = i;
            n_states = 1;
        }
        n_states *= p->n_levels[i];
    }
    first_state[composites->n_composites + 1] = first_state[composites->n_composites] + n_states;
    first_predictor[++composites->n_composites] = p->m;
    for (c = 0; c < composites->n_composites; c++) {
        const ptrdiff_t chunk_first = composites->first_composite[composites->n_chunks];
        if (c > chunk_first && first_state[c + 1] - first_state[chunk_first] > chunk_states)
            composites->first_composite[++composites->n_chunks] = c;
    }
    composites->first_composite[++composites->n_chunks] = composites->n_composites;
}

/* Write the joint state of composite c in each row to state_out (n,) */
static void pseudo_read_states(const pseudo_problem *p, pseudo_columns columns, ptrdiff_t c, uint16_t *state_out)
{
    ptrdiff_t i, k, n_states = 1;  /* of the predictors before i */
    memset(state_out, 0, (size_t)p->rows.n * sizeof *state_out);
    for (i = p->composites.first_predictor[c]; i < p->composites.first_predictor[c + 1]; n_states *= p->n_levels[i++])
        for (k = 0; k < p->rows.n; k++)
            state_out[k] = (uint16_t)(state_out[k] + n_states * pseudo_read_code(columns, i * p->rows.n + k));
}

/* Write the `rows` rows of a row block, grouped by their joint states state (rows,) of one composite, to the list `to`,
   within composites.sorted_rows; return its end. State `skipped` is omitted. The list has two parts: groups of
   PSEUDO_GROUP_ROWS rows, then groups of four rows with what is left of each state, padded with the block's last row,
   which is zero. Each part begins with its number of groups; a group is the offset of its state into the table, then
   the offsets of its rows. All groups of a part have the same size, so that no branch depends on the states. Scratch:
   n_rows and first (n_states,), a state's number of rows and its position in order (rows,), the offsets of all rows by
   state. */
static uint16_t *pseudo_sort_rows(const pseudo_problem *p, const uint16_t *state, ptrdiff_t rows, ptrdiff_t n_states,
                                  ptrdiff_t skipped, ptrdiff_t *n_rows, ptrdiff_t *first, uint16_t *order,
                                  uint16_t *to)
{
    const uint16_t zero_row = (uint16_t)(p->composites.block_rows * p->lanes);
    ptrdiff_t position = 0;
    uint16_t *n_groups;  /* of the part that is written */
    memset(n_rows, 0, (size_t)n_states * sizeof *n_rows);
    for (ptrdiff_t r = 0; r < rows; r++)
        n_rows[state[r]]++;
    for (ptrdiff_t s = 0; s < n_states; position += n_rows[s++])
        first[s] = position;
    for (ptrdiff_t r = 0; r < rows; r++)  /* `first` moves to the end of the state's rows */
        order[first[state[r]]++] = (uint16_t)(r * p->lanes);
    *(n_groups = to++) = 0;
    for (ptrdiff_t s = 0; s < n_states; s++)
        for (ptrdiff_t left = n_rows[s]; s != skipped && left >= PSEUDO_GROUP_ROWS; left -= PSEUDO_GROUP_ROWS) {
            ++*n_groups;
            *to++ = (uint16_t)(s * p->lanes);
            memcpy(to, order + first[s] - left, PSEUDO_GROUP_ROWS * sizeof *to);
            to += PSEUDO_GROUP_ROWS;
        }
    *(n_groups = to++) = 0;
    for (ptrdiff_t s = 0; s < n_states; s++)
        for (ptrdiff_t left = n_rows[s] % PSEUDO_GROUP_ROWS; s != skipped && left > 0; left -= 4) {
            ++*n_groups;
            *to++ = (uint16_t)(s * p->lanes);
            for (ptrdiff_t r = 0; r < 4; r++)
                *to++ = r < left ? order[first[s] - left + r] : zero_row;
        }
    return to;
}

/* Return an upper bound of the number of entries written by pseudo_sort_rows: for each state at most 5 per row, and at
   most its rows, an offset for each large group, and 7 for the padding and the offsets of the last groups; and the
   numbers of groups */
static ptrdiff_t pseudo_sorted_bound(ptrdiff_t rows, ptrdiff_t n_states)
{
    return pseudo_min(5 * rows, rows + rows / PSEUDO_GROUP_ROWS + 7 * n_states) + 2;
}

/* Return the joint state whose rows pseudo_sort_rows omits, given the rows of each state of a composite n_rows
   (n_states,): the most frequent one, whose sums sum_skipped_states derives from the total. State 0, in which no column
   is 1, needs no sums, so another state must be more frequent by more than the work of deriving them. */
static ptrdiff_t pseudo_choose_skipped(ptrdiff_t n, const ptrdiff_t *n_rows, ptrdiff_t n_states)
{
    ptrdiff_t best = 0;
    for (ptrdiff_t s = 1; s < n_states; s++)
        best = n_rows[s] > n_rows[best] ? s : best;
    return n_rows[best] > n_rows[0] + n / PSEUDO_SKIP_SHARE ? best : 0;
}

/* Write composites.codes, for each chunk and row the offsets of the row's joint states into the chunk's tables, and
   skipped_state; return the proportion of all joint states, over rows and composites, that are skipped. Scratch: state
   (n,), and n_rows with an entry for each state of a composite. */
static double pseudo_encode_rows(pseudo_problem *p, pseudo_columns columns, uint16_t *state, ptrdiff_t *n_rows)
{
    pseudo_composites *composites = &p->composites;
    ptrdiff_t c, k, chunk, n_skipped = 0;
    for (chunk = 0; chunk < composites->n_chunks; chunk++) {
        const ptrdiff_t first = composites->first_composite[chunk];
        const ptrdiff_t width = composites->first_composite[chunk + 1] - first;
        for (c = first; c < first + width; c++) {
            const ptrdiff_t offset = composites->first_state[c] - composites->first_state[first];
            const ptrdiff_t n_states = composites->first_state[c + 1] - composites->first_state[c];
            uint16_t *code = composites->codes + composites->n_padded * first + (c - first);
            pseudo_read_states(p, columns, c, state);
            memset(n_rows, 0, (size_t)n_states * sizeof *n_rows);
            for (k = 0; k < p->rows.n; k++)
                n_rows[state[k]]++;
            composites->skipped_state[c] = pseudo_choose_skipped(p->rows.n, n_rows, n_states);
            n_skipped += n_rows[composites->skipped_state[c]];
            for (k = 0; k < composites->n_padded; k++)  /* padding rows have state 0 */
                code[k * width] = (uint16_t)((offset + (k < p->rows.n ? state[k] : 0)) * p->lanes);
        }
    }
    return (double)n_skipped / ((double)p->rows.n * (double)composites->n_composites);
}

/* Return the largest number of joint states of a composite */
static ptrdiff_t pseudo_max_states(const pseudo_problem *p)
{
    ptrdiff_t max_states = 1;
    for (ptrdiff_t c = 0; c < p->composites.n_composites; c++) {
        const ptrdiff_t n_states = p->composites.first_state[c + 1] - p->composites.first_state[c];
        max_states = n_states > max_states ? n_states : max_states;
    }
    return max_states;
}

/* Write composites.sorted_rows and sorted_start from composites.codes: for each row block and composite the list of
   pseudo_sort_rows, and its start. state (n,) is scratch. */
static void pseudo_sort_blocks(pseudo_problem *p, uint16_t *state)
{
    pseudo_composites *composites = &p->composites;
    const ptrdiff_t max_states = pseudo_max_states(p);
    ptrdiff_t c, k, chunk, b, bound = 0;
    int shift = 0;  /* log2 of the number of lanes, a power of two */
    ptrdiff_t *n_rows;                  /* (max_states,), followed by another such array and `order`: scratch */
    uint16_t *to;  /* start of the next list */
    for (c = 0; c < composites->n_composites; c++)
        bound += composites->n_blocks * pseudo_sorted_bound(
            composites->block_rows, composites->first_state[c + 1] - composites->first_state[c]);
    PSEUDO_ALLOCATE(p, composites->sorted_rows, bound);
    PSEUDO_ALLOCATE(p, composites->sorted_start, composites->n_blocks * composites->n_composites);
    n_rows = malloc((size_t)(2 * max_states) * sizeof *n_rows + (size_t)composites->block_rows * sizeof *to);
    if (p->failed || !n_rows) {
        free(n_rows);
        p->failed = 1;
        return;
    }
    while ((ptrdiff_t)1 << shift < p->lanes)
        shift++;
    for (b = 0, to = composites->sorted_rows; b < composites->n_blocks; b++) {
        const ptrdiff_t rows = pseudo_block_size(p, b);
        for (chunk = 0; chunk < composites->n_chunks; chunk++) {
            const ptrdiff_t first = composites->first_composite[chunk];
            const ptrdiff_t width = composites->first_composite[chunk + 1] - first;
            const uint16_t *codes =
                composites->codes + composites->n_padded * first + b * composites->block_rows * width;
            for (c = first; c < first + width; c++) {
                const ptrdiff_t offset = composites->first_state[c] - composites->first_state[first];
                for (k = 0; k < rows; k++)  /* a code is lanes times (offset + state) */
                    state[k] = (uint16_t)((codes[k * width + c - first] >> shift) - offset);
                composites->sorted_start[b * composites->n_composites + c] = to - composites->sorted_rows;
                to = pseudo_sort_rows(p, state, rows, composites->first_state[c + 1] - composites->first_state[c],
                                      composites->skipped_state[c], n_rows, n_rows + max_states,
                                      (uint16_t *)(n_rows + 2 * max_states), to);
            }
        }
    }
    free(n_rows);
}

/* Write composites.subset_codes for sum_rows_by_subsets. A *subset table* contains a sum for each subset of
   PSEUDO_SUBSET_ROWS successive rows; bit u of the subset's number represents row u of them. A column's code is the
   offset of the subset of rows in which it is 1. Codes are (D_padded, tables) for each group of tables_at_once tables
   of each row block. */
static void pseudo_encode_subsets(pseudo_problem *p, pseudo_columns columns)
{
    const ptrdiff_t block_rows = p->composites.block_rows, D_padded = p->metric.D_padded;
    const ptrdiff_t block_tables = block_rows / PSEUDO_SUBSET_ROWS, table_stride = p->lanes << PSEUDO_SUBSET_ROWS;
    ptrdiff_t b, first, width, j, c, k;  /* a group of `width` tables from table `first` of the block on */
    PSEUDO_ALLOCATE(p, p->composites.subset_codes, p->composites.n_blocks * block_tables * D_padded);
    for (b = 0; b < p->composites.n_blocks && !p->failed; b++) {
        const ptrdiff_t begin = b * block_rows, end = pseudo_min(begin + block_rows, p->rows.n);
        const ptrdiff_t n_tables = pseudo_n_subset_tables(end - begin);
        uint16_t *codes = p->composites.subset_codes + b * block_tables * D_padded;
        for (first = 0; first < n_tables; first += width, codes += width * D_padded) {
            width = pseudo_min(p->composites.tables_at_once, n_tables - first);
            for (c = 0; c < D_padded; c++)
                for (k = 0; k < width; k++)
                    codes[c * width + k] = (uint16_t)(k * table_stride);  /* the empty subset of table k */
            for (j = 0; j < p->m; j++)
                for (k = 0; k < width * PSEUDO_SUBSET_ROWS; k++) {
                    const ptrdiff_t row = begin + first * PSEUDO_SUBSET_ROWS + k;
                    const uint16_t code = row < end ? pseudo_read_code(columns, j * p->rows.n + row) : 0;
                    if (code)  /* set the row's bit in the number of the subset; each subset has `lanes` numbers */
                        codes[(p->first_column[j] + code - 1) * width + k / PSEUDO_SUBSET_ROWS] +=
                            (uint16_t)(p->lanes << k % PSEUDO_SUBSET_ROWS);
                }
        }
    }
}

/* Write predictors first ... end - 1 to p->site_order in decreasing order of their numbers of levels, so that the lanes
   of a lane block need similar numbers of logits */
static void pseudo_order_predictors(pseudo_problem *p, ptrdiff_t first, ptrdiff_t end)
{
    ptrdiff_t i, position = first;
    int32_t most_levels = 0;  /* levels of the predictors that are written next; initially the maximum */
    for (i = first; i < end; i++)
        most_levels = p->n_levels[i] > most_levels ? p->n_levels[i] : most_levels;
    while (position < end) {
        int32_t next_most = 0;  /* the largest number of levels below most_levels */
        for (i = first; i < end; i++)
            if (p->n_levels[i] == most_levels)
                p->site_order[position++] = i;
            else if (p->n_levels[i] < most_levels && p->n_levels[i] > next_most)
                next_most = p->n_levels[i];
        most_levels = next_most;
    }
}

/* Set the sizes of row blocks and padded arrays, and the numbers of row blocks and lane blocks (with p->lanes sites),
   for n rows; p->D, n_sites, lanes, number_bytes and metric.wide (whether the metric uses an inverse of the covariance
   of many columns) must be set */
static void pseudo_set_sizes(pseudo_problem *p, ptrdiff_t n)
{
    pseudo_composites *composites = &p->composites;
    p->metric.D_padded = (p->D + 7) / 8 * 8;
    composites->n_padded = (n + 7) / 8 * 8;
    composites->block_rows =
        pseudo_min(PSEUDO_BLOCK_BYTES / (ptrdiff_t)p->number_bytes / p->lanes, composites->n_padded);
    if (p->metric.wide)  /* complete subset tables, four at a time; a wide problem has over 100 rows (kronecker_pays) */
        composites->block_rows -= composites->block_rows % (4 * PSEUDO_SUBSET_ROWS);
    composites->block_rows = composites->block_rows > 0 ? composites->block_rows : 1;  /* nonzero even without rows */
    composites->n_blocks = (n + composites->block_rows - 1) / composites->block_rows;
    p->n_lane_blocks = (p->n_sites + p->lanes - 1) / p->lanes;
}

/* Prepare a problem of n rows: set everything except moments.second, the shares of pairs of columns, and the parts of
   the metric that are computed from them. p->m, n_sites, n_counted, lanes, number_bytes, n_levels, neighbours,
   metric.wide and leading must be set. columns (m, n) and weights (n,) are changed if rows are merged. For max_states
   and table_bytes see pseudo_form_composites. Returns a solver_code. */
static int pseudo_prepare(pseudo_problem *p, ptrdiff_t n, pseudo_columns columns, double *weights,
                          ptrdiff_t max_states, ptrdiff_t table_bytes)
{
    pseudo_composites *composites = &p->composites;
    uint16_t *state;  /* (n,) scratch */
    ptrdiff_t *n_rows;  /* for each joint state of a composite: scratch */
    double skipped_share;
    p->rows.n = pseudo_merge_equal_rows(n, p->m, p->n_levels, columns, weights);
    PSEUDO_ALLOCATE(p, p->first_column, p->m + 1);
    PSEUDO_ALLOCATE(p, p->site_order, p->m);
    PSEUDO_ALLOCATE(p, composites->first_predictor, p->m + 1);
    PSEUDO_ALLOCATE(p, composites->first_state, p->m + 1);
    PSEUDO_ALLOCATE(p, composites->first_composite, p->m + 1);
    PSEUDO_ALLOCATE(p, p->metric.rotation_start, p->m);
    PSEUDO_ALLOCATE(p, p->metric.trace, p->m);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    for (ptrdiff_t i = 0; i < p->m; i++)
        p->first_column[i + 1] = p->first_column[i] + p->n_levels[i] - 1;
    p->D = p->first_column[p->m];
    p->moments.D_counted = p->first_column[p->n_counted];
    pseudo_set_sizes(p, p->rows.n);
    PSEUDO_ALLOCATE(p, p->moments.mean, p->D + 1);
    PSEUDO_ALLOCATE(p, p->metric.sigma, p->D);
    PSEUDO_ALLOCATE(p, p->moments.independent_field, p->D);
    PSEUDO_ALLOCATE(p, p->moments.second, p->moments.D_counted * p->D);
    PSEUDO_ALLOCATE(p, p->rows.weights, p->rows.n);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    memcpy(p->rows.weights, weights, (size_t)p->rows.n * sizeof *weights);
    pseudo_count_levels(p, columns);
    pseudo_order_predictors(p, 0, p->n_sites);
    pseudo_order_predictors(p, p->n_sites, p->m);
    pseudo_form_composites(p, max_states, table_bytes);
    PSEUDO_ALLOCATE(p, composites->codes, composites->n_padded * composites->n_composites);
    PSEUDO_ALLOCATE(p, composites->skipped_state, composites->n_composites);
    state = malloc((size_t)p->rows.n * sizeof *state);
    n_rows = malloc((size_t)pseudo_max_states(p) * sizeof *n_rows);
    if (p->failed || !state || !n_rows) {
        free(state);
        free(n_rows);
        return SOLVER_NO_MEMORY;
    }
    skipped_share = pseudo_encode_rows(p, columns, state, n_rows);
    free(n_rows);
    if (p->metric.wide && skipped_share < PSEUDO_MAX_SKIPPED_SHARE)  /* otherwise sorted rows are faster */
        pseudo_encode_subsets(p, columns);
    else
        pseudo_sort_blocks(p, state);
    free(state);
    if (!p->failed)
        pseudo_set_site_metrics(p);
    return p->failed ? SOLVER_NO_MEMORY : SOLVER_DONE;
}
#endif
