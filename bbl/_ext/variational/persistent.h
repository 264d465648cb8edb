/* One step of persistent variational inference: from draws in simplex coding to couplings for the chains, from counts
   of their states back to gradients, and Adam.

   Conventions: a vector in simplex coding is laid out like the parameters of a group: fields of predictor i at
   start[i]..start[i + 1], couplings of pair p as (L_i - 1, L_j - 1) at pair_start[p]. The contrasts of L levels are
   f T with f = sqrt(L / (L - 1)) and Helmert's columns T, of which the k-th (k = 1..L - 1) is t_k = 1 / sqrt(k (k + 1))
   times -1 on the levels before k and k on level k. So a product with T is one running sum. */
#ifndef PERSISTENT_H
#define PERSISTENT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "popcount.h"
#include "solver.h"

#define PERSISTENT_CHUNK 256

typedef struct {
    ptrdiff_t m, D, P;
    const int32_t *n_levels;      /* (m,) */
    const ptrdiff_t *start;       /* (m + 1,) */
    const ptrdiff_t *pairs;       /* (P, 2) */
    const ptrdiff_t *pair_start;  /* (P + 1,) */
} persistent_layout;

typedef struct {
    double rate, decay, keep, unbias_first, unbias_second;  /* step, both decay rates, and what undoes their bias */
} persistent_adam;

static ptrdiff_t persistent_most(const persistent_layout *g)
{
    ptrdiff_t i, top = 2;
    for (i = 0; i < g->m; i++)
        if (g->n_levels[i] > top)
            top = g->n_levels[i];
    return top;
}

/* Working memory: t (top), f (m) and two tables (top, top); NULL if there is none */
static double *persistent_scratch(const persistent_layout *g, ptrdiff_t top)
{
    double *t = malloc(sizeof(double) * (size_t)(top + g->m + 2 * top * top));
    ptrdiff_t k;
    if (t) {
        for (k = 0; k < top; k++)
            t[k] = k ? 1.0 / sqrt((double)k * ((double)k + 1.0)) : 0.0;
        for (k = 0; k < g->m; k++)
            t[top + k] = g->n_levels[k] > 1 ? sqrt(g->n_levels[k] / (g->n_levels[k] - 1.0)) : 0.0;
    }
    return t;
}

/* rows (L, n) = T times B (L - 1, n) */
static inline void persistent_spread(const double *t, const double *B, ptrdiff_t L, ptrdiff_t n, double *rows_out)
{
    ptrdiff_t a, b;
    double *sum = rows_out;  /* the first row gathers what the later ones have taken */
    for (b = 0; b < n; b++)
        sum[b] = 0.0;
    for (a = L - 1; a > 0; a--) {
        const double *x = B + (a - 1) * n;
        double *to = rows_out + a * n;
        for (b = 0; b < n; b++) {
            const double own = t[a] * x[b];
            to[b] = a * own + sum[b];
            sum[b] -= own;
        }
    }
}

/* B (L - 1, n) = T' times rows (L, n); the first row is lost */
static inline void persistent_gather(const double *t, double *rows, ptrdiff_t L, ptrdiff_t n, double *B_out)
{
    ptrdiff_t a, b;
    for (a = 1; a < L; a++) {
        const double *x = rows + a * n;
        double *to = B_out + (a - 1) * n;
        for (b = 0; b < n; b++) {
            to[b] = t[a] * (a * x[b] - rows[b]);
            rows[b] += x[b];
        }
    }
}

/* Fields h_out (D,) and couplings J_out (D, D) of the reference gauge, from the pairs first..last - 1, and from the
   fields in simplex coding if `first` is 0; entries of other pairs are left */
static int persistent_couple(const persistent_layout *g, const double *simplex, ptrdiff_t first, ptrdiff_t last,
                             double *h_out, double *J_out)
{
    const ptrdiff_t top = persistent_most(g), D = g->D;
    double *t = persistent_scratch(g, top), *f, *half, *full;
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + top;
    half = f + g->m;
    full = half + top * top;
    memset(h_out, 0, sizeof(double) * (size_t)D);
    for (i = 0; i < g->m && first == 0; i++) {
        const ptrdiff_t L = g->n_levels[i];
        double *h = h_out + g->start[i] - 1;
        if (L < 2)
            continue;
        persistent_spread(t, simplex + g->start[i], L, 1, full);
        for (a = 1; a < L; a++)
            h[a] = f[i] * (full[a] - full[0]);
    }
    for (p = first; p < last; p++) {
        const double *B = simplex + g->pair_start[p];
        i = g->pairs[2 * p];
        j = g->pairs[2 * p + 1];
        const ptrdiff_t L = g->n_levels[i], R = g->n_levels[j], si = g->start[i], sj = g->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) {
            J_out[si * D + sj] = J_out[sj * D + si] = 4.0 * *B;
            h_out[si] -= 2.0 * *B;
            h_out[sj] -= 2.0 * *B;
            continue;
        }
        const double scale = f[i] * f[j];
        for (a = 0; a < L - 1; a++)
            persistent_spread(t, B + a * (R - 1), R, 1, half + a * R);
        persistent_spread(t, half, L, R, full);
        const double corner = full[0];
        for (b = 1; b < R; b++)
            h_out[sj + b - 1] += scale * (full[b] - corner);
        for (a = 1; a < L; a++) {
            const double edge = full[a * R];
            double *to = J_out + (si + a - 1) * D + sj - 1;
            h_out[si + a - 1] += scale * (edge - corner);
            for (b = 1; b < R; b++)
                to[b] = full[a * R + b] = scale * (full[a * R + b] - edge - full[b] + corner);
        }
        for (b = 1; b < R; b++) {
            double *to = J_out + (sj + b - 1) * D + si - 1;
            for (a = 1; a < L; a++)
                to[a] = full[a * R + b];
        }
    }
    free(t);
    return SOLVER_DONE;
}

/* Where counts of pairs of levels come from: a matrix (D, D), whose diagonal counts levels, or bits (D, words) of the
   states; then `levels` (D,) holds the counts of levels */
typedef struct {
    const double *counts, *levels;
    const uint64_t *bits;
    ptrdiff_t D, words;
} persistent_source;

static inline double persistent_level(const persistent_source *s, ptrdiff_t a)
{
    return s->bits ? s->levels[a] : s->counts[a * (s->D + 1)];
}

static inline double persistent_both(const persistent_source *s, ptrdiff_t a, ptrdiff_t b)
{
    if (s->bits)
        return (double)popcount_and(s->bits + a * s->words, s->bits + b * s->words, s->words);
    return s->counts[a * s->D + b];
}

/* Sums of the features in simplex coding over rows that weigh `total`, for the pairs first..last - 1, and for the
   fields if `first` is 0. With total = 0 and a matrix, the same turns a gradient by the parameters of the reference
   gauge (fields on the diagonal) into one by those in simplex coding. */
static int persistent_features(const persistent_layout *g, const persistent_source *s, double total, ptrdiff_t first,
                               ptrdiff_t last, double *simplex_out)
{
    const ptrdiff_t top = persistent_most(g);
    double *t = persistent_scratch(g, top), *f, *half, *full;
    ptrdiff_t i, j, p, a, b;
    if (!t)
        return SOLVER_NO_MEMORY;
    f = t + top;
    half = f + g->m;
    full = half + top * top;
    for (i = 0; i < g->m && first == 0; i++) {
        const ptrdiff_t L = g->n_levels[i];
        double *out = simplex_out + g->start[i];
        if (L < 2)
            continue;
        full[0] = total;
        for (a = 1; a < L; a++) {
            full[a] = persistent_level(s, g->start[i] + a - 1);
            full[0] -= full[a];
        }
        persistent_gather(t, full, L, 1, out);
        for (a = 0; a < L - 1; a++)
            out[a] *= f[i];
    }
    for (p = first; p < last; p++) {
        double *out = simplex_out + g->pair_start[p];
        i = g->pairs[2 * p];
        j = g->pairs[2 * p + 1];
        const ptrdiff_t L = g->n_levels[i], R = g->n_levels[j], si = g->start[i], sj = g->start[j];
        if (L < 2 || R < 2)
            continue;
        if (L == 2 && R == 2) {
            *out = 4.0 * persistent_both(s, si, sj) - 2.0 * (persistent_level(s, si) + persistent_level(s, sj)) + total;
            continue;
        }
        full[0] = total;
        for (b = 1; b < R; b++) {
            full[b] = persistent_level(s, sj + b - 1);
            full[0] -= full[b];
        }
        for (a = 1; a < L; a++) {
            double left = persistent_level(s, si + a - 1);
            full[0] -= left;
            for (b = 1; b < R; b++) {
                const double both = persistent_both(s, si + a - 1, sj + b - 1);
                full[a * R + b] = both;
                full[b] -= both;
                left -= both;
                full[0] += both;
            }
            full[a * R] = left;
        }
        persistent_gather(t, full, L, R, half);
        for (a = 0; a < L - 1; a++)
            persistent_gather(t, half + a * R, R, 1, out + a * (R - 1));
        const double scale = f[i] * f[j];
        for (a = 0; a < (L - 1) * (R - 1); a++)
            out[a] *= scale;
    }
    free(t);
    return SOLVER_DONE;
}

/* simplex_out = scale of the group * (mean + sd * noise), group g at cuts[g]..cuts[g + 1] */
static void persistent_draw(const ptrdiff_t *cuts, ptrdiff_t G, const double *mean, const double *sd,
                            const double *noise, const double *scale, double *simplex_out)
{
    ptrdiff_t g, k;
    for (g = 0; g < G; g++)
        for (k = cuts[g]; k < cuts[g + 1]; k++)
            simplex_out[k] = scale[g] * (mean[k] + sd[k] * noise[k]);
}

/* Adam uphill on n numbers; returns the sum of the squared gradients. The constant that keeps the root from zero stands
   inside it. */
static double persistent_climb(const persistent_adam *o, ptrdiff_t n, const double *gradient, double *x,
                               double *first, double *second)
{
    ptrdiff_t k;
    double sum = 0.0;
    for (k = 0; k < n; k++) {
        const double mean = o->decay * first[k] + (1.0 - o->decay) * gradient[k];
        const double square = o->keep * second[k] + (1.0 - o->keep) * gradient[k] * gradient[k];
        first[k] = mean;
        second[k] = square;
        x[k] += o->rate * mean * o->unbias_first / sqrt(square * o->unbias_second + 1e-8);
        sum += gradient[k] * gradient[k];
    }
    return sum;
}

/* products_out (G,) = sums of z times the gradient (size,) of the log-likelihood over each group, given the noise */
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

/* Log scales u_out and their distances w_out (G,) from the global ones v (2,), of which the first `fields` groups have
   the one and the others the other; u is mean + sd * noise, or where there are no means v itself, cut to [low, high] */
static void persistent_log_scales(ptrdiff_t G, ptrdiff_t fields, const double *mean, const double *sd,
                                  const double *noise, const double *v, double low, double high, double *u_out,
                                  double *w_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double global = v[g >= fields], x = mean ? mean[g] + sd[g] * noise[g] : global;
        u_out[g] = x < low ? low : x > high ? high : x;
        w_out[g] = u_out[g] - global;
    }
}

/* Scales (G,) under a slab, in place, and their relative slopes by u; see slabbed() in bbl/engines/variational/priors.py */
static void persistent_slab(ptrdiff_t G, double slab, double *scale, double *share_out)
{
    ptrdiff_t g;
    for (g = 0; g < G; g++) {
        const double ratio = scale[g] / slab;
        share_out[g] = 1.0 / (1.0 + ratio * ratio);
        scale[g] = scale[g] * sqrt(share_out[g]);
    }
}

/* One step of n numbers without a prior of their own (mean and log sd), given Q draws of noise (Q, row n_noise) and the
   gradients (Q, n) there; first_moment, second_moment: (2, stride) Adam's */
static void persistent_step_scales(const persistent_adam *o, ptrdiff_t n, ptrdiff_t Q, ptrdiff_t n_noise,
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
                const double own = gradient[q * n + lo + k];
                by_mean[k] += own;
                by_log_sd[k] += own * (sd[lo + k] * noise[q * n_noise + lo + k]);
            }
        for (k = 0; k < size; k++) {
            by_mean[k] /= Q;
            by_log_sd[k] = by_log_sd[k] / Q + 1.0;
        }
        persistent_climb(o, size, by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_climb(o, size, by_log_sd, log_sd + lo, first_moment + stride + lo, second_moment + stride + lo);
    }
}

/* One step of the standardised parameters z (mean and log sd) of the groups first..last - 1, given Q draws of noise (Q,
   row n_noise) and the gradients of the log-likelihood (Q, size) there. first_moment, second_moment: (2, stride)
   Adam's, of means and log sds. Returns the sum of the squared gradients by means. */
static double persistent_step(const persistent_adam *o, const ptrdiff_t *cuts, ptrdiff_t G, ptrdiff_t first,
                              ptrdiff_t last, ptrdiff_t Q, ptrdiff_t n_noise, ptrdiff_t stride, const double *noise,
                              const double *scale, const double *gradient, const double *sd, double *mean,
                              double *log_sd, double *first_moment, double *second_moment)
{
    const ptrdiff_t size = cuts[G], end = cuts[last];
    double by_mean[PERSISTENT_CHUNK], by_log_sd[PERSISTENT_CHUNK], own[PERSISTENT_CHUNK];
    double sum = 0.0;
    ptrdiff_t g, group = first, q, k, lo, n;
    for (lo = cuts[first]; lo < end; lo += n) {
        n = end - lo < PERSISTENT_CHUNK ? end - lo : PERSISTENT_CHUNK;
        while (cuts[group + 1] <= lo)
            group++;
        for (k = 0; k < n; k++)
            by_mean[k] = by_log_sd[k] = 0.0;
        for (q = 0; q < Q; q++) {
            const double *e = noise + q * n_noise + lo, *slope = gradient + q * size + lo, *s = sd + lo, *m = mean + lo;
            for (g = group, k = 0; k < n; g++)
                for (; k < n && lo + k < cuts[g + 1]; k++)
                    own[k] = scale[q * G + g];
            for (k = 0; k < n; k++) {
                const double away = s[k] * e[k], total = own[k] * slope[k] - (m[k] + away);
                by_mean[k] += total;
                by_log_sd[k] += total * away;
            }
        }
        for (k = 0; k < n; k++) {
            by_mean[k] /= Q;
            by_log_sd[k] = by_log_sd[k] / Q + 1.0;
        }
        sum += persistent_climb(o, n, by_mean, mean + lo, first_moment + lo, second_moment + lo);
        persistent_climb(o, n, by_log_sd, log_sd + lo, first_moment + stride + lo, second_moment + stride + lo);
    }
    return sum;
}
#endif
