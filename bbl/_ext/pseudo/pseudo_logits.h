/* Probabilities of the rows from their logits, for one lane block; pseudo_kernel.h includes this file first.

   For terms see pseudo_problem.h, for names pseudo_kernel.h. A site with levels 0 ... A has the logits f_a of levels 1
   ... A against level 0 and the log normaliser ln(1 + sum_a exp f_a). Every function here replaces the logits of `rows`
   rows by probabilities times the row weights w (rows,) (NULL: no weights) in place: `row` (A, rows, V), with the
   logits of a row `plane_stride` numbers apart. It writes sums (2 + A, V) over these rows: log normalisers, curvature
   sum_a p_a (1 - p_a), and p_a of each a. In the code r is a row, a and b are logits.

   Without weights normalisers are multiplied and one log is taken at the end: NAME(split) moves the exponent of the
   product to an integer, to prevent overflow, and split_log, which takes the number of these calls, returns the log of
   both. With `shift` the largest logit is subtracted before exp; this is not needed if all logits are below SAFE. */

#include "pseudo_problem.h"
#include "vector.h"
#include "vector_math.h"

#ifdef SINGLE
#define SAFE 40.0           /* |logit| below which products of two normalisers do not overflow */
#define TINY 1e-30          /* smallest number whose products are assumed not to underflow */
#define NOISE 1e-5          /* relative rounding error of the objective */
#define FLAT 1e-5           /* rounding error of the cosine between step and gradient change */
#define SUM_ROWS 128        /* rows that are added consecutively before their sum is added to the total */
#else
#define SAFE 300.0
#define TINY 1e-280
#define NOISE 1e-13
#define FLAT 1e-9
#define SUM_ROWS PTRDIFF_MAX
#endif

/* One logit (A = 1): replace it in each row by the probability of level 1 times the row's weight. Two rows, with logits
   f and g, share a division. With `shift` exp is applied to -|logit|, which cannot overflow. */
TARGET static void NAME(logistic_rows)(REAL *row, const double *w, ptrdiff_t rows, int shift, REAL *sums)
{
    const vec one = vec_fill(1.0), zero = vec_fill(0.0);
    vec log_z = zero, curve = zero, total = zero, z_product = one;  /* sums over rows; product of normalisers */
    words exponent = (words){0};  /* sum of the exponents split off z_product */
    for (ptrdiff_t r = 0; r < rows; r += 2, row += 2 * LANES) {
        const int pair = r + 1 < rows;  /* 0 for the last of an odd number of rows */
        const vec f = vec_load(row), g = pair ? vec_load(row + LANES) : zero;
        /* f_max: the larger of the logits 0 and f of levels 0 and 1; f - 2 f_max = -|f| */
        const vec f_max = shift ? NAME(larger)(f, zero) : zero, g_max = shift ? NAME(larger)(g, zero) : zero;
        const vec exp_f = NAME(exp)(f - f_max - f_max), exp_g = pair ? NAME(exp)(g - g_max - g_max) : zero;
        /* normalisers of both rows, without exp f_max; 1 / zf = inverse zg */
        const vec zf = exp_f + one, zg = exp_g + one, product = zf * zg, inverse = one / product;
        /* probabilities of levels 0 and 1; a shift swaps them if the logit is positive */
        const vec p0_f = inverse * zg, p0_g = inverse * zf, p1_f = exp_f * p0_f, p1_g = exp_g * p0_g;
        vec pf = p1_f, pg = pair ? p1_g : zero;
        if (shift) {
            pf = NAME(choose)(MASK(f > zero), p0_f, p1_f);
            pg = pair ? NAME(choose)(MASK(g > zero), p0_g, p1_g) : zero;
        }
        if (w) {
            const REAL wf = (REAL)w[r], wg = pair ? (REAL)w[r + 1] : 0;
            log_z += (f_max + NAME(log)(zf)) * wf + (g_max + NAME(log)(zg)) * wg;
            curve += p0_f * p1_f * wf + p0_g * p1_g * wg;
            pf *= wf;
            pg *= wg;
        } else {
            log_z += f_max + g_max;
            /* split after each pair, so after rows / 2 calls; one more row does not overflow */
            z_product = pair ? NAME(split)(z_product * product, &exponent) : z_product * product;
            curve += p0_f * p1_f + p0_g * p1_g;
        }
        total += pf + pg;
        vec_store(row, pf);
        if (pair)
            vec_store(row + LANES, pg);
    }
    vec_store(sums, log_z + NAME(split_log)(z_product, exponent, w ? 0 : rows / 2));
    vec_store(sums + LANES, curve);
    vec_store(sums + 2 * LANES, total);
}

/* A > 1 logits: replace them in each row by the probabilities of levels 1 ... A times the row's weight. has_level (A,
   V) is 1 if the lane's site has the level, otherwise 0, which makes the probability 0. */
TARGET static void NAME(softmax_rows)(REAL *row, ptrdiff_t A, ptrdiff_t plane_stride, const REAL *has_level,
                                      const double *w, ptrdiff_t rows, int shift, REAL *sums)
{
    REAL *total = sums + 2 * LANES;  /* (A, V) sums of p_a */
    vec log_z = vec_fill(0.0), curve = log_z, z_product = vec_fill(1.0);  /* sums over rows; product of normalisers */
    words exponent = (words){0};  /* sum of the exponents split off z_product */
    memset(total, 0, (size_t)A * LANES * sizeof *total);
    for (ptrdiff_t r = 0; r < rows; r++, row += LANES) {
        /* f_max and z start with the logit of level 0 and its exp; scale = 1 / z */
        vec f_max = vec_fill(0.0), z = vec_fill(1.0), row_curve = vec_fill(0.0), scale;
        if (shift) {
            for (ptrdiff_t a = 0; a < A; a++)
                f_max = NAME(larger)(vec_load(row + a * plane_stride), f_max);
            z = NAME(exp)(-f_max);
        }
        for (ptrdiff_t a = 0; a < A; a++) {
            const vec e = NAME(exp)(vec_load(row + a * plane_stride) - f_max) * vec_load(has_level + a * LANES);
            z += e;
            vec_store(row + a * plane_stride, e);
        }
        scale = vec_fill(1.0) / z;
        if (w)
            log_z += (f_max + NAME(log)(z)) * (REAL)w[r];
        else {
            log_z += f_max;
            z_product = NAME(split)(z_product * z, &exponent);
        }
        for (ptrdiff_t a = 0; a < A; a++) {
            vec prob = vec_load(row + a * plane_stride) * scale;
            row_curve += prob - prob * prob;
            if (w)
                prob *= (REAL)w[r];
            vec_store(total + a * LANES, vec_load(total + a * LANES) + prob);
            vec_store(row + a * plane_stride, prob);
        }
        curve += w ? row_curve * (REAL)w[r] : row_curve;
    }
    vec_store(sums, log_z + NAME(split_log)(z_product, exponent, w ? 0 : rows));
    vec_store(sums + LANES, curve);
}

#ifdef SINGLE
/* Return the probabilities p, given `compressed`, which contains p or, if p > 1/2, the negative p - 1; see
   NAME(compress) of the kernel in double precision */
TARGET static inline vec NAME(decompress)(vec compressed)
{
    return NAME(choose)(MASK(compressed < vec_fill(0.0)), vec_fill(1.0) + compressed, compressed);
}

/* Mixed precision: replace the changes of the logits since the anchor by the changes of the probabilities times the row
   weights, in place. anchor_prob (A, rows, V) contains the probabilities at the anchor as written by store_anchor_prob,
   prob_stride apart for a row. With e_a = exp(change of logit a) - 1, the change of p_a is p_a ((1 - p_a) e_a
   - sum_{b != a} p_b e_b) / (1 + sum_b p_b e_b), which avoids small differences of large numbers. sums (2 + A, V): 0
   instead of log normalisers, the curvature at the new point, and the change of each p_a. */
TARGET static void NAME(change_rows)(REAL *row, ptrdiff_t A, ptrdiff_t plane_stride, const float *anchor_prob,
                                     ptrdiff_t prob_stride, const double *w, ptrdiff_t rows, REAL *sums)
{
    REAL *total = sums + 2 * LANES;  /* (A, V) sums of the changes of p_a */
    vec curve = vec_fill(0.0);
    memset(sums, 0, (size_t)(2 + A) * LANES * sizeof *sums);
    for (ptrdiff_t r = 0; r < rows; r++, row += LANES, anchor_prob += LANES) {
        /* sum_pe, pe_before, pe_others: sums of p_b e_b over all b, over b < a, over b != a */
        vec sum_pe = vec_fill(0.0), row_curve = sum_pe, pe_before = sum_pe, scale;
        for (ptrdiff_t a = 0; a < A; a++) {  /* replace the changes of the logits by e_a */
            vec_store(row + a * plane_stride, NAME(expm1)(vec_load(row + a * plane_stride)));
            sum_pe += NAME(decompress)(vec_load(anchor_prob + a * prob_stride)) * vec_load(row + a * plane_stride);
        }
        scale = vec_fill(1.0) / (vec_fill(1.0) + sum_pe);
        for (ptrdiff_t a = 0; a < A; a++) {
            const vec compressed = vec_load(anchor_prob + a * prob_stride), p = NAME(decompress)(compressed);
            const vec e = vec_load(row + a * plane_stride);
            vec pe_others = pe_before, one_minus_p, increment;
            for (ptrdiff_t b = a + 1; b < A; b++)
                pe_others += NAME(decompress)(vec_load(anchor_prob + b * prob_stride))
                    * vec_load(row + b * plane_stride);
            /* -compressed is 1 - p without rounding if p > 1/2 */
            one_minus_p = NAME(choose)(MASK(compressed < vec_fill(0.0)), -compressed, vec_fill(1.0) - compressed);
            increment = (one_minus_p * e - pe_others) * p * scale;
            pe_before += p * e;
            row_curve += (p + increment) * (vec_fill(1.0) - (p + increment));
            if (w)
                increment *= (REAL)w[r];
            vec_store(total + a * LANES, vec_load(total + a * LANES) + increment);
            vec_store(row + a * plane_stride, increment);
        }
        curve += w ? row_curve * (REAL)w[r] : row_curve;
    }
    vec_store(sums + LANES, curve);
}
#else
/* Return p in single precision if p <= 1/2, otherwise p - 1, which is negative: this keeps digits near 0 and near 1 */
TARGET static inline vf NAME(compress)(vec p)
{
    return NARROW(NAME(choose)(MASK(p > vec_fill(0.5)), p - vec_fill(1.0), p));
}

/* Write the probabilities of one level, as returned by NAME(compress), to anchor_prob (rows, V); row (rows, V) contains
   them times the row weights w (rows,), or unweighted if w is NULL */
TARGET static void NAME(store_anchor_prob)(const REAL *row, const double *w, ptrdiff_t rows, float *anchor_prob)
{
    for (ptrdiff_t r = 0; r < rows; r++) {
        const vec p = w ? vec_load(row + r * LANES) / w[r] : vec_load(row + r * LANES);
        NAME(storef)(anchor_prob + r * LANES, NAME(compress)(p));
    }
}
#endif
