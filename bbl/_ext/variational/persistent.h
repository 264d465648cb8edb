/* A step of persistent variational inference: parameters from simplex coding to the reference gauge, gradients back to
   simplex coding, draws, and Adam.

   Reference gauge: fields and couplings of the D non-reference levels of all m predictors, 0 for reference levels.
   Simplex coding: fields and couplings are coefficients of contrasts f T of the L levels of a predictor, f = sqrt(L /
   (L - 1)). T (L, L - 1) are Helmert's contrasts: column k = 1..L - 1 is t_k = 1 / sqrt(k (k + 1)) times -1 on the
   levels before k and k on level k, so that a product with T is one running sum. A vector in simplex coding has the
   fields of predictor i at start[i]..start[i + 1], then the couplings of pair p = (i, j) as (L_i - 1, L_j - 1) at
   pair_start[p].

   Draws: parameters have a common scale in each of G groups, k in cuts[g]..cuts[g + 1]: x_k = scale_g z_k. The
   approximation has z_k normal, z_k = mean_k + sd_k * noise_k; the prior of z_k is standard normal. */
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
    ptrdiff_t m, D, P;
    const int32_t *n_levels;      /* (m,) */
    const ptrdiff_t *start;       /* (m + 1,) */
    const ptrdiff_t *pairs;       /* (P, 2) */
    const ptrdiff_t *pair_start;  /* (P + 1,) */
} persistent_layout;

typedef struct {
    double rate, decay_first, decay_second;  /* step size; decay rates of the moments of the gradient */
    double unbias_first, unbias_second;      /* factors that remove the bias of the moments */
} persistent_adam;

/* Return the largest number of levels of a predictor, at least 2. */
static ptrdiff_t persistent_max_levels(const persistent_layout *g)
{
    ptrdiff_t i, max_levels = 2;
    for (i = 0; i < g->m; i++)
        if (g->n_levels[i] > max_levels)
            max_levels = g->n_levels[i];
    return max_levels;
}

/* Allocate t (max_levels), f (m) and two scratch tables (max_levels, max_levels), in this order; NULL if it fails.
   t and f are filled. */
static double *persistent_scratch(const persistent_layout *g, ptrdiff_t max_levels)
{
    double *t = malloc(sizeof(double) * (size_t)(max_levels + g->m + 2 * max_levels * max_levels));
    ptrdiff_t k;
    if (t) {
        for (k = 0; k < max_levels; k++)
            t[k] = k ? 1.0 / sqrt((double)k * ((double)k + 1.0)) : 0.0;
        for (k = 0; k < g->m; k++)
            t[max_levels + k] = g->n_levels[k] > 1 ? sqrt(g->n_levels[k] / (g->n_levels[k] - 1.0)) : 0.0;
    }
    return t;
}

/* rows_out (L, n) = T B, for B (L - 1, n) */
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

/* B_out (L - 1, n) = T' rows, for rows (L, n); row 0 is overwritten by running sums. */
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

/* Write fields h_out (D) and couplings J_out (D, D) of the reference gauge of the pairs first..last - 1.

   h_out is the share of these pairs, and of the fields in simplex coding if `first` is 0. Other entries of J_out are
   left. Returns SOLVER_DONE or SOLVER_NO_MEMORY. */
static int persistent_to_reference(const persistent_layout *g, const double *simplex, ptrdiff_t first, ptrdiff_t last,
                             double *h_out, double *J_out)
{
    const ptrdiff_t max_levels = persistent_max_levels(g), D = g->D;
    double *t = persistent_scratch(g, max_levels), *f, *half, *table;
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + max_levels;
    half = f + g->m;
    table = half + max_levels * max_levels;
    memset(h_out, 0, sizeof(double) * (size_t)D);
    for (i = 0; i < g->m && first == 0; i++) {
        const ptrdiff_t L = g->n_levels[i];
        double *h = h_out + g->start[i] - 1;
        if (L < 2)
            continue;
        persistent_times_T(t, simplex + g->start[i], L, 1, table);
        for (a = 1; a < L; a++)
            h[a] = f[i] * (table[a] - table[0]);
    }
    for (p = first; p < last; p++) {
        const double *B = simplex + g->pair_start[p];
        i = g->pairs[2 * p];
        j = g->pairs[2 * p + 1];
        const ptrdiff_t L = g->n_levels[i], R = g->n_levels[j], start_i = g->start[i], start_j = g->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) {
            J_out[start_i * D + start_j] = J_out[start_j * D + start_i] = 4.0 * *B;
            h_out[start_i] -= 2.0 * *B;
            h_out[start_j] -= 2.0 * *B;
            continue;
        }
        const double scale = f[i] * f[j];
        for (a = 0; a < L - 1; a++)
            persistent_times_T(t, B + a * (R - 1), R, 1, half + a * R);
        persistent_times_T(t, half, L, R, table);
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

/* Counts of states: a matrix `counts` (D, D) by pairs of levels, whose diagonal counts levels; or `bits` (D, words),
   one bit for each state, with counts of levels in `levels` (D). */
typedef struct {
    const double *counts, *levels;
    const uint64_t *bits;
    ptrdiff_t D, words;
} persistent_source;

/* Number of states with column a */
static inline double persistent_level_count(const persistent_source *s, ptrdiff_t a)
{
    return s->bits ? s->levels[a] : s->counts[a * (s->D + 1)];
}

/* Number of states with columns a and b */
static inline double persistent_pair_count(const persistent_source *s, ptrdiff_t a, ptrdiff_t b)
{
    if (s->bits)
        return (double)popcount_and(s->bits + a * s->words, s->bits + b * s->words, s->words);
    return s->counts[a * s->D + b];
}

/* Write the sums over states of the features in simplex coding, for the pairs first..last - 1, and for the fields if
   `first` is 0, to simplex_out; `total` is the number of states.

   With total = 0 and a matrix, this is the chain rule: it turns a gradient by the parameters of the reference gauge
   (fields on the diagonal) into the gradient by those in simplex coding. Returns SOLVER_DONE or SOLVER_NO_MEMORY. */
static int persistent_feature_sums(const persistent_layout *g, const persistent_source *s, double total,
                                   ptrdiff_t first, ptrdiff_t last, double *simplex_out)
{
    const ptrdiff_t max_levels = persistent_max_levels(g);
    double *t = persistent_scratch(g, max_levels), *f, *half, *table;
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + max_levels;
    half = f + g->m;
    table = half + max_levels * max_levels;
    for (i = 0; i < g->m && first == 0; i++) {
        const ptrdiff_t L = g->n_levels[i];
        double *out = simplex_out + g->start[i];
        if (L < 2)
            continue;
        table[0] = total;
        for (a = 1; a < L; a++) {
            table[a] = persistent_level_count(s, g->start[i] + a - 1);
            table[0] -= table[a];
        }
        persistent_times_T_transposed(t, table, L, 1, out);
        for (a = 0; a < L - 1; a++)
            out[a] *= f[i];
    }
    for (p = first; p < last; p++) {
        double *out = simplex_out + g->pair_start[p];
        i = g->pairs[2 * p];
        j = g->pairs[2 * p + 1];
        const ptrdiff_t L = g->n_levels[i], R = g->n_levels[j], start_i = g->start[i], start_j = g->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) {
            *out = 4.0 * persistent_pair_count(s, start_i, start_j) -
                2.0 * (persistent_level_count(s, start_i) + persistent_level_count(s, start_j)) + total;
            continue;
        }
        table[0] = total;
        for (b = 1; b < R; b++) {
            table[b] = persistent_level_count(s, start_j + b - 1);
            table[0] -= table[b];
        }
        for (a = 1; a < L; a++) {
            double rest = persistent_level_count(s, start_i + a - 1);
            table[0] -= rest;
            for (b = 1; b < R; b++) {
                const double both = persistent_pair_count(s, start_i + a - 1, start_j + b - 1);
                table[a * R + b] = both;
                table[b] -= both;
                rest -= both;
                table[0] += both;
            }
            table[a * R] = rest;
        }
        persistent_times_T_transposed(t, table, L, R, half);
        for (a = 0; a < L - 1; a++)
            persistent_times_T_transposed(t, half + a * R, R, 1, out + a * (R - 1));
        const double scale = f[i] * f[j];
        for (a = 0; a < (L - 1) * (R - 1); a++)
            out[a] *= scale;
    }
    free(t);
    return SOLVER_DONE;
}

/* simplex_out (size) = scale_g (mean + sd noise) */
static void persistent_draw(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                            const double *noise, const double *scale, double *simplex_out)
{
    ptrdiff_t g, k;
    for (g = 0; g < G; g++)
        for (k = cuts[g]; k < cuts[g + 1]; k++)
            simplex_out[k] = scale[g] * (mean[k] + sd[k] * noise[k]);
}

/* Take a step of Adam uphill with n parameters x and the moments `first` and `second`; return |gradient|^2. */
static double persistent_ascend(const persistent_adam *adam, ptrdiff_t n, const double *gradient, double *x,
                               double *first, double *second)
{
    ptrdiff_t k;
    double squares = 0.0;
    for (k = 0; k < n; k++) {
        const double mean = adam->decay_first * first[k] + (1.0 - adam->decay_first) * gradient[k];
        const double square = adam->decay_second * second[k] + (1.0 - adam->decay_second) * gradient[k] * gradient[k];
        first[k] = mean;
        second[k] = square;
        x[k] += adam->rate * mean * adam->unbias_first / sqrt(square * adam->unbias_second + 1e-8); /* > 0 */
        squares += gradient[k] * gradient[k];
    }
    return squares;
}

/* products_out (G) = for each group, the sum of z times the gradient (size) of the log-likelihood. */
static void persistent_products(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                                const double *noise, const double *gradient, double *products_out)
{
    ptrdiff_t g, k;
    for (g = 0; g < G; g++) {
        double sum = 0.0;
        for (k = cuts[g]; k < cuts[g + 1]; k++)
            sum += (mean[k] + sd[k] * noise[k]) * gradient[k];
        products_out[g] = sum;
    }
}

/* Write the log scales u_out (G), cut to [low, high], and w_out (G), their differences from the global log scales
   v (2): v[0] of the first n_fields groups (fields), v[1] of the others. u = mean + sd noise, or v if mean is NULL. */
static void persistent_log_scales(ptrdiff_t G, ptrdiff_t n_fields, const double *mean, const double *sd,
                                  const double *noise, const double *v, double low, double high, double *u_out,
                                  double *w_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double global = v[g >= n_fields], x = mean ? mean[g] + sd[g] * noise[g] : global;
        u_out[g] = x < low ? low : x > high ? high : x;
        w_out[g] = u_out[g] - global;
    }
}

/* Limit scales (G), in place, to scale / sqrt(1 + (scale / slab)^2), and write their slopes d ln scale / du to
   share_out (G); see slabbed() in bbl/engines/variational/priors.py. */
static void persistent_slab(ptrdiff_t G, double slab, double *scale, double *share_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double ratio = scale[g] / slab;
        share_out[g] = 1.0 / (1.0 + ratio * ratio);
        scale[g] = scale[g] * sqrt(share_out[g]);
    }
}

/* Take a step of Adam with n parameters that have no standardised prior: mean and log_sd (n), in place.

   noise are Q draws, rows of n_noise numbers; gradient (Q, n) is that of the log joint density at the draws. The
   moments are (2, stride): of means, then of log sds. */
static void persistent_step_scales(const persistent_adam *adam, ptrdiff_t n, ptrdiff_t Q, ptrdiff_t n_noise,
                                   ptrdiff_t stride, const double *noise, const double *gradient, const double *sd,
                                   double *mean, double *log_sd, double *first_moment, double *second_moment)
{
    double by_mean[PERSISTENT_CHUNK], by_log_sd[PERSISTENT_CHUNK];
    ptrdiff_t lo, k, q, size;
    for (lo = 0; lo < n; lo += size) {
        size = n - lo < PERSISTENT_CHUNK ? n - lo : PERSISTENT_CHUNK;
        for (k = 0; k < size; k++)
            by_mean[k] = by_log_sd[k] = 0.0;
        for (q = 0; q < Q; q++)
            for (k = 0; k < size; k++) {
                const double gradient_k = gradient[q * n + lo + k];
                by_mean[k] += gradient_k;
                by_log_sd[k] += gradient_k * (sd[lo + k] * noise[q * n_noise + lo + k]);
            }
        for (k = 0; k < size; k++) {
            by_mean[k] /= Q;
            by_log_sd[k] = by_log_sd[k] / Q + 1.0;
        }
        persistent_ascend(adam, size, by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_ascend(adam, size, by_log_sd, log_sd + lo, first_moment + stride + lo, second_moment + stride + lo);
    }
}

/* Take a step of Adam with mean and log_sd of z, in place, in the groups first..last - 1; return the squared norm of
   the gradient by the means.

   noise are Q draws, rows of n_noise numbers; scale is (Q, G), gradient (Q, size) that of the log-likelihood at the
   draws. The moments are (2, stride): of means, then of log sds. */
static double persistent_step(const persistent_adam *adam, const ptrdiff_t *cuts, ptrdiff_t G, ptrdiff_t first,
                              ptrdiff_t last, ptrdiff_t Q, ptrdiff_t n_noise, ptrdiff_t stride, const double *noise,
                              const double *scale, const double *gradient, const double *sd, double *mean,
                              double *log_sd, double *first_moment, double *second_moment)
{
    const ptrdiff_t size = cuts[G], end = cuts[last];
    double by_mean[PERSISTENT_CHUNK], by_log_sd[PERSISTENT_CHUNK], scale_k[PERSISTENT_CHUNK];
    double squares = 0.0;
    ptrdiff_t g, group = first, q, k, lo, n;
    for (lo = cuts[first]; lo < end; lo += n) {
        n = end - lo < PERSISTENT_CHUNK ? end - lo : PERSISTENT_CHUNK;
        while (cuts[group + 1] <= lo)
            group++;
        for (k = 0; k < n; k++)
            by_mean[k] = by_log_sd[k] = 0.0;
        for (q = 0; q < Q; q++) {
            const double *noise_q = noise + q * n_noise + lo, *gradient_q = gradient + q * size + lo;
            const double *sd_lo = sd + lo, *mean_lo = mean + lo;
            for (g = group, k = 0; k < n; g++)
                for (; k < n && lo + k < cuts[g + 1]; k++)
                    scale_k[k] = scale[q * G + g];
            for (k = 0; k < n; k++) {
                const double deviation = sd_lo[k] * noise_q[k];
                const double gradient_k = scale_k[k] * gradient_q[k] - (mean_lo[k] + deviation);
                by_mean[k] += gradient_k;
                by_log_sd[k] += gradient_k * deviation;
            }
        }
        for (k = 0; k < n; k++) {
            by_mean[k] /= Q;
            by_log_sd[k] = by_log_sd[k] / Q + 1.0;
        }
        squares += persistent_ascend(adam, n, by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_ascend(adam, n, by_log_sd, log_sd + lo, first_moment + stride + lo, second_moment + stride + lo);
    }
    return squares;
}
#endif
