/* Logits of rows become probabilities, for one lane block; pseudo_kernel.h includes it first.

   Set before inclusion: what vector.h asks for.

   Normalisers are summed up. With equal weights they are multiplied and one log is taken per row block. The largest
   logit is subtracted first (shift) only where the parameters' size does not rule out an overflow.

   Conventions: as in pseudo_lanes.h. */

#include "pseudo_problem.h"
#include "vector.h"
#include "vector_math.h"

#ifdef SINGLE
#define SAFE 40.0       /* below this, products of two normalisers do not overflow */
#define TINY 1e-30      /* below this, products are not trusted */
#define NOISE 1e-5      /* rounding of the objective, */
#define FLAT 1e-5       /* of the cosine of step and gradient change */
#define SUMMED 128      /* rows that are summed one after the other */
#else
#define SAFE 300.0
#define TINY 1e-280
#define NOISE 1e-13
#define FLAT 1e-9
#define SUMMED PTRDIFF_MAX
#endif

/* One logit: rows of logits to P(level 1) times weight. sums = (log normalisers, p (1 - p), p) over the rows.
   Two rows share a division; with `shift` exp takes -|logit|, which cannot overflow. */
TARGET static void NAME(logistic)(REAL *row, const double *w, ptrdiff_t rows, int shift, REAL *sums)
{
    const vec one = vec_fill(1.0), zero = vec_fill(0.0);
    vec log_z = zero, curve = zero, total = zero, z = one;
    words exponent = (words){0};
    ptrdiff_t r;
    for (r = 0; r < rows; r += 2, row += 2 * LANES) {
        const int pair = r + 1 < rows;
        const vec f = vec_load(row), g = pair ? vec_load(row + LANES) : zero;
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
        vec_store(row, pf);
        if (pair)
            vec_store(row + LANES, pg);
    }
    vec_store(sums, log_z + NAME(split_log)(z, exponent, w ? 0 : rows / 2));
    vec_store(sums + LANES, curve);
    vec_store(sums + 2 * LANES, total);
}

/* A > 1 logits, `gap` apart, likewise; live (A, V) is 1 where the lane's site has that level.
   sums = (log normalisers, sum_a p_a (1 - p_a), p of each logit) over the rows */
TARGET static void NAME(softmax)(REAL *row, ptrdiff_t A, ptrdiff_t gap, const REAL *live, const double *w,
                                 ptrdiff_t rows, int shift, REAL *sums)
{
    REAL *total = sums + 2 * LANES;
    vec log_z = vec_fill(0.0), curve = log_z, product = vec_fill(1.0);
    words exponent = (words){0};
    ptrdiff_t r, a;
    memset(total, 0, (size_t)A * LANES * sizeof *total);
    for (r = 0; r < rows; r++, row += LANES) {
        vec top = vec_fill(0.0), z = vec_fill(1.0), square = vec_fill(0.0), scale;
        if (shift) {
            for (a = 0; a < A; a++)
                top = NAME(larger)(vec_load(row + a * gap), top);
            z = NAME(exp)(-top);
        }
        for (a = 0; a < A; a++) {
            const vec e = NAME(exp)(vec_load(row + a * gap) - top) * vec_load(live + a * LANES);
            z += e;
            vec_store(row + a * gap, e);
        }
        scale = vec_fill(1.0) / z;
        if (w)
            log_z += (top + NAME(log)(z)) * (REAL)w[r];
        else {
            log_z += top;
            product = NAME(split)(product * z, &exponent);
        }
        for (a = 0; a < A; a++) {
            vec prob = vec_load(row + a * gap) * scale;
            square += prob - prob * prob;
            if (w)
                prob *= (REAL)w[r];
            vec_store(total + a * LANES, vec_load(total + a * LANES) + prob);
            vec_store(row + a * gap, prob);
        }
        curve += w ? square * (REAL)w[r] : square;
    }
    vec_store(sums, log_z + NAME(split_log)(product, exponent, w ? 0 : rows));
    vec_store(sums + LANES, curve);
}

#ifdef SINGLE
/* The probability that `compress` (double precision) stored */
TARGET static inline vec NAME(decompress)(vec compressed)
{
    return NAME(choose)(MASK(compressed < vec_fill(0.0)), vec_fill(1.0) + compressed, compressed);
}

/* Replace changes of the logits by weighted changes of the probabilities, which were `base` (A, block, V) at the anchor,
   stored by keep_probabilities: p_a ((1 - p_a) e_a - sum_{b != a} p_b e_b) / (1 + sum_b p_b e_b) with
   e = exp(change) - 1, which avoids small differences of large numbers.
   sums = (0, sum_a p_a (1 - p_a), change of p of each logit) over the rows */
TARGET static void NAME(change)(REAL *row, ptrdiff_t A, ptrdiff_t gap, const float *base, ptrdiff_t far,
                                const double *w, ptrdiff_t rows, REAL *sums)
{
    REAL *total = sums + 2 * LANES;
    vec curve = vec_fill(0.0);
    ptrdiff_t r, a, b;
    memset(sums, 0, (size_t)(2 + A) * LANES * sizeof *sums);
    for (r = 0; r < rows; r++, row += LANES, base += LANES) {
        vec sum_changes = vec_fill(0.0), square = sum_changes, changes_before = sum_changes, scale;
        for (a = 0; a < A; a++) {
            vec_store(row + a * gap, NAME(expm1)(vec_load(row + a * gap)));
            sum_changes += NAME(decompress)(vec_load(base + a * far)) * vec_load(row + a * gap);
        }
        scale = vec_fill(1.0) / (vec_fill(1.0) + sum_changes);
        for (a = 0; a < A; a++) {
            const vec compressed = vec_load(base + a * far), p = NAME(decompress)(compressed), e = vec_load(row + a * gap);
            vec other_changes = changes_before, increment;
            for (b = a + 1; b < A; b++)
                other_changes += NAME(decompress)(vec_load(base + b * far)) * vec_load(row + b * gap);
            increment = (NAME(choose)(MASK(compressed < vec_fill(0.0)), -compressed, vec_fill(1.0) - compressed) * e - other_changes) * p * scale;
            changes_before += p * e;
            square += (p + increment) * (vec_fill(1.0) - (p + increment));
            if (w)
                increment *= (REAL)w[r];
            vec_store(total + a * LANES, vec_load(total + a * LANES) + increment);
            vec_store(row + a * gap, increment);
        }
        curve += w ? square * (REAL)w[r] : square;
    }
    vec_store(sums + LANES, curve);
}
#else
/* p in single precision if p <= 1/2, else p - 1, which is negative: digits near 0 and near 1 are both kept */
TARGET static inline vf NAME(compress)(vec p)
{
    return NARROW(NAME(choose)(MASK(p > vec_fill(0.5)), p - vec_fill(1.0), p));
}

/* Store the probabilities of one logit, without the row weights, compressed in base (rows, V) */
TARGET static void NAME(keep_probabilities)(const REAL *row, const double *w, ptrdiff_t rows, float *base)
{
    ptrdiff_t r;
    for (r = 0; r < rows; r++)
        NAME(storef)(base + r * LANES, NAME(compress)(w ? vec_load(row + r * LANES) / w[r] : vec_load(row + r * LANES)));
}
#endif
