/* Objective and gradient of one lane block of the pseudo-likelihood; pseudo_kernel.h includes it.

   Set before inclusion: what vector.h asks for.

   (a) Every function works on vectors whose lanes are response sites; no lane ever looks at another one.
   (b) forward: table of summed couplings per composite, then one load-add per row and composite into the planes.
       The tables of a chunk of composites stay in the first-level cache while all rows pass.
   (c) softmax: planes become probabilities (times row weights), normalisers are summed up. With equal weights they
       are multiplied and one log is taken per row block. The largest logit is subtracted first (shift) only where the
       parameters' size does not rule out an overflow.
   (d) backward: rows of a block, sorted by joint state and filled up to multiples of four, are summed in registers,
       states with equally many rows one after the other, so that the processor foresees the ends of the loops.
       The state where all predictors of a composite are at their reference has no parameter and is left out.

   Conventions: V = LANES; planes (A, span, block + 1, V) of `span` row blocks, the last row of each always zero;
   parameters and gradients (A, 1 + D, V); tables (n_states, V). */

#include "pseudo_problem.h"
#include "vector.h"
#include "vector_math.h"

#ifdef SINGLE
#define SAFE 40.0       /* below this, products of two normalisers do not overflow */
#define TINY 1e-30      /* below this, products are not trusted */
#define NOISE 1e-5      /* rounding of the objective, */
#define FLAT 1e-5       /* of the cosine of step and gradient change */
#else
#define SAFE 300.0
#define TINY 1e-280
#define NOISE 1e-13
#define FLAT 1e-9
#endif

/* Tables of the summed couplings of chunk `ch` from the parameters x (1 + D, V) of one logit */
TARGET static void NAME(tabulate)(const pseudo_problem *p, ptrdiff_t ch, const REAL *x, REAL *table)
{
    ptrdiff_t c, j, b, s, size;
    for (c = p->chunk[ch]; c < p->chunk[ch + 1]; c++) {
        REAL *t = table + (p->states[c] - p->states[p->chunk[ch]]) * LANES;
        store(t, fill(0.0));
        for (j = p->first[c], size = 1; j < p->first[c + 1]; size *= p->n_levels[j++])
            for (b = 1; b < p->n_levels[j]; b++) {
                const vec v = load(x + (p->start[j] + b) * LANES);
                for (s = 0; s < size; s++)
                    store(t + (b * size + s) * LANES, load(t + s * LANES) + v);
            }
    }
}

/* Add the chunk's table entries of `rows` rows (rounded up to 4) to Q planes, `gap` doubles apart; Q tables are `step`
   apart. With init (Q, V) the planes are overwritten, beginning there. */
#define GATHER(Q)                                                                                                      \
    TARGET static void NAME(gather##Q)(const REAL *table, ptrdiff_t step, const uint16_t *codes, ptrdiff_t width,    \
                                       ptrdiff_t rows, const REAL *init, REAL *plane, ptrdiff_t gap)               \
    {                                                                                                                  \
        ptrdiff_t r, c, q, u, e;                                                                                       \
        for (r = 0; r < rows; r += 4, codes += 4 * width, plane += 4 * LANES) {                                        \
            vec s[4][Q];                                                                                               \
            for (q = 0; q < Q; q++)                                                                                    \
                if (init)                                                                                              \
                    s[0][q] = s[1][q] = s[2][q] = s[3][q] = load(init + q * LANES);                                    \
                else {                                                                                                 \
                    s[0][q] = load(plane + q * gap);                                                                   \
                    s[1][q] = load(plane + q * gap + LANES);                                                           \
                    s[2][q] = load(plane + q * gap + 2 * LANES);                                                       \
                    s[3][q] = load(plane + q * gap + 3 * LANES);                                                       \
                }                                                                                                      \
            for (c = 0; c + 4 <= width; c += 4)                                                                        \
                for (u = 0; u < 4; u++) {  /* one load brings four offsets: loads are what limits the loop */          \
                    uint64_t word;                                                                                     \
                    memcpy(&word, codes + u * width + c, 8);                                                           \
                    for (e = 0; e < 4; e++, word >>= 16)                                                               \
                        for (q = 0; q < Q; q++)                                                                        \
                            s[u][q] += load(table + (uint16_t)word + q * step);                                        \
                }                                                                                                      \
            for (; c < width; c++)                                                                                     \
                for (u = 0; u < 4; u++)                                                                                \
                    for (q = 0; q < Q; q++)                                                                            \
                        s[u][q] += load(table + codes[u * width + c] + q * step);                                      \
            for (q = 0; q < Q; q++) {                                                                                  \
                store(plane + q * gap, s[0][q]);                                                                       \
                store(plane + q * gap + LANES, s[1][q]);                                                               \
                store(plane + q * gap + 2 * LANES, s[2][q]);                                                           \
                store(plane + q * gap + 3 * LANES, s[3][q]);                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
GATHER(1)
GATHER(2)
GATHER(3)
#undef GATHER

/* Planes of the row blocks `begin` to `end` = fields h (A, V) plus summed couplings of x (A, 1 + D, V) */
TARGET static void NAME(forward)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                 const REAL *x, const REAL *h, REAL *table, REAL *planes)
{
    const ptrdiff_t far = (1 + p->D) * LANES, stride = (p->block + 1) * LANES, gap = t->span * stride;
    ptrdiff_t a, Q, q, ch, b;
    for (a = 0; a < t->A; a += Q) {
        int begun = 0;
        Q = t->A - a == 4 ? 2 : t->A - a < PSEUDO_TILE ? t->A - a : PSEUDO_TILE;
        for (ch = 0; ch < p->n_chunks; ch++) {
            const ptrdiff_t width = p->chunk[ch + 1] - p->chunk[ch];
            const ptrdiff_t step = (p->states[p->chunk[ch + 1]] - p->states[p->chunk[ch]]) * LANES;
            if (!t->chunk_on[ch] && !(ch == p->n_chunks - 1 && !begun))
                continue;
            for (q = 0; q < Q; q++)
                NAME(tabulate)(p, ch, x + (a + q) * far, table + q * step);
            for (b = begin; b < end; b++) {
                const uint16_t *codes = p->codes + p->n_padded * p->chunk[ch] + b * p->block * width;
                const ptrdiff_t rows = pseudo_min(p->block, p->n - b * p->block);
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

/* One logit: rows of logits to P(level 1) times weight. sums = (log normalisers, p (1 - p), p) over the rows.
   Two rows share a division; with `shift` exp takes -|logit|, which cannot overflow. */
TARGET static void NAME(logistic)(REAL *row, const double *w, ptrdiff_t rows, int shift, REAL *sums)
{
    const vec one = fill(1.0), zero = fill(0.0);
    vec log_z = zero, curve = zero, total = zero, z = one;
    words exponent = (words){0};
    ptrdiff_t r;
    for (r = 0; r < rows; r += 2, row += 2 * LANES) {
        const int pair = r + 1 < rows;
        const vec f = load(row), g = pair ? load(row + LANES) : zero;
        const vec fp = shift ? NAME(larger)(f, zero) : zero, gp = shift ? NAME(larger)(g, zero) : zero;
        const vec ef = NAME(exp)(f - fp - fp), eg = pair ? NAME(exp)(g - gp - gp) : zero;
        const vec zf = ef + one, zg = eg + one, product = zf * zg, inverse = one / product;
        const vec jf = inverse * zg, jg = inverse * zf, kf = ef * jf, kg = eg * jg;
        vec pf = kf, pg = pair ? kg : zero;
        if (shift) {
            pf = NAME(choose)(MASK(f > zero), jf, kf);
            pg = pair ? NAME(choose)(MASK(g > zero), jg, kg) : zero;
        }
        if (w) {
            const REAL wf = (REAL)w[r], wg = pair ? (REAL)w[r + 1] : 0;
            log_z += (fp + NAME(log)(zf)) * wf + (gp + NAME(log)(zg)) * wg;
            curve += jf * kf * wf + jg * kg * wg;
            pf *= wf;
            pg *= wg;
        } else {
            log_z += fp + gp;
            z = pair ? NAME(split)(z * product, &exponent) : z * product;
            curve += jf * kf + jg * kg;
        }
        total += pf + pg;
        store(row, pf);
        if (pair)
            store(row + LANES, pg);
    }
    store(sums, log_z + NAME(split_log)(z, exponent, w ? 0 : rows / 2));
    store(sums + LANES, curve);
    store(sums + 2 * LANES, total);
}

/* A > 1 logits, `gap` apart, likewise; live (A, V) is 1 where the lane's site has that level.
   sums = (log normalisers, sum_a p_a (1 - p_a), p of each logit) over the rows */
TARGET static void NAME(softmax)(REAL *row, ptrdiff_t A, ptrdiff_t gap, const REAL *live, const double *w,
                                 ptrdiff_t rows, int shift, REAL *sums)
{
    REAL *total = sums + 2 * LANES;
    vec log_z = fill(0.0), curve = log_z, product = fill(1.0);
    words exponent = (words){0};
    ptrdiff_t r, a;
    memset(total, 0, (size_t)A * LANES * sizeof *total);
    for (r = 0; r < rows; r++, row += LANES) {
        vec top = fill(0.0), z = fill(1.0), square = fill(0.0), scale;
        if (shift) {
            for (a = 0; a < A; a++)
                top = NAME(larger)(load(row + a * gap), top);
            z = NAME(exp)(-top);
        }
        for (a = 0; a < A; a++) {
            const vec e = NAME(exp)(load(row + a * gap) - top) * load(live + a * LANES);
            z += e;
            store(row + a * gap, e);
        }
        scale = fill(1.0) / z;
        if (w)
            log_z += (top + NAME(log)(z)) * (REAL)w[r];
        else {
            log_z += top;
            product = NAME(split)(product * z, &exponent);
        }
        for (a = 0; a < A; a++) {
            vec prob = load(row + a * gap) * scale;
            square += prob - prob * prob;
            if (w)
                prob *= (REAL)w[r];
            store(total + a * LANES, load(total + a * LANES) + prob);
            store(row + a * gap, prob);
        }
        curve += w ? square * (REAL)w[r] : square;
    }
    store(sums, log_z + NAME(split_log)(product, exponent, w ? 0 : rows));
    store(sums + LANES, curve);
}

#ifdef SINGLE
/* Planes hold by how much logits change where probabilities were `base` (A, block, V); they become what that changes of
   the probabilities, times weights. sums = (0, sum_a p_a (1 - p_a), change of p of each logit) over the rows */
TARGET static void NAME(change)(REAL *row, ptrdiff_t A, ptrdiff_t gap, const float *base, ptrdiff_t far,
                                const double *w, ptrdiff_t rows, REAL *sums)
{
    REAL *total = sums + 2 * LANES;
    vec curve = fill(0.0);
    ptrdiff_t r, a;
    memset(sums, 0, (size_t)(2 + A) * LANES * sizeof *sums);
    for (r = 0; r < rows; r++, row += LANES, base += LANES) {
        vec shift = fill(0.0), square = shift, scale;
        for (a = 0; a < A; a++) {
            const vec e = NAME(expm1)(load(row + a * gap));
            shift += load(base + a * far) * e;
            store(row + a * gap, e);
        }
        scale = fill(1.0) / (fill(1.0) + shift);
        for (a = 0; a < A; a++) {
            const vec p = load(base + a * far);
            vec more = p * (load(row + a * gap) - shift) * scale;
            const vec now = p + more;
            square += now - now * now;
            if (w)
                more *= (REAL)w[r];
            store(total + a * LANES, load(total + a * LANES) + more);
            store(row + a * gap, more);
        }
        curve += w ? square * (REAL)w[r] : square;
    }
    store(sums + LANES, curve);
}
#else
/* base (rows, V) <- the probabilities of one logit, without the weights */
TARGET static void NAME(keep)(const REAL *row, const double *w, ptrdiff_t rows, float *base)
{
    ptrdiff_t r;
    for (r = 0; r < rows; r++)
        NAME(storef)(base + r * LANES, NARROW(w ? load(row + r * LANES) / w[r] : load(row + r * LANES)));
}
#endif

/* Logits of row blocks to probabilities; adds to sums (2 + A, V): log normalisers, curvature, p of each logit. Each
   block is summed by itself first (behind sums), so that long sums keep their digits in single precision too. */
TARGET static void NAME(activate)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                  int shift, REAL *planes, REAL *sums)
{
    const ptrdiff_t stride = (p->block + 1) * LANES, gap = t->span * stride, size = (2 + t->A) * LANES;
    REAL *part = sums + size;
    ptrdiff_t b, k;
    for (b = begin; b < end; b++, planes += stride) {
        const ptrdiff_t rows = pseudo_min(p->block, p->n - b * p->block), far = p->block * LANES;
        const double *w = p->equal ? NULL : p->weights + b * p->block;
        float *base = t->base ? t->base + b * t->A * far : NULL;
#ifdef SINGLE
        if (base)
            NAME(change)(planes, t->A, gap, base, far, w, rows, part);
        else
#endif
        if (t->A == 1)
            NAME(logistic)(planes, w, rows, shift, part);
        else
            NAME(softmax)(planes, t->A, gap, t->live, w, rows, shift, part);
#ifndef SINGLE
        for (k = 0; base && k < t->A; k++)
            NAME(keep)(planes + k * gap, w, rows, base + k * far);
#endif
        for (k = 0; k < size; k += LANES)
            store(sums + k, load(sums + k) + load(part + k));
    }
}

/* table (n_states, V) += sums over rows of one plane by joint state, for the composites that are on */
TARGET static void NAME(backward)(const pseudo_problem *p, const uint8_t *on, ptrdiff_t begin, ptrdiff_t end,
                                  const REAL *plane, REAL *table)
{
    ptrdiff_t b, c, k, g;
    for (b = begin; b < end; b++, plane += (p->block + 1) * LANES)
        for (c = 0; c < p->n_composites; c++) {
            const uint16_t *at = p->sorted + p->sorted_first[b * p->n_composites + c];
            REAL *t = table + p->states[c] * LANES;
            while (on[c] && *at) {
                const ptrdiff_t fours = *at++;
                for (k = *at++; k > 0; k--) {
                    REAL *sum = t + *at++;
                    vec v0 = load(sum), v1 = fill(0.0), v2 = v1, v3 = v1;
                    for (g = 0; g < fours; g++, at += 4) {
                        uint64_t word;  /* one load brings four offsets: loads are what limits the loop */
                        memcpy(&word, at, 8);
                        v0 += load(plane + (uint16_t)word);
                        v1 += load(plane + (uint16_t)(word >> 16));
                        v2 += load(plane + (uint16_t)(word >> 32));
                        v3 += load(plane + (uint16_t)(word >> 48));
                    }
                    store(sum, (v0 + v1) + (v2 + v3));
                }
            }
        }
}

/* Add the table's sums over states to the columns of the single predictors, g (1 + D, V); destroys the table */
TARGET static void NAME(fold)(const pseudo_problem *p, const uint8_t *on, REAL *table, REAL *g)
{
    ptrdiff_t c, j, b, s, size;
    for (c = 0; c < p->n_composites; c++) {
        REAL *t = table + p->states[c] * LANES;
        size = p->states[c + 1] - p->states[c];
        for (j = p->first[c + 1] - 1; j >= p->first[c] && on[c]; j--) {
            size /= p->n_levels[j];
            for (b = 1; b < p->n_levels[j]; b++) {
                REAL *column = g + (p->start[j] + b) * LANES;
                vec v = load(column);
                for (s = 0; s < size; s++) {
                    const vec u = load(t + (b * size + s) * LANES);
                    v += u;
                    store(t + s * LANES, load(t + s * LANES) + u);
                }
                store(column, v);
            }
        }
    }
}

/* g (A, 1 + D, V) columns 1... += sums over the rows of the blocks' planes, by way of the table */
TARGET static void NAME(reduce)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                const REAL *planes, REAL *table, REAL *g)
{
    const ptrdiff_t gap = t->span * (p->block + 1) * LANES;
    ptrdiff_t a;
    for (a = 0; a < t->A; a++, planes += gap, g += (1 + p->D) * LANES) {
        memset(table, 0, (size_t)p->states[p->n_composites] * LANES * sizeof *table);
        NAME(backward)(p, t->on, begin, end, planes, table);
        NAME(fold)(p, t->on, table, g);
    }
}

/* All rows: sums (2 + A, V) and, where g is given, g (A, 1 + D, V) with the sums over rows of p times each column */
TARGET static void NAME(pass)(const pseudo_problem *p, const pseudo_task *t, const REAL *x, const REAL *h,
                              int shift, REAL *tiles, REAL *planes, REAL *table, REAL *sums, REAL *g)
{
    ptrdiff_t b, end, a;
    memset(sums, 0, (size_t)(2 + t->A) * LANES * sizeof *sums);
    if (g)
        memset(g, 0, (size_t)(t->A * (1 + p->D)) * LANES * sizeof *g);
    for (b = 0; b < p->n_blocks; b = end) {
        end = pseudo_min(b + t->span, p->n_blocks);
        NAME(forward)(p, t, b, end, x, h, tiles, planes);
        NAME(activate)(p, t, b, end, shift, planes, sums);
        if (g)
            NAME(reduce)(p, t, b, end, planes, table, g);
    }
    for (a = 0; a < t->A && g; a++)
        store(g + a * (1 + p->D) * LANES, load(sums + (2 + a) * LANES));
}

/* The same where all couplings are zero, in closed form: no row is looked at; fills g as `reduce` would */
TARGET static void NAME(independent)(const pseudo_problem *p, const pseudo_task *t, const REAL *h, REAL *sums,
                                     REAL *g)
{
    const ptrdiff_t far = (1 + p->D) * LANES;
    const REAL *live = t->live, rows = (REAL)(1.0 / p->scale);
    vec top = fill(0.0), z, curve = fill(0.0);
    ptrdiff_t a, c, b, k;
    for (a = 0; a < t->A; a++)
        top = NAME(larger)(load(h + a * LANES), top);
    z = NAME(exp)(-top);
    for (a = 0; a < t->A; a++)
        z += NAME(exp)(load(h + a * LANES) - top) * load(live + a * LANES);
    for (a = 0; a < t->A; a++) {
        const vec prob = NAME(exp)(load(h + a * LANES) - top) * load(live + a * LANES) / z;
        curve += prob - prob * prob;
        store(sums + (2 + a) * LANES, prob * rows);
        store(g + a * far, prob * rows);
        for (c = 1; c <= p->D; c++)
            store(g + a * far + c * LANES, prob * (rows * (REAL)p->mean[c]));
    }
    store(sums, (top + NAME(log)(z)) * rows);
    store(sums + LANES, curve * rows);
    for (b = 0; t->base && b < p->n_blocks; b++)
        for (a = 0; a < t->A; a++)
            for (k = 0; k < p->block; k++)
                NAME(storef)(t->base + ((b * t->A + a) * p->block + k) * LANES,
                             NARROW(load(g + a * far) / fill(rows)));
}
