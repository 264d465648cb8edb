/* Passes over the rows for one lane block of the pseudo-likelihood; pseudo_kernel.h includes it after pseudo_logits.h.

   (a) Every function works on vectors whose lanes are response sites; no lane ever looks at another one.
   (b) forward: table of summed couplings per composite, then one load-add per row and composite into the planes.
       The tables of a chunk of composites stay in the first-level cache while all rows pass.
   (c) activate: planes become probabilities (times row weights), normalisers are summed up.
   (d) backward: rows of a block, sorted by joint state and filled up to multiples of four, are summed in registers,
       states with equally many rows one after the other, so that the processor foresees the ends of the loops.
       The state where all predictors of a composite are at their reference has no parameter and is left out.
       Wide problems, with few rows to a state, go forward a second time instead, see exchange, unless most rows are
       left out.

   Conventions: V = LANES; planes (A, span, block + 1, V) of `span` row blocks, the last row of each always zero;
   parameters and gradients (A, 1 + D, V); tables (n_states, V). */

#ifdef ANCHOR
#define SUMS 4          /* vectors that are summed at once, so that additions need not wait for each other: here of two */
#else                   /* registers each */
#define SUMS 8
#endif

/* Tables of the summed couplings of chunk `ch` from the parameters x (1 + D, V) of one logit */
TARGET static void NAME(tabulate)(const pseudo_problem *p, ptrdiff_t ch, const REAL *x, REAL *table)
{
    ptrdiff_t c, j, b, s, size;
    for (c = p->composites.chunk[ch]; c < p->composites.chunk[ch + 1]; c++) {
        REAL *t = table + (p->composites.states[c] - p->composites.states[p->composites.chunk[ch]]) * LANES;
        vec_store(t, vec_fill(0.0));
        for (j = p->composites.first[c], size = 1; j < p->composites.first[c + 1]; size *= p->n_levels[j++])
            for (b = 1; b < p->n_levels[j]; b++) {
                const vec v = vec_load(x + (p->start[j] + b) * LANES);
                for (s = 0; s < size; s++)
                    vec_store(t + (b * size + s) * LANES, vec_load(t + s * LANES) + v);
            }
    }
}

/* Add the chunk's table entries of `rows` rows (rounded up to R) to Q planes, `gap` numbers apart; Q tables are `step`
   apart. With init (Q, V) the planes are overwritten, beginning there. */
#define GATHER(Q, R)                                                                                                   \
    TARGET static void NAME(gather##Q)(const REAL *table, ptrdiff_t step, const uint16_t *codes, ptrdiff_t width,      \
                                       ptrdiff_t rows, const REAL *init, REAL *plane, ptrdiff_t gap)                   \
    {                                                                                                                  \
        ptrdiff_t r, c, q, u, e;                                                                                       \
        for (r = 0; r < rows; r += R, codes += R * width, plane += R * LANES) {                                        \
            vec s[R][Q];                                                                                               \
            for (q = 0; q < Q; q++)                                                                                    \
                for (u = 0; u < R; u++)                                                                                \
                    s[u][q] = vec_load(init ? init + q * LANES : plane + q * gap + u * LANES);                         \
            for (c = 0; c + 4 <= width; c += 4)                                                                        \
                for (u = 0; u < R; u++) {  /* one load brings four offsets: loads are what limits the loop */          \
                    uint64_t word;                                                                                     \
                    memcpy(&word, codes + u * width + c, 8);                                                           \
                    for (e = 0; e < 4; e++, word >>= 16)                                                               \
                        for (q = 0; q < Q; q++)                                                                        \
                            s[u][q] += vec_load(table + (uint16_t)word + q * step);                                    \
                }                                                                                                      \
            for (; c < width; c++)                                                                                     \
                _Pragma("GCC unroll 8") for (u = 0; u < R; u++)                                                        \
                    for (q = 0; q < Q; q++)                                                                            \
                        s[u][q] += vec_load(table + codes[u * width + c] + q * step);                                  \
            for (q = 0; q < Q; q++)                                                                                    \
                for (u = 0; u < R; u++)                                                                                \
                    vec_store(plane + q * gap + u * LANES, s[u][q]);                                                   \
        }                                                                                                              \
    }
GATHER(1, SUMS)
GATHER(2, 4)
GATHER(3, 4)
#undef GATHER

/* Planes of the row blocks `begin` to `end` = fields h (A, V) plus summed couplings of x (A, 1 + D, V) */
TARGET static void NAME(forward)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                 const REAL *x, const REAL *h, REAL *table, REAL *planes)
{
    const ptrdiff_t far = (1 + p->D) * LANES, stride = (p->composites.block + 1) * LANES, gap = t->span * stride;
    ptrdiff_t a, Q, q, ch, b;
    for (a = 0; a < t->A; a += Q) {
        int begun = 0;
        Q = t->A - a == 4 ? 2 : t->A - a < PSEUDO_TILE ? t->A - a : PSEUDO_TILE;
        for (ch = 0; ch < p->composites.n_chunks; ch++) {
            const ptrdiff_t width = p->composites.chunk[ch + 1] - p->composites.chunk[ch];
            const ptrdiff_t step = (p->composites.states[p->composites.chunk[ch + 1]] - p->composites.states[p->composites.chunk[ch]]) * LANES;
            if (!t->chunk_on[ch] && !(ch == p->composites.n_chunks - 1 && !begun))
                continue;
            for (q = 0; q < Q; q++)
                NAME(tabulate)(p, ch, x + (a + q) * far, table + q * step);
            for (b = begin; b < end; b++) {
                const uint16_t *codes = p->composites.codes + p->composites.n_padded * p->composites.chunk[ch] + b * p->composites.block * width;
                const ptrdiff_t rows = pseudo_min(p->composites.block, p->rows.n - b * p->composites.block);
                const REAL *init = begun ? NULL : h + a * LANES;
                REAL *plane = planes + a * gap + (b - begin) * stride;
                if (Q == 1)
                    NAME(gather1)(table, step, codes, width, rows, init, plane, gap);
                else if (Q == 2)
                    NAME(gather2)(table, step, codes, width, rows, init, plane, gap);
                else
                    NAME(gather3)(table, step, codes, width, rows, init, plane, gap);
            }
            begun = 1;
        }
    }
}

/* Replace logits of row blocks by probabilities, and add to sums (2 + A, V): log normalisers, curvature, p of each logit.
   sums has room for three such arrays: the totals, the sums over the current chunk of SUMMED rows, and the rounding
   errors of the totals (Kahan summation), without which single precision would lose digits over many rows. */
TARGET static void NAME(activate)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                  int shift, REAL *planes, REAL *sums)
{
    const ptrdiff_t stride = (p->composites.block + 1) * LANES, gap = t->span * stride, size = (2 + t->A) * LANES;
    REAL *chunk_sums = sums + size, *rounding = chunk_sums + size;
    ptrdiff_t b, k, r, chunk_rows;
    for (b = begin; b < end; b++, planes += stride) {
        const ptrdiff_t rows = pseudo_min(p->composites.block, p->rows.n - b * p->composites.block), far = p->composites.block * LANES;
        const double *w = p->rows.equal ? NULL : p->rows.weights + b * p->composites.block;
        float *base = t->base ? t->base + b * t->A * far : NULL;
        for (r = 0; r < rows; r += chunk_rows) {
            const double *chunk_weights = w ? w + r : NULL;
            REAL *row = planes + r * LANES;
            chunk_rows = pseudo_min(SUMMED, rows - r);
#ifdef SINGLE
            if (base)
                NAME(change)(row, t->A, gap, base + r * LANES, far, chunk_weights, chunk_rows, chunk_sums);
            else
#endif
            if (t->A == 1)
                NAME(logistic)(row, chunk_weights, chunk_rows, shift, chunk_sums);
            else
                NAME(softmax)(row, t->A, gap, t->live, chunk_weights, chunk_rows, shift, chunk_sums);
            for (k = 0; k < size; k += LANES) {
                const vec sum = vec_load(sums + k), increment = vec_load(chunk_sums + k) - vec_load(rounding + k);
                const vec total = sum + increment;
                vec_store(rounding + k, (total - sum) - increment);
                vec_store(sums + k, total);
            }
        }
#ifndef SINGLE
        for (k = 0; base && k < t->A; k++)
            NAME(keep_probabilities)(planes + k * gap, w, rows, base + k * far);
#endif
    }
}

/* table (n_states, V) += sums over rows of one plane by joint state, for the composites that are on */
TARGET static void NAME(backward)(const pseudo_problem *p, const uint8_t *on, ptrdiff_t begin, ptrdiff_t end,
                                  const REAL *plane, REAL *table)
{
    ptrdiff_t b, c, k, g;
    for (b = begin; b < end; b++, plane += (p->composites.block + 1) * LANES)
        for (c = 0; c < p->composites.n_composites; c++) {
            const uint16_t *at = p->composites.sorted + p->composites.sorted_first[b * p->composites.n_composites + c];
            REAL *t = table + p->composites.states[c] * LANES;
            while (on[c] && *at) {
                const ptrdiff_t fours = *at++;
                for (k = *at++; k > 0; k--) {
                    REAL *sum = t + *at++;
                    vec v0 = vec_load(sum), v1 = vec_fill(0.0), v2 = v1, v3 = v1;
                    for (g = 0; g < fours; g++, at += 4) {
                        uint64_t word;  /* one load brings four offsets: loads are what limits the loop */
                        memcpy(&word, at, 8);
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

/* Add the table's sums over states to the columns of the single predictors, g (1 + D, V); destroys the table */
TARGET static void NAME(fold)(const pseudo_problem *p, const uint8_t *on, REAL *table, REAL *g)
{
    ptrdiff_t c, j, b, s, size;
    for (c = 0; c < p->composites.n_composites; c++) {
        REAL *t = table + p->composites.states[c] * LANES;
        size = p->composites.states[c + 1] - p->composites.states[c];
        for (j = p->composites.first[c + 1] - 1; j >= p->composites.first[c] && on[c]; j--) {
            size /= p->n_levels[j];
            for (b = 1; b < p->n_levels[j]; b++) {
                REAL *column = g + (p->start[j] + b) * LANES;
                vec v = vec_load(column);
                for (s = 0; s < size; s++) {
                    const vec u = vec_load(t + (b * size + s) * LANES);
                    v += u;
                    vec_store(t + s * LANES, vec_load(t + s * LANES) + u);
                }
                vec_store(column, v);
            }
        }
    }
}

/* Sums (D, V) += entries of `count` tables, fours of them, at the columns' codes, which are `width` apart */
TARGET static void NAME(collect)(const REAL *table, const uint16_t *codes, ptrdiff_t width, ptrdiff_t count,
                                 ptrdiff_t D, REAL *sums)
{
    ptrdiff_t c, k, u, e;
    for (c = 0; c < D; c += SUMS, codes += SUMS * width, sums += SUMS * LANES) {
        vec s[SUMS];
        for (u = 0; u < SUMS; u++)
            s[u] = vec_fill(0.0);  /* a chunk is summed by itself first, see activate */
        for (k = 0; k < count; k += 4)
            for (u = 0; u < SUMS; u++) {
                uint64_t word;
                memcpy(&word, codes + u * width + k, 8);
                for (e = 0; e < 4; e++, word >>= 16)
                    s[u] += vec_load(table + (uint16_t)word);
            }
        _Pragma("GCC unroll 8") for (u = 0; u < SUMS; u++)
            if (c + u < D)
                vec_store(sums + u * LANES, vec_load(sums + u * LANES) + s[u]);
    }
}

/* g (1 + D, V) columns 1... += sums over the rows of one plane: the forward pass with rows and columns exchanged. A
   table has the sums of all subsets of PSEUDO_ROWS rows, and a column costs one load-add per table. */
TARGET static void NAME(exchange)(const pseudo_problem *p, ptrdiff_t begin, ptrdiff_t end, const REAL *plane,
                                  REAL *table, REAL *g)
{
    const ptrdiff_t far = LANES << PSEUDO_ROWS, tables_in_cache = sizeof *table > p->real ? 4 : p->composites.n_turned;
    ptrdiff_t b, k, u, s, first, width, group;
    for (b = begin; b < end; b++, plane += (p->composites.block + 1) * LANES) {
        const ptrdiff_t rows = pseudo_min(p->composites.block, p->rows.n - b * p->composites.block), tables = pseudo_tables(rows);
        const uint16_t *codes = p->composites.turned + b * (p->composites.block / PSEUDO_ROWS) * p->metric.D_padded;
        for (first = 0; first < tables; first += width, codes += width * p->metric.D_padded) {
            width = pseudo_min(p->composites.n_turned, tables - first);
            for (group = 0; group < width; group += tables_in_cache) {  /* tables that the first-level cache holds */
                const ptrdiff_t count = pseudo_min(tables_in_cache, width - group);
                for (k = group; k < group + count; k++) {
                    const ptrdiff_t rows_after = rows - (first + k) * PSEUDO_ROWS;
                    const REAL *row = plane + (first + k) * PSEUDO_ROWS * LANES;
                    REAL *t = table + k * far;
                    vec_store(t, vec_fill(0.0));
                    for (u = 0; u < pseudo_min(PSEUDO_ROWS, rows_after); u++) {
                        const vec v = vec_load(row + u * LANES);
                        for (s = 0; s < (ptrdiff_t)1 << u; s++)
                            vec_store(t + (((ptrdiff_t)1 << u) + s) * LANES, vec_load(t + s * LANES) + v);
                    }
                }
                NAME(collect)(table, codes + group, width, count, p->D, g + LANES);
            }
        }
    }
}

/* g (A, 1 + D, V) columns 1... += sums over the rows of the blocks' planes, by way of a table */
TARGET static void NAME(reduce)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                const REAL *planes, REAL *tiles, REAL *table, REAL *g)
{
    const ptrdiff_t gap = t->span * (p->composites.block + 1) * LANES;
    ptrdiff_t a;
    for (a = 0; a < t->A; a++, planes += gap, g += (1 + p->D) * LANES) {
        if (p->composites.turned) {
            NAME(exchange)(p, begin, end, planes, tiles, g);
            continue;
        }
        memset(table, 0, (size_t)p->composites.states[p->composites.n_composites] * LANES * sizeof *table);
        NAME(backward)(p, t->on, begin, end, planes, table);
        NAME(fold)(p, t->on, table, g);
    }
}

/* Fill sums (2 + A, V) over all rows and, unless g is NULL, g (A, 1 + D, V) with sums over rows of p times each column */
TARGET static void NAME(pass)(const pseudo_problem *p, const pseudo_task *t, const REAL *x, const REAL *h,
                              int shift, REAL *tiles, REAL *planes, REAL *table, REAL *sums, REAL *g)
{
    ptrdiff_t b, end, a;
    memset(sums, 0, (size_t)(3 * (2 + t->A)) * LANES * sizeof *sums);
    if (g)
        memset(g, 0, (size_t)(t->A * (1 + p->D)) * LANES * sizeof *g);
    for (b = 0; b < p->composites.n_blocks; b = end) {
        end = pseudo_min(b + t->span, p->composites.n_blocks);
        NAME(forward)(p, t, b, end, x, h, tiles, planes);
        NAME(activate)(p, t, b, end, shift, planes, sums);
        if (g)
            NAME(reduce)(p, t, b, end, planes, tiles, table, g);
    }
    for (a = 0; a < t->A && g; a++)
        vec_store(g + a * (1 + p->D) * LANES, vec_load(sums + (2 + a) * LANES));
}

/* sums and g as `pass` fills them where all couplings are zero: in closed form, without reading rows */
TARGET static void NAME(independent)(const pseudo_problem *p, const pseudo_task *t, const REAL *h, REAL *sums,
                                     REAL *g)
{
    const ptrdiff_t far = (1 + p->D) * LANES;
    const REAL *live = t->live, rows = (REAL)(1.0 / p->rows.scale);
    vec top = vec_fill(0.0), z, curve = vec_fill(0.0);
    ptrdiff_t a, c;
    for (a = 0; a < t->A; a++)
        top = NAME(larger)(vec_load(h + a * LANES), top);
    z = NAME(exp)(-top);
    for (a = 0; a < t->A; a++)
        z += NAME(exp)(vec_load(h + a * LANES) - top) * vec_load(live + a * LANES);
    for (a = 0; a < t->A; a++) {
        const vec prob = NAME(exp)(vec_load(h + a * LANES) - top) * vec_load(live + a * LANES) / z;
        curve += prob - prob * prob;
        vec_store(sums + (2 + a) * LANES, prob * rows);
        vec_store(g + a * far, prob * rows);
        for (c = 1; c <= p->D; c++)
            vec_store(g + a * far + c * LANES, prob * (rows * (REAL)p->moments.mean[c]));
    }
    vec_store(sums, (top + NAME(log)(z)) * rows);
    vec_store(sums + LANES, curve * rows);
#ifndef SINGLE
    for (ptrdiff_t k = 0; t->base && k < p->composites.n_blocks * t->A * p->composites.block; k++)
        NAME(storef)(t->base + k * LANES, NAME(compress)(vec_load(g + k / p->composites.block % t->A * far) / vec_fill(rows)));
#endif
}
