/* Preparation of a pseudo-likelihood problem: composites, chunks, row codes, sorted groups. The design note stands in
   pseudo.h. */
#ifndef PSEUDO_PREPARE_H
#define PSEUDO_PREPARE_H

#include "pseudo_spread.h"

/* Merge equal rows, in place, where the joint states are fewer than half of the rows; returns the new number of rows */
static ptrdiff_t pseudo_merge_equal_rows(ptrdiff_t n, ptrdiff_t m, const int32_t *n_levels, pseudo_columns columns,
                                         double *weights)
{
    ptrdiff_t states = 1, i, k, s, rows = 0;
    double *sum;
    for (i = 0; i < m; i++) {
        states *= n_levels[i];
        if (states > n / 2)
            return n;
    }
    sum = calloc((size_t)states, sizeof *sum);
    if (!sum)
        return n;
    for (k = 0; k < n; k++) {
        for (i = m - 1, s = 0; i >= 0; i--)
            s = s * n_levels[i] + pseudo_read_code(columns, i * n + k);
        sum[s] += weights[k];
    }
    for (s = 0; s < states; s++)
        if (sum[s] > 0.0) {
            ptrdiff_t rest = s;
            for (i = 0; i < m; i++, rest /= n_levels[i - 1])
                if (columns.narrow)
                    columns.narrow[i * n + rows] = (uint8_t)(rest % n_levels[i]);
                else
                    columns.wide[i * n + rows] = (uint16_t)(rest % n_levels[i]);
            weights[rows++] = sum[s];
        }
    for (i = 1; i < m; i++)
        if (columns.narrow)
            memmove(columns.narrow + i * rows, columns.narrow + i * n, (size_t)rows);
        else
            memmove(columns.wide + i * rows, columns.wide + i * n, (size_t)rows * sizeof *columns.wide);
    free(sum);
    return rows;
}

/* Weighted shares of the levels (zero where moments are not counted), and the rows' common weight */
static void pseudo_count_levels(pseudo_problem *p, pseudo_columns columns)
{
    ptrdiff_t i, k;
    p->rows.total = 0.0;
    p->rows.equal_weights = 1;
    for (k = 0; k < p->rows.n; k++) {
        p->rows.total += p->rows.weights[k];
        p->rows.equal_weights &= p->rows.weights[k] == p->rows.weights[0];
    }
    p->rows.scale = (p->rows.equal_weights ? p->rows.weights[0] : 1.0) / p->rows.total;
    p->rows.half_row = 0.5 / p->rows.total;
    for (i = 0; i < p->m && p->n_counted; i++) {
        double *mean = p->moments.mean + p->first_column[i]; /* column of code c is start + c; code 0 falls on a neighbour, skipped */
        for (k = 0; k < p->rows.n; k++)
            if (pseudo_read_code(columns, i * p->rows.n + k))
                mean[pseudo_read_code(columns, i * p->rows.n + k)] += p->rows.weights[k];
    }
    for (k = 1; k <= p->D; k++)
        p->moments.mean[k] /= p->rows.total;
}

/* Neighbouring predictors are merged up to `most` joint states; composites into chunks up to `bytes` of tables */
static void pseudo_form_composites(pseudo_problem *p, ptrdiff_t most, ptrdiff_t bytes)
{
    const ptrdiff_t fit = bytes / (ptrdiff_t)(p->number_bytes * (size_t)p->lanes);
    ptrdiff_t i, c, size = 1;
    p->composites.tables_at_once = fit >> PSEUDO_SUBSET_ROWS > 4 ? (fit >> PSEUDO_SUBSET_ROWS) / 4 * 4 : 4;
    for (i = 0; i < p->m; i++) {
        if (i > p->composites.first_predictor[p->composites.n_composites] && size * p->n_levels[i] > most) {
            p->composites.first_state[p->composites.n_composites + 1] = p->composites.first_state[p->composites.n_composites] + size;
            p->composites.first_predictor[++p->composites.n_composites] = i;
            size = 1;
        }
        size *= p->n_levels[i];
    }
    p->composites.first_state[p->composites.n_composites + 1] = p->composites.first_state[p->composites.n_composites] + size;
    p->composites.first_predictor[++p->composites.n_composites] = p->m;
    for (c = 0; c < p->composites.n_composites; c++)
        if (c > p->composites.first_composite[p->composites.n_chunks] && p->composites.first_state[c + 1] - p->composites.first_state[p->composites.first_composite[p->composites.n_chunks]] > fit)
            p->composites.first_composite[++p->composites.n_chunks] = c;
    p->composites.first_composite[++p->composites.n_chunks] = p->composites.n_composites;
}

/* state_out (n,) <- joint states of composite c */
static void pseudo_joint_states(const pseudo_problem *p, pseudo_columns columns, ptrdiff_t c, uint16_t *state_out)
{
    ptrdiff_t i, k, size = 1;
    memset(state_out, 0, (size_t)p->rows.n * sizeof *state_out);
    for (i = p->composites.first_predictor[c]; i < p->composites.first_predictor[c + 1]; size *= p->n_levels[i++])
        for (k = 0; k < p->rows.n; k++)
            state_out[k] = (uint16_t)(state_out[k] + size * pseudo_read_code(columns, i * p->rows.n + k));
}

/* Write `rows` rows sorted by state to `to` and return its end. State 0 is left out. A state's rows are filled up to a
   multiple of four with the zero row; states with equally many fours form a run: number of fours, number of states,
   then for each state its offset into the table and its rows. A zero ends the list. next and size are (states,). */
static uint16_t *pseudo_sort_rows(const pseudo_problem *p, const uint16_t *state, ptrdiff_t rows, ptrdiff_t states,
                                  ptrdiff_t *next, ptrdiff_t *size, uint16_t *to)
{
    ptrdiff_t r, s, fours, smaller;
    memset(size, 0, (size_t)states * sizeof *size);
    for (r = 0; r < rows; r++)
        size[state[r]]++;
    for (s = 1, fours = 0; s < states; s++) {
        size[s] = (size[s] + 3) / 4;
        fours = size[s] > fours ? size[s] : fours;
    }
    for (; fours > 0; fours = smaller) {
        uint16_t *head = to;
        *to++ = (uint16_t)fours;
        *to++ = 0;
        for (s = 1, smaller = 0; s < states; s++) {
            if (size[s] < fours)
                smaller = size[s] > smaller ? size[s] : smaller;
            if (size[s] != fours)
                continue;
            head[1]++;
            *to++ = (uint16_t)(s * p->lanes);
            next[s] = to - p->composites.sorted_rows;
            for (r = 0; r < 4 * fours; r++)
                *to++ = (uint16_t)(p->composites.block_rows * p->lanes);
        }
    }
    for (r = 0; r < rows; r++)
        if (state[r])
            p->composites.sorted_rows[next[state[r]]++] = (uint16_t)(r * p->lanes);
    *to++ = 0;
    return to;
}

/* Most entries that pseudo_sort_rows writes */
static ptrdiff_t pseudo_sorted_bound(ptrdiff_t rows, ptrdiff_t states)
{
    return pseudo_min(7 * rows, rows + 6 * states) + 1;
}

/* Offsets of every row into the tables of its chunk; state (n,) is scratch. Returns the share of the rows' joint states
   that are the reference of all their predictors. */
static double pseudo_encode_rows(pseudo_problem *p, pseudo_columns columns, uint16_t *state)
{
    ptrdiff_t c, k, ch, bare = 0;
    for (ch = 0; ch < p->composites.n_chunks; ch++)
        for (c = p->composites.first_composite[ch]; c < p->composites.first_composite[ch + 1]; c++) {
            const ptrdiff_t width = p->composites.first_composite[ch + 1] - p->composites.first_composite[ch], base = p->composites.first_state[c] - p->composites.first_state[p->composites.first_composite[ch]];
            uint16_t *code = p->composites.codes + p->composites.n_padded * p->composites.first_composite[ch] + (c - p->composites.first_composite[ch]);
            pseudo_joint_states(p, columns, c, state);
            for (k = 0; k < p->rows.n; k++)
                bare += state[k] == 0;
            for (k = 0; k < p->composites.n_padded; k++)
                code[k * width] = (uint16_t)((base + (k < p->rows.n ? state[k] : 0)) * p->lanes);
        }
    return (double)bare / ((double)p->rows.n * (double)p->composites.n_composites);
}

/* The groups of the backward pass, from the codes; state (n,) is scratch */
static void pseudo_sort_blocks(pseudo_problem *p, uint16_t *state)
{
    ptrdiff_t c, k, ch, b, bound = 0, most = 1;
    int shift = 0;  /* lanes are a power of two */
    ptrdiff_t *count;
    uint16_t *to;
    for (c = 0; c < p->composites.n_composites; c++) {
        const ptrdiff_t states = p->composites.first_state[c + 1] - p->composites.first_state[c];
        most = states > most ? states : most;
        bound += p->composites.n_blocks * pseudo_sorted_bound(p->composites.block_rows, states);
    }
    p->composites.sorted_rows = pseudo_allocate(p, (size_t)bound, sizeof *p->composites.sorted_rows);
    p->composites.sorted_start = pseudo_allocate(p, (size_t)(p->composites.n_blocks * p->composites.n_composites), sizeof *p->composites.sorted_start);
    count = malloc((size_t)(2 * most) * sizeof *count);
    if (p->failed || !count) {
        free(count);
        p->failed = 1;
        return;
    }
    while ((ptrdiff_t)1 << shift < p->lanes)
        shift++;
    for (b = 0, to = p->composites.sorted_rows; b < p->composites.n_blocks; b++) {
        const ptrdiff_t rows = pseudo_min(p->composites.block_rows, p->rows.n - b * p->composites.block_rows);
        for (ch = 0; ch < p->composites.n_chunks; ch++)
            for (c = p->composites.first_composite[ch]; c < p->composites.first_composite[ch + 1]; c++) {
                const ptrdiff_t width = p->composites.first_composite[ch + 1] - p->composites.first_composite[ch], base = p->composites.first_state[c] - p->composites.first_state[p->composites.first_composite[ch]];
                const uint16_t *code = p->composites.codes + p->composites.n_padded * p->composites.first_composite[ch] + b * p->composites.block_rows * width + c - p->composites.first_composite[ch];
                for (k = 0; k < rows; k++)
                    state[k] = (uint16_t)((code[k * width] >> shift) - base);
                p->composites.sorted_start[b * p->composites.n_composites + c] = to - p->composites.sorted_rows;
                to = pseudo_sort_rows(p, state, rows, p->composites.first_state[c + 1] - p->composites.first_state[c], count,
                                 count + most, to);
            }
    }
    free(count);
}

/* Codes of the columns in the tables of the exchanged pass: bit u is set where row u of PSEUDO_SUBSET_ROWS has the level */
static void pseudo_encode_subsets(pseudo_problem *p, pseudo_columns columns)
{
    const ptrdiff_t tables = p->composites.block_rows / PSEUDO_SUBSET_ROWS, step = p->lanes << PSEUDO_SUBSET_ROWS;
    ptrdiff_t b, first, width, j, c, k, u;
    p->composites.subset_codes = pseudo_allocate(p, (size_t)(p->composites.n_blocks * tables * p->metric.D_padded), sizeof *p->composites.subset_codes);
    for (b = 0; b < p->composites.n_blocks && !p->failed; b++) {
        const ptrdiff_t begin = b * p->composites.block_rows, end = pseudo_min(begin + p->composites.block_rows, p->rows.n);
        uint16_t *to = p->composites.subset_codes + b * tables * p->metric.D_padded;
        for (first = 0; first < pseudo_n_subset_tables(end - begin); first += width, to += width * p->metric.D_padded) {
            width = pseudo_min(p->composites.tables_at_once, pseudo_n_subset_tables(end - begin) - first);
            for (c = 0; c < p->metric.D_padded; c++)
                for (k = 0; k < width; k++)
                    to[c * width + k] = (uint16_t)(k * step);
            for (j = 0; j < p->m; j++)
                for (k = 0; k < width * PSEUDO_SUBSET_ROWS; k++) {
                    const ptrdiff_t row = begin + first * PSEUDO_SUBSET_ROWS + k;
                    const uint16_t code = row < end ? pseudo_read_code(columns, j * p->rows.n + row) : 0;
                    u = k % PSEUDO_SUBSET_ROWS;
                    if (code)
                        to[(p->first_column[j] + code - 1) * width + k / PSEUDO_SUBSET_ROWS] += (uint16_t)(p->lanes << u);
                }
        }
    }
}

/* Predictors first..end - 1 in lane blocks: by number of levels, most first, so that the lanes of a block need the same
   number of logits */
static void pseudo_order_predictors(pseudo_problem *p, ptrdiff_t first, ptrdiff_t end)
{
    ptrdiff_t i, at = first;
    int32_t level = 0;
    for (i = first; i < end; i++)
        level = p->n_levels[i] > level ? p->n_levels[i] : level;
    while (at < end) {
        int32_t next = 0;
        for (i = first; i < end; i++)
            if (p->n_levels[i] == level)
                p->site_order[at++] = i;
            else if (p->n_levels[i] < level && p->n_levels[i] > next)
                next = p->n_levels[i];
        level = next;
    }
}

static void pseudo_set_sizes(pseudo_problem *p, ptrdiff_t n)
{
    p->metric.D_padded = (p->D + 7) / 8 * 8;
    p->composites.n_padded = (n + 7) / 8 * 8;
    p->composites.block_rows = pseudo_min(PSEUDO_BLOCK_BYTES / (ptrdiff_t)p->number_bytes / p->lanes, p->composites.n_padded);
    if (p->metric.wide)
        p->composites.block_rows -= p->composites.block_rows % (4 * PSEUDO_SUBSET_ROWS);
    p->composites.block_rows = p->composites.block_rows > 0 ? p->composites.block_rows : 1;  /* no rows, no blocks, but a divisor */
    p->composites.n_blocks = (n + p->composites.block_rows - 1) / p->composites.block_rows;
    p->n_lane_blocks = (p->n_sites + p->lanes - 1) / p->lanes;
}

/* Set everything but the second moments and the eigenvectors. p->m, n_sites, n_counted, lanes, n_levels, mask are set; columns (m, n) and
   weights (n,) are changed where rows are merged. */
static int pseudo_prepare(pseudo_problem *p, ptrdiff_t n, pseudo_columns columns, double *weights, ptrdiff_t most,
                          ptrdiff_t bytes)
{
    uint16_t *state;
    double bare;
    ptrdiff_t i;
    p->rows.n = pseudo_merge_equal_rows(n, p->m, p->n_levels, columns, weights);
    p->first_column = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->first_column);
    p->site_order = pseudo_allocate(p, (size_t)p->m, sizeof *p->site_order);
    p->composites.first_predictor = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_predictor);
    p->composites.first_state = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_state);
    p->composites.first_composite = pseudo_allocate(p, (size_t)p->m + 1, sizeof *p->composites.first_composite);
    p->metric.rotation_start = pseudo_allocate(p, (size_t)p->m, sizeof *p->metric.rotation_start);
    p->metric.trace = pseudo_allocate(p, (size_t)p->m, sizeof *p->metric.trace);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    for (i = 0; i < p->m; i++)
        p->first_column[i + 1] = p->first_column[i] + p->n_levels[i] - 1;
    p->D = p->first_column[p->m];
    p->moments.D_counted = p->first_column[p->n_counted];
    pseudo_set_sizes(p, p->rows.n);
    p->moments.mean = pseudo_allocate(p, (size_t)p->D + 1, sizeof *p->moments.mean);
    p->metric.sigma = pseudo_allocate(p, (size_t)p->D, sizeof *p->metric.sigma);
    p->moments.independent_field = pseudo_allocate(p, (size_t)p->D, sizeof *p->moments.independent_field);
    p->moments.second = pseudo_allocate(p, (size_t)(p->moments.D_counted * p->D), sizeof *p->moments.second);
    p->rows.weights = pseudo_allocate(p, (size_t)p->rows.n, sizeof *p->rows.weights);
    if (p->failed)
        return SOLVER_NO_MEMORY;
    memcpy(p->rows.weights, weights, (size_t)p->rows.n * sizeof *weights);
    pseudo_count_levels(p, columns);
    pseudo_order_predictors(p, 0, p->n_sites);
    pseudo_order_predictors(p, p->n_sites, p->m);
    pseudo_form_composites(p, most, bytes);
    p->composites.codes = pseudo_allocate(p, (size_t)(p->composites.n_padded * p->composites.n_composites), sizeof *p->composites.codes);
    state = malloc((size_t)p->rows.n * sizeof *state);
    if (p->failed || !state) {
        free(state);
        return SOLVER_NO_MEMORY;
    }
    bare = pseudo_encode_rows(p, columns, state);
    if (p->metric.wide && bare < PSEUDO_MAX_REFERENCE_SHARE)
        pseudo_encode_subsets(p, columns);
    else
        pseudo_sort_blocks(p, state);
    free(state);
    if (!p->failed)
        pseudo_site_metrics(p);
    return p->failed ? SOLVER_NO_MEMORY : SOLVER_DONE;
}
#endif
