/* Persistent variational inference: draws, conversion of parameters from simplex coding to the reference gauge and of
   gradients back, Adam.

   Reference gauge (a convention that makes parameters unique): fields and couplings of the D non-reference levels of
   all m predictors, 0 for reference levels.

   Simplex coding: fields and couplings are coefficients of the contrasts f T of the L levels of a predictor, f = sqrt(L
   / (L - 1)). T (L, L - 1) contains Helmert contrasts: column k = 1..L - 1 is t_k = 1 / sqrt(k (k + 1)) times -1 for
   the levels before k and k for level k, so that a product with T is one running sum. A vector in simplex coding (size)
   contains the fields of predictor i at start[i]..start[i + 1] - 1, then the couplings of pair p = (i, j) as an array
   (L_i - 1, L_j - 1) at pair_start[p]. The feature of a parameter is the contrast, or product of two contrasts, that it
   multiplies.

   Draws: the parameters x are divided into G groups, where group g is k = cuts[g]..cuts[g + 1] - 1, with one scale per
   group: x_k = scale_g z_k. In the approximation z_k = mean_k + sd_k * noise_k is normal; its prior is standard
   normal. */
#ifndef PERSISTENT_H
#define PERSISTENT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "popcount.h"
#include "solver.h"

#define PERSISTENT_CHUNK 256 /* parameters whose gradients are averaged at a time, on the stack */

typedef struct {
    ptrdiff_t m, D, P;            /* numbers of predictors, non-reference levels, pairs that interact */
    const int32_t *n_levels;      /* (m,) */
    const ptrdiff_t *start;       /* (m + 1,) first field, and first non-reference level, of each predictor */
    const ptrdiff_t *pairs;       /* (P, 2) predictors i < j */
    const ptrdiff_t *pair_start;  /* (P + 1,) first coupling of each pair in simplex coding */
} persistent_layout;

typedef struct {
    double rate, decay_first, decay_second;  /* step size; decay rates of the moments of the gradient */
    double unbias_first, unbias_second;      /* factors that remove the bias of the moments */
} persistent_adam;

/* Return the largest number of levels of a predictor, at least 2. */
static ptrdiff_t persistent_max_levels(const persistent_layout *layout)
{
    ptrdiff_t i, max_levels = 2;
    for (i = 0; i < layout->m; i++)
        if (layout->n_levels[i] > max_levels)
            max_levels = layout->n_levels[i];
    return max_levels;
}

/* Allocate memory for, in this order, t (max_levels) and f (m), which are filled in, and two scratch tables
   (max_levels, max_levels): half_product, contrasts of i by levels of j for a pair i, j, and table, levels by levels.
   Return it, or NULL. */
static double *persistent_allocate(const persistent_layout *layout, ptrdiff_t max_levels)
{
    double *t = malloc(sizeof(double) * (size_t)(max_levels + layout->m + 2 * max_levels * max_levels));
    ptrdiff_t k;
    if (t) {
        for (k = 0; k < max_levels; k++)
            t[k] = k ? 1.0 / sqrt((double)k * ((double)k + 1.0)) : 0.0;
        for (k = 0; k < layout->m; k++)
            t[max_levels + k] =
                layout->n_levels[k] > 1 ? sqrt(layout->n_levels[k] / (layout->n_levels[k] - 1.0)) : 0.0;
    }
    return t;
}

/* Write rows_out (L, n) = T B, for B (L - 1, n); t contains the factors t_k of the columns of T. */
static inline void persistent_times_T(const double *t, const double *B, ptrdiff_t L, ptrdiff_t n, double *rows_out)
{
    ptrdiff_t a, b;
    double *sum = rows_out;  /* row 0: minus the sum of the contributions so far */
    for (b = 0; b < n; b++)
        sum[b] = 0.0;
    for (a = L - 1; a > 0; a--) {
        const double *coefficient = B + (a - 1) * n;
        double *row = rows_out + a * n;
        for (b = 0; b < n; b++) {
            const double contribution = t[a] * coefficient[b];
            row[b] = a * contribution + sum[b];
            sum[b] -= contribution;
        }
    }
}

/* Write B_out (L - 1, n) = T' rows, for rows (L, n); row 0 is overwritten by running sums. t is as above. */
static inline void persistent_times_T_transposed(const double *t, double *rows, ptrdiff_t L, ptrdiff_t n, double *B_out)
{
    ptrdiff_t a, b;
    for (a = 1; a < L; a++) {
        const double *row = rows + a * n;
        double *coefficient = B_out + (a - 1) * n;
        for (b = 0; b < n; b++) {
            coefficient[b] = t[a] * (a * row[b] - rows[b]);
            rows[b] += row[b];
        }
    }
}

/* Write fields h_out (D) and couplings J_out (D, D) in the reference gauge, from a vector in simplex coding. With
   tables h and J of all levels, J_out is J(a, b) - J(a, 0) - J(0, b) + J(0, 0), and h_out is h(a) - h(0) plus the sum
   of J(a, 0) - J(0, 0) over the pairs of the predictor, where 0 is the reference level.

   Only the pairs first_pair..end_pair - 1 are used: h_out is their contribution to the fields, plus the contribution of
   the fields in simplex coding if first_pair is 0; other couplings in J_out are not changed. Returns SOLVER_DONE or
   SOLVER_NO_MEMORY. */
static int persistent_to_reference(const persistent_layout *layout, const double *simplex, ptrdiff_t first_pair,
                                   ptrdiff_t end_pair, double *h_out, double *J_out)
{
    const ptrdiff_t max_levels = persistent_max_levels(layout), D = layout->D;
    double *t = persistent_allocate(layout, max_levels), *f, *half_product, *table; /* see persistent_allocate */
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + max_levels;
    half_product = f + layout->m;
    table = half_product + max_levels * max_levels;
    memset(h_out, 0, sizeof(double) * (size_t)D);
    for (i = 0; i < layout->m && first_pair == 0; i++) {
        const ptrdiff_t L = layout->n_levels[i];
        double *h = h_out + layout->start[i] - 1; /* h[a]: field of level a */
        if (L < 2)
            continue;
        persistent_times_T(t, simplex + layout->start[i], L, 1, table);
        for (a = 1; a < L; a++)
            h[a] = f[i] * (table[a] - table[0]);
    }
    for (p = first_pair; p < end_pair; p++) {
        const double *B = simplex + layout->pair_start[p];
        i = layout->pairs[2 * p];
        j = layout->pairs[2 * p + 1];
        const ptrdiff_t L = layout->n_levels[i], R = layout->n_levels[j],
                        start_i = layout->start[i], start_j = layout->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) { /* the only contrast of each predictor is -1, 1 */
            J_out[start_i * D + start_j] = J_out[start_j * D + start_i] = 4.0 * *B;
            h_out[start_i] -= 2.0 * *B;
            h_out[start_j] -= 2.0 * *B;
            continue;
        }
        const double scale = f[i] * f[j];
        for (a = 0; a < L - 1; a++)
            persistent_times_T(t, B + a * (R - 1), R, 1, half_product + a * R); /* B T_j', (L - 1, R) */
        persistent_times_T(t, half_product, L, R, table); /* T_i B T_j', (L, R): all couplings without `scale` */
        const double corner = table[0]; /* at both reference levels */
        for (b = 1; b < R; b++)
            h_out[start_j + b - 1] += scale * (table[b] - corner);
        for (a = 1; a < L; a++) {
            const double edge = table[a * R]; /* at the reference level of j */
            double *J_row = J_out + (start_i + a - 1) * D + start_j - 1;
            h_out[start_i + a - 1] += scale * (edge - corner);
            for (b = 1; b < R; b++)
                J_row[b] = table[a * R + b] = scale * (table[a * R + b] - edge - table[b] + corner);
        }
        for (b = 1; b < R; b++) {
            double *J_row = J_out + (start_j + b - 1) * D + start_i - 1;
            for (a = 1; a < L; a++)
                J_row[a] = table[a * R + b];
        }
    }
    free(t);
    return SOLVER_DONE;
}

/* Counts of states, in one of two forms: a matrix `counts` (D, D) by pairs of levels, with counts by level on the
   diagonal; or `bits` (D, words), with one bit per state that is 1 if it has the level, and level_counts (D). */
typedef struct {
    const double *counts, *level_counts;
    const uint64_t *bits;
    ptrdiff_t D, words;
} persistent_source;

/* Return the number of states with level a, of the D non-reference levels. */
static inline double persistent_level_count(const persistent_source *source, ptrdiff_t a)
{
    return source->bits ? source->level_counts[a] : source->counts[a * (source->D + 1)];
}

/* Return the number of states with levels a and b. */
static inline double persistent_pair_count(const persistent_source *source, ptrdiff_t a, ptrdiff_t b)
{
    if (source->bits)
        return (double)popcount_and(source->bits + a * source->words, source->bits + b * source->words, source->words);
    return source->counts[a * source->D + b];
}

/* Write the sums over states of the features in simplex coding to simplex_out (size), for the pairs
   first_pair..end_pair - 1, and for the fields if first_pair is 0; `total` is the number of states.

   With total = 0 and a matrix, this is the transpose of persistent_to_reference, which is linear. By the chain rule it
   converts a gradient with respect to the reference gauge (fields on the diagonal) to one with respect to simplex
   coding. total is then 0 because fields are h(a) - h(0): the entry of a reference level is minus the sum of the
   others. Returns SOLVER_DONE or SOLVER_NO_MEMORY. */
static int persistent_feature_sums(const persistent_layout *layout, const persistent_source *source, double total,
                                   ptrdiff_t first_pair, ptrdiff_t end_pair, double *simplex_out)
{
    const ptrdiff_t max_levels = persistent_max_levels(layout);
    double *t = persistent_allocate(layout, max_levels), *f, *half_product, *table; /* see persistent_allocate */
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + max_levels;
    half_product = f + layout->m;
    table = half_product + max_levels * max_levels;
    for (i = 0; i < layout->m && first_pair == 0; i++) {
        const ptrdiff_t L = layout->n_levels[i];
        double *out = simplex_out + layout->start[i];
        if (L < 2)
            continue;
        table[0] = total;
        for (a = 1; a < L; a++) {
            table[a] = persistent_level_count(source, layout->start[i] + a - 1);
            table[0] -= table[a];
        }
        persistent_times_T_transposed(t, table, L, 1, out);
        for (a = 0; a < L - 1; a++)
            out[a] *= f[i];
    }
    for (p = first_pair; p < end_pair; p++) {
        double *out = simplex_out + layout->pair_start[p];
        i = layout->pairs[2 * p];
        j = layout->pairs[2 * p + 1];
        const ptrdiff_t L = layout->n_levels[i], R = layout->n_levels[j],
                        start_i = layout->start[i], start_j = layout->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) { /* the feature is the product of two contrasts -1, 1 */
            *out = 4.0 * persistent_pair_count(source, start_i, start_j) -
                2.0 * (persistent_level_count(source, start_i) + persistent_level_count(source, start_j)) + total;
            continue;
        }
        table[0] = total; /* table (L, R) will contain the number of states by the levels of i and j */
        for (b = 1; b < R; b++) {
            table[b] = persistent_level_count(source, start_j + b - 1);
            table[0] -= table[b];
        }
        for (a = 1; a < L; a++) {
            double at_reference_j = persistent_level_count(source, start_i + a - 1);
            table[0] -= at_reference_j;
            for (b = 1; b < R; b++) {
                const double both = persistent_pair_count(source, start_i + a - 1, start_j + b - 1);
                table[a * R + b] = both;
                table[b] -= both;
                at_reference_j -= both;
                table[0] += both;
            }
            table[a * R] = at_reference_j;
        }
        persistent_times_T_transposed(t, table, L, R, half_product);
        for (a = 0; a < L - 1; a++)
            persistent_times_T_transposed(t, half_product + a * R, R, 1, out + a * (R - 1));
        const double scale = f[i] * f[j];
        for (a = 0; a < (L - 1) * (R - 1); a++)
            out[a] *= scale;
    }
    free(t);
    return SOLVER_DONE;
}

/* Write parameters simplex_out (size) = scale_g (mean + sd noise); scale is (G). */
static void persistent_draw(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                            const double *noise, const double *scale, double *simplex_out)
{
    ptrdiff_t g, k;
    for (g = 0; g < G; g++)
        for (k = cuts[g]; k < cuts[g + 1]; k++)
            simplex_out[k] = scale[g] * (mean[k] + sd[k] * noise[k]);
}

/* Take an ascent step of Adam with n numbers x and the moments of their gradients, in place; return |gradient|^2. */
static double persistent_ascend(const persistent_adam *adam, ptrdiff_t n, const double *gradient, double *x,
                               double *first_moment, double *second_moment)
{
    ptrdiff_t k;
    double squares = 0.0;
    for (k = 0; k < n; k++) { /* 1e-8 keeps the divisor above 0 */
        const double new_mean = adam->decay_first * first_moment[k] + (1.0 - adam->decay_first) * gradient[k];
        const double new_square =
            adam->decay_second * second_moment[k] + (1.0 - adam->decay_second) * gradient[k] * gradient[k];
        first_moment[k] = new_mean;
        second_moment[k] = new_square;
        x[k] += adam->rate * new_mean * adam->unbias_first / sqrt(new_square * adam->unbias_second + 1e-8);
        squares += gradient[k] * gradient[k];
    }
    return squares;
}

/* Write gradient_by_scale_out (G), the gradient of the log-likelihood with respect to the scale of each group: since
   x_k = scale_g z_k, the sum over the group of z times the gradient (size) with respect to x. */
static void persistent_gradient_by_scale(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                                         const double *noise, const double *gradient, double *gradient_by_scale_out)
{
    ptrdiff_t g, k;
    for (g = 0; g < G; g++) {
        double sum = 0.0;
        for (k = cuts[g]; k < cuts[g + 1]; k++)
            sum += (mean[k] + sd[k] * noise[k]) * gradient[k];
        gradient_by_scale_out[g] = sum;
    }
}

/* Write the log scale of each group, clipped to [low, high], and its deviation from the global log scale, both (G).
   global_log_scale (2) contains one number for the first n_fields groups (fields) and one for the others (couplings).
   The log scales are mean + sd noise, (G) each, or the global ones if mean is NULL. */
static void persistent_log_scales(ptrdiff_t G, ptrdiff_t n_fields, const double *mean, const double *sd,
                                  const double *noise, const double *global_log_scale, double low, double high,
                                  double *log_scale_out, double *deviation_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double global_g = global_log_scale[g >= n_fields],
                     log_scale = mean ? mean[g] + sd[g] * noise[g] : global_g;
        log_scale_out[g] = log_scale < low ? low : log_scale > high ? high : log_scale;
        deviation_out[g] = log_scale_out[g] - global_g;
    }
}

/* Limit scales (G), in place, to scale / sqrt(1 + (scale / slab)^2), and write the slopes d ln(scale after) /
   d ln(scale before) to slope_out (G); see slabbed() in bbl/engines/variational/priors.py. */
static void persistent_slab(ptrdiff_t G, double slab, double *scale, double *slope_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double ratio = scale[g] / slab;
        slope_out[g] = 1.0 / (1.0 + ratio * ratio);
        scale[g] = scale[g] * sqrt(slope_out[g]);
    }
}

/* Take a step of Adam with mean and log_sd (n), in place, for n log scales, whose prior is not standard normal. noise
   contains the standard normal numbers of Q draws, in rows of n_noise numbers; gradient (Q, n) is the gradient of the
   log joint density, including the prior, with respect to the log scales mean + sd noise, with sd = exp(log_sd) before
   the step. The moments of Adam are (2, stride): for means, then for log standard deviations. */
static void persistent_step_scales(const persistent_adam *adam, ptrdiff_t n, ptrdiff_t Q, ptrdiff_t n_noise,
                                   ptrdiff_t stride, const double *noise, const double *gradient, const double *sd,
                                   double *mean, double *log_sd, double *first_moment, double *second_moment)
{
    double gradient_by_mean[PERSISTENT_CHUNK], gradient_by_log_sd[PERSISTENT_CHUNK];
    ptrdiff_t lo, k, q, chunk_size;
    for (lo = 0; lo < n; lo += chunk_size) {
        chunk_size = n - lo < PERSISTENT_CHUNK ? n - lo : PERSISTENT_CHUNK;
        for (k = 0; k < chunk_size; k++)
            gradient_by_mean[k] = gradient_by_log_sd[k] = 0.0;
        for (q = 0; q < Q; q++)
            for (k = 0; k < chunk_size; k++) {
                const double gradient_k = gradient[q * n + lo + k];
                gradient_by_mean[k] += gradient_k;
                gradient_by_log_sd[k] += gradient_k * (sd[lo + k] * noise[q * n_noise + lo + k]);
            }
        for (k = 0; k < chunk_size; k++) {
            gradient_by_mean[k] /= Q;
            gradient_by_log_sd[k] = gradient_by_log_sd[k] / Q + 1.0; /* 1: of the entropy */
        }
        persistent_ascend(adam, chunk_size, gradient_by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_ascend(adam, chunk_size, gradient_by_log_sd, log_sd + lo, first_moment + stride + lo,
                          second_moment + stride + lo);
    }
}

/* Take a step of Adam with mean and log_sd of z, in place, in the groups first_group..end_group - 1; return the squared
   norm of the gradient with respect to the means.

   The gradient with respect to z at a draw is scale times gradient, minus z for the prior. Its average over draws is
   the gradient with respect to the mean; the average of its product with sd noise, plus 1, is the gradient with respect
   to log_sd. noise contains the standard normal numbers of Q draws, in rows of n_noise numbers; scale is (Q, G),
   gradient (Q, size) is the gradient of the log-likelihood with respect to x at the draws. The moments of Adam are (2,
   stride): for means, then for log standard deviations. */
static double persistent_step(const persistent_adam *adam, const ptrdiff_t *cuts, ptrdiff_t G, ptrdiff_t first_group,
                              ptrdiff_t end_group, ptrdiff_t Q, ptrdiff_t n_noise, ptrdiff_t stride,
                              const double *noise, const double *scale, const double *gradient, const double *sd,
                              double *mean, double *log_sd, double *first_moment, double *second_moment)
{
    const ptrdiff_t size = cuts[G], end = cuts[end_group];
    double gradient_by_mean[PERSISTENT_CHUNK], gradient_by_log_sd[PERSISTENT_CHUNK], scale_k[PERSISTENT_CHUNK];
    double squares = 0.0;
    ptrdiff_t g, chunk_group = first_group, q, k, lo, chunk_size; /* lo: first parameter of a chunk, in chunk_group */
    for (lo = cuts[first_group]; lo < end; lo += chunk_size) {
        chunk_size = end - lo < PERSISTENT_CHUNK ? end - lo : PERSISTENT_CHUNK;
        while (cuts[chunk_group + 1] <= lo)
            chunk_group++;
        for (k = 0; k < chunk_size; k++)
            gradient_by_mean[k] = gradient_by_log_sd[k] = 0.0;
        for (q = 0; q < Q; q++) {
            const double *noise_q = noise + q * n_noise + lo, *gradient_q = gradient + q * size + lo;
            const double *sd_chunk = sd + lo, *mean_chunk = mean + lo;
            for (g = chunk_group, k = 0; k < chunk_size; g++)
                for (; k < chunk_size && lo + k < cuts[g + 1]; k++)
                    scale_k[k] = scale[q * G + g];
            for (k = 0; k < chunk_size; k++) {
                const double deviation = sd_chunk[k] * noise_q[k];
                const double gradient_k = scale_k[k] * gradient_q[k] - (mean_chunk[k] + deviation); /* prior: -z */
                gradient_by_mean[k] += gradient_k;
                gradient_by_log_sd[k] += gradient_k * deviation;
            }
        }
        for (k = 0; k < chunk_size; k++) {
            gradient_by_mean[k] /= Q;
            gradient_by_log_sd[k] = gradient_by_log_sd[k] / Q + 1.0; /* 1: of the entropy */
        }
        squares +=
            persistent_ascend(adam, chunk_size, gradient_by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_ascend(adam, chunk_size, gradient_by_log_sd, log_sd + lo, first_moment + stride + lo,
                          second_moment + stride + lo);
    }
    return squares;
}
#endif
