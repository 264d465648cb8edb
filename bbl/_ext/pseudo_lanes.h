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

#ifdef SINGLE
#define MANTISSA 23     /* bits of the fraction, */
#define BIAS 127        /* what is added to the exponent */
#define SAFE 40.0       /* below this, products of two normalisers do not overflow */
#define TINY 1e-30      /* below this, products are not trusted */
#define NOISE 1e-5      /* rounding of the objective, */
#define FLAT 1e-5       /* of the cosine of step and gradient change */
#else
#define MANTISSA 52
#define BIAS 1023
#define SAFE 300.0
#define TINY 1e-280
#define NOISE 1e-13
#define FLAT 1e-9
#endif

#ifdef SINGLE
/* exp(x) for x <= 0, cut at -87 (2e-38); relative error below 2e-7 (polynomial of Cephes' expf). NaN stays NaN. */
TARGET static inline vec NAME(exp)(vec x)
{
    vec t, n, r, p;
    x = NAME(choose)(MASK(x < fill(-87.0)), fill(-87.0), x);
    t = x * 1.44269504f + 12582912.0f;  /* adding 1.5 * 2^23 leaves the rounded power in the low bits */
    n = t - 12582912.0f;
    r = x - n * 0.693359375f + n * 2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return NAME(real)(NAME(bits)(p) + (NAME(bits)(t) << 23));
}

/* log(z) for normal z >= 1; relative error below 2e-7 (polynomial of Cephes' logf) */
TARGET static inline vec NAME(log)(vec z)
{
    const words k = (NAME(bits)(z) - 0x3f3504f3u) >> 23;
    const vec e = NAME(real)(k | 0x4b000000u) - 8388608.0f;
    const vec f = NAME(real)(NAME(bits)(z) - (k << 23)) - 1.0f;
    vec p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return f + (p * f * f * f - e * 2.12194440e-4f - f * f * 0.5f) + e * 0.693359375f;
}
#else
/* exp(x) for x <= 0, cut at -708 (3e-308); relative error below 3e-16. NaN stays NaN. */
TARGET static inline vec NAME(exp)(vec x)
{
    vec t, n, r, s, p, q;
    x = NAME(choose)(MASK(x < fill(-708.0)), fill(-708.0), x);
    t = x * 1.4426950408889634 + 6755399441055744.0;  /* adding 1.5 * 2^52 leaves the rounded power in the low bits */
    n = t - 6755399441055744.0;
    r = x - n * 6.93147180369123816490e-01;
    r = r - n * 1.90821492927058770002e-10;
    s = r * r;
    p = r * 2.5100375832561234e-08 + 2.7620075879983367e-07;
    q = r * 2.7557268480310024e-06 + 2.4801521322368692e-05;
    p = p * s + q;
    q = r * 0.00019841269863040545 + 0.0013888888917196719;
    p = p * s + q;
    q = r * 0.008333333333330065 + 0.041666666666624164;
    p = p * s + q;
    q = r * 0.16666666666666669 + 0.5;
    p = p * s + q;
    p = p * s + r + 1.0;
    return NAME(real)(NAME(bits)(p) + (NAME(bits)(t) << 52));
}

/* log(z) for normal z >= 1; error below 1 ulp or so (reduction and polynomial of fdlibm's e_log.c) */
TARGET static inline vec NAME(log)(vec z)
{
    const words shift = NAME(bits)(z) - 0x3fe6a09e00000000u, k = shift >> 52;
    const vec e = NAME(real)(k | 0x4330000000000000u) - 4503599627370496.0;
    const vec f = NAME(real)(NAME(bits)(z) - (k << 52)) - 1.0;
    const vec s = f / (f + 2.0), t = s * s, u = t * t, half = 0.5 * f * f;
    const vec even = u * (u * (u * 1.531383769920937332e-01 + 2.222219843214978396e-01) + 3.999999999940941908e-01);
    const vec odd = t * (u * (u * (u * 1.479819860511658591e-01 + 1.818357216161805012e-01) +
                              2.857142874366239149e-01) + 6.666666666666735130e-01);
    return e * 6.93147180369123816490e-01 - ((half - (s * (half + even + odd) + e * 1.90821492927058770002e-10)) - f);
}
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

/* A product of many numbers >= 1: the exponent is moved out of the product after every factor, so nothing overflows */
TARGET static inline vec NAME(split)(vec product, words *exponent)
{
    *exponent += NAME(bits)(product) >> MANTISSA;
    return NAME(real)((NAME(bits)(product) & (((WORD)1 << MANTISSA) - 1)) | ((WORD)BIAS << MANTISSA));
}

/* Its logarithm, `factors` factors having been split */
TARGET static inline vec NAME(split_log)(vec product, words exponent, ptrdiff_t factors)
{
    const REAL magic = (REAL)((WORD)1 << MANTISSA);  /* a number of this size has its integer in its low bits */
    const vec power = NAME(real)(exponent | (WORD)(BIAS + MANTISSA) << MANTISSA) - (magic + (REAL)(BIAS * factors));
    return NAME(log)(product) + power * (REAL)6.93145751953125e-01 + power * (REAL)1.42860682030941723212e-06;
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

/* Logits of row blocks to probabilities; adds to sums (2 + A, V): log normalisers, curvature, p of each logit. Each
   block is summed by itself first (behind sums), so that long sums keep their digits in single precision too. */
TARGET static void NAME(activate)(const pseudo_problem *p, const pseudo_task *t, ptrdiff_t begin, ptrdiff_t end,
                                  int shift, REAL *planes, REAL *sums)
{
    const ptrdiff_t stride = (p->block + 1) * LANES, size = (2 + t->A) * LANES;
    REAL *part = sums + size;
    ptrdiff_t b, k;
    for (b = begin; b < end; b++, planes += stride) {
        const ptrdiff_t rows = pseudo_min(p->block, p->n - b * p->block);
        const double *w = p->equal ? NULL : p->weights + b * p->block;
        if (t->A == 1)
            NAME(logistic)(planes, w, rows, shift, part);
        else
            NAME(softmax)(planes, t->A, t->span * stride, t->live, w, rows, shift, part);
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
    ptrdiff_t a, c;
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
}
